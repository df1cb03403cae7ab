// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many address-space processes a machine may have on this host.
//!
//! The process pool is a cache of address spaces and as large as the host allows. A guest with more
//! live processes than that pays with flushed spaces, not with an error.

use super::procfs;
use paravane_abi::process as ph;
use std::fmt;
use std::fs;
use std::path::Path;

/// Tasks that are left to others under the same limit: this many, or a share of the limit.
const TASKS_LEFT: u64 = 32;
const TASKS_SHARE: u64 = 8;
/// The zygote and the monitor's threads for one machine.
const OWN_TASKS: u64 = 8;
/// The share of the host's available memory that the processes of one machine can take if the guest
/// is hostile.
const MEMORY_SHARE: u64 = 4;

/// A limit and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Processes or threads that can still be created, or KiB.
    pub left: u64,
    /// The limit's origin, for messages.
    pub source: String,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.left, self.source)
    }
}

/// The limits on tasks (processes and threads) that this program can create.
pub fn tasks() -> Vec<Limit> {
    let mut limits = Vec::new();
    for folder in procfs::groups("pids") {
        if let Some(max) = procfs::number(folder.join("pids.max")) {
            let current = procfs::number(folder.join("pids.current")).unwrap_or(0);
            limits.push(Limit {
                left: max.saturating_sub(current),
                source: "pids.max".to_string(),
            });
        }
    }
    if let Some(max) = user_limit() {
        limits.push(Limit {
            left: max.saturating_sub(tasks_of_user()),
            source: "RLIMIT_NPROC".to_string(),
        });
    }
    for name in ["threads-max", "pid_max"] {
        if let Some(max) = procfs::number(Path::new("/proc/sys/kernel").join(name)) {
            // Half: other programs need some, and the number in use cannot be read cheaply.
            limits.push(Limit {
                left: max / 2,
                source: format!("kernel.{name}"),
            });
        }
    }
    limits
}

/// The limits on the host's available memory in KiB.
pub fn memory() -> Vec<Limit> {
    let mut limits = Vec::new();
    if let Some(kib) = procfs::text("/proc/meminfo").and_then(|t| procfs::field(&t, "MemAvailable"))
    {
        limits.push(Limit {
            left: kib,
            source: "MemAvailable".to_string(),
        });
    }
    limits.extend(groups_of_memory().into_iter().map(|(max, current)| Limit {
        left: max.saturating_sub(current) >> 10,
        source: "memory.max".to_string(),
    }));
    limits
}

/// The least memory in bytes that this program's control groups may have; `None` without a limit.
pub fn memory_of_groups() -> Option<u64> {
    groups_of_memory().into_iter().map(|(max, _)| max).min()
}

/// The limit and the use, in bytes, of each control group that has a limit.
fn groups_of_memory() -> Vec<(u64, u64)> {
    let groups = procfs::groups("memory").into_iter();
    let of = |folder: &Path, v2: &str, v1: &str| {
        procfs::number(folder.join(v2)).or_else(|| procfs::number(folder.join(v1)))
    };
    groups
        .filter_map(|folder| {
            let max = of(&folder, "memory.max", "memory.limit_in_bytes")?;
            let current = of(&folder, "memory.current", "memory.usage_in_bytes");
            Some((max, current.unwrap_or(0)))
        })
        .collect()
}

/// The largest number of processes that these limits allow a machine with this many vCPUs, if each
/// process can take `each` KiB; and which limit decides.
pub fn processes(vcpus: u64, each: u64, tasks: &[Limit], memory: &[Limit]) -> Limit {
    let by_tasks = tasks.iter().map(|limit| Limit {
        left: limit
            .left
            .saturating_sub(TASKS_LEFT.min(limit.left / TASKS_SHARE) + OWN_TASKS)
            / vcpus.max(1),
        source: limit.source.clone(),
    });
    let by_memory = memory.iter().map(|limit| Limit {
        left: limit.left / MEMORY_SHARE / each.max(1),
        source: limit.source.clone(),
    });
    let own = Limit {
        left: ph::PHV_MAX_PROCS,
        source: "the monitor's table".to_string(),
    };
    by_tasks.chain(by_memory).fold(own, |least, limit| {
        if limit.left < least.left {
            limit
        } else {
            least
        }
    })
}

/// The number of mappings that a process may have.
pub fn mappings() -> u32 {
    /// The default since Linux 2.6.
    const USUAL: u32 = 65530;
    let max = procfs::number("/proc/sys/vm/max_map_count").unwrap_or(USUAL.into());
    u32::try_from(max).unwrap_or(u32::MAX)
}

/// `RLIMIT_NPROC`, for users that it binds.
fn user_limit() -> Option<u64> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    rustix::process::getrlimit(rustix::process::Resource::Nproc).current
}

/// The number of this user's tasks.
fn tasks_of_user() -> u64 {
    let uid = u64::from(rustix::process::getuid().as_raw());
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    let names = entries.flatten().filter(|e| {
        e.file_name()
            .as_encoded_bytes()
            .iter()
            .all(u8::is_ascii_digit)
    });
    let status = names.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    status
        .filter(|s| procfs::field(s, "Uid") == Some(uid))
        .filter_map(|s| procfs::field(&s, "Threads"))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(left: u64) -> Limit {
        Limit {
            left,
            source: format!("test {left}"),
        }
    }

    #[test]
    fn the_least_decides() {
        let with = |vcpus, tasks, kib| processes(vcpus, 1000, &[limit(tasks)], &[limit(kib)]).left;
        assert_eq!(with(1, 1 << 20, 1 << 40), ph::PHV_MAX_PROCS);
        assert_eq!(with(4, 512, 1 << 40), (512 - 40) / 4);
        assert_eq!(with(4, 10, 1 << 40), 0);
        assert_eq!(with(1, 1 << 20, 4 * 1000 * 10), 10);
        assert_eq!(processes(2, 1, &[], &[]).left, ph::PHV_MAX_PROCS);
        assert_eq!(
            processes(1, 1, &[limit(50), limit(60)], &[]).source,
            "test 50"
        );
    }

    #[test]
    fn this_host_has_room_for_something() {
        assert!(tasks_of_user() > 0);
        assert!(mappings() > 1000);
        assert!(processes(1, 4096, &tasks(), &memory()).left >= 2);
    }
}
