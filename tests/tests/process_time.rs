// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time on the process hypervisor when the host makes it difficult: a clock that is corrected all
//! the time, and processors with other users.

// Alone: it measures time.
// Threads: tests of one processor have one each, and the others the host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::busy::Busy;
use paravane_tests::lines::Lines;
use paravane_tests::one_cpu::OneCpu;
use paravane_tests::planted::with_and_without_faults;
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::tree;
use std::fs;
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::thread;

/// Held for writing by a test that has all processors of the host, for reading by one that has one
/// of them: these measure time, and two of the latter do not disturb each other.
static HOST: RwLock<()> = RwLock::new(());
/// One for each processor.
static PROCESSORS: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];

fn alone() -> RwLockWriteGuard<'static, ()> {
    HOST.write().unwrap_or_else(PoisonError::into_inner)
}

/// A processor that no other test has.
struct Processor {
    _cpu: OneCpu,
    _own: MutexGuard<'static, ()>,
    _host: RwLockReadGuard<'static, ()>,
}

impl Processor {
    /// Limits this thread, and what it starts, to it.
    fn take() -> Self {
        let host = HOST.read().unwrap_or_else(PoisonError::into_inner);
        let count = thread::available_parallelism().map_or(1, NonZero::get);
        let all = &PROCESSORS[..count.min(PROCESSORS.len())];
        let free = all.iter().enumerate().find_map(|(number, own)| {
            let own = match own.try_lock() {
                Ok(own) => own,
                Err(TryLockError::Poisoned(own)) => own.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            Some((number, own))
        });
        let (number, own) =
            free.unwrap_or_else(|| (0, all[0].lock().unwrap_or_else(PoisonError::into_inner)));
        Processor {
            _cpu: OneCpu::take_nth(number),
            _own: own,
            _host: host,
        }
    }
}

fn run(words: &[&str]) -> Run {
    let mut all = vec!["conformance", "--hypervisor", "process", "--tap"];
    all.extend(words);
    program::run(all)
}

/// The tests of time need a consistent clock, not a correct one. This clock starts in the future,
/// and each correction of it is wrong.
#[test]
fn a_clock_that_is_corrected_is_followed() {
    let _alone = alone();
    let mut command = program::command_with_hooks();
    command.args(["conformance", "--hypervisor", "process", "--tap"]);
    command.args(["--cpus", "2", "--disturb-clock", "--filter", "time."]);
    let run = program::finish(&mut command);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.tap_result("time.set_clock.follows"),
        Some(true),
        "{run:?}"
    );
}

/// The host steps its clock by an hour. The guest learns of it, and real time continues as before.
#[test]
fn a_step_of_the_wall_clock_is_reported_once() {
    let _alone = alone();
    with_and_without_faults("time_step", "time.wallclock_updated.step", |words| {
        let mut command = program::command_with_hooks();
        command.args(["conformance", "--hypervisor", "process", "--tap"]);
        command.args(["--step-wall-clock", "3600", "--append", "step=3600"]);
        program::finish(command.args(words))
    });
}

/// A vCPU that sleeps learns of such a step.
#[test]
fn a_step_of_the_wall_clock_wakes_a_vcpu() {
    let _alone = alone();
    with_and_without_faults("time_told", "time.wallclock_updated.told", |words| {
        let mut command = program::command_with_hooks();
        command.args(["conformance", "--hypervisor", "process", "--tap"]);
        command.args(["--step-wall-clock", "3600", "--append", "step=3600"]);
        command.args(["--append", "told"]);
        program::finish(command.args(words))
    });
}

/// A program that only reads the clock page follows a clock that is corrected all the time.
#[test]
fn a_clock_page_is_right_without_calls() {
    let _alone = alone();
    with_and_without_faults("time_page", "time.set_clock.without_calls", |words| {
        let mut command = program::command_with_hooks();
        command.args(["conformance", "--hypervisor", "process", "--tap"]);
        program::finish(command.arg("--disturb-clock").args(words))
    });
}

/// All vCPUs see the stolen time that the vCPU itself reads.
#[test]
fn stolen_time_is_seen_by_all() {
    let _one = Processor::take();
    with_and_without_faults("time_steal", "lock.run_state.stolen", |words| {
        let _others = Busy::start(2);
        run(&[words, &["--append", "steal"]].concat())
    });
}

/// The record of a vCPU that makes no call is brought up to date by its alarms.
#[test]
fn stolen_time_of_a_vcpu_that_makes_no_call_is_seen() {
    let _one = Processor::take();
    let test = "lock.run_state.stolen_of_another";
    with_and_without_faults("time_steal_of_another", test, |words| {
        let _others = Busy::start(1);
        run(&[words, &["--cpus", "2", "--append", "steal"]].concat())
    });
}

/// `lock.preempted` reports a vCPU that has lost its processor to another program, within the
/// documented time, and does not report a vCPU that runs.
#[test]
fn a_vcpu_that_lost_its_processor_to_a_stranger_is_preempted() {
    let _alone = alone();
    for (list, test) in [
        ("time_stranger", "lock.preempted.stranger"),
        ("time_stranger_elsewhere", "lock.preempted.other_space"),
        ("time_stranger_pauses", "lock.preempted.after_pauses"),
    ] {
        with_and_without_faults(list, test, |words| {
            let _others = Busy::start(2);
            run(&[words, &["--cpus", "2", "--append", "steal"]].concat())
        });
    }
}

/// A third vCPU asks in turn about two vCPUs that have lost their processors. Its looks cost as
/// much as those at one vCPU.
#[test]
fn two_vcpus_that_lost_their_processors_are_preempted() {
    let _alone = alone();
    let test = "lock.preempted.in_turn";
    with_and_without_faults("time_stranger_turns", test, |words| {
        let _others = Busy::start(2);
        run(&[words, &["--cpus", "4", "--append", "steal"]].concat())
    });
}

/// Two vCPUs share a processor: when one yields, the other one gets it.
#[test]
fn a_yield_passes_the_processor() {
    let _one = Processor::take();
    with_and_without_faults("time_yield", "lock.yield.shared_processor", |words| {
        run(&[words, &["--cpus", "2", "--append", "shared"]].concat())
    });
}

/// With a third vCPU on that processor, a yield still gives it to the named one.
#[test]
fn a_yield_is_for_the_vcpu_that_it_names() {
    let _one = Processor::take();
    with_and_without_faults("time_yield_named", "lock.yield.third_runs", |words| {
        run(&[words, &["--cpus", "3", "--append", "shared"]].concat())
    });
}

/// Waiters for a ticket lock sleep where vCPUs share a processor, and each is kicked for its own
/// ticket. A kick that goes elsewhere leaves the machine asleep.
#[test]
fn waiters_for_a_ticket_are_kicked() {
    let _one = Processor::take();
    with_and_without_faults("time_ticket", "lock.kick.ticket_slow_path", |words| {
        run(&[words, &["--cpus", "4", "--append", "shared"]].concat())
    });
}

/// A vCPU that switches address spaces all the time waits for a processor at each switch, if at
/// all.
#[test]
fn waiting_for_a_processor_is_stolen_time() {
    let _one = Processor::take();
    let _others = Busy::start(2);
    let run = run(&[
        "--filter",
        "time.read.stolen_by_others",
        "--append",
        "steal",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.tap_result("time.read.stolen_by_others"),
        Some(true),
        "{run:?}"
    );
}

/// An alarm on available time waits while other processes have the processor.
#[test]
fn an_alarm_on_available_time_waits_for_it() {
    let _one = Processor::take();
    let _others = Busy::start(2);
    let test = "time.set_alarm.available_is_not_real";
    with_and_without_faults("time_available", test, |words| {
        run(&[words, &["--append", "steal"]].concat())
    });
}

/// A halted vCPU whose alarm is due waits for its processor. It reads this time as stolen as soon
/// as it runs.
#[test]
fn a_wait_after_a_halt_is_stolen_at_once() {
    let _one = Processor::take();
    let _others = Busy::start(2);
    let test = "time.read.wait_is_stolen_at_once";
    with_and_without_faults("time_wait", test, |words| {
        // A thread of this policy does not preempt others when it wakes: it waits for their slice.
        let mut batch = Command::new("chrt");
        batch.args(["--batch", "0"]).arg(program::path());
        batch.args(["conformance", "--hypervisor", "process", "--tap"]);
        program::finish(batch.args(words).args(["--append", "steal"]))
    });
}

/// Two vCPUs share a processor: the one that runs knows that the other one does not.
#[test]
fn a_vcpu_that_waits_for_the_same_processor_is_preempted() {
    let _one = Processor::take();
    let test = "lock.preempted.shared_processor";
    with_and_without_faults("time_preempted", test, |words| {
        run(&[words, &["--cpus", "2", "--append", "shared"]].concat())
    });
}

/// From now on, the host gives the threads of vCPU 1 what nothing else wants. Of the threads of
/// each process, that of vCPU 0 is the first, and the others follow in their order.
fn starve_vcpu_1(monitor: u32) {
    for process in tree::spaces(monitor) {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let mut ids: Vec<u32> = tasks
            .filter_map(|task| task.unwrap().file_name().to_str()?.parse().ok())
            .collect();
        ids.sort_unstable();
        let mut idle = Command::new("chrt");
        idle.args(["--idle", "--pid", "0", &ids[1].to_string()]);
        assert!(idle.status().unwrap().success(), "{ids:?}");
    }
}

/// Runs the suite with three vCPUs, and starves the second when it asks for that.
fn run_starving(words: &[&str]) -> Run {
    let mut command = program::command();
    command.args(["conformance", "--hypervisor", "process", "--tap"]);
    command.args(["--cpus", "3", "--append", "starve"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut suite = Ends(command.args(words).spawn().unwrap());
    let mut stdout = String::new();
    let mut said = Lines::of(suite.0.stdout.take());
    let mut errors = Lines::of(suite.0.stderr.take());
    for line in said.each_within(program::LONGEST) {
        if line == "# starve vCPU 1" {
            starve_vcpu_1(suite.0.id());
        }
        stdout.push_str(&line);
        stdout.push('\n');
    }
    let stderr = errors.rest_within(program::PATIENCE);
    let code = program::wait_within(&mut suite.0, program::PATIENCE)
        .code()
        .unwrap_or(-1);
    Run {
        code,
        stdout,
        stderr,
    }
}

/// A flush of a space that another vCPU has loaded does not wait until that one gets a processor.
#[test]
fn a_flush_does_not_wait_for_a_vcpu_without_a_processor() {
    let _one = Processor::take();
    with_and_without_faults("time_flush", "mmu.flush_space.starved", run_starving);
}

/// All vCPUs have the kernel's range loaded. A flush of it does not wait either.
#[test]
fn a_flush_of_the_kernel_does_not_wait_for_a_vcpu_without_a_processor() {
    let _one = Processor::take();
    let test = "mmu.flush_kernel_everywhere.starved";
    with_and_without_faults("time_flush_kernel", test, run_starving);
}
