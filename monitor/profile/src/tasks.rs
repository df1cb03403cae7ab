// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What /proc says of the machine's threads and of the monitor's.

use paravane_user_io::text;
use std::fs;
use std::io;

/// Longest name of a thread.
const MAX_NAME: usize = 32;

/// The time of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// The time for which it was ready to run and had no CPU, in nanoseconds; 0 where the host does
    /// not count it.
    pub ready_ns: u64,
    /// CPU time in the host's user mode, in ticks.
    pub user: u64,
    /// CPU time in the host's kernel, in ticks.
    pub system: u64,
}

impl Times {
    /// What was added since `before`.
    pub fn since(self, before: Times) -> Self {
        Times {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            ready_ns: self.ready_ns.saturating_sub(before.ready_ns),
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }

    /// The sum of both.
    pub fn plus(self, other: Times) -> Self {
        Times {
            cpu_ns: self.cpu_ns.saturating_add(other.cpu_ns),
            ready_ns: self.ready_ns.saturating_add(other.ready_ns),
            user: self.user.saturating_add(other.user),
            system: self.system.saturating_add(other.system),
        }
    }
}

/// The ids of a process's threads, in the order in which they were made. In a machine's process
/// thread n belongs to vCPU n.
///
/// # Errors
/// The process has ended, or is hidden.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        all.extend(
            task?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok()),
        );
    }
    Ok(all)
}

/// The parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    u32::try_from(field(&stat, 1)?).ok()
}

/// The times of a thread; `None` if it has ended.
pub fn times(pid: u32, tid: u32) -> Option<Times> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    let (user, system) = (field(&stat, 11)?, field(&stat, 12)?);
    let scheduled = fs::read_to_string(format!("{folder}/schedstat")).ok();
    let (cpu_ns, ready_ns) = scheduled
        .and_then(|text| schedstat(&text))
        // Without scheduler statistics: ticks of a hundredth of a second.
        .unwrap_or((user.saturating_add(system).saturating_mul(10_000_000), 0));
    Some(Times {
        cpu_ns,
        ready_ns,
        user,
        system,
    })
}

/// A text that changes when a thread gets a CPU, if it is ready or runs; `None` if it sleeps.
pub fn ready(pid: u32, tid: u32) -> Option<String> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    if !rest.trim_start().starts_with('R') {
        return None;
    }
    fs::read_to_string(format!("{folder}/schedstat")).ok()
}

/// The name of a thread, as text.
pub fn name(pid: u32, tid: u32) -> Option<String> {
    let raw = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(text::clean(&raw).chars().take(MAX_NAME).collect())
}

/// The host counts for how long a thread is ready and has no CPU.
pub fn host_counts_ready() -> bool {
    fs::read_to_string("/proc/self/schedstat").is_ok_and(|text| schedstat(&text).is_some())
}

/// A number of a stat file, counted from the field after the name. The name may contain anything.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number)?.parse().ok()
}

/// CPU time and ready time.
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_anything() {
        let stat = "7 (a) R 1 2) S 42 7 7 0 -1 4 0 0 0 0 12 34 0 0 20 0 1 0";
        assert_eq!(field(stat, 1), Some(42));
        assert_eq!((field(stat, 11), field(stat, 12)), (Some(12), Some(34)));
        assert_eq!(field("7 (a) S", 1), None);
        assert_eq!(field("", 1), None);
    }

    #[test]
    fn own_threads() {
        let me = std::process::id();
        let all = threads(me).unwrap();
        assert_eq!(
            all.first(),
            Some(&me),
            "the first thread has the process's id"
        );
        assert!(parent(me).is_some_and(|parent| parent != me));
        assert!(name(me, me).is_some_and(|name| !name.is_empty()));
        let before = times(me, me).unwrap();
        assert_eq!(before.since(before), Times::default());
        assert_eq!(before.plus(Times::default()), before);
        // A thread that asks runs.
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        assert!(ready(me, tid).is_some() && ready(0, 0).is_none());
        assert!(threads(0).is_err() && times(0, 0).is_none() && parent(0).is_none());
    }

    #[test]
    fn differences_are_never_negative() {
        let (a, b) = (
            Times {
                cpu_ns: 5,
                ready_ns: 1,
                user: 2,
                system: 3,
            },
            Times {
                cpu_ns: 9,
                ready_ns: 4,
                user: 2,
                system: 7,
            },
        );
        assert_eq!(
            b.since(a),
            Times {
                cpu_ns: 4,
                ready_ns: 3,
                user: 0,
                system: 4
            }
        );
        assert_eq!(a.since(b), Times::default());
    }

    #[test]
    fn scheduler_statistics() {
        assert_eq!(schedstat("12 34 5\n"), Some((12, 34)));
        assert_eq!(schedstat("12"), None);
        assert_eq!(schedstat(""), None);
    }
}
