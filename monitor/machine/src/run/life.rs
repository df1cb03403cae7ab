// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a machine, as a state machine without a machine: what happens to it, what follows, and
//! when it must be over. [`super::drive`] does what is said here.
//!
//! | state | what is served | ends by |
//! | --- | --- | --- |
//! | starting | the host makes the machine | the machine is made |
//! | booting | the guest's kernel | the agent's first call |
//! | running | the command, or nothing | the end of the command, of the agent or of the machine |
//! | powering off | the guest writes back what stays | the machine's end, or its time |
//! | ending | the agent is gone; only the machine's own end is left | the machine's end, or its time |
//! | ended | | |
//!
//! Every state but the last has a bound in time when something asks for the machine's end.

use paravane_hypervisor::process::End;
use paravane_user_io::outcome::Outcome;
use std::time::{Duration, Instant};

/// For the host to make the machine. Takes hundredths of a second.
pub const MAKE: Duration = Duration::from_secs(60);
/// From the kernel's entry to the agent's first call. Takes a tenth of a second.
pub const BOOT: Duration = Duration::from_secs(60);
/// From the wish for an end to the end, whatever the guest does.
const GRACE: Duration = Duration::from_secs(3);
/// For an interrupted kernel to say what it did.
const REPORT: Duration = Duration::from_secs(3);
/// For a guest to write back what it has in memory.
const WRITE_BACK: Duration = Duration::from_secs(10);
/// The same for a system with services, each of which has 90 s by systemd's rules.
const SYSTEM_ENDS: Duration = Duration::from_secs(100);
/// From the agent's end to the machine's, if the agent was process 1.
const LAST_WORDS: Duration = Duration::from_secs(2);
const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

/// What the machine is for.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// It runs a command, and ends with it.
    pub command: bool,
    /// It has a disk that outlives it, to which the guest writes back.
    pub keeps: bool,
    /// Process 1 may be the root's own init, which has services to end.
    pub system: bool,
    /// The kernel may boot as slowly as it likes: a debugger looks at each step.
    pub patient: bool,
    /// When it ends at the latest (`--timeout`).
    pub timeout: Option<Instant>,
}

/// How far the machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The host makes it.
    Starting {
        /// The host has until then.
        until: Instant,
    },
    /// Its kernel runs, and the agent has not called.
    Booting {
        /// The guest has until then.
        until: Option<Instant>,
    },
    /// The agent is there. The command runs, or there is none.
    Running,
    /// The guest writes back, and ends.
    PoweringOff {
        /// What counts at the end.
        result: PowerOff,
        /// The guest has until then.
        until: Instant,
    },
    /// The agent has gone, most likely with the machine.
    Ending {
        /// What happened to it.
        why: String,
        /// The machine has until then.
        until: Instant,
    },
    /// It is over.
    Ended(Finish),
}

/// What counts when a guest has powered off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// How its command ended, before.
    Command(Outcome),
    /// How the machine ends. If it does not: this signal asked for it.
    Machine(u8),
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The machine is made, and its kernel is entered.
    Made,
    /// The agent's first call.
    AgentCalled,
    /// The command has ended.
    CommandEnded(Outcome),
    /// The connection to the agent is lost, and why.
    AgentLost(String),
    /// The machine has ended.
    MachineEnded(End),
    /// SIGINT, SIGTERM or SIGHUP to this program.
    Signal(u8),
    /// SIGQUIT to this program: what does the guest do?
    Quit,
    /// `paravane stop`, which gives the guest so long.
    Stop(Duration),
    /// `paravane kill`.
    Kill,
    /// Time has passed.
    Time,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// The command gets this signal.
    Signal(u8),
    /// The agent is asked to power off.
    PowerOff,
    /// The kernel gets a non-maskable interrupt, at which it says what it does.
    Interrupt,
}

/// How it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As the command, or what asked for the end, says.
    Outcome(Outcome),
    /// `--timeout` has passed.
    TimedOut,
    /// The machine ended by itself before the command could run.
    Early(End),
    /// The machine ended by itself.
    Machine(End),
    /// Something did not work, and why.
    Failed(String),
    /// The machine could not go on, and why.
    Crashed(String),
    /// The host did not make it in time.
    NotMade,
}

/// The life of one machine.
#[derive(Debug)]
pub struct Life {
    plan: Plan,
    state: State,
    /// The command was asked to end by this signal, and has until then.
    asked: Option<(u8, Instant)>,
    /// The kernel was interrupted because of this, and has until then to say what it does.
    report: Option<(String, Instant)>,
}

impl Life {
    /// Of a machine that the host begins to make.
    pub fn new(plan: Plan, now: Instant) -> Self {
        Life {
            plan,
            state: State::Starting { until: now + MAKE },
            asked: None,
            report: None,
        }
    }

    /// How far it is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What the machine turns out to be when it is made: whether it keeps a disk.
    pub fn keeps(&mut self, keeps: bool) {
        self.plan.keeps = keeps;
    }

    /// The machine has a command that it runs, or will run.
    pub fn has_command(&self) -> bool {
        self.plan.command
    }

    /// When [`Event::Time`] changes something next.
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

    /// Something has happened. Says what follows for the guest; [`Life::state`] says what follows
    /// for the machine.
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
            Event::Signal(number) => self.asked_to_end(number, now + GRACE),
            Event::Stop(time) => self.asked_to_end(SIGTERM, now + time),
            Event::Kill => self.killed(),
            Event::Quit => {
                let why = "the guest was interrupted, see above for what it did";
                self.interrupt(why.to_string(), now)
            }
            Event::Time => self.time(now),
        }
    }

    /// The guest is on its way out, and has a bound that `--timeout` is part of.
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

    /// The bound of a guest that is on its way out: its own, what asked for the end before, and
    /// `--timeout`.
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
                PowerOff::Command(outcome) => Finish::Outcome(*outcome),
                PowerOff::Machine(_) => Finish::Machine(end),
            },
            (State::Starting { .. } | State::Booting { .. }, None) => Finish::Early(end),
            (_, None) => Finish::Machine(end),
        };
        self.end(finish)
    }

    /// By a signal to this program, or by `paravane stop`.
    fn asked_to_end(&mut self, signal: u8, until: Instant) -> Action {
        match &mut self.state {
            State::Starting { .. } | State::Booting { .. } => {
                self.end(Finish::Outcome(Outcome::Interrupted(signal)))
            }
            State::Running if !self.plan.command => {
                self.power_off(PowerOff::Machine(signal), until)
            }
            State::Running => {
                let sooner = self.asked.filter(|(_, before)| *before < until);
                self.asked = sooner.or(Some((signal, until)));
                Action::Signal(signal)
            }
            State::PoweringOff { until: before, .. } => {
                *before = until.min(*before);
                Action::None
            }
            State::Ending { until: before, .. } => {
                *before = until.min(*before);
                self.asked.get_or_insert((signal, until));
                Action::None
            }
            State::Ended(_) => Action::None,
        }
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
                let outcome = match result {
                    PowerOff::Command(outcome) => *outcome,
                    PowerOff::Machine(signal) => Outcome::Interrupted(*signal),
                };
                tracing::warn!("the guest has not written everything back");
                return self.end(Finish::Outcome(outcome));
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
