// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux in a virtual machine: the kernel, and an initial root with one program.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::program;
use cpio::NewcBuilder;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel for the process hypervisor. Builds it if it is not in the cache.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn kernel() -> PathBuf {
    let mut command = program::command();
    let built = program::finish_within(command.args(["kernel", "build"]), program::LONGEST_OF_ALL);
    let run = built.unwrap();
    assert_eq!(run.code, 0, "{run:?}");
    // Linux VERSION (how): FOLDER
    let folder = run.last_line().rsplit_once("): ").map(|(_, folder)| folder);
    Path::new(folder.unwrap_or_default()).join("vmlinux")
}

/// The patched source of that kernel, which lies beside the kernels that were made of it.
///
/// # Panics
/// When it has ended.
#[must_use]
pub fn source() -> PathBuf {
    let kernel = kernel();
    let mut folders = kernel.ancestors().map(|folder| folder.join("work/source"));
    let source = folders.find(|source| source.join("Kbuild").exists());
    let kernel = kernel.display();
    assert!(source.is_some(), "no source beside {kernel}: remove that");
    source.unwrap()
}

/// Compiles the C files of a folder into one static program.
///
/// # Panics
/// When the compiler fails.
pub fn compile(folder: &Path, program: &Path) {
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    sources.sort();
    let output = Command::new("cc")
        .args([
            "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-o",
        ])
        .arg(program)
        .args(&sources)
        .output();
    let error = match &output {
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    assert!(output.is_ok_and(|o| o.status.success()), "cc: {error}");
}

/// An initial RAM disk with `/init` and the console that it prints to.
#[must_use]
pub fn initial_root(init: &[u8]) -> Vec<u8> {
    newc([
        (NewcBuilder::new("dev").mode(0o040_755), &b""[..]),
        (
            NewcBuilder::new("dev/console")
                .mode(0o020_600)
                .rdev_major(5)
                .rdev_minor(1),
            b"",
        ),
        (NewcBuilder::new("init").mode(0o100_755), init),
    ])
}

/// An archive in cpio's newc format, the one that the kernel unpacks.
///
/// # Panics
/// When a file is larger than 4 GiB.
#[must_use]
pub fn newc<'a>(files: impl IntoIterator<Item = (NewcBuilder, &'a [u8])>) -> Vec<u8> {
    let files = files
        .into_iter()
        .map(|(entry, contents)| (entry, Cursor::new(contents)));
    cpio::write_cpio(files, Vec::new()).unwrap()
}
