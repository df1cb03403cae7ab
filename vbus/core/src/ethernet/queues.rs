// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues of devices that exchange Ethernet frames.

use crate::device::QueueKind;
use paravane_vbus_shm::{Role, layout, word};

/// Most pairs of queues.
pub const PAIRS: u32 = word(layout::VBUS_ETHERNET_PAIRS_MAX);
/// The event queue. Pairs have the queues around it.
pub const EVENTS: u32 = word(layout::VBUS_ETHERNET_EVENTS);
/// All queues.
pub const ALL: u32 = 2 * PAIRS + 1;
// A bit for each.
const _: () = assert!(ALL <= 32);

/// Whether the client sends by a queue of this number: 1, and the even ones after the event queue.
#[must_use]
pub const fn transmits(queue: u32) -> bool {
    queue == 1 || (queue > EVENTS && queue.is_multiple_of(2))
}

/// The pair of a queue. `None`: it is the event queue. There may be no such pair.
#[must_use]
pub fn pair(queue: u32) -> Option<usize> {
    let number = match queue {
        0 | 1 => 0,
        EVENTS => return None,
        _ => (queue - 1) / 2,
    };
    usize::try_from(number).ok()
}

/// The numbers of the queues of a pair: receive, transmit.
#[must_use]
pub const fn of_pair(pair: u32) -> [u32; 2] {
    match pair {
        0 => [0, 1],
        _ => [2 * pair + 1, 2 * pair + 2],
    }
}

const fn kind(number: u32) -> QueueKind {
    let role = if transmits(number) {
        Role::Transmit
    } else {
        Role::Receive
    };
    QueueKind { number, role }
}

/// All queues.
pub const QUEUES: &[QueueKind] = &{
    let mut all = [kind(0); ALL as usize];
    let mut number = 0;
    while number < ALL {
        all[number as usize] = kind(number);
        number += 1;
    }
    all
};

/// Those of a device without events.
pub const OF_PAIRS: &[QueueKind] = &{
    let mut all = [kind(0); 2 * PAIRS as usize];
    let mut pair = 0;
    while pair < PAIRS {
        let [rx, tx] = of_pair(pair);
        all[2 * pair as usize] = kind(rx);
        all[2 * pair as usize + 1] = kind(tx);
        pair += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_is_of_one_pair() {
        let mut all = vec![EVENTS];
        for number in 0..PAIRS {
            let queues = of_pair(number);
            assert_eq!(queues.map(transmits), [false, true]);
            assert_eq!(queues.map(pair), [Some(number as usize); 2]);
            all.extend(queues);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..ALL));
        assert!(QUEUES.iter().map(|kind| kind.number).eq(0..ALL));
        let others = QUEUES.iter().filter(|kind| kind.number != EVENTS);
        assert!(OF_PAIRS.iter().eq(others));
        assert_eq!(pair(EVENTS), None);
    }
}
