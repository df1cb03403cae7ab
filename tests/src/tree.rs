// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes of a virtual machine, as every user of the host sees them: monitor, zygote,
//! address spaces.

use crate::program::PATIENCE;
use crate::wait;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Resources of the host that one process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Mappings.
    pub maps: usize,
    /// KiB of page tables.
    pub page_tables: u64,
    /// KiB of private memory.
    pub private: u64,
    /// Descriptors; 0 if this user may not see them.
    pub files: usize,
}

/// The state of a process, such as `Z`, if there is one.
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    stat(pid).map(|(state, _)| state)
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// The children of a process that have not ended.
#[must_use]
pub fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| stat(pid).is_some_and(|(state, of)| of == parent && state != 'Z'))
        .collect()
}

/// The children of a process of one thread that have not ended, by the host's list of them. It does
/// not look at all processes of the host, as [`children`] does. The list can lack one while another
/// one ends.
#[must_use]
pub fn listed_children(parent: u32) -> Vec<u32> {
    let Ok(list) = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) else {
        // The process has ended, or this host has no such lists.
        return children(parent);
    };
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|&pid| state(pid).is_some_and(|state| state != 'Z'))
        .collect()
}

/// The address-space processes of a monitor's machine, empty before there are any.
#[must_use]
pub fn spaces(monitor: u32) -> Vec<u32> {
    children(monitor)
        .first()
        .map(|&zygote| children(zygote))
        .unwrap_or_default()
}

/// Monitor, zygote, address-space processes.
#[must_use]
pub fn everything(monitor: u32) -> Vec<u32> {
    let zygotes = children(monitor);
    let spaces = zygotes.iter().flat_map(|&zygote| children(zygote));
    [monitor]
        .into_iter()
        .chain(zygotes.clone())
        .chain(spaces)
        .collect()
}

/// Sends a signal. It is no error if the process has ended.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until all have ended.
///
/// # Errors
/// Which processes have not ended after five seconds.
pub fn wait_gone(pids: &[u32]) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        // A zombie has ended; its new parent may take its time.
        let lives = |pid: &&u32| state(**pid).is_some_and(|state| state != 'Z');
        let left: Vec<_> = pids.iter().filter(lives).collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("processes were left: {left:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a process uses now.
#[must_use]
pub fn figures(pid: u32) -> Option<Figures> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Figures {
        maps: fs::read_to_string(format!("/proc/{pid}/maps"))
            .ok()?
            .lines()
            .count(),
        page_tables: field(&status, "VmPTE")?,
        private: field(&status, "RssAnon")?,
        files: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
    })
}

/// KiB of page tables, and of private memory, of a process.
#[must_use]
pub fn overhead(pid: u32) -> Option<[u64; 2]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some([field(&status, "VmPTE")?, field(&status, "RssAnon")?])
}

fn field(status: &str, name: &str) -> Option<u64> {
    let rest = status
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The largest of each figure over time.
pub fn keep_largest(largest: &mut BTreeMap<u32, Figures>, pids: &[u32]) {
    for &pid in pids {
        let Some(now) = figures(pid) else { continue };
        let entry = largest.entry(pid).or_default();
        *entry = Figures {
            maps: entry.maps.max(now.maps),
            page_tables: entry.page_tables.max(now.page_tables),
            private: entry.private.max(now.private),
            files: entry.files.max(now.files),
        };
    }
}

/// Nanoseconds of CPU time that the threads of these processes have used.
#[must_use]
pub fn cpu_time(pids: &[u32]) -> u64 {
    schedule(pids, 0)
}

/// How often the host has given the threads of these processes a CPU.
#[must_use]
pub fn runs(pids: &[u32]) -> u64 {
    schedule(pids, 2)
}

/// Waits until these processes have used a processor for this time, from now on.
///
/// # Panics
/// When they do not within [`PATIENCE`].
pub fn wait_busy(pids: &[u32], time: Duration) {
    let wanted = cpu_time(pids) + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let what = format!("{time:?} of a processor for {pids:?}");
    wait::until(&what, PATIENCE, || cpu_time(pids) >= wanted);
}

/// Waits until these processes hardly use a processor.
///
/// # Panics
/// When they do not within [`PATIENCE`].
pub fn wait_idle(pids: &[u32]) {
    wait::until(&format!("idle: {pids:?}"), PATIENCE, || {
        let before = cpu_time(pids);
        std::thread::sleep(Duration::from_millis(200));
        cpu_time(pids).saturating_sub(before) < 5_000_000
    });
}

/// Sleeps for the given time, and wakes up once in each period. Returns the CPU time that the host
/// charges for a wake-up, in ns, on average. A virtual host can charge a millisecond: its own
/// hypervisor is slow to wake it up, and that counts as time of the thread that wakes up.
#[must_use]
pub fn bare_wake_up(time: Duration, period: Duration) -> u64 {
    let own = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let end = Instant::now() + time;
    let (before, mut count) = (own(), 0);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::sleep(left.min(period));
        count += 1;
    }
    u64::try_from((own() - before).as_nanos()).unwrap_or(u64::MAX) / count.max(1)
}

/// The sum of a field of all threads' `schedstat`.
fn schedule(pids: &[u32], field: usize) -> u64 {
    let tasks = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let files = tasks
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    files
        .filter_map(|text| text.split_whitespace().nth(field)?.parse::<u64>().ok())
        .sum()
}
