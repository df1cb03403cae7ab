// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The addresses of programs: almost as on bare metal, which the runtimes of sanitizers expect, and
//! as in earlier releases.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_abi as abi;
use paravane_tests::skip::skip_part;
use paravane_tests::{linux, program, small_root, source_root, vm};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A sanitizer, a fault of the program, and what the runtime calls it.
const CASES: [(&str, &str, &str); 4] = [
    (
        "address",
        "overflow",
        "AddressSanitizer: heap-buffer-overflow",
    ),
    ("leak", "leak", "LeakSanitizer: detected memory leaks"),
    ("undefined", "shift", "shift exponent 40 is too large"),
    ("thread", "race", "ThreadSanitizer: data race"),
];
/// The first gcc whose runtime for threads fits below the end of user space here.
const GCC_WITH_THREADS: u32 = 13;
/// Starts of each program: the kernel chooses other addresses for each.
const STARTS: usize = 10;
/// What the guest prints before the name of a program.
const MARK: &str = "### ";

/// Where the hypervisor ends user space, and where it did in earlier releases.
const END: u64 = 0x7b00_0000_0000;
const EARLIER_END: u64 = 0x4000_0000_0000;
/// Where Linux puts position-independent programs on bare metal, apart from a random offset.
const PROGRAM: std::ops::Range<u64> = 0x5555_5555_4000..0x5655_5555_5000;
/// How far from the end the stack begins, at most: a random offset of 16 GiB, and its size.
const STACK_WITHIN: u64 = 32 << 30;

fn compiler_version() -> u32 {
    let output = Command::new("cc").arg("-dumpversion").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().split('.').next().unwrap().parse().unwrap()
}

/// Whether the compiler has the sanitizer's runtime.
fn compile(sanitizer: &str, kind: &str, to: &Path) -> bool {
    let compiled = Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-w", kind])
        .arg(format!("-fsanitize={sanitizer}"))
        .arg("-o")
        .arg(to)
        .arg(source_root().join("tests/guest/sanitized/main.c"))
        .output()
        .unwrap();
    compiled.status.success()
}

#[test]
fn sanitizers_find_faults_and_only_those() {
    let root = small_root::make(&[]);
    let folder = tempfile::tempdir().unwrap();
    let mut script = String::new();
    let mut expected = Vec::new();
    for (sanitizer, fault, found) in CASES {
        for kind in ["-pie", "-no-pie"] {
            let name = format!("{sanitizer}{kind}");
            let path = folder.path().join(&name);
            let known = sanitizer != "thread" || compiler_version() >= GCC_WITH_THREADS;
            if !known || !compile(sanitizer, kind, &path) {
                skip_part(&format!(
                    "{name}: this compiler has no runtime for it that fits"
                ));
                continue;
            }
            small_root::add(&path, root.path());
            script += &format!(
                "echo '{MARK}{name}'; i=0; while [ $i -lt {STARTS} ]; do {name} || echo failed; \
                 i=$((i + 1)); done; echo; {name} {fault} && [ {sanitizer} != undefined ] && \
                 echo 'nothing found'\n"
            );
            expected.push((name, found));
        }
    }
    assert!(!expected.is_empty(), "this compiler has no sanitizer");
    let mut command = vm::command(["--cpus", "2", "--memory", "512M", "--rootfs"]);
    command.arg(root.path());
    command.args(["--", "sh", "-c", &format!("exec 2>&1; {script} exit 0")]);
    let run = program::finish(&mut command);
    for (name, found) in expected {
        let start = format!("{MARK}{name}\n");
        let part = run.stdout.split_once(&start).map(|(_, rest)| rest);
        let part = part.and_then(|rest| rest.split(MARK).next());
        assert!(part.is_some(), "{name}: {run:?}");
        let part = part.unwrap();
        let clean = "clean\n".repeat(STARTS) + "\n";
        let fault = part.strip_prefix(&clean);
        assert!(fault.is_some(), "{name}: {part}");
        let fault = fault.unwrap();
        assert!(
            fault.contains(found) && !fault.contains("nothing found"),
            "{name}: {part}"
        );
    }
    assert_eq!(run.code, 0, "{run:?}");
}

/// Where the program's first mapping begins, and where the stack ends.
fn addresses(options: &[&str]) -> (u64, u64) {
    let mut command = program::command();
    command.args(["run", "--net", "none"]).args(options);
    let run = program::finish(command.args(["--", "cat", "/proc/self/maps"]));
    assert_eq!(run.code, 0, "{run:?}");
    let range = |line: &str| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        [start, end].map(|word| u64::from_str_radix(word, 16).unwrap())
    };
    let [first, _] = range(run.stdout.lines().next().unwrap());
    let stack = run.stdout.lines().find(|line| line.ends_with("[stack]"));
    let [_, end] = range(stack.unwrap());
    println!("{}", run.stdout);
    (first, end)
}

/// A kernel that does not announce its small need of addresses gets those that earlier releases
/// gave, and uses them.
#[test]
fn a_kernel_gets_the_addresses_that_its_note_allows() {
    let kernel = vm::kernel().unwrap_or_else(linux::kernel);
    let path = kernel.display().to_string();
    let (_, stack) = addresses(&["--kernel", &path]);
    assert!((END - STACK_WITHIN..END).contains(&stack), "{stack:#x}");

    let mut file = fs::read(&kernel).unwrap();
    let version = u32::from(abi::API_MAJOR) << 16 | u32::from(abi::API_MINOR);
    let compact = u32::try_from(abi::NOTE_COMPACT).unwrap();
    let end = [version, compact].map(u32::to_le_bytes).concat();
    let is_note = |bytes: &[u8]| bytes.starts_with(b"VMI\0") && bytes[12..] == end[..];
    let mut notes = (0..file.len() - 20).filter(|&at| is_note(&file[at..at + 20]));
    let note = notes.next().unwrap();
    assert_eq!(notes.next(), None);
    file[note + 16..note + 20].fill(0);
    let folder = tempfile::tempdir().unwrap();
    let earlier = folder.path().join("vmlinux");
    fs::write(&earlier, file).unwrap();
    let (_, stack) = addresses(&["--kernel", &earlier.display().to_string()]);
    let expected = EARLIER_END - STACK_WITHIN..EARLIER_END;
    assert!(expected.contains(&stack), "{stack:#x}");
}

/// A position-independent program has the addresses that it has on bare metal.
#[test]
fn programs_begin_where_they_do_on_bare_metal() {
    let root = small_root::make(&["cat"]);
    let (first, _) = addresses(&["--rootfs", &root.path().display().to_string()]);
    assert!(PROGRAM.contains(&first), "{first:#x}");
}
