// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a machine as a state machine: events, the actions that follow, and deadlines. It
//! does no I/O, so its tests need no machine. [`super::drive`] delivers the events and carries out
//! the actions.
//!
//! * Starting: the host creates the machine.
//! * Booting: the kernel runs, and the agent has not connected yet.
//! * Running: the agent runs the command, or waits for requests.
//! * Powering off: the guest writes its disks back and ends the machine, within a time limit.
//! * Ending: the connection to the agent is lost. The machine has a time limit to end by itself.
//! * Ended.
//!
//! In every state a request to end (a signal, `stop`, `kill`, `--timeout`) sets a deadline.

use super::crash;
use crate::stats::serve;
use paravane_hypervisor::process::{End, PROCESSES_END};
use paravane_net::passt;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::stderr;
use std::time::{Duration, Instant};

/// Time limit for the host to create the machine. It normally takes hundredths of a second.
pub const MAKE: Duration = Duration::from_secs(60);
/// Time limit from the kernel's entry to the agent's first connection. It normally takes a tenth of
/// a second.
pub const BOOT: Duration = Duration::from_secs(60);
/// Time limit from a signal to the end of the machine, whatever the guest does.
const GRACE: Duration = Duration::from_secs(3);
/// Time limit from a signal to the end of the monitor (SPECIFICATION.md).
const LIMIT: u128 = 5000;
/// How long the end takes at most when nothing more is printed: the monitor waits for these in
/// turn, each of which has a limit of its own.
const END: u128 = PROCESSES_END.as_millis() + passt::END.as_millis() + serve::END.as_millis();
/// Output until then, and the crash report, are a part of the guest's time:
/// [`Life::print_by`].
const _: () = assert!(GRACE.as_millis() + END < LIMIT);
/// A signal that comes when the machine has ended by itself is not looked at any more. The end
/// then waits for the kernel's log, the report, the last line, and the rest of the log.
const _: () =
    assert!(3 * stderr::PATIENCE.as_millis() + crash::STOP_TIME.as_millis() + END < LIMIT);
/// Time limit for an interrupted kernel to print its report.
const REPORT: Duration = Duration::from_secs(3);
/// Time limit for a guest to write back its dirty data: a fifth of 8 GiB, to a disk with 30 MB/s.
const WRITE_BACK: Duration = Duration::from_secs(60);
/// Time limit for a system with services to end, each of which has 90 s by systemd's rules.
const SYSTEM_ENDS: Duration = Duration::from_secs(100);
/// Time limit for the guest to end what is left of a command that `paravane stop` has given up on,
/// and to write back. Data that it has not written then is lost.
const GIVEN_UP: Duration = Duration::from_secs(5);
/// Time limit from the agent's end to the machine's, if the agent was process 1.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The machine's exit status after a kernel panic.
pub const PANICKED: u8 = 255;
/// The machine's exit status if its agent could not work.
pub const AGENT_FAILED: u8 = 254;
const SIGKILL: u8 = 9;
pub const SIGTERM: u8 = 15;

/// The properties of a machine that its life depends on.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The machine runs a command, and ends with it.
    pub command: bool,
    /// The machine has a writable disk that outlives it, so the guest must write back.
    pub keeps: bool,
    /// Process 1 may be the root's own init, which stops its services first.
    pub system: bool,
    /// By which `paravane stop` asks the command to end.
    pub stop: u8,
    /// Booting has no time limit: a debugger may stop the kernel.
    pub patient: bool,
    /// The end of `--timeout`.
    pub timeout: Option<Instant>,
}

/// The state of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The host creates the machine.
    Starting {
        /// The host's deadline.
        until: Instant,
    },
    /// The kernel runs, and the agent has not connected yet.
    Booting {
        /// The guest's deadline.
        until: Option<Instant>,
    },
    /// The agent has connected. The command runs, or there is none.
    Running,
    /// The guest writes back its dirty data, and ends the machine.
    PoweringOff {
        /// What determines the result.
        result: PowerOff,
        /// The guest's deadline.
        until: Instant,
    },
    /// The connection to the agent is lost, most likely because the machine ends.
    Ending {
        /// Why it is lost.
        why: String,
        /// The machine's deadline.
        until: Instant,
    },
    /// The machine has ended, or must be ended now.
    Ended(Finish),
}

/// What determines the result of a machine whose guest powers off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// The end of its command.
    Command(Outcome),
    /// The end of the machine. If the guest misses the deadline: this signal.
    Machine(u8),
}

/// Something that happens to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The host has created the machine, and its kernel starts.
    Made,
    /// The agent's first connection.
    AgentCalled,
    /// The command has ended.
    CommandEnded(Outcome),
    /// The connection to the agent is lost, with the reason.
    AgentLost(String),
    /// The machine has ended.
    MachineEnded(End),
    /// SIGINT, SIGTERM or SIGHUP to this program.
    Signal(u8),
    /// SIGQUIT to this program: the user wants a report on what the guest does.
    Quit,
    /// `paravane stop`, with its time limit for the guest.
    Stop(Duration),
    /// `paravane kill`.
    Kill,
    /// A deadline may have passed.
    Time,
}

/// What the driver does about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Send this signal to the command.
    Signal(u8),
    /// Ask the agent to power off.
    PowerOff,
    /// Send a non-maskable interrupt, on which the kernel prints a report.
    Interrupt,
}

/// The result of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Determined by the command, or by the request to end.
    Outcome(Outcome),
    /// A request ended the machine before the guest had written everything to its disks.
    Unwritten(Outcome),
    /// The guest has not written everything to its disks within this time. No request had shortened
    /// the time.
    NotWritten(Duration),
    /// `--timeout` has passed.
    TimedOut,
    /// The machine ended by itself before the command could run.
    Early(End),
    /// The machine ended by itself.
    Machine(End),
    /// Something failed, with the reason.
    Failed(String),
    /// The machine crashed, with the reason.
    Crashed(String),
    /// The host did not create the machine in time.
    NotMade,
}

/// The life of one machine.
#[derive(Debug)]
pub struct Life {
    plan: Plan,
    state: State,
    /// The deadline of a command that was asked to end, and the signal that the result names if it
    /// misses it.
    asked: Option<(u8, Instant)>,
    /// The deadline of the earliest request to end, whatever has become of it.
    wanted: Option<Instant>,
    /// The signal of the first of these requests.
    signal: Option<u8>,
    /// The reason why the kernel was interrupted, and the deadline of its report.
    report: Option<(String, Instant)>,
}

/// Whether an end means that the guest's kernel, its agent or the machine has failed.
fn is_failure(end: &End) -> bool {
    matches!(end, End::Shutdown(PANICKED | AGENT_FAILED) | End::Failed(_))
}

impl Life {
    /// The life of a machine that the host begins to create.
    pub fn new(plan: Plan, now: Instant) -> Self {
        Life {
            plan,
            state: State::Starting { until: now + MAKE },
            asked: None,
            wanted: None,
            signal: None,
            report: None,
        }
    }

    /// The current state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Sets [`Plan::keeps`], which is known when the machine's resources are open.
    pub fn keeps(&mut self, keeps: bool) {
        self.plan.keeps = keeps;
    }

    /// Until when the end may wait for what is not needed for it: for readers of standard error,
    /// and for a crash report. None: the end was not requested.
    pub fn print_by(&self) -> Option<Instant> {
        let timeout = self.plan.timeout.map(|timeout| timeout + GRACE);
        [self.wanted, timeout].into_iter().flatten().min()
    }

    /// Whether the end was requested, or `--timeout` has passed.
    pub fn is_asked(&self) -> bool {
        self.wanted.is_some() || self.state == State::Ended(Finish::TimedOut)
    }

    /// The signal that first requested the end: SIGTERM for `paravane stop`.
    pub fn signal(&self) -> Option<u8> {
        self.signal
    }

    /// Whether the machine runs a command.
    pub fn has_command(&self) -> bool {
        self.plan.command
    }

    /// Whether process 1 may be the root's own init, with services.
    pub fn has_services(&self) -> bool {
        self.plan.system
    }

    /// The next deadline: when [`Event::Time`] must be delivered.
    pub fn next(&self) -> Option<Instant> {
        let own = match &self.state {
            State::Starting { until } => Some(*until),
            State::Booting { until } => until.filter(|_| self.report.is_none()),
            State::PoweringOff { until, .. } | State::Ending { until, .. } => Some(*until),
            State::Running => None,
            State::Ended(_) => return None,
        };
        let asked = self.asked.as_ref().map(|(_, until)| *until);
        let report = self.report.as_ref().map(|(_, until)| *until);
        let timeout = self.plan.timeout.filter(|_| !self.is_leaving());
        [own, asked, report, timeout].into_iter().flatten().min()
    }

    /// Handles an event. Returns the action for the guest; [`Life::state`] has the new state.
    pub fn on(&mut self, event: Event, now: Instant) -> Action {
        match event {
            _ if matches!(self.state, State::Ended(_)) => Action::None,
            Event::Made => self.made(now),
            Event::AgentCalled => {
                if let State::Booting { .. } = self.state {
                    self.state = State::Running;
                }
                Action::None
            }
            Event::CommandEnded(outcome) => self.command_ended(outcome, now),
            Event::AgentLost(why) => self.agent_lost(why, now),
            Event::MachineEnded(end) => self.machine_ended(end),
            Event::Signal(number) => self.asked_to_end(number, number, now + GRACE),
            Event::Stop(time) => match self.asked_to_end(SIGTERM, SIGKILL, now + time) {
                Action::Signal(_) => Action::Signal(self.plan.stop),
                other => other,
            },
            Event::Kill => {
                self.want(SIGKILL, now + GRACE);
                self.killed()
            }
            Event::Quit => {
                let why = "the guest was interrupted, see above for what it did";
                self.interrupt(why.to_string(), now)
            }
            Event::Time => self.time(now),
        }
    }

    /// Whether the state has a deadline of its own that includes `--timeout`.
    fn is_leaving(&self) -> bool {
        matches!(
            self.state,
            State::PoweringOff { .. } | State::Ending { .. } | State::Ended(_)
        )
    }

    fn end(&mut self, finish: Finish) -> Action {
        self.state = State::Ended(finish);
        Action::None
    }

    fn made(&mut self, now: Instant) -> Action {
        if let State::Starting { .. } = self.state {
            let until = (!self.plan.patient).then_some(now + BOOT);
            self.state = State::Booting { until };
        }
        Action::None
    }

    /// The earliest of a state's own deadline, that of an earlier request to end, and `--timeout`
    /// plus the grace time.
    fn bound(&self, own: Instant) -> Instant {
        let asked = self.asked.as_ref().map(|(_, until)| *until);
        let timeout = self.plan.timeout.map(|timeout| timeout + GRACE);
        let others = [asked, timeout].into_iter().flatten();
        others.fold(own, Instant::min)
    }

    fn command_ended(&mut self, outcome: Outcome, now: Instant) -> Action {
        if self.state != State::Running {
            return Action::None;
        }
        if !self.plan.keeps {
            return self.end(Finish::Outcome(outcome));
        }
        self.power_off(PowerOff::Command(outcome), now + self.write_back())
    }

    fn write_back(&self) -> Duration {
        if self.plan.system {
            SYSTEM_ENDS
        } else {
            WRITE_BACK
        }
    }

    fn power_off(&mut self, result: PowerOff, until: Instant) -> Action {
        let until = self.bound(until);
        self.state = State::PoweringOff { result, until };
        self.asked = None;
        Action::PowerOff
    }

    fn agent_lost(&mut self, why: String, now: Instant) -> Action {
        if self.state == State::Running {
            let own = if self.plan.system {
                SYSTEM_ENDS
            } else {
                LAST_WORDS
            };
            let until = self.bound(now + own);
            self.state = State::Ending { why, until };
        }
        Action::None
    }

    fn machine_ended(&mut self, end: End) -> Action {
        let finish = match (&self.state, self.report.take()) {
            (_, Some((why, _))) => Finish::Crashed(why),
            (State::PoweringOff { result, .. }, None) => match result {
                // It may have lost what the command has written.
                PowerOff::Command(_) if is_failure(&end) => Finish::Machine(end),
                PowerOff::Command(outcome) => Finish::Outcome(*outcome),
                PowerOff::Machine(_) => Finish::Machine(end),
            },
            (State::Starting { .. } | State::Booting { .. }, None) => Finish::Early(end),
            (_, None) => Finish::Machine(end),
        };
        self.end(finish)
    }

    /// Handles a signal to this program, and `paravane stop`. `late`: the signal of the result if
    /// the deadline passes. A signal to this program keeps its name; `paravane stop` kills.
    fn asked_to_end(&mut self, signal: u8, late: u8, until: Instant) -> Action {
        self.want(signal, until);
        match &mut self.state {
            State::Starting { .. } | State::Booting { .. } => {
                self.end(Finish::Outcome(Outcome::Interrupted(signal)))
            }
            State::Running if !self.plan.command => self.power_off(PowerOff::Machine(late), until),
            State::Running => {
                let sooner = self.asked.filter(|(_, before)| *before < until);
                self.asked = sooner.or(Some((late, until)));
                Action::Signal(signal)
            }
            State::PoweringOff { until: before, .. } => {
                *before = until.min(*before);
                Action::None
            }
            State::Ending { until: before, .. } => {
                *before = until.min(*before);
                self.asked.get_or_insert((late, until));
                Action::None
            }
            State::Ended(_) => Action::None,
        }
    }

    fn want(&mut self, signal: u8, until: Instant) {
        self.signal.get_or_insert(signal);
        self.wanted = Some(self.wanted.map_or(until, |before| before.min(until)));
    }

    fn killed(&mut self) -> Action {
        let finish = match &self.state {
            State::PoweringOff {
                result: PowerOff::Command(outcome),
                ..
            } => *outcome,
            _ => Outcome::Interrupted(SIGKILL),
        };
        self.end(Finish::Outcome(finish))
    }

    fn interrupt(&mut self, why: String, now: Instant) -> Action {
        if self.report.is_some() || matches!(self.state, State::Starting { .. }) {
            return Action::None;
        }
        self.report = Some((why, now + REPORT));
        Action::Interrupt
    }

    fn time(&mut self, now: Instant) -> Action {
        let over = |until: Instant| now >= until;
        match &self.state {
            State::PoweringOff { result, until } if over(*until) => {
                let timeout = self.plan.timeout.map(|timeout| timeout + GRACE);
                let hurried = [self.wanted, timeout].into_iter().flatten().any(over);
                let finish = match result {
                    PowerOff::Command(outcome) if hurried => Finish::Unwritten(*outcome),
                    PowerOff::Command(_) => Finish::NotWritten(self.write_back()),
                    PowerOff::Machine(signal) => Finish::Unwritten(Outcome::Interrupted(*signal)),
                };
                return self.end(finish);
            }
            State::Ending { why, until } if over(*until) => {
                let finish = match self.asked {
                    Some((signal, _)) => Finish::Outcome(Outcome::Interrupted(signal)),
                    None => Finish::Failed(why.clone()),
                };
                return self.end(finish);
            }
            _ => {}
        }
        if let Some((signal, _)) = self.asked.filter(|(_, until)| over(*until)) {
            // A signal to this program has its own limit, which has passed.
            if self.state == State::Running && self.plan.keeps && signal == SIGKILL {
                let result = PowerOff::Command(Outcome::Interrupted(signal));
                self.asked = None;
                return self.power_off(result, now + GIVEN_UP);
            }
            return self.end(Finish::Outcome(Outcome::Interrupted(signal)));
        }
        if !self.is_leaving() && self.plan.timeout.is_some_and(over) {
            return self.end(Finish::TimedOut);
        }
        if let Some((why, _)) = self.report.take_if(|(_, until)| over(*until)) {
            return self.end(Finish::Crashed(format!("{why}; it does not answer")));
        }
        match self.state {
            State::Starting { until } if over(until) => self.end(Finish::NotMade),
            State::Booting { until: Some(until) } if over(until) => {
                let seconds = BOOT.as_secs();
                self.interrupt(format!("the guest had not started after {seconds} s"), now)
            }
            _ => Action::None,
        }
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
