// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of directory trees, with modes and owners, of bounded size.

use super::tree::{Place, names};
use rustix::fs::symlinkat;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, chmodat, chownat, mkdirat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The maximum depth of directories.
pub const MAX_DEPTH: usize = 64;

/// Limits for one or more copies.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Files, directories and links.
    pub entries: usize,
    /// Content of files.
    pub bytes: u64,
}

impl Budget {
    /// Takes one entry.
    pub fn entry(&mut self) -> io::Result<()> {
        self.entries = self
            .entries
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("the limit for the number of files is reached"))?;
        Ok(())
    }

    /// Takes some bytes. If there are fewer, nothing is left.
    pub fn take_bytes(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(0);
        match left {
            Some(_) => Ok(()),
            None => Err(io::Error::other(
                "the limit for the size of the files is reached",
            )),
        }
    }
}

/// Copies the content of `from` to `to`, except for names for which `skip` is true. Existing files
/// stay. Sockets, FIFOs and devices are left out.
pub fn content(
    from: &OwnedFd,
    to: &OwnedFd,
    budget: &mut Budget,
    skip: &dyn Fn(&OsStr) -> bool,
) -> io::Result<()> {
    level(from, to, budget, skip, 0)
}

/// Copies one file, link or directory tree. A directory is merged into an existing one.
pub fn one(from: &Place, to: &Place, budget: &mut Budget) -> io::Result<()> {
    entry(from, to, budget, 0)
}

fn level(
    from: &OwnedFd,
    to: &OwnedFd,
    budget: &mut Budget,
    skip: &dyn Fn(&OsStr) -> bool,
    depth: usize,
) -> io::Result<()> {
    for name in names(from)? {
        if skip(&name) {
            continue;
        }
        let (from, to) = (Place::new(from, &name)?, Place::new(to, &name)?);
        entry(&from, &to, budget, depth).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error}", Path::new(&name).display()),
            )
        })?;
    }
    Ok(())
}

fn entry(from: &Place, to: &Place, budget: &mut Budget, depth: usize) -> io::Result<()> {
    budget.entry()?;
    let Some(stat) = from.stat()? else {
        return Ok(());
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            if depth == MAX_DEPTH {
                return Err(io::Error::other("too many directories inside each other"));
            }
            match mkdirat(&to.above, &to.name, Mode::RWXU) {
                Ok(()) => keep(to, &stat)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let (from, to) = (from.directory()?, to.directory()?);
            level(&from, &to, budget, &|_| false, depth + 1)
        }
        FileType::RegularFile => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let target = match to.open(flags, 0o600) {
                Ok(target) => target,
                Err(Errno::EXIST) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let source = File::from(from.open(OFlags::RDONLY, 0)?);
            // One byte more than allowed shows that there is more.
            let mut source = source.take(budget.bytes.saturating_add(1));
            let copied = io::copy(&mut source, &mut File::from(target))?;
            budget.take_bytes(copied)?;
            keep(to, &stat)
        }
        FileType::Symlink => {
            let target = from.target()?;
            match symlinkat(OsStr::from_bytes(&target), &to.above, &to.name) {
                Ok(()) => keep(to, &stat),
                Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        _ => Ok(()),
    }
}

/// Gives a copy the owner and mode of the original.
fn keep(to: &Place, stat: &Stat) -> io::Result<()> {
    let own = to.stat()?.map(|own| (own.st_uid, own.st_gid));
    if own != Some((stat.st_uid, stat.st_gid)) {
        chownat(
            &to.above,
            &to.name,
            Some(Uid::from_raw(stat.st_uid)),
            Some(Gid::from_raw(stat.st_gid)),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        chmodat(&to.above, &to.name, mode, AtFlags::empty())?;
    }
    Ok(())
}
