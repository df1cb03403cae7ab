// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of requests to files: which may run beside each other.
//!
//! Requests may run at the same time, but each request sees the results of those before it, and a
//! flush covers the writes before it: the outcome is that of one request after the other. This also
//! holds between connections, so a request of a connection that has ended is not done after one
//! that was made again. Files do not wait for each other.
//!
//! Only a flush waits for another flush. So flushes have a queue of their own: they delay no other
//! request, and one call of the host is enough for all that wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most requests of a file that run at a time. Others of the ring's places are left to other files.
pub const RUNNING: usize = 16;
/// How many waiting reads and writes of a file are looked at. Later ones wait longer.
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
    /// Whether a read or write must find this earlier one done.
    fn waits_for(&self, earlier: &Effect) -> bool {
        use Effect::{Flush, Read, Write};
        match (*self, *earlier) {
            (Write(a, b) | Read(a, b), Write(c, d)) | (Write(a, b), Read(c, d)) => a < d && c < b,
            // Reads change nothing, and a flush covers what was written before it.
            (Read(..), Read(..)) | (Flush, _) | (_, Flush) => false,
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
    /// Of a flush: others that are done with it.
    pub with: Vec<J>,
}

#[derive(Debug)]
struct Line<J> {
    /// Reads and writes that wait, and flushes, by their numbers.
    waiting: VecDeque<(u64, Effect, J)>,
    flushes: VecDeque<(u64, J)>,
    running: Vec<(u64, Effect)>,
    /// Writes that wait or run.
    writes: BTreeSet<u64>,
    /// It is among the files that are looked at.
    looked_at: bool,
}

impl<J> Line<J> {
    fn new() -> Self {
        Line {
            waiting: VecDeque::new(),
            flushes: VecDeque::new(),
            running: Vec::new(),
            writes: BTreeSet::new(),
            looked_at: false,
        }
    }

    /// Takes the oldest flush, if it need not wait: all writes before it are done. Later ones may
    /// run, or a stream of them would keep it waiting for ever.
    fn next_flush(&mut self) -> Option<(u64, J)> {
        let number = self.flushes.front()?.0;
        // A flush takes one of the ring's workers for as long as the disk needs, and those of one
        // file could take all of them.
        let another = self.running.iter().any(|one| one.1 == Effect::Flush);
        let written = self.writes.first().is_none_or(|&write| write > number);
        if another || !written {
            return None;
        }
        self.flushes.pop_front()
    }

    /// Takes the first read or write that may run.
    fn next_transfer(&mut self) -> Option<(u64, Effect, J)> {
        let free = |index: &usize| {
            let Some((_, effect, _)) = self.waiting.get(*index) else {
                return false;
            };
            let mut before = self.waiting.iter().take(*index).map(|one| &one.1);
            let mut running = self.running.iter().map(|one| &one.1);
            !running.any(|other| effect.waits_for(other))
                && !before.any(|other| effect.waits_for(other))
        };
        let index = (0..self.waiting.len().min(WINDOW)).find(free)?;
        self.waiting.remove(index)
    }

    /// Takes what may run: its number, and jobs that are done together.
    fn next(&mut self) -> Option<(u64, J, Vec<J>)> {
        if self.running.len() >= RUNNING {
            return None;
        }
        if let Some((number, job)) = self.next_flush() {
            let others = std::iter::from_fn(|| self.next_flush());
            let with = others.map(|(_, job)| job).collect();
            self.running.push((number, Effect::Flush));
            return Some((number, job, with));
        }
        let (number, effect, job) = self.next_transfer()?;
        self.running.push((number, effect));
        Some((number, job, Vec::new()))
    }

    fn finish(&mut self, number: u64) {
        self.running.retain(|(other, _)| *other != number);
        self.writes.remove(&number);
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.flushes.is_empty() && self.running.is_empty()
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
        self.last += 1;
        let number = self.last;
        let line = self.files.entry(file).or_insert_with(Line::new);
        match effect {
            Effect::Flush => line.flushes.push_back((number, job)),
            Effect::Read(..) => line.waiting.push_back((number, effect, job)),
            Effect::Write(..) => {
                line.writes.insert(number);
                line.waiting.push_back((number, effect, job));
            }
        }
        self.look_at(file);
    }

    /// A request that may run now. It runs until [`Order::finish`].
    pub fn next(&mut self) -> Option<Started<J>> {
        while let Some(file) = self.turns.pop_front() {
            let Some(line) = self.files.get_mut(&file) else {
                continue;
            };
            line.looked_at = false;
            let Some((number, job, with)) = line.next() else {
                // An end or another request brings it back.
                continue;
            };
            self.look_at(file);
            return Some(Started {
                file,
                number,
                job,
                with,
            });
        }
        None
    }

    /// A request has been done.
    pub fn finish(&mut self, file: u64, number: u64) {
        if let Some(line) = self.files.get_mut(&file) {
            line.finish(number);
        }
        self.look_at(file);
    }

    /// Forgets a file that has no more requests.
    pub fn forget(&mut self, file: u64) {
        if self.files.get(&file).is_some_and(Line::is_empty) {
            self.files.remove(&file);
        }
    }

    /// Whether no file has a request.
    pub fn is_empty(&self) -> bool {
        self.files.values().all(Line::is_empty)
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

    /// Later writes run all the time.
    #[test]
    fn a_stream_of_writes_does_not_keep_a_flush_waiting() {
        let mut order = Order::new();
        order.add(1, Write(0, 8), 0);
        let first = order.next().unwrap();
        order.add(1, Flush, 1);
        order.add(1, Write(8, 16), 2);
        assert_eq!(order.next().unwrap().job, 2);
        assert!(order.next().is_none());
        order.finish(1, first.number);
        order.add(1, Write(16, 24), 3);
        assert_eq!(order.next().unwrap().job, 1);
    }

    #[test]
    fn many_flushes_keep_nobody_waiting_and_are_done_together() {
        const MANY: usize = 4096;
        let mut order = Order::new();
        order.add(1, Flush, 0);
        let mut flush = order.next().unwrap();
        for job in 1..MANY {
            order.add(1, Flush, job);
        }
        order.add(1, Write(0, 8), MANY);
        order.add(1, Flush, MANY + 1);
        order.add(1, Read(8, 16), MANY + 2);
        let found: Vec<_> = std::iter::from_fn(|| order.next()).collect();
        let jobs: Vec<_> = found.iter().map(|started| started.job).collect();
        assert_eq!(jobs, [MANY, MANY + 2]);
        order.finish(1, flush.number);
        // All but the last, which comes after the write.
        flush = order.next().unwrap();
        assert_eq!(flush.job, 1);
        assert!(flush.with.into_iter().eq(2..MANY));
        assert!(order.next().is_none());
        order.finish(1, flush.number);
        assert!(order.next().is_none());
        order.finish(1, found[0].number);
        flush = order.next().unwrap();
        assert_eq!((flush.job, flush.with), (MANY + 1, vec![]));
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
                    // A flush covers what was written when it began.
                    running.push((started, found));
                    together = together.max(running.len());
                } else if !running.is_empty() {
                    let index = usize::try_from(next(running.len() as u64)).unwrap();
                    let (ended, begun) = running.swap_remove(index);
                    for (number, effect, before) in ended.with.into_iter().chain([ended.job]) {
                        match effect {
                            Read(start, end) => {
                                assert_eq!(found[range(start, end)], before[range(start, end)]);
                            }
                            Write(start, end) => found[range(start, end)].fill(number),
                            Flush => {
                                durable = begun;
                                let mut covered = durable.iter().zip(before);
                                // What was there before, or something later.
                                assert!(covered.all(|(now, then)| *now >= then));
                            }
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
