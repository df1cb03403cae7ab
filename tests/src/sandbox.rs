// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observes the sandbox of a machine's processes from outside: filters, signals, and what is left
//! when a machine has ended.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::tree;
use rustix::process::{Pid, Signal, set_child_subreaper};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval between two samples.
const LOOK: Duration = Duration::from_millis(2);
/// If no thread of a process without a filter was runnable for this time, the process never gets a
/// filter.
const GRACE: Duration = Duration::from_millis(700);
/// If it ran for this time, it never gets one either: a filter takes well under a millisecond of
/// CPU time. The time that a process waits for a processor does not count.
const WORK: Duration = Duration::from_millis(100);
/// The most time for a machine to end on request.
pub const END: Duration = Duration::from_secs(5);

/// The status of a process in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// It has ended, and its parent has not waited for it.
    pub zombie: bool,
    /// The number of its seccomp filters, including inherited ones.
    pub filters: u32,
    /// `no_new_privs`.
    pub no_new_privs: bool,
    /// Signals that are pending for the process or its first thread. Bit N - 1 is signal N.
    pub pending: u64,
}

/// `SIGURG` in a mask of signals.
pub const URGENT: u64 = 1 << 22;

impl Status {
    /// The status of a process, `None` when there is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let word = |name: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(name))?
                .split_whitespace()
                .next()
        };
        let mask = |name: &str| u64::from_str_radix(word(name)?, 16).ok();
        Some(Status {
            zombie: word("State:")? == "Z",
            filters: word("Seccomp_filters:")?.parse().ok()?,
            no_new_privs: word("NoNewPrivs:")? == "1",
            pending: mask("SigPnd:")? | mask("ShdPnd:")?,
        })
    }
}

/// The CPU time of the threads of a process, and whether one of them is runnable.
fn activity(pid: u32) -> (Duration, bool) {
    let (mut ran, mut runs) = (0, false);
    for task in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        ran += read("schedstat")
            .split(' ')
            .next()
            .and_then(|w| w.parse().ok())
            .unwrap_or(0);
        let stat = read("stat");
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        runs |= state.is_some_and(|s| s.starts_with(['R', 'D']));
    }
    (Duration::from_nanos(ran), runs)
}

/// A process without a filter of its own.
#[derive(Clone, Copy, Debug)]
pub struct Bare {
    /// Since when none of its threads was runnable.
    idle: Option<Instant>,
}

/// Makes this process the parent of the orphans of its descendants, so that it can find them.
///
/// # Panics
/// When the host does not support that.
pub fn adopt_orphans() {
    set_child_subreaper(Pid::from_raw(1)).unwrap();
}

/// What was seen of a machine while it ran.
#[derive(Debug, Default)]
pub struct Seen {
    /// The parent of all of its processes.
    pub zygote: Option<u32>,
    /// The id that its children see, perhaps in a namespace of its own.
    pub zygote_inside: Option<u32>,
    /// Its processes, and those that have no filter of their own yet.
    pub spaces: BTreeMap<u32, Option<Bare>>,
    /// Forbidden things that happened.
    pub wrong: Vec<String>,
}

impl Seen {
    /// Samples the machine of a monitor once.
    pub fn look(&mut self, monitor: u32) {
        let Some(&zygote) = tree::children(monitor).first() else {
            return;
        };
        // Before it executes the layer, it is a copy of the monitor.
        let Some(of_zygote) = Status::of(zygote) else {
            return;
        };
        if self.zygote.is_none() {
            self.zygote = Some(zygote);
            self.zygote_inside = inside(zygote);
        }
        for pid in tree::children(zygote) {
            let Some(status) = Status::of(pid) else {
                continue;
            };
            if status.zombie {
                continue;
            }
            let bare = self.spaces.entry(pid).or_insert(None);
            let confined = |s: &Status| s.filters > of_zygote.filters && s.no_new_privs;
            if confined(&status) {
                *bare = None;
                continue;
            }
            let (now, (ran, runs)) = (Instant::now(), activity(pid));
            let bare = bare.get_or_insert(Bare { idle: None });
            bare.idle = if runs { None } else { bare.idle.or(Some(now)) };
            let idle = bare.idle.map_or(Duration::ZERO, |since| now - since);
            // This program may have waited for a CPU since it read the status.
            let still = || Status::of(pid).is_some_and(|now| !now.zombie && !confined(&now));
            if (idle > GRACE || ran > WORK) && self.wrong.len() < 8 && still() {
                self.wrong.push(format!(
                    "process {pid} has no filter: it ran \
                    {ran:?}, and waits for {idle:?}: {status:?}"
                ));
            }
        }
    }

    /// Samples until `over` is set.
    pub fn watch(monitor: u32, over: &AtomicBool) -> Self {
        let mut seen = Seen::default();
        while !over.load(Ordering::Relaxed) {
            seen.look(monitor);
            std::thread::sleep(LOOK);
        }
        seen
    }

    /// Checks that nothing of the machine is left, and that this process, which adopts orphans, has
    /// no other children than these.
    pub fn nothing_is_left(&mut self, others: &[u32]) {
        let all: Vec<_> = self
            .zygote
            .into_iter()
            .chain(self.spaces.keys().copied())
            .collect();
        if let Err(left) = tree::wait_gone(&all) {
            self.wrong.push(left);
        }
        // A process that was just created has not been seen, and may need a moment to notice that
        // its parent has ended.
        let strangers = || {
            let all = tree::children(std::process::id()).into_iter();
            all.filter(|pid| !others.contains(pid)).collect::<Vec<_>>()
        };
        let deadline = Instant::now() + END;
        while !strangers().is_empty() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        for pid in strangers() {
            self.wrong
                .push(format!("process {pid} was left: {:?}", Status::of(pid)));
            tree::signal(pid, Signal::KILL);
        }
        collect(others);
    }
}

/// Waits for orphans that have ended, except these children.
fn collect(others: &[u32]) {
    let deadline = Instant::now() + END;
    while Instant::now() < deadline {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids: Vec<u32> = entries
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .collect();
        let mut more = false;
        for pid in pids.into_iter().filter(|pid| !others.contains(pid)) {
            if parent(pid) == Some(std::process::id()) {
                let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
                let ended = rustix::process::waitpid(id, rustix::process::WaitOptions::NOHANG);
                more |= matches!(ended, Ok(None));
            }
        }
        if !more {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// The id of a process in its innermost namespace.
fn inside(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}
