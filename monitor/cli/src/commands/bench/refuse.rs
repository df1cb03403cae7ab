// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A filter that refuses a system call to a program and to all that it starts, for tests.

use std::io;

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// Has a system call fail with EPERM from now on, in all threads. Other programs of an executable
/// that gives rights do not get them any more.
///
/// It may be called between fork and exec.
pub fn system_call(number: libc::c_long) -> io::Result<()> {
    let mut steps = filter(number);
    let program = libc::sock_fprog {
        len: 6,
        filter: steps.as_mut_ptr(),
    };
    // Without what older kernels do against speculation in programs with filters, which would slow
    // down what is measured.
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: system calls with plain numbers, and a pointer to a filter that outlives the call.
    let set = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    match set {
        0 => Ok(()),
        // The id of a thread that cannot have the filter.
        1.. => Err(io::Error::other("a thread has a filter of its own")),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(clippy::cast_possible_truncation)] // codes have 16 bits, and numbers 32
fn filter(number: libc::c_long) -> [libc::sock_filter; 6] {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    [
        step(LOAD, 0, 0, ARCHITECTURE),
        step(EQUAL, 0, 3, X86_64),
        step(LOAD, 0, 0, NUMBER),
        step(EQUAL, 0, 1, number.unsigned_abs() as u32),
        step(RETURN, 0, 0, refused),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
