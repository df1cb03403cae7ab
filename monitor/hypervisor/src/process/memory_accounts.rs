// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimates what the processes of a machine take of the host's memory, at little cost.
//!
//! Reading every process's figures all the time would be too expensive. A process allocates only
//! while it runs, so its CPU time bounds its allocations. Therefore each pass reads only CPU times.
//! It then reads the figures of those processes that ran most, until the rest cannot matter.

use super::budget::{Budget, MAPPING};
use super::cpu_timer::CpuClock;
use super::procfs;
use std::io;
use std::time::{Duration, Instant};

/// The most host memory, in KiB, that a processor can turn into page tables or private memory in a
/// microsecond.
const KIB_PER_US: u64 = 4;
/// A processor needs at least this time for one mapping, in ns.
const NS_PER_MAPPING: u64 = 300;
/// The time for counting mappings in one pass.
const COUNTING: Duration = Duration::from_millis(20);
/// How far a machine may exceed its budget before that is detected, in KiB.
const SLACK: u64 = 128 << 10;

/// Where the figures of a process come from, by its host id.
#[derive(Debug)]
struct Figures {
    overhead: fn(u32) -> io::Result<u64>,
    mappings: fn(u32) -> io::Result<u64>,
}

/// The host's.
const HOST: Figures = Figures {
    overhead: procfs::overhead,
    mappings: procfs::mappings,
};

/// The accounts of all processes.
#[derive(Debug)]
pub struct Accounts {
    budget: Budget,
    figures: Figures,
    most_maps: u64,
    countable: bool,
    processes: Vec<Account>,
    /// Memory of the host kernel's structures in KiB: the minimum since all mappings were last
    /// counted.
    slab: u64,
}

#[derive(Debug)]
struct Account {
    pid: u32,
    clock: Option<CpuClock>,
    /// CPU time in ns: now, when the figures were last read, when mappings were last counted.
    cpu: u64,
    looked: u64,
    counted: u64,
    /// Page tables and private memory in KiB.
    kib: u64,
    maps: u64,
}

impl Account {
    fn unseen(&self) -> u64 {
        self.cpu - self.looked
    }

    /// The most mappings that the process can have created since they were counted.
    fn uncertain(&self, most: u64) -> u64 {
        ((self.cpu - self.counted) / NS_PER_MAPPING).min(most.saturating_sub(self.maps))
    }
}

impl Accounts {
    /// Accounts without processes. `most_maps` is the number of mappings that the host allows each
    /// process; `countable` says whether the host lets the monitor count them.
    pub fn new(budget: Budget, most_maps: u64, countable: bool) -> Self {
        Accounts {
            budget: if countable {
                budget
            } else {
                budget.uncounted(most_maps)
            },
            figures: HOST,
            most_maps,
            countable,
            processes: Vec::new(),
            slab: slab().unwrap_or(0),
        }
    }

    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Adds a process. Returns its CPU clock.
    pub fn add(&mut self, pid: u32) -> Option<CpuClock> {
        let clock = CpuClock::of(pid).ok();
        self.processes.push(Account {
            pid,
            clock,
            cpu: 0,
            looked: 0,
            counted: 0,
            kib: 0,
            maps: if self.countable { 0 } else { self.most_maps },
        });
        clock
    }

    /// Reads the CPU times. Returns their growth since the last call in ns.
    pub fn read_times(&mut self) -> u64 {
        let mut used = 0;
        for process in &mut self.processes {
            // A process that has ended has no memory. Without a clock, a process counts as always
            // busy.
            let now = match process.clock {
                Some(clock) => clock.read().unwrap_or(process.cpu),
                None => process.cpu + 10_000_000,
            };
            used += now.saturating_sub(process.cpu);
            process.cpu = now.max(process.cpu);
        }
        used
    }

    /// The known memory of all processes in KiB.
    fn known(&self) -> u64 {
        self.processes
            .iter()
            .map(|p| p.kib + (p.maps * MAPPING >> 10))
            .sum()
    }

    /// The CPU time in ns that may pass before figures are read again: enough for the rest of the
    /// budget and some more.
    pub fn allowance(&self) -> u64 {
        let limit = self.budget.machine(self.processes.len()) + SLACK;
        limit.saturating_sub(self.known()).max(SLACK / 2) / KIB_PER_US * 1000
    }

    /// Reads the figures of the processes that matter.
    ///
    /// # Errors
    /// Which budget is exceeded.
    pub fn audit(&mut self) -> Result<(), String> {
        let mut unseen: u64 = self.processes.iter().map(Account::unseen).sum();
        let mut order: Vec<usize> = Vec::new();
        if unseen > self.allowance() / 2 {
            order.extend(0..self.processes.len());
            order.sort_by_key(|&i| std::cmp::Reverse(self.processes[i].unseen()));
        }
        for index in order {
            if unseen <= self.allowance() / 4 {
                break;
            }
            let process = &mut self.processes[index];
            process.kib = match (self.figures.overhead)(process.pid) {
                Ok(kib) => kib,
                Err(error) => return self.unread(&error),
            };
            unseen -= process.unseen();
            process.looked = process.cpu;
            if process.kib > self.budget.process {
                return Err(format!(
                    "one address space takes {} MiB of the host's page tables and private memory, \
                         the budget is {} MiB",
                    process.kib >> 10,
                    self.budget.process >> 10
                ));
            }
            self.check()?;
        }
        self.audit_mappings()
    }

    /// Decides without the figures of a process, because the host has not given them. The process
    /// is assumed to have taken what its CPU time allows.
    fn unread(&self, error: &io::Error) -> Result<(), String> {
        let unseen: u64 = self.processes.iter().map(Account::unseen).sum();
        let most = self.known() + unseen / 1000 * KIB_PER_US;
        let limit = self.budget.machine(self.processes.len()) + SLACK;
        self.unless(most > limit, error)
    }

    /// Returns the error if the machine can be over its budget.
    fn unless(&self, over: bool, error: &io::Error) -> Result<(), String> {
        if !over {
            tracing::debug!(%error, "the figures of a process cannot be read");
            return Ok(());
        }
        Err(format!(
            "the host does not tell how much of its memory the address spaces take ({error}), and \
             they may take more than the budget of {} MiB",
            self.budget.machine(self.processes.len()) >> 10
        ))
    }

    fn check(&self) -> Result<(), String> {
        let (known, limit) = (self.known(), self.budget.machine(self.processes.len()));
        if known <= limit {
            return Ok(());
        }
        let maps: u64 = self.processes.iter().map(|p| p.maps * MAPPING >> 10).sum();
        Err(format!(
            "its address spaces take {} MiB of the host's page tables and private memory \
             and {} MiB for mappings, the budget is {} MiB",
            known - maps >> 10,
            maps >> 10,
            limit >> 10
        ))
    }

    /// The host publishes the number of a process's mappings only as a list of all of them. So
    /// first an upper bound is computed: from CPU times, and from the growth of the host kernel's
    /// memory where that can be read.
    fn audit_mappings(&mut self) -> Result<(), String> {
        let slab = slab();
        let (start, mut counted) = (Instant::now(), false);
        // Measured from the minimum: memory that other programs release must not hide what this
        // machine takes.
        self.slab = self.slab.min(slab.unwrap_or(0));
        loop {
            let uncertain: u64 = self
                .processes
                .iter()
                .map(|p| p.uncertain(self.most_maps))
                .sum();
            let grown = slab.map_or(u64::MAX, |now| now.saturating_sub(self.slab));
            let can_be = (uncertain * MAPPING >> 10).min(grown);
            let (all, limit) = (
                self.known() + can_be,
                self.budget.machine(self.processes.len()),
            );
            // One process at a time before the limit matters. The rest follows in the next pass,
            // because page tables could grow during the count.
            let time = if all > limit {
                COUNTING
            } else {
                Duration::ZERO
            };
            if all <= limit / 2 || (counted && start.elapsed() > time) {
                return Ok(());
            }
            let most = self.most_maps;
            let Some(process) = self.processes.iter_mut().max_by_key(|p| p.uncertain(most)) else {
                return Ok(());
            };
            if process.uncertain(most) == 0 {
                // Everything is known: the host kernel's growth counts from here.
                self.slab = slab.unwrap_or(0);
                return Ok(());
            }
            process.maps = match (self.figures.mappings)(process.pid) {
                Ok(maps) => maps,
                Err(error) => return self.unless(all > limit, &error),
            };
            process.counted = process.cpu;
            counted = true;
            self.check()?;
        }
    }
}

/// Memory in KiB of the host kernel's structures that cannot be reclaimed; `None` where the host
/// does not publish it.
fn slab() -> Option<u64> {
    procfs::field(&procfs::text("/proc/meminfo")?, "SUnreclaim").filter(|&kib| kib > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    struct Busy(Child);

    impl Busy {
        fn new() -> Self {
            let mut command = Command::new("sh");
            command
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null());
            Busy(command.spawn().unwrap())
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_with_cpu_time_is_checked() {
        let busy = Busy::new();
        let mut accounts = Accounts::new(Budget::new(256 << 20, 1), 65530, true);
        accounts.add(busy.0.id()).unwrap();
        let mut used = 0;
        while used < accounts.allowance() {
            std::thread::sleep(std::time::Duration::from_millis(5));
            used += accounts.read_times();
            if used < accounts.allowance() / 4 {
                accounts.audit().unwrap();
                assert_eq!(accounts.processes[0].kib, 0, "not yet");
            }
        }
        accounts.audit().unwrap();
        assert!(accounts.processes[0].kib > 0);
        assert_eq!(accounts.processes[0].unseen(), 0);
    }

    /// Accounts of a machine with this memory and nothing unknown.
    fn known(kib: u64, maps: u64, count: usize) -> Accounts {
        let mut accounts = Accounts::new(Budget::new(256 << 20, 1), 65530, true);
        for _ in 0..count {
            accounts.add(std::process::id());
            let process = accounts.processes.last_mut().unwrap();
            (process.kib, process.maps) = (kib, maps);
        }
        accounts
    }

    #[test]
    fn all_kinds_count_together() {
        assert!(known(10 << 10, 10_000, 8).check().is_ok());
        let why = known(40 << 10, 1000, 8).check().unwrap_err();
        assert!(
            why.contains("take 320 MiB") && why.ends_with("the budget is 173 MiB"),
            "{why}"
        );
        let why = known(1 << 10, 65_000, 30).check().unwrap_err();
        assert!(why.contains("and 476 MiB for mappings"), "{why}");
    }

    /// A guest may find a way to have the monitor's descriptors used up.
    #[test]
    fn what_cannot_be_read_counts_as_taken() {
        let refuse = |_| Err(io::Error::from_raw_os_error(libc::EMFILE));
        let mut accounts = known(1 << 10, 0, 2);
        accounts.figures = Figures {
            overhead: refuse,
            mappings: refuse,
        };
        let limit = accounts.budget.machine(2) + SLACK;
        let time = (limit - accounts.known()) / KIB_PER_US * 1000;
        accounts.processes[0].cpu = time - 1_000_000;
        accounts.audit().unwrap();
        assert_eq!(accounts.processes[0].looked, 0, "it is looked at again");
        accounts.processes[1].cpu = 2_000_000;
        let why = accounts.audit().unwrap_err();
        assert!(why.contains("Too many open files"), "{why}");
        // The lists of mappings alone.
        let mut accounts = known(1 << 10, 0, 20);
        (accounts.figures.mappings, accounts.slab) = (refuse, 0);
        for process in &mut accounts.processes {
            process.cpu = 60_000_000;
            process.looked = process.cpu;
        }
        accounts.processes[0].kib = accounts.budget.machine(20) - accounts.known();
        let why = accounts.audit().unwrap_err();
        assert!(why.contains("Too many open files"), "{why}");
    }

    #[test]
    fn the_nearer_the_budget_the_closer_the_look() {
        let far = known(1 << 10, 0, 4).allowance();
        let near = known(39 << 10, 0, 4).allowance();
        assert!(far > near && near >= 15_000_000, "{far} {near}");
        assert!(near * KIB_PER_US / 1000 <= SLACK + (16 << 10));
    }

    #[test]
    fn where_mappings_cannot_be_counted_they_are_taken_for_granted() {
        let budget = Budget::new(256 << 20, 1);
        let mut accounts = Accounts::new(budget, 65530, false);
        accounts.add(std::process::id());
        assert_eq!(accounts.known(), 65530 / 4);
        accounts.processes[0].cpu = 60_000_000;
        assert_eq!(accounts.processes[0].uncertain(65530), 0);
        accounts.audit_mappings().unwrap();
    }

    #[test]
    fn mappings_are_counted_when_there_could_be_too_many() {
        let mut accounts = known(0, 0, 20);
        accounts.audit_mappings().unwrap();
        assert!(accounts.processes.iter().all(|p| p.maps == 0));
        for process in &mut accounts.processes {
            process.cpu = 60_000_000;
        }
        // As if the host kernel's memory had grown from nothing.
        accounts.slab = 0;
        if slab().is_some_and(|kib| kib < 400 << 10) {
            accounts.processes[0].kib = 200 << 10;
        }
        accounts.audit_mappings().unwrap();
        assert!(accounts.processes.iter().any(|p| p.maps > 10));
    }
}
