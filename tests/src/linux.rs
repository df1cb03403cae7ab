// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux in a virtual machine: the kernel, and an initial root with one program.

use crate::program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel for the process hypervisor, built unless it was.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn kernel() -> PathBuf {
    let run = program::finish(program::command().args(["kernel", "build"]));
    assert_eq!(run.code, 0, "{run:?}");
    // Linux VERSION (how): FOLDER
    let folder = run.last_line().rsplit_once("): ").map(|(_, folder)| folder);
    Path::new(folder.unwrap_or_default()).join("vmlinux")
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

/// A file of an archive.
struct Entry<'a> {
    name: &'a str,
    mode: u32,
    /// Major and minor number.
    device: (u32, u32),
    contents: &'a [u8],
}

impl<'a> Entry<'a> {
    fn new(name: &'a str, mode: u32, device: (u32, u32), contents: &'a [u8]) -> Self {
        Entry {
            name,
            mode,
            device,
            contents,
        }
    }
}

/// An archive (newc) that the kernel unpacks as its root: `/init`, and what it needs to say something.
#[must_use]
pub fn initial_root(init: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    let files = [
        Entry::new("dev", 0o040_755, (0, 0), b""),
        Entry::new("dev/console", 0o020_600, (5, 1), b""),
        Entry::new("init", 0o100_755, (0, 0), init),
        Entry::new("TRAILER!!!", 0, (0, 0), b""),
    ];
    for (inode, file) in files.iter().enumerate() {
        let Entry {
            name,
            mode,
            device,
            contents,
        } = file;
        let fields = [
            inode,
            *mode as usize,
            0,
            0,
            1,
            0,
            contents.len(),
            0,
            0,
            device.0 as usize,
            device.1 as usize,
            name.len() + 1,
            0,
        ];
        archive.extend_from_slice(b"070701");
        for field in fields {
            archive.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        archive.extend_from_slice(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend_from_slice(contents);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    archive
}
