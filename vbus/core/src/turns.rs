// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections that have work, and their turns. Each round first serves the connection that has
//! waited longest, so that none waits without end, and then those of the highest priority.

use crate::device::ConnectionId;
use std::collections::VecDeque;

/// Priorities of connections: 0 to one less, and the one at first.
pub const PRIORITIES: usize = 4;
pub const FIRST: u8 = 1;
/// Most turns of a round. Between rounds the connector looks for notifications, so a connection of
/// the highest priority waits for no more than these.
const TURNS: usize = 16;

/// Connections, each at most once.
#[derive(Debug, Default)]
pub struct Turns {
    /// By priority. With the number of each, in the order in which they came.
    waiting: [VecDeque<(u64, ConnectionId)>; PRIORITIES],
    last: u64,
}

impl Turns {
    /// Adds a connection. A priority that there is not is the highest.
    pub fn add(&mut self, id: ConnectionId, priority: u8) {
        self.last += 1;
        let class = usize::from(priority).min(PRIORITIES - 1);
        if let Some(class) = self.waiting.get_mut(class) {
            class.push_back((self.last, id));
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Turns of the next round.
    pub fn round(&self) -> usize {
        let all: usize = self.waiting.iter().map(VecDeque::len).sum();
        all.min(TURNS)
    }

    /// Takes the connection that has waited longest.
    pub fn oldest(&mut self) -> Option<ConnectionId> {
        let waiting = self.waiting.iter_mut().filter(|class| !class.is_empty());
        let class = waiting.min_by_key(|class| class.front().map(|&(number, _)| number))?;
        class.pop_front().map(|(_, id)| id)
    }

    /// Takes the connection of the highest priority that has waited longest.
    pub fn highest(&mut self) -> Option<ConnectionId> {
        let mut waiting = self.waiting.iter_mut().rev();
        waiting.find_map(VecDeque::pop_front).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(turns: &mut Turns) -> Vec<u64> {
        let mut order: Vec<u64> = turns.oldest().into_iter().map(|id| id.0).collect();
        while let Some(id) = turns.highest() {
            order.push(id.0);
        }
        order
    }

    #[test]
    fn the_oldest_is_first_and_then_priority_decides() {
        let mut turns = Turns::default();
        for (id, priority) in [(1, 0), (2, 1), (3, 3), (4, 1), (5, 9), (6, 2)] {
            turns.add(ConnectionId(id), priority);
        }
        assert_eq!(turns.round(), 6);
        assert_eq!(all(&mut turns), [1, 3, 5, 6, 2, 4]);
        assert!(turns.is_empty());
        for id in 0..100 {
            turns.add(ConnectionId(id), 1);
        }
        assert_eq!(turns.round(), TURNS);
    }

    /// This holds however busy connections of a higher priority are.
    #[test]
    fn none_waits_without_end() {
        let mut turns = Turns::default();
        turns.add(ConnectionId(0), 0);
        for id in 1..=40 {
            turns.add(ConnectionId(id), 3);
        }
        for round in 0.. {
            assert!(round < 42, "it waits without end");
            let first = turns.oldest().unwrap();
            let mut busy = vec![first];
            busy.extend((1..turns.round()).filter_map(|_| turns.highest()));
            if busy.contains(&ConnectionId(0)) {
                break;
            }
            for id in busy {
                turns.add(id, 3);
            }
        }
    }
}
