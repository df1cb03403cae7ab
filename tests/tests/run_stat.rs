// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statistics of a machine, from `paravane stat` and `--metrics`.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::vbusd::Vbusd;
use paravane_tests::worker::{COMMANDS, Worker, sum};
use paravane_tests::{program, vm};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Reads a disk, and starts programs. Ten of them live at the same time, so that some run in host
/// processes that have none of their pages yet.
const SCRIPT: &str = "while read line; do \
    dd if=/dev/vda of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null; \
    for i in 1 2 3 4 5; do true | true; done; \
    for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3 & done; wait; echo; done";

/// Starts one ordinary program again and again. It has the same addresses each time.
const AGAIN: &str =
    "while read line; do i=0; while [ $i -lt TIMES ]; do /bin/true; i=$((i+1)); done; echo; done";

/// A machine with a disk, and a socket for its metrics.
struct Machine(Worker);

impl Machine {
    fn new() -> Self {
        Self::that("2", SCRIPT)
    }

    fn that(cpus: &str, script: &str) -> Self {
        Machine(Worker::start(None, script, |folder| {
            let disk = folder.join("disk");
            File::create(&disk).unwrap().set_len(1 << 20).unwrap();
            let disk = format!("{}:snapshot", disk.display());
            let socket = folder.join("socket").display().to_string();
            ["--cpus", cpus, "--metrics", &socket, "--disk", &disk]
                .map(String::from)
                .to_vec()
        }))
    }

    fn socket(&self) -> PathBuf {
        self.0.folder().join("socket")
    }

    /// Makes it work again and again, each time after a pause. Returns the host calls of each time,
    /// and the pages.
    fn costs(&mut self, pause: Duration, times: u32) -> [Vec<u64>; 2] {
        self.0.costs(pause, times, ["host_calls", "fills"])
    }

    fn end(self) {
        let socket = self.socket();
        self.0.end();
        assert!(!socket.exists());
    }
}

fn scrape(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(program::PATIENCE)).unwrap();
    stream.set_write_timeout(Some(program::PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn device<'a>(stats: &'a Value, name: &str) -> &'a Value {
    let devices = stats["devices"].as_array().unwrap();
    devices
        .iter()
        .find(|device| device["name"] == name)
        .unwrap()
}

#[test]
fn figures_follow_the_work() {
    let mut machine = Machine::new();
    let before = machine.0.stat();
    machine.0.work();
    let after = machine.0.stat();
    assert_eq!(after["vcpus"].as_array().unwrap().len(), 2);
    assert_eq!(after["memory"], 256 << 20);
    for field in [
        "faults_hidden",
        "fills",
        "flushes",
        "switches",
        "host_calls",
        "interrupts",
        "halts",
    ] {
        assert!(
            sum(&after, field) > sum(&before, field),
            "{field}: {before} {after}"
        );
    }
    // The disk's megabyte, and a status for each request.
    let bytes = |stats: &Value| device(stats, "disk")["bytes_to_guest"].as_u64().unwrap();
    let read = bytes(&after) - bytes(&before);
    assert!(((1 << 20)..(1 << 20) + 4096).contains(&read), "{read}");
    assert!(
        device(&after, "disk")["notifications"].as_u64()
            > device(&before, "disk")["notifications"].as_u64()
    );

    let run = program::finish(&mut machine.0.command(&["stat", "one"]));
    assert!(
        run.stdout.starts_with("one: up ") && run.stdout.contains("2 vCPUs"),
        "{run:?}"
    );
    machine.end();
}

/// A child has its parent's text mapped, and a program the pages that it had the last time:
/// hundreds of pages without a host call.
#[test]
fn what_ran_before_costs_little() {
    const TIMES: u64 = 200;
    let mut machine = Machine::that("1", &AGAIN.replace("TIMES", &TIMES.to_string()));
    let [calls, pages] = machine
        .costs(Duration::ZERO, 3)
        .map(|all| all.iter().sum::<u64>() / (3 * TIMES));
    println!("{calls} host calls, {pages} pages");
    assert!(
        calls <= 45 && pages <= 200,
        "{calls} host calls, {pages} pages"
    );
    machine.end();
}

/// This holds even if the program last ran seconds ago. There are exceptions: a process with many
/// page tables of the host drops all of them after a dozen programs, and the first programs of a
/// machine are in new processes.
#[test]
fn what_ran_seconds_ago_costs_little() {
    let mut machine = Machine::that("1", &AGAIN.replace("TIMES", "1"));
    machine.costs(Duration::ZERO, 20);
    // Host calls of the idle machine count, too.
    let [_, mut pages] = machine.costs(Duration::from_millis(1200), 5);
    println!("{pages:?} pages");
    pages.sort_unstable();
    assert!(pages[2] <= 100, "{pages:?}");
    machine.end();
}

#[test]
fn prometheus_and_curl() {
    let mut machine = Machine::new();
    let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
    let reads = |text: &str| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("paravane_device_bytes_to_guest_total{device=\"disk\""));
        line.unwrap()
            .rsplit_once(' ')
            .unwrap()
            .1
            .parse::<u64>()
            .unwrap()
    };
    let first = scrape(&machine.socket(), get);
    assert!(first.starts_with("HTTP/1.0 200 OK\r\n"), "{first}");
    let (head, body) = first.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    machine.0.work();
    assert!(reads(&scrape(&machine.socket(), get)) >= reads(&first) + (1 << 20));
    assert!(scrape(&machine.socket(), "GET /x HTTP/1.0\n\n").starts_with("HTTP/1.0 404"));
    // A client that sends nothing or too much blocks no other client.
    let _quiet: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(machine.socket()).unwrap())
        .collect();
    let mut loud = UnixStream::connect(machine.socket()).unwrap();
    loud.set_write_timeout(Some(program::PATIENCE)).unwrap();
    let _ = loud.write_all(&[b'x'; 100_000]);
    assert!(scrape(&machine.socket(), get).starts_with("HTTP/1.0 200"));
    machine.end();
}

#[test]
fn live_until_the_end() {
    let machine = Machine::new();
    let mut watch = machine.0.command(&["stat", "one", "--json", "--watch"]);
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take());
    let mut next = || serde_json::from_str::<Value>(&lines.next_within(program::PATIENCE)).unwrap();
    let (first, second) = (next(), next());
    assert!(second["uptime_ms"].as_u64() >= first["uptime_ms"].as_u64().map(|ms| ms + 900));
    machine.end();
    assert!(program::wait_within(&mut child, program::PATIENCE).success());
}

#[test]
fn what_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let refused = |path: &Path, why: &str| {
        let run = program::finish(vm::command(["--metrics"]).arg(path).args(["--", "true"]));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(
            run.stderr.starts_with("paravane: --metrics ") && run.stderr.contains(why),
            "{run:?}"
        );
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    };
    refused(&file, "no socket");
    refused(&folder.path().join("no/such"), "No such file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let run = program::finish(
        program::command()
            .args(["stat", "none"])
            .env("XDG_STATE_HOME", folder.path()),
    );
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (
            2,
            "paravane: there is no machine none: see `paravane ps --all`\n"
        )
    );
}

#[test]
fn the_log_has_levels() {
    let log = |option: &[&str], variable: &str| {
        let mut command = program::command();
        command.args(option).env("RUST_LOG", variable);
        let words = vm::command(["--", "true"]);
        let run = program::finish(command.args(words.get_args()));
        assert_eq!(run.code, 0, "{run:?}");
        run.stderr
    };
    assert_eq!(log(&[], ""), "");
    assert_eq!(log(&["--log", "off"], "debug"), "");
    let info = log(&["--log", "info"], "");
    assert!(
        info.contains("INFO paravane_hypervisor::process") && !info.contains("DEBUG"),
        "{info}"
    );
    assert!(log(&["--log", "debug"], "").contains("driver ready"));
    let some = log(&[], "paravane_hypervisor::device_work=debug");
    assert!(
        some.contains("driver ready") && !some.contains("INFO"),
        "{some}"
    );
    let run = program::finish(program::command().arg("ps").env("RUST_LOG", "a=b=c"));
    assert!(
        run.code == 2 && run.stderr.starts_with("paravane: RUST_LOG=a=b=c: "),
        "{run:?}"
    );
}

/// The attribute for rare notifications is for vCPUs that do the work of their card. The vCPUs of
/// the process hypervisor do not, so the attribute cannot be set, whatever the device of the bus
/// reports.
#[test]
fn what_no_vcpu_does_is_no_attribute() {
    let vbusd = Vbusd::start(&["lan"]);
    vbusd.done(&["set", "lan-switch", "kick-us=100"]);
    let mut machine = Worker::start(None, COMMANDS, |folder| {
        let own = folder.join("paravane");
        fs::create_dir(&own).unwrap();
        symlink(vbusd.folder(), own.join("vbus")).unwrap();
        ["--hypervisor", "process", "--net", "bus:lan/lan-switch"].to_vec()
    });
    let attributes = device(&machine.stat(), "bus")["attributes"].clone();
    assert_eq!(attributes, json!({ "poll-us": 30 }));
    let run = program::finish(&mut machine.command(&["card", "one", "kick-us=1"]));
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    let why = "no card with the attribute kick-us";
    assert!(run.stderr.contains(why), "{run:?}");
    machine.does("true");
    machine.end();
}

/// The settings of a card, at first and after they are changed.
#[test]
fn attributes_of_cards_are_shown() {
    for (words, expected) in [
        (&["--net", "venet"][..], json!({ "poll-us": 60 })),
        (
            &["--net", "venet", "--card", "poll-us=7"],
            json!({ "poll-us": 7 }),
        ),
    ] {
        let mut machine = Worker::start(None, COMMANDS, |_| words.to_vec());
        let card = |machine: &Worker| device(&machine.stat(), "net-user")["attributes"].clone();
        assert_eq!(card(&machine), expected);
        let set = |words: &[&str]| {
            let words = [&["card", "one"][..], words].concat();
            program::finish(&mut machine.command(&words))
        };
        let run = set(&["poll-us=3"]);
        assert_eq!((run.code, run.stdout.as_str()), (0, "net-user poll-us=3\n"));
        for (bad, why) in [
            ("poll-us=10001", "0 to 10000"),
            // No vCPU does work of this card.
            ("kick-us=1", "no card with the attribute kick-us"),
        ] {
            let run = set(&[bad]);
            assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
            assert!(run.stderr.contains(why), "{run:?}");
        }
        assert_eq!(card(&machine), json!({ "poll-us": 3 }));
        machine.does("true");
        machine.end();
    }
}
