// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `without WHAT USER PROGRAM ARGUMENTS...`: runs a program as USER on a host that lacks WHAT:
//! `namespaces`, `landlock`, both with a comma, or `nothing`. An inherited seccomp filter makes the
//! calls fail as on such a host.

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
    if lacks.namespaces || lacks.landlock {
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

/// Fails these calls with an error.
fn install<const N: usize>(
    rules: [(i64, Vec<SeccompRule>); N],
    error: Errno,
) -> Result<(), Box<dyn Error>> {
    let refuse = SeccompAction::Errno(error.raw_os_error().unsigned_abs());
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
