// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `without WHAT USER PROGRAM ARGUMENTS...`: runs a program as USER on a host that lacks WHAT:
//! `nothing`, or `namespaces`, `landlock`, `kvm-version`, `kvm-irqchip` and `kvm-vcpus` with
//! commas. An inherited seccomp filter makes the host calls return what they return on such a host.

use paravane_tests::host_without::Lacks;
use rustix::io::Errno;
use rustix::thread::set_no_new_privs;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const CLONE: i64 = 56;
const UNSHARE: i64 = 272;
const SETNS: i64 = 308;
const CLONE3: i64 = 435;
const LANDLOCK: [i64; 3] = [444, 445, 446];
const IOCTL: i64 = 16;
/// Requests of ioctl (linux/kvm.h), and capabilities.
const KVM_GET_API_VERSION: u64 = 0xae00;
const KVM_CHECK_EXTENSION: u64 = 0xae03;
const KVM_CAP_SPLIT_IRQCHIP: u64 = 121;
const KVM_CAP_MAX_VCPUS: u64 = 66;
const KVM_CAP_NR_VCPUS: u64 = 9;
/// The `CLONE_NEW*` that are flags of clone: all except the one for time.
const NAMESPACES: [u64; 7] = [
    0x0002_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];
/// `CLONE_NEWTIME`, which only unshare takes: in clone the bit belongs to the signal.
const NEWTIME: u64 = 0x80;

fn main() -> ExitCode {
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("without: {error}");
            ExitCode::from(125)
        }
    }
}

fn run() -> Result<std::convert::Infallible, Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let what = words.next().ok_or("nothing said of what the host lacks")?;
    let lacks: Lacks = what.to_str().ok_or("a name that is no text")?.parse()?;
    let user: u32 = words
        .next()
        .and_then(|w| w.to_str()?.parse().ok())
        .ok_or("no user")?;
    let program = words.next().ok_or("no program")?;
    if lacks != Lacks::default() {
        set_no_new_privs(true)?;
    }
    if lacks.namespaces {
        // clone3 has its flags in memory, where a filter cannot read them. The C library then uses
        // clone.
        install([(CLONE3, vec![])], Errno::NOSYS)?;
        let clone = NAMESPACES
            .iter()
            .map(|flag| has(*flag))
            .collect::<Result<_, _>>()?;
        let unshare = NAMESPACES.iter().chain([&NEWTIME]).map(|flag| has(*flag));
        let unshare = unshare.collect::<Result<_, _>>()?;
        install(
            [(CLONE, clone), (UNSHARE, unshare), (SETNS, vec![])],
            Errno::PERM,
        )?;
    }
    let capability = |number| {
        let request = argument(1, KVM_CHECK_EXTENSION)?;
        SeccompRule::new(vec![request, argument(2, number)?])
    };
    let mut unknown = Vec::new();
    if lacks.kvm_version {
        unknown.push(SeccompRule::new(vec![argument(1, KVM_GET_API_VERSION)?])?);
    }
    if lacks.kvm_irqchip {
        unknown.push(capability(KVM_CAP_SPLIT_IRQCHIP)?);
    }
    if lacks.kvm_vcpus {
        unknown.push(capability(KVM_CAP_MAX_VCPUS)?);
        unknown.push(capability(KVM_CAP_NR_VCPUS)?);
    }
    if !unknown.is_empty() {
        // Without an error: the answer is 0.
        answer([(IOCTL, unknown)], 0)?;
    }
    if lacks.landlock {
        install(LANDLOCK.map(|call| (call, vec![])), Errno::NOSYS)?;
    }
    Err(Command::new(program)
        .args(words)
        .uid(user)
        .gid(user)
        .exec()
        .into())
}

/// Whether the first argument has this flag.
fn has(flag: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(flag),
        flag,
    )?;
    SeccompRule::new(vec![condition])
}

/// An argument has this value.
fn argument(number: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(number, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// Fails these calls with an error.
fn install<const N: usize>(
    rules: [(i64, Vec<SeccompRule>); N],
    error: Errno,
) -> Result<(), Box<dyn Error>> {
    answer(rules, error.raw_os_error().unsigned_abs())
}

/// Has these calls return an error; 0: they return 0.
fn answer<const N: usize>(
    rules: [(i64, Vec<SeccompRule>); N],
    error: u32,
) -> Result<(), Box<dyn Error>> {
    let refuse = SeccompAction::Errno(error);
    let filter = SeccompFilter::new(
        BTreeMap::from(rules),
        SeccompAction::Allow,
        refuse,
        TargetArch::x86_64,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}
