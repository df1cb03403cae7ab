// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that keeps the clock page right, the vCPUs well placed, and the host's memory from a hostile guest.
//!
//! A guest is charged for its RAM, which has a fixed size. But the host's page tables for its mappings are the host's
//! memory, and code that does not care for the layer's own accounting can make half a GiB of them in a second; and each
//! process has private memory for the layer's records. So the host's own figures (VmPTE, RssAnon) are held against a
//! budget, each time that a process has used some CPU time: a timer on the process's CPU clock costs nothing while it
//! sleeps, and cannot be slept through by who is busy.

use super::clock::{self, Clock};
use super::core::Core;
use super::placement::Balance;
use super::procfs;
use super::sys::{self, SECOND};
use std::io;

/// CPU time of a process between two looks at its page tables, ns: 10 MiB at the rate given above.
const CPU_SLICE: i64 = 20_000_000;
/// Between two looks at processes that have no timer, ns.
const POLL: u64 = 100_000_000;
/// The first updates of the clock page come sooner: it starts with a short measurement.
const FIRST_UPDATES: [u64; 3] = [50_000_000, 150_000_000, 400_000_000];

/// KiB of the host's page tables, and of private memory.
///
/// What a guest needs: 1/512 of its RAM for the direct map in each process, about as much again for the rest of its
/// kernel, and for user programs as much as the guest's own page tables, which are in its RAM.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For one process.
    pub process: u64,
    machine_base: u64,
    machine_each: u64,
}

impl Budget {
    /// For a machine with `ram` bytes.
    pub fn new(ram: u64) -> Self {
        let kib = ram >> 10;
        Budget {
            process: (64 << 10) + kib / 32,
            machine_base: (64 << 10) + kib / 8,
            machine_each: (1 << 10) + kib / 256,
        }
    }

    /// For all processes together.
    pub fn machine(&self, processes: usize) -> u64 {
        self.machine_base + self.machine_each * processes as u64
    }
}

/// Runs the thread until the machine is stopped.
pub fn run(core: &Core, clock: Clock, budget: Budget) {
    let mut watch = Watch {
        balance: Balance::new(core),
        core,
        clock,
        budget,
        timers: Vec::new(),
        tables: Vec::new(),
        active: false,
        update_at: 0,
    };
    block_signal();
    core.set_watch(thread_id());
    watch.work();
    core.set_watch(0);
    // A late nudge stays pending in this thread and goes with it.
}

struct Watch<'a> {
    core: &'a Core,
    clock: Clock,
    balance: Balance,
    budget: Budget,
    /// A timer on the CPU time of each process; none where the host gave none.
    timers: Vec<Option<CpuTimer>>,
    /// KiB of page tables of each process at the last look.
    tables: Vec<u64>,
    /// Some process has used CPU time since the last update.
    active: bool,
    /// When the clock page is to be corrected.
    update_at: u64,
}

impl Watch<'_> {
    fn work(&mut self) {
        let start = sys::monotonic();
        let mut first = FIRST_UPDATES.iter().map(|offset| start + offset);
        self.update_at = first.next().unwrap_or(start);
        while !self.core.stopping() {
            self.add_processes();
            let now = sys::monotonic();
            if now >= self.update_at {
                self.clock.update(&self.core.shared);
                let period = if self.active { clock::PERIOD } else { clock::IDLE_PERIOD };
                if self.active {
                    self.balance.look(self.core);
                    self.active = false;
                }
                self.update_at = first.next().unwrap_or(now + period).max(now);
            }
            let polled: Vec<usize> = (0..self.timers.len())
                .filter(|&i| self.timers.get(i).is_some_and(Option::is_none))
                .collect();
            let until = if polled.is_empty() {
                self.update_at
            } else {
                self.update_at.min(now + POLL)
            };
            match wait_for_signal(until.saturating_sub(now)) {
                Some(Some(index)) => self.look(index),
                Some(None) => {}
                None => polled.into_iter().for_each(|index| self.look(index)),
            }
        }
    }

    fn add_processes(&mut self) {
        while self.timers.len() < self.core.process_count() {
            let index = self.timers.len();
            let timer = self.core.pid(index).map(|pid| CpuTimer::start(pid, index));
            if let Some(Err(error)) = &timer {
                tracing::debug!(index, %error, "no timer for a process");
            }
            self.timers.push(timer.and_then(Result::ok));
            self.tables.push(0);
        }
    }

    /// Holds a process's page tables against the budgets.
    fn look(&mut self, index: usize) {
        let (Some(pid), Some(entry)) = (self.core.pid(index), self.tables.get_mut(index)) else {
            return;
        };
        if !self.active {
            self.active = true;
            self.update_at = self.update_at.min(sys::monotonic() + clock::PERIOD);
        }
        *entry = procfs::overhead(pid).unwrap_or(0);
        let (own, all) = (*entry, self.tables.iter().sum::<u64>());
        let limit = self.budget.machine(self.tables.len());
        if own > self.budget.process {
            self.core.fail(format!(
                "the mappings of one address space take {} MiB of records and of the host's page tables, the budget is {} MiB",
                own >> 10,
                self.budget.process >> 10
            ));
        } else if all > limit {
            self.core.fail(format!(
                "its mappings take {} MiB of records and of the host's page tables, the budget is {} MiB",
                all >> 10,
                limit >> 10
            ));
        }
    }
}

/// A timer that sends the watch's signal to this thread after each slice of a process's CPU time.
struct CpuTimer(libc::timer_t);

impl CpuTimer {
    fn start(pid: u32, index: usize) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
        // SAFETY: the calls write to local values only; `sigevent` is plain data, for which zero is a value.
        unsafe {
            let mut clock = 0;
            let result = libc::clock_getcpuclockid(pid, &raw mut clock);
            if result != 0 {
                return Err(io::Error::from_raw_os_error(result));
            }
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = sys::watch_signal();
            event.sigev_notify_thread_id = libc::gettid();
            event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(index);
            let mut timer = std::ptr::null_mut();
            if libc::timer_create(clock, &raw mut event, &raw mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            let timer = CpuTimer(timer);
            let slice = libc::timespec {
                tv_sec: 0,
                tv_nsec: CPU_SLICE,
            };
            let spec = libc::itimerspec {
                it_interval: slice,
                it_value: slice,
            };
            if libc::timer_settime(timer.0, 0, &raw const spec, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(timer)
        }
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `start` and is deleted once.
        unsafe {
            libc::timer_delete(self.0);
        }
    }
}

fn thread_id() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

fn signal_set() -> libc::sigset_t {
    // SAFETY: the calls write to the local value, for which zero is a value.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, sys::watch_signal());
        set
    }
}

fn block_signal() {
    let set = signal_set();
    // SAFETY: changes the mask of this thread.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Waits for the signal. None: the time is over; else the index of the process whose timer it was, if it was one.
fn wait_for_signal(ns: u64) -> Option<Option<usize>> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let timeout = libc::timespec {
        tv_sec: signed(ns / SECOND),
        tv_nsec: signed(ns % SECOND),
    };
    let set = signal_set();
    // SAFETY: the call writes to the local value only; a signal sent by a timer has a value in it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let signal = libc::sigtimedwait(&raw const set, &raw mut info, &raw const timeout);
        if signal < 0 {
            return None;
        }
        Some((info.si_code == libc::SI_TIMER).then(|| info.si_value().sival_ptr.addr()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shared::Shared;
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn budgets_follow_the_machine() {
        let budget = Budget::new(256 << 20);
        assert_eq!(budget.process >> 10, 72);
        assert_eq!(budget.machine(0) >> 10, 96);
        assert_eq!(budget.machine(10) >> 10, 116);
        assert!(Budget::new(64 << 30).process > (64 << 30 >> 10) / 512);
    }

    #[test]
    fn who_is_busy_is_looked_at() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let core = Arc::new(Core::new(Shared::new().unwrap(), 1).unwrap());
        core.add_process(0, child.id());
        core.publish_count(1);
        let budget = Budget {
            process: 1,
            machine_base: 0,
            machine_each: 0,
        };
        let thread = std::thread::spawn({
            let core = Arc::clone(&core);
            move || run(&core, Clock::new(clock::Sample::take()), budget)
        });
        let deadline = Instant::now() + Duration::from_secs(5);
        while core.failure().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        core.stop();
        thread.join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(core.failure().unwrap().contains("budget is 0 MiB"));
    }
}
