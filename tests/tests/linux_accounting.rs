// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMI-Linux accounts the time that is stolen from its CPUs, in its times and for its tasks.

// Alone: it measures time that is stolen.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::busy::Busy;
use paravane_tests::lines::Lines;
use paravane_tests::one_cpu::OneCpu;
use paravane_tests::{cpu_times, program, tree, vm};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;

/// The host stops a machine whose CPUs sleep most of the time. The time for which each of them then
/// waits for its processor, after its sleep, is stolen and not idle, too.
#[test]
fn what_a_woken_cpu_waits_is_stolen_and_not_idle() {
    let times = cpu_times::program("times");
    let mut machine = vm::command(["--cpus", "4", "--volume", &times.volume])
        .args(["--", "/t/times", "3", "30"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = Lines::of(machine.stdout.take());
    assert_eq!(text.next_within(program::PATIENCE), "begun\n");
    std::thread::sleep(Duration::from_secs(2));
    // The program ends meanwhile, and reads the times right after.
    let all = tree::everything(machine.id());
    for &pid in &all {
        tree::signal(pid, Signal::STOP);
    }
    std::thread::sleep(Duration::from_secs(3));
    for &pid in &all {
        tree::signal(pid, Signal::CONT);
    }
    let rest = text.rest_within(program::PATIENCE);
    println!("{rest}");
    assert!(program::wait_within(&mut machine, program::PATIENCE).success());
    let cpus = cpu_times::shares(&rest);
    assert_eq!(cpus.len(), 4, "{rest}");
    for cpu in cpus {
        assert!((cpu.sum - 100.0).abs() <= 2.0, "{rest}");
        assert!(cpu.stolen > 40.0, "{rest}");
    }
}

/// What two busy tasks got on one CPU, in us.
#[derive(Debug)]
struct Spun {
    used: [f64; 2],
    passed: f64,
    stolen: f64,
}

impl Spun {
    /// In a machine of one vCPU, whose processor another program wants, too.
    fn new(append: &str) -> Self {
        let spinners = cpu_times::program("spinners");
        let one = OneCpu::take();
        let busy = Busy::start(1);
        let mut machine = vm::command(["--cpus", "1", "--append", append]);
        machine.args(["--volume", &spinners.volume]);
        let run = program::finish(machine.args(["--", "/t/spinners", "5"]));
        drop(busy);
        drop(one);
        let figures: Result<Vec<f64>, _> = run.stdout.split_whitespace().map(str::parse).collect();
        let figures = figures.unwrap();
        assert_eq!(figures.len(), 4, "{run:?}");
        let spun = Spun {
            used: [figures[0], figures[1]],
            passed: figures[2],
            stolen: figures[3],
        };
        println!("{append}: {spun:?}");
        spun
    }

    /// The time of both tasks less what was available, in parts of what has passed.
    fn excess(&self) -> f64 {
        (self.used[0] + self.used[1] + self.stolen - self.passed) / self.passed
    }

    /// How far the first task's time is from half of that of both, in parts of the half.
    fn unfair(&self) -> f64 {
        let half = f64::midpoint(self.used[0], self.used[1]);
        ((self.used[0] - half) / half).abs()
    }
}

/// Two equal tasks share the time that is available to their CPU, and none of it is counted twice.
/// A scheduler that does not know the stolen time charges it to the tasks.
#[test]
fn tasks_share_the_available_time() {
    // A host that is busy with more than this test steals at its own pace.
    let fair = (0..3).any(|_| {
        let spun = Spun::new("");
        assert!(spun.stolen > 0.3 * spun.passed, "{spun:?}");
        spun.excess().abs() <= 0.03 && spun.unfair() <= 0.05
    });
    assert!(fair, "in none of three tries");
    let blind = Spun::new("no-steal-acc");
    assert!(blind.stolen > 0.3 * blind.passed, "{blind:?}");
    assert!(blind.excess() > 0.2, "{blind:?}");
}
