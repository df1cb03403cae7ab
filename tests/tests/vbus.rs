// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane vbus`: an administrator's day, and bad input.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A vbusd, which is killed with the value.
struct Daemon {
    child: Child,
    folder: TempDir,
}

fn start(folder: &Path) -> Child {
    let mut command = Command::new(program::path());
    let child = command
        .args(["vbus", "daemon", "--folder"])
        .arg(folder)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let socket = folder.join("socket");
    while program::run(["vbus", "ls", "--socket", socket.to_str().unwrap()]).code != 0 {
        assert!(Instant::now() < deadline, "vbusd does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = start(folder.path());
        Daemon { child, folder }
    }

    fn run(&self, words: &[&str]) -> program::Run {
        let socket = self.folder.path().join("socket");
        let socket = socket.to_str().unwrap();
        let mut all = vec!["vbus"];
        all.extend(words);
        all.extend(["--socket", socket]);
        program::run(all)
    }

    fn done(&self, words: &[&str]) -> String {
        let run = self.run(words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words:?}");
        run.stdout
    }

    fn refused(&self, words: &[&str], part: &str) {
        let run = self.run(words);
        assert_eq!(run.code, 2, "{words:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{words:?}: {run:?}");
        assert!(
            run.stderr.starts_with("paravane: ") && run.stderr.contains(part),
            "{run:?}"
        );
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.done(words)).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn buses_and_devices_are_made_linked_shown_and_removed() {
    let mut daemon = Daemon::start();
    assert_eq!(
        daemon.done(&["classes"]),
        "echo\nnull\nvenet-switch\nvblk\nvenet-tap\nvenet-user\n"
    );
    assert_eq!(daemon.done(&["create-bus", "lan"]), "");
    daemon.done(&[
        "create-device",
        "sw",
        "venet-switch",
        "lossless=1",
        "poll-us=50",
    ]);
    daemon.done(&["link", "lan", "sw"]);
    daemon.done(&[
        "allow", "lan", "--uid", "1000", "--uid", "1001", "--gid", "100",
    ]);
    daemon.done(&["set", "sw", "poll-us=30", "kick-us=25"]);
    assert_eq!(daemon.done(&["show", "sw", "poll-us"]), "30\n");
    assert_eq!(daemon.done(&["show", "sw", "kick-us"]), "25\n");
    let text = daemon.done(&["ls"]);
    assert!(
        text.contains("lan") && text.contains("venet-switch"),
        "{text}"
    );
    assert!(daemon.done(&["show", "sw"]).contains("(can be set)"));
    let before = daemon.json(&["ls", "--json"]);
    assert_eq!(before["buses"][0]["interfaces"][0]["device"], "sw");
    assert_eq!(before["buses"][0]["uids"], serde_json::json!([1000, 1001]));
    assert_eq!(before["devices"][0]["attributes"][0]["value"], "30");
    assert_eq!(daemon.json(&["show", "sw", "--json"]), before["devices"][0]);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    daemon.refused(&["ls"], "`paravane vbus daemon` starts it");
    daemon.child = start(daemon.folder.path());
    assert_eq!(
        daemon.json(&["ls", "--json"]),
        before,
        "a kill loses nothing"
    );
    daemon.refused(&["rm-bus", "lan"], "unlink it first");
    daemon.done(&["reset", "sw"]);
    daemon.done(&["unlink", "lan", "sw"]);
    daemon.done(&["rm-device", "sw"]);
    daemon.done(&["rm-bus", "lan"]);
    let empty = serde_json::json!({ "buses": [], "devices": [] });
    assert_eq!(daemon.json(&["ls", "--json"]), empty);
}

#[test]
fn bad_input_gets_one_line() {
    let daemon = Daemon::start();
    daemon.done(&["create-bus", "lan"]);
    daemon.done(&["create-device", "sw", "venet-switch"]);
    for (words, part) in [
        (&["create-bus", "a b"][..], "is no name"),
        (&["create-bus", "lan"], "there is a bus lan already"),
        (&["create-device", "x", "tap"], "echo, null, venet-switch"),
        (&["create-device", "x", "echo", "speed"], "NAME=VALUE"),
        (
            &["create-device", "x", "echo", "speed=1"],
            "no attribute speed",
        ),
        (&["set", "sw", "lossless=maybe"], "0 or 1"),
        (&["set", "sw", "poll-us=1000000"], "0 to 10000"),
        (
            &["set", "sw", "kick-us=10001"],
            "\"10001\" is no value of kick-us: 0 to 10000 are",
        ),
        (
            &["create-device", "x", "echo", "kick-us=20"],
            "kick-us is an attribute of networks",
        ),
        (&["set", "sw"], "NAME=VALUE"),
        (&["show", "sx"], "there is no device sx"),
        (&["show", "sw", "speed"], "has no attribute speed"),
        (&["link", "lan", "sx"], "there is no device sx"),
        (&["link", "wan", "sw"], "there is no bus wan"),
        (&["unlink", "lan", "sw"], "is not linked"),
        (&["allow", "lan", "--uid", "root"], "'root'"),
        (&["rm-device", "sx"], "there is no device sx"),
        (&["frob"], "'frob'"),
    ] {
        daemon.refused(words, part);
    }
    let folder = daemon.folder.path().to_str().unwrap();
    let second = program::run(["vbus", "daemon", "--folder", folder]);
    assert_eq!(
        (second.code, second.stderr.lines().count()),
        (2, 1),
        "{second:?}"
    );
    assert!(second.stderr.contains("another vbusd uses"), "{second:?}");
}

#[test]
fn the_benchmark_measures_every_path() {
    let run = program::run(["bench", "vbus", "--quick", "--json"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let all: Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = all["rows"].as_array().unwrap();
    let paths: Vec<_> = rows
        .iter()
        .map(|row| row["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["socketpair", "pipe", "bus", "bus-device"]);
    for row in rows {
        for figure in [
            "rtt_us",
            "rtt_p99_us",
            "rtt_ratio",
            "tput_mb_s",
            "tput_ratio",
        ] {
            assert!(
                row[figure].as_f64().is_some_and(|value| value > 0.0),
                "{figure} of {row}"
            );
        }
    }
}
