// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory tree as a root: paths are looked up inside it, and no link leads out.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, mkdirat, openat2, readlinkat,
    statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Names that are read of one directory.
const MAX_NAMES: usize = 64 << 10;

/// The tree, by its top directory.
#[derive(Debug)]
pub struct Tree(OwnedFd);

/// A name in a directory; the name need not exist.
#[derive(Debug)]
pub struct Place {
    pub above: OwnedFd,
    pub name: OsString,
}

impl Tree {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Tree(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    fn lookup(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.0, path, flags, Mode::empty(), resolve)
    }

    /// Opens the file at an absolute path. Does not wait for the other end of a FIFO, and does not
    /// acquire a controlling terminal.
    pub fn file(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.lookup(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// Whether a path leads to something.
    pub fn exists(&self, path: &Path) -> bool {
        self.lookup(path, OFlags::PATH).is_ok()
    }

    /// Opens a directory for lookups.
    pub fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.lookup(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens a directory for lookups. Creates missing directories of the path with mode 0755.
    pub fn make_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        match self.directory(path) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::NOENT);
        };
        mkdirat(
            self.make_directory(above)?,
            name,
            Mode::from_raw_mode(0o755),
        )?;
        self.directory(path)
    }

    /// The last component of a path, in its directory.
    pub fn place(&self, path: &Path, make: bool) -> Result<Place, Errno> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL);
        };
        let above = if make {
            self.make_directory(above)?
        } else {
            self.directory(above)?
        };
        Ok(Place {
            above,
            name: name.to_os_string(),
        })
    }

    /// Reads a regular file of at most `most` bytes.
    pub fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let file = File::from(self.file(path, OFlags::RDONLY)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(most as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > most {
            return Err(io::Error::other(format!("larger than {most} bytes")));
        }
        Ok(bytes)
    }
}

/// The entries of a directory, which may be open for lookups only.
fn entries(directory: &OwnedFd) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    Ok(Dir::new(readable)?)
}

/// Whether a directory is empty. Does not read all of it.
pub fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in entries(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The names in a directory, sorted.
pub fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut all = Vec::new();
    for entry in entries(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name == b"." || name == b".." {
            continue;
        }
        if all.len() == MAX_NAMES {
            return Err(io::Error::other("too many files in one directory"));
        }
        all.push(OsString::from_vec(name));
    }
    all.sort();
    Ok(all)
}

impl Place {
    pub fn new(above: &OwnedFd, name: &OsStr) -> io::Result<Self> {
        Ok(Place {
            above: above.try_clone()?,
            name: name.to_os_string(),
        })
    }

    /// Status of the file, without following a link.
    pub fn stat(&self) -> Result<Option<Stat>, Errno> {
        match statat(&self.above, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its type, if it exists.
    pub fn kind(&self) -> Result<Option<FileType>, Errno> {
        Ok(self
            .stat()?
            .map(|stat| FileType::from_raw_mode(stat.st_mode)))
    }

    /// Opens the file. Fails if it is a link.
    pub fn open(&self, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::openat(&self.above, &self.name, flags, mode)
    }

    /// Opens the directory.
    pub fn directory(&self) -> Result<OwnedFd, Errno> {
        self.open(OFlags::PATH | OFlags::DIRECTORY, 0)
    }

    /// The target of a link.
    pub fn target(&self) -> Result<Vec<u8>, Errno> {
        Ok(readlinkat(&self.above, &self.name, Vec::new())?.into_bytes())
    }

    /// Removes the file. A directory must be empty.
    pub fn remove(&self) -> Result<(), Errno> {
        let flags = match self.kind()? {
            None => return Ok(()),
            Some(FileType::Directory) => AtFlags::REMOVEDIR,
            Some(_) => AtFlags::empty(),
        };
        unlinkat(&self.above, &self.name, flags)
    }
}
