// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small root for machines: a folder with some programs of the host.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use crate::debian;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Makes a root with bash, which is its `sh`, too, and these programs.
///
/// # Panics
/// When the host lacks one of them.
#[must_use]
pub fn make(programs: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in [
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "dev",
        "etc",
        "proc",
        "root",
        "run",
        "srv",
        "mnt",
        "sys",
        "tmp",
    ] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    for folder in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{folder}"), root.path().join(folder)).unwrap();
    }
    symlink("bash", root.path().join("usr/bin/sh")).unwrap();
    copy("bash", root.path());
    for program in programs {
        copy(program, root.path());
    }
    root
}

/// The statically linked busybox that the program uses, too.
///
/// # Panics
/// When this host has none.
#[must_use]
pub fn busybox() -> PathBuf {
    let own = debian::cache().with_file_name("tools").join("busybox");
    [own, "/bin/busybox".into()]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no busybox: apt-get install busybox-static"))
}

/// Copies a program of the host, and its libraries.
fn copy(program: &str, root: &Path) {
    let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .map(|folder| Path::new(folder).join(program))
        .into_iter()
        .find(|path| path.exists());
    assert!(found.is_some(), "no {program} on this host");
    add(&found.unwrap(), root);
}

/// Copies a program of any folder to `usr/bin`, and its libraries.
///
/// # Panics
/// When it cannot be copied.
pub fn add(program: &Path, root: &Path) {
    let name = program.file_name().unwrap();
    fs::copy(program, root.join("usr/bin").join(name)).unwrap();
    let output = Command::new("ldd").arg(program).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    for library in list.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(library, to).unwrap();
    }
}

/// Puts a script for bash into a root, in the place of a program if it has that.
///
/// # Panics
/// When it cannot be written.
pub fn replace(root: &Path, program: &str, script: &str) {
    let path = root.join("usr/bin").join(program);
    // There need not be one.
    let _ = fs::remove_file(&path);
    fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
}
