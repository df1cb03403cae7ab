// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the threads of devices run, and where their interrupts go.

// Alone: it watches where the host runs threads.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::has_two_cpus;
use paravane_tests::one_cpu::{Cpus, OneCpu};
use paravane_tests::quiet::{self, Try, Watch};
use paravane_tests::skip::skip;
use paravane_tests::worker::Worker;
use paravane_tests::{linux, program, source_root, vm};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs::{self, File};
use std::path::Path;

/// `alone`: single reads, for which the vCPU waits. `beside`: the same while each vCPU has other
/// work, so that it never waits. `on MASK`: a few reads on this vCPU.
const SCRIPT: &str = "while read what mask; do \
    if [ \"$what\" = on ]; then \
        taskset $mask dd if=/dev/vda of=/dev/null bs=4k count=FEW iflag=direct 2>/dev/null; \
        echo; continue; fi; \
    if [ \"$what\" = beside ]; then \
        for i in 1 2; do (while :; do :; done) & jobs=\"$jobs $!\"; done; fi; \
    dd if=/dev/vda of=/dev/null bs=4k count=COUNT iflag=direct 2>/dev/null; \
    [ -z \"$jobs\" ] || kill $jobs; jobs=; echo; done";

/// A machine of two vCPUs with a small disk, which the host has in memory.
fn machine(options: &[&str]) -> Worker {
    let script = SCRIPT.replace("COUNT", "500").replace("FEW", "20");
    Worker::start(None, &script, |folder| {
        let disk = folder.join("disk");
        File::create(&disk).unwrap().set_len(4 << 20).unwrap();
        let disk = format!("{}:snapshot", disk.display());
        let options = [&["--cpus", "2", "--disk", &disk], options].concat();
        options.into_iter().map(String::from).collect()
    })
}

/// The CPUs on which the disk's thread may run.
fn set_of_disk(machine: &Worker) -> CpuSet {
    let tasks = format!("/proc/{}/task", machine.pid());
    let thread = fs::read_dir(tasks)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "disk\n"))
        .unwrap();
    let id = thread.file_name().unwrap().to_str().unwrap();
    let id = rustix::thread::Pid::from_raw(id.parse().unwrap());
    sched_getaffinity(id).unwrap()
}

/// Their number.
fn cpus_of_disk(machine: &Worker) -> u32 {
    set_of_disk(machine).count()
}

/// Works, after which the disk's thread may mostly run on this number of CPUs. Other programs of
/// the host can keep a vCPU from its CPU.
fn works_until(machine: &mut Worker, what: &str, expected: u32) {
    quiet::mostly(&format!("{what}: {expected} CPUs"), || {
        let watch = Watch::begin(machine);
        machine.tell(what);
        let quiet = watch.was_quiet(machine);
        let cpus = cpus_of_disk(machine);
        println!("{what}: {cpus} CPUs, quiet: {quiet}");
        let right = cpus == expected;
        Try { quiet, right }
    });
}

#[test]
fn a_disk_follows_a_vcpu_that_waits_and_leaves_one_that_works() {
    if !has_two_cpus() {
        return;
    }
    let all = sched_getaffinity(None).unwrap().count();
    let mut machine = machine(&[]);
    works_until(&mut machine, "alone", 1);
    works_until(&mut machine, "beside", all);
    works_until(&mut machine, "alone", 1);
    machine.end();
}

/// A few requests are enough, fewer than a decision for a place needs.
#[test]
fn a_disk_follows_a_program_to_another_vcpu() {
    if !has_two_cpus() {
        return;
    }
    let mut machine = machine(&["--without", "disk-cpus"]);
    works_until(&mut machine, "alone", 1);
    quiet::mostly("it follows", || {
        let watch = Watch::begin(&machine);
        let places = ["on 1", "on 2", "on 1", "on 2"].map(|what| {
            machine.tell(what);
            set_of_disk(&machine)
        });
        let quiet = watch.was_quiet(&machine);
        let pinned = places.iter().all(|place| place.count() == 1);
        let right = pinned && places.windows(2).all(|two| two[0] != two[1]);
        println!("{places:?}: quiet: {quiet}");
        Try { quiet, right }
    });
    machine.end();
}

#[test]
fn without_the_heuristic_it_follows_nobody() {
    let all = sched_getaffinity(None).unwrap().count();
    let mut machine = machine(&["--without", "device-place"]);
    for _ in 0..5 {
        machine.tell("alone");
        assert_eq!(cpus_of_disk(&machine), all);
    }
    machine.end();
}

#[test]
fn on_one_cpu_it_stays_there() {
    let _one = OneCpu::take();
    let mut machine = machine(&[]);
    for what in ["alone", "beside", "alone"] {
        machine.tell(what);
        assert_eq!(cpus_of_disk(&machine), 1);
    }
    machine.end();
}

/// Medians in us of what a write with a flush takes in the end: of vCPU 0, then of vCPU 1, then of
/// vCPU 0 again. The disk takes [`SLOW_US`] more on the first CPU of the host.
fn flushes(options: &[&str]) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    linux::compile(
        &source_root().join("tests/guest/flushes"),
        &folder.path().join("flushes"),
    );
    // In memory, where a flush takes no time that matters.
    let disk = tempfile::NamedTempFile::new_in(MEMORY).unwrap();
    disk.as_file().set_len(4 << 20).unwrap();
    let (disk, volume) = (
        format!("{}:slow", disk.path().display()),
        format!("{}:/x", folder.path().display()),
    );
    let mut command = vm::command_with_hooks(["--cpus", "2", "--disk", &disk]);
    command.args(["--volume", &volume]).args(options);
    let script = "for cpu in 0 1 0; do /x/flushes $cpu 4500 || exit; done";
    let run = program::finish(command.args(["--", "sh", "-c", script]));
    assert_eq!(run.code, 0, "{run:?}");
    println!("{options:?}: {:?}", run.stdout);
    run.stdout.lines().map(|us| us.parse().unwrap()).collect()
}

const SLOW_US: u64 = 1000;
const MEMORY: &str = "/dev/shm";

#[test]
fn a_vcpu_that_waits_moves_to_the_cpu_where_its_disk_is_fast() {
    if !has_two_cpus() {
        return;
    }
    if !Path::new(MEMORY).is_dir() {
        skip("the host has no /dev/shm");
        return;
    }
    let _two = Cpus::take_two();
    let all = flushes(&[]);
    assert!(all.iter().all(|&us| us < SLOW_US), "{all:?}");
    let all = flushes(&["--without", "disk-cpus"]);
    let slow: Vec<bool> = all.iter().map(|&us| us >= SLOW_US).collect();
    assert!(slow[0] == slow[2] && slow[0] != slow[1], "{all:?}");
}

/// An interrupt goes to the vCPU that notified last. If that vCPU is off, another one gets it.
#[test]
fn a_vcpu_that_goes_away_loses_no_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    let disk = format!("{}:snapshot", disk.display());
    let script = "cpu=/sys/devices/system/cpu/cpu1/online
        (for i in 1 2 3 4; do \
            dd if=/dev/vda of=/dev/null bs=4k count=1000 iflag=direct 2>/dev/null || echo bad
        done; echo read) &
        for i in 1 2 3 4 5 6 7 8; do
            echo 0 >$cpu && sleep 0.05 && echo 1 >$cpu && sleep 0.05 || echo bad
        done
        wait; echo done";
    let mut command = vm::command(["--cpus", "2", "--disk", &disk]);
    let run = program::finish(command.args(["--", "sh", "-c", script]));
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "read\ndone\n"),
        "{run:?}"
    );
}
