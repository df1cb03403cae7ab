// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine from its start to its end: its kernel's log, its agent's calls, the command, our signals, what others ask for.

mod ending;

use super::background::Background;
use super::crash;
use super::kernel_log::KernelLog;
use super::launch::Started;
use super::ms;
use super::starting::TIMED_OUT;
use crate::agent::{Ended, Link, Relay, Terminal};
use crate::control::{Client, Request, Server};
use crate::output_log;
use crate::stats::Stats;
use anyhow::Context;
use paravane_agent_protocol::{Configuration, Exec, Size, ToAgent};
use paravane_hypervisor::process::{End, Output};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::stderr::say;
use paravane_user_io::text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGQUIT;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// From the kernel's entry to the agent's first call. Takes a tenth of a second.
const BOOT: Duration = Duration::from_secs(60);
/// From our being asked to end to our doing so, whatever the command does.
const GRACE: Duration = Duration::from_secs(3);
/// For a kernel that was interrupted to say what it did.
const REPORT: Duration = Duration::from_secs(3);
/// For a guest to write back what it has in memory.
const WRITE_BACK: Duration = Duration::from_secs(10);
/// The same for a system with services, each of which has 90 s by systemd's rules.
const SYSTEM_ENDS: Duration = Duration::from_secs(100);
/// From the agent's end to the machine's, if it was process 1.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The machine's exit status after a kernel panic, and if its agent could not work.
const PANICKED: u8 = 255;
const AGENT_FAILED: u8 = 254;
/// In front of why the kernel has no initial root, in its log.
const NOT_UNPACKED: &str = "Initramfs unpacking failed: ";
const SIGKILL: u8 = 9;
/// The signal that a program gets whose output nobody reads.
const SIGPIPE: u8 = 13;
const SIGTERM: u8 = 15;
/// Pieces of output that are taken before anything else is looked at.
const BURST: usize = 64;
/// So many may wait for a connection to the agent.
const MAX_WAITING: usize = 16;

/// What is to be done in the machine.
#[derive(Debug)]
pub struct RunOptions {
    /// The command; if none, the machine runs until somebody ends it.
    pub exec: Option<Exec>,
    /// Process 1 may be the root's own, which has more to end than the agent.
    pub system: bool,
    /// When the machine ends at the latest.
    pub timeout: Option<Instant>,
    /// What was asked for while the machine was made.
    pub requests: VecDeque<(Request, Client)>,
    /// It may start as late as it likes: somebody looks at each step.
    pub patient: bool,
    /// Print the kernel's log.
    pub verbose: bool,
    /// The machine is nobody's but those who attach to it.
    pub background: Option<Background>,
}

/// How far it is.
enum State {
    /// The kernel starts.
    Booting(Option<Exec>),
    /// The command runs, or there is none.
    Running(Box<Relay>),
}

/// A running machine, and all that concerns it.
pub struct Drive<'a> {
    started: Started,
    state: State,
    /// There is no command.
    idle: bool,
    /// For the guest to end in good order.
    ending: Duration,
    background: Option<Background>,
    log: KernelLog,
    signals: &'a Signals,
    control: Option<Server>,
    /// Those who want a connection to the agent.
    waiting: VecDeque<Client>,
    /// A signal that was passed on, and when we end nevertheless.
    asked: Option<(u8, Instant)>,
    /// SIGQUIT came: somebody wants to know what the guest does.
    quit: Quit,
    /// The guest was interrupted because of this, and has until then to say what it did.
    interrupted: Option<(String, Instant)>,
    begun: Instant,
    timeout: Option<Instant>,
    /// Those of before.
    requests: VecDeque<(Request, Client)>,
    /// Until then the agent has to call.
    boot_ends: Option<Instant>,
}

/// How it came out.
enum Finish {
    Outcome(Outcome),
    /// Something did not work, and why.
    Failed(String),
    /// The machine could not go on, and why: what it did last is told.
    Crashed(String),
    /// What it was given is no good, and why.
    Refused(String),
    /// The agent gave up. It says on the console why.
    AgentFailed,
}

impl<'a> Drive<'a> {
    /// For a machine that has been started. `begun`: when the monitor was, for the times in the log.
    pub fn new(
        started: Started,
        options: RunOptions,
        signals: &'a Signals,
        control: Option<Server>,
        begun: Instant,
    ) -> anyhow::Result<Self> {
        let at = started.at;
        Ok(Drive {
            quit: Quit::install().context("cannot take note of signals")?,
            interrupted: None,
            started,
            idle: options.exec.is_none(),
            ending: if options.system {
                SYSTEM_ENDS
            } else {
                WRITE_BACK
            },
            state: State::Booting(options.exec),
            background: options.background,
            log: KernelLog::new(options.verbose),
            signals,
            control,
            waiting: VecDeque::new(),
            asked: None,
            begun,
            boot_ends: (!options.patient).then_some(at + BOOT),
            timeout: options.timeout,
            requests: options.requests,
        })
    }

    /// Runs the machine; it is gone afterwards.
    pub fn run(mut self) -> anyhow::Result<Outcome> {
        let finish = self.work();
        // The terminal is as it was before, from here on.
        drop(self.state);
        let code = match &finish {
            Ok(Finish::Outcome(outcome)) => outcome.code(),
            _ => Outcome::Failed.code(),
        };
        self.started.vm.set_exit_code(code);
        match finish {
            Ok(Finish::Outcome(outcome)) => Ok(outcome),
            Ok(Finish::Crashed(why)) => {
                self.log.show();
                // Without it, addresses are all that can be told.
                let kernel = self.started.kernel.read().unwrap_or_default();
                let mut words = String::new();
                for line in crash::report(self.started.vm.debug(), &kernel).lines() {
                    words += &text::clean(line.as_bytes());
                    words.push('\n');
                }
                say(&format!("{words}paravane: {}\n", text::one_line(&why)));
                Ok(Outcome::Failed)
            }
            Ok(Finish::Refused(why)) => {
                say(&format!(
                    "paravane: {} (--verbose shows the kernel's log)\n",
                    text::one_line(&why)
                ));
                Ok(Outcome::Failed)
            }
            Ok(Finish::AgentFailed) => {
                match self.log.agent() {
                    Some(said) => say(&format!(
                        "paravane: the guest's agent failed: {said} (--verbose shows the kernel's log)\n"
                    )),
                    None => {
                        self.log.show();
                        say("paravane: the guest's agent failed\n");
                    }
                }
                Ok(Outcome::Failed)
            }
            Ok(Finish::Failed(why)) => {
                self.log.show();
                say(&format!("paravane: {}\n", text::one_line(&why)));
                Ok(Outcome::Failed)
            }
            Err(error) => {
                self.log.show();
                Err(error)
            }
        }
    }

    fn work(&mut self) -> anyhow::Result<Finish> {
        loop {
            if let Some(end) = self.console() {
                return Ok(match self.interrupted.take() {
                    Some((why, _)) => Finish::Crashed(why),
                    None if matches!(self.state, State::Booting(_)) => {
                        match self.log.behind(NOT_UNPACKED) {
                            Some(why) => Finish::Refused(format!(
                                "the kernel cannot unpack the initial root: {why}"
                            )),
                            None => ended_early(end),
                        }
                    }
                    None => machine_ended(end),
                });
            }
            self.agent_calls()?;
            self.control
                .as_ref()
                .map_or(Ok(()), |control| output_log::turn(control.machine()))?;
            if let State::Running(relay) = &mut self.state {
                match relay.work() {
                    Ok(None) => {}
                    Ok(Some(ended)) => {
                        tracing::info!(ms = ms(self.begun), "the command has ended");
                        if self.started.resources.keeps {
                            self.power_off(Instant::now() + self.ending);
                        }
                        return Ok(command_ended(ended));
                    }
                    Err(error) => return Ok(self.agent_lost(&error)),
                }
            }
            if let Some(finish) = self.others()? {
                return Ok(finish);
            }
            if let Some(finish) = self.out_of_time()? {
                return Ok(finish);
            }
            self.wait()?;
        }
    }

    /// Takes what the machine has to say; its end, if that has come.
    fn console(&mut self) -> Option<End> {
        // A guest that prints without end keeps us from nothing else.
        for _ in 0..BURST {
            self.log.write();
            if self.log.is_full() {
                break;
            }
            match self.started.vm.next()? {
                Output::Console(bytes) => self.log.add(&bytes),
                Output::End(end) => return Some(end),
            }
        }
        self.log.write();
        None
    }

    /// The agent's first call gets the command, the others who ask for them.
    fn agent_calls(&mut self) -> anyhow::Result<()> {
        while self.wants_call() {
            let Some(stream) = self
                .started
                .calls
                .next()
                .context("cannot take the agent's call")?
            else {
                break;
            };
            let State::Booting(exec) = &self.state else {
                if let Some(client) = self.waiting.pop_front() {
                    client.give(&OwnedFd::from(stream));
                }
                continue;
            };
            tracing::info!(ms = ms(self.begun), "the agent calls");
            let mut link = Link::new(stream).context("cannot take the agent's call")?;
            link.put(&ToAgent::Configure(Configuration {
                hostname: Some(crate::root::HOSTNAME.to_string()),
                mounts: self.started.resources.mounts.clone(),
                network: self.started.resources.connected.network.clone(),
            }))?;
            let (mut terminal, mut input) = (None, false);
            if let Some(exec) = exec {
                link.put(&ToAgent::Exec(exec.clone()))?;
                input = exec.input;
                // In the background it is that of whoever attaches.
                if exec.terminal.is_some() && self.background.is_none() {
                    terminal = Some(Terminal::take().context("cannot use this terminal")?);
                }
            }
            let mut relay = Relay::new(link, terminal, input);
            if self.background.is_some() {
                relay.forget();
            }
            self.state = State::Running(Box::new(relay));
            if let Some(background) = &mut self.background {
                background.say_running();
            }
        }
        Ok(())
    }

    /// The agent's next call stays where it is until somebody wants it.
    fn wants_call(&self) -> bool {
        matches!(self.state, State::Booting(_)) || !self.waiting.is_empty()
    }

    /// What others ask for.
    fn others(&mut self) -> anyhow::Result<Option<Finish>> {
        let mut requests: Vec<_> = self.requests.drain(..).collect();
        if let Some(control) = &mut self.control {
            requests.append(&mut control.requests());
        }
        let mut finish = None;
        for (request, client) in requests {
            match request {
                Request::Agent if self.waiting.len() == MAX_WAITING => {
                    client.answer(Err("too many wait for its agent".to_string()));
                }
                Request::Agent => self.waiting.push_back(client),
                Request::Stat => match Stats::of(&self.started.vm.observer()).to_file() {
                    Ok(file) => client.give(&file),
                    Err(error) => client.answer(Err(format!("{error:#}"))),
                },
                Request::Input => match self.background.as_ref().and_then(Background::input) {
                    Some(input) => client.give(input),
                    None => client.answer(Err(
                        "its command has no input: it was not started with --interactive".into(),
                    )),
                },
                Request::Resize { columns, rows } => {
                    if let State::Running(relay) = &mut self.state {
                        relay.resize(Size { columns, rows })?;
                    }
                    client.answer(Ok(()));
                }
                Request::Kill => {
                    client.answer(Ok(()));
                    finish = Some(Finish::Outcome(Outcome::Interrupted(SIGKILL)));
                }
                Request::Stop { seconds } => {
                    let end = Instant::now() + Duration::from_secs(seconds);
                    finish = self.ask_to_end(SIGTERM, end)?.or(finish);
                    client.answer(Ok(()));
                }
                Request::Signal { .. } if self.idle => {
                    client.answer(Err("it has no command".to_string()))
                }
                Request::Signal { number } => match &mut self.state {
                    State::Running(relay) => {
                        relay.signal(number)?;
                        client.answer(Ok(()));
                    }
                    State::Booting(_) => {
                        client.answer(Err("its command does not run yet".to_string()))
                    }
                },
            }
        }
        // For those who have just come.
        self.agent_calls()?;
        Ok(finish)
    }

    /// What the machine has to say, if there is room for it, and stderr, if something waits for that.
    fn outputs<'b>(&'b self, files: &mut Vec<PollFd<'b>>) {
        if !self.log.is_full() {
            files.push(PollFd::from_borrowed_fd(
                self.started.vm.bell(),
                PollFlags::IN,
            ));
        }
        if self.log.waits() {
            files.push(PollFd::from_borrowed_fd(
                rustix::stdio::stderr(),
                PollFlags::OUT,
            ));
        }
    }

    /// Waits for anything.
    fn wait(&self) -> anyhow::Result<()> {
        let mut files = Vec::new();
        self.outputs(&mut files);
        if self.asked.is_none() {
            files.push(PollFd::from_borrowed_fd(self.signals.wake(), PollFlags::IN));
        }
        if self.wants_call() {
            files.push(PollFd::from_borrowed_fd(
                self.started.calls.file(),
                PollFlags::IN,
            ));
        }
        if let Some(control) = &self.control {
            control.files(&mut files);
        }
        files.push(PollFd::from_borrowed_fd(self.quit.file(), PollFlags::IN));
        let report = self.interrupted.as_ref().map(|(_, end)| *end);
        let booting = match &self.state {
            State::Booting(_) => report.or(self.boot_ends),
            State::Running(relay) => {
                relay.files(&mut files);
                report
            }
        };
        let ends = [booting, self.timeout, self.asked.map(|(_, end)| end)];
        let next = ends.into_iter().flatten().min();
        let left = next.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose()?;
        match poll(&mut files, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait"),
        }
    }
}

/// Takes note of SIGQUIT.
struct Quit(UnixStream);

impl Quit {
    fn install() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGQUIT, write)?;
        Ok(Quit(read))
    }

    /// Whether it came since the last call.
    fn came(&self) -> bool {
        matches!((&self.0).read(&mut [0; 16]), Ok(n) if n > 0)
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn command_ended(ended: Ended) -> Finish {
    Finish::Outcome(outcome(ended))
}

/// What the end of a command means for us, said if it has to be.
pub fn outcome(ended: Ended) -> Outcome {
    match ended {
        Ended::Exited(code) => Outcome::Guest(code),
        Ended::Killed(signal) => Outcome::Interrupted(signal),
        Ended::Failed(failure) => {
            say(&format!(
                "paravane: {}\n",
                text::one_line(&text::clean(failure.why.as_bytes()))
            ));
            Outcome::Guest(failure.code)
        }
        Ended::Left => Outcome::Passed,
        Ended::NoReader => Outcome::Interrupted(SIGPIPE),
        Ended::NoRoom(why) => {
            say(&format!(
                "paravane: cannot write what the command prints: {why}\n"
            ));
            Outcome::Failed
        }
    }
}

/// The end of a machine in which the command never ran: no success, whatever the machine says.
fn ended_early(end: End) -> Finish {
    match end {
        End::Shutdown(0) => {
            Finish::Failed("the guest ended before the command could run".to_string())
        }
        other => match machine_ended(other) {
            Finish::Outcome(Outcome::Guest(code)) => Finish::Failed(format!(
                "the guest ended with status {code} before the command could run"
            )),
            finish => finish,
        },
    }
}

fn machine_ended(end: End) -> Finish {
    match end {
        End::Shutdown(PANICKED) => Finish::Crashed("the guest's kernel panicked".to_string()),
        End::Shutdown(AGENT_FAILED) => Finish::AgentFailed,
        End::Shutdown(code) => Finish::Outcome(Outcome::Guest(code)),
        End::Reboot(_) => Finish::Failed("the guest restarted, which is an end here".to_string()),
        End::Failed(why) => Finish::Crashed(format!("{why}; the virtual machine was ended")),
    }
}
