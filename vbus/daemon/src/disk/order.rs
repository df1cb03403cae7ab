// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of requests to files: which may run beside each other.
//!
//! Whatever runs at the same time, each request finds what those before it have left, and a flush
//! covers the writes before it: the outcome is that of one request after the other. This also holds
//! between connections, so a request of a connection that has ended is not done after one that was
//! made again. Files do not wait for each other.

use std::collections::{BTreeMap, VecDeque};

/// Most requests of a file that run at a time. Others of the ring's places are left to other files.
pub const RUNNING: usize = 16;
/// How many waiting requests of a file are looked at. Later ones wait longer.
const WINDOW: usize = 32;

/// What a request does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reads bytes from the first to before the second place.
    Read(u64, u64),
    /// Writes them.
    Write(u64, u64),
    /// All writes before become durable.
    Flush,
}

impl Effect {
    /// Whether it must find this earlier one done.
    fn waits_for(&self, earlier: &Effect) -> bool {
        use Effect::{Flush, Read, Write};
        match (*self, *earlier) {
            (Write(a, b) | Read(a, b), Write(c, d)) | (Write(a, b), Read(c, d)) => a < d && c < b,
            // A flush takes one of the ring's workers for as long as the disk needs, and those of
            // one file could take all of them.
            (Flush, Write(..) | Flush) => true,
            // Reads change nothing, and a flush covers what was written before it.
            (Read(..), Read(..) | Flush) | (Write(..), Flush) | (Flush, Read(..)) => false,
        }
    }
}

/// A request that may run.
#[derive(Debug, PartialEq, Eq)]
pub struct Started<J> {
    /// The file, and the number of the request there, for [`Order::finish`].
    pub file: u64,
    pub number: u64,
    pub job: J,
}

#[derive(Debug)]
struct Line<J> {
    waiting: VecDeque<(Effect, J)>,
    running: Vec<(u64, Effect)>,
    /// It is among the files that are looked at.
    looked_at: bool,
}

impl<J> Line<J> {
    /// The first that may run.
    fn next(&self) -> Option<usize> {
        if self.running.len() >= RUNNING {
            return None;
        }
        let free = |index: &usize| {
            let Some((effect, _)) = self.waiting.get(*index) else {
                return false;
            };
            let mut before = self.waiting.iter().take(*index).map(|(effect, _)| effect);
            let mut running = self.running.iter().map(|(_, effect)| effect);
            !running.any(|other| effect.waits_for(other))
                && !before.any(|other| effect.waits_for(other))
        };
        (0..self.waiting.len().min(WINDOW)).find(free)
    }
}

/// The requests to all files.
#[derive(Debug)]
pub struct Order<J> {
    files: BTreeMap<u64, Line<J>>,
    /// Those that may have something to run, in turns.
    turns: VecDeque<u64>,
    last: u64,
}

impl<J> Order<J> {
    /// Without any.
    pub fn new() -> Self {
        Order {
            files: BTreeMap::new(),
            turns: VecDeque::new(),
            last: 0,
        }
    }

    fn look_at(&mut self, file: u64) {
        if let Some(line) = self.files.get_mut(&file).filter(|line| !line.looked_at) {
            line.looked_at = true;
            self.turns.push_back(file);
        }
    }

    /// Adds a request after all others of its file.
    pub fn add(&mut self, file: u64, effect: Effect, job: J) {
        let line = self.files.entry(file).or_insert_with(|| Line {
            waiting: VecDeque::new(),
            running: Vec::new(),
            looked_at: false,
        });
        line.waiting.push_back((effect, job));
        self.look_at(file);
    }

    /// A request that may run now. It runs until [`Order::finish`].
    pub fn next(&mut self) -> Option<Started<J>> {
        while let Some(file) = self.turns.pop_front() {
            let Some(line) = self.files.get_mut(&file) else {
                continue;
            };
            line.looked_at = false;
            let taken = line.next().and_then(|index| line.waiting.remove(index));
            let Some((effect, job)) = taken else {
                // An end or another request brings it back.
                continue;
            };
            self.last += 1;
            let number = self.last;
            line.running.push((number, effect));
            self.look_at(file);
            return Some(Started { file, number, job });
        }
        None
    }

    /// A request has been done.
    pub fn finish(&mut self, file: u64, number: u64) {
        if let Some(line) = self.files.get_mut(&file) {
            line.running.retain(|(other, _)| *other != number);
        }
        self.look_at(file);
    }

    /// Forgets a file that has no more requests.
    pub fn forget(&mut self, file: u64) {
        if let Some(line) = self.files.get(&file) {
            if line.waiting.is_empty() && line.running.is_empty() {
                self.files.remove(&file);
            }
        }
    }

    /// Whether no file has a request.
    pub fn is_empty(&self) -> bool {
        let mut lines = self.files.values();
        lines.all(|line| line.waiting.is_empty() && line.running.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::Effect::{Flush, Read, Write};
    use super::*;

    /// Adds these to a file, and says which run at first.
    fn first(effects: &[Effect]) -> Vec<usize> {
        let mut order = Order::new();
        for (index, &effect) in effects.iter().enumerate() {
            order.add(1, effect, index);
        }
        let mut found: Vec<_> = std::iter::from_fn(|| order.next()).map(|s| s.job).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn what_overlaps_with_a_write_waits() {
        assert_eq!(first(&[Read(0, 8), Read(4, 12), Write(12, 16)]), [0, 1, 2]);
        assert_eq!(first(&[Write(0, 8), Read(7, 9), Read(8, 9)]), [0, 2]);
        assert_eq!(first(&[Read(0, 8), Write(7, 9), Write(8, 9)]), [0]);
        assert_eq!(first(&[Write(0, 8), Write(0, 1)]), [0]);
    }

    #[test]
    fn a_flush_waits_for_the_writes_and_flushes_before_it_and_for_nothing_else() {
        assert_eq!(first(&[Read(0, 8), Flush, Write(0, 8), Flush]), [0, 1]);
        assert_eq!(
            first(&[Write(0, 8), Flush, Write(8, 9), Read(8, 9)]),
            [0, 2]
        );
        assert_eq!(first(&[Flush, Flush, Read(0, 1), Write(1, 2)]), [0, 2, 3]);
    }

    #[test]
    fn a_file_that_is_slow_or_full_stops_no_other() {
        let mut order = Order::new();
        for index in 0..100 {
            order.add(1, Read(0, 1), index);
        }
        order.add(2, Read(0, 1), 1000);
        let found: Vec<_> = std::iter::from_fn(|| order.next()).collect();
        assert_eq!(found.len(), RUNNING + 1);
        assert_eq!(found[1].job, 1000, "files take turns");
        assert!(order.next().is_none());
        order.finish(1, found[5].number);
        assert_eq!(order.next().unwrap().job, RUNNING);
        assert!(order.next().is_none());
        order.finish(2, found[1].number);
        order.forget(2);
        order.forget(1);
        assert_eq!(order.files.len(), 1);
        assert!(!order.is_empty());
    }

    fn range(start: u64, end: u64) -> std::ops::Range<usize> {
        start.try_into().unwrap()..end.try_into().unwrap()
    }

    /// Requests at random, which end in any order: a model of the file has what it would have had
    /// if each had run alone.
    #[test]
    fn the_outcome_is_that_of_one_after_the_other() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        for _ in 0..200 {
            let mut order = Order::new();
            // The last write to each byte, by the order of requests and in fact.
            let (mut expected, mut found) = ([0; 64], [0; 64]);
            let mut durable = [0; 64];
            let mut running = Vec::new();
            let (mut added, mut together) = (0, 0);
            while added < 60 || !order.is_empty() {
                if added < 60 && next(2) == 0 {
                    added += 1;
                    let start = next(60);
                    let end = start + 1 + next(64 - start);
                    let effect = match next(5) {
                        0 => Flush,
                        1 | 2 => Read(start, end),
                        _ => Write(start, end),
                    };
                    order.add(7, effect, (added, effect, expected));
                    if let Write(start, end) = effect {
                        expected[range(start, end)].fill(added);
                    }
                } else if let Some(started) = order.next() {
                    running.push(started);
                    together = together.max(running.len());
                } else if !running.is_empty() {
                    let index = usize::try_from(next(running.len() as u64)).unwrap();
                    let ended = running.swap_remove(index);
                    let (number, effect, before) = ended.job;
                    match effect {
                        Read(start, end) => {
                            assert_eq!(found[range(start, end)], before[range(start, end)]);
                        }
                        Write(start, end) => found[range(start, end)].fill(number),
                        Flush => {
                            durable = found;
                            let mut covered = durable.iter().zip(before);
                            // What was there before, or something later.
                            assert!(covered.all(|(now, then)| *now >= then));
                        }
                    }
                    order.finish(7, ended.number);
                }
            }
            assert!(found == expected && running.is_empty() && together > 1);
            assert!(durable.iter().zip(found).all(|(old, new)| *old <= new));
        }
    }
}
