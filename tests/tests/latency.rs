// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How late alarms and interrupts between vCPUs are on the process hypervisor: the median and the
//! tail, beside those of the host's own timers and wake-ups at the time.

// Alone: it measures time.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_tests::busy::Busy;
use paravane_tests::clocks::now;
use paravane_tests::one_cpu::Cpus;
use paravane_tests::planted::with_and_without_faults;
use paravane_tests::program::{self, Run};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Events of one measurement, as in the suite.
const COUNT: usize = 3000;
/// Measurements of the host and of a guest, in turn. One pair must be right: other programs of the
/// host may disturb some.
const ROUNDS: usize = 6;
const US: i64 = 1000;

/// One machine at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How late many events were at most, in ns.
#[derive(Clone, Copy, Debug)]
struct Late {
    half: i64,
    /// 99 of 100.
    most: i64,
    all: i64,
}

impl Late {
    fn of(mut events: Vec<i64>) -> Self {
        events.sort_unstable();
        let at = |percent| events[(events.len() - 1) * percent / 100];
        Late {
            half: at(50),
            most: at(99),
            all: at(100),
        }
    }

    /// What a test of the suite printed: `# NAME: N late by half H, 99% P, all M ns`.
    fn printed(run: &Run, name: &str) -> Self {
        let begin = format!("# {name}: {COUNT} late by half ");
        let mut lines = run.stdout.lines();
        let line = lines.find_map(|line| line.strip_prefix(&begin));
        let figures = line.unwrap_or_else(|| panic!("{name}: {run:?}"));
        let figures: Vec<i64> = figures
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        // The second is of `99%`.
        let [half, 99, most, all] = figures[..] else {
            panic!("{name}: {figures:?}");
        };
        Late { half, most, all }
    }
}

/// The suite's test with these options. It has its own bound. `None`: it has failed, since other
/// programs of the host have delayed an event, or for a reason that fails each round.
fn suite(test: &str, options: &[&str]) -> Option<Run> {
    let words = ["conformance", "--hypervisor", "process", "--tap"];
    let run = program::run(words.iter().chain(options).chain(&["--filter", test]));
    let passed = run.tap_result(test) == Some(true);
    if !passed {
        println!("failed: {run:?}");
    }
    passed.then_some(run)
}

/// Whether a guest's events are as punctual beside the host's as this says, in one round at least.
/// A round without figures of the guest is wrong.
fn beside_host(
    host: fn() -> Late,
    guest: impl Fn() -> Option<Late>,
    right: fn(Late, Late) -> bool,
) {
    let found = (0..ROUNDS).any(|_| {
        let (host, guest) = (host(), guest());
        println!("host {host:?}, guest {guest:?}");
        guest.is_some_and(|guest| right(host, guest))
    });
    assert!(found, "in none of {ROUNDS} rounds");
}

/// How late a thread's sleeps end, which last as long as the waits for alarms of the suite.
fn host_timers() -> Late {
    let sleep = |i: usize| {
        let end = now(ClockId::Monotonic) + (100 + i64::try_from(i % 16).unwrap() * 37) * US;
        let until = Timespec {
            tv_sec: end / 1_000_000_000,
            tv_nsec: end % 1_000_000_000,
        };
        clock_nanosleep_absolute(ClockId::Monotonic, &until).unwrap();
        now(ClockId::Monotonic) - end
    };
    Late::of((0..COUNT).map(sleep).collect())
}

/// How late a thread runs that sleeps and is woken by another one, on another processor.
fn host_wakes() -> Late {
    let (sent, woken, begun) = (AtomicU32::new(0), AtomicI64::new(0), AtomicU32::new(0));
    let sleep = || {
        let _other = Cpus::take(&[1]);
        begun.store(1, Ordering::SeqCst);
        for number in 1..=u32::try_from(COUNT).unwrap() {
            while sent.load(Ordering::SeqCst) < number {
                thread::park();
            }
            woken.store(now(ClockId::Monotonic), Ordering::SeqCst);
        }
    };
    thread::scope(|scope| {
        let sleeper = scope.spawn(sleep);
        let _one = Cpus::take(&[0]);
        while begun.load(Ordering::SeqCst) == 0 {
            std::hint::spin_loop();
        }
        let wake = |_| {
            woken.store(0, Ordering::SeqCst);
            let start = now(ClockId::Monotonic);
            while now(ClockId::Monotonic) - start < 200 * US {
                std::hint::spin_loop();
            }
            let at = now(ClockId::Monotonic);
            sent.fetch_add(1, Ordering::SeqCst);
            sleeper.thread().unpark();
            while woken.load(Ordering::SeqCst) == 0 {
                std::hint::spin_loop();
            }
            woken.load(Ordering::SeqCst) - at
        };
        Late::of((0..COUNT).map(wake).collect())
    })
}

/// The suite's own bound finds a layer in which one alarm of 32 is late.
#[test]
fn the_tail_of_alarms_is_bounded() {
    let _alone = alone();
    let test = "time.set_alarm.tail";
    with_and_without_faults("latency_alarms", test, |words| {
        let suite = ["conformance", "--hypervisor", "process", "--tap"];
        let options = ["--cpus", "1", "--append", "tail"];
        program::run([&suite[..], &options, words].concat())
    });
}

/// The lateness of one vCPU's alarms, beside that of the host's own timers.
#[test]
fn alarms_are_as_punctual_as_the_hosts_timers() {
    let _alone = alone();
    let alarms = || {
        let run = suite("time.set_alarm.tail", &["--cpus", "1", "--append", "tail"])?;
        Some(Late::printed(&run, "alarms with stolen time"))
    };
    beside_host(host_timers, alarms, |host, guest| {
        guest.half <= host.half + 100 * US
            && guest.most <= host.most + 200 * US
            && guest.all <= host.all + 1000 * US
    });
}

/// Two vCPUs for each processor, all of which want to run. The time for which the vCPU with the
/// alarms waits for its processor is stolen time. The rest is no more than a layer may add.
#[test]
fn alarms_of_a_crowded_machine_are_late_by_stolen_time() {
    let _alone = alone();
    let _two = Cpus::take_two();
    let alarms = || {
        let run = suite("time.set_alarm.tail", &["--cpus", "4", "--append", "tail"])?;
        println!("{:?}", Late::printed(&run, "alarms with stolen time"));
        Some(Late::printed(&run, "alarms"))
    };
    beside_host(host_timers, alarms, |host, guest| {
        guest.most <= host.most + 200 * US && guest.all <= host.all + 1000 * US
    });
}

/// Interrupts to a vCPU that runs and to one that is halted, apart from stolen time: a vCPU that
/// always wants to run loses its processor on a busy host, and a thread that sleeps does not.
#[test]
fn interrupts_are_as_fast_as_the_hosts_wake_ups() {
    let _alone = alone();
    let _two = Cpus::take_two();
    for test in ["apic.send_ipi.tail_running", "apic.send_ipi.tail_halted"] {
        let interrupts = || {
            let run = suite(test, &["--cpus", "2", "--append", "tail"])?;
            Some(Late::printed(&run, "interrupts"))
        };
        println!("{test}");
        beside_host(host_wakes, interrupts, |host, guest| {
            guest.half <= host.half * 2 + 50 * US
                && guest.most <= host.most * 2 + 200 * US
                && guest.all <= host.all + 1000 * US
        });
    }
}

/// The suite's own bounds find a layer in which one interrupt of 8 is late, whatever its target
/// does: run, halt, or wait for the processor that another program has.
#[test]
fn the_tails_of_interrupts_are_bounded() {
    let _alone = alone();
    let _two = Cpus::take_two();
    for (test, host, busy) in [
        ("apic.send_ipi.tail_running", "tail", 0),
        ("apic.send_ipi.tail_halted", "tail", 0),
        ("apic.send_ipi.tail_preempted", "steal", 1),
    ] {
        with_and_without_faults("latency_interrupts", test, |words| {
            let _others = Busy::start(busy);
            let suite = ["conformance", "--hypervisor", "process", "--tap"];
            let options = ["--cpus", "2", "--append", host];
            program::run([&suite[..], &options, words].concat())
        });
    }
}
