// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `confine USER PROGRAM ARGUMENTS...`: runs a program as USER, confined like the process of a
//! container engine: a restrictive seccomp profile, no new privileges, 512 processes and threads,
//! and read-only /proc and /sys if possible.

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{UnshareFlags, set_no_new_privs, unshare_unsafe};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const PROFILE: &str = include_str!("../../profiles/container.json");
const CLONE: i64 = 56;
const CLONE3: i64 = 435;
/// All `CLONE_NEW*` that are flags of clone.
const NAMESPACES: u64 = 0x7e02_0000;
const TASKS: u64 = 512;

fn main() -> ExitCode {
    match confine() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("confine: {error}");
            ExitCode::from(125)
        }
    }
}

fn confine() -> Result<std::convert::Infallible, Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let user: u32 = words
        .next()
        .and_then(|w| w.to_str()?.parse().ok())
        .ok_or("no user")?;
    let program = words.next().ok_or("no program")?;
    if let Err(error) = read_only() {
        eprintln!("confine: /proc and /sys stay writable: {error}");
    }
    let limit = Rlimit {
        current: Some(TASKS),
        maximum: Some(TASKS),
    };
    setrlimit(Resource::Nproc, limit)?;
    set_no_new_privs(true)?;
    let allow = SeccompAction::Allow;
    let enosys = SeccompAction::Errno(Errno::NOSYS.raw_os_error().unsigned_abs());
    install(BTreeMap::from([(CLONE3, vec![])]), allow.clone(), enosys)?;
    let eperm = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    install(profile()?, eperm, allow)?;
    Err(Command::new(program)
        .args(words)
        .uid(user)
        .gid(user)
        .exec()
        .into())
}

/// In a mount namespace of its own, which only root can create.
fn read_only() -> rustix::io::Result<()> {
    // SAFETY: this program has one thread, which does not use the namespace that it leaves.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    for folder in ["/proc/sys", "/sys"] {
        mount_bind(folder, folder)?;
        mount_remount(folder, MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn profile() -> Result<Rules, Box<dyn Error>> {
    let profile: Value = serde_json::from_str(PROFILE)?;
    let mut rules = Rules::new();
    for call in profile["allow"].as_array().ok_or("no list")? {
        rules.insert(call[1].as_i64().ok_or("no number")?, vec![]);
    }
    let no_namespace = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(NAMESPACES),
        0,
    )?;
    // The other filter has decided on it.
    rules.insert(CLONE3, vec![]);
    rules.insert(CLONE, vec![SeccompRule::new(vec![no_namespace])?]);
    Ok(rules)
}

fn install(
    rules: Rules,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<(), Box<dyn Error>> {
    let filter = SeccompFilter::new(rules, otherwise, listed, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}
