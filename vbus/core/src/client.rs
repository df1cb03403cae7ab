// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client does: join a bus, open connections to its devices, share queues, call, work.
//!
//! Every request names the client, and finds only what is on the client's bus. A client cannot
//! distinguish another bus, another client's connection and something that never existed.

use crate::access::Credentials;
use crate::administration::{Connection, Vbus};
use crate::device::{ConnectionId, Round, Work};
use crate::endpoint::Endpoint;
use crate::error::{Error, Kind};
use crate::events::{Event, Events};
use crate::limits;
use crate::name::Name;
use crate::polls::Polling;
use crate::turns;
use paravane_vbus_shm::Role;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A client that has joined a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Member {
    pub who: Credentials,
    pub administrator: bool,
    pub bus: Name,
    pub events: Events,
    /// It may do nothing more: its bus was removed, or it may no longer be there.
    pub expelled: bool,
}

impl Member {
    /// Whether it is on this bus. One that was expelled is on none, although its connector may not
    /// have removed it yet.
    pub fn is_on(&self, bus: &Name) -> bool {
        !self.expelled && self.bus == *bus
    }
}

/// An interface of a client's bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its number.
    pub id: u32,
    /// The device's name.
    pub name: String,
    /// What a driver must speak.
    pub interface: String,
    /// Version of that.
    pub version: u32,
}

impl Vbus {
    /// A client joins a bus. An `administrator` needs no permission.
    ///
    /// # Errors
    /// [`Kind::Denied`]: there is no such bus, or the client may not join it; the error is the same
    /// for both. [`Kind::Busy`]: its process is on another bus. [`Kind::Limit`].
    pub fn join(
        &mut self,
        bus: &Name,
        who: Credentials,
        administrator: bool,
    ) -> Result<MemberId, Error> {
        let found = self.buses.get(bus);
        let admitted = found.is_some_and(|bus| administrator || bus.access.admits(&who));
        if !admitted {
            let text = format!(
                "user {} may not join bus {bus}, or there is no such bus",
                who.uid
            );
            return Err(Error::new(Kind::Denied, text));
        }
        let mut members = self.members.values().filter(|member| !member.expelled);
        if members.any(|member| member.who.process == who.process && member.bus != *bus) {
            let text = format!("process {} is on another bus already", who.process);
            return Err(Error::new(Kind::Busy, text));
        }
        let there = self.members.values().filter(|member| member.is_on(bus));
        if there.count() == limits::MEMBERS {
            return Err(Error::limit("clients of a bus", limits::MEMBERS));
        }
        self.last_member += 1;
        let id = MemberId(self.last_member);
        let member = Member {
            who,
            administrator,
            bus: bus.clone(),
            events: Events::default(),
            expelled: false,
        };
        self.members.insert(id, member);
        Ok(id)
    }

    /// A client leaves, or has died: its connections are closed.
    pub fn leave(&mut self, member: MemberId) {
        self.close_where(|connection| connection.member == member, "the client left");
        self.release_where(|_, whose| whose == member);
        self.members.remove(&member);
    }

    pub(crate) fn member(&self, id: MemberId) -> Result<&Member, Error> {
        let member = self.members.get(&id).filter(|member| !member.expelled);
        member.ok_or_else(|| Error::new(Kind::Denied, "the client is on no bus any more"))
    }

    /// The next event of a client.
    pub fn event(&mut self, member: MemberId) -> Option<Event> {
        self.members.get_mut(&member)?.events.pop()
    }

    /// Whether an event was added for any client since the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether an event waits for a client.
    #[must_use]
    pub fn has_event(&self, member: MemberId) -> bool {
        let member = self.members.get(&member);
        member.is_some_and(|member| !member.events.is_empty())
    }

    /// The interfaces of the client's bus.
    ///
    /// # Errors
    /// The client is on no bus any more.
    pub fn interfaces(&self, member: MemberId) -> Result<Vec<Interface>, Error> {
        let bus = self.bus(&self.member(member)?.bus)?;
        let mut all = Vec::new();
        for (&id, name) in &bus.interfaces {
            let device = &self.device(name)?.device;
            all.push(Interface {
                id,
                name: name.to_string(),
                interface: device.interface().to_string(),
                version: device.version(),
            });
        }
        Ok(all)
    }

    /// The name of an interface's device.
    fn device_of(&self, member: MemberId, interface: u32) -> Result<&Name, Error> {
        let bus = self.bus(&self.member(member)?.bus)?;
        let device = bus.interfaces.get(&interface);
        device.ok_or_else(|| Error::not_found("interface", &interface.to_string()))
    }

    /// The class of an interface's device.
    ///
    /// # Errors
    /// There is no such interface on the client's bus.
    pub fn class_of(&self, member: MemberId, interface: u32) -> Result<&'static str, Error> {
        Ok(self.device(self.device_of(member, interface)?)?.class)
    }

    /// Opens a connection to the device of an interface, whose `version` the client speaks.
    ///
    /// # Errors
    /// There is no such interface on the client's bus; the version is not the device's; the client
    /// has too many connections; or the device takes no more.
    pub fn open(
        &mut self,
        member: MemberId,
        interface: u32,
        version: u32,
    ) -> Result<ConnectionId, Error> {
        let bus = self.member(member)?.bus.clone();
        let device = self.device_of(member, interface)?.clone();
        let mine = self.connections.values().filter(|c| c.member == member);
        if mine.count() == limits::CONNECTIONS {
            return Err(Error::limit("connections of a client", limits::CONNECTIONS));
        }
        let id = ConnectionId(self.last_connection + 1);
        let entry = self.device_mut(&device)?;
        let spoken = entry.device.version();
        if version != spoken {
            let text = format!("device {device} speaks version {spoken}, not {version}");
            return Err(Error::new(Kind::Invalid, text));
        }
        entry.device.connect(id)?;
        self.last_connection = id.0;
        let connection = Connection {
            member,
            bus,
            interface,
            device,
            queued: false,
            priority: turns::FIRST,
            polling: Polling::default(),
        };
        self.connections.insert(id, connection);
        Ok(id)
    }

    /// The connection of this number, if it is the client's.
    pub(crate) fn own(&self, member: MemberId, id: ConnectionId) -> Result<&Connection, Error> {
        self.member(member)?;
        let connection = self.connections.get(&id).filter(|c| c.member == member);
        connection.ok_or_else(|| Error::not_found("connection", &id.0.to_string()))
    }

    /// What the client does with a queue of the device.
    ///
    /// # Errors
    /// The client has no such connection, or its device no such queue.
    pub fn role(&self, member: MemberId, id: ConnectionId, queue: u32) -> Result<Role, Error> {
        let device = self.device(&self.own(member, id)?.device)?;
        let kind = device
            .device
            .queues()
            .iter()
            .find(|kind| kind.number == queue);
        let text = format!("the device has no queue {queue}");
        kind.map(|kind| kind.role)
            .ok_or_else(|| Error::new(Kind::NotFound, text))
    }

    /// Shares a queue with the device. `open` opens it with the role that it is passed.
    ///
    /// # Errors
    /// The client has no such connection, its device no such queue, it was shared already, or
    /// `open` found it wrong.
    pub fn share(
        &mut self,
        member: MemberId,
        id: ConnectionId,
        queue: u32,
        open: impl FnOnce(Role) -> Result<Endpoint, Error>,
    ) -> Result<(), Error> {
        let role = self.role(member, id, queue)?;
        let endpoint = open(role)?;
        let device = self.own(member, id)?.device.clone();
        self.device_mut(&device)?
            .device
            .share(id, queue, endpoint)?;
        self.stir(&device);
        Ok(())
    }

    /// Calls the device. Returns the bytes of the result.
    ///
    /// # Errors
    /// The client has no such connection, or the device refuses the call.
    pub fn call(
        &mut self,
        member: MemberId,
        id: ConnectionId,
        call: u32,
        argument: &[u8],
    ) -> Result<Vec<u8>, Error> {
        if argument.len() > limits::CALL {
            return Err(Error::limit("bytes of an argument", limits::CALL));
        }
        let device = self.own(member, id)?.device.clone();
        let mut result = vec![0; limits::CALL];
        let entry = self.device_mut(&device)?;
        let len = entry.device.call(id, call, argument, &mut result)?;
        result.truncate(len);
        self.stir(&device);
        Ok(result)
    }

    /// Sets the priority of a connection: whose work is done first.
    ///
    /// # Errors
    /// The client has no such connection, or there is no such priority.
    pub fn prioritize(
        &mut self,
        member: MemberId,
        id: ConnectionId,
        priority: u8,
    ) -> Result<(), Error> {
        self.own(member, id)?;
        if usize::from(priority) >= limits::PRIORITIES {
            let most = limits::PRIORITIES - 1;
            let text = format!("{priority} is no priority: 0 to {most} are");
            return Err(Error::new(Kind::Invalid, text));
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.priority = priority;
        }
        Ok(())
    }

    /// Closes a connection. The client reads nothing more of what was lent to it, also if the
    /// device has ended the connection before.
    ///
    /// # Errors
    /// The client has no such connection, and holds nothing of one that has ended.
    pub fn close(&mut self, member: MemberId, id: ConnectionId) -> Result<(), Error> {
        let held = self
            .left
            .get(&id)
            .is_some_and(|(whose, _)| *whose == member);
        if !held {
            self.own(member, id)?;
            self.end(id, None);
        }
        self.release_where(|left, whose| left == id && whose == member);
        Ok(())
    }

    /// The client has notified a connection: [`Vbus::work`] will look at its queues.
    pub fn notified(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            if !std::mem::replace(&mut connection.queued, true) {
                self.turns.add(id, connection.priority);
            }
        }
    }

    /// Whether a connection has not ended.
    #[must_use]
    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.connections.contains_key(&id)
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Whether [`Vbus::work`] has something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether all that the last [`Vbus::work`] did was to look for work in vain. The connector
    /// yields the CPU before it looks again: another program may wait for it. Devices that decide
    /// themselves whether they poll yield by themselves.
    #[must_use]
    pub fn only_polls(&self) -> bool {
        self.only_polls
    }

    /// The connector yielded the CPU, and got it back so late that programs which do not profit
    /// from polls must have had it: polls end, and are rare for a while.
    pub fn came_back_late(&mut self) {
        self.thread.late += 1;
    }

    /// Whether the last work of a device was a part of a stream.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.devices.values().any(|entry| entry.device.streams())
    }

    /// Works once for some connections that have work, or had some a moment ago (`poll-us`), at
    /// most `budget` packets each: for the one that has waited longest, and then by priority.
    /// Returns the connections that were reset since their clients broke the protocol.
    pub fn work(&mut self, budget: u32) -> Vec<ConnectionId> {
        let mut round = Round::default();
        let mut again = std::mem::take(&mut self.going_on);
        self.only_polls = !self.turns.is_empty();
        for turn in 0..self.turns.round() {
            let next = if turn == 0 {
                self.turns.oldest()
            } else {
                self.turns.highest()
            };
            let Some(id) = next else {
                break;
            };
            // A connection may have ended since it was queued.
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            connection.queued = false;
            let Some(entry) = self.devices.get_mut(&connection.device) else {
                continue;
            };
            let work = entry.device.work(id, budget, &mut round);
            let polling = &mut connection.polling;
            if work != Work::Nothing {
                self.only_polls = false;
                self.thread.worked += 1;
                polling.found(&mut entry.polls);
            }
            // A device that has just worked looks again for a while, since a notification costs
            // its client more than that.
            let goes_on = work == Work::More || {
                let polls = !entry.poll.is_zero() && entry.device.polls(id);
                polls
                    && if entry.device.adapts() {
                        polling.again(entry.poll, self.thread, Instant::now, &mut entry.polls)
                    } else {
                        self.only_polls = false;
                        polling.stretch.goes_on(entry.poll, Instant::now())
                    }
            };
            if goes_on {
                again.push(id);
                continue;
            }
            polling.stop();
            self.only_polls = false;
            if entry.device.rest(id) {
                again.push(id);
            }
        }
        let mut reset = Vec::new();
        // Not before the others have had their turn.
        for id in again.drain(..).chain(round.also) {
            self.notified(id);
        }
        self.going_on = again;
        for (id, why) in round.broken {
            if let Some(connection) = self.connections.get(&id) {
                let device = connection.device.clone();
                if let Ok(entry) = self.device_mut(&device) {
                    entry.broken += 1;
                }
                self.end(id, Some(&format!("the client broke the protocol: {why}")));
                reset.push(id);
            }
        }
        for (id, event) in round.events {
            self.tell(id, event);
        }
        for (id, why) in round.ended {
            self.end(id, Some(&why));
        }
        reset
    }

    /// Something happened outside of the bus of which a device of this name, if there is one, had
    /// asked its connector to notify it: [`Vbus::work`] lets its connections work. Returns whether
    /// there is one.
    pub fn woken(&mut self, device: &Name) -> bool {
        let Some(entry) = self.devices.get_mut(device) else {
            return false;
        };
        entry.device.woken();
        self.stir(device);
        true
    }

    /// Lets all connections of a device work: something has changed for them.
    pub(crate) fn stir(&mut self, device: &Name) {
        let of_device = |(&id, connection): (&ConnectionId, &Connection)| {
            (connection.device == *device).then_some(id)
        };
        let all: Vec<_> = self.connections.iter().filter_map(of_device).collect();
        for id in all {
            self.notified(id);
        }
    }
}
