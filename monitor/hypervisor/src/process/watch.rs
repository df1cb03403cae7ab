// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The watch: a thread that corrects the clock page, places vCPUs on host CPUs, and protects the
//! host's memory from a hostile guest.
//!
//! A guest's RAM has a fixed size, but the host's page tables for its mappings do not: code that
//! ignores the layer's accounting can create half a GiB of them in a second. So this thread
//! compares the host's own figures with a [`super::budget::Budget`], every few milliseconds while
//! the machine works, and more often the less is left of the budget. While the machine is idle this
//! thread sleeps: a timer on the CPU clock of each process wakes it.

use super::clock::{self, Catch, Clock};
use super::clock_asked;
use super::clock_news;
use super::core::Core;
use super::cpu_timer::CpuTimer;
use super::integrity::Integrity;
use super::memory_accounts::Accounts;
use super::placement::{self, Asked, Balance};
use super::sys::{self, SECOND};
use super::watch_sleep::WatchSleep;
use paravane_abi::process::area::VcpuState;
use std::sync::atomic::Ordering;

/// CPU time of one process, in ns, that wakes the watch. All processes of an idle machine together
/// use less in a minute.
const WAKING: u64 = 4_000_000;
/// CPU time of all processes together, in ns, that is too little for an audit.
const NOTHING: u64 = 100_000;
/// The machine counts as unused if its CPU time was less than 1/this of the time since the last
/// look.
const NOTHING_OF: u64 = 1000;
/// The time between two looks while the machine works, in ns.
const SHORTEST: u64 = 2_000_000;
const LONGEST: u64 = 40_000_000;
/// The machine becomes idle when it has used at most 1% of this time, in ns.
const QUIET: u64 = 200_000_000;
/// The time between two looks while the machine is idle, in ns. It doubles after each look at which
/// nothing had happened. The timers see a process only if the host's tick finds it running; these
/// looks find a process that sleeps during ticks. The last value is added for each process, because
/// looking costs time.
const IDLE_LOOK: u64 = SECOND;
const IDLE_LOOK_MOST: u64 = clock::IDLE_PERIOD;
const IDLE_LOOK_EACH: u64 = SECOND / 100;
/// The first updates of the clock page come sooner, because it starts with a short measurement.
const FIRST_UPDATES: [u64; 3] = [50_000_000, 150_000_000, 400_000_000];

/// The time in ns after which a clock that was put right at once is corrected again, since its rate
/// is that of a longer time.
const AGAIN: u64 = 20_000_000;

/// What the thread corrects at regular times.
pub struct Regular {
    /// The clock page.
    pub clock: Clock,
    /// The CPUs of the vCPUs.
    pub balance: Balance,
}

/// Runs the thread until the machine is stopped.
pub fn run(
    core: &Core,
    sleep: &WatchSleep,
    Regular { clock, balance }: Regular,
    accounts: Accounts,
    integrity: Integrity,
) {
    let mut watch = Watch {
        balance,
        moves: Asked::default(),
        accounts,
        integrity,
        parallel: core.vcpus.min(placement::allowed().len()).max(1) as u64,
        core,
        sleep,
        clock,
        timers: Vec::new(),
        mode: Mode::IDLE,
        update_at: 0,
        asked_at: 0,
    };
    sleep.begin();
    core.wakeups.set_watch(thread_id());
    watch.work();
    core.wakeups.set_watch(0);
    // A late wake-up stays pending in this thread and ends with it.
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// CPU time used since the machine became idle; time to the next look.
    Idle { used: u64, look: u64 },
    /// CPU time used since a moment.
    Busy { since: u64, used: u64 },
}

impl Mode {
    const IDLE: Self = Mode::Idle {
        used: 0,
        look: IDLE_LOOK,
    };
}

struct Watch<'a> {
    core: &'a Core,
    sleep: &'a WatchSleep,
    clock: Clock,
    balance: Balance,
    moves: Asked,
    accounts: Accounts,
    integrity: Integrity,
    /// Processors that can work for this machine at once.
    parallel: u64,
    /// A timer on the CPU time of each process; `None` where the host gave none.
    timers: Vec<Option<CpuTimer>>,
    mode: Mode,
    /// When the clock page is corrected next.
    update_at: u64,
    /// When a vCPU has last asked for it.
    asked_at: u64,
}

impl Watch<'_> {
    fn work(&mut self) {
        let start = sys::monotonic();
        let mut first = FIRST_UPDATES.iter().map(|offset| start + offset);
        self.update_at = first.next().unwrap_or(start);
        while !self.core.stopping() {
            self.add_processes();
            let now = sys::monotonic();
            let busy = matches!(self.mode, Mode::Busy { .. });
            let due = now >= self.update_at;
            if due || busy && self.clock.is_far_off() {
                if due && busy {
                    self.balance.look(self.core);
                }
                // A vCPU's request is carried out within a second.
                let asked = self.asked_at != 0 && now < self.asked_at + clock::PERIOD;
                let period = if busy || asked {
                    clock::PERIOD
                } else {
                    clock::IDLE_PERIOD
                };
                self.correct(period, None);
                self.update_at = first.next().unwrap_or(now + period).max(now);
            }
            let until = self.update_at.min(now + self.pause());
            let woken = self.sleep.wait(until.saturating_sub(now));
            if woken.by_clock {
                // What waits for the time of day learns it now.
                self.update_at = 0;
            }
            let asked = self.answer();
            let moved = self.moves.carry_out(self.core);
            self.look(woken.by_signal && !asked && !moved);
        }
    }

    /// Puts the clock right if a vCPU that has woken up waits for that. Returns whether one did.
    fn answer(&mut self) -> bool {
        let core = self.core;
        let now = sys::monotonic();
        let word = &core.shared.header().clock_wanted;
        let Some(catch) = clock_asked::claim(word) else {
            return false;
        };
        if now >= self.asked_at + clock_asked::LEAST && self.clock.needs(catch) {
            self.asked_at = now;
            self.correct(clock::PERIOD, Some(catch));
            self.update_at = self.update_at.min(now + AGAIN);
        }
        clock_asked::end(word);
        sys::futex_wake(word);
        true
    }

    /// Corrects the clock page, and has the alarm thread report that where the guest must know.
    fn correct(&mut self, period: u64, catch: Option<Catch>) {
        let shared = &self.core.shared;
        let jumped = self.clock.update(shared, period, catch);
        let moved = self.core.clock_news.set_ahead(self.clock.ahead());
        let page = shared.header().clock_page.load(Ordering::Relaxed) != 0;
        let mut news = 0;
        if jumped {
            news |= clock_news::WALL;
        }
        // While no vCPU runs, nothing reads the guest's page, and one that wakes up rewrites it.
        // After a suspend one that runs may be in a short wait, whose end is a suspend too late.
        if (page || moved) && self.vcpu_runs() {
            news |= clock_news::PAGE;
        }
        self.core.clock_news.add(news);
        if moved || news != 0 {
            self.core.wake_alarms();
        }
    }

    /// Whether any vCPU runs or wants to, by what the layer says.
    fn vcpu_runs(&self) -> bool {
        let state = |vcpu| &self.core.shared.vcpu(vcpu).state;
        (0..self.core.vcpus).any(|vcpu| state(vcpu).is(VcpuState::Running, Ordering::SeqCst))
    }

    fn add_processes(&mut self) {
        while self.accounts.len() < self.core.processes.count() {
            let index = self.accounts.len();
            let timer = self
                .accounts
                .add(self.core.processes.pid(index).unwrap_or(0))
                .and_then(|clock| CpuTimer::new(clock).ok());
            if let Some(timer) = &timer {
                timer.set(WAKING);
            } else {
                tracing::debug!(index, "no timer for a process");
            }
            self.timers.push(timer);
        }
    }

    /// The time to the next look in ns.
    fn pause(&self) -> u64 {
        match self.mode {
            Mode::Busy { .. } => {
                (self.accounts.allowance() / 3 / self.parallel).clamp(SHORTEST, LONGEST)
            }
            // Without timers nothing reports that the machine is busy.
            Mode::Idle { .. } if self.timers.iter().any(Option::is_none) => LONGEST,
            Mode::Idle { look, .. } => look.max(IDLE_LOOK_EACH * self.timers.len() as u64),
        }
    }

    /// Compares what the machine takes with its budget, and decides whether it is idle.
    fn look(&mut self, woken: bool) {
        let used_now = self.accounts.read_times();
        let audited = match self.mode {
            // So little CPU time can allocate nothing that matters, and an audit would cost as
            // much.
            Mode::Idle { .. } if used_now < NOTHING => Ok(()),
            _ => self.accounts.audit(),
        };
        if let Err(why) = audited.and_then(|()| self.integrity.check(&self.core.shared)) {
            self.core.fail(why);
        }
        let now = sys::monotonic();
        self.mode = match self.mode {
            Mode::Idle { used, .. } if woken || used + used_now > WAKING => {
                self.update_at = self.update_at.min(now + clock::PERIOD);
                Mode::Busy {
                    since: now,
                    used: 0,
                }
            }
            Mode::Idle { used, look } => Mode::Idle {
                used: used + used_now,
                look: if used_now < look / NOTHING_OF {
                    (look * 2).min(IDLE_LOOK_MOST)
                } else {
                    IDLE_LOOK
                },
            },
            Mode::Busy { since, used } if now - since < QUIET => Mode::Busy {
                since,
                used: used + used_now,
            },
            Mode::Busy { since, used } if used + used_now > (now - since) / 100 => Mode::Busy {
                since: now,
                used: 0,
            },
            Mode::Busy { .. } => {
                for timer in self.timers.iter().flatten() {
                    timer.set(WAKING);
                }
                Mode::IDLE
            }
        };
    }
}

fn thread_id() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::budget::Budget;
    use crate::process::host_clocks::Sample;
    use crate::process::process_ids::Process;
    use crate::process::shared::Shared;
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// Watches a shell that allocates more and more memory, or only idles.
    fn watched(script: &str, until: Duration) -> Option<String> {
        let mut command = Command::new("sh");
        let mut child = command
            .args(["-c", script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let core = Arc::new(Core::new(Shared::new(0).unwrap(), 1).unwrap());
        core.processes.add(0, Process::of_host(child.id()));
        core.publish_count(1);
        let thread = std::thread::spawn({
            let core = Arc::clone(&core);
            let accounts = Accounts::new(Budget::new(16 << 20, 1), 65530, true);
            let integrity = Integrity::of(&core.shared, 1);
            move || {
                run(
                    &core,
                    &WatchSleep::new().unwrap(),
                    Regular {
                        clock: Clock::new(Sample::take()),
                        balance: Balance::new(&core, true),
                    },
                    accounts,
                    integrity,
                )
            }
        });
        let deadline = Instant::now() + until;
        while core.end.failure().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        core.stop();
        thread.join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        core.end.failure()
    }

    #[test]
    fn an_excessive_process_is_found() {
        let why = watched(
            "x=xxxxxxxx; while :; do x=$x$x; done",
            Duration::from_secs(20),
        )
        .unwrap();
        assert!(why.contains("the budget is 64 MiB"), "{why}");
    }

    #[test]
    fn a_busy_process_is_allowed() {
        assert_eq!(
            watched("while :; do :; done", Duration::from_millis(500)),
            None
        );
    }
}
