// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane attach`: what a machine in the background prints from now on, and what its command reads.

use super::machines::running;
use crate::arguments;
use anyhow::Context;
use paravane_machine::agent::{LEAVE, Terminal};
use paravane_machine::control::{Request, ask};
use paravane_machine::output_log::Log;
use paravane_machine::store::{Machine, State, Store};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Between two looks at what a machine has printed; where somebody types, it is seen sooner.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_TYPING: Duration = Duration::from_millis(10);
/// A pipe that can be written to takes so much at least without making us wait (POSIX's PIPE_BUF).
const PIECE: usize = 4096;

/// What we read, for the machine's command.
struct Input {
    /// To the command.
    pipe: OwnedFd,
    /// Read, and not sent yet.
    waiting: Vec<u8>,
    /// Our standard input may have more.
    open: bool,
    /// When that is sent, whoever types is done.
    leaving: bool,
    /// What is typed goes there as it is typed.
    terminal: Option<Terminal>,
}

/// What came of a piece of input.
#[derive(PartialEq, Eq)]
enum Step {
    On,
    /// Whoever types has left.
    Left,
    /// The command reads no more.
    Gone,
}

impl Input {
    /// None: the command has no input, or we shall not read.
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

    /// Tells the command the size of our terminal.
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

    /// What there is to wait for.
    fn file(&self) -> Option<PollFd<'_>> {
        if !self.waiting.is_empty() {
            return Some(PollFd::new(&self.pipe, PollFlags::OUT));
        }
        self.open
            .then(|| PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN))
    }

    /// Reads or writes one piece, as [`Input::file`] can.
    fn step(&mut self) -> anyhow::Result<Step> {
        if self.waiting.is_empty() {
            let mut piece = vec![0; PIECE];
            let read = match rustix::io::read(rustix::stdio::stdin(), &mut piece) {
                Err(Errno::AGAIN | Errno::INTR) => return Ok(Step::On),
                // The terminal has gone.
                Err(Errno::IO) if self.terminal.is_some() => 0,
                other => other.context("cannot read standard input")?,
            };
            piece.truncate(read);
            if read == 0 {
                // The command's input goes on: somebody else may attach.
                self.open = false;
                return Ok(if self.terminal.is_some() {
                    Step::Left
                } else {
                    Step::On
                });
            }
            // What was typed before it counts.
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

/// `attach`
pub fn run(args: &arguments::Attach) -> anyhow::Result<Outcome> {
    let machine = running(&Store::open()?, &args.name)?;
    let signals = Signals::install().context("cannot handle signals")?;
    let mut log = Log::open(&machine)?;
    log.skip()?;
    let mut input = Input::new(&machine, args)?;
    let mut passed_on = false;
    loop {
        let state = machine.state()?;
        log.print()?;
        match state {
            State::Running { .. } => {}
            State::Exited(code) => return Ok(Outcome::Guest(code)),
            State::Created | State::Died => {
                // First, so that the line begins at the left.
                drop(input);
                eprintln!("paravane: machine {}: its monitor was killed", machine.name);
                return Ok(Outcome::Failed);
            }
        }
        if let (Some(number), false) = (signals.pending(), passed_on) {
            // A second one ends us at once, and nothing else.
            passed_on = true;
            if let Err(error) = ask(&machine, &Request::Signal { number }) {
                // It may be about to end.
                tracing::info!("{error:#}");
            }
        }
        if let Some(typing) = &input {
            if typing.terminal.as_ref().is_some_and(Terminal::was_resized) {
                typing.resize(&machine)?;
            }
        }
        let ready = wait(input.as_ref())?;
        if let (Some(typing), true) = (&mut input, ready) {
            match typing.step()? {
                Step::On => {}
                Step::Left => return Ok(Outcome::Passed),
                Step::Gone => input = None,
            }
        }
    }
}

/// Waits for input that can go on, or until it is time to look at the machine. Whether it can.
fn wait(input: Option<&Input>) -> anyhow::Result<bool> {
    let typing = input.is_some_and(|input| input.terminal.is_some());
    let time = Timespec::try_from(if typing { LOOK_TYPING } else { LOOK })?;
    let mut files: Vec<_> = input.and_then(Input::file).into_iter().collect();
    match poll(&mut files, Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("cannot wait"),
    }
}
