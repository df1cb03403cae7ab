// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An initial RAM disk put together in memory: a cpio archive of the kind "newc" (Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

/// Mode bits of an entry.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// The archive, as it grows. Everything belongs to root; a directory comes before what is in it.
#[derive(Debug, Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
}

impl Initramfs {
    /// Adds a directory. `path` has no slash in front.
    pub fn directory(&mut self, path: &str, permissions: u32) {
        self.entry(path, DIRECTORY | permissions, &[]);
    }

    /// Adds a file with this content, which must be smaller than 4 GiB.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.entry(path, FILE | permissions, content);
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK | 0o777, target.as_bytes());
    }

    /// The whole, for the kernel.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields = [
            self.entries as usize,
            mode as usize,
            0,
            0,
            links,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            path.len() + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Header with name, and content, each end at a multiple of 4.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_reads_it() {
        let mut archive = Initramfs::default();
        archive.directory("dir", 0o755);
        archive.file("dir/odd", 0o644, b"12345");
        archive.symlink("link", "dir/odd");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let Ok(mut child) = Command::new("cpio")
            .args(["-itv", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            // Not installed: the kernel is the better judge anyway (tests/).
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
