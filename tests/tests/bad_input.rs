// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bad input gets one line that says what is wrong, where, and what to do, and exit code 2.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_blobs::{CONFORMANCE_GUEST, NATIVE_ROM};
use paravane_tests::{program, rom};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// Runs `paravane` with `words`, which it must refuse with one line that contains all `parts`.
fn refused(words: &[&str], parts: &[&str]) {
    refusal(&program::run(words), parts);
}

fn refusal(run: &program::Run, parts: &[&str]) {
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "more than one line: {run:?}");
    assert!(run.stderr.starts_with("paravane: "), "{run:?}");
    for part in parts {
        assert!(
            run.stderr.contains(part),
            "`{part}` is not in: {}",
            run.stderr
        );
    }
}

/// The arguments of a run that would work without what is added.
fn conformance<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["conformance", "--hypervisor", "qemu"];
    words.extend(more);
    words
}

struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new(content: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, content).unwrap();
        File {
            _folder: folder,
            path,
        }
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

fn guest_refused(content: &[u8], parts: &[&str]) {
    let file = File::new(content);
    let mut parts = parts.to_vec();
    parts.push(file.name());
    refused(
        &conformance(&["--layer", "none", "--guest", file.name()]),
        &parts,
    );
}

fn rom_refused(content: &[u8], parts: &[&str]) {
    let file = File::new(content);
    let mut parts = parts.to_vec();
    parts.push(file.name());
    refused(
        &conformance(&["--layer", "native", "--rom", file.name()]),
        &parts,
    );
    refused(&["rom", "inspect", file.name()], &parts);
}

#[test]
fn unknown_option() {
    refused(&conformance(&["--layer", "none", "--fast"]), &["--fast"]);
}

#[test]
fn unknown_command() {
    refused(&["launch"], &["launch"]);
}

#[test]
fn no_command() {
    refused(&[], &["--help"]);
}

#[test]
fn unknown_layer() {
    refused(
        &conformance(&["--layer", "warp"]),
        &["warp", "native-stats"],
    );
}

#[test]
fn unknown_hypervisor() {
    refused(
        &["conformance", "--hypervisor", "vmx", "--layer", "none"],
        &["vmx", "qemu"],
    );
}

#[test]
fn no_layer() {
    refused(&conformance(&[]), &["--layer"]);
}

#[test]
fn too_many_cpus() {
    for cpus in ["0", "65", "-1", "two"] {
        let option = format!("--cpus={cpus}");
        refused(&conformance(&["--layer", "none", &option]), &[cpus]);
    }
}

#[test]
fn no_time() {
    refused(
        &conformance(&["--layer", "none", "--timeout", "0"]),
        &["--timeout"],
    );
}

#[test]
fn filter_with_a_space() {
    refused(
        &conformance(&["--layer", "none", "--filter", "cpu. layer=native"]),
        &["--filter", "without spaces"],
    );
    refused(
        &conformance(&["--layer", "none", "--filter", ""]),
        &["--filter"],
    );
    refused(
        &conformance(&["--layer", "none", "--append", "a b"]),
        &["--append", "without spaces"],
    );
}

#[test]
fn guest_missing() {
    refused(
        &conformance(&["--layer", "none", "--guest", "/no/such/guest"]),
        &["/no/such/guest", "No such file"],
    );
}

#[test]
fn guest_is_a_folder() {
    refused(
        &conformance(&["--layer", "none", "--guest", "/"]),
        &["not an ordinary file"],
    );
}

#[test]
fn guest_is_not_an_elf() {
    guest_refused(b"#!/bin/sh\nexit 0\n", &["not an ELF file"]);
    guest_refused(b"", &["not an ELF file"]);
}

#[test]
fn guest_is_truncated() {
    guest_refused(&CONFORMANCE_GUEST[..40], &["truncated"]);
    guest_refused(&CONFORMANCE_GUEST[..80], &["truncated"]);
    guest_refused(
        &CONFORMANCE_GUEST[..CONFORMANCE_GUEST.len() / 4],
        &["truncated"],
    );
}

#[test]
fn guest_is_for_another_machine() {
    let mut guest = CONFORMANCE_GUEST.to_vec();
    guest[18] = 183; // e_machine: AArch64
    guest_refused(&guest, &["wrong machine", "x86-64"]);
    guest[18] = 62;
    guest[4] = 1; // a 32-bit file
    guest_refused(&guest, &["wrong machine", "32-bit"]);
}

#[test]
fn guest_has_no_note() {
    // A program of this machine is an ELF file, but not a kernel.
    guest_refused(
        &fs::read(program::path()).unwrap(),
        &["no VMI note and no PVH note"],
    );
}

#[test]
fn rom_missing() {
    refused(
        &conformance(&["--layer", "native", "--rom", "/no/such/rom"]),
        &["/no/such/rom", "No such file"],
    );
    refused(
        &["rom", "inspect", "/no/such/rom"],
        &["/no/such/rom", "No such file"],
    );
}

#[test]
fn rom_is_truncated() {
    rom_refused(&NATIVE_ROM[..100], &["truncated"]);
    rom_refused(&NATIVE_ROM[..NATIVE_ROM.len() - 1], &["truncated"]);
    rom_refused(b"", &["truncated"]);
}

#[test]
fn rom_has_no_signature() {
    let mut image = NATIVE_ROM.to_vec();
    image[1] = 0;
    rom_refused(&image, &["not an option ROM", "55 AA"]);
}

#[test]
fn rom_checksum_is_damaged() {
    let mut image = NATIVE_ROM.to_vec();
    let last = image.len() - 1;
    image[last] ^= 0x10;
    rom_refused(&image, &["checksum"]);
}

#[test]
fn rom_is_no_layer() {
    rom_refused(
        &rom::with(NATIVE_ROM, rom::VMI_SIGNATURE, b"VMI5"),
        &["VMI6"],
    );
}

#[test]
fn rom_has_another_major_version() {
    rom_refused(&rom::with(NATIVE_ROM, rom::API_MAJOR, &[9]), &["VMI 9."]);
}

#[test]
fn rom_table_is_out_of_bounds() {
    let image = rom::with(
        NATIVE_ROM,
        rom::SECTIONS_OFFSET,
        &0xffff_fff0u32.to_le_bytes(),
    );
    rom_refused(&image, &["table of sections"]);
}

#[test]
fn rom_and_no_layer() {
    let file = File::new(NATIVE_ROM);
    refused(
        &conformance(&["--layer", "none", "--rom", file.name()]),
        &["--layer none"],
    );
    refused(
        &conformance(&["--layer", "none", "--unchecked-rom"]),
        &["--rom"],
    );
}

#[test]
fn bench_page_without_markers() {
    let file = File::new(b"# nothing here\n");
    refused(
        &["bench", "native", "--write", file.name()],
        &[file.name(), "bench:native begin"],
    );
}

#[test]
fn qemu_is_not_installed() {
    let empty = tempfile::tempdir().unwrap();
    let run = program::finish(
        program::command()
            .args(conformance(&["--layer", "none"]))
            .env("PATH", empty.path()),
    );
    refusal(
        &run,
        &["qemu-system-x86_64", "apt-get install qemu-system-x86"],
    );
}

#[test]
fn temporary_folder_is_missing() {
    let run = program::finish(
        program::command()
            .args(conformance(&["--layer", "none"]))
            .env("TMPDIR", "/no/such"),
    );
    refusal(&run, &["temporary folder", "TMPDIR"]);
}

#[test]
fn help_and_version_are_no_errors() {
    for words in [
        &["--help"][..],
        &["--version"],
        &["conformance", "--help"],
        &["rom", "--help"],
        &["bench", "--help"],
    ] {
        let run = program::run(words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words:?}");
        assert!(!run.stdout.is_empty());
    }
}

#[test]
fn a_kernel_that_cannot_be_built_is_refused_before_the_work() {
    refused(
        &["kernel", "build", "--source", "/nonexistent"],
        &["source /nonexistent", "No such file"],
    );
    refused(
        &["kernel", "build", "--with", "speed"],
        &["speed", "debug-info"],
    );
    refused(
        &["kernel", "build", "--config", "/nonexistent"],
        &["configuration /nonexistent"],
    );
    refused(
        &["kernel", "build", "--update", "--source", "x"],
        &["--update", "--source"],
    );
}
