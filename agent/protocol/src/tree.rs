// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packs files that `paravane cp` copies between host and guest into a tar archive.
//!
//! A guest may be able to write to the directory during this. So each file is opened relative to
//! the directory in which it was found, and without following links: a file that a guest replaces
//! by a link does not lead to other files of the host.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Writes the file or directory tree at `path` as an archive, under its own name. Calls `left_out`
/// for everything that is neither a file, a directory nor a symbolic link.
///
/// # Errors
/// If a file cannot be read or the archive cannot be written. Also if a file became shorter while
/// it was read; the archive is complete then. The message names the file.
pub fn pack(path: &Path, output: impl Write, left_out: &mut dyn FnMut(&Path)) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::other(format!(
            "{}: the path has no last component to name the copy",
            path.display()
        ))
    })?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(above.unwrap_or(Path::new(".")), flags, Mode::empty());
    let mut packer = Packer {
        builder: Builder::new(output),
        left_out,
        shorter: None,
    };
    packer.add(&within(path, above)?, name, path, Path::new(name))?;
    packer.builder.into_inner()?.flush()?;
    match packer.shorter {
        None => Ok(()),
        Some(path) => Err(io::Error::other(format!(
            "{}: became shorter while it was copied: its copy ends in zeroes",
            path.display()
        ))),
    }
}

/// Adds the path to an error.
fn within<T>(path: &Path, done: Result<T, impl Into<io::Error>>) -> io::Result<T> {
    done.map_err(|error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })
}

struct Packer<'a, W: Write> {
    builder: Builder<W>,
    left_out: &'a mut dyn FnMut(&Path),
    /// The first file that had fewer bytes than at first.
    shorter: Option<PathBuf>,
}

/// The first `left` bytes of a file, and then zeroes: exactly the length in the header, even if the
/// file changes while it is read.
struct Exactly {
    file: File,
    left: u64,
    ended: bool,
}

impl Read for Exactly {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let into = into.get_mut(..most).unwrap_or_default();
        let mut read = 0;
        if !self.ended {
            read = self.file.read(into)?;
            self.ended = read == 0 && most > 0;
        }
        if self.ended {
            into.fill(0);
            read = most;
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl<W: Write> Packer<'_, W> {
    /// Adds the file `own` of the directory `above` to the archive as `name`. `path` is for errors.
    fn add(&mut self, above: &OwnedFd, own: &OsStr, path: &Path, name: &Path) -> io::Result<()> {
        let stat = within(path, statat(above, own, AtFlags::SYMLINK_NOFOLLOW))?;
        // NONBLOCK: the file may have been replaced by a FIFO, for which open() would wait.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = flags | OFlags::DIRECTORY;
                let folder = within(path, openat(above, own, flags, Mode::empty()))?;
                let mut header = header(EntryType::Directory, &within(path, fstat(&folder))?);
                within(
                    path,
                    self.builder.append_data(&mut header, name, io::empty()),
                )?;
                for inner in within(path, names(&folder))? {
                    self.add(&folder, &inner, &path.join(&inner), &name.join(&inner))?;
                }
            }
            FileType::RegularFile => {
                let file = File::from(within(path, openat(above, own, flags, Mode::empty()))?);
                let stat = within(path, fstat(&file))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    (self.left_out)(path);
                    return Ok(());
                }
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                let mut header = header(EntryType::Regular, &stat);
                header.set_size(size);
                let mut contents = Exactly {
                    file,
                    left: size,
                    ended: false,
                };
                let added = self.builder.append_data(&mut header, name, &mut contents);
                within(path, added)?;
                if contents.ended && self.shorter.is_none() {
                    self.shorter = Some(path.to_path_buf());
                }
            }
            FileType::Symlink => {
                let target = within(path, readlinkat(above, own, Vec::new()))?;
                let target = OsStr::from_bytes(target.as_bytes());
                let mut header = header(EntryType::Symlink, &stat);
                within(path, self.builder.append_link(&mut header, name, target))?;
            }
            _ => (self.left_out)(path),
        }
        Ok(())
    }
}

fn header(kind: EntryType, stat: &Stat) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    header
}

/// The names in a directory, sorted.
fn names(folder: impl AsFd) -> Result<Vec<OsString>, Errno> {
    let mut all = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            all.push(OsString::from_vec(name));
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};
    use tar::Archive;

    fn packed(path: &Path) -> io::Result<Vec<u8>> {
        let mut archive = Vec::new();
        pack(path, &mut archive, &mut |_| {}).map(|()| archive)
    }

    #[test]
    fn a_tree_is_packed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        let long = "n".repeat(200);
        fs::create_dir_all(tree.join("sub").join(&long)).unwrap();
        fs::write(tree.join("sub").join(&long).join("file"), "text").unwrap();
        fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o2750)).unwrap();
        symlink(format!("/{long}"), tree.join("link")).unwrap();
        let archive = packed(&tree).unwrap();
        let mut archive = Archive::new(&archive[..]);
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let link = entry
                .link_name()
                .unwrap()
                .map(|target| target.display().to_string());
            let header = entry.header();
            let name = entry.path().unwrap().display().to_string();
            seen.push((
                name,
                header.entry_type(),
                header.mode().unwrap(),
                text,
                link,
            ));
        }
        let inner = format!("tree/sub/{long}");
        assert_eq!(seen.len(), 5, "{seen:?}");
        assert_eq!(
            (seen[0].0.as_str(), seen[0].1),
            ("tree", EntryType::Directory)
        );
        assert_eq!(seen[1].4, Some(format!("/{long}")));
        assert_eq!((seen[2].0.as_str(), seen[2].2), ("tree/sub", 0o2750));
        assert_eq!((&seen[3].0, seen[3].1), (&inner, EntryType::Directory));
        assert_eq!(
            (&seen[4].0, seen[4].3.as_str()),
            (&format!("{inner}/file"), "text")
        );
        assert!(
            packed(Path::new("/"))
                .unwrap_err()
                .to_string()
                .contains("no last component")
        );
        let none = packed(&folder.path().join("none")).unwrap_err().to_string();
        assert!(none.contains("none: No such file"), "{none}");
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let size = 1 << 20;
        fs::write(tree.join("a"), vec![1; size]).unwrap();
        fs::write(tree.join("b"), "after").unwrap();
        /// Cuts the file when a part of it is packed.
        struct Cutting(Vec<u8>, PathBuf);
        impl Write for Cutting {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.extend(bytes);
                if self.0.len() > 10_000 {
                    File::options().write(true).open(&self.1)?.set_len(20)?;
                }
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut output = Cutting(Vec::new(), tree.join("a"));
        let error = pack(&tree, &mut output, &mut |_| {}).unwrap_err();
        assert!(
            error.to_string().contains("tree/a: became shorter"),
            "{error}"
        );
        // The archive is whole.
        let mut archive = Archive::new(&output.0[..]);
        let sizes = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().size());
        assert_eq!(sizes.collect::<Vec<_>>(), [0, size as u64, 5]);
    }

    /// A guest may write to the directory while it is packed.
    #[test]
    fn a_file_replaced_by_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, secret) = (folder.path().join("shared"), folder.path().join("secret"));
        fs::create_dir_all(shared.join("sub")).unwrap();
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("file"), "the secret").unwrap();
        fs::write(shared.join("sub/file"), "harmless..").unwrap();
        fs::write(shared.join("file"), "harmless..").unwrap();
        // Swap a directory and a file with links to the outside, repeatedly.
        symlink(&secret, folder.path().join("folder")).unwrap();
        symlink(secret.join("file"), folder.path().join("link")).unwrap();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    for (one, other) in [("folder", "sub"), ("link", "file")] {
                        let one = folder.path().join(one);
                        renameat_with(CWD, one, CWD, shared.join(other), RenameFlags::EXCHANGE)
                            .unwrap();
                    }
                }
            });
            for _ in 0..5000 {
                // Fails if the link is there at the wrong moment.
                let archive = packed(&shared).unwrap_or_default();
                let told = archive.windows(10).any(|part| part == b"the secret");
                if told {
                    end.store(true, Ordering::Relaxed);
                }
                assert!(!told, "a link was followed");
            }
            end.store(true, Ordering::Relaxed);
        });
    }
}
