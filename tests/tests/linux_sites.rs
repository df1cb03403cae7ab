// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rewritten system-call sites in VMI-Linux: a program (`tests/guest/sites`), static and dynamic,
//! as the only program of a guest.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used, clippy::panic)]

use object::Endianness;
use object::elf::ProgramHeader64;
use object::read::elf::{ElfFile64, ProgramHeader};
use paravane_tests::{linux, program, source_root, vm};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn checked(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The offset in its last page at which the text of the test's program ends.
const SLOTS_FROM: u64 = 256;

/// The file offset at which a program's text ends.
fn text_end(binary: &Path) -> u64 {
    let bytes = fs::read(binary).unwrap();
    let elf = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let endian = elf.endian();
    let executable = |header: &&ProgramHeader64<Endianness>| {
        header.p_type(endian) == object::elf::PT_LOAD
            && header.p_flags(endian).contains(object::elf::PF_X)
    };
    let text = elf.elf_program_headers().iter().find(executable).unwrap();
    text.p_offset(endian) + text.p_filesz(endian)
}

/// The program as /init, with its libraries.
fn initramfs(folder: &Path, link: &[&str]) -> PathBuf {
    let root = folder.join("root");
    for name in ["dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let source = source_root().join("tests/guest/sites");
    let files = [
        "main.c",
        "basic.c",
        "memory.c",
        "debug.c",
        "stubs.c",
        "children.c",
        "learning.c",
        "shared.c",
        "copies.c",
        "sites.S",
    ]
    .map(|name| source.join(name));
    let binary = root.join("sites");
    let flags = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
    ];
    let build = |fill: u64| {
        checked(
            Command::new("cc")
                .args(flags)
                .args(link)
                .arg(format!("-DFILL={fill}"))
                .arg("-o")
                .arg(&binary)
                .args(&files),
        );
        text_end(&binary)
    };
    // Shared call stubs lie in the rest of the text's last page: make sure that there is one.
    let end = build((4096 + SLOTS_FROM - build(0) % 4096) % 4096);
    assert!((1..=SLOTS_FROM + 64).contains(&(end % 4096)), "{end:#x}");
    std::os::unix::fs::symlink("sites", root.join("init")).unwrap();
    if link.is_empty() {
        // Cancellation loads the unwinder by its name.
        let unwinder = checked(Command::new("cc").arg("-print-file-name=libgcc_s.so.1"));
        let listed = checked(Command::new("ldd").arg(&binary));
        let mut libraries: Vec<&str> = listed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
            .collect();
        // The loader also searches the C library's folder.
        let home = libraries
            .iter()
            .find(|path| path.contains("/libc.so"))
            .and_then(|path| Path::new(path).parent());
        let home = home.unwrap().to_path_buf();
        libraries.push(unwinder.trim());
        for library in libraries {
            let name = Path::new(library).file_name().unwrap();
            let place = if library == unwinder.trim() {
                home.join(name)
            } else {
                library.into()
            };
            let to = root.join(place.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(library, to).unwrap();
        }
    }
    let archive = folder.join("initrd");
    let script = format!("find . | cpio -o -H newc --quiet >'{}'", archive.display());
    checked(Command::new("sh").args(["-c", &script]).current_dir(&root));
    archive
}

fn passes(link: &[&str], cpus: &str) {
    passes_by(program::command(), link, cpus, "");
}

/// Starts the program with these words before it and one more for the guest's command line.
fn passes_by(mut command: Command, link: &[&str], cpus: &str, word: &str) {
    let folder = tempfile::tempdir().unwrap();
    let initrd = initramfs(folder.path(), link);
    let append = format!("console=hvc0 quiet {word}");
    let run = program::finish(
        command
            .args([
                "boot",
                "--append",
                &append,
                "--timeout",
                "300",
                "--cpus",
                cpus,
            ])
            .arg("--kernel")
            .arg(vm::kernel().unwrap_or_else(linux::kernel))
            .arg("--initrd")
            .arg(initrd),
    );
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("ok 1 - libc_getppid"), "{}", run.stdout);
}

#[test]
fn a_static_program() {
    passes(&["-static"], "1");
}

#[test]
fn a_static_program_on_two_vcpus() {
    passes(&["-static"], "2");
}

#[test]
fn a_dynamic_program() {
    passes(&[], "1");
}

/// On such a host the kernel learns from these programs, and their instructions do not fault.
#[test]
fn a_dynamic_program_where_the_host_says_that_cpuid_faults() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_says_cpuid_faults"));
    command.arg(program::path()).stdin(Stdio::null());
    passes_by(command, &[], "2", "learns=1");
}
