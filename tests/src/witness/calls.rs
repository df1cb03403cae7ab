// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host calls that the processes of a machine may make. This list is written independently of
//! the policy that it tests.

use crate::ptrace::Call;
use object::{Object, ObjectSymbol};
use std::fmt;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
/// Number of seccomp.
pub const SECCOMP: u64 = 317;
const CLONE: u64 = 56;
const THREAD: u64 = 0x1_0000;
const SET_THREAD_AREA_32: u64 = 243;
/// The first descriptor of guest memory. Those below are the zygote's control socket and the shared
/// area.
const FIRST_RAM: u64 = 5;
const LAST_RAM: u64 = FIRST_RAM + 16;

/// A call, for reports.
pub struct Shown<'a>(pub &'a Call);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call {
            arch,
            number,
            arguments: [a, b, c, d, e, g],
            address,
            ..
        } = self.0;
        let wide = if *arch == X86_64 { "" } else { " (32-bit)" };
        write!(
            f,
            "{number}{wide}({a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x}, {g:#x}) at {address:#x}"
        )
    }
}

/// The address after the only instruction of the layer that makes host calls.
#[allow(clippy::expect_used)] // A panic fails the test.
pub fn instruction() -> u64 {
    let layer =
        object::File::parse(paravane_blobs::PROCESS_LAYER).expect("the layer is an ELF file");
    let symbol = layer.symbols().find(|s| s.name() == Ok("ph_host_call_end"));
    symbol.expect("the layer calls the host").address()
}

/// The lower half of an argument, for calls of which the host's kernel ignores the upper half.
fn low(argument: u64) -> u64 {
    argument & 0xffff_ffff
}

/// Calls of an address-space process with its filter, made by the layer's instruction.
pub fn space_may(call: &Call, instruction: u64) -> bool {
    let [a, b, c, d, e, _] = call.arguments;
    call.arch == X86_64
        && call.address == instruction
        && match call.number {
            // mprotect, munmap, rt_sigreturn, sched_yield, restart_syscall, exit_group
            10 | 11 | 15 | 24 | 219 | 231 => true,
            // mmap: of guest memory, shared, at an address
            9 => matches!(low(d), 0x11 | 0x8011) && (FIRST_RAM..=LAST_RAM).contains(&low(e)),
            // madvise: MADV_DONTNEED, MADV_POPULATE_READ, MADV_POPULATE_WRITE
            28 => matches!(low(c), 4 | 22 | 23),
            // arch_prctl: ARCH_SET_CPUID
            158 => low(a) == 0x1012 && b <= 1,
            // futex: wait, wake
            202 => matches!(low(b), 0 | 1 | 9),
            // clock_gettime: monotonic, CPU time of the thread or of a named one
            228 => matches!(low(a), 1 | 3) || low(a) & 0x8000_0007 == 0x8000_0006,
            // tgkill: SIGURG
            234 => low(c) == 23,
            _ => false,
        }
}

/// Calls of an address-space process before it has its filter. No call here opens a file, connects,
/// executes a program, creates a process, sends a signal, or returns from a signal handler.
pub fn start_may(call: &Call) -> bool {
    let [a, ..] = call.arguments;
    match (call.arch, call.number) {
        (I386, SET_THREAD_AREA_32) => true,
        (X86_64, CLONE) => a & THREAD != 0,
        // write, close, mmap, mprotect, munmap, rt_sigaction, rt_sigprocmask, sched_yield,
        // madvise, getpid, sendto, exit, getppid, sigaltstack, prctl, gettid, futex,
        // sched_setaffinity, clock_gettime, exit_group, seccomp, close_range
        (
            X86_64,
            1 | 3 | 9 | 10 | 11 | 13 | 14 | 24 | 28 | 39 | 44 | 60 | 110 | 131 | 157 | 186 | 202
            | 203 | 228 | 231 | SECCOMP | 436,
        ) => true,
        _ => false,
    }
}

/// Calls of the zygote: those of a start, and the calls to create processes, to exchange messages,
/// to wait, to read signals from a descriptor, and to enter a Landlock domain.
pub fn zygote_may(call: &Call) -> bool {
    // read, poll, rt_sigreturn, pipe2, recvfrom, clone, wait4, arch_prctl, fcntl, ppoll, waitid,
    // signalfd4, eventfd2, Landlock, restart_syscall, execveat of the layer (the tracer sees its
    // return first)
    let own = [
        0, 7, 15, 293, 45, CLONE, 61, 158, 72, 271, 247, 289, 290, 444, 445, 446, 219, 322,
    ];
    start_may(call) || (call.arch == X86_64 && own.contains(&call.number))
}
