// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane exec`: a command in a running machine, with the streams of this program.

use super::machines::running;
use crate::arguments;
use anyhow::{Context, bail};
use paravane_agent_protocol::{Exec, ToAgent};
use paravane_machine::agent::{Ended, Link, Relay, Terminal};
use paravane_machine::control::{Asked, Request};
use paravane_machine::store::Store;
use paravane_user_io::events::{self, Task, Waits};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::{HANGUP, Signals};
use std::os::unix::net::UnixStream;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The time for a command to end after its terminal was closed. After that, the command may go on
/// in the machine.
const LEAVE: Duration = Duration::from_secs(3);

/// The stage of the session.
enum Stage {
    /// The monitor was asked for a connection to the agent. It answers when the guest has booted.
    Asked(Asked, Box<Exec>),
    /// The agent runs the command.
    Running(Box<Relay>),
}

struct Session {
    stage: Stage,
    signals: Signals,
    /// A signal was passed to the command. A second one ends this program at once.
    signalled: bool,
    /// The terminal was closed, and this program ends at this time.
    leaves_at: Option<Instant>,
}

/// How a session ends.
enum End {
    Command(Ended),
    /// By a signal, before the command was started, or after the terminal was closed.
    Interrupted(u8),
    /// The connection to the agent is lost.
    Lost(anyhow::Error),
}

/// Runs the command.
pub fn run(args: &arguments::Exec) -> anyhow::Result<Outcome> {
    let machine = running(&Store::open()?, &args.name)?;
    let exec = super::run::exec(&args.command, args.tty, &machine.spec()?)?;
    let signals = Signals::install().context("cannot handle signals")?;
    let asked = Asked::new(&machine, &Request::Agent)?;
    let mut session = Session {
        stage: Stage::Asked(asked, Box::new(exec)),
        signals,
        signalled: false,
        leaves_at: None,
    };
    let end = events::run(&mut session);
    // Restores the terminal.
    drop(session);
    match end? {
        End::Command(ended) => Ok(paravane_machine::outcome(ended)),
        End::Interrupted(signal) => Ok(Outcome::Interrupted(signal)),
        End::Lost(error) => {
            eprintln!("paravane: machine {}: {error:#}", machine.name);
            Ok(Outcome::Failed)
        }
    }
}

impl Session {
    /// Sends the command to the agent when the connection is there.
    fn connect(&mut self) -> anyhow::Result<()> {
        let Stage::Asked(asked, exec) = &self.stage else {
            return Ok(());
        };
        let Poll::Ready(file) = asked.answer()? else {
            return Ok(());
        };
        let Some(file) = file else {
            bail!(
                "machine {}: its monitor gave no connection to the agent; see its log",
                asked.name()
            );
        };
        let mut link = Link::new(UnixStream::from(file))?;
        let mut exec = (**exec).clone();
        // The machine may have needed minutes to boot.
        let size = exec.terminal.map(|_| Terminal::size());
        exec.terminal = size;
        let input = exec.input;
        link.put(&ToAgent::Exec(exec))?;
        // The next call can stop this program, if its shell has started it in the background. The
        // agent then has the whole command. The rest of what does not fit is sent with the input.
        link.flush()
            .context("the connection to the guest's agent broke")?;
        let terminal = size
            .map(|_| Terminal::take())
            .transpose()
            .context("cannot use this terminal")?;
        // From here on, changes of the size are noticed.
        let now = size.map(|_| Terminal::size());
        if let (true, Some(now)) = (now != size, now) {
            link.put(&ToAgent::Resize(now))?;
        }
        self.stage = Stage::Running(Box::new(Relay::new(link, terminal, input)));
        Ok(())
    }
}

impl Task for Session {
    type End = End;

    fn turn(&mut self) -> anyhow::Result<Option<End>> {
        self.connect()?;
        let signal = self.signals.pending().filter(|_| !self.signalled);
        match &mut self.stage {
            Stage::Asked(..) => Ok(signal.map(End::Interrupted)),
            Stage::Running(relay) => {
                if let Some(signal) = signal {
                    relay.signal(signal)?;
                    self.signalled = true;
                }
                let ended = match relay.work() {
                    Ok(ended) => ended.map(End::Command),
                    Err(error) => Some(End::Lost(error)),
                };
                if ended.is_none() && relay.hung_up() {
                    let now = Instant::now();
                    if now >= *self.leaves_at.get_or_insert(now + LEAVE) {
                        return Ok(Some(End::Interrupted(HANGUP)));
                    }
                    if !self.signalled {
                        relay.signal(HANGUP)?;
                        self.signalled = true;
                    }
                }
                Ok(ended)
            }
        }
    }

    fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
        if !self.signalled {
            waits.to_read(self.signals.wake());
        }
        match &self.stage {
            Stage::Asked(asked, _) => asked.waits(waits),
            Stage::Running(relay) => relay.waits(waits),
        }
        if let Some(time) = self.leaves_at {
            waits.until(time);
        }
    }
}
