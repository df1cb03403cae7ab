// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of bounded size. If it is full, a new entry replaces all expired entries or, if there
//! are none, the one that was noted longest ago.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The entries, each with the time of its last note.
#[derive(Debug)]
pub struct Recent<K, V> {
    known: HashMap<K, (V, Instant)>,
    most: usize,
    old: Duration,
}

impl<K: Copy + Eq + Hash, V: Copy> Recent<K, V> {
    /// For at most `most` entries, at least one. Entries that were noted `old` ago or earlier are
    /// replaced first.
    pub fn new(most: usize, old: Duration) -> Self {
        Recent {
            known: HashMap::new(),
            most,
            old,
        }
    }

    /// Notes an entry, or notes it again.
    pub fn note(&mut self, key: K, value: V, now: Instant) {
        let full = self.known.len() >= self.most && !self.known.contains_key(&key);
        if full {
            // Many at a time, so that a new entry seldom costs a search.
            let old = self.old;
            self.known
                .retain(|_, (_, last)| now.duration_since(*last) < old);
        }
        if full && self.known.len() >= self.most {
            let oldest = self.known.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(key, (value, now));
    }

    /// The entry, and when it was noted last.
    pub fn get(&self, key: &K) -> Option<(V, Instant)> {
        self.known.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_latest_stay() {
        let (mut recent, start) = (Recent::new(3, Duration::from_secs(5000)), Instant::now());
        let at = |n| start + Duration::from_secs(n);
        for n in 0..3 {
            recent.note(n, 'a', at(n));
        }
        // One that is noted again is none of the oldest.
        recent.note(0, 'b', at(3));
        recent.note(9, 'c', at(4));
        assert_eq!(recent.get(&1), None);
        assert_eq!(recent.get(&0), Some(('b', at(3))));
        assert_eq!(recent.get(&2), Some(('a', at(2))));
        assert_eq!(recent.get(&9), Some(('c', at(4))));
        for n in 10..1000 {
            recent.note(n, 'd', at(n));
            assert_eq!(recent.known.len(), 3);
        }
    }

    #[test]
    fn all_that_are_old_go_first() {
        let (mut recent, start) = (Recent::new(3, Duration::from_secs(10)), Instant::now());
        for (n, seconds) in [(0, 0), (1, 1), (2, 9)] {
            recent.note(n, 'a', start + Duration::from_secs(seconds));
        }
        // Those that are known make no room.
        let later = start + Duration::from_secs(12);
        recent.note(2, 'b', later);
        assert_eq!(recent.known.len(), 3);
        recent.note(3, 'c', later);
        assert_eq!(recent.known.len(), 2);
        assert_eq!(recent.get(&2), Some(('b', later)));
    }
}
