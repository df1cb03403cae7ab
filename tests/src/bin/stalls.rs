// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the host beside tests that wait for too long: which threads want a processor, or are in
//! a call that no signal ends, and have not run for some seconds?
//!
//!     cargo run --release --package paravane-tests --bin stalls -- [SECONDS]
//!
//! It prints threads in groups, until it is ended: how many, their state (R: ready, D: in such a
//! call), name, processor, the group of their session for the host's scheduler (autogroup), the
//! longest time that one of them has not run, and the innermost functions of the host's kernel,
//! which only root may see. It cannot distinguish a thread that has ended in between from one that
//! has run.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(300);
/// Between two reports.
const REPORT: Duration = Duration::from_secs(2);
/// Functions of a stack that are printed.
const FUNCTIONS: usize = 3;

fn main() -> io::Result<()> {
    let seconds = env::args().nth(1).map_or(Ok(2.0), |text| text.parse());
    let Some(limit) = seconds
        .ok()
        .and_then(|all| Duration::try_from_secs_f64(all).ok())
    else {
        eprintln!("stalls: the argument is a number of seconds");
        std::process::exit(2);
    };
    let mut output = io::stdout();
    let mut still = HashMap::new();
    let mut told = Instant::now();
    loop {
        let before = Instant::now();
        thread::sleep(LOOK);
        let late = before.elapsed().saturating_sub(LOOK);
        if late > limit {
            let late = late.as_secs_f64();
            writeln!(output, "{}: this program was {late:.1} s late", now())?;
        }
        still = look(&still);
        let stalled: Vec<_> = still.values().filter(|one| one.time() >= limit).collect();
        if !stalled.is_empty() && told.elapsed() >= REPORT {
            told = Instant::now();
            report(&stalled, &mut output)?;
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

    /// What is printed of it. Threads with the same text are one group.
    fn text(&self) -> String {
        let read = |name| fs::read_to_string(format!("{}/{name}", self.folder)).unwrap_or_default();
        // The group is one of the process, two folders above.
        let (group, stack) = (read("../../autogroup"), read("stack"));
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
            one.since = since(before, &one);
            all.insert(one.folder.clone(), one);
        }
    }
    all
}

/// Since when a thread does not run: since the previous look, or an earlier one, if it has not run
/// since.
fn since(before: &HashMap<String, Still>, one: &Still) -> Instant {
    let same = before.get(&one.folder).filter(|old| old.run == one.run);
    same.map_or(one.since, |old| old.since)
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
    let (state, name, processor) = state_of(&stat)?;
    let times = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    Some(Still {
        state,
        name: name.to_string(),
        processor: processor.to_string(),
        run: times.split(' ').next()?.parse().ok()?,
        since: Instant::now(),
        folder,
    })
}

/// State, name and processor in a line of /proc/PID/stat: `17 (NAME) STATE ...`. The processor is
/// the 37th word after the name. `None`: the thread sleeps, or is otherwise not of interest.
fn state_of(stat: &str) -> Option<(char, &str, &str)> {
    // A name may have any character in it.
    let (start, rest) = stat.rsplit_once(") ")?;
    let state = rest.chars().next()?;
    let processor = rest.split(' ').nth(36)?;
    "RD".contains(state)
        .then_some((state, start.split_once(" (")?.1, processor))
}

/// Prints the groups, the largest first.
fn report(stalled: &[&Still], output: &mut impl Write) -> io::Result<()> {
    let mut groups: BTreeMap<String, (usize, Duration)> = BTreeMap::new();
    for one in stalled {
        let (count, longest) = groups.entry(one.text()).or_default();
        *count += 1;
        *longest = one.time().max(*longest);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    writeln!(output, "{}: {} threads do not run", now(), stalled.len())?;
    for (text, (count, longest)) in groups {
        let longest = longest.as_secs_f64();
        writeln!(output, "{count:5} for {longest:5.1} s: {text}")?;
    }
    Ok(())
}

/// The time since the host started, in seconds, as in the kernel's log.
fn now() -> String {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    uptime.split(' ').next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_do_not_sleep_are_found() {
        let rest = " 0".repeat(35) + " 7 0";
        for (state, found) in [('R', true), ('D', true), ('S', false), ('Z', false)] {
            let stat = format!("17 (a (b) R c) {state}{rest}");
            let wanted = found.then_some((state, "a (b) R c", "7"));
            assert_eq!(state_of(&stat), wanted, "{stat}");
        }
        assert_eq!(state_of("17 (a) R 1"), None);
    }

    /// A thread that runs has not stood still, and one that does not run has since it was seen.
    #[test]
    fn time_goes_on_while_a_thread_does_not_run() {
        let still = |run, since| Still {
            state: 'R',
            name: String::new(),
            processor: String::new(),
            run,
            since,
            folder: "/proc/1/task/1".to_string(),
        };
        let early = Instant::now();
        let before = HashMap::from([("/proc/1/task/1".to_string(), still(5, early))]);
        thread::sleep(Duration::from_millis(1));
        assert_eq!(since(&before, &still(5, Instant::now())), early);
        assert!(since(&before, &still(6, Instant::now())) > early);
        assert!(since(&HashMap::new(), &still(5, Instant::now())) > early);
    }
}
