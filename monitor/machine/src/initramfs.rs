// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An initial RAM disk, put together in memory: a cpio archive in newc format (Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use cpio::NewcBuilder;
use cpio::newc::{ModeFileType, trailer};
use std::io::{self, Write};

/// An archive that grows. All entries belong to root. Add a directory before its entries.
#[derive(Debug, Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
}

impl Initramfs {
    /// Adds a directory. `path` has no leading slash, here and below.
    ///
    /// # Errors
    /// None in practice, here and below, except for a file of 4 GiB: the archive is in memory.
    pub fn directory(&mut self, path: &str, permissions: u32) -> io::Result<()> {
        self.entry(path, ModeFileType::Directory, permissions, &[])
    }

    /// Adds a file.
    ///
    /// # Errors
    /// The file has 4 GiB or more, which the format cannot express.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, ModeFileType::Regular, permissions, content)
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// See [`Initramfs::directory`].
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, ModeFileType::Symlink, 0o777, target.as_bytes())
    }

    /// The whole archive.
    ///
    /// # Errors
    /// See [`Initramfs::directory`].
    pub fn finish(self) -> io::Result<Vec<u8>> {
        trailer(self.bytes)
    }

    fn entry(
        &mut self,
        path: &str,
        kind: ModeFileType,
        permissions: u32,
        content: &[u8],
    ) -> io::Result<()> {
        self.entries += 1;
        let links = if matches!(kind, ModeFileType::Directory) {
            2
        } else {
            1
        };
        let length = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{path}: larger than 4 GiB")))?;
        let mut entry = NewcBuilder::new(path)
            .ino(self.entries)
            .mode(permissions)
            .set_mode_file_type(kind)
            .nlink(links)
            .write(&mut self.bytes, length);
        entry.write_all(content)?;
        entry.finish()?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_reads_it() {
        let mut archive = Initramfs::default();
        archive.directory("dir", 0o755).unwrap();
        archive.file("dir/odd", 0o644, b"12345").unwrap();
        archive.symlink("link", "dir/odd").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let Ok(mut child) = Command::new("cpio")
            .args(["-itv", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            // The end-to-end tests boot such archives.
            super::skip::skip("cpio is not installed");
            return;
        };
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let listing = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let lines: Vec<&str> = listing.lines().collect();
        assert_eq!(lines.len(), 3, "{listing}");
        assert!(lines[0].starts_with("drwxr-xr-x   2 root"), "{listing}");
        assert!(
            lines[1].contains(" 5 ") && lines[1].ends_with("dir/odd"),
            "{listing}"
        );
        assert!(lines[2].ends_with("link -> dir/odd"), "{listing}");
    }
}
