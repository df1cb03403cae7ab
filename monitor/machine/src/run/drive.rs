// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drives a machine from its start to its end. One event loop serves the thread that creates the
//! machine, the guest's console, the agent, the command's streams, signals and the control socket,
//! in every state. [`Life`] decides what follows from each event.

use super::background::Background;
use super::finish::{self, Reboots};
use super::kernel_log::KernelLog;
use super::launch::{Started, Starting};
use super::life::{Action, Event, Finish, Life, Plan, State};
use super::ms;
use super::restarter::Told;
use crate::agent::{Ended, Link, Relay, Terminal};
use crate::control::{Client, Server};
use crate::output_log;
use anyhow::Context;
use paravane_agent_protocol::frame::{MAX_TO_AGENT, put_message};
use paravane_agent_protocol::{Configuration, Exec, ToAgent};
use paravane_hypervisor::process::Output;
use paravane_user_io::events::{self, Task, Waits};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::{HANGUP, Signals};
use paravane_user_io::{log, stderr};
use signal_hook::consts::SIGQUIT;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long an aborted start has to finish, so that it can be cleaned up.
const LEAVE: Duration = Duration::from_millis(500);
/// Pieces of output, or connections, taken before anything else is served.
const BURST: usize = 64;

/// How a machine is run.
#[derive(Debug)]
pub struct RunOptions {
    /// The command. Without one the machine runs until it is ended.
    pub exec: Option<Exec>,
    /// Process 1 may be the root's own init.
    pub system: bool,
    /// The end of `--timeout`.
    pub timeout: Option<Instant>,
    /// Booting has no time limit: a debugger may stop the kernel.
    pub patient: bool,
    /// By which `paravane stop` asks the command to end.
    pub stop: u8,
    /// Print the kernel's log.
    pub verbose: bool,
    /// Set for a machine in the background, to which terminals attach.
    pub background: Option<Background>,
    /// What a reboot of the guest means.
    pub reboots: Reboots,
}

/// The machine in its two stages.
pub(super) enum Machine {
    /// The host creates it.
    Starting(Starting),
    /// It runs.
    Started(Box<Started>),
}

/// A machine, and everything that its loop serves.
pub struct Drive<'a> {
    pub(super) life: Life,
    pub(super) machine: Machine,
    /// The command, until it is sent to the agent.
    pub(super) exec: Option<Exec>,
    /// The command's streams, once the agent has connected.
    pub(super) relay: Option<Relay>,
    /// The connection on which the agent got the request to power off.
    power_off: Option<Link>,
    pub(super) background: Option<Background>,
    reboots: Reboots,
    /// The user has left the command, or has closed what it prints to.
    left: bool,
    pub(super) log: KernelLog,
    signals: &'a Signals,
    /// A signal to this program was delivered. A second one ends the program at once.
    signalled: bool,
    quit: Quit,
    pub(super) control: Option<Server>,
    /// Clients that wait for a connection to the agent.
    pub(super) waiting: VecDeque<Client>,
    begun: Instant,
}

impl<'a> Drive<'a> {
    /// For a machine that the host begins to create. `begun`: when the monitor started, for the
    /// times in the log.
    ///
    /// # Errors
    /// SIGQUIT cannot be handled.
    pub fn new(
        starting: Starting,
        options: RunOptions,
        signals: &'a Signals,
        control: Option<Server>,
        begun: Instant,
    ) -> anyhow::Result<Self> {
        let plan = Plan {
            command: options.exec.is_some(),
            keeps: false,
            system: options.system,
            stop: options.stop,
            patient: options.patient,
            timeout: options.timeout,
        };
        Ok(Drive {
            life: Life::new(plan, Instant::now()),
            machine: Machine::Starting(starting),
            exec: options.exec,
            relay: None,
            power_off: None,
            background: options.background,
            reboots: options.reboots,
            left: false,
            log: KernelLog::new(options.verbose),
            signals,
            signalled: false,
            quit: Quit::install().context("cannot handle signals")?,
            control,
            waiting: VecDeque::new(),
            begun,
        })
    }

    /// Runs the machine to its end.
    ///
    /// # Errors
    /// The machine cannot be created, or this program's standard streams fail.
    pub fn run(mut self) -> anyhow::Result<(Outcome, Told)> {
        let finish = events::run(&mut self);
        // The machine or its agent has ended before the command, or with it.
        if let (Some(relay), Ok(Finish::Machine(_) | Finish::Failed(_) | Finish::Crashed(_))) =
            (&mut self.relay, &finish)
        {
            relay.finish(self.life.print_by());
        }
        // Restores the terminal.
        drop(self.relay.take());
        let asked = self.left || self.life.is_asked();
        let outcome = match self.machine {
            Machine::Started(started) => {
                let by = self.life.print_by();
                let reboots = self.reboots.unless(asked, self.life.signal());
                finish::tell(finish, &started, &mut self.log, reboots, by)?
            }
            Machine::Starting(starting) => {
                // A machine that is complete by then is cleaned up.
                drop(starting.wait_until(Instant::now() + LEAVE));
                // A machine that is complete later ends with this process. Its thread would clean
                // it up under a policy that does not admit all of that.
                std::mem::forget(starting);
                Some(finish::tell_early(finish)?)
            }
        };
        Ok(match outcome {
            None => (Outcome::Failed, Told::Rebooted),
            Some(outcome) if asked => (outcome, Told::Asked),
            Some(outcome) => (outcome, Told::Ended),
        })
    }

    /// Delivers an event, and carries out the action that follows.
    pub(super) fn happens(&mut self, event: Event) -> anyhow::Result<()> {
        let action = self.life.on(event, Instant::now());
        if let Some(time) = self.life.print_by() {
            stderr::hurry(time);
        }
        match action {
            Action::None => {}
            Action::Signal(number) => {
                if let Some(relay) = &mut self.relay {
                    relay.signal(number)?;
                }
            }
            Action::PowerOff => {
                for client in self.waiting.drain(..) {
                    client.answer(Err("it is ending".to_string()));
                }
            }
            Action::Interrupt => {
                if let Machine::Started(started) = &self.machine {
                    started.vm.nmi();
                }
            }
        }
        Ok(())
    }

    /// Starts the machine when the host has created it.
    fn start(&mut self) -> anyhow::Result<()> {
        let Machine::Starting(starting) = &self.machine else {
            return Ok(());
        };
        if let Some(made) = starting.take()? {
            let started = made?.start()?;
            tracing::info!(ms = ms(self.begun), "the kernel starts");
            self.life.keeps(started.resources.keeps);
            self.machine = Machine::Started(Box::new(started));
            self.happens(Event::Made)?;
        }
        Ok(())
    }

    /// Takes the machine's output, and its end.
    fn console(&mut self) -> anyhow::Result<()> {
        // A guest that prints without end must not block the rest of the loop.
        for _ in 0..BURST {
            self.log.write();
            let Machine::Started(started) = &self.machine else {
                return Ok(());
            };
            if self.log.is_full() {
                break;
            }
            match started.vm.next() {
                None => break,
                Some(Output::Console(bytes)) => self.log.add(&bytes),
                Some(Output::End(end)) => return self.happens(Event::MachineEnded(end)),
            }
        }
        self.log.write();
        Ok(())
    }

    /// Whether the agent's next connection is needed. If not, it stays in the queue.
    fn wants_call(&self) -> bool {
        match self.life.state() {
            State::Booting { .. } => true,
            // Clients find the folders and the network there.
            State::Running => {
                !self.waiting.is_empty() && self.relay.as_ref().is_some_and(Relay::is_configured)
            }
            State::PoweringOff { .. } => self.power_off.is_none(),
            State::Starting { .. } | State::Ending { .. } | State::Ended(_) => false,
        }
    }

    /// Takes the agent's connections. The first gets the command. Later ones are for clients and
    /// for the power-off.
    fn agent_calls(&mut self) -> anyhow::Result<()> {
        // A guest that connects and hangs up without end must not block the rest of the loop.
        for _ in 0..BURST {
            if !self.wants_call() {
                break;
            }
            let Machine::Started(started) = &self.machine else {
                break;
            };
            let call = started.calls.next();
            let Some(stream) = call.context("cannot take the agent's call")? else {
                break;
            };
            match self.life.state() {
                State::Running => {
                    if let Some(client) = self.waiting.pop_front() {
                        taken(&stream);
                        client.give(&OwnedFd::from(stream));
                    }
                }
                State::PoweringOff { .. } => self.power_off = ask_to_power_off(stream),
                _ => self.first_call(stream)?,
            }
        }
        Ok(())
    }

    fn first_call(&mut self, stream: UnixStream) -> anyhow::Result<()> {
        let Machine::Started(started) = &self.machine else {
            return Ok(());
        };
        tracing::info!(ms = ms(self.begun), "the agent calls");
        let mut link = Link::new(stream).context("cannot take the agent's call")?;
        link.put(&ToAgent::Configure(Configuration {
            hostname: Some(crate::root::HOSTNAME.to_string()),
            mounts: started.resources.mounts.clone(),
            network: started.resources.connected.network.clone(),
        }))?;
        let (mut terminal, mut input) = (None, false);
        if let Some(mut exec) = self.exec.take() {
            input = exec.input;
            // In the background, clients attach with terminals of their own.
            if exec.terminal.is_some() && self.background.is_none() {
                terminal = Some(Terminal::take().context("cannot use this terminal")?);
                // It may have another size than when the machine started.
                exec.terminal = Some(Terminal::size());
            }
            link.put(&ToAgent::Exec(exec))?;
        }
        let mut relay = Relay::new(link, terminal, input);
        if self.background.is_some() {
            relay.forget();
        }
        self.relay = Some(relay);
        self.happens(Event::AgentCalled)
    }

    /// Carries the command's streams.
    fn streams(&mut self) -> anyhow::Result<()> {
        let (State::Running, Some(relay)) = (self.life.state(), &mut self.relay) else {
            return Ok(());
        };
        let done = relay.work();
        if let Some(background) = &mut self.background
            && relay.is_configured()
            // A system's services may need minutes before the command has its turn. And where the
            // machine starts again, its restarter reports nothing.
            && (relay.has_started()
                || !self.life.has_command()
                || self.life.has_services()
                || self.reboots.start_again)
        {
            background.say_running();
        }
        let hung_up = relay.hung_up();
        match done {
            Ok(None) if hung_up && !self.signalled => {
                self.signalled = true;
                self.happens(Event::Signal(HANGUP))
            }
            Ok(None) => Ok(()),
            Ok(Some(ended)) => {
                tracing::info!(ms = ms(self.begun), "the command has ended");
                self.left = matches!(ended, Ended::Left | Ended::NoReader | Ended::NoRoom(_));
                self.happens(Event::CommandEnded(finish::outcome(ended)))
            }
            Err(error) => self.happens(Event::AgentLost(format!("{error:#}"))),
        }
    }

    /// Delivers signals to this program.
    fn signals(&mut self) -> anyhow::Result<()> {
        if let (false, Some(number)) = (self.signalled, self.signals.pending()) {
            self.signalled = true;
            self.happens(Event::Signal(number))?;
        }
        if self.quit.came() {
            self.happens(Event::Quit)?;
        }
        Ok(())
    }
}

impl Task for Drive<'_> {
    type End = Finish;

    fn turn(&mut self) -> anyhow::Result<Option<Finish>> {
        self.start()?;
        self.console()?;
        self.agent_calls()?;
        if let Some(control) = &self.control {
            log::heard();
            output_log::turn(control.machine());
        }
        self.streams()?;
        self.requests()?;
        self.signals()?;
        self.happens(Event::Time)?;
        match self.life.state() {
            State::Ended(finish) => Ok(Some(finish.clone())),
            _ => Ok(None),
        }
    }

    fn waits<'b>(&'b self, waits: &mut Waits<'b>) {
        if !self.signalled {
            waits.to_read(self.signals.wake());
        }
        waits.to_read(self.quit.file());
        if let Some(control) = &self.control {
            control.waits(waits);
            // The log may have filled the file that standard error is.
            if let Some(bell) = log::bell() {
                waits.to_read(bell);
            }
        }
        if self.log.waits() {
            waits.to_write(rustix::stdio::stderr());
        }
        match &self.machine {
            Machine::Starting(starting) => waits.to_read(starting.file()),
            Machine::Started(started) => {
                // While the log is full, the guest waits.
                if !self.log.is_full() {
                    waits.to_read(started.vm.bell());
                }
                if self.wants_call() {
                    waits.to_read(started.calls.file());
                }
            }
        }
        if let (State::Running, Some(relay)) = (self.life.state(), &self.relay) {
            relay.waits(waits);
        }
        if let Some(time) = self.life.next() {
            waits.until(time);
        }
    }
}

/// Reports to the agent that a connection has been taken, so that it opens the next one now: a
/// client may be stopped, or end, before it sends a request.
fn taken(mut stream: &UnixStream) {
    let mut frame = Vec::new();
    // Without a command, this message means nothing else.
    let made = put_message(&mut frame, &ToAgent::EndOfInput, MAX_TO_AGENT);
    if made.is_ok() {
        // The connection is new, so the few bytes have room. If it broke, its client learns that.
        let _ = stream.write_all(&frame);
    }
}

/// Asks for the power-off on a new connection. Returns none if that is lost: the next one is used.
fn ask_to_power_off(stream: UnixStream) -> Option<Link> {
    let mut link = Link::new(stream).ok()?;
    link.put(&ToAgent::PowerOff(0)).ok()?;
    link.flush().ok()?.then_some(link)
}

/// Handles SIGQUIT.
struct Quit(UnixStream);

impl Quit {
    fn install() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGQUIT, write)?;
        Ok(Quit(read))
    }

    /// Whether one has arrived since the last call.
    fn came(&self) -> bool {
        matches!((&self.0).read(&mut [0; 16]), Ok(n) if n > 0)
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
