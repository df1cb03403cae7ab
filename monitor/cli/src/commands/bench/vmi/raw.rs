// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host calls with nothing around them: what is compared must not pay for a library.

use std::arch::asm;

/// A system call.
///
/// # Safety
/// The call must leave all memory alone that this program relies on.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 4]) -> libc::c_long {
    let result: libc::c_long;
    let [a, b, c, d] = arguments;
    // SAFETY: the Linux convention: number in rax, arguments in rdi, rsi, rdx, r10, result in rax; rcx and r11 are lost.
    // What the call does to memory is the caller's affair.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _, options(nostack),
        );
    }
    result
}

/// `getppid`, so many times. All in assembler: the call is so short that a slow build of the loop would show.
pub fn getppid_loop(count: u64) {
    if count == 0 {
        return;
    }
    // SAFETY: getppid has no effect; rcx and r11 are lost, rax is set anew each time, rbx is not ours to use.
    unsafe {
        asm!(
            "2:",
            "mov eax, 110",
            "syscall",
            "dec {count}",
            "jnz 2b",
            count = inout(reg) count => _,
            out("rax") _, out("rcx") _, out("r11") _, options(nostack),
        );
    }
}

/// The time-stamp counter, read after everything before it.
pub fn tsc() -> u64 {
    // SAFETY: two instructions that touch no memory; nothing here forbids rdtsc to this program.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}
