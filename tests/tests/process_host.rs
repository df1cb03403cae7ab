// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Actions of the host on a running machine: it takes processors away, a debugger attaches, memory
//! is larger than one file.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::skip::skip;
use paravane_tests::vmi_guest::{Deed, build};
use paravane_tests::{program, tree};
use rustix::process::{Signal, geteuid};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A machine whose guest loops.
struct Machine {
    monitor: Child,
    _folder: TempDir,
}

impl Machine {
    fn start(words: &[&str]) -> Self {
        Self::start_without("nothing", words)
    }

    /// Starts a machine on a host that lacks something (`src/bin/without.rs`).
    fn start_without(lacks: &str, words: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let guest = folder.path().join("guest");
        fs::write(&guest, build(Deed::Spin)).unwrap();
        let mut command = Command::new(program::tool("without"));
        command.args([lacks, &geteuid().as_raw().to_string()]);
        command.arg(program::path()).stdin(Stdio::null());
        command.args([
            "conformance",
            "--hypervisor",
            "process",
            "--timeout",
            "120",
            "--guest",
        ]);
        command.arg(guest).args(words);
        let monitor = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let machine = Machine {
            monitor,
            _folder: folder,
        };
        machine.running();
        machine
    }

    /// The process whose thread runs the guest.
    fn running(&self) -> u32 {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            // A start takes less CPU time.
            let busy = |pid: &u32| tree::cpu_time(&[*pid]) > 100_000_000;
            if let Some(pid) = tree::spaces(self.monitor.id()).into_iter().find(busy) {
                return pid;
            }
            assert!(Instant::now() < deadline, "the machine does not run");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let all = tree::everything(self.monitor.id());
        tree::signal(self.monitor.id(), Signal::TERM);
        if program::status_within(&mut self.monitor, program::PATIENCE).is_none() {
            let _ = self.monitor.kill();
            let _ = self.monitor.wait();
        }
        assert_eq!(tree::wait_gone(&all), Ok(()));
    }
}

fn threads(pid: u32) -> Vec<Pid> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let ids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw).collect()
}

fn cpus(thread: Pid) -> Vec<usize> {
    let set = sched_getaffinity(Some(thread)).unwrap();
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// This holds also in a PID namespace, in which the layer's ids of its threads differ from the
/// host's.
#[test]
fn a_processor_that_is_taken_away_is_left() {
    for lacks in ["nothing", "landlock", "namespaces,landlock"] {
        processor_is_left(lacks);
    }
}

fn processor_is_left(lacks: &str) {
    let mine = sched_getaffinity(None).unwrap();
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| mine.is_set(cpu))
        .collect();
    let machine = Machine::start_without(lacks, &["--cpus", "2"]);
    let space = machine.running();
    let on: Vec<_> = threads(space).into_iter().map(cpus).collect();
    assert_eq!(on.len(), 2);
    assert!(on.iter().all(|cpus| cpus.len() == 1), "not pinned: {on:?}");
    if allowed.len() < 2 {
        return;
    }
    assert_ne!(on[0], on[1], "both on one");
    // Remove the one on which vCPU 0 runs.
    let mut left = CpuSet::new();
    allowed
        .iter()
        .filter(|&&cpu| cpu != on[0][0])
        .for_each(|&cpu| left.set(cpu));
    for thread in threads(machine.monitor.id()) {
        sched_setaffinity(Some(thread), &left).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let all = tree::spaces(machine.monitor.id());
        let on: Vec<_> = all.iter().flat_map(|&pid| threads(pid)).map(cpus).collect();
        if on
            .iter()
            .all(|cpus| cpus.len() == 1 && left.is_set(cpus[0]))
        {
            break;
        }
        assert!(Instant::now() < deadline, "{lacks}: {on:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let before = tree::cpu_time(&[space]);
    std::thread::sleep(Duration::from_secs(1));
    assert!(tree::cpu_time(&[space]) > before, "it no longer runs");
}

/// Without a debugger only debugging fails.
#[test]
fn a_debugger_can_look_into_a_debuggable_machine() {
    if Command::new("gdb").arg("--version").output().is_err() {
        skip("gdb is not installed");
        return;
    }
    let machine = Machine::start(&["--debuggable"]);
    let space = machine.running();
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-p", &space.to_string()]);
    for word in [
        "printf \"at %#lx\\n\", $rip",
        "x/i $rip",
        "info threads",
        "detach",
    ] {
        gdb.args(["-ex", word]);
    }
    let run = program::finish(&mut gdb);
    let said = run.stdout + &run.stderr;
    let at = said.lines().find_map(|l| l.strip_prefix("at 0x"));
    let Some(at) = at.and_then(|hex| u64::from_str_radix(hex, 16).ok()) else {
        // Yama or a container: if this test may not trace its own child, gdb may not attach to the
        // machine either.
        assert!(said.contains("ptrace: Operation not permitted"), "{said}");
        skip("gdb may not attach to a process");
        return;
    };
    let hole = paravane_abi::process::PHV_HOLE_START..paravane_abi::process::PHV_LAYER_BASE;
    assert!(hole.contains(&at), "the kernel is not at {at:#x}:\n{said}");
    assert!(said.contains("jmp"), "{said}");
    let before = tree::cpu_time(&[space]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        tree::cpu_time(&[space]) > before,
        "it no longer runs:\n{said}"
    );
}

/// The machine has three files of RAM.
#[test]
fn memory_in_several_files() {
    let run = program::finish(program::command().args([
        "conformance",
        "--hypervisor",
        "process",
        "--cpus",
        "2",
        "--memory",
        "2560",
        "--filter",
        "mmu.f*",
        "--timeout",
        "120",
        "--tap",
    ]));
    assert_eq!(run.code, 0, "{run:?}");
    let passed: u32 = run.last_line().split(' ').next().unwrap().parse().unwrap();
    assert!(passed > 20, "{run:?}");
}
