// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of bounded size. A new entry replaces the one that was noted longest ago.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

/// The entries, each with the time of its last note.
#[derive(Debug)]
pub struct Recent<K, V> {
    known: HashMap<K, (V, Instant)>,
    most: usize,
}

impl<K: Copy + Eq + Hash, V: Copy> Recent<K, V> {
    /// For at most so many entries, at least one.
    pub fn new(most: usize) -> Self {
        Recent {
            known: HashMap::new(),
            most,
        }
    }

    /// Notes an entry, or notes it again.
    pub fn note(&mut self, key: K, value: V, now: Instant) {
        if self.known.len() >= self.most && !self.known.contains_key(&key) {
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
    use std::time::Duration;

    #[test]
    fn the_latest_stay() {
        let (mut recent, start) = (Recent::new(3), Instant::now());
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
}
