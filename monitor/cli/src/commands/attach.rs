// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane attach`: prints the output of a machine in the background from now on, and passes
//! input to its command.

use super::log::Log;
use super::machines::running;
use crate::arguments;
use anyhow::Context;
use paravane_machine::agent::{LEAVE, Terminal};
use paravane_machine::control::{Request, ask};
use paravane_machine::store::{Machine, State, Store};
use paravane_user_io::events::{self, PollFlags, Task, Waits, is_ready};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::outlet::Outlet;
use paravane_user_io::signals::{HANGUP, Signals};
use rustix::io::Errno;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time between two checks of a machine's output. It is shorter if input comes from a terminal.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_TYPING: Duration = Duration::from_millis(10);
/// A writable pipe takes at least this many bytes without blocking (POSIX's PIPE_BUF).
const PIECE: usize = 4096;
/// Pieces of output in a turn. The next turn continues with the rest, after input and signals.
const PIECES: usize = 64;

/// The input of the machine's command.
struct Input {
    /// The pipe to the command.
    pipe: OwnedFd,
    /// Bytes that were read and not sent yet.
    waiting: Vec<u8>,
    /// Standard input may have more.
    open: bool,
    /// The user typed Ctrl-]: the session ends when `waiting` is sent.
    leaving: bool,
    /// Set if standard input is a terminal for the command's terminal.
    terminal: Option<Terminal>,
}

/// The result of handling a piece of input.
#[derive(PartialEq, Eq)]
enum Step {
    On,
    /// The user has left.
    Left,
    /// The terminal was closed.
    HungUp,
    /// The command has closed its input.
    Gone,
}

impl Input {
    /// None if the command has no input, or with `--no-stdin`.
    fn new(machine: &Machine, args: &arguments::Attach) -> anyhow::Result<Option<Self>> {
        let spec = machine.spec()?;
        if args.no_stdin || !spec.interactive {
            return Ok(None);
        }
        let pipe = ask(machine, &Request::Input)?.context("its monitor gave no input")?;
        let terminal = (spec.tty && Terminal::is_there())
            .then(Terminal::take)
            .transpose()
            .context("cannot use this terminal")?;
        let input = Input {
            pipe,
            waiting: Vec::new(),
            open: true,
            leaving: false,
            terminal,
        };
        input.resize(machine)?;
        Ok(Some(input))
    }

    /// Sets the size of the command's terminal to that of this one.
    fn resize(&self, machine: &Machine) -> anyhow::Result<()> {
        if self.terminal.is_some() {
            let size = Terminal::size();
            let (columns, rows) = (size.columns, size.rows);
            if let Err(error) = ask(machine, &Request::Resize { columns, rows }) {
                // It may be about to end.
                tracing::info!("{error:#}");
            }
        }
        Ok(())
    }

    /// Adds what [`Input::step`] waits for.
    fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
        if !self.waiting.is_empty() {
            waits.to_write(self.pipe.as_fd());
        } else if self.open {
            waits.to_read(rustix::stdio::stdin());
        }
    }

    /// Whether [`Input::step`] can do something without waiting.
    fn is_ready(&self) -> bool {
        if !self.waiting.is_empty() {
            return is_ready(self.pipe.as_fd(), PollFlags::OUT);
        }
        self.open && is_ready(rustix::stdio::stdin(), PollFlags::IN)
    }

    /// Reads or writes one piece, as [`Input::is_ready`] says.
    fn step(&mut self) -> anyhow::Result<Step> {
        if self.waiting.is_empty() {
            let mut piece = vec![0; PIECE];
            let read = match rustix::io::read(rustix::stdio::stdin(), &mut piece) {
                Err(Errno::AGAIN | Errno::INTR) => return Ok(Step::On),
                // The terminal has hung up.
                Err(Errno::IO) if self.terminal.is_some() => 0,
                other => other.context("cannot read standard input")?,
            };
            piece.truncate(read);
            if read == 0 {
                // The command's input stays open: another client may attach.
                self.open = false;
                return Ok(if self.terminal.is_some() {
                    Step::HungUp
                } else {
                    Step::On
                });
            }
            // The bytes before it are still sent.
            if let (true, Some(at)) = (
                self.terminal.is_some(),
                piece.iter().position(|&byte| byte == LEAVE),
            ) {
                piece.truncate(at);
                self.leaving = true;
            }
            self.waiting = piece;
            return Ok(self.after());
        }
        match rustix::io::write(&self.pipe, &self.waiting) {
            Ok(written) => drop(self.waiting.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::PIPE) => return Ok(Step::Gone),
            Err(error) => return Err(error).context("cannot write to the machine"),
        }
        Ok(self.after())
    }

    fn after(&self) -> Step {
        if self.leaving && self.waiting.is_empty() {
            Step::Left
        } else {
            Step::On
        }
    }
}

/// A terminal, or other standard streams, attached to a machine.
struct Session {
    machine: Machine,
    log: Log,
    /// Output that was read and not written yet.
    output: Vec<u8>,
    input: Option<Input>,
    signals: Signals,
    /// Input, output or errors of this program have or had a terminal.
    at_terminal: bool,
    /// A signal was passed to the command. A second one ends this program at once.
    signalled: bool,
}

/// How a session ends.
enum End {
    /// The machine has ended with this exit code.
    Machine(u8),
    /// Its monitor was killed.
    Killed,
    /// The user has left.
    Left,
    /// The terminal was closed.
    HungUp,
}

/// `attach`
pub fn run(args: &arguments::Attach) -> anyhow::Result<Outcome> {
    let machine = running(&Store::open()?, &args.name)?;
    let signals = Signals::install().context("cannot handle signals")?;
    let mut log = Log::open(machine.output())?;
    log.skip()?;
    let input = Input::new(&machine, args)?;
    let mut session = Session {
        machine,
        log,
        output: Vec::new(),
        input,
        signals,
        at_terminal: io::stdin().is_terminal()
            || io::stdout().is_terminal()
            || io::stderr().is_terminal(),
        signalled: false,
    };
    let end = events::run(&mut session);
    // From here on the terminal is as it was before.
    drop(session.input.take());
    Ok(match end? {
        End::Machine(code) => Outcome::Guest(code),
        End::Left => Outcome::Passed,
        End::HungUp => Outcome::Interrupted(HANGUP),
        End::Killed => {
            let name = &session.machine.name;
            eprintln!("paravane: machine {name}: its monitor was killed");
            Outcome::Failed
        }
    })
}

impl Session {
    /// Writes output as long as standard output takes it. A reader that does not read must not keep
    /// input from the command: it may be waiting for its own input to be taken.
    fn print(&mut self) -> anyhow::Result<()> {
        for _ in 0..PIECES {
            if self.output.is_empty() {
                let mut piece = [0; PIECE];
                let count = self.log.read(&mut piece)?;
                self.output.extend_from_slice(&piece[..count]);
            }
            if self.output.is_empty() {
                break;
            }
            match Outlet::Output.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The signal of the terminal follows.
                Err(Errno::IO) if self.at_terminal => {
                    self.output.clear();
                    break;
                }
                Err(error) => return Err(io::Error::from(error)).context("cannot write"),
            }
        }
        Ok(())
    }
}

impl Task for Session {
    type End = End;

    fn turn(&mut self) -> anyhow::Result<Option<End>> {
        // Read the state first: everything printed before the end is then read below.
        let state = self.machine.state()?;
        let end = match state {
            State::Running { .. } => None,
            State::Exited(code) => Some(End::Machine(code)),
            State::Created | State::Died => Some(End::Killed),
        };
        if end.is_some() {
            io::stdout().write_all(&self.output)?;
            self.log.print()?;
            return Ok(end);
        }
        self.print()?;
        if let (Some(number), false) = (self.signals.pending(), self.signalled) {
            // A terminal that is closed ends this program only, as a connection of ssh that breaks.
            if number == HANGUP && self.at_terminal {
                return Ok(Some(End::HungUp));
            }
            self.signalled = true;
            if let Err(error) = ask(&self.machine, &Request::Signal { number }) {
                // It may be about to end.
                tracing::info!("{error:#}");
            }
        }
        let Some(input) = &mut self.input else {
            return Ok(None);
        };
        if input.terminal.as_ref().is_some_and(Terminal::was_resized) {
            input.resize(&self.machine)?;
        }
        if input.is_ready() {
            match input.step()? {
                Step::On => {}
                Step::Left => return Ok(Some(End::Left)),
                Step::HungUp => return Ok(Some(End::HungUp)),
                Step::Gone => self.input = None,
            }
        }
        Ok(None)
    }

    fn waits<'a>(&'a self, waits: &mut Waits<'a>) {
        let typing = |input: &Input| input.terminal.is_some();
        let look = if self.input.as_ref().is_some_and(typing) {
            LOOK_TYPING
        } else {
            LOOK
        };
        waits.until(Instant::now() + look);
        if !self.output.is_empty() {
            waits.to_write(Outlet::Output.file());
        }
        if let Some(input) = &self.input {
            input.waits(waits);
        }
        if !self.signalled {
            waits.to_read(self.signals.wake());
        }
    }
}
