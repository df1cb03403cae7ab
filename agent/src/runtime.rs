// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs expect of a machine that was booted, where no init of the root has run: the
//! directories of /run, lock files, limits.

use crate::tmpfiles::{self, Budget, Tree, copy};
use crate::user::Accounts;
use rustix::fs::{AtFlags, CWD, Mode, chmodat, mkdirat, statat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

const RUN: &str = "/run";
/// What of the root's own /run is copied to the one in memory.
const CARRIED: Budget = Budget {
    entries: 4096,
    bytes: 16 << 20,
};
/// systemd's state in /run. It is stale in an image, and `/run/systemd/system` would say that
/// systemd is process 1.
const STALE: &str = "systemd";

/// Path and mode.
const DIRECTORIES: [(&str, u32); 2] = [("/run/lock", 0o1777), ("/run/user", 0o755)];
/// Path and target. A root that has these as directories keeps them.
const LINKS: [(&str, &str); 2] = [("/var/run", "/run"), ("/var/lock", "/run/lock")];
/// Open files of a process, as systemd has it: enough for any server, and no surprise for programs
/// that use select(2).
const OPEN_FILES: Rlimit = Rlimit {
    current: Some(1024),
    maximum: Some(512 << 10),
};

/// The root's own /run, opened before a file system in memory hides it.
#[derive(Debug)]
pub struct Hidden(Option<OwnedFd>);

/// Opens it, if there is one.
pub fn hidden() -> Hidden {
    Hidden(open_run())
}

fn open_run() -> Option<OwnedFd> {
    Tree::open(Path::new("/"))
        .and_then(|tree| Ok(tree.directory(Path::new(RUN))?))
        .ok()
}

/// Sets it all up. What cannot be done is reported; most programs do without.
pub fn prepare(hidden: Hidden) {
    let report = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            eprintln!("paravane-agent: {what}: {error}");
        }
    };
    // As systemd does; containers are told to mount their volumes from here.
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    report(
        "cannot share mounts",
        mount_change("/", shared).map_err(Into::into),
    );
    report(
        "cannot set the limit of open files",
        setrlimit(Resource::Nofile, OPEN_FILES).map_err(Into::into),
    );
    report("cannot copy all of the root's /run", carry(hidden));
    for (path, mode) in DIRECTORIES {
        report(path, directory(path, mode));
    }
    for (path, target) in LINKS {
        report(path, link(path, target));
    }
    match Tree::open(Path::new("/")).map_err(|error| error.to_string()) {
        Ok(tree) => match Accounts::read() {
            Ok(accounts) => {
                for complaint in tmpfiles::apply(&tree, &accounts) {
                    eprintln!("paravane-agent: {complaint}");
                }
            }
            Err(why) => eprintln!("paravane-agent: {why}"),
        },
        Err(why) => eprintln!("paravane-agent: /: {why}"),
    }
}

/// Copies what the root has in /run.
fn carry(hidden: Hidden) -> io::Result<()> {
    let (Some(from), Some(to)) = (hidden.0, open_run()) else {
        return Ok(());
    };
    let place = |file: &OwnedFd| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
    if place(&from)? == place(&to)? {
        // Nothing was mounted over it.
        return Ok(());
    }
    copy::content(&from, &to, &mut CARRIED.clone(), &|name| name == STALE)
}

fn directory(path: &str, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    match mkdirat(CWD, path, mode) {
        // The umask has taken bits away.
        Ok(()) => Ok(chmodat(CWD, path, mode, AtFlags::empty())?),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn link(path: &str, target: &str) -> io::Result<()> {
    let above = Path::new(path).parent().unwrap_or(Path::new("/"));
    if statat(CWD, above, AtFlags::empty()).is_err() {
        return Ok(());
    }
    match symlinkat(target, CWD, path) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
