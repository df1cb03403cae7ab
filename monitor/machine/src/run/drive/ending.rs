// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a machine's end is brought about: by a signal, a request, a time that is over, an agent that is gone. Each has a
//! bound in time, after which the machine ends whatever its guest does.

use super::*;

impl Drive<'_> {
    /// Has the guest write back what it has not written yet to what stays, and end. A guest that does not is ended: its
    /// file systems are then as after a loss of power.
    pub(super) fn power_off(&mut self, mut deadline: Instant) -> Option<End> {
        let mut link = None;
        loop {
            if let Some(end) = self.console() {
                return Some(end);
            }
            deadline = self.hurried(deadline);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("the guest has not written everything back");
                return None;
            }
            // The agent dials again for each command, and for this.
            if link.is_none() {
                link = self.started.calls.next().ok().flatten().and_then(|stream| {
                    let mut link = Link::new(stream).ok()?;
                    link.put(&ToAgent::PowerOff(0)).ok()?;
                    link.flush().ok()?.then_some(link)
                });
            }
            let mut files = Vec::new();
            self.outputs(&mut files);
            if link.is_none() {
                files.push(PollFd::from_borrowed_fd(
                    self.started.calls.file(),
                    PollFlags::IN,
                ));
            }
            if self.asked.is_none() {
                files.push(PollFd::from_borrowed_fd(self.signals.wake(), PollFlags::IN));
            }
            if let Some(control) = &self.control {
                control.files(&mut files);
            }
            // Whatever ends the wait, everything is looked at again.
            let _ = poll(&mut files, Timespec::try_from(left).ok().as_ref());
        }
    }

    /// When a guest that writes back has to have ended: whoever asks for the end does not wait for
    /// longer than if the command still ran.
    pub(super) fn hurried(&mut self, deadline: Instant) -> Instant {
        let now = Instant::now();
        if let (Some(signal), None) = (self.signals.pending(), self.asked) {
            self.asked = Some((signal, now + GRACE));
        }
        let requests = self
            .control
            .as_mut()
            .map(Server::requests)
            .unwrap_or_default();
        for (request, client) in requests {
            let end = match request {
                Request::Kill => now,
                Request::Stop { seconds } => now + Duration::from_secs(seconds),
                _ => {
                    client.answer(Err("it is ending".to_string()));
                    continue;
                }
            };
            client.answer(Ok(()));
            let sooner = self.asked.filter(|(_, before)| *before < end);
            self.asked = sooner.or(Some((SIGTERM, end)));
        }
        let asked = self.asked.map(|(_, end)| end);
        let ends = [Some(deadline), asked, self.timeout.map(|end| end + GRACE)];
        ends.into_iter().flatten().min().unwrap_or(deadline)
    }

    /// The agent went away, most likely with the machine: then how that ended is what counts.
    pub(super) fn agent_lost(&mut self, error: &anyhow::Error) -> Finish {
        let patience = if self.ending == SYSTEM_ENDS {
            SYSTEM_ENDS
        } else {
            LAST_WORDS
        };
        let mut deadline = Instant::now() + patience;
        loop {
            if let Some(end) = self.console() {
                return machine_ended(end);
            }
            if let Some(signal) = self.signals.pending() {
                return Finish::Outcome(Outcome::Interrupted(signal));
            }
            deadline = self.hurried(deadline);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return match self.asked {
                    Some((signal, _)) => Finish::Outcome(Outcome::Interrupted(signal)),
                    None => Finish::Failed(format!("{error:#}")),
                };
            }
            let mut files = vec![PollFd::from_borrowed_fd(self.signals.wake(), PollFlags::IN)];
            self.outputs(&mut files);
            if let Some(control) = &self.control {
                control.files(&mut files);
            }
            // Whatever ends the wait, everything is looked at again.
            let _ = poll(&mut files, Timespec::try_from(left).ok().as_ref());
        }
    }

    /// Passes a signal on, so that the command can tidy; an end at once if there is none yet.
    pub(super) fn ask_to_end(
        &mut self,
        signal: u8,
        end: Instant,
    ) -> anyhow::Result<Option<Finish>> {
        match &mut self.state {
            State::Running(_) if self.idle => Ok(Some(match self.power_off(end) {
                Some(end) => machine_ended(end),
                None => Finish::Outcome(Outcome::Interrupted(signal)),
            })),
            State::Running(relay) => {
                relay.signal(signal)?;
                self.asked = Some((signal, end));
                Ok(None)
            }
            State::Booting(_) => Ok(Some(Finish::Outcome(Outcome::Interrupted(signal)))),
        }
    }

    /// Looks at signals and deadlines.
    pub(super) fn out_of_time(&mut self) -> anyhow::Result<Option<Finish>> {
        let now = Instant::now();
        match (self.signals.pending(), self.asked) {
            (Some(signal), None) => {
                if let Some(finish) = self.ask_to_end(signal, now + GRACE)? {
                    return Ok(Some(finish));
                }
            }
            (_, Some((signal, end))) if now >= end => {
                return Ok(Some(Finish::Outcome(Outcome::Interrupted(signal))));
            }
            _ => {}
        }
        if self.timeout.is_some_and(|timeout| now >= timeout) {
            say("paravane: the time of --timeout is over; the virtual machine was ended\n");
            return Ok(Some(Finish::Outcome(Outcome::Guest(TIMED_OUT))));
        }
        if let Some((why, _)) = self.interrupted.take_if(|(_, end)| now >= *end) {
            return Ok(Some(Finish::Crashed(format!("{why}; it does not answer"))));
        }
        if self.interrupted.is_none() {
            let booting = matches!(self.state, State::Booting(_));
            let why = if self.quit.came() {
                Some("the guest was interrupted, see above for what it did".to_string())
            } else if booting && self.boot_ends.is_some_and(|end| now >= end) {
                Some(format!(
                    "the guest had not started after {} s",
                    BOOT.as_secs()
                ))
            } else {
                None
            };
            if let Some(why) = why {
                // Its kernel panics, and prints where each vCPU was.
                self.started.vm.nmi();
                self.interrupted = Some((why, now + REPORT));
            }
        }
        Ok(None)
    }
}
