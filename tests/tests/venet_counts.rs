// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a card of a machine's virtual bus in notifications, interrupts and wake-ups. These
//! are counts, since times depend on the host's other work.

// Alone: it measures what an idle card costs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::net_server::{self, Server};
use paravane_tests::one_cpu::OneCpu;
use paravane_tests::skip::skip;
use paravane_tests::worker::{Worker, sum};
use paravane_tests::{linux, program, source_root, tree};
use rustix::thread::sched_getaffinity;
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// CPU time of a thread that may count as none in three seconds: a part in a thousand. The host's
/// time for wake-ups is added.
const IDLE: Duration = Duration::from_millis(3);
/// A wake-up of an idle thread, which finds its memory in no cache, costs at most this many times a
/// bare one.
const WAKE_UP_COST: u64 = 4;
/// How often an idle card's thread may be given a CPU in three seconds.
const IDLE_RUNS: u64 = 12;
/// One of this number of idle times must be within its limits.
const IDLE_TRIES: usize = 5;
/// One test at a time: what another one does with the processors is counted, too.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs each line that it reads as a command.
const SCRIPT: &str = "while read -r line; do eval \"$line\"; echo; done";

fn machine(net: &str) -> Worker {
    machine_without(net, &[])
}

fn machine_without(net: &str, without: &[&str]) -> Worker {
    Worker::start(None, SCRIPT, |folder| {
        net_server::compile(&folder.join("net"));
        for program in ["sleeps", "flood"] {
            let source = source_root().join("tests/guest").join(program);
            linux::compile(&source, &folder.join(program));
        }
        let volume = format!("{}:/x:ro", folder.display());
        let words = ["--cpus", "1", "--net", net, "--volume", &volume];
        let without = without.iter().flat_map(|what| ["--without", what]);
        words.into_iter().chain(without).map(String::from).collect()
    })
}

fn card(stats: &Value, field: &str) -> u64 {
    let devices = stats["devices"].as_array().unwrap();
    let cards = ["net-user", "net"].map(Value::from);
    let found = devices
        .iter()
        .find(|device| cards.contains(&device["name"]));
    found.unwrap()[field].as_u64().unwrap()
}

/// What the card has counted while the machine did something.
fn counted(machine: &mut Worker, line: &str) -> [u64; 3] {
    let before = machine.stat();
    machine.tell(line);
    let after = machine.stat();
    ["notifications", "interrupts", "wakeups"]
        .map(|field| card(&after, field) - card(&before, field))
}

/// What the card's thread and the vCPU's threads have used: CPU time, and how often the host has
/// given it to them.
fn used(machine: &Worker) -> [(Duration, u64); 2] {
    let (monitor, spaces) = (machine.pid(), tree::spaces(machine.pid()));
    let tasks = fs::read_dir(format!("/proc/{monitor}/task")).unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let card = tasks
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "net-user\n"));
    let card = fs::read_to_string(card.unwrap().join("schedstat")).unwrap();
    let fields: Vec<_> = card.split_whitespace().collect();
    let [card, runs] = [0, 2].map(|i| fields[i].parse().unwrap());
    [(card, runs), (tree::cpu_time(&spaces), tree::runs(&spaces))]
        .map(|(time, runs)| (Duration::from_nanos(time), runs))
}

/// What an idle card and an idle vCPU do too much in three seconds.
fn idle(machine: &mut Worker) -> Vec<String> {
    let second = Duration::from_secs(1);
    let bare = std::thread::spawn(move || tree::bare_wake_up(second * 3, second));
    let before = used(machine);
    let counts = counted(machine, "sleep 3");
    let after = used(machine);
    let bare = Duration::from_nanos(bare.join().unwrap());
    let [(card, card_runs), (vcpu, vcpu_runs)] =
        [0, 1].map(|i| (after[i].0 - before[i].0, after[i].1 - before[i].1));
    let [notifications, interrupts, wakeups] = counts;
    let seen = format!(
        "{notifications} notifications, {interrupts} interrupts, {wakeups} wake-ups; {card:?} of \
         the card's thread in {card_runs} runs, {vcpu:?} of the vCPU's in {vcpu_runs}; a bare \
         wake-up costs {bare:?}"
    );
    println!("idle: {seen}");
    let wake_ups = |runs: u64| bare * u32::try_from(runs * WAKE_UP_COST).unwrap();
    [
        (counts.iter().any(|&n| n > 3), "the card is used"),
        (card_runs > IDLE_RUNS, "the card's thread wakes up"),
        (card > IDLE + wake_ups(card_runs), "the card's thread works"),
        // The commands before and after the sleep are the vCPU's.
        (vcpu > IDLE * 10 + wake_ups(vcpu_runs), "the vCPU works"),
    ]
    .into_iter()
    .filter(|&(wrong, _)| wrong)
    .map(|(_, what)| format!("{what}: {seen}"))
    .collect()
}

#[test]
fn what_is_busy_is_not_notified_and_what_is_idle_not_woken() {
    let _alone = alone();
    let mut machine = machine("venet,loopback");
    let (_server, port) = Server::start(&machine.folder().join("net"));
    let client = |what: &str| format!("/x/net client 10.0.2.2 {port} {what} >/dev/null");

    // A round trip is one frame in each direction, and the acknowledgement of the second.
    const TRIPS: u64 = 1000;
    let [notifications, interrupts, _] = counted(&mut machine, &client("trip 1000"));
    println!("{TRIPS} trips: {notifications} notifications, {interrupts} interrupts");
    // A card that is always there to look, as on a busy host, needs hardly any notification.
    assert!(notifications > 0 && notifications < TRIPS * 2);
    assert!(interrupts > 10 && interrupts < TRIPS * 2);

    // The connections have ended, and no program runs. Other programs of the host can take time
    // from one try. A fault of the card or the vCPU shows in each try.
    std::thread::sleep(Duration::from_secs(1));
    let tries = (0..IDLE_TRIES).map(|_| idle(&mut machine));
    let wrong: Vec<_> = tries
        .map_while(|wrong| (!wrong.is_empty()).then_some(wrong))
        .collect();
    assert!(wrong.len() < IDLE_TRIES, "{wrong:#?}");
    machine.end();
}

/// CPU time of all programs of the host but this machine's and this one.
fn time_of_others(machine: &Worker) -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let words = stat.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    // All but idle and iowait: user, nice, system, irq, softirq, steal.
    let busy = ticks[..3].iter().sum::<u64>() + ticks[5..8].iter().sum::<u64>();
    let mut own = tree::everything(machine.pid());
    own.push(std::process::id());
    Duration::from_millis(busy * 10).saturating_sub(Duration::from_nanos(tree::cpu_time(&own)))
}

/// A program sends without a sleep, so the card always has frames, except while something has
/// stopped the program. Each such pause allows a notification, and so do a few frames.
///
/// While other programs take the CPU from the card, it does not look for frames. So all tries count
/// in which others had hardly any CPU time, and no other tries.
#[test]
fn a_busy_card_is_not_notified() {
    let _alone = alone();
    const FRAMES: u64 = 20_000;
    const TRIES: usize = 30;
    const ENOUGH: usize = 5;
    /// Half of the time that a card looks for frames by itself. A notification takes less.
    const PAUSE: Duration = Duration::from_micros(30);
    let mut machine = machine("venet,loopback");
    // The server drops datagrams that it does not take in time.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let line = format!("/x/flood 10.0.2.2 {port} {FRAMES} {}", PAUSE.as_nanos());
    let cpus = sched_getaffinity(None).unwrap().count();
    let mut counting = 0;
    for _ in 0..TRIES {
        let before = card(&machine.stat(), "notifications");
        let (others, begun) = (time_of_others(&machine), Instant::now());
        let answer = machine.tell(&format!("printf '%s ' $({line})"));
        let all = begun.elapsed() * cpus;
        let others = time_of_others(&machine).saturating_sub(others);
        let notifications = card(&machine.stat(), "notifications") - before;
        let mut numbers = answer.split_whitespace().map(|n| n.parse::<u64>().unwrap());
        let (sent, pauses) = (numbers.next().unwrap(), numbers.next().unwrap());
        println!(
            "{sent} frames: {notifications} notifications, {pauses} pauses; others had {others:?} \
             of {all:?}"
        );
        assert_eq!(sent, FRAMES);
        if others * 10 <= all {
            counting += 1;
            assert!(notifications <= pauses + FRAMES / 100, "it is notified");
        }
        if counting == ENOUGH {
            break;
        }
    }
    if counting < ENOUGH {
        eprintln!("NOT TESTED in full: {counting} tries of {ENOUGH}. The host is too busy.");
    }
    machine.end();
}

/// Starts a monitor on a host of its own with a tap, and a server that the guest reaches by it.
const HOST: &str = r#"#!/bin/sh
set -e
root=--map-root-user
test $(id -u) = 0 && root=
exec unshare --net $root -- sh -c '
    set -e
    ip link set lo up
    ip tuntap add vm0 mode tap
    ip addr add 10.9.0.1/24 dev vm0
    ip link set vm0 up
    setpriv --pdeathsig KILL "$0" serve 7000 >/dev/null 2>&1 &
    exec "$@"' SERVER "$@"
"#;

/// Round trips over a tap: those that the card looked for need no thread that waits for its file.
#[test]
fn answers_of_a_tap_are_looked_for() {
    let _alone = alone();
    const TRIPS: u64 = 2000;
    let folder = tempfile::tempdir().unwrap();
    let (by, server) = (folder.path().join("host"), folder.path().join("net"));
    net_server::compile(&server);
    std::fs::write(&by, HOST.replace("SERVER", server.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&by, std::fs::Permissions::from_mode(0o755)).unwrap();
    let possible = program::finish(Command::new(&by).arg("true"));
    if possible.code != 0 {
        return skip(&format!("no network namespace: {}", possible.stderr));
    }
    let found = [false, true].map(|looks| {
        let mut machine = Worker::start(by.to_str(), SCRIPT, |_| {
            let volume = format!("{}:/x:ro", folder.path().display());
            let words = ["--cpus", "1", "--net", "venet-tap:vm0", "--volume", &volume];
            let mut words = words.map(String::from).to_vec();
            if !looks {
                words.extend(["--without", "card-looks"].map(String::from));
            }
            words
        });
        machine.tell("ip addr add 10.9.0.2/24 dev eth0 && ip link set eth0 up");
        let line = format!("/x/net client 10.9.0.1 7000 trip {TRIPS} >/dev/null");
        let mut few = (0..20).map(|_| {
            let [_, interrupts, wakeups] = counted(&mut machine, &line);
            println!("looks: {looks}; {interrupts} interrupts, {wakeups} wake-ups");
            wakeups < TRIPS / 4 * 3
        });
        // Where others take the CPU from the server, it answers too late to be found.
        let few = if looks {
            few.any(|few| few)
        } else {
            few.take(3).any(|few| few)
        };
        std::thread::sleep(Duration::from_secs(1));
        let rests = (0..IDLE_TRIES).any(|_| {
            let [notifications, interrupts, wakeups] = counted(&mut machine, "sleep 3");
            println!("idle: {notifications}, {interrupts}, {wakeups}");
            notifications <= 3 && interrupts <= 3 && wakeups <= 6
        });
        assert!(rests, "the card is used");
        machine.end();
        few
    });
    assert_eq!(found, [false, true]);
}

/// The interrupt that ends a halt enters the guest's kernel without a signal of the host.
#[test]
fn an_interrupt_that_ends_a_halt_takes_no_signal() {
    let _alone = alone();
    const SLEEPS: u64 = 2000;
    let mut machine = machine("none");
    machine.tell("/x/sleeps 1");
    let before = machine.stat();
    machine.tell(&format!("/x/sleeps {SLEEPS}"));
    let after = machine.stat();
    let [interrupts, signals] =
        ["interrupts", "signals"].map(|field| sum(&after, field) - sum(&before, field));
    println!("{SLEEPS} sleeps: {interrupts} interrupts, {signals} signals");
    assert!(interrupts >= SLEEPS && signals < SLEEPS / 2);
    machine.end();
}

/// Looks of the vCPU that won and those in vain, while the machine did something.
fn looks(machine: &mut Worker, line: &str) -> [u64; 2] {
    let figures = |machine: &Worker| {
        let stat = machine.stat();
        ["polls_won", "polls_lost"].map(|field| sum(&stat, field))
    };
    let before = figures(machine);
    machine.tell(line);
    let after = figures(machine);
    [0, 1].map(|i| after[i] - before[i])
}

/// A vCPU that waits for a card which looks does not sleep, and needs no wake-up. On a busy host
/// one round need not decide. A card that is not optimized is mostly too late with the answer.
#[test]
fn a_vcpu_and_its_card_look_for_each_other() {
    let _alone = alone();
    const TRIPS: u64 = 2000;
    let line = |port| format!("/x/net client 10.0.2.2 {port} trip {TRIPS} >/dev/null");
    if sched_getaffinity(None).unwrap().count() < 2 {
        return skip("one CPU");
    }
    let mut machine = machine("venet,loopback");
    let (_server, port) = Server::start(&machine.folder().join("net"));
    let wins = (0..40).any(|_| {
        let [won, lost] = looks(&mut machine, &line(port));
        println!("{TRIPS} trips: {won} looks won, {lost} in vain");
        won > if cfg!(debug_assertions) {
            20
        } else {
            TRIPS / 2
        }
    });
    assert!(wins);
    // Nothing comes, and the vCPU does not look for it.
    std::thread::sleep(Duration::from_secs(1));
    // So it is while a program waits for something else.
    for (line, most) in [("sleep 3", 6), ("/x/sleeps 2000", 20)] {
        let rests = (0..IDLE_TRIES).any(|_| {
            let [won, lost] = looks(&mut machine, line);
            println!("{line}: {won} looks won, {lost} in vain");
            won + lost <= most
        });
        assert!(rests, "{line}: the vCPU looks for a card");
    }
    machine.end();
}

#[test]
fn without_these_heuristics_or_on_one_cpu_no_vcpu_looks_for_a_card() {
    let _alone = alone();
    let trips = |machine: &mut Worker| {
        let (_server, port) = Server::start(&machine.folder().join("net"));
        let line = format!("/x/net client 10.0.2.2 {port} trip 2000 >/dev/null");
        let before = sum(&machine.stat(), "interrupts");
        let looks = looks(machine, &line);
        // There was something to look for.
        assert!(sum(&machine.stat(), "interrupts") - before > 1000);
        looks
    };
    for without in ["halt-polls", "card-looks"] {
        let mut machine = machine_without("venet,loopback", &[without]);
        assert_eq!(trips(&mut machine), [0, 0], "{without}");
        machine.end();
    }
    let _one = OneCpu::take();
    let mut machine = machine("venet,loopback");
    assert_eq!(trips(&mut machine), [0, 0]);
    machine.end();
}
