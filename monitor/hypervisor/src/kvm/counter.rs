// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counter 2 of a PC's interval timer (8254), by which a kernel without other knowledge measures
//! the rate of its time-stamp counter. It counts down once, at 1.193182 MHz of the host's time, and
//! gives no interrupt. The other two counters are missing.

use std::time::Duration;

/// The port of the counter.
pub const COUNTER: u16 = 0x42;
/// The port that selects a mode.
pub const COMMAND: u16 = 0x43;
/// The port of the counter's gate and output.
pub const GATE: u16 = 0x61;

const HZ: u128 = 1_193_182;
/// Bits of the gate's port: the gate, the loudspeaker, the output.
const GATE_ON: u8 = 1;
const WRITABLE: u8 = 3;
const OUTPUT: u8 = 0x20;
/// Bits of a command: the counter's number, the order of bytes (0: latch the count).
const SELECT: u8 = 0xc0;
const COUNTER_2: u8 = 0x80;
const ORDER: u8 = 0x30;

/// The counter. Times are durations since one moment, the machine's start.
#[derive(Debug, Default)]
pub struct Counter {
    gate: u8,
    /// The first byte of a start value.
    low: Option<u8>,
    /// The start value, and when it was written or the gate was opened.
    started: Option<(u16, Duration)>,
    /// The count of a latch command, until both bytes are read.
    latched: Option<u16>,
    /// The next byte to be read is the high one.
    high_next: bool,
}

impl Counter {
    /// Writes to [`COMMAND`].
    pub fn command(&mut self, value: u8, now: Duration) {
        if value & SELECT != COUNTER_2 {
            return;
        }
        if value & ORDER == 0 {
            self.latched.get_or_insert(self.count(now));
        } else {
            self.low = None;
            self.started = None;
            self.latched = None;
        }
        self.high_next = false;
    }

    /// Writes a byte of the start value to [`COUNTER`], the low one first.
    pub fn write(&mut self, value: u8, now: Duration) {
        match self.low.take() {
            None => self.low = Some(value),
            Some(low) => self.started = Some((u16::from_le_bytes([low, value]), now)),
        }
    }

    /// Reads a byte of the count from [`COUNTER`], the low one first.
    pub fn read(&mut self, now: Duration) -> u8 {
        let count = self.latched.unwrap_or_else(|| self.count(now));
        let [low, high] = count.to_le_bytes();
        self.high_next = !self.high_next;
        if self.high_next {
            return low;
        }
        self.latched = None;
        high
    }

    /// Writes to [`GATE`].
    pub fn set_gate(&mut self, value: u8, now: Duration) {
        let opens = value & GATE_ON != 0 && self.gate & GATE_ON == 0;
        self.gate = value & WRITABLE;
        if let (true, Some((_, since))) = (opens, &mut self.started) {
            *since = now;
        }
    }

    /// Reads from [`GATE`].
    pub fn gate(&self, now: Duration) -> u8 {
        let ended = self
            .started
            .is_some_and(|(start, since)| self.ticks(since, now) >= period(start));
        self.gate | if ended { OUTPUT } else { 0 }
    }

    fn ticks(&self, since: Duration, now: Duration) -> u128 {
        if self.gate & GATE_ON == 0 {
            return 0;
        }
        now.saturating_sub(since).as_nanos() * HZ / 1_000_000_000
    }

    /// The count, which continues below zero from its largest value.
    fn count(&self, now: Duration) -> u16 {
        let Some((start, since)) = self.started else {
            return 0;
        };
        let ticks = self.ticks(since, now) % 0x1_0000;
        start.wrapping_sub(u16::try_from(ticks).unwrap_or(0))
    }
}

/// The ticks until the count is zero. A start value of 0 stands for the largest.
fn period(start: u16) -> u128 {
    if start == 0 { 0x1_0000 } else { start.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn started(value: u16) -> Counter {
        let mut counter = Counter::default();
        counter.set_gate(0, at(0));
        counter.command(0xb0, at(0));
        for byte in value.to_le_bytes() {
            counter.write(byte, at(0));
        }
        counter
    }

    #[test]
    fn it_counts_while_the_gate_is_open() {
        let mut counter = started(0xffff);
        let count = |counter: &mut Counter, now| {
            counter.command(0x80, now);
            u16::from_le_bytes([counter.read(now), counter.read(now)])
        };
        assert_eq!(count(&mut counter, at(7)), 0xffff);
        counter.set_gate(1, at(10));
        assert_eq!(count(&mut counter, at(20)), 0xffff - 11_931);
        assert_eq!(count(&mut counter, at(50)), 0xffff - 47_727);
    }

    #[test]
    fn a_latched_count_stays_until_it_is_read() {
        let mut counter = started(1000);
        counter.set_gate(1, at(0));
        counter.command(0x80, at(0));
        counter.command(0x80, at(5));
        assert_eq!((counter.read(at(5)), counter.read(at(6))), (0xe8, 0x03));
        assert_ne!(counter.read(at(6)), 0xe8);
    }

    #[test]
    fn the_output_rises_at_zero_and_stays() {
        let mut counter = started(11_932);
        counter.set_gate(1, at(0));
        assert_eq!(counter.gate(at(9)), 1);
        assert_eq!(counter.gate(at(11)), 1 | OUTPUT);
        assert_eq!(counter.gate(at(500)), 1 | OUTPUT);
        counter.command(0xb0, at(500));
        assert_eq!(counter.gate(at(501)), 1);
    }
}
