// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux on an emulated bare machine, with `tests/guest/outsider` as the first process. It prints
//! the kernel's messages about the layer that it has found.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use crate::program::{self, Run};
use crate::{linux, source_root};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What the kernel prints when something is wrong.
pub const TROUBLE: [&str; 4] = ["WARNING:", "BUG:", "Oops", "Call Trace"];

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

/// The time for a boot, which takes some seconds where nothing else runs.
const LIMIT: Duration = Duration::from_secs(180);

/// What the kernel says when it executes an int3 that it has replaced already. QEMU before 8.1
/// reads the code that it translates before it locks the pages, so it misses a write of another
/// vCPU in between. Linux replaces code on a running CPU by an int3 first, a few times a boot.
const STALE: &str = "Oops: int3";

/// The lines that a failure shows of a boot that has stood still.
const LAST: usize = 20;

/// Boots until that process is done; once more if the emulator has executed old code. `smp` and
/// `more` are options of QEMU.
///
/// # Errors
/// The process is never done: how the machine ended, and the last lines of its console.
pub fn boot_with(smp: &str, kernel: &Path, root: &Path, more: &[&OsStr]) -> Result<Run, String> {
    let boot = || boot_once(smp, kernel, root, more);
    boot().or_else(|(run, why)| {
        if !run.stdout.contains(STALE) {
            return Err(why);
        }
        eprintln!("the emulator may have executed old code, so once more: {why}");
        boot().map_err(|(_, why)| why)
    })
}

fn boot_once(smp: &str, kernel: &Path, root: &Path, more: &[&OsStr]) -> Result<Run, (Run, String)> {
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-machine", "q35", "-accel", "tcg,thread=multi"]);
    qemu.args(["-cpu", "max", "-m", "512", "-smp", smp, "-display", "none"]);
    qemu.args(["-vga", "none", "-serial", "stdio", "-nodefaults"]);
    qemu.args(["-no-user-config", "-no-reboot", "-append"]);
    qemu.arg("console=ttyS0 quiet panic=-1");
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(root);
    let ended = program::finish_within(qemu.args(more), LIMIT);
    let how = match &ended {
        Ok(run) => format!("has ended with exit code {}", run.code),
        Err(_) => format!("is not done in {LIMIT:?}"),
    };
    let mut run = ended.unwrap_or_else(|run| run);
    run.stdout = run.stdout.replace('\r', "");
    if run.stdout.contains("\ndone\n") {
        return Ok(run);
    }
    let lines: Vec<&str> = run.stdout.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST)..].join("\n");
    let why = format!("the machine {how}; its console:\n{last}\n{}", run.stderr);
    Err((run, why))
}

/// Boots a kernel with a ROM.
///
/// # Errors
/// As [`boot_with`].
///
/// # Panics
/// As [`root`].
pub fn boot(folder: &TempDir, kernel: &Path, rom: &Path, smp: &str) -> Result<Run, String> {
    let path: PathBuf = folder.path().join("root");
    fs::write(&path, root(folder)).unwrap();
    boot_with(
        smp,
        kernel,
        &path,
        &["-option-rom".as_ref(), rom.as_os_str()],
    )
}

/// Boots the built kernel with a ROM.
///
/// # Panics
/// When the process is never done.
pub fn boot_linux(folder: &TempDir, rom: &Path, smp: &str) -> Run {
    let kernel = linux::kernel().with_file_name("bzImage");
    boot(folder, &kernel, rom, smp).unwrap_or_else(|why| panic!("{why}"))
}

/// The ROM of the layer `tests/outsider`.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn outsider(folder: &Path) -> PathBuf {
    make("tests/outsider", folder);
    folder.join("outsider.rom")
}

/// Runs make in a folder of the source, with another folder for what it makes.
///
/// # Panics
/// When it fails.
pub fn make(what: &str, folder: &Path) {
    let make = Command::new("make")
        .arg("-C")
        .arg(source_root().join(what))
        .arg(format!("OUT={}", folder.display()))
        // Do not use the job server of a make that runs this test.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .unwrap();
    assert!(make.status.success(), "{make:?}");
}

/// What /sys/kernel/debug/vmi/calls says, with the word `sites` before each line: the record of a
/// call, and its sites by what they hold.
///
/// # Panics
/// When a number is none.
#[must_use]
pub fn calls(text: &str) -> BTreeMap<&str, (&str, BTreeMap<&str, u64>)> {
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.strip_prefix("sites ")?.split(' ').collect();
            let [name, record, sites @ ..] = &words[..] else {
                return None;
            };
            (sites.len() == 8).then(|| {
                let sites = sites.chunks(2).map(|s| (s[0], s[1].parse().unwrap()));
                (*name, (*record, sites.collect()))
            })
        })
        .collect()
}
