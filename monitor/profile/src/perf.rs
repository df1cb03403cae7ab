// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of a machine's threads by perf: the software event `cpu-clock`, which every host has.
//!
//! Guest and layer run in the host's user mode, where this event is as exact as one of the
//! processor's. An event of the processor would see what the host's kernel does with interrupts
//! off, but it counts only one kind of core where there are several.
//!
//! A user who may watch whole CPUs does so, with one event for each CPU: then a machine's switch
//! between two processes costs no more than without. Other users watch each thread of the machine
//! with an event of its own. The host starts and stops its timer at each switch between two
//! threads, which costs up to a microsecond: a tenth to a quarter of the speed of a machine that
//! does nothing but switch, 200,000 times in a second.

use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Samples that may be taken in a second of a thread's CPU time.
pub const FREQUENCIES: RangeInclusive<u32> = 1..=10_000;
/// How often the buffers must be emptied.
pub const DRAIN: Duration = Duration::from_millis(50);
/// A buffer has room for the samples of this many times [`DRAIN`].
const LATE: u64 = 4;
/// Bytes of a sample without and with a call chain of ordinary length.
const SAMPLE: u64 = 24;
const SAMPLE_WITH_CHAIN: u64 = SAMPLE + 8 * 32;
/// Longest call chain in the host's kernel.
const MAX_CHAIN: u16 = 64;
/// Smallest and largest size of a buffer, in bytes.
const BUFFER: (u64, u64) = (4096, 4 << 20);
/// Records that are read of one buffer at a time: a buffer that fills as fast as it is read must
/// not keep its reader.
const RECORDS: usize = 1 << 16;
/// The mode of the processor, in a record's flags.
const MODE: u16 = 7;
/// Its value for the host's kernel.
const MODE_KERNEL: u16 = 1;

/// Kinds of records.
const RECORD_LOST: u32 = 2;
const RECORD_THROTTLE: u32 = 5;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;

/// One sample.
#[derive(Clone, Debug)]
pub struct Hit<'a> {
    /// Process and thread.
    pub thread: (u32, u32),
    /// The instruction pointer.
    pub ip: u64,
    /// It is in the host's kernel.
    pub host: bool,
    /// The host kernel's functions, from the innermost to the outermost.
    pub chain: &'a [u64],
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every CPU of the host, of which only the machine's samples count.
    Cpus,
    /// Each thread of the machine.
    Threads,
}

/// The events and their buffers.
#[derive(Debug)]
pub struct Perf {
    /// What they watch.
    pub scope: Scope,
    /// They see the host's kernel.
    pub host: bool,
    /// The time between two samples of one event, in nanoseconds.
    pub period: u64,
    /// Samples that the host dropped.
    pub lost: u64,
    /// The host stopped an event for a moment since it came too often.
    pub throttled: bool,
    events: Vec<Event>,
    watched: HashSet<u32>,
    enabled: bool,
}

/// [`Sampler`] has no `Debug`.
struct Event(Sampler);

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Event")
    }
}

impl Perf {
    /// Opens events that do not count yet, in the best way that the host allows.
    ///
    /// # Errors
    /// The host's error for the last way.
    pub fn open(threads: &[u32], frequency: u32) -> io::Result<Self> {
        let more_files = raise_file_limit();
        let mut last = io::Error::from(io::ErrorKind::Unsupported);
        for (scope, host) in [
            (Scope::Cpus, true),
            (Scope::Threads, true),
            (Scope::Threads, false),
        ] {
            let mut perf = Perf {
                scope,
                host,
                period: 1_000_000_000 / u64::from(frequency.max(1)),
                lost: 0,
                throttled: false,
                events: Vec::new(),
                watched: HashSet::new(),
                enabled: false,
            };
            let opened = match scope {
                Scope::Cpus => online_cpus()
                    .and_then(|cpus| cpus.into_iter().try_for_each(|cpu| perf.add_cpu(cpu))),
                Scope::Threads => perf.follow(threads.iter().copied()),
            };
            match opened {
                Ok(()) if perf.events.is_empty() => {}
                Ok(()) => return Ok(perf),
                Err(error) => last = error,
            }
        }
        // The files of the first attempt are closed by now.
        if last.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
            let limit = more_files.map_or_else(|| "unknown".into(), |limit| limit.to_string());
            last = io::Error::other(format!("more threads than open files allowed ({limit})"));
        }
        Err(last)
    }

    /// With one event for each thread: watches these threads too, as far as they still exist.
    ///
    /// # Errors
    /// The host's error.
    pub fn follow(&mut self, threads: impl Iterator<Item = u32>) -> io::Result<()> {
        if self.scope == Scope::Cpus {
            return Ok(());
        }
        for tid in threads {
            if self.watched.insert(tid) {
                match self.add_thread(tid) {
                    Err(error) if error.raw_os_error() == Some(NO_SUCH_THREAD) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Starts to count.
    pub fn start(&mut self) -> io::Result<()> {
        self.enabled = true;
        self.events
            .iter_mut()
            .try_for_each(|event| event.0.enable())
    }

    /// Stops counting. Samples in the buffers stay.
    pub fn stop(&mut self) -> io::Result<()> {
        self.enabled = false;
        self.events
            .iter_mut()
            .try_for_each(|event| event.0.disable())
    }

    /// Empties the buffers.
    pub fn drain(&mut self, mut hit: impl FnMut(&Hit<'_>)) {
        for event in &mut self.events {
            for _ in 0..RECORDS {
                let Some(record) = event.0.next_record() else {
                    break;
                };
                let host = record.misc() & MODE == MODE_KERNEL;
                match (record.ty(), Words(&record.to_contiguous())) {
                    (RECORD_SAMPLE, mut words) => match sample(&mut words, self.host) {
                        Some((thread, ip, chain)) => hit(&Hit {
                            thread,
                            ip,
                            host,
                            chain: &chain,
                        }),
                        None => self.lost = self.lost.saturating_add(1),
                    },
                    // The event's id, and the number.
                    (RECORD_LOST, mut words) => {
                        let count = words.next().and_then(|_| words.next());
                        self.lost = self.lost.saturating_add(count.unwrap_or(1));
                    }
                    (RECORD_LOST_SAMPLES, mut words) => {
                        self.lost = self.lost.saturating_add(words.next().unwrap_or(1));
                    }
                    (RECORD_THROTTLE, _) => self.throttled = true,
                    _ => {}
                }
            }
        }
    }

    fn add_cpu(&mut self, cpu: usize) -> io::Result<()> {
        let mut builder = self.builder();
        builder.any_pid().one_cpu(cpu).exclude_idle(true);
        self.add(&builder)
    }

    fn add_thread(&mut self, tid: u32) -> io::Result<()> {
        let mut builder = self.builder();
        let tid = i32::try_from(tid).map_err(io::Error::other)?;
        builder.observe_pid(tid).any_cpu();
        self.add(&builder)
    }

    fn builder(&self) -> Builder<'static> {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder
            .sample_period(self.period)
            .sample(SampleFlag::IP)
            .sample(SampleFlag::TID)
            .exclude_kernel(!self.host)
            .exclude_hv(true)
            .enabled(false);
        if self.host {
            builder
                .sample(SampleFlag::CALLCHAIN)
                .exclude_callchain_user(true)
                .sample_max_stack(MAX_CHAIN);
        }
        builder
    }

    fn add(&mut self, builder: &Builder<'_>) -> io::Result<()> {
        let size = buffer_size(self.period, self.host);
        let mut sampler = match builder.build()?.sampled(size) {
            Ok(sampler) => sampler,
            // The host limits the memory of all buffers. Samples may be lost in the smallest one,
            // which is then reported.
            Err(_) => builder.build()?.sampled(size_of_pages(BUFFER.0))?,
        };
        if self.enabled {
            sampler.enable()?;
        }
        self.events.push(Event(sampler));
        Ok(())
    }
}

/// The words of a record.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

/// A sample's thread, instruction pointer and call chain. The library's own reader refuses empty
/// call chains, which all samples of the host's user mode have.
fn sample(words: &mut Words<'_>, with_chain: bool) -> Option<((u32, u32), u64, Vec<u64>)> {
    let (ip, ids) = (words.next()?, words.next()?.to_ne_bytes());
    let [a, b, c, d, e, f, g, h] = ids;
    let thread = (
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
    );
    let mut chain = Vec::new();
    if with_chain {
        for _ in 0..words.next()? {
            chain.push(words.next()?);
        }
    }
    Some((thread, ip, chain))
}

/// ESRCH: the thread has ended.
const NO_SUCH_THREAD: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// The size of one buffer, in bytes: a power of two.
fn buffer_size(period: u64, host: bool) -> usize {
    let each = if host { SAMPLE_WITH_CHAIN } else { SAMPLE };
    let nanoseconds = u64::try_from(DRAIN.as_nanos()).unwrap_or(u64::MAX);
    let samples = nanoseconds.saturating_mul(LATE) / period.max(1);
    let wanted = samples.saturating_mul(each).clamp(BUFFER.0, BUFFER.1);
    size_of_pages(wanted.next_power_of_two())
}

fn size_of_pages(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(4096)
}

/// The CPUs that are online.
fn online_cpus() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    ranges(text.trim()).ok_or_else(|| io::Error::other("the host's list of CPUs is damaged"))
}

/// The numbers in a list such as `0-3,8`.
fn ranges(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last.min(1 << 16));
    }
    Some(all)
}

/// Each event is an open file. Returns how many this process may have.
fn raise_file_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it there are as many as before.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
impl Perf {
    /// No events.
    pub fn for_tests(scope: Scope, host: bool, period: u64) -> Self {
        Perf {
            scope,
            host,
            period,
            lost: 0,
            throttled: false,
            events: Vec::new(),
            watched: HashSet::new(),
            enabled: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(ranges("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(ranges("0"), Some(vec![0]));
        assert_eq!(ranges("x"), None);
        assert_eq!(ranges(""), None);
        assert!(online_cpus().unwrap().contains(&0) || !online_cpus().unwrap().is_empty());
    }

    #[test]
    fn buffers_are_bounded_powers_of_two() {
        for frequency in [1, 997, 10_000] {
            for host in [false, true] {
                let size = buffer_size(1_000_000_000 / frequency, host);
                assert!(
                    size.is_power_of_two() && (4096..=4 << 20).contains(&size),
                    "{size}"
                );
                let samples = u64::try_from(size).unwrap() / SAMPLE;
                assert!(samples >= frequency / 20, "{frequency}: {size}");
            }
        }
    }

    #[test]
    fn samples_with_and_without_a_call_chain() {
        let bytes = |words: &[u64]| {
            words
                .iter()
                .flat_map(|w| w.to_ne_bytes())
                .collect::<Vec<_>>()
        };
        let ids = u64::from_ne_bytes([7, 0, 0, 0, 8, 0, 0, 0]);
        let read = |words: &[u64], chain| sample(&mut Words(&bytes(words)), chain);
        assert_eq!(read(&[5, ids], false), Some(((7, 8), 5, vec![])));
        assert_eq!(read(&[5, ids, 0], true), Some(((7, 8), 5, vec![])));
        assert_eq!(
            read(&[5, ids, 2, 3, 4], true),
            Some(((7, 8), 5, vec![3, 4]))
        );
        for damaged in [
            &[][..],
            &[5],
            &[5, ids],
            &[5, ids, 2, 3],
            &[5, ids, u64::MAX, 3],
        ] {
            assert_eq!(read(damaged, true), None, "{damaged:?}");
        }
    }

    /// This thread works, and perf sees it where the host allows that.
    #[test]
    fn a_busy_thread_is_seen() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let own = u32::try_from(own).unwrap();
        let Ok(mut perf) = Perf::open(&[own], 997) else {
            eprintln!("this host allows no perf");
            return;
        };
        perf.start().unwrap();
        let cpu_time = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let (mut own_hits, mut user) = (0, 0);
        let mut drain = |perf: &mut Perf| {
            perf.drain(|hit| {
                if hit.thread.1 == own {
                    own_hits += 1;
                    user += u32::from(!hit.host);
                }
            });
        };
        let begun = cpu_time();
        while Duration::try_from(cpu_time() - begun).unwrap() < Duration::from_millis(200) {
            (0..100_000).for_each(|_| std::hint::spin_loop());
            drain(&mut perf);
        }
        perf.stop().unwrap();
        drain(&mut perf);
        // A host without spare CPU time delays the timer.
        assert!(own_hits > 50 && user > 10, "{own_hits} {user}");
        let mut again = 0;
        perf.drain(|_| again += 1);
        assert_eq!(again, 0);
    }
}
