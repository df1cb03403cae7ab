// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client learns without asking.

use crate::device::ConnectionId;
use crate::limits;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An event of a client's bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A device was linked to the bus.
    Added {
        /// Number of its interface.
        id: u32,
        /// The device's name.
        name: String,
        /// What a driver must speak, such as `virtual-ethernet`.
        interface: String,
    },
    /// A device was unlinked. Connections to it are closed.
    Dropped {
        /// Number of its interface.
        id: u32,
    },
    /// A connection was closed by the other side.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// Why, in one line.
        why: String,
    },
    /// The bus was removed, or the client may no longer be on it.
    Removed,
    /// Events were lost, because the client did not read them: it must list the interfaces.
    Lost,
    /// To a client that lends: another client of its device lends, too. The connector adds the
    /// other's memory, to be read, if that client is still there. Its frames may lie there from the
    /// time on at which the client has said that it has mapped it.
    Lends {
        /// The client's connection.
        connection: ConnectionId,
        /// Number of the place of that memory.
        place: u32,
        /// The other's connection.
        lender: ConnectionId,
    },
    /// No frame lies in the memory of this place any more.
    Withdrawn {
        /// The client's connection.
        connection: ConnectionId,
        /// The place.
        place: u32,
    },
}

/// Events that wait for a client.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Event {
    /// The connection of an announcement between clients that lend. The device makes no other
    /// announcement to this connection before the client has handled this one.
    #[must_use]
    pub fn announces_to(&self) -> Option<ConnectionId> {
        match self {
            Event::Lends { connection, .. } | Event::Withdrawn { connection, .. } => {
                Some(*connection)
            }
            _ => None,
        }
    }
}

impl Events {
    /// Adds an event. Of too many, the oldest are replaced by [`Event::Lost`]. Announcements stay:
    /// a client cannot ask for them. There is at most one of each of its connections.
    pub(crate) fn push(&mut self, event: Event) {
        if self.0.len() == limits::EVENTS {
            for _ in 0..2 {
                let oldest = self.0.iter().position(|one| one.announces_to().is_none());
                self.0.remove(oldest.unwrap_or(0));
            }
            self.0.push_front(Event::Lost);
        }
        self.0.push_back(event);
    }

    /// Forgets the announcements to a connection that has ended.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.0.retain(|event| event.announces_to() != Some(id));
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.0.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An announcement that was lost would be the last one to its connection.
    #[test]
    fn announcements_outlast_the_loss_of_events() {
        let (connection, lender) = (ConnectionId(3), ConnectionId(4));
        let announcement = Event::Lends {
            connection,
            place: 1,
            lender,
        };
        let mut events = Events::default();
        events.push(announcement.clone());
        for id in 0..1000 {
            events.push(Event::Dropped { id });
        }
        assert_eq!(events.0.len(), limits::EVENTS);
        assert_eq!(events.pop(), Some(Event::Lost));
        assert_eq!(events.pop(), Some(announcement.clone()));
        let id = 1000 - u32::try_from(limits::EVENTS - 2).unwrap();
        assert_eq!(events.pop(), Some(Event::Dropped { id }));
        events.push(announcement);
        events.forget(lender);
        assert!(events.0.iter().any(|one| one.announces_to().is_some()));
        events.forget(connection);
        assert!(events.0.iter().all(|one| one.announces_to().is_none()));
    }
}
