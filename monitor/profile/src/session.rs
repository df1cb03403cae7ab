// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One look at a running machine, from its begin to its end.

use crate::perf::{Perf, Scope};
use crate::report::{self, Report, Watched};
use crate::tally::{Books, Tally};
use crate::tasks::{self, Times};
use anyhow::{Context, bail};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, Instant};

/// The longest wait for a thread that is ready, at each end of a session.
const SETTLED: Duration = Duration::from_millis(500);
/// Interval between two looks at it.
const STEP: Duration = Duration::from_millis(2);

/// The source of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Samples where the host allows them, else counters.
    Auto,
    /// Samples by perf.
    Perf,
    /// The host's accounting of each thread.
    Counters,
}

/// The machine that is watched.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// The process id of its monitor.
    pub monitor: u32,
    /// The number of its vCPUs.
    pub vcpus: usize,
    /// The functions of its kernel and layer. The host's are added.
    pub books: Books,
    /// What is missing, for the report.
    pub notes: Vec<String>,
}

/// Process id and thread id.
type Id = (u32, u32);

/// A machine that is being watched.
#[derive(Debug)]
pub struct Session {
    subject: Subject,
    perf: Option<Perf>,
    /// The vCPU of each thread of the machine.
    threads: HashMap<Id, usize>,
    before: HashMap<Id, Times>,
    /// Threads of the monitor, and the parent of the machine's processes.
    helpers: BTreeMap<Id, (String, Times)>,
    tallies: Vec<Tally>,
    begun: Instant,
    /// When perf began to count.
    counting: Instant,
}

impl Session {
    /// Begins to watch a machine with these processes. `frequency` is in samples for each second of
    /// CPU time, see [`crate::FREQUENCIES`].
    ///
    /// # Errors
    /// The processes are hidden, or `source` is perf and the host does not allow it.
    pub fn begin(
        mut subject: Subject,
        processes: &[u32],
        source: Source,
        frequency: u32,
    ) -> anyhow::Result<Self> {
        let threads = machine_threads(&subject, processes);
        if threads.is_empty() {
            bail!(
                "machine {}: its processes cannot be seen from here: they are in another PID \
                 namespace, or /proc hides them",
                subject.name
            );
        }
        let tids: Vec<u32> = threads.keys().map(|(_, tid)| *tid).collect();
        let perf = match source {
            Source::Counters => None,
            Source::Auto | Source::Perf => match Perf::open(&tids, frequency) {
                Ok(perf) => Some(perf),
                Err(error) if source == Source::Perf => {
                    return Err(error).with_context(|| {
                        format!(
                            "machine {}: perf may not be used{}",
                            subject.name,
                            paranoid()
                        )
                    });
                }
                Err(error) => {
                    subject.notes.push(format!(
                        "perf may not be used{}: {error}. Guest programs, guest kernel and layer \
                         are not told apart",
                        paranoid()
                    ));
                    None
                }
            },
        };
        if source == Source::Counters {
            subject.notes.push(
                "from the host's accounting: guest programs, guest kernel and layer are not told \
                 apart"
                    .to_string(),
            );
        }
        subject.notes_of(perf.as_ref());
        if !tasks::host_counts_ready() {
            subject
                .notes
                .push("this host does not count the time without a CPU".to_string());
        }
        settle(&threads, || {});
        let now = Instant::now();
        let mut session = Session {
            tallies: vec![Tally::default(); subject.vcpus],
            helpers: helper_threads(subject.monitor, processes),
            before: times_of(&threads),
            threads,
            subject,
            perf,
            begun: now,
            counting: now,
        };
        if let Some(perf) = &mut session.perf {
            session.counting = Instant::now();
            perf.start().context("perf does not start")?;
        }
        Ok(session)
    }

    /// Takes what has been sampled so far. Must be called every [`crate::DRAIN`].
    pub fn drain(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        self.drain_of(&threads);
        self.threads = threads;
    }

    fn drain_of(&mut self, threads: &HashMap<Id, usize>) {
        let Some(perf) = &mut self.perf else {
            return;
        };
        let (tallies, books) = (&mut self.tallies, &self.subject.books);
        perf.drain(|hit| {
            let vcpu = threads.get(&hit.thread);
            if let Some(tally) = vcpu.and_then(|&vcpu| tallies.get_mut(vcpu)) {
                tally.add(hit, books);
            }
        });
    }

    /// Watches these processes. Those that are watched already stay. If the host refuses to sample
    /// a new one, the report says so.
    pub fn follow(&mut self, processes: &[u32]) {
        let new: Vec<u32> = processes
            .iter()
            .copied()
            .filter(|pid| !self.threads.contains_key(&(*pid, *pid)))
            .collect();
        let threads = machine_threads(&self.subject, &new);
        if let Some(perf) = &mut self.perf {
            if let Err(error) = perf.follow(threads.keys().map(|(_, tid)| *tid)) {
                let note = format!("perf cannot watch all new processes: {error}");
                if !self.subject.notes.contains(&note) {
                    self.subject.notes.push(note);
                }
            }
        }
        self.threads.extend(threads);
    }

    /// Ends it. The processes are those of [`Session::follow`], at this moment. `top` limits the
    /// length of each list of functions.
    ///
    /// # Errors
    /// perf does not stop.
    pub fn end(mut self, processes: &[u32], top: usize) -> anyhow::Result<Report> {
        let threads = std::mem::take(&mut self.threads);
        settle(&threads, || self.drain_of(&threads));
        self.threads = threads;
        let mut counted = Duration::ZERO;
        if let Some(perf) = &mut self.perf {
            perf.stop().context("perf does not stop")?;
            counted = self.counting.elapsed();
        }
        self.follow(processes);
        self.drain();
        let after = times_of(&self.threads);
        let wall = self.begun.elapsed();
        let mut times = vec![Times::default(); self.subject.vcpus];
        for (id, now) in after {
            // A new thread began at zero.
            let since = now.since(self.before.get(&id).copied().unwrap_or_default());
            let sum = self.threads.get(&id).and_then(|&vcpu| times.get_mut(vcpu));
            if let Some(sum) = sum {
                *sum = sum.plus(since);
            }
        }
        let mut helpers: BTreeMap<String, u64> = BTreeMap::new();
        for (id, (name, now)) in helper_threads(self.subject.monitor, processes) {
            let before = self.helpers.get(&id).map(|(_, before)| *before);
            let since = now.since(before.unwrap_or_default());
            *helpers.entry(name).or_default() += since.cpu_ns;
        }
        if let Some(perf) = &self.perf {
            if perf.throttled {
                self.subject
                    .notes
                    .push("the host stopped perf for moments: use a lower --frequency".into());
            }
        }
        Ok(report::make(&Watched {
            subject: &self.subject,
            perf: self.perf.as_ref(),
            tallies: &self.tallies,
            times: &times,
            helpers: &helpers,
            wall,
            counted,
            top,
        }))
    }
}

impl Subject {
    /// Reads the host kernel's functions if they are needed, and notes what this way does not show.
    fn notes_of(&mut self, perf: Option<&Perf>) {
        match perf {
            None => {}
            Some(perf) if perf.host => {
                self.books.host_kernel = crate::host_kernel::HostKernel::read();
                if self.books.host_kernel.is_none() {
                    self.notes
                        .push("the host hides its kernel's symbols (kernel.kptr_restrict)".into());
                }
            }
            Some(_) => self.notes.push(format!(
                "perf may not see the host's kernel{}: its share comes from the host's ticks",
                paranoid()
            )),
        }
    }
}

/// The way in which perf watches, in words.
pub fn scope_in_words(scope: Scope) -> &'static str {
    match scope {
        Scope::Cpus => "cpus",
        Scope::Threads => "threads",
    }
}

/// The threads of these processes, with their vCPUs. A process that is not the machine's is left
/// out: the monitor is the parent of the parent of its own.
fn machine_threads(subject: &Subject, processes: &[u32]) -> HashMap<Id, usize> {
    let mut all = HashMap::new();
    for &pid in processes {
        if tasks::parent(pid).and_then(tasks::parent) != Some(subject.monitor) {
            continue;
        }
        let threads = tasks::threads(pid).unwrap_or_default();
        for (vcpu, tid) in threads.into_iter().take(subject.vcpus).enumerate() {
            all.insert((pid, tid), vcpu);
        }
    }
    all
}

/// Waits until each thread that is ready gets a CPU: only then the host counts the time for which
/// it was ready. Calls `meanwhile` at each look.
fn settle(threads: &HashMap<Id, usize>, mut meanwhile: impl FnMut()) {
    let mut ready: Vec<(Id, String)> = threads
        .keys()
        .filter_map(|&(pid, tid)| Some(((pid, tid), tasks::ready(pid, tid)?)))
        .collect();
    let end = Instant::now() + SETTLED;
    while !ready.is_empty() && Instant::now() < end {
        std::thread::sleep(STEP);
        meanwhile();
        ready.retain(|((pid, tid), before)| tasks::ready(*pid, *tid).as_ref() == Some(before));
    }
}

fn times_of(threads: &HashMap<Id, usize>) -> HashMap<Id, Times> {
    let times = |&(pid, tid): &Id| Some(((pid, tid), tasks::times(pid, tid)?));
    threads.keys().filter_map(times).collect()
}

/// The monitor's threads, and the parent of the machine's processes, with their names.
fn helper_threads(monitor: u32, processes: &[u32]) -> BTreeMap<Id, (String, Times)> {
    let mut all = BTreeMap::new();
    for tid in tasks::threads(monitor).unwrap_or_default() {
        let name = tasks::name(monitor, tid);
        if let (Some(name), Some(times)) = (name, tasks::times(monitor, tid)) {
            all.insert((monitor, tid), (name, times));
        }
    }
    let zygote = processes.first().and_then(|&pid| tasks::parent(pid));
    if let Some(zygote) = zygote.filter(|&pid| tasks::parent(pid) == Some(monitor)) {
        if let Some(times) = tasks::times(zygote, zygote) {
            all.insert((zygote, zygote), ("(zygote)".to_string(), times));
        }
    }
    all
}

/// The host's setting for perf, for messages.
fn paranoid() -> String {
    match fs::read_to_string("/proc/sys/kernel/perf_event_paranoid") {
        Ok(level) => format!(" (kernel.perf_event_paranoid is {})", level.trim()),
        Err(_) => String::new(),
    }
}
