// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory a guest can have, and that the memory that it has used and freed returns to the
//! host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::control_group::{ControlGroup, Names};
use paravane_tests::lines::Lines;
use paravane_tests::skip::skip;
use paravane_tests::{program, vm};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Bytes that the host has allocated for a monitor's guest memory.
fn memory(monitor: u32) -> u64 {
    let files = fs::read_dir(format!("/proc/{monitor}/fd"))
        .unwrap()
        .flatten();
    files
        .filter(|file| {
            // Files of a tmpfs that is mounted nowhere have only a number.
            fs::read_link(file.path()).is_ok_and(|to| {
                let to = to.to_string_lossy();
                to.contains("memfd:paravane-ram") || to.starts_with("/#")
            })
        })
        .map(|file| fs::metadata(file.path()).unwrap().blocks() * 512)
        .sum()
}

const MIB: u64 = 1 << 20;

/// The host would end a machine that uses more memory than its control group has.
#[test]
fn a_guest_larger_than_its_control_group_is_reported() {
    const MAX: Names = ("memory.max", "memory.limit_in_bytes");
    let Some(group) = ControlGroup::new("memory", MAX) else {
        skip("this user may not make a control group for memory");
        return;
    };
    group.set(MAX, 300 * MIB);
    let run = |memory: &str| {
        let command = vm::command(["--memory", memory, "--", "true"]);
        program::finish(&mut group.with(&command))
    };
    let large = run("300M");
    assert_eq!(large.code, 0, "{large:?}");
    for part in ["--memory 300M", "300 MiB", "memory.max"] {
        assert!(large.stderr.contains(part), "{part:?}: {large:?}");
    }
    assert_eq!(large.stderr.lines().count(), 1, "{large:?}");
    let small = run("200M");
    assert_eq!((small.code, small.stderr.as_str()), (0, ""));
}

#[test]
fn what_a_guest_has_freed_is_the_host_s_again() {
    let script = "while read -r line; do $line; echo done; done";
    let mut child = vm::command(["--memory", "512M", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = Lines::of(child.stdout.take());
    let mut ask = |line: &str| {
        writeln!(input, "{line}").unwrap();
        let answer = output.next_within(program::PATIENCE);
        assert_eq!(answer, "done\n", "{line}");
    };
    ask("true");
    let before = memory(child.id());
    // Twice: returned memory can be used again.
    for round in 0..2 {
        ask("dd if=/dev/urandom of=/tmp/file bs=1M count=128 status=none");
        let full = memory(child.id());
        assert!(full > before + 120 * MIB, "round {round}: {before} {full}");
        ask("cp /tmp/file /dev/null");
        ask("rm /tmp/file");
        // The guest's kernel reports free pieces of 2 MiB some seconds later. A few of them contain
        // pages in use.
        let begun = Instant::now();
        while memory(child.id()) > full - 108 * MIB {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "round {round}: {} MiB of {} stay",
                memory(child.id()) / MIB,
                full / MIB
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        println!(
            "round {round}: {} MiB, {} full, {} again after {:?}",
            before / MIB,
            full / MIB,
            memory(child.id()) / MIB,
            begun.elapsed()
        );
    }
    drop(input);
    assert!(program::wait_within(&mut child, program::PATIENCE).success());
}

/// Guest memory that an idle machine has of the host.
fn memory_of_idle(options: &[&str]) -> u64 {
    let all = [
        &["--memory", "512M"],
        options,
        &["--", "sh", "-c", "echo; cat"],
    ]
    .concat();
    let mut child = vm::command(&all)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    assert!(program::first_line(&mut child).ends_with("\n"));
    let taken = memory(child.id());
    drop(input);
    assert!(program::wait_within(&mut child, program::PATIENCE).success());
    taken
}

/// An idle guest has touched few of its pages, so it gains nothing by large ones.
#[test]
fn large_pages_cost_an_idle_guest_little() {
    let large = memory_of_idle(&[]);
    let small = memory_of_idle(&["--without", "large-pages"]);
    println!(
        "{} KiB in large pages, {} in small ones",
        large >> 10,
        small >> 10
    );
    assert!(small > 16 * MIB, "this test counts all of it");
    assert!(large <= small + small / 3, "{large} {small}");
}

/// A guest may have more memory than the host: memory that it does not touch costs nothing. The
/// tables of its kernel take a 64th.
#[test]
#[ignore = "takes 2 GiB of the host's memory: make test-release"]
fn a_guest_can_have_a_lot() {
    for (size, least) in [("64G", 62_000_000), ("100G", 97_000_000)] {
        let script = "awk '/MemTotal/ { print $2 }' /proc/meminfo";
        let got = program::finish(&mut vm::command([
            "--memory", size, "--", "sh", "-c", script,
        ]));
        assert_eq!(got.code, 0, "{size}: {}", got.stderr);
        let total: u64 = got.stdout.trim().parse().unwrap();
        assert!(total > least, "{size}: {total} KiB");
    }
}
