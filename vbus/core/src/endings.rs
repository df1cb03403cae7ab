// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ends of connections and of clients, and loans between clients: a loan outlasts a connection
//! until its client reads no more.

use crate::administration::{Connection, Vbus};
use crate::client::{Member, MemberId};
use crate::device::ConnectionId;
use crate::error::{Error, Kind};
use crate::events::Event;
use crate::table::Table;

impl Vbus {
    /// A client agrees that others of its device read what it sends, and reads what they send:
    /// `open` opens the words for that. The client has shared no queue yet.
    ///
    /// # Errors
    /// The client has no such connection, the clients of the device do not lend, no more of them
    /// may, or `open` found the words wrong. [`Kind::Busy`]: this client may still read what was
    /// lent to a connection of it that has ended.
    pub fn lend(
        &mut self,
        member: MemberId,
        id: ConnectionId,
        open: impl FnOnce() -> Result<Table, Error>,
    ) -> Result<(), Error> {
        let device = self.own(member, id)?.device.clone();
        if self.left.values().any(|(whose, _)| *whose == member) {
            let text = "the client holds frames of a connection that has ended";
            return Err(Error::new(Kind::Busy, text));
        }
        let table = open()?;
        self.device_mut(&device)?.device.lend(id, table)?;
        self.stir(&device);
        Ok(())
    }

    /// Sends an event to the client of a connection.
    pub(crate) fn tell(&mut self, id: ConnectionId, event: Event) {
        let member = self
            .connections
            .get(&id)
            .map(|connection| connection.member);
        if let Some(member) = member.and_then(|member| self.members.get_mut(&member)) {
            member.events.push(event);
            self.news = true;
        }
    }

    /// Clients of connections that have ended read no more of what was lent to them.
    pub(crate) fn release_where(&mut self, which: impl Fn(ConnectionId, MemberId) -> bool) {
        let chosen = self
            .left
            .extract_if(.., |&id, (member, _)| which(id, *member));
        let all: Vec<_> = chosen.collect();
        for (id, (_, device)) in all {
            // The device may have been removed.
            if let Ok(entry) = self.device_mut(&device) {
                entry.device.released(id);
            }
        }
    }

    /// Ends a connection. With a reason its client learns of it.
    pub(crate) fn end(&mut self, id: ConnectionId, why: Option<&str>) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        if let Ok(entry) = self.device_mut(&connection.device) {
            entry.device.disconnect(id);
            if entry.device.left_loans(id) {
                let whose = (connection.member, connection.device.clone());
                self.left.insert(id, whose);
            }
        }
        self.stir(&connection.device);
        self.news = true;
        let Some(member) = self.members.get_mut(&connection.member) else {
            return;
        };
        member.events.forget(id);
        if let Some(why) = why {
            member.events.push(Event::Closed {
                connection: id,
                why: why.to_string(),
            });
        }
    }

    /// Ends a connection with which its connector cannot go on. Its client learns why.
    pub fn fail(&mut self, id: ConnectionId, why: &str) {
        self.end(id, Some(why));
    }

    /// Ends all connections of a kind. Returns how many there were.
    pub(crate) fn close_where(&mut self, which: impl Fn(&Connection) -> bool, why: &str) -> usize {
        let chosen =
            |(&id, connection): (&ConnectionId, &Connection)| which(connection).then_some(id);
        let all: Vec<_> = self.connections.iter().filter_map(chosen).collect();
        for &id in &all {
            self.end(id, Some(why));
        }
        all.len()
    }

    /// Makes members leave: they learn of it, and can do nothing more.
    pub(crate) fn expel(&mut self, which: impl Fn(&Member) -> bool) {
        let chosen = |(&id, member): (&MemberId, &Member)| which(member).then_some(id);
        let all: Vec<_> = self.members.iter().filter_map(chosen).collect();
        for id in all {
            self.close_where(
                |connection| connection.member == id,
                "the client was expelled",
            );
            if let Some(member) = self.members.get_mut(&id) {
                member.events.push(Event::Removed);
                self.news = true;
                member.expelled = true;
            }
        }
    }
}
