// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `says_cpuid_faults PROGRAM ARGUMENTS...`: runs a program on a host that claims that it can make
//! the cpuid instruction fault, whatever its processor is. `arch_prctl(ARCH_SET_CPUID)` succeeds
//! and does nothing. So a guest's kernel makes cpuid fault as long as it would on such a host, with
//! the same cost in host calls, but no instruction faults.

use rustix::thread::set_no_new_privs;
use seccompiler::sock_filter;
use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const ARCH_PRCTL: u32 = 158;
const ARCH_SET_CPUID: u32 = 0x1012;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
/// `SECCOMP_RET_ALLOW`, and `SECCOMP_RET_ERRNO` with error 0.
const ALLOW: u32 = 0x7fff_0000;
const SUCCEED: u32 = 0x0005_0000;

fn main() -> ExitCode {
    match pretend() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("says_cpuid_faults: {error}");
            ExitCode::from(125)
        }
    }
}

fn pretend() -> Result<std::convert::Infallible, Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().ok_or("no program")?;
    set_no_new_privs(true)?;
    seccompiler::apply_filter(&filter())?;
    Err(Command::new(program).args(words).exec().into())
}

/// No list of calls: it would refuse 32-bit calls, one of which the layer needs.
fn filter() -> Vec<sock_filter> {
    let step = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    let load = |at| step(0x20, 0, at);
    // If the number differs, jumps over this many steps to the last one.
    let is = |value, otherwise| step(0x15, otherwise, value);
    let give = |result| step(0x06, 0, result);
    vec![
        load(ARCH),
        is(AUDIT_ARCH_X86_64, 5),
        load(NUMBER),
        is(ARCH_PRCTL, 3),
        load(FIRST_ARGUMENT),
        is(ARCH_SET_CPUID, 1),
        give(SUCCEED),
        give(ALLOW),
    ]
}
