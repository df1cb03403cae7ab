// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux on an emulated bare machine, with `tests/guest/outsider` as the first process. It prints
//! what the kernel says of the layer that it has found.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::program::{self, Run};
use crate::{linux, source_root};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// An initial RAM disk with that process.
///
/// # Panics
/// When the program cannot be compiled.
#[must_use]
pub fn root(folder: &TempDir) -> Vec<u8> {
    let program = folder.path().join("init");
    linux::compile(&source_root().join("tests/guest/outsider"), &program);
    linux::initial_root(&fs::read(&program).unwrap())
}

/// Boots until that process is done. `smp` and `more` are options of QEMU.
///
/// # Panics
/// When the process is never done.
pub fn boot_with(smp: &str, kernel: &Path, root: &Path, more: &[&OsStr]) -> Run {
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-machine", "q35", "-accel", "tcg,thread=multi"]);
    qemu.args(["-cpu", "max", "-m", "512", "-smp", smp, "-display", "none"]);
    qemu.args(["-vga", "none", "-serial", "stdio", "-nodefaults"]);
    qemu.args(["-no-user-config", "-no-reboot", "-append"]);
    qemu.arg("console=ttyS0 quiet panic=-1");
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(root);
    let mut run = program::finish(qemu.args(more));
    run.stdout = run.stdout.replace('\r', "");
    assert!(run.stdout.contains("\ndone\n"), "{run:?}");
    run
}

/// Boots a kernel with a ROM.
///
/// # Panics
/// As [`boot_with`].
pub fn boot(folder: &TempDir, kernel: &Path, rom: &Path, smp: &str) -> Run {
    let path: PathBuf = folder.path().join("root");
    fs::write(&path, root(folder)).unwrap();
    boot_with(
        smp,
        kernel,
        &path,
        &["-option-rom".as_ref(), rom.as_os_str()],
    )
}
