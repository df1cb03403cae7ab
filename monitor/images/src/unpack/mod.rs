// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacks untrusted tar archives: from guests and from images.
//!
//! No archive can create, change or read anything outside of the target folder: the host's kernel
//! resolves each name from that folder (openat2(2)), and the last part of a name is never followed.
//! In an image the folder is the root of symbolic links (`RESOLVE_IN_ROOT`). In an archive from a
//! guest no link is followed (`RESOLVE_NO_SYMLINKS`), hard links are refused, and existing folders
//! of the host are neither replaced by files nor given other rights. Device nodes are left out.

pub mod members;

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::fs::{
    chmodat, chownat, fchmod, fstat, linkat, mkdirat, mknodat, openat, openat2, readlinkat, statat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Entry, EntryType};

/// Prefix of a whiteout: removes the file of that name that lower layers have (OCI image
/// specification, layer.md).
const WHITEOUT: &[u8] = b".wh.";
/// Opaque whiteout: removes everything that lower layers have in this folder.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Largest length of a path on the host, in bytes.
const PATH: usize = 4096;
/// Largest sum of the lengths of folder names, in bytes. They are kept until the end of the
/// archive.
const NAMES: usize = 256 << 20;
/// Largest depth of nested folders that are made, counted after links are followed, and that are
/// removed. To remove them takes two descriptors for each level, and stack.
const DEPTH: usize = 256;

/// How an archive is unpacked, and how much it may contain.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Largest number of files.
    pub entries: u64,
    /// Largest number of bytes in them.
    pub bytes: u64,
    /// The bits of a file's mode that are kept.
    pub mode: u32,
    /// The archive is a layer of an image: whiteouts are applied, links are resolved within the
    /// image, and owners are kept where this user may set them. Otherwise the archive comes from a
    /// guest.
    pub layer: bool,
    /// The first part that each name must have. It is removed, or replaced by the second value.
    pub first: Option<(OsString, Option<OsString>)>,
}

/// A folder into which archives are unpacked.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    /// How deep on the host it is.
    depth: usize,
    rules: Rules,
    /// What the current archive has created. Entries are hashes with a secret key, because an
    /// archive may have millions of long names.
    made: HashSet<u64>,
    hasher: RandomState,
    /// Modes of folders. They are set after the last file is put into them.
    folders: Vec<(PathBuf, u32)>,
    /// Sum of the lengths of their names, in bytes.
    names: usize,
    entries: u64,
    bytes: u64,
    owner: bool,
}

impl Tree {
    /// For an existing folder.
    pub fn new(folder: &Path, rules: Rules) -> anyhow::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(folder, flags, Mode::empty())
            .with_context(|| folder.display().to_string())?;
        Ok(Self::at(root, rules))
    }

    /// For an open folder.
    pub fn at(root: OwnedFd, rules: Rules) -> Self {
        Tree {
            depth: depth(&root).unwrap_or(0),
            root,
            owner: rules.layer && rustix::process::geteuid().is_root(),
            rules,
            made: HashSet::new(),
            hasher: RandomState::new(),
            folders: Vec::new(),
            names: 0,
            entries: 0,
            bytes: 0,
        }
    }

    /// Unpacks an archive over the existing contents.
    pub fn apply(&mut self, archive: impl Read) -> anyhow::Result<()> {
        self.made.clear();
        members::each(archive, |entry| {
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            self.entry(entry)
                .with_context(|| format!("{name:?} in the archive"))
        })?;
        self.names = 0;
        for (path, mode) in std::mem::take(&mut self.folders).into_iter().rev() {
            let (parent, name) = self.place(&path)?;
            // A later file may have replaced the folder.
            match openat(
                &parent,
                name,
                OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            ) {
                Ok(folder) => fchmod(&folder, Mode::from_raw_mode(mode))?,
                Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Creates a folder and its parents unless they exist.
    pub fn folder(&self, name: &[u8]) -> anyhow::Result<()> {
        if let Some(path) = self.path(name)? {
            // `place` creates the parents of a file, here the folder itself.
            self.place(&path.join("x"))?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> anyhow::Result<()> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(entry.size());
        if self.entries > self.rules.entries || self.bytes > self.rules.bytes {
            bail!(
                "more than {} files or {} MiB",
                self.rules.entries,
                self.rules.bytes >> 20
            );
        }
        let kind = entry.header().entry_type();
        let Some(path) = self.path(&entry.path_bytes())? else {
            if self.rules.first.is_some() && kind != EntryType::Directory {
                bail!("it is a folder on the host and not a folder in the machine");
            }
            return Ok(());
        };
        let (parent, name) = self.place(&path)?;
        if self.rules.layer {
            if name.as_bytes() == OPAQUE {
                let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
                return self.empty(&parent, &folder);
            }
            if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) {
                if [&b""[..], b".", b".."].contains(&hidden) {
                    bail!("a whiteout without a name");
                }
                return remove(&parent, OsStr::from_bytes(hidden), 0);
            }
        }
        let least = if self.owner { 0 } else { 0o400 };
        let mode = entry.header().mode()? & self.rules.mode | least;
        match kind {
            EntryType::Directory => {
                let mut old = !self.make(&parent, name, Mode::RWXU)?;
                if old && !is_folder(&parent, name)? {
                    self.displace(&parent, name)?;
                    mkdirat(&parent, name, Mode::RWXU)?;
                    old = false;
                }
                let least = if self.owner { 0 } else { 0o700 };
                // A guest must not change who may read an existing folder of the host.
                if self.rules.layer || !old {
                    self.names += path.as_os_str().len();
                    if self.names > NAMES {
                        bail!("the names of its folders exceed {} MiB", NAMES >> 20);
                    }
                    self.folders.push((path.clone(), mode | least));
                }
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.displace(&parent, name)?;
                let flags = OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::WRONLY
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let mut file = File::from(openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?);
                io::copy(entry, &mut file)?;
                self.own(entry, &parent, name)?;
                // After the owner, because a change of owner clears mode bits.
                fchmod(&file, Mode::from_raw_mode(mode))?;
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().context("a link without a target")?;
                self.displace(&parent, name)?;
                symlinkat(OsStr::from_bytes(&target), &parent, name)?;
                self.own(entry, &parent, name)?;
            }
            EntryType::Link if !self.rules.layer => {
                bail!("a hard link, which is not allowed from a machine")
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().context("a link without a target")?;
                let target = self.path(&target)?.context("a link to the root")?;
                let (from, from_name) = self.place(&target)?;
                if target != path {
                    self.displace(&parent, name)?;
                    linkat(&from, from_name, &parent, name, AtFlags::empty())?;
                }
            }
            EntryType::Fifo if !self.rules.layer => {
                bail!("a named pipe, which is not allowed from a machine")
            }
            EntryType::Fifo => {
                self.displace(&parent, name)?;
                mknodat(&parent, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
                self.own(entry, &parent, name)?;
                fifo_mode(&parent, name, mode)?;
            }
            // The guest's kernel creates its own device nodes.
            EntryType::Char | EntryType::Block | EntryType::XGlobalHeader => return Ok(()),
            other => bail!("unknown type of file: {other:?}"),
        }
        if kind != EntryType::Link && kind != EntryType::Directory {
            times(entry, &parent, name);
        }
        if kind == EntryType::Directory {
            self.own(entry, &parent, name)?;
        }
        if self.rules.layer {
            self.made.insert(self.hasher.hash_one(&path));
        }
        Ok(())
    }

    /// Removes an existing entry that is in the way of a file.
    fn displace(&self, parent: &OwnedFd, name: &OsStr) -> anyhow::Result<()> {
        if self.rules.layer {
            return remove(parent, name, 0);
        }
        if let Ok(there) = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            use FileType::{BlockDevice, CharacterDevice, Fifo, Socket};
            let kind = FileType::from_raw_mode(there.st_mode);
            if matches!(kind, BlockDevice | CharacterDevice | Fifo | Socket) {
                bail!("it is a device, FIFO or socket on the host, which is not replaced");
            }
        }
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) if is_folder(parent, name)? => {
                bail!("it is a folder on the host and not a folder in the machine")
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A name in the archive as a path in the folder; `None` for the folder itself.
    fn path(&self, name: &[u8]) -> anyhow::Result<Option<PathBuf>> {
        if name.len() >= PATH || name.contains(&0) {
            bail!("an invalid name");
        }
        let mut parts = Vec::new();
        for part in name.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => bail!("its name leads outside"),
                part => parts.push(OsStr::from_bytes(part)),
            }
        }
        if let Some((from, to)) = &self.rules.first {
            if parts.first() != Some(&from.as_os_str()) {
                bail!("its name does not begin with {}", from.to_string_lossy());
            }
            parts.splice(..1, to.as_deref());
        }
        Ok((!parts.is_empty()).then(|| parts.iter().collect()))
    }

    /// Opens the parent folder of a path, creating it if needed. Returns it with the last part of
    /// the path.
    fn place<'a>(&self, path: &'a Path) -> anyhow::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().context("no name")?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let Some(parent) = parent else {
            return Ok((self.root.try_clone()?, name));
        };
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let inside = if self.rules.layer {
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS
            } else {
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS
            };
            openat2(&self.root, parent, flags, Mode::empty(), inside)
        };
        let folder = match open() {
            Err(Errno::NOENT) => {
                let (above, last) = self.place(parent)?;
                // There is a link already whose target does not exist.
                self.make(&above, last, Mode::from_raw_mode(0o755))?;
                open()
            }
            other => other,
        };
        match folder {
            Ok(folder) => Ok((folder, name)),
            Err(Errno::LOOP) if !self.rules.layer => {
                bail!(
                    "{} contains a link, which is not followed",
                    parent.display()
                )
            }
            Err(error) => Err(error).with_context(|| format!("the folder {}", parent.display())),
        }
    }

    /// Makes a folder. Returns whether there was nothing of that name.
    fn make(&self, parent: &OwnedFd, name: &OsStr, mode: Mode) -> anyhow::Result<bool> {
        if depth(parent)? >= self.depth + DEPTH {
            bail!("more than {DEPTH} nested folders");
        }
        match mkdirat(parent, name, mode) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what a folder contained before this archive.
    fn empty(&self, folder: &OwnedFd, path: &Path) -> anyhow::Result<()> {
        clear(folder, 0, &|name| {
            self.made.contains(&self.hasher.hash_one(path.join(name)))
        })
    }

    fn own(
        &self,
        entry: &Entry<'_, impl Read>,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> anyhow::Result<()> {
        if self.owner {
            let number = |id: u64| {
                u32::try_from(id)
                    .ok()
                    .filter(|&id| id != u32::MAX)
                    .context("no such owner")
            };
            let uid = rustix::process::Uid::from_raw(number(entry.header().uid()?)?);
            let gid = rustix::process::Gid::from_raw(number(entry.header().gid()?)?);
            chownat(
                parent,
                name,
                Some(uid),
                Some(gid),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
        Ok(())
    }
}

/// How deep on the host an open folder is.
///
/// # Errors
/// Its path is longer than a page, or the host does not say.
fn depth(folder: &OwnedFd) -> anyhow::Result<usize> {
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    match readlinkat(CWD, path, Vec::new()) {
        Ok(path) => Ok(path.as_bytes().iter().filter(|&&byte| byte == b'/').count()),
        Err(Errno::NAMETOOLONG) => bail!("more than {DEPTH} nested folders, or long names"),
        Err(error) => Err(error).context("the folder's path"),
    }
}

/// Sets the mode of a FIFO. The name may belong to another file by now: a guest may write to the
/// folder at any time. So no link is followed.
fn fifo_mode(parent: &OwnedFd, name: &OsStr, mode: u32) -> anyhow::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fifo = openat(parent, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&fifo)?.st_mode) != FileType::Fifo {
        bail!("another program has replaced it meanwhile");
    }
    let path = format!("/proc/self/fd/{}", fifo.as_raw_fd());
    chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())?;
    Ok(())
}

/// Sets the file's time. A time that the file system cannot store is ignored.
fn times(entry: &Entry<'_, impl Read>, parent: &OwnedFd, name: &OsStr) {
    let seconds = entry
        .header()
        .mtime()
        .ok()
        .and_then(|time| i64::try_from(time).ok());
    if let Some(tv_sec) = seconds {
        let time = Timespec { tv_sec, tv_nsec: 0 };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let _ = utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

fn is_folder(parent: &OwnedFd, name: &OsStr) -> anyhow::Result<bool> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Removes the contents of a folder, except for names that `stays` accepts. It handles one name at
/// a time, because there may be millions.
fn clear(folder: &OwnedFd, depth: usize, stays: &dyn Fn(&OsStr) -> bool) -> anyhow::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    loop {
        let mut removed = false;
        for entry in Dir::new(openat(folder, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && !stays(name) {
                remove(folder, name, depth)?;
                removed = true;
            }
        }
        // A listing may miss names while the folder changes; the next pass finds them.
        if !removed {
            return Ok(());
        }
    }
}

/// Removes a file, or a folder with its contents. It need not exist.
fn remove(parent: impl AsFd, name: &OsStr, depth: usize) -> anyhow::Result<()> {
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    if depth > DEPTH {
        bail!("more than {DEPTH} nested folders");
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(&parent, name, flags, Mode::empty())?;
    clear(&folder, depth + 1, &|_| false)?;
    Ok(unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests;
