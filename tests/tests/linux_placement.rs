// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs of one machine and of several share processors fairly.

// Alone: it measures shares of processors.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::is_long;
use paravane_tests::one_cpu::Cpus;
use paravane_tests::program::{self, Ends};
use paravane_tests::{cpu_times, tree, vm};
use std::ops::RangeInclusive;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One test at a time has the processors.
static ALONE: Mutex<()> = Mutex::new(());
/// Tries on a host that may be busy: one of them has to be fair.
const TRIES: usize = 4;
/// With more time: the median of this number of tries has to be fair.
const LONG_TRIES: usize = 5;

/// Whether a share, in percent, lies in a range. A try returns the share that is furthest from what
/// is fair.
fn is_fair(range: RangeInclusive<f64>, mut share: impl FnMut() -> f64) -> bool {
    if !is_long() {
        return (0..TRIES).any(|_| range.contains(&share()));
    }
    let fair = (0..LONG_TRIES).filter(|_| range.contains(&share())).count();
    fair > LONG_TRIES / 2
}

/// A machine with `vcpus` busy vCPUs.
fn busy(vcpus: usize) -> Ends {
    let script = "(while :; do :; done) & ".repeat(vcpus) + "echo ready; sleep 1000";
    let mut child = vm::command(["--cpus", &vcpus.to_string()])
        .args(["--", "sh", "-c", &script])
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

/// The shares of machines with these numbers of busy vCPUs, in percent of what all of them use, and
/// how many processors that is.
#[allow(clippy::cast_precision_loss)] // Nanoseconds of seconds.
fn shares<const N: usize>(vcpus: usize, seconds: u64) -> ([f64; N], f64) {
    let machines = [(); N].map(|()| busy(vcpus));
    // Meanwhile the monitors see where the vCPUs of the other machines are.
    std::thread::sleep(Duration::from_secs(2));
    let (begun, before) = (Instant::now(), machines.each_ref().map(used));
    std::thread::sleep(Duration::from_secs(seconds));
    let (elapsed, after) = (begun.elapsed(), machines.each_ref().map(used));
    let mut used = [0.0; N];
    for (used, (after, before)) in used.iter_mut().zip(after.iter().zip(before)) {
        *used = (after - before) as f64 / 1e9;
    }
    let all: f64 = used.iter().sum();
    let shares = used.map(|used| used / all * 100.0);
    println!("{shares:.1?} % of {all:.1} s");
    (shares, all / elapsed.as_secs_f64())
}

/// Of these, the one that is furthest from what is fair.
fn worst(shares: &[f64], fair: f64) -> f64 {
    let far = |share: &f64| (share - fair).abs();
    let all = shares.iter().copied();
    all.max_by(|a, b| far(a).total_cmp(&far(b))).unwrap()
}

/// Two machines want two processors each, on a host with two.
#[test]
fn machines_share_processors_fairly() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _two = Cpus::take_two();
    assert!(is_fair(45.0..=55.0, || shares::<2>(2, 10).0[0]));
}

/// Three machines want a processor each. Without turns, one of them gets half of the time of all.
#[test]
#[ignore = "takes five minutes"]
fn three_machines_share_two_processors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _two = Cpus::take_two();
    let fair = is_fair(23.0..=43.0, || {
        let (shares, processors) = shares::<3>(1, 60);
        // Moves leave no processor without work for long.
        assert!(processors > 1.8, "{processors:.2} processors");
        worst(&shares, 100.0 / 3.0)
    });
    assert!(fair);
}

/// The share of a vCPU of a machine whose vCPUs are all busy that is furthest from what is fair.
/// Other programs of the host may take something of both processors.
fn share_of_vcpu(vcpus: u32, times: &cpu_times::Program) -> f64 {
    let mut machine = vm::command(["--cpus", &vcpus.to_string(), "--volume", &times.volume]);
    let run = program::finish(machine.args(["--", "/t/times", "10"]));
    println!("{}", run.stdout);
    let cpus = cpu_times::shares(&run.stdout);
    assert_eq!((run.code, cpus.len()), (0, vcpus as usize), "{run:?}");
    let all: f64 = cpus.iter().map(|cpu| cpu.user).sum();
    let shares: Vec<f64> = cpus.iter().map(|cpu| cpu.user / all * 100.0).collect();
    worst(&shares, 100.0 / f64::from(vcpus))
}

/// A machine has four busy vCPUs on two processors: each vCPU gets half of a processor, a quarter
/// of the machine's time.
#[test]
fn vcpus_share_processors_fairly() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _two = Cpus::take_two();
    let times = cpu_times::program("times");
    assert!(is_fair(20.0..=30.0, || share_of_vcpu(4, &times)));
}

/// One of three vCPUs on two processors has a processor alone, and the vCPUs take turns at that.
/// Without turns, one gets half of the machine's time, and the others a quarter each.
#[test]
fn three_vcpus_take_turns() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _two = Cpus::take_two();
    let times = cpu_times::program("times");
    assert!(is_fair(27.0..=40.0, || share_of_vcpu(3, &times)));
}
