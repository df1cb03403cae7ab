// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues of every card.

use crate::card::word;
use paravane_vbus::QueueKind;
use paravane_vbus_shm::{Role, layout};

/// Most pairs of queues.
pub const PAIRS: u32 = word(layout::VBUS_ETHERNET_PAIRS_MAX);
/// The event queue. Pairs have the queues around it.
pub const EVENTS: u32 = word(layout::VBUS_ETHERNET_EVENTS);
/// All queues.
pub const ALL: u32 = 2 * PAIRS + 1;
// A bit for each.
const _: () = assert!(ALL <= 32);

/// Whether the client sends by a queue of this number: 1, and the even ones after the event queue.
pub const fn transmits(queue: u32) -> bool {
    queue == 1 || (queue > EVENTS && queue.is_multiple_of(2))
}

/// The queues of every card.
pub const QUEUES: &[QueueKind] = &{
    let mut all = [QueueKind {
        number: 0,
        role: Role::Receive,
    }; ALL as usize];
    let mut number = 0;
    while number < ALL {
        let kind = &mut all[number as usize];
        kind.number = number;
        if transmits(number) {
            kind.role = Role::Transmit;
        }
        number += 1;
    }
    all
};
