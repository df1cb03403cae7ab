// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own tests of locks and of RCU, which are modules of VMI-Linux.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, vm};
use std::fmt::Write;
use std::time::Duration;

/// What the kernel says when something is wrong. It has no detector of lockups, which is for
/// debugging: RCU finds a CPU that stands still.
const BAD: [&str; 6] = [
    "BUG:",
    "WARNING:",
    "detected stall",
    "self-detected",
    "Oops",
    "!!!",
];

/// Messages about time: CPUs have stood still for long, as while the host stops a machine.
const LATE: [&str; 2] = ["detected stall", "self-detected"];
/// Of the warnings of rcutorture two are about time: a grace period that took long, and too few
/// grace periods while callbacks are posted for some seconds. The reason of the first one is in a
/// line before it, among lines of other CPUs. The second one is of a function that also finds
/// callbacks which a barrier has not waited for, and says so after other words. All other warnings
/// are errors of RCU.
const OF_RCUTORTURE: &str = "at kernel/rcu/rcutorture.c:";
const LATE_GRACE: &str = "rtort_pipe_count:";
const LINES_BEFORE: usize = 3;
const PROGRESS: &str = " rcu_torture_fwd_prog+";
const BARRIER: &str = "rcu_torture_fwd_prog_nr: Waiting for CBs";
const MORE_LINES_BEFORE: usize = 20;

/// How soon a machine must do what it does.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    InTime,
    /// It may take any time.
    Any,
}

/// The first line that says that something is wrong.
fn bad_line(said: &str, pace: Pace) -> Option<&str> {
    let lines: Vec<&str> = said.lines().collect();
    let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    let is_late = |number: usize| {
        let before = |count: usize, words: &str| {
            let lines = &lines[number.saturating_sub(count)..number];
            lines.iter().any(|line| line.contains(words))
        };
        let torture = lines[number].contains(OF_RCUTORTURE)
            && (before(LINES_BEFORE, LATE_GRACE)
                || lines[number].contains(PROGRESS) && !before(MORE_LINES_BEFORE, BARRIER));
        torture || has(lines[number], &LATE)
    };
    let mut bad = (0..lines.len()).filter(|&number| has(lines[number], &BAD));
    let first = bad.find(|&number| pace == Pace::InTime || !is_late(number))?;
    Some(lines[first])
}

/// Errors of RCU are found also in a run whose results may be late.
#[test]
fn only_what_is_late_may_be_said() {
    let warning = |why: &str| {
        format!(
            "4,1,2,-;------------[ cut here ]------------\n\
             4,2,2,-;{why}\n\
             6,3,2,-;another CPU\n\
             4,4,2,-;WARNING: CPU: 1 PID: 9 at kernel/rcu/rcutorture.c:1616 x+0x1/0x2\n"
        )
    };
    let late = warning("rcu_torture_writer: rtort_pipe_count: 3");
    assert_eq!(bad_line(&late, Pace::Any), None);
    let line = "4,4,2,-;WARNING: CPU: 1 PID: 9 at kernel/rcu/rcutorture.c:1616 x+0x1/0x2";
    assert_eq!(bad_line(&late, Pace::InTime), Some(line));
    let wrong = warning("rcu_torture_writer: Cookie check 1 failed 2 4 8 (now)");
    for pace in [Pace::Any, Pace::InTime] {
        assert_eq!(bad_line(&wrong, pace), Some(line));
        assert_eq!(bad_line(&format!("{late}{wrong}"), pace), Some(line));
        assert_eq!(
            bad_line("1,1,1,-;rcu-torture: !!! \n", pace),
            Some("1,1,1,-;rcu-torture: !!! ")
        );
    }
    let few = "4,4,2,-;WARNING: CPU: 0 PID: 70 at kernel/rcu/rcutorture.c:2884 \
               rcu_torture_fwd_prog+0xa10/0xa40";
    assert_eq!(bad_line(few, Pace::Any), None);
    assert_eq!(bad_line(few, Pace::InTime), Some(few));
    let lost = format!("1,1,1,-;rcu_torture_fwd_prog_nr: Waiting for CBs: x() 0\n{few}");
    assert_eq!(bad_line(&lost, Pace::Any), Some(few));
    let stall = "3,1,1,-;rcu: INFO: rcu_preempt self-detected stall on CPU";
    assert_eq!(bad_line(stall, Pace::Any), None);
    assert_eq!(bad_line(stall, Pace::InTime), Some(stall));
}

/// A module with its parameters.
struct Torture {
    module: &'static str,
    parameters: &'static str,
}

const fn locks(parameters: &'static str) -> Torture {
    Torture {
        module: "locktorture",
        parameters,
    }
}

const fn rcu(parameters: &'static str) -> Torture {
    Torture {
        module: "rcutorture",
        parameters,
    }
}

const LOCKS: [Torture; 5] = [
    locks("torture_type=spin_lock stat_interval=5"),
    locks("torture_type=rw_lock stat_interval=5"),
    locks("torture_type=rw_lock_irq stat_interval=5"),
    locks("torture_type=mutex_lock stat_interval=5 onoff_interval=1000 onoff_holdoff=3"),
    locks("torture_type=rwsem_lock stat_interval=5"),
];
const RCU: [Torture; 2] = [
    rcu("torture_type=rcu stat_interval=5 onoff_interval=500 onoff_holdoff=1"),
    rcu("torture_type=srcu stat_interval=5"),
];

/// Runs tests in one machine, each for some seconds. A module prints its verdict when it is
/// unloaded.
fn torture<'a>(tests: impl IntoIterator<Item = &'a Torture>, cpus: u32, seconds: u32, pace: Pace) {
    let modules = linux::kernel().with_file_name("modules");
    let volume = format!("{}:/x:ro", modules.display());
    // The buffer of messages is too small for all of a test, so a reader keeps them.
    let mut script = "insmod /x/torture.ko || exit 1".to_string();
    let mut count = 0u64;
    for (number, Torture { module, parameters }) in tests.into_iter().enumerate() {
        count += 1;
        let _ = write!(
            script,
            "\n\
             mark='begins test {number} of torture'\n\
             cat /dev/kmsg >/tmp/said & reader=$!\n\
             echo '{module} {parameters}'; echo \"$mark\" >/dev/kmsg\n\
             insmod /x/{module}.ko {parameters} || exit 2; sleep {seconds}\n\
             rmmod {module} || exit 3\n\
             sleep 0.2; kill $reader\n\
             sed -i \"1,/$mark/d\" /tmp/said\n\
             grep 'End of test' /tmp/said; grep -E 'Writes:|rtc:' /tmp/said | tail -n 2\n\
             grep -m 20 -B {MORE_LINES_BEFORE} -A 25 -E '{}' /tmp/said || true",
            BAD.join("|")
        );
    }
    let mut command = vm::command(["--cpus", &cpus.to_string(), "--memory", "512M"]);
    command.args(["--volume", &volume, "--", "sh", "-c", &script]);
    // The vCPUs share few processors, and each module is loaded and unloaded.
    let longest = program::LONGEST + Duration::from_secs(2 * count * u64::from(seconds));
    let run = program::finish_within(&mut command, longest).unwrap();
    let said = &run.stdout;
    println!("{cpus} vCPUs, {seconds} s each:\n{said}");
    assert_eq!(run.code, 0, "{run:?}");
    let passed = said.matches("End of test: SUCCESS").count();
    assert_eq!(passed as u64, count, "{said}");
    assert_eq!(bad_line(said, pace), None, "{said}");
}

/// Every test of locks and RCU, on fewer vCPUs than processors and on many more: two minutes of
/// torture in each of three machines, all at once. The results must be right, but may be late,
/// since no vCPU of the largest machine has a tenth of a processor.
#[test]
fn locks_and_rcu_are_tortured_shortly() {
    const TWO_MINUTES: usize = 120;
    let tests = || LOCKS.iter().chain(&RCU);
    let seconds = u32::try_from(TWO_MINUTES.div_ceil(tests().count())).unwrap();
    std::thread::scope(|scope| {
        for cpus in [2, 8, 16] {
            scope.spawn(move || torture(tests(), cpus, seconds, Pace::Any));
        }
    });
}

/// Two minutes of each test at 2, 8 and 16 vCPUs: 42 minutes.
#[test]
#[ignore = "takes 42 minutes"]
fn locks_and_rcu_are_tortured_long() {
    for cpus in [2, 8, 16] {
        torture(&LOCKS, cpus, 120, Pace::InTime);
        torture(&RCU, cpus, 120, Pace::InTime);
    }
}

/// Half an hour of locks, and half an hour of RCU, at 2, 8 and 16 vCPUs: all six machines at once,
/// so that no vCPU has a tenth of a processor for long. The results must be right, but may be late:
/// the host may even stop the machines.
#[test]
#[ignore = "takes half an hour"]
fn half_an_hour_of_torture_fails_nowhere() {
    const HALF_AN_HOUR: usize = 1800;
    std::thread::scope(|scope| {
        for cpus in [2, 8, 16] {
            for tests in [&LOCKS[..], &RCU[..]] {
                let seconds = u32::try_from(HALF_AN_HOUR / tests.len()).unwrap();
                scope.spawn(move || torture(tests, cpus, seconds, Pace::Any));
            }
        }
    });
}
