// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host calls without a library: the comparison must not include its cost.

use std::arch::asm;

/// Makes a system call.
///
/// # Safety
/// The call must not change memory that this program relies on.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 4]) -> libc::c_long {
    let result: libc::c_long;
    let [a, b, c, d] = arguments;
    // SAFETY: Linux' convention: number in rax, arguments in rdi, rsi, rdx, r10, result in rax; rcx
    // and r11 are clobbered. The caller is responsible for the call's effects on memory.
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

/// Makes `count` getppid calls. The loop is in assembler, because an unoptimized loop would be
/// visible beside so short a call.
pub fn getppid_loop(count: u64) {
    if count == 0 {
        return;
    }
    // SAFETY: getppid has no effect. rcx and r11 are clobbered, rax is set each time. rbx is
    // reserved by the compiler.
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

/// Reads the time-stamp counter after all earlier instructions.
pub fn tsc() -> u64 {
    // SAFETY: two instructions that touch no memory. Nothing in this program disables rdtsc.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}
