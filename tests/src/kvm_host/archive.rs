// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initial RAM disk of the emulated host: busybox, the modules, programs with their libraries,
//! and the init that carries out commands.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use crate::{linux, small_root};
use cpio::NewcBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A line on the second serial port has a mark and a script in base 64. The script runs in a
/// session of its own. What it prints follows, then the mark with the script's exit code.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
ip link set lo up
for module in $(cat /modules/order); do insmod /modules/$module.ko || echo "insmod $module"; done
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo ready >&3
while read -r mark script <&3; do
	echo "$script" | base64 -d >/tmp/script
	setsid sh /tmp/script </dev/null >&3 2>&1 3>&-
	echo "$mark $?" >&3
done
poweroff -f
"#;

/// The files of an archive.
#[derive(Debug, Default)]
pub struct Archive {
    files: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Archive {
    /// With busybox, init and these modules.
    ///
    /// # Panics
    /// When a file cannot be read.
    #[must_use]
    pub fn new(modules: &[(String, PathBuf)]) -> Self {
        let mut archive = Archive::default();
        archive.add("/bin/busybox", &small_root::busybox(), 0o755);
        archive.put("/init", INIT.as_bytes().to_vec(), 0o755);
        let mut order = String::new();
        for (name, path) in modules {
            archive.add(&format!("/modules/{name}.ko"), path, 0o644);
            order.push_str(name);
            order.push('\n');
        }
        archive.put("/modules/order", order.into_bytes(), 0o644);
        archive
    }

    /// Puts a file.
    pub fn put(&mut self, path: &str, bytes: Vec<u8>, mode: u32) {
        let path = path.trim_start_matches('/').to_string();
        self.files.insert(path, (0o100_000 | mode, bytes));
    }

    /// Puts a file of this host.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn add(&mut self, path: &str, file: &Path, mode: u32) {
        let bytes = std::fs::read(file);
        let bytes = bytes.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.put(path, bytes, mode);
    }

    /// Puts a program without its symbols, and the libraries that it is linked with.
    ///
    /// # Panics
    /// When binutils or ldd fail.
    pub fn add_program(&mut self, path: &str, program: &Path) {
        let folder = tempfile::tempdir().unwrap();
        let small = folder.path().join("program");
        let status = Command::new("strip")
            .arg("-o")
            .args([small.as_path(), program])
            .status();
        assert!(status.unwrap().success(), "strip {}", program.display());
        self.add(path, &small, 0o755);
        let output = Command::new("ldd").arg(program).output().unwrap();
        for word in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            if word.starts_with('/') && !self.files.contains_key(&word[1..]) {
                self.add(word, Path::new(word), 0o755);
            }
        }
    }

    /// The archive as bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut folders = BTreeSet::new();
        for folder in ["dev", "proc", "sys", "root", "bin", "run", "var/tmp"] {
            ancestors(&mut folders, &format!("{folder}/x"));
        }
        for path in self.files.keys() {
            ancestors(&mut folders, path);
        }
        let mut entries = vec![(NewcBuilder::new("tmp").mode(0o041_777), &b""[..])];
        for folder in &folders {
            entries.push((NewcBuilder::new(folder).mode(0o040_755), b""));
        }
        entries.push((
            NewcBuilder::new("dev/console")
                .mode(0o020_600)
                .rdev_major(5)
                .rdev_minor(1),
            b"",
        ));
        for (path, (mode, bytes)) in &self.files {
            entries.push((NewcBuilder::new(path).mode(*mode), bytes));
        }
        linux::newc(entries)
    }
}

fn ancestors(folders: &mut BTreeSet<String>, path: &str) {
    let all = Path::new(path).ancestors().skip(1);
    folders.extend(
        all.map(|folder| folder.display().to_string())
            .filter(|folder| !folder.is_empty()),
    );
}
