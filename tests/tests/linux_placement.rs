// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs of one machine and of several share processors fairly.

// Alone: it measures shares of processors.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::one_cpu::Cpus;
use paravane_tests::program::{self, Ends};
use paravane_tests::{cpu_times, tree, vm};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One test at a time has the processors.
static ALONE: Mutex<()> = Mutex::new(());
/// Tries on a host that may be busy.
const TRIES: usize = 4;

/// A machine with two busy vCPUs.
fn busy() -> Ends {
    let script = "(while :; do :; done) & (while :; do :; done) & echo ready; sleep 1000";
    let mut child = vm::command(["--cpus", "2"])
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(program::first_line(&mut child), "ready\n");
    Ends(child)
}

/// The processor time that a machine has used, in ns.
fn used(machine: &Ends) -> u64 {
    tree::cpu_time(&tree::everything(machine.0.id()))
}

/// The first machine's share of what two machines of two busy vCPUs use, in percent.
#[allow(clippy::cast_precision_loss)] // Nanoseconds of seconds.
fn share() -> f64 {
    let machines = [busy(), busy()];
    // Meanwhile the monitors see where the vCPUs of the other machine are.
    std::thread::sleep(Duration::from_secs(2));
    let before = machines.each_ref().map(used);
    std::thread::sleep(Duration::from_secs(10));
    let after = machines.each_ref().map(used);
    let [first, second] = [0, 1].map(|i| (after[i] - before[i]) as f64);
    let share = first / (first + second) * 100.0;
    println!("{share:.1} % of {:.1} s", (first + second) / 1e9);
    share
}

/// Two machines that want two processors each.
#[test]
fn machines_share_processors_fairly() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _two = Cpus::take_two();
    let fair = (0..TRIES).any(|_| (45.0..=55.0).contains(&share()));
    assert!(fair, "in none of {TRIES} tries");
}

/// A machine that wants two processors twice: each vCPU has half of one, which is a quarter of what
/// the machine gets. Other programs of the host may take something of both.
#[test]
fn vcpus_share_processors_fairly() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _two = Cpus::take_two();
    let times = cpu_times::program("times");
    let fair = (0..TRIES).any(|_| {
        let mut machine = vm::command(["--cpus", "4", "--volume", &times.volume]);
        let run = program::finish(machine.args(["--", "/t/times", "10"]));
        println!("{}", run.stdout);
        let cpus = cpu_times::shares(&run.stdout);
        assert_eq!((run.code, cpus.len()), (0, 4), "{run:?}");
        let all: f64 = cpus.iter().map(|cpu| cpu.user).sum();
        cpus.iter()
            .all(|cpu| (0.20..=0.30).contains(&(cpu.user / all)))
    });
    assert!(fair, "in none of {TRIES} tries");
}
