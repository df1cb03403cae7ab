// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The resources of a process, to find leaks. The turmoil of machines (`tests/tests`) uses it, too.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take to give back what it does not need any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process has.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    files: usize,
    /// Without the workers of io_uring, which the host's kernel creates and ends by itself.
    threads: usize,
    /// Processes below it, also those that have ended and were not waited for.
    pub processes: usize,
    /// Private memory, in KiB.
    pub memory: u64,
}

impl Holdings {
    pub fn of(process: u32) -> Self {
        let folder = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let memory = line.unwrap().split_whitespace().next().unwrap();
        let threads = fs::read_dir(format!("{folder}/task")).unwrap();
        // One may end in between.
        let threads =
            threads.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
        Holdings {
            files: fs::read_dir(format!("{folder}/fd")).unwrap().count(),
            threads: threads.filter(|name| !name.starts_with("iou-")).count(),
            processes: below(process),
            memory: memory.parse().unwrap(),
        }
    }

    /// The most of each that a process has within a time.
    pub fn over(process: u32, time: Duration) -> Self {
        let begun = Instant::now();
        let mut all = Holdings::of(process);
        while begun.elapsed() < time {
            thread::sleep(Duration::from_millis(20));
            let now = Holdings::of(process);
            all = Holdings {
                files: all.files.max(now.files),
                threads: all.threads.max(now.threads),
                processes: all.processes.max(now.processes),
                memory: all.memory.max(now.memory),
            };
        }
        all
    }

    /// Waits until a process has no more descriptors, threads and processes, and compares its
    /// memory, of which it may have `memory` KiB more.
    pub fn are_all(self, what: &str, process: u32, memory: u64) {
        let begun = Instant::now();
        loop {
            let now = Holdings::of(process);
            let most = [self.files, self.threads, self.processes];
            let have = [now.files, now.threads, now.processes];
            if have.iter().zip(most).all(|(have, most)| *have <= most) {
                println!("{what}: {self:?}, then {now:?}");
                let more = now.memory.saturating_sub(self.memory);
                assert!(more <= memory, "{what} has {more} KiB more");
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {self:?}, then {now:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How many processes are below this one.
fn below(process: u32) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let parents: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // After the name, which may have any bytes: the state and the parent.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((process, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let mut all = vec![process];
    let mut at = 0;
    while let Some(&parent) = all.get(at) {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        all.extend(children.map(|(child, _)| child));
        at += 1;
    }
    all.len() - 1
}

#[test]
fn what_is_more_is_seen() {
    let script = "echo; read x; exec 5</dev/null; sleep 100 & echo; read x; kill $!";
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", script]);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let before = Holdings::of(shell.id());
    input.write_all(b"\n").unwrap();
    output.read_line(&mut line).unwrap();
    let now = Holdings::of(shell.id());
    assert_eq!(
        [now.files, now.processes],
        [before.files + 1, before.processes + 1]
    );
    input.write_all(b"\n").unwrap();
    let begun = Instant::now();
    while shell.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the shell does not end");
        thread::sleep(Duration::from_millis(5));
    }
}
