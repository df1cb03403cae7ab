// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies a line to a tree.

use super::copy::{self, Budget};
use super::line::{Kind, Line, Owner};
use super::tree::{Place, Tree, is_empty, names};
use crate::user::{Accounts, Ids};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, chmodat, chownat, makedev, mkdirat, mknodat,
    symlinkat,
};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Default modes of new files.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Applies lines, all within one budget.
pub struct Actor<'a> {
    tree: &'a Tree,
    users: Ids<'a>,
    groups: Ids<'a>,
    budget: Budget,
}

impl<'a> Actor<'a> {
    pub fn new(tree: &'a Tree, accounts: &'a Accounts, budget: Budget) -> Self {
        Actor {
            tree,
            users: accounts.users(),
            groups: accounts.groups(),
            budget,
        }
    }

    pub fn apply(&mut self, line: &Line) -> io::Result<()> {
        // A line with an unknown owner does nothing at all.
        self.owners(line, true)?;
        if !line.kind.takes_pattern() {
            return self.create(line);
        }
        // One file that cannot be adjusted does not keep the others from it.
        let mut result = Ok(());
        for path in self.matches(&line.path)? {
            result = result.and(self.apply_to(line, &path));
        }
        result
    }

    /// Applies a line with a pattern to one of the files that match.
    fn apply_to(&mut self, line: &Line, path: &Path) -> io::Result<()> {
        if line.kind == Kind::Write {
            return self.write(line, path);
        }
        let place = self.tree.place(path, false)?;
        match line.kind {
            Kind::ModeTree => self.adjust_tree(line, &place, 0),
            Kind::Adjust if place.kind()? != Some(FileType::Directory) => Ok(()),
            _ => self.adjust(line, &place, None),
        }
    }

    fn create(&mut self, line: &Line) -> io::Result<()> {
        if line.kind == Kind::Link && line.if_target_exists && !self.target_exists(line) {
            return Ok(());
        }
        if line.kind == Kind::Copy && self.source(line)?.is_none() {
            return Ok(());
        }
        // Each directory of the path may have to be created.
        for _ in line.path.iter().skip(1) {
            self.budget.entry()?;
        }
        let place = self.tree.place(&line.path, true)?;
        let mut there = place.kind()?;
        if there.is_some_and(|there| replaces(line, there, &place)) {
            place.remove()?;
            there = None;
        }
        match there {
            None => self.create_new(line, &place),
            Some(there) => self.create_over(line, &place, there),
        }
    }

    /// Creates a file where none exists.
    fn create_new(&mut self, line: &Line, place: &Place) -> io::Result<()> {
        // adjust() sets the final mode, independent of the umask.
        let private = Mode::from_raw_mode(0o600);
        let default = match line.kind {
            Kind::Directory => {
                mkdirat(&place.above, &place.name, Mode::RWXU)?;
                Some(DIRECTORY_MODE)
            }
            Kind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                let file = File::from(place.open(flags, private.as_raw_mode())?);
                write_argument(file, line)?;
                Some(FILE_MODE)
            }
            Kind::Link => {
                let target = line.argument.as_deref().unwrap_or_default();
                symlinkat(OsStr::from_bytes(target), &place.above, &place.name)?;
                None
            }
            Kind::Copy => {
                if let Some(source) = self.source(line)? {
                    copy::one(&source, place, &mut self.budget)?;
                }
                None
            }
            Kind::Pipe | Kind::Character(..) | Kind::Block(..) => {
                let (kind, device) = node(line.kind);
                mknodat(&place.above, &place.name, kind, private, device)?;
                Some(FILE_MODE)
            }
            // These kinds take patterns and create nothing.
            Kind::Write | Kind::Adjust | Kind::Mode | Kind::ModeTree => None,
        };
        self.adjust(line, place, Some(default))
    }

    /// Handles a file that exists and is not replaced.
    fn create_over(&mut self, line: &Line, place: &Place, there: FileType) -> io::Result<()> {
        match (line.kind, there) {
            (Kind::Directory, FileType::Directory) => {}
            (Kind::File, FileType::RegularFile) => {
                if line.plus {
                    let file = place.open(OFlags::WRONLY | OFlags::TRUNC, 0)?;
                    write_argument(file.into(), line)?;
                }
            }
            (Kind::Copy, FileType::Directory) => {
                let directory = place.directory()?;
                let Some(source) = self.source(line)? else {
                    return Ok(());
                };
                if line.plus || is_empty(&directory)? {
                    copy::one(&source, place, &mut self.budget)?;
                }
            }
            // Whatever exists stays.
            (Kind::Copy | Kind::Link, _) => return Ok(()),
            (Kind::Pipe, FileType::Fifo) => {}
            (Kind::Character(..), FileType::CharacterDevice) => {}
            (Kind::Block(..), FileType::BlockDevice) => {}
            // A link to a directory is as good as one.
            (Kind::Directory, FileType::Symlink) if self.tree.directory(&line.path).is_ok() => {
                return Ok(());
            }
            (kind, _) => return Err(io::Error::other(mismatch(kind))),
        }
        self.adjust(line, place, None)
    }

    /// The source of a `C` line. It need not exist: many lines are for files that only some systems
    /// have.
    fn source(&self, line: &Line) -> io::Result<Option<Place>> {
        let found = self.tree.place(&line.argument_path(), false);
        match found.and_then(|place| Ok(place.kind()?.map(|_| place))) {
            Err(Errno::NOENT) => Ok(None),
            other => Ok(other?),
        }
    }

    fn target_exists(&self, line: &Line) -> bool {
        let above = line.path.parent().unwrap_or(Path::new("/"));
        let target = above.join(line.argument_path());
        self.tree.exists(&target)
    }

    /// Writes to an existing file. Unlike for other lines, the path may be a link.
    fn write(&mut self, line: &Line, path: &Path) -> io::Result<()> {
        let bytes = line.argument.as_ref().map_or(0, Vec::len);
        self.budget.take_bytes(bytes as u64)?;
        let append = if line.plus {
            OFlags::APPEND
        } else {
            OFlags::empty()
        };
        let file = self.tree.file(path, OFlags::WRONLY | append)?;
        write_argument(file.into(), line)
    }

    fn adjust_tree(&mut self, line: &Line, place: &Place, depth: usize) -> io::Result<()> {
        self.budget.entry()?;
        self.adjust(line, place, None)?;
        if place.kind()? != Some(FileType::Directory) {
            return Ok(());
        }
        if depth == copy::MAX_DEPTH {
            return Err(io::Error::other("too many directories inside each other"));
        }
        let directory = place.directory()?;
        for name in names(&directory)? {
            self.adjust_tree(line, &Place::new(&directory, &name)?, depth + 1)?;
        }
        Ok(())
    }

    /// User and group that a file gets, if any, which the line has just created if it is `new`.
    fn owners(&self, line: &Line, new: bool) -> io::Result<(Option<u32>, Option<u32>)> {
        let applies = |owner: &&Owner| new || !owner.only_new;
        let unknown = |what: &str, owner: &Owner| {
            io::Error::other(format!("there is no {what} {}", owner.name))
        };
        let user = line.user.as_ref().filter(applies).map(|owner| {
            let uid = self.users.get(&owner.name);
            uid.ok_or_else(|| unknown("user", owner))
        });
        let group = line.group.as_ref().filter(applies).map(|owner| {
            let gid = self.groups.get(&owner.name);
            gid.ok_or_else(|| unknown("group", owner))
        });
        Ok((user.transpose()?, group.transpose()?))
    }

    /// Sets mode and owner. `new` is present if the line has just created the file, and contains
    /// the default mode.
    fn adjust(&self, line: &Line, place: &Place, new: Option<Option<u32>>) -> io::Result<()> {
        let Some(stat) = place.stat()? else {
            return Ok(());
        };
        let (uid, gid) = self.owners(line, new.is_some())?;
        // Only changes are written. In an overlay, each write would copy the file to the upper
        // layer.
        let changes =
            uid.is_some_and(|uid| uid != stat.st_uid) || gid.is_some_and(|gid| gid != stat.st_gid);
        if changes {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            chownat(&place.above, &place.name, uid, gid, flags)?;
        }
        let mode = match (&line.mode, new) {
            (Some(mode), Some(_)) => Some(mode.bits),
            (None, Some(default)) => default,
            (Some(mode), None) if mode.only_new => None,
            (Some(mode), None) if mode.masked => Some(masked(mode.bits, &stat)),
            (Some(mode), None) => Some(mode.bits),
            (None, None) => None,
        };
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if let (Some(bits), false) = (mode, link) {
            // chown() may have cleared setuid and setgid.
            if changes || stat.st_mode & 0o7777 != bits {
                let mode = Mode::from_raw_mode(bits);
                chmodat(&place.above, &place.name, mode, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// The paths that match a pattern.
    fn matches(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = vec![PathBuf::from("/")];
        for part in pattern.iter().skip(1) {
            let is_pattern = part.as_bytes().iter().any(|byte| b"*?[".contains(byte));
            if !is_pattern {
                found.iter_mut().for_each(|path| path.push(part));
                continue;
            }
            let part = CString::new(part.as_bytes())?;
            let mut next = Vec::new();
            for path in found {
                let Ok(directory) = self.tree.directory(&path) else {
                    continue;
                };
                // Without a budget the directory is not read either.
                self.budget.entry()?;
                for name in names(&directory)? {
                    self.budget.entry()?;
                    if fits(&part, &name)? {
                        next.push(path.join(name));
                    }
                }
            }
            found = next;
        }
        // The pattern "/" matches itself, which has no name.
        found.retain(|path| {
            let place = self.tree.place(path, false);
            place.is_ok_and(|place| matches!(place.kind(), Ok(Some(_))))
        });
        Ok(found)
    }
}

/// fnmatch(3), where a leading period must be matched explicitly.
fn fits(pattern: &CString, name: &OsStr) -> io::Result<bool> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: both are strings that end in a zero byte and live over the call.
    let code = unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_PERIOD) };
    Ok(code == 0)
}

/// Whether the line removes an existing file before it creates its own.
fn replaces(line: &Line, there: FileType, place: &Place) -> bool {
    let right = match line.kind {
        Kind::Directory => there == FileType::Directory,
        Kind::File => there == FileType::RegularFile,
        Kind::Link => {
            there == FileType::Symlink
                && (!line.plus || place.target().is_ok_and(|to| Some(to) == line.argument))
        }
        // The source may be of any type.
        Kind::Copy => true,
        Kind::Pipe => there == FileType::Fifo,
        Kind::Character(..) | Kind::Block(..) => {
            let (kind, device) = node(line.kind);
            let stat = place.stat().ok().flatten();
            there == kind && (!line.plus || stat.is_some_and(|stat| stat.st_rdev == device))
        }
        Kind::Write | Kind::Adjust | Kind::Mode | Kind::ModeTree => true,
    };
    // For files, plus truncates.
    !right && (line.replace || line.plus && line.kind != Kind::File)
}

fn node(kind: Kind) -> (FileType, u64) {
    match kind {
        Kind::Character(major, minor) => (FileType::CharacterDevice, makedev(major, minor)),
        Kind::Block(major, minor) => (FileType::BlockDevice, makedev(major, minor)),
        _ => (FileType::Fifo, 0),
    }
}

fn mismatch(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "it exists and is not a directory",
        Kind::File => "it exists and is not a regular file",
        Kind::Pipe => "it exists and is not a FIFO",
        _ => "it exists and is not such a device",
    }
}

/// Removes kinds of access that the existing file grants to no one.
fn masked(bits: u32, stat: &Stat) -> u32 {
    let mut bits = bits;
    for kind in [0o444, 0o222, 0o111] {
        if stat.st_mode & kind == 0 {
            bits &= !kind;
        }
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        bits &= 0o777;
    }
    bits
}

fn write_argument(mut file: File, line: &Line) -> io::Result<()> {
    file.write_all(line.argument.as_deref().unwrap_or_default())
}
