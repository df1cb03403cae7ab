// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `slow CALL PROGRAM ARGUMENTS...`: runs a program on a host whose kernel never completes a system
//! call, given by its number. An inherited seccomp filter passes each such call to a listener that
//! never answers. The program itself holds the listener: when it ends, the calls fail.

use rustix::thread::set_no_new_privs;
use std::error::Error;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// `AUDIT_ARCH_X86_64`
const ARCH: u32 = 0xc000_003e;
/// Offsets in `struct seccomp_data` of the number of the call and of the architecture.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const JUMP_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

fn main() -> ExitCode {
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("slow: {error}");
            ExitCode::from(125)
        }
    }
}

fn run() -> Result<std::convert::Infallible, Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let call: u32 = words
        .next()
        .and_then(|w| w.to_str()?.parse().ok())
        .ok_or("no number of a system call")?;
    let program = words.next().ok_or("no program")?;
    set_no_new_privs(true)?;
    hand_over(call)?;
    Err(Command::new(program).args(words).exec().into())
}

fn instruction(code: u32, jump_true: u8, jump_false: u8, k: u32) -> io::Result<libc::sock_filter> {
    Ok(libc::sock_filter {
        code: code.try_into().map_err(io::Error::other)?,
        jt: jump_true,
        jf: jump_false,
        k,
    })
}

/// Installs the filter. The listener stays open across exec.
fn hand_over(call: u32) -> io::Result<()> {
    let mut filter = [
        instruction(LOAD, 0, 0, ARCH_AT)?,
        instruction(JUMP_EQUAL, 0, 3, ARCH)?,
        instruction(LOAD, 0, 0, NUMBER_AT)?,
        instruction(JUMP_EQUAL, 0, 1, call)?,
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF)?,
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW)?,
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives until the call is back. The descriptor
    // that it gives is only told to stay open.
    unsafe {
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        );
        let listener = libc::c_int::try_from(listener).map_err(io::Error::other)?;
        if listener < 0 || libc::fcntl(listener, libc::F_SETFD, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
