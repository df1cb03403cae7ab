// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacking tar archives of others: of guests, of images.
//!
//! Whatever an archive says, nothing outside the folder is made, changed or read: each name is resolved by the host's kernel with
//! that folder as the root (openat2(2), `RESOLVE_IN_ROOT`), so `..` and symbolic links stay inside, and the last part of a name
//! is never followed. Device nodes are left out.

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::fs::{chmodat, chownat, fchmod, linkat, mkdirat, mknodat, openat, openat2, symlinkat, unlinkat, utimensat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// In front of a name: the layers below have no such file any more (OCI image specification, layer.md).
const WHITEOUT: &[u8] = b".wh.";
/// In a folder: the layers below have nothing in it any more.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bytes of a path, as the host has it.
const PATH: usize = 4096;

/// What is done with an archive, and how much of it there may be.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Files.
    pub entries: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bits of a file's mode that count.
    pub mode: u32,
    /// It is a layer of an image: whiteouts mean what they say, and owners are kept where we may.
    pub layer: bool,
    /// The first part of each name must be this one, and becomes that one.
    pub first: Option<(OsString, OsString)>,
}

/// A folder that archives are unpacked to.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    rules: Rules,
    /// What the archive at hand has made.
    made: HashSet<PathBuf>,
    /// Modes of folders, set when nothing is put into them any more.
    folders: Vec<(PathBuf, u32)>,
    entries: u64,
    bytes: u64,
    owner: bool,
}

impl Tree {
    /// For a folder that is there.
    pub fn new(folder: &Path, rules: Rules) -> anyhow::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(folder, flags, Mode::empty()).with_context(|| folder.display().to_string())?;
        Ok(Tree {
            root,
            owner: rules.layer && rustix::process::geteuid().is_root(),
            rules,
            made: HashSet::new(),
            folders: Vec::new(),
            entries: 0,
            bytes: 0,
        })
    }

    /// Unpacks an archive over what is there.
    pub fn apply(&mut self, archive: impl Read) -> anyhow::Result<()> {
        self.made.clear();
        let mut archive = Archive::new(archive);
        for entry in archive.entries()? {
            let entry = entry.context("no tar archive, or a damaged one")?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            self.entry(entry).with_context(|| format!("{name:?} in the archive"))?;
        }
        for (path, mode) in std::mem::take(&mut self.folders).into_iter().rev() {
            let (parent, name) = self.place(&path)?;
            // Another file may have taken its place.
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

    /// Makes a folder, and those above it, unless they are there.
    pub fn folder(&self, name: &[u8]) -> anyhow::Result<()> {
        if let Some(path) = self.path(name)? {
            // The place of something in it is it.
            self.place(&path.join("x"))?;
        }
        Ok(())
    }

    fn entry(&mut self, mut entry: Entry<'_, impl Read>) -> anyhow::Result<()> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(entry.size());
        if self.entries > self.rules.entries || self.bytes > self.rules.bytes {
            bail!(
                "more than {} files or {} MiB",
                self.rules.entries,
                self.rules.bytes >> 20
            );
        }
        let Some(path) = self.path(&entry.path_bytes())? else {
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
                    bail!("hides nothing");
                }
                return remove(&parent, OsStr::from_bytes(hidden));
            }
        }
        let kind = entry.header().entry_type();
        let least = if self.owner { 0 } else { 0o400 };
        let mode = entry.header().mode()? & self.rules.mode | least;
        match kind {
            EntryType::Directory => {
                match mkdirat(&parent, name, Mode::RWXU) {
                    Err(Errno::EXIST) if is_folder(&parent, name)? => {}
                    Err(Errno::EXIST) => {
                        remove(&parent, name)?;
                        mkdirat(&parent, name, Mode::RWXU)?;
                    }
                    other => other?,
                }
                let least = if self.owner { 0 } else { 0o700 };
                self.folders.push((path.clone(), mode | least));
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                remove(&parent, name)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut file = File::from(openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?);
                io::copy(&mut entry, &mut file)?;
                self.own(&entry, &parent, name)?;
                // Behind the owner, whose change takes bits away.
                fchmod(&file, Mode::from_raw_mode(mode))?;
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().context("a link to nothing")?;
                remove(&parent, name)?;
                symlinkat(OsStr::from_bytes(&target), &parent, name)?;
                self.own(&entry, &parent, name)?;
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().context("a link to nothing")?;
                let target = self.path(&target)?.context("a link to the root")?;
                let (from, from_name) = self.place(&target)?;
                if target != path {
                    remove(&parent, name)?;
                    linkat(&from, from_name, &parent, name, AtFlags::empty())?;
                }
            }
            EntryType::Fifo => {
                remove(&parent, name)?;
                mknodat(&parent, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
                self.own(&entry, &parent, name)?;
                chmodat(&parent, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            }
            // A guest's kernel makes its own.
            EntryType::Char | EntryType::Block | EntryType::XGlobalHeader => return Ok(()),
            other => bail!("a kind of file that is not known: {other:?}"),
        }
        if kind != EntryType::Link && kind != EntryType::Directory {
            times(&entry, &parent, name);
        }
        if kind == EntryType::Directory {
            self.own(&entry, &parent, name)?;
        }
        self.made.insert(path);
        Ok(())
    }

    /// A name of the archive's as a path in the folder; none for the folder itself.
    fn path(&self, name: &[u8]) -> anyhow::Result<Option<PathBuf>> {
        if name.len() >= PATH || name.contains(&0) {
            bail!("a name that no file can have");
        }
        let mut parts = Vec::new();
        for part in name.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => bail!("its name leads outside"),
                part => parts.push(OsStr::from_bytes(part)),
            }
        }
        if let (Some((from, to)), Some(first)) = (&self.rules.first, parts.first_mut()) {
            if *first != from.as_os_str() {
                bail!("its name does not begin with {}", from.to_string_lossy());
            }
            *first = to;
        }
        Ok((!parts.is_empty()).then(|| parts.iter().collect()))
    }

    /// The folder that a path's last part is in, made if it is not there, and that part.
    fn place<'a>(&self, path: &'a Path) -> anyhow::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().context("no name")?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let Some(parent) = parent else {
            return Ok((self.root.try_clone()?, name));
        };
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            openat2(&self.root, parent, flags, Mode::empty(), inside)
        };
        let folder = match open() {
            Err(Errno::NOENT) => {
                let (above, last) = self.place(parent)?;
                match mkdirat(&above, last, Mode::from_raw_mode(0o755)) {
                    // A link to nothing that is here.
                    Err(Errno::EXIST) | Ok(()) => {}
                    Err(error) => return Err(error.into()),
                }
                open()
            }
            other => other,
        };
        let folder = folder.with_context(|| format!("the folder {}", parent.display()))?;
        Ok((folder, name))
    }

    /// Removes what is in a folder and was there before this archive.
    fn empty(&self, folder: &OwnedFd, path: &Path) -> anyhow::Result<()> {
        for name in names(folder)? {
            if !self.made.contains(&path.join(&name)) {
                remove(folder, &name)?;
            }
        }
        Ok(())
    }

    fn own(&self, entry: &Entry<'_, impl Read>, parent: &OwnedFd, name: &OsStr) -> anyhow::Result<()> {
        if self.owner {
            let number = |id: u64| {
                u32::try_from(id)
                    .ok()
                    .filter(|&id| id != u32::MAX)
                    .context("no such owner")
            };
            let uid = rustix::process::Uid::from_raw(number(entry.header().uid()?)?);
            let gid = rustix::process::Gid::from_raw(number(entry.header().gid()?)?);
            chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// The file's time; one that the file system cannot have is left out.
fn times(entry: &Entry<'_, impl Read>, parent: &OwnedFd, name: &OsStr) {
    let seconds = entry.header().mtime().ok().and_then(|time| i64::try_from(time).ok());
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
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn names(folder: &OwnedFd) -> anyhow::Result<Vec<OsString>> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(folder, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(open)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}

/// Removes a file, or a folder with all that is in it; it need not be there.
fn remove(parent: impl AsFd, name: &OsStr) -> anyhow::Result<()> {
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(&parent, name, flags, Mode::empty())?;
    for inner in names(&folder)? {
        remove(&folder, &inner)?;
    }
    Ok(unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use tar::{Builder, Header};

    const RULES: Rules = Rules {
        entries: 1000,
        bytes: 1 << 20,
        mode: 0o777,
        layer: false,
        first: None,
    };

    /// An archive of names, kinds, and contents or targets.
    fn archive(files: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for &(name, kind, content) in files {
            let mut header = Header::new_gnu();
            // As somebody writes it who means no good: the crate refuses such names.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_mode(0o4755);
            header.set_mtime(1000);
            let data = if kind == EntryType::Regular { content } else { "" };
            if kind != EntryType::Regular {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn unpack(folder: &Path, rules: Rules, files: &[(&str, EntryType, &str)]) -> Result<(), String> {
        let mut tree = Tree::new(folder, rules).unwrap();
        tree.apply(&archive(files)[..]).map_err(|error| format!("{error:#}"))
    }

    use EntryType::{Directory, Link, Regular, Symlink};

    #[test]
    fn files_are_what_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("./d/", Directory, ""),
            ("d/f", Regular, "text"),
            ("d/l", Link, "d/f"),
            ("s", Symlink, "d/f"),
            ("x/y/z", Regular, "deep"),
            ("null", EntryType::Char, ""),
        ];
        unpack(folder.path(), RULES, &files).unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(fs::read(at("s")).unwrap(), b"text");
        let meta = fs::metadata(at("d/f")).unwrap();
        assert_eq!(
            (meta.permissions().mode() & 0o7777, meta.mtime(), meta.nlink()),
            (0o755, 1000, 2)
        );
        assert_eq!(fs::read(at("x/y/z")).unwrap(), b"deep");
        assert!(!at("null").exists());
        // Over what is there, folders too.
        unpack(
            folder.path(),
            RULES,
            &[("d", Regular, "now a file"), ("s", Directory, "")],
        )
        .unwrap();
        assert_eq!(fs::read(at("d")).unwrap(), b"now a file");
        assert!(fs::symlink_metadata(at("s")).unwrap().is_dir());
    }

    #[test]
    fn nothing_leads_outside() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("in");
        let secret = outer.path().join("secret");
        let absolute = outer.path().display().to_string();
        for files in [
            vec![("../out", Regular, "x")],
            vec![("a/../../out", Regular, "x")],
            vec![("l", Symlink, ".."), ("l/out", Regular, "x")],
            vec![("l", Symlink, absolute.as_str()), ("l/out", Regular, "x")],
            vec![("l", Symlink, absolute.as_str()), ("l/secret", Regular, "x")],
            vec![("l", Symlink, "../secret"), ("l", Regular, "x")],
            vec![("d", Symlink, "/proc/self/cwd"), ("d/out", Regular, "x")],
            vec![("h", Link, "../secret"), ("h", Regular, "x")],
            vec![("s", Symlink, "../secret"), ("h", Link, "s"), ("h", Regular, "x")],
            vec![("l", Symlink, absolute.as_str()), ("h", Link, "l/secret")],
            vec![("l", Symlink, absolute.as_str()), ("l/.wh.secret", Regular, "")],
            vec![("l", Symlink, absolute.as_str()), ("l/.wh..wh..opq", Regular, "")],
            vec![("/etc/paravane-test", Regular, "x")],
        ] {
            for layer in [false, true] {
                let _ = fs::remove_dir_all(&folder);
                fs::create_dir(&folder).unwrap();
                fs::write(&secret, "secret").unwrap();
                // Refused or not: inside it may do what it likes.
                let _ = unpack(&folder, Rules { layer, ..RULES }, &files);
                let mut names: Vec<_> = fs::read_dir(outer.path())
                    .unwrap()
                    .map(|e| e.unwrap().file_name())
                    .collect();
                names.sort();
                assert_eq!(names, ["in", "secret"], "{files:?}");
                assert_eq!(fs::read(&secret).unwrap(), b"secret", "{files:?}");
                assert_eq!(fs::metadata(&secret).unwrap().nlink(), 1, "{files:?}");
            }
        }
        assert!(!Path::new("/etc/paravane-test").exists());
    }

    #[test]
    fn layers_hide_what_is_below() {
        let folder = tempfile::tempdir().unwrap();
        let rules = Rules {
            layer: true,
            mode: 0o7777,
            ..RULES
        };
        let mut tree = Tree::new(folder.path(), rules).unwrap();
        let owner = rustix::process::geteuid().is_root();
        tree.owner = false;
        tree.apply(
            &archive(&[
                ("a/1", Regular, ""),
                ("a/2", Regular, ""),
                ("b/c/3", Regular, ""),
                ("bin", Symlink, "usr/bin"),
                ("usr/bin", Directory, ""),
            ])[..],
        )
        .unwrap();
        tree.apply(
            &archive(&[
                ("a/.wh.1", Regular, ""),
                ("b/4", Regular, ""),
                ("b/.wh..wh..opq", Regular, ""),
                ("bin/tool", Regular, "t"),
            ])[..],
        )
        .unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(!at("a/1").exists() && at("a/2").exists());
        assert!(at("b/4").exists() && !at("b/c").exists());
        // A link to a folder stays one.
        assert!(at("usr/bin/tool").exists() && fs::symlink_metadata(at("bin")).unwrap().is_symlink());
        assert_eq!(fs::metadata(at("a/2")).unwrap().permissions().mode() & 0o7777, 0o4755);
        assert!(owner || fs::metadata(at("a/2")).unwrap().uid() == rustix::process::geteuid().as_raw());
    }

    #[test]
    fn limits_and_names_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let few = Rules { entries: 1, ..RULES };
        let two = [("a", Regular, "x"), ("b", Regular, "x")];
        assert!(
            unpack(folder.path(), few, &two)
                .unwrap_err()
                .contains("more than 1 files")
        );
        let small = Rules { bytes: 3, ..RULES };
        assert!(
            unpack(folder.path(), small, &[("big", Regular, "1234")])
                .unwrap_err()
                .contains("more than")
        );
        assert!(!folder.path().join("big").exists());
        let first = Rules {
            first: Some(("a".into(), "z".into())),
            ..RULES
        };
        unpack(folder.path(), first.clone(), &[("a", Regular, "x")]).unwrap();
        assert!(folder.path().join("z").exists());
        assert!(
            unpack(folder.path(), first, &[("other", Regular, "x")])
                .unwrap_err()
                .contains("does not begin with a")
        );
        assert!(Tree::new(folder.path(), RULES).unwrap().apply(&[1; 2000][..]).is_err());
        symlink("/", folder.path().join("root")).unwrap();
        unpack(folder.path(), RULES, &[("root/inside", Regular, "x")]).unwrap();
        assert!(folder.path().join("inside").exists());
    }
}
