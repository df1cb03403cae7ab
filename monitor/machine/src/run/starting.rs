// SPDX-License-Identifier: Apache-2.0 OR MIT
//! While the host makes a machine: signals, deadlines and requests are served as later, when it runs.

use super::launch::{Made, Starting};
use crate::control::{Client, Request, Server};
use anyhow::{Context, bail};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::stderr::say;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// For the host to make a machine. Takes hundredths of a second.
const MAKE: Duration = Duration::from_secs(60);
/// A host that is about to be done is waited for when the machine must end, so that nothing is left of it.
const LEAVE: Duration = Duration::from_millis(500);
/// Exit code for `--timeout`, as timeout(1) has it.
pub const TIMED_OUT: u8 = 124;
const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;
/// So many requests may wait for the machine to run.
const MAX_WAITING: usize = 16;

/// What came of it.
pub enum Begun {
    /// The machine, and who asked for something meanwhile.
    Made(Box<Made>, VecDeque<(Request, Client)>),
    /// It was asked to end.
    Ended(Outcome),
}

/// Waits for the machine to be made. `timeout`: when it has to have ended.
pub fn wait(
    starting: Starting,
    signals: &Signals,
    control: Option<&mut Server>,
    timeout: Option<Instant>,
) -> anyhow::Result<Begun> {
    let mut wait = Wait {
        starting,
        signals,
        control,
        timeout,
        ends: Instant::now() + MAKE,
        waiting: VecDeque::new(),
    };
    loop {
        if let Some(made) = wait.starting.take()? {
            return Ok(Begun::Made(Box::new(made?), wait.waiting));
        }
        if let Some(outcome) = wait.asked_to_end() {
            // What it has made by then is dropped: that ends it in good order.
            drop(wait.starting.wait_until(Instant::now() + LEAVE));
            return Ok(Begun::Ended(outcome));
        }
        if Instant::now() >= wait.ends {
            bail!(
                "cannot start the machine: the host had not made it after {} s",
                MAKE.as_secs()
            );
        }
        wait.poll()?;
    }
}

struct Wait<'a> {
    starting: Starting,
    signals: &'a Signals,
    control: Option<&'a mut Server>,
    timeout: Option<Instant>,
    ends: Instant,
    waiting: VecDeque<(Request, Client)>,
}

impl Wait<'_> {
    fn asked_to_end(&mut self) -> Option<Outcome> {
        if let Some(signal) = self.signals.pending() {
            return Some(Outcome::Interrupted(signal));
        }
        if self.timeout.is_some_and(|end| Instant::now() >= end) {
            say("paravane: the time of --timeout is over; the virtual machine was ended\n");
            return Some(Outcome::Guest(TIMED_OUT));
        }
        let mut outcome = None;
        let control = self.control.as_mut();
        for (request, client) in control.map(|c| c.requests()).unwrap_or_default() {
            match request {
                Request::Stop { .. } => {
                    client.answer(Ok(()));
                    outcome = Some(Outcome::Interrupted(SIGTERM));
                }
                Request::Kill => {
                    client.answer(Ok(()));
                    outcome = Some(Outcome::Interrupted(SIGKILL));
                }
                Request::Signal { .. } => {
                    client.answer(Err("its command does not run yet".to_string()));
                }
                _ if self.waiting.len() == MAX_WAITING => {
                    client.answer(Err("too many wait for it to start".to_string()));
                }
                request => self.waiting.push_back((request, client)),
            }
        }
        outcome
    }

    fn poll(&self) -> anyhow::Result<()> {
        let mut files = vec![
            PollFd::from_borrowed_fd(self.starting.file(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.wake(), PollFlags::IN),
        ];
        if let Some(control) = &self.control {
            control.files(&mut files);
        }
        let end = self.timeout.map_or(self.ends, |end| end.min(self.ends));
        let left = end.saturating_duration_since(Instant::now());
        match poll(&mut files, Some(&Timespec::try_from(left)?)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait"),
        }
    }
}
