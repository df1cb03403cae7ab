// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The language of the files in `policies/`: which host calls are admitted, with which arguments,
//! and why.
//!
//! A filter starts with a chain of comparisons in the order of the file. Each call has a program of
//! its own after the chain. The filter runs on every host call, so the file lists frequent calls
//! first.

use anyhow::{Context, bail};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A host call of a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The call's name, for error messages.
    pub name: String,
    /// The call's number on x86-64.
    pub number: u32,
    /// Why the policy admits the call.
    pub reason: String,
    /// The call is admitted if one of these rules holds. A rule without conditions always holds.
    pub rules: Vec<Vec<Condition>>,
    /// The error that the caller gets if no rule holds. Without one, the policy's default applies.
    pub otherwise: Option<String>,
    /// A name. If its value is 0, the policy treats the call as if it were not listed.
    pub only_if: Option<String>,
}

/// A condition on one argument.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    arg: u8,
    bits: u8,
    is: Option<String>,
    at_least: Option<String>,
    at_most: Option<String>,
    /// None of these bits is set.
    none_of: Option<String>,
    /// With `is`: only these bits are compared.
    of: Option<String>,
}

/// Values of names that only the caller of [`assemble`] knows.
pub type Names<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// Offset of the call's number in `struct seccomp_data`.
pub const DATA_NUMBER: u32 = 0;
/// Offset of the architecture in `struct seccomp_data`.
pub const DATA_ARCH: u32 = 4;
/// The architecture of a 64-bit call on x86-64.
pub const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// BPF: load the 32-bit word at offset `k` into the accumulator.
pub const LOAD: u16 = 0x20;
/// BPF: jump by `jt` if the accumulator equals `k`, by `jf` otherwise.
pub const JUMP_EQUAL: u16 = 0x15;
/// BPF: jump by `k`.
pub const JUMP: u16 = 0x05;
/// BPF: return `k`, the filter's decision.
pub const RETURN: u16 = 0x06;

/// An instruction of a filter.
pub fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Assembles a filter. `prologue` leaves the call's number in the accumulator. `otherwise` is the
/// decision for a call that no entry admits.
///
/// # Errors
/// An entry has an unknown name, an invalid condition, or no reason.
pub fn assemble<'a>(
    prologue: BpfProgram,
    calls: impl IntoIterator<Item = &'a Call>,
    otherwise: &SeccompAction,
    names: Names<'_>,
) -> anyhow::Result<BpfProgram> {
    let mut programs = Vec::new();
    for call in calls {
        let complain = || format!("seccomp policy, call {}", call.name);
        if let Some(name) = &call.only_if {
            if value(name, names).with_context(complain)? == 0 {
                continue;
            }
        }
        let program = call.compile(otherwise, names).with_context(complain)?;
        programs.push((call.number, program));
    }
    let mut result = prologue;
    // The chain has two instructions for each call and one at its end. The programs follow in the
    // same order.
    let mut behind_chain = 0;
    for (index, (number, program)) in programs.iter().enumerate() {
        let rest_of_chain = (programs.len() - index - 1) * 2 + 1;
        result.push(instruction(JUMP_EQUAL, 0, 1, *number));
        result.push(instruction(
            JUMP,
            0,
            0,
            u32::try_from(rest_of_chain + behind_chain)?,
        ));
        behind_chain += program.len();
    }
    result.push(instruction(RETURN, 0, 0, otherwise.clone().into()));
    result.extend(programs.into_iter().flat_map(|(_, program)| program));
    Ok(result)
}

impl Call {
    /// Compiles the program that decides about this call.
    fn compile(&self, otherwise: &SeccompAction, names: Names<'_>) -> anyhow::Result<BpfProgram> {
        if self.reason.is_empty() {
            bail!("no reason is given");
        }
        let no = match &self.otherwise {
            Some(name) => {
                SeccompAction::Errno(error(name).with_context(|| format!("`{name}` is not known"))?)
            }
            None => otherwise.clone(),
        };
        if self.rules.is_empty() {
            if self.otherwise.is_none() {
                bail!("no rule is given");
            }
            return Ok(vec![instruction(RETURN, 0, 0, no.into())]);
        }
        let mut rules = Vec::new();
        for conditions in &self.rules {
            // A rule without conditions admits all arguments. seccompiler expresses that by an
            // empty list of rules.
            if conditions.is_empty() {
                if self.rules.len() != 1 {
                    bail!("a rule without conditions makes the other rules useless");
                }
                break;
            }
            let conditions: anyhow::Result<Vec<_>> =
                conditions.iter().map(|c| c.compile(names)).collect();
            rules.push(SeccompRule::new(conditions?)?);
        }
        let calls = BTreeMap::from([(i64::from(self.number), rules)]);
        Ok(SeccompFilter::new(calls, no, SeccompAction::Allow, TargetArch::x86_64)?.try_into()?)
    }
}

impl Condition {
    fn compile(&self, names: Names<'_>) -> anyhow::Result<SeccompCondition> {
        let length = match self.bits {
            32 => SeccompCmpArgLen::Dword,
            64 => SeccompCmpArgLen::Qword,
            other => bail!("{other} bits"),
        };
        let words = [&self.is, &self.at_least, &self.at_most, &self.none_of];
        let (operator, text) = match words {
            [Some(text), None, None, None] => match &self.of {
                Some(mask) => (SeccompCmpOp::MaskedEq(value(mask, names)?), text),
                None => (SeccompCmpOp::Eq, text),
            },
            [None, Some(text), None, None] => (SeccompCmpOp::Ge, text),
            [None, None, Some(text), None] => (SeccompCmpOp::Le, text),
            [None, None, None, Some(text)] => {
                let mask = SeccompCmpOp::MaskedEq(value(text, names)?);
                return Ok(SeccompCondition::new(self.arg, length, mask, 0)?);
            }
            _ => bail!("a condition has one of is, at_least, at_most, none_of"),
        };
        Ok(SeccompCondition::new(
            self.arg,
            length,
            operator,
            value(text, names)?,
        )?)
    }
}

/// The value of one or more names, joined by `|`.
fn value(text: &str, names: Names<'_>) -> anyhow::Result<u64> {
    let mut sum = 0;
    for name in text.split('|') {
        sum |= names(name)
            .or_else(|| constant(name))
            .with_context(|| format!("`{name}` is not known"))?;
    }
    Ok(sum)
}

fn error(name: &str) -> Option<u32> {
    let value = match name {
        "EACCES" => libc::EACCES,
        "ENOSYS" => libc::ENOSYS,
        "EPERM" => libc::EPERM,
        "EROFS" => libc::EROFS,
        _ => return None,
    };
    u32::try_from(value).ok()
}

/// The value of a constant from the host's headers.
fn constant(name: &str) -> Option<u64> {
    let signed = |value: libc::c_int| u64::try_from(value).ok();
    let value = match name {
        "0" => 0,
        "1" => 1,
        "2" => 2,
        "STDERR" => 2,
        "FUTEX_WAIT" => libc::FUTEX_WAIT,
        "FUTEX_WAKE" => libc::FUTEX_WAKE,
        "FUTEX_WAIT_BITSET" => libc::FUTEX_WAIT_BITSET,
        // The command bits of a futex call. The other bits are flags.
        "FUTEX_COMMANDS" => 0x7f,
        "PROT_EXEC" => libc::PROT_EXEC,
        "MAP_SHARED" => libc::MAP_SHARED,
        "MAP_FIXED" => libc::MAP_FIXED,
        "MAP_POPULATE" => libc::MAP_POPULATE,
        "MADV_DONTNEED" => libc::MADV_DONTNEED,
        "MADV_FREE" => libc::MADV_FREE,
        "MADV_REMOVE" => libc::MADV_REMOVE,
        "MFD_ALLOW_SEALING" => libc::MFD_ALLOW_SEALING.cast_signed(),
        "MFD_CLOEXEC" => libc::MFD_CLOEXEC.cast_signed(),
        "MADV_HUGEPAGE" => libc::MADV_HUGEPAGE,
        // Of Linux 6.13; libc has no names for them yet.
        "MADV_GUARD_INSTALL" => 102,
        "MADV_GUARD_REMOVE" => 103,
        "MADV_POPULATE_READ" => libc::MADV_POPULATE_READ,
        "MADV_POPULATE_WRITE" => libc::MADV_POPULATE_WRITE,
        "SIGABRT" => libc::SIGABRT,
        "SIGKILL" => libc::SIGKILL,
        "SIGURG" => libc::SIGURG,
        // The signal that wakes the watch. The C library uses the first real-time signals itself.
        "SIGRTMIN+4" => libc::SIGRTMIN() + 4,
        "CLOCK_THREAD_CPUTIME_ID" => libc::CLOCK_THREAD_CPUTIME_ID,
        "CLOCK_MONOTONIC" => libc::CLOCK_MONOTONIC,
        // linux/posix-timers.h: a clock id that names a thread and its CPU time, and the bits that
        // say so. Other kinds name a process, or a descriptor.
        "CLOCK_OF_THREAD" => return Some(0x8000_0006),
        "CLOCK_KIND" => return Some(0x8000_0007),
        "AF_UNIX" => libc::AF_UNIX,
        "AF_INET" => libc::AF_INET,
        "AF_INET6" => libc::AF_INET6,
        "SOCK_STREAM" => libc::SOCK_STREAM,
        "SOCK_DGRAM" => libc::SOCK_DGRAM,
        "SOCK_SEQPACKET" => libc::SOCK_SEQPACKET,
        // The type bits of a socket's type argument. The other bits are flags.
        "SOCK_TYPES" => 0xf,
        "SOL_SOCKET" => libc::SOL_SOCKET,
        "SO_ERROR" => libc::SO_ERROR,
        "SO_KEEPALIVE" => libc::SO_KEEPALIVE,
        "SO_REUSEADDR" => libc::SO_REUSEADDR,
        "SO_LINGER" => libc::SO_LINGER,
        "SO_OOBINLINE" => libc::SO_OOBINLINE,
        "IPPROTO_TCP" => libc::IPPROTO_TCP,
        "TCP_KEEPCNT" => libc::TCP_KEEPCNT,
        "TCP_KEEPIDLE" => libc::TCP_KEEPIDLE,
        "TCP_KEEPINTVL" => libc::TCP_KEEPINTVL,
        "TCP_NODELAY" => libc::TCP_NODELAY,
        // asm/prctl.h.
        "ARCH_SET_CPUID" => 0x1012,
        "PR_SET_NAME" => libc::PR_SET_NAME,
        "F_DUPFD_CLOEXEC" => libc::F_DUPFD_CLOEXEC,
        "F_GETFD" => libc::F_GETFD,
        "F_ADD_SEALS" => libc::F_ADD_SEALS,
        "F_GET_SEALS" => libc::F_GET_SEALS,
        "SO_PASSCRED" => libc::SO_PASSCRED,
        "SO_PASSRIGHTS" => crate::passed_files::SO_PASSRIGHTS,
        "SO_PEERCRED" => libc::SO_PEERCRED,
        "SO_MEMINFO" => libc::SO_MEMINFO,
        "SO_PEERGROUPS" => libc::SO_PEERGROUPS,
        "F_SETFD" => libc::F_SETFD,
        "F_GETFL" => libc::F_GETFL,
        "F_SETFL" => libc::F_SETFL,
        "FALLOC_FL_KEEP_SIZE" => libc::FALLOC_FL_KEEP_SIZE,
        "FALLOC_FL_PUNCH_HOLE" => libc::FALLOC_FL_PUNCH_HOLE,
        "FALLOC_FL_ZERO_RANGE" => libc::FALLOC_FL_ZERO_RANGE,
        "O_WRONLY" => libc::O_WRONLY,
        "O_RDWR" => libc::O_RDWR,
        "O_CREAT" => libc::O_CREAT,
        "O_TRUNC" => libc::O_TRUNC,
        "O_APPEND" => libc::O_APPEND,
        "O_ASYNC" => libc::O_ASYNC,
        "O_DIRECT" => libc::O_DIRECT,
        "O_NOATIME" => libc::O_NOATIME,
        "O_NONBLOCK" => libc::O_NONBLOCK,
        "CLONE_FS" => libc::CLONE_FS,
        // linux/fanotify.h.
        "FAN_MARK_MOUNT" => 0x10,
        "FAN_MARK_FILESYSTEM" => 0x100,
        // The flags with which glibc and musl create a thread.
        "CLONE_THREAD_GLIBC" => return Some(0x003d_0f00),
        "CLONE_THREAD_MUSL" => return Some(0x007d_0f00),
        // The bit of O_TMPFILE that is not O_DIRECTORY.
        "O_TMPFILE" => libc::O_TMPFILE & !libc::O_DIRECTORY,
        "S_ISUID" => return Some(libc::S_ISUID.into()),
        "S_ISGID" => return Some(libc::S_ISGID.into()),
        "S_IFMT" => return Some(libc::S_IFMT.into()),
        "S_IFREG" => return Some(libc::S_IFREG.into()),
        "S_IFIFO" => return Some(libc::S_IFIFO.into()),
        "S_IFSOCK" => return Some(libc::S_IFSOCK.into()),
        "LOCK_UN" => libc::LOCK_UN,
        "RWF_NOWAIT" => libc::RWF_NOWAIT,
        // linux/io_uring.h.
        "IORING_ENTER_GETEVENTS" => 1,
        "IORING_ENTER_REGISTERED_RING" => 1 << 4,
        "IORING_REGISTER_FILES_UPDATE" => 6,
        "IORING_REGISTER_USE_REGISTERED_RING" => return Some(1 << 31),
        "FIONBIO" => return Some(libc::FIONBIO),
        // linux/kvm.h.
        "KVM_RUN" => 0xae80,
        "KVM_GET_REGS" => return Some(0x8090_ae81),
        "KVM_SET_REGS" => return Some(0x4090_ae82),
        "KVM_GET_SREGS" => return Some(0x8138_ae83),
        "KVM_GET_FPU" => return Some(0x81a0_ae8c),
        "KVM_GET_MP_STATE" => return Some(0x8004_ae98),
        "KVM_SET_GUEST_DEBUG" => return Some(0x4048_ae9b),
        "KVM_SET_GSI_ROUTING" => return Some(0x4008_ae6a),
        "KVM_SIGNAL_MSI" => return Some(0x4020_aea5),
        "TIOCGWINSZ" => return Some(libc::TIOCGWINSZ),
        "TCGETS" => return Some(libc::TCGETS),
        "TCSETS" => return Some(libc::TCSETS),
        "TCGETS2" => return Some(libc::TCGETS2),
        "TCSETS2" => return Some(libc::TCSETS2),
        // linux/if_tun.h.
        "TUNSETOFFLOAD" => return Some(libc::TUNSETOFFLOAD),
        "TUNSETIFF" => return Some(libc::TUNSETIFF),
        "TUNSETVNETHDRSZ" => return Some(libc::TUNSETVNETHDRSZ),
        "SIOCGIFINDEX" => return Some(libc::SIOCGIFINDEX),
        "SIOCGIFNAME" => return Some(libc::SIOCGIFNAME),
        "SIOCGIFFLAGS" => return Some(libc::SIOCGIFFLAGS),
        "SIOCGIFMTU" => return Some(libc::SIOCGIFMTU),
        _ => return None,
    };
    signed(value)
}
