// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock chip of a PC (MC146818): the time of day in UTC, and 114 bytes of memory. It counts
//! the host's time, gives no interrupts, and cannot be set.

use std::time::{SystemTime, UNIX_EPOCH};

/// The port of the register's number.
pub const INDEX: u16 = 0x70;
/// The port of the register.
pub const DATA: u16 = 0x71;

/// Registers that follow the clock's own.
const MEMORY: usize = 0x0e;
const SIZE: usize = 128;
const CENTURY: usize = 0x32;
/// Status B: the hours count to 24, numbers are decimal digits.
const STATUS_B: u8 = 0x02;
/// Status A: the usual divider; no update is ever in progress.
const STATUS_A: u8 = 0x26;
/// Status D: the memory is valid.
const STATUS_D: u8 = 0x80;

/// The chip.
#[derive(Debug)]
pub struct ClockChip {
    index: usize,
    memory: [u8; SIZE],
}

impl ClockChip {
    /// With empty memory.
    pub fn new() -> Self {
        ClockChip {
            index: 0,
            memory: [0; SIZE],
        }
    }

    /// Selects a register. Bit 7 is for non-maskable interrupts, which it does not make.
    pub fn select(&mut self, index: u8) {
        self.index = usize::from(index & 0x7f);
    }

    /// Writes the selected register. The clock's own cannot be changed.
    pub fn write(&mut self, value: u8) {
        if self.index >= MEMORY && self.index != CENTURY {
            self.memory[self.index] = value;
        }
    }

    /// Reads the selected register.
    pub fn read(&self) -> u8 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.read_at(now.map_or(0, |time| time.as_secs()))
    }

    fn read_at(&self, seconds: u64) -> u8 {
        let (year, month, day) = date(seconds / 86_400);
        let decimal = |value: u64| u8::try_from(value / 10 % 10 * 16 + value % 10).unwrap_or(0);
        match self.index {
            0x00 => decimal(seconds % 60),
            0x02 => decimal(seconds / 60 % 60),
            0x04 => decimal(seconds / 3600 % 24),
            // 1970-01-01 was a Thursday; Sunday is 1.
            0x06 => decimal((seconds / 86_400 + 4) % 7 + 1),
            0x07 => decimal(day),
            0x08 => decimal(month),
            0x09 => decimal(year % 100),
            CENTURY => decimal(year / 100),
            0x0a => STATUS_A,
            0x0b => STATUS_B,
            0x0d => STATUS_D,
            index => self.memory[index],
        }
    }
}

/// Year, month and day of a number of days since 1970-01-01. Years count from March, so that a leap
/// day is the last day of one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let since_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * since_march + 2) / 5 + 1;
    let month = if since_march < 10 {
        since_march + 3
    } else {
        since_march - 9
    };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_088, (2024, 12, 31)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
    }

    #[test]
    fn the_time_is_in_decimal_digits() {
        let mut chip = ClockChip::new();
        // 2024-12-31 23:58:47, a Tuesday.
        let seconds = 20_088 * 86_400 + 86_399 - 72;
        for (index, value) in [
            (0, 0x47),
            (2, 0x58),
            (4, 0x23),
            (6, 3),
            (7, 0x31),
            (8, 0x12),
            (9, 0x24),
            (0x32, 0x20),
        ] {
            chip.select(index | 0x80);
            assert_eq!(chip.read_at(seconds), value, "{index:#x}");
        }
    }

    #[test]
    fn memory_is_kept_and_the_clock_is_not_set() {
        let mut chip = ClockChip::new();
        for index in 0..=0xff {
            chip.select(index);
            chip.write(index ^ 0x55);
        }
        chip.select(0x7e);
        assert_eq!(chip.read_at(0), 0xfe ^ 0x55);
        chip.select(0x0b);
        assert_eq!(chip.read_at(0), STATUS_B);
        chip.select(0x32);
        assert_eq!(chip.read_at(0), 0x19);
    }
}
