// SPDX-License-Identifier: Apache-2.0 OR MIT
//! After any cause, machines of the process hypervisor end with a message and leave nothing. The
//! tests also check how a hostile kernel is confined.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::planted::{self, Planted};
use paravane_tests::vmi_guest::{Deed, build};
use paravane_tests::{program, tree, wait};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const VCPUS: usize = 2;
/// Nanoseconds of CPU time that processes do not need to start.
const BUSY: u64 = 20_000_000;

/// From the start to the end of a machine that ends by itself, long before its time limit.
const SOON: Duration = Duration::from_secs(10);

/// A running machine.
struct Machine {
    monitor: Child,
    zygote: u32,
    spaces: Vec<u32>,
    _folder: TempDir,
}

fn command(folder: &TempDir, deed: Deed) -> Command {
    let guest = folder.path().join("guest");
    fs::write(&guest, build(deed)).unwrap();
    let mut command = program::command();
    command
        .args(["conformance", "--hypervisor", "process", "--guest"])
        .arg(guest);
    command
}

impl Machine {
    /// Starts a machine that does nothing, and waits until it runs.
    fn start() -> Self {
        Self::start_with(Deed::Spin)
    }

    fn start_with(deed: Deed) -> Self {
        Self::start_on(deed, None)
    }

    #[allow(clippy::zombie_processes)] // `end` waits for it. If it does not start, the test ends.
    fn start_on(deed: Deed, layer: Option<&Path>) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = command(&folder, deed);
        if let Some(file) = layer {
            command.arg("--rom").arg(file);
        }
        command.args(["--cpus", &VCPUS.to_string()]);
        let monitor = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let zygote = tree::children(monitor.id()).first().copied();
            let spaces = zygote.map(tree::children).unwrap_or_default();
            // It runs the guest's code.
            let is_busy = || tree::cpu_time(&spaces) > BUSY;
            if let (Some(zygote), true) = (zygote, spaces.len() > VCPUS && is_busy()) {
                return Machine {
                    monitor,
                    zygote,
                    spaces,
                    _folder: folder,
                };
            }
            assert!(Instant::now() < deadline, "the machine does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all processes have ended. Returns the exit code and the output.
    fn end(mut self) -> (Option<i32>, String) {
        let said = Lines::of(self.monitor.stdout.take()).rest_within(program::PATIENCE);
        let status = program::wait_within(&mut self.monitor, program::PATIENCE);
        self.spaces.push(self.zygote);
        tree::wait_gone(&self.spaces).unwrap();
        (status.code(), said)
    }
}

fn kill(signal: Signal, pids: &[u32]) {
    for &pid in pids {
        tree::signal(pid, signal);
    }
}

#[test]
fn killing_the_monitor_leaves_nothing() {
    let machine = Machine::start();
    kill(Signal::KILL, &[machine.monitor.id()]);
    assert_eq!(machine.end().0, None);
}

#[test]
fn killing_the_monitor_of_a_stopped_machine_leaves_nothing() {
    let machine = Machine::start();
    kill(Signal::STOP, &machine.spaces);
    kill(Signal::STOP, &[machine.zygote]);
    kill(Signal::KILL, &[machine.monitor.id()]);
    machine.end();
}

#[test]
fn a_machine_ends_when_asked_to() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let machine = Machine::start();
        kill(signal, &[machine.monitor.id()]);
        assert_eq!(machine.end().0, Some(code));
    }
    let machine = Machine::start();
    kill(Signal::STOP, &machine.spaces);
    kill(Signal::STOP, &[machine.zygote]);
    kill(Signal::TERM, &[machine.monitor.id()]);
    assert_eq!(machine.end().0, Some(143));
}

#[test]
fn without_one_of_its_processes_a_machine_ends() {
    let machine = Machine::start();
    kill(Signal::KILL, &machine.spaces[1..2]);
    let (code, said) = machine.end();
    assert_eq!(code, Some(1));
    assert!(
        said.contains("the process of an address space was killed by signal 9"),
        "{said}"
    );

    let machine = Machine::start();
    kill(Signal::KILL, &[machine.zygote]);
    let (code, said) = machine.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("the parent of its processes ended"), "{said}");
}

#[test]
fn a_space_has_nothing_that_it_does_not_need() {
    let machine = Machine::start();
    for &pid in &machine.spaces {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for line in [
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
            "CapEff:\t0000000000000000",
            "CapBnd:\t0000000000000000",
        ] {
            assert!(
                status.lines().any(|l| l == line),
                "{line} is not in:\n{status}"
            );
        }
        // Only root can inspect a process that is not dumpable.
        if let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) {
            let mut names: Vec<_> = files
                .flatten()
                .map(|f| f.file_name().into_string().unwrap())
                .collect();
            names.sort();
            // RAM, and the register pages of its devices.
            assert_eq!(names, ["5", "6"], "descriptors");
        }
    }
    kill(Signal::TERM, &[machine.monitor.id()]);
    machine.end();
}

/// Within this time, there are processes that a guest asks for.
const LATER: Duration = Duration::from_secs(10);

/// Processes that are created later have the same filter as the first ones, whatever the guest has
/// written before.
#[test]
fn processes_made_later_are_filtered_too() {
    let machine = Machine::start_with(Deed::GrowUnfiltered);
    let spaces = wait::some("a dozen processes", LATER, || {
        let spaces = tree::children(machine.zygote);
        (spaces.len() >= 12).then_some(spaces)
    });
    for pid in spaces {
        // A process that is just starting does not have it yet.
        wait::until(&format!("a filter of {pid}"), LATER, || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            status.contains("Seccomp:\t2")
        });
    }
    kill(Signal::TERM, &[machine.monitor.id()]);
    machine.end();
}

#[test]
fn a_hostile_kernel_ends_its_own_machine() {
    for (deed, message) in [
        // getppid, execve, open: not in the policy
        (Deed::HostCall(110), "was killed by signal 31"),
        (Deed::HostCall(59), "was killed by signal 31"),
        (Deed::HostCall(2), "was killed by signal 31"),
        (
            Deed::FloodMappings,
            "of the host's page tables and private memory, the budget is",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let mut command = command(&folder, deed);
        let start = Instant::now();
        let run = program::finish(&mut command);
        assert_eq!(run.code, 1, "{deed:?}: {run:?}");
        assert!(run.stdout.contains(message), "{deed:?}: {run:?}");
        assert!(start.elapsed() < SOON, "{deed:?}");
    }
}

/// If the guest could, the monitor would continue and signal the process's id, which another
/// program may get.
#[test]
fn a_guest_cannot_hide_the_end_of_a_process() {
    let folder = TempDir::new().unwrap();
    // This may build the program.
    let mut command = command(&folder, Deed::HideDeath);
    let begun = Instant::now();
    let run = program::finish(command.args(["--timeout", "60"]));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// The state of a process that has ended, while the monitor has not noticed it.
fn state_after_its_end(layer: Option<&Path>) -> Option<char> {
    let machine = Machine::start_on(Deed::Spin, layer);
    kill(Signal::STOP, &[machine.monitor.id()]);
    let zygote = machine.zygote;
    let before = tree::runs(&[zygote]);
    kill(Signal::KILL, &machine.spaces[..1]);
    // The zygote has seen it, has done what it does then, and waits for the next thing.
    wait::until("the zygote looks at its child", program::PATIENCE, || {
        tree::runs(&[zygote]) > before && tree::state(zygote) == Some('S')
    });
    let state = tree::state(machine.spaces[0]);
    kill(Signal::CONT, &[machine.monitor.id()]);
    let (code, said) = machine.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("was killed by signal 9"), "{said}");
    state
}

/// The monitor signals processes by their ids, so the host must not give them to others.
#[test]
fn the_id_of_a_process_that_has_ended_is_kept() {
    assert_eq!(state_after_its_end(None), Some('Z'));
    let faults = planted::found_by("ends_keep_ids").unwrap();
    assert!(!faults.is_empty());
    for fault in faults {
        let planted = Planted::build(&fault).unwrap();
        let state = state_after_its_end(Some(&planted.rom()));
        assert_ne!(state, Some('Z'), "{fault} is not found");
    }
}

#[test]
fn a_scribbled_shared_area_is_survived() {
    let folder = TempDir::new().unwrap();
    // It rings no doorbell and continues: the watch finds it.
    let start = Instant::now();
    let run = program::finish(command(&folder, Deed::Scribble).args(["--timeout", "60"]));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.is_empty(), "{run:?}");
    assert!(
        run.stdout.contains("Problem: the shared area is damaged"),
        "{run:?}"
    );
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}
