// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the host beside tests that wait for too long: which threads want a processor, or are in
//! a call that no signal ends, and have not run for some seconds?
//!
//!     cargo run --release --package paravane-tests --bin stalls -- [SECONDS]
//!
//! It prints threads in groups, until it is ended: how many, their state (R: ready, D: in such a
//! call), name, processor, the group of their session for the host's scheduler (autogroup), the
//! longest time that one of them has not run, and the innermost functions of the host's kernel,
//! which only root may see. One that has died in between is not told from one that has run.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(300);
/// Between two reports.
const REPORT: Duration = Duration::from_secs(2);
/// Functions of a stack that are told.
const FUNCTIONS: usize = 3;

fn main() {
    let seconds = env::args().nth(1).map_or(Ok(2.0), |text| text.parse());
    let Some(limit) = seconds
        .ok()
        .and_then(|all| Duration::try_from_secs_f64(all).ok())
    else {
        eprintln!("stalls: the argument is a number of seconds");
        std::process::exit(2);
    };
    let mut still = HashMap::new();
    let mut told = Instant::now();
    loop {
        let before = Instant::now();
        thread::sleep(LOOK);
        let late = before.elapsed().saturating_sub(LOOK);
        if late > limit {
            println!(
                "{}: this program was {:.1} s late",
                now(),
                late.as_secs_f64()
            );
        }
        still = look(&still);
        let stalled: Vec<_> = still.values().filter(|one| one.time() >= limit).collect();
        if !stalled.is_empty() && told.elapsed() >= REPORT {
            told = Instant::now();
            report(&stalled);
        }
    }
}

/// A thread that does not run.
struct Still {
    state: char,
    name: String,
    processor: String,
    /// Nanoseconds that it has run.
    run: u64,
    since: Instant,
    /// Its folder in /proc.
    folder: String,
}

impl Still {
    fn time(&self) -> Duration {
        self.since.elapsed()
    }

    /// What is told of it. Threads of which the same is told are one group.
    fn text(&self) -> String {
        let read = |name| fs::read_to_string(format!("{}/{name}", self.folder)).unwrap_or_default();
        let (group, stack) = (read("autogroup"), read("stack"));
        let group = group.split_whitespace().next().unwrap_or("no group");
        // [<0>] futex_do_wait+0x46/0x90
        let calls = stack
            .lines()
            .filter_map(|line| line.split([' ', '+']).nth(1));
        let calls: Vec<&str> = calls.take(FUNCTIONS).collect();
        let Still {
            state,
            name,
            processor,
            ..
        } = self;
        let calls = calls.join(" < ");
        format!("{state} {name}, processor {processor}, {group}, {calls}")
    }
}

/// The threads that want to run, or cannot be woken, and since when they do not run.
fn look(before: &HashMap<String, Still>) -> HashMap<String, Still> {
    let mut all = HashMap::new();
    for process in folders(Path::new("/proc")) {
        for folder in folders(&Path::new(&process).join("task")) {
            let Some(mut one) = thread_of(folder) else {
                continue;
            };
            let same = before.get(&one.folder).filter(|old| old.run == one.run);
            one.since = same.map_or(one.since, |old| old.since);
            all.insert(one.folder.clone(), one);
        }
    }
    all
}

/// What is in a folder with a number for its name.
fn folders(parent: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path().to_str()?.to_string();
        let name = path.rsplit('/').next()?;
        name.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(path)
    })
}

/// A thread, if it is ready or cannot be woken.
fn thread_of(folder: String) -> Option<Still> {
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    // 17 (NAME) STATE ...; the processor is the 37th word after the name.
    let (start, rest) = stat.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let state = words
        .first()?
        .chars()
        .next()
        .filter(|state| "RD".contains(*state))?;
    let times = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    Some(Still {
        state,
        name: start.split_once(" (")?.1.to_string(),
        processor: (*words.get(36)?).to_string(),
        run: times.split(' ').next()?.parse().ok()?,
        since: Instant::now(),
        folder,
    })
}

/// Prints the groups, the largest first.
fn report(stalled: &[&Still]) {
    let mut groups: BTreeMap<String, (usize, Duration)> = BTreeMap::new();
    for one in stalled {
        let (count, longest) = groups.entry(one.text()).or_default();
        *count += 1;
        *longest = one.time().max(*longest);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    println!("{}: {} threads do not run", now(), stalled.len());
    for (text, (count, longest)) in groups {
        println!("{count:5} for {:5.1} s: {text}", longest.as_secs_f64());
    }
}

/// The time since the host started, in seconds, as in the kernel's log.
fn now() -> String {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    uptime.split(' ').next().unwrap_or_default().to_string()
}
