// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of VMI-Linux beside those of the host.

// Alone: it measures time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::busy::Busy;
use paravane_tests::clocks::{
    CERTAIN, Clocks, Offsets, RIGHT, SLEW_PPM, SLEW_TURN, WALL_RIGHT, now, slewed,
};
use paravane_tests::conditions::{by_length, is_long};
use paravane_tests::planted::Planted;
use paravane_tests::{cpu_times, program, tree, vm};
use rustix::process::Signal;
use rustix::time::ClockId;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a measurement that is certain enough may take.
const SOUND_WITHIN: Duration = Duration::from_secs(60);

/// A measurement that is certain enough.
fn sound(clocks: &mut Clocks) -> Offsets {
    let found = clocks.certain(CERTAIN, SOUND_WITHIN);
    assert!(
        found.is_some(),
        "not measured: no reading was certain to {CERTAIN} ns within {SOUND_WITHIN:?}; the host is \
         busy"
    );
    found.unwrap()
}

/// The frequency of the counter that a guest names in its log, in kHz, wrong by 1/1000.
fn wrong_khz() -> u64 {
    let run = program::finish(vm::command([""; 0]).args(["--", "dmesg"]));
    let mhz = run
        .stdout
        .split_once("tsc: Detected ")
        .and_then(|(_, after)| after.split_once(" MHz"))
        .unwrap()
        .0;
    let khz: u64 = mhz.replace('.', "").parse().unwrap();
    khz + khz / 1000
}

/// A guest with a wrong frequency of its counter keeps the host's time nevertheless, as if the
/// host's clock were adjusted all the time. Without the correction it does not.
#[test]
fn the_clock_follows_the_hosts() {
    const TIME: Duration = Duration::from_secs(5);
    let khz = format!("tsc_early_khz={}", wrong_khz());
    let off = format!("{khz} vmi.clock=0");
    for (append, drifts) in [("", false), (&*khz, false), (&*off, true)] {
        let mut clocks = Clocks::start(|words| {
            let mut command = vm::command(words.iter().copied());
            command.args(["--append", append]);
            command
        });
        // The first correction takes a second to see the error and one to remove it.
        std::thread::sleep(Duration::from_secs(4));
        let first = sound(&mut clocks);
        std::thread::sleep(TIME);
        let last = sound(&mut clocks);
        let drift = last.monotonic - first.monotonic;
        let uncertain = last.uncertain + first.uncertain;
        println!("{append}: {drift} ns in {TIME:?}, uncertain by {uncertain} ns");
        if drifts {
            assert!(drift.abs() > 4_000_000, "{append}: {drift}");
        } else {
            assert!(drift.abs() + uncertain <= RIGHT, "{append}: {drift}");
        }
        clocks.end();
    }
}

/// A step of the host's wall clock.
const STEP: i64 = 3600;
/// How late the guest's clock may step.
const STEP_WITHIN: Duration = Duration::from_secs(1);
/// How late the guest's clock may step on a host that is busy with other programs.
const STEP_AT_ALL: Duration = Duration::from_secs(30);
/// After how many seconds something happens to the host's clock: the first that is late enough for
/// a machine that is up, and tries where the host is busy.
const AFTER: [u32; 4] = [10, 16, 30, 60];

/// A machine that is up, and of which the host's wall clock is stepped after that many seconds or a
/// little later: the time that the program takes to start.
fn stepped(after: u32, before: &str) -> (Clocks, Instant) {
    let clocks = Clocks::start_between(before, "", |words| {
        let mut command = vm::command_with_hooks(words.iter().copied());
        command.args(["--step-wall-clock", &STEP.to_string()]);
        command.args(["--step-after", &after.to_string()]);
        command
    });
    let at = clocks.begun + Duration::from_secs(after.into());
    (clocks, at)
}

/// Whether there is that much time left until this moment.
fn in_time(moment: Instant, left: Duration) -> bool {
    let is = Instant::now() + left <= moment;
    if !is {
        println!("too late: the host is busy");
    }
    is
}

fn has_stepped(offsets: &Offsets) -> bool {
    offsets.real > STEP * 500_000_000
}

/// The wall clock is right after a step, and the monotonic clock has not noticed.
fn check_step(mut clocks: Clocks, before: Offsets) {
    let after = sound(&mut clocks);
    println!("{before:?} {after:?}");
    let error = (after.real - STEP * 1_000_000_000).abs();
    assert!(error + after.uncertain <= WALL_RIGHT, "{after:?}");
    let jump = (after.monotonic - before.monotonic).abs();
    let uncertain = before.uncertain + after.uncertain;
    assert!(jump + uncertain <= RIGHT, "{before:?} {after:?}");
    clocks.end();
}

/// The wall clock is the host's from the boot on. When the host's is set, that of a busy machine
/// follows within a second, and the monotonic clock does not notice.
#[test]
fn the_wall_clock_follows_the_hosts() {
    let within = AFTER.into_iter().any(|after| {
        let (mut clocks, step) = stepped(after, "while :; do :; done &");
        let before = sound(&mut clocks);
        if !in_time(step, Duration::ZERO) {
            clocks.end();
            return false;
        }
        assert!(!has_stepped(&before), "{before:?}");
        let error = before.real.abs();
        assert!(error + before.uncertain <= WALL_RIGHT, "{before:?}");
        std::thread::sleep(step.saturating_duration_since(Instant::now()));
        while !has_stepped(&clocks.ask()) {
            assert!(step.elapsed() < STEP_AT_ALL, "{:?}", clocks.ask());
            std::thread::sleep(Duration::from_millis(20));
        }
        let late = step.elapsed();
        println!("within {late:?}");
        check_step(clocks, before);
        late < STEP_WITHIN
    });
    assert!(within, "in none of the tries");
}

/// The clock of a machine that has slept for seconds follows, too. Nothing else wakes the machine,
/// and its first reading is right.
#[test]
fn the_wall_clock_of_an_idle_machine_follows_the_hosts() {
    let knows = AFTER.into_iter().any(|after| {
        let (mut clocks, step) = stepped(after, "");
        let before = sound(&mut clocks);
        if !in_time(step, Duration::from_secs(5)) {
            clocks.end();
            return false;
        }
        assert!(!has_stepped(&before), "{before:?}");
        let asked = step + STEP_WITHIN * 9 / 10;
        std::thread::sleep(asked.saturating_duration_since(Instant::now()));
        // On a busy host the program may have started late, and so the step be late.
        let first = clocks.ask();
        println!("{first:?} after {:?}", step.elapsed());
        if !has_stepped(&first) {
            clocks.end();
            return false;
        }
        check_step(clocks, before);
        true
    });
    assert!(knows, "in none of the tries");
}

/// The clock's change against the host's while something happens that stops the machine or leaves
/// it alone: at its first sound reading after that, at the next one, and seconds later.
/// Returns whether that was measured: the event says whether it has happened.
fn across(prepare: impl Fn(&[&str]) -> Command, event: impl FnOnce(u32, Instant) -> bool) -> bool {
    let mut clocks = Clocks::start(|words| {
        let mut command = prepare(words);
        command.args(["--cpus", "2"]);
        command
    });
    // As in the first test.
    std::thread::sleep(Duration::from_secs(4));
    let before = sound(&mut clocks);
    if !event(clocks.machine.id(), clocks.begun) {
        clocks.end();
        return false;
    }
    let check = |after: Offsets| {
        let error = after.monotonic - before.monotonic;
        let uncertain = after.uncertain + before.uncertain;
        println!("{error} ns, uncertain by {uncertain} ns");
        assert!(error.abs() + uncertain <= RIGHT, "{before:?} {after:?}");
        let wall = (after.real - before.real).abs();
        assert!(wall + uncertain <= WALL_RIGHT, "{before:?} {after:?}");
    };
    check(sound(&mut clocks));
    check(sound(&mut clocks));
    std::thread::sleep(Duration::from_secs(3));
    check(sound(&mut clocks));
    clocks.end();
    true
}

/// Stops all processes of a machine for this time.
fn stop(machine: u32, time: Duration) {
    let all = tree::everything(machine);
    for &pid in &all {
        tree::signal(pid, Signal::STOP);
    }
    std::thread::sleep(time);
    // The monitor is the first: it may find its machine stopped.
    for &pid in &all {
        tree::signal(pid, Signal::CONT);
    }
}

/// All processes of a machine are stopped for a while and go on.
#[test]
fn the_clock_is_right_after_a_stop() {
    let long = is_long();
    let time = Duration::from_secs(if long { 60 } else { 3 });
    let measured = across(
        |words| vm::command(words.iter().copied()),
        |machine, _| {
            stop(machine, time);
            true
        },
    );
    assert!(measured);
}

/// The host is suspended, and its counter goes on. The guest's clocks have counted the suspend: its
/// monotonic clock agrees with a clock of the host that counts suspends, and its wall clock is
/// right.
#[test]
fn the_clock_is_right_after_a_suspend() {
    let long = is_long();
    let time = Duration::from_secs(if long { 60 } else { 5 });
    let measured = AFTER.into_iter().any(|after| {
        across(
            |words| {
                let mut command = vm::command_with_hooks(words.iter().copied());
                command.args(["--suspend-clock", &time.as_secs().to_string()]);
                command.args(["--suspend-after", &after.to_string()]);
                command
            },
            |machine, begun| {
                // The clock that the machine sees stands half a second later, or when the program
                // has also started. Nothing runs meanwhile.
                let ready = begun + Duration::from_millis(u64::from(after) * 1000 - 500);
                if !in_time(ready, Duration::ZERO) {
                    return false;
                }
                std::thread::sleep(ready.saturating_duration_since(Instant::now()));
                stop(machine, time + Duration::from_millis(2500));
                true
            },
        )
    });
    assert!(measured, "not measured: the host is busy");
}

/// The clock is right after nothing has happened in a machine for this time.
fn idle_for(time: Duration) {
    let mut clocks = Clocks::start(|words| {
        let mut command = vm::command(words.iter().copied());
        command.args(["--cpus", "2"]);
        command
    });
    std::thread::sleep(Duration::from_secs(4));
    let before = sound(&mut clocks);
    std::thread::sleep(time);
    let after = sound(&mut clocks);
    let error = (after.monotonic - before.monotonic).abs();
    let uncertain = after.uncertain + before.uncertain;
    println!("{error} ns, uncertain by {uncertain} ns");
    assert!(error + uncertain <= RIGHT, "{before:?} {after:?}");
    clocks.end();
}

/// Nothing happens in a machine for an hour.
#[test]
#[ignore = "an hour: make test-release"]
fn the_clock_is_right_after_an_idle_hour() {
    idle_for(Duration::from_secs(3600));
}

/// Nothing happens in a machine for ten seconds.
#[test]
fn the_clock_is_right_after_idle_seconds() {
    idle_for(Duration::from_secs(10));
}

/// How long one of many measurements may take.
const SOON: Duration = Duration::from_secs(1);
/// After this much of a turn, in ns, a clock has followed.
const SLEW_FOLLOWED: i64 = 2_000_000_000;
/// The limit for the error before, in ns.
const SLEW_WORST: i64 = 300_000;

/// The host's clock is too fast by as much as NTP ever makes it, then too slow, and so on. The
/// guest's follows, and never goes back.
#[test]
fn a_slewed_clock_is_followed() {
    let turns = by_length(3, 40);
    // The machine works all the time: while it is idle, its clock is looked at less often.
    let seconds = turns * SLEW_TURN / 1_000_000_000 + 15;
    let before = format!("/x/times {seconds} >/tmp/times &");
    let after = "wait; cat /tmp/times";
    let mut clocks = Clocks::start_between(&before, after, |words| {
        let mut command = vm::command_with_hooks(words.iter().copied());
        command.args(["--cpus", "2", "--slew-clock", &SLEW_PPM.to_string()]);
        command
    });
    std::thread::sleep(Duration::from_secs(4));
    let (mut base, mut settled, mut worst) = (None, 0, 0);
    let end = now(ClockId::Monotonic) + turns * SLEW_TURN;
    while now(ClockId::Monotonic) < end {
        std::thread::sleep(Duration::from_millis(100));
        let Some(offsets) = clocks.certain(CERTAIN, SOON) else {
            continue;
        };
        let host = offsets.at;
        let error = offsets.monotonic - slewed(host);
        let followed = host % SLEW_TURN >= SLEW_FOLLOWED;
        if base.is_none() && !followed {
            continue;
        }
        let (zero, less_certain) = *base.get_or_insert((error, offsets.uncertain));
        let error = (error - zero).abs() + offsets.uncertain + less_certain;
        worst = worst.max(error);
        if followed {
            settled += 1;
            assert!(error <= RIGHT, "{error} ns at {host}");
        }
    }
    println!("{settled} measurements, at most {worst} ns between");
    assert!(
        settled >= turns * 5,
        "not measured: {settled} readings were certain to {CERTAIN} ns; the host is busy"
    );
    assert!(worst <= SLEW_WORST, "{worst} ns");
    let text = clocks.end();
    assert!(text.contains("backwards 0\n"), "{text}");
}

/// For how long a machine works until its clock is the host's.
const WORKS: Duration = Duration::from_secs(4);
/// For how long it sleeps at least before the host's clock becomes faster, so that it no longer
/// wakes up for its own corrections.
const SLEEPS: Duration = Duration::from_secs(6);
/// When it wakes up after that: its clock would be late by 0.4 ms. The kernel wakes up by itself
/// every few seconds.
const WAKES: Duration = Duration::from_millis(800);
/// Limit for the uncertainty of the first reading, of which there is only one, ns.
const FIRST_CERTAIN: i64 = 20_000;
/// In how many tries a wrong layer has to be found.
const WAKE_TRIES: usize = 6;

/// The error of the first reading after an idle time in which the host's clock has become faster,
/// and how uncertain it is, ns. `None`: it was not measured, because the host is busy.
fn after_idle(layer: Option<&Planted>, faster: u32) -> Option<(i64, i64)> {
    let faster = Duration::from_secs(faster.into());
    let end = Instant::now() + faster;
    let from = now(ClockId::Monotonic) + i64::try_from(faster.as_nanos()).unwrap();
    let show = "mount -t debugfs none /sys/kernel/debug; cat /sys/kernel/debug/vmi/clock";
    let mut clocks = Clocks::start_between("", show, |words| {
        let mut command = vm::command_with_hooks(words.iter().copied());
        command.args(["--cpus", "2", "--slew-clock", &SLEW_PPM.to_string()]);
        command.args(["--slew-from", &from.to_string()]);
        if let Some(layer) = layer {
            command.arg("--plant-layer").arg(layer.rom());
        }
        command
    });
    let begun = Instant::now();
    while begun.elapsed() < WORKS {
        clocks.ask();
        std::thread::sleep(Duration::from_millis(100));
    }
    let before = sound(&mut clocks);
    let in_time = in_time(end, SLEEPS);
    std::thread::sleep((end + WAKES).saturating_duration_since(Instant::now()));
    let first = clocks.ask();
    let error = first.monotonic - before.monotonic - slewed(first.at - from);
    println!("{error} {first:?}\n{}", clocks.end());
    let measured = in_time && first.uncertain <= FIRST_CERTAIN;
    measured.then_some((error, first.uncertain + before.uncertain))
}

/// The host's clock becomes faster while a machine is idle. The first reading in it is right, and
/// would not be if the layer's clock were not right before that.
#[test]
fn the_clock_is_right_when_an_idle_machine_wakes_up() {
    let measure = |layer, after| after_idle(layer, after + 5);
    let first = AFTER.into_iter().find_map(|after| measure(None, after));
    assert!(first.is_some(), "not measured: the host is busy");
    let (error, uncertain) = first.unwrap();
    assert!(error.abs() + uncertain <= RIGHT, "{error} ns");
    let layer = Planted::build("WAKE_CLOCK_UNCHECKED").unwrap();
    // In some tries the kernel happens to have woken up shortly before.
    let wrong = AFTER.into_iter().cycle().take(WAKE_TRIES).any(|after| {
        let found = measure(Some(&layer), after);
        found.is_some_and(|(error, uncertain)| error.abs() - uncertain > RIGHT)
    });
    assert!(wrong, "the mistake was not found");
}

/// Limit for the error of the accounted time, in percent.
const SUM: f64 = 1.0;

/// Four vCPUs that all read the clock, beside programs that use the host's processors twice: the
/// clock never goes back between vCPUs, it is the host's all the time, and user, system, idle and
/// stolen time of each CPU add up to the time that passes, whether it is always busy or sleeps at
/// times.
#[test]
fn time_is_right_where_processors_are_short() {
    let (always, at_times) = by_length((8, 7), (600, 120));
    // The boot is not part of the worst.
    let before = format!(
        "mount -t debugfs none /sys/kernel/debug; clock=/sys/kernel/debug/vmi/clock; \
         {{ sleep 4; echo >$clock; \
         /x/times {always} && /x/times {at_times} 30; echo code $?; cat $clock; }} >/tmp/all & \
         renice -n -20 $$ >/dev/null"
    );
    let mut clocks = Clocks::start_between(&before, "wait; cat /tmp/all", |words| {
        let mut command = vm::command(words.iter().copied());
        command.args(["--cpus", "4"]);
        command
    });
    std::thread::sleep(Duration::from_secs(3));
    let first = sound(&mut clocks);
    let busy = Busy::start(2);
    let (mut measured, mut worst) = (0, 0);
    let seconds = always + at_times;
    for second in 1..=seconds {
        let next = clocks.certain(CERTAIN, SOON);
        if let Some(offsets) = next {
            measured += 1;
            let uncertain = offsets.uncertain + first.uncertain;
            let error = (offsets.monotonic - first.monotonic).abs() + uncertain;
            worst = worst.max(error);
            assert!(error <= RIGHT, "second {second}: {first:?} {offsets:?}");
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    println!("{measured} measurements in {seconds} s, at most {worst} ns");
    assert!(
        measured >= seconds * 3 / 4,
        "not measured: of {seconds} readings, {measured} were certain to {CERTAIN} ns within \
         {SOON:?}; the host is busy"
    );
    let text = clocks.end();
    drop(busy);
    println!("{text}");
    assert!(text.contains("\ncode 0\n"), "{text}");
    assert_eq!(text.matches("backwards 0\n").count(), 2, "{text}");
    let cpus = cpu_times::shares(&text);
    assert_eq!(cpus.len(), 8, "{text}");
    for (number, cpu) in cpus.iter().enumerate() {
        assert!((cpu.sum - 100.0).abs() <= SUM, "{number}: {text}");
        // Eight programs and vCPUs want two processors.
        assert!(number >= 4 || cpu.stolen > 20.0, "{number}: {text}");
    }
    let offset = |name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().trim().parse::<i64>().unwrap()
    };
    for name in ["offset_ns ", "worst_offset_ns "] {
        assert!(offset(name).abs() < RIGHT, "{name}: {text}");
    }
}
