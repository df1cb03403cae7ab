// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prepares a root whose own init does not run, so that programs find it as after a boot: the
//! content of /run, lock directories, limits.

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
/// Limits for the copy of the root's own /run.
const CARRIED: Budget = Budget {
    entries: 4096,
    bytes: 16 << 20,
};
/// systemd's state in /run, which is not copied. In an image it is stale, and the existence of
/// `/run/systemd/system` means that systemd is process 1.
const STALE: &str = "systemd";

/// Directories that every root gets: path and mode.
const DIRECTORIES: [(&str, u32); 2] = [("/run/lock", 0o1777), ("/run/user", 0o755)];
/// Links that every root gets: path and target. A root with these directories keeps them.
const LINKS: [(&str, &str); 2] = [("/var/run", "/run"), ("/var/lock", "/run/lock")];
/// The limit of open files, as systemd sets it: servers can raise it, and programs that use
/// select(2) do not get larger file descriptors than they can handle.
const OPEN_FILES: Rlimit = Rlimit {
    current: Some(1024),
    maximum: Some(512 << 10),
};

/// The root's own /run, opened before a file system in memory hides it.
#[derive(Debug)]
pub struct Hidden(Option<OwnedFd>);

/// Opens the root's /run, if it exists.
pub fn hidden() -> Hidden {
    Hidden(open_run())
}

fn open_run() -> Option<OwnedFd> {
    Tree::open(Path::new("/"))
        .and_then(|tree| Ok(tree.directory(Path::new(RUN))?))
        .ok()
}

/// Prepares the root. Failures are reported on the console and are not fatal.
pub fn prepare(hidden: Hidden) {
    let report = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            eprintln!("paravane-agent: {what}: {error}");
        }
    };
    // As systemd does. Container engines pass mounts of volumes on to their containers.
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
        // No file system was mounted on /run.
        return Ok(());
    }
    copy::content(&from, &to, &mut CARRIED.clone(), &|name| name == STALE)
}

fn directory(path: &str, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    match mkdirat(CWD, path, mode) {
        // mkdir() has applied the umask.
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
