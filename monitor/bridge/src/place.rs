// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's place on a bus of vbusd, for a device of the guest: the client while there is a
//! connection, and how it comes back.

use crate::join::{Join, Joiner, News, Rejoin};
use crate::presence::Presence;
use paravane_devices::{EventFlags, Waker};
use paravane_vbus::{Attribute, Broken, ConnectionId, Round, Work};
use paravane_vbus_client::{Client, Error, Requests};
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use tracing::warn;

/// Why a device of the guest does not go on.
pub enum Trouble {
    Guest(Broken),
    Bus(Error),
}

impl From<Broken> for Trouble {
    fn from(broken: Broken) -> Self {
        Trouble::Guest(broken)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Bus(error)
    }
}

/// A client of vbusd.
pub trait Remote: Rejoin {
    /// The files that wake it.
    fn files(&self) -> [BorrowedFd<'_>; 2];

    /// Takes events and notifications that have come.
    ///
    /// # Errors
    /// The connection has ended.
    fn take(&mut self) -> Result<(), Error>;

    /// Looks at its queues by itself from now on.
    fn watch(&mut self);
}

impl Remote for Client {
    fn files(&self) -> [BorrowedFd<'_>; 2] {
        Client::files(self)
    }

    fn take(&mut self) -> Result<(), Error> {
        // Of events only the end of the connection matters, which is an error.
        while self.event()?.is_some() {}
        self.drain()
    }

    fn watch(&mut self) {
        Client::watch(self);
    }
}

impl Remote for Requests {
    fn files(&self) -> [BorrowedFd<'_>; 2] {
        Requests::files(self)
    }

    fn take(&mut self) -> Result<(), Error> {
        while self.event()?.is_some() {}
        self.drain()
    }

    fn watch(&mut self) {
        Requests::watch(self);
    }
}

/// The place.
#[derive(Debug)]
pub struct Place<C> {
    /// While the monitor is on the bus.
    pub client: Option<C>,
    join: Option<Join<C>>,
    waker: Option<Waker>,
    /// A file of the client's was reported, or may be ready.
    pub reported: bool,
    /// The client's files wake the bridge.
    armed: bool,
    /// The device was taken from the bus.
    dropped: bool,
    presence: Arc<Presence>,
    devices: u32,
    joins: u64,
    lost: u64,
}

impl<C: Remote> Place<C> {
    pub fn new(client: C) -> Self {
        Place {
            client: Some(client),
            join: None,
            waker: None,
            reported: true,
            armed: false,
            dropped: false,
            presence: Arc::default(),
            devices: 1,
            joins: 1,
            lost: 0,
        }
    }

    pub fn start(&mut self, waker: &Waker, joiner: &Joiner) {
        self.waker = Some(waker.clone());
        self.join = Some(joiner.device());
        self.arm();
    }

    pub fn presence(&self) -> Arc<Presence> {
        Arc::clone(&self.presence)
    }

    pub fn attributes(&self) -> Vec<Attribute> {
        vec![
            Attribute::figure("joins", self.joins),
            Attribute::figure("lost", self.lost),
        ]
    }

    /// Takes what the thread that joins has found out. `differs` says of a client that has joined
    /// whether it is of another device for the guest.
    pub fn look(&mut self, mut differs: impl FnMut(&C) -> bool) {
        while let Some(news) = self.join.as_mut().and_then(Join::news) {
            match news {
                News::Gone => {
                    self.dropped = true;
                    self.presence.set(0);
                }
                News::Joined(client) => {
                    if differs(&client) | self.dropped {
                        self.devices = self.devices.wrapping_add(1).max(1);
                        self.presence.set(self.devices);
                    }
                    (self.dropped, self.armed, self.reported) = (false, false, true);
                    self.joins += 1;
                    self.client = Some(*client);
                }
            }
        }
    }

    /// The connection has ended.
    pub fn lose(&mut self, why: &Error) {
        warn!("virtual bus: {why}");
        self.armed = false;
        self.lost += 1;
        if let (Some(join), Some(client)) = (&mut self.join, self.client.take()) {
            join.lose(client, why);
        }
    }

    /// Takes what has come for the client, which looks by itself from now on.
    pub fn take_reports(&mut self) -> Result<(), Error> {
        let Some(client) = &mut self.client else {
            return Ok(());
        };
        if std::mem::take(&mut self.reported) {
            client.take()?;
        }
        client.watch();
        Ok(())
    }

    /// The client's files wake the bridge.
    pub fn arm(&mut self) {
        if self.armed {
            return;
        }
        let (Some(client), Some(waker)) = (&self.client, &self.waker) else {
            return;
        };
        self.armed = true;
        for file in client.files() {
            if let Err(error) = waker.arm(file, EventFlags::IN) {
                warn!("virtual bus: cannot wait for it: {error}");
            }
        }
    }

    /// A file of the client's was reported: each does so once.
    pub fn woken(&mut self) {
        (self.armed, self.reported) = (false, true);
    }
}

/// What a round of work was, and why the bus is lost, if it is.
pub fn outcome(
    passed: Result<(bool, bool), Trouble>,
    id: ConnectionId,
    round: &mut Round,
) -> (Work, Option<Error>) {
    match passed {
        Ok((done, more)) => (Work::of(done, more), None),
        Err(Trouble::Guest(broken)) => {
            round.broken.push((id, broken));
            (Work::Nothing, None)
        }
        Err(Trouble::Bus(why)) => (Work::Nothing, Some(why)),
    }
}
