// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the processes of a machine may ask of the host's kernel, written down a second time: the
//! first is the policy that is tested.

use object::{Object, ObjectSymbol};
use std::fmt;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
/// The number of seccomp.
pub const SECCOMP: u64 = 317;
const CLONE: u64 = 56;
const THREAD: u64 = 0x1_0000;
const SET_THREAD_AREA_32: u64 = 243;
/// Descriptors below are the zygote's control socket and the shared area, or none.
const FIRST_RAM: u64 = 5;
const LAST_RAM: u64 = FIRST_RAM + 16;

/// A call as a process makes it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub arch: u32,
    pub number: u64,
    pub arguments: [u64; 7],
    /// The address after its instruction.
    pub address: u64,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, _] = self.arguments;
        let wide = if self.arch == X86_64 { "" } else { " (32-bit)" };
        write!(
            f,
            "{}{wide}({a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x}, {g:#x}) at {:#x}",
            self.number, self.address
        )
    }
}

/// The address after the layer's only instruction that makes host calls.
#[allow(clippy::expect_used)] // The way in which a test fails.
pub fn instruction() -> u64 {
    let layer =
        object::File::parse(paravane_blobs::PROCESS_LAYER).expect("the layer is an ELF file");
    let symbol = layer.symbols().find(|s| s.name() == Ok("ph_host_call_end"));
    symbol.expect("the layer calls the host").address()
}

/// The lower half, where the host's kernel looks at no more.
fn low(argument: u64) -> u64 {
    argument & 0xffff_ffff
}

impl Call {
    /// Of a process in its sandbox, from the layer's instruction.
    pub fn space_may(&self, instruction: u64) -> bool {
        let [a, b, c, d, e, ..] = self.arguments;
        self.arch == X86_64
            && self.address == instruction
            && match self.number {
                // mprotect, munmap, rt_sigreturn, sched_yield, restart_syscall, exit_group
                10 | 11 | 15 | 24 | 219 | 231 => true,
                // mmap: of guest memory, shared, at an address
                9 => matches!(low(d), 0x11 | 0x8011) && (FIRST_RAM..=LAST_RAM).contains(&low(e)),
                // madvise: populate, forget
                28 => matches!(low(c), 4 | 22 | 23),
                // arch_prctl: cpuid faults
                158 => low(a) == 0x1012 && b <= 1,
                // futex: wait, wake
                202 => matches!(low(b), 0 | 1 | 9),
                // clock_gettime: monotonic, of the thread
                228 => matches!(low(a), 1 | 3),
                // tgkill: SIGURG
                234 => low(c) == 23,
                _ => false,
            }
    }

    /// Of a process that is not in it yet: nothing that opens, connects, executes, makes a process,
    /// signals, or returns from a handler.
    pub fn start_takes(&self) -> bool {
        let [a, ..] = self.arguments;
        match (self.arch, self.number) {
            (I386, SET_THREAD_AREA_32) => true,
            (X86_64, CLONE) => a & THREAD != 0,
            // write, close, mmap, mprotect, munmap, rt_sigaction, rt_sigprocmask, sched_yield,
            // madvise, getpid, sendto, exit, getppid, sigaltstack, prctl, gettid, futex,
            // sched_setaffinity, clock_gettime, exit_group, seccomp, close_range
            (
                X86_64,
                1 | 3 | 9 | 10 | 11 | 13 | 14 | 24 | 28 | 39 | 44 | 60 | 110 | 131 | 157 | 186
                | 202 | 203 | 228 | 231 | SECCOMP | 436,
            ) => true,
            _ => false,
        }
    }

    /// Of the zygote: what a start takes, and processes, messages, waiting; a descriptor for its
    /// signals; a domain of Landlock's.
    pub fn zygote_may(&self) -> bool {
        // read, poll, rt_sigreturn, pipe2, recvfrom, clone, wait4, arch_prctl, fcntl, ppoll,
        // waitid, signalfd4, eventfd2, Landlock, restart_syscall, execveat of the layer, whose end
        // is the first that is seen
        let own = [
            0, 7, 15, 293, 45, CLONE, 61, 158, 72, 271, 247, 289, 290, 444, 445, 446, 219, 322,
        ];
        self.start_takes() || (self.arch == X86_64 && own.contains(&self.number))
    }
}
