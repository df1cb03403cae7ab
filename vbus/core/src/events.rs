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

impl Events {
    /// Adds an event. Of too many, the oldest are replaced by [`Event::Lost`].
    pub(crate) fn push(&mut self, event: Event) {
        if self.0.len() == limits::EVENTS {
            self.0.pop_front();
            self.0.pop_front();
            self.0.push_front(Event::Lost);
        }
        self.0.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.0.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
