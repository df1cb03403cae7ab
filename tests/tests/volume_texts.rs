// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs in a shared folder: their system-call sites are replaced for all processes, as those of
//! programs on a disk are, and after the host has changed a program, the new one runs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program;
use paravane_tests::worker::Worker;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts of a program after which its sites are replaced.
const LEARNS: u32 = 60;
/// Starts that are looked at.
const STARTS: u32 = 40;

/// A static program at this path, which ends with this code. The code is in an instruction, so two
/// such programs differ in their text.
fn compile(program: &Path, code: u8) {
    let mut compiler = Command::new("cc")
        .args(["-static", "-O1", "-xc", "-", "-o"])
        .arg(program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let source = format!("int main(void) {{ return {code}; }}\n");
    let mut input = compiler.stdin.take().unwrap();
    input.write_all(source.as_bytes()).unwrap();
    drop(input);
    assert!(program::wait_within(&mut compiler, program::PATIENCE).success());
}

/// A machine with a program in the folder that it shares.
fn machine(options: &str) -> Worker {
    let mut machine = Worker::in_volume(options, |folder| compile(&folder.join("program"), 7));
    machine.does("mount -t debugfs none /sys/kernel/debug");
    machine
}

/// Has the program started this often. Each start must end with the code.
fn start(machine: &mut Worker, program: &str, starts: u32, code: u8) {
    machine.does(&format!(
        "i=0; while [ $i -lt {starts} ]; do {program}; \
         [ $? = {code} ] || echo wrong; i=$((i+1)); done"
    ));
}

/// System calls that have trapped in the machine.
fn trapped(machine: &mut Worker) -> u32 {
    let said = machine.tell("printf %s $(sed -n 's/^trapped //p' /sys/kernel/debug/vmi/sites)");
    said.trim().parse().unwrap()
}

/// System calls that trap in further starts of a program.
fn traps(machine: &mut Worker, program: &str) -> u32 {
    start(machine, program, LEARNS, 7);
    let before = trapped(machine);
    start(machine, program, STARTS, 7);
    let traps = trapped(machine) - before;
    println!("{program}: {traps} traps in {STARTS} starts");
    traps
}

/// Compares a program in a folder with the same program in the machine's memory. A start makes a
/// dozen system calls.
#[test]
fn programs_in_a_folder_trap_no_more_than_others() {
    let mut machine = machine(":ro");
    machine.does("cp program /tmp/program");
    let memory = traps(&mut machine, "/tmp/program");
    let folder = traps(&mut machine, "/x/program");
    assert!(
        folder <= memory + STARTS,
        "{folder} traps, {memory} in memory"
    );
}

/// The file keeps its inode and its length. The cached code must not run.
#[test]
fn a_program_that_the_host_changes_is_the_new_one() {
    let mut machine = machine("");
    let (program, other) = (
        machine.shared().join("program"),
        machine.folder().join("other"),
    );
    for turn in 0..3 {
        let (old, new) = if turn % 2 == 0 { (7, 8) } else { (8, 7) };
        start(&mut machine, "/x/program", LEARNS, old);
        compile(&other, new);
        let bytes = fs::read(&other).unwrap();
        assert_eq!(fs::metadata(&program).unwrap().len(), bytes.len() as u64);
        let mut file = fs::File::options().write(true).open(&program).unwrap();
        file.write_all(&bytes).unwrap();
        drop(file);
        let changed = Instant::now();
        while machine.tell("/x/program; printf $?").trim() != new.to_string() {
            assert!(
                changed.elapsed() < Duration::from_secs(5),
                "still the old one"
            );
        }
        start(&mut machine, "/x/program", LEARNS, new);
    }
}
