// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the kernel's statistics of its layer, for `paravane calls`.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// The file in debugfs.
const STATS: &str = "vmi/stats";

/// Prints what the layer has counted. `reset` then sets all counts to zero.
pub fn stats(reset: bool) -> io::Result<()> {
    let debugfs = debugfs()?;
    let open = |flags| match openat(&debugfs, STATS, flags | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(File::from(file)),
        Err(Errno::NOENT) => Err(io::Error::other(
            "its layer counts nothing: start it with `paravane run --count-calls`",
        )),
        Err(error) => Err(error.into()),
    };
    io::copy(&mut open(OFlags::RDONLY)?, &mut io::stdout().lock())?;
    if reset {
        open(OFlags::WRONLY)?.write_all(b"0")?;
    }
    Ok(())
}

/// The file system, whether or not the root has it mounted. It goes with the descriptor.
fn debugfs() -> io::Result<OwnedFd> {
    let context = fsopen("debugfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )?)
}
