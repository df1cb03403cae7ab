// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a `struct vbus_client` of C is.

use paravane_vbus_client::bus::Event;
use paravane_vbus_client::{Client, Error, Woken};
use std::collections::VecDeque;
use std::time::Duration;

/// Most events that are kept for a program.
const EVENTS: usize = 64;

/// A client, and the events that a wait has taken. A program that never asks for events has none to
/// care for, and a wait must not end for one again and again.
#[derive(Debug)]
pub struct Held {
    pub client: Client,
    events: VecDeque<Event>,
}

impl Held {
    pub fn new(client: Client) -> Self {
        Held {
            client,
            events: VecDeque::with_capacity(EVENTS),
        }
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.clear();
            self.events.push_back(Event::Lost);
        }
        self.events.push_back(event);
    }

    /// Waits. False: the time is over.
    pub fn wait(&mut self, time: Option<Duration>, room: bool) -> Result<bool, Error> {
        let woken = self.client.wait(time, room)?;
        if woken == Woken::Event {
            // Those that are left end the next wait.
            for _ in 0..EVENTS {
                match self.client.event()? {
                    Some(event) => self.keep(event),
                    None => break,
                }
            }
        }
        Ok(woken != Woken::Time)
    }

    /// The next event.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        match self.events.pop_front() {
            Some(event) => Ok(Some(event)),
            None => self.client.event(),
        }
    }
}
