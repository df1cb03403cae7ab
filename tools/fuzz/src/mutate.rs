// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes inputs from other inputs.

use super::MAX;

/// A pseudo-random generator.
pub struct Random(u64);

/// Numbers that often reveal errors.
const ODD: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x8000_0000,
    u64::MAX,
    1 << 63,
];

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.next()) * (end.max(1) as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    /// A new input made from these.
    pub fn change(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = match inputs.len() {
            // Sometimes from nothing.
            0 => Vec::new(),
            _ if self.below(32) == 0 => Vec::new(),
            many => inputs[self.below(many)].clone(),
        };
        if input.is_empty() {
            input = (0..1 + self.below(256)).map(|_| self.byte()).collect();
        }
        for _ in 0..1 + self.below(6) {
            self.once(&mut input, inputs);
        }
        input.truncate(MAX);
        input
    }

    fn once(&mut self, input: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let at = self.below(input.len());
        let length = 1 + self.below(16);
        let end = input.len().min(at + length);
        match self.below(9) {
            0 => self.each(input, at, |random, byte| byte ^ 1 << random.below(8)),
            1 => self.each(input, at, |random, _| random.byte()),
            2 => self.each(input, at, |random, byte| {
                byte.wrapping_add(random.byte() % 9).wrapping_sub(4)
            }),
            3 => drop(input.drain(at..end)),
            4 => {
                let more: Vec<u8> = (0..length).map(|_| self.byte()).collect();
                input.splice(at..at, more);
            }
            5 => {
                let again = input.get(at..end).unwrap_or_default().to_vec();
                let to = self.below(input.len());
                input.splice(to..to, again);
            }
            6 => {
                let bytes = ODD[self.below(ODD.len())].to_le_bytes();
                let width = 1 << self.below(4);
                for (to, from) in input.iter_mut().skip(at).zip(&bytes[..width]) {
                    *to = *from;
                }
            }
            7 if !inputs.is_empty() => {
                let other = &inputs[self.below(inputs.len())];
                let from = self.below(other.len());
                input.truncate(at);
                input.extend(other.iter().skip(from));
            }
            _ => {
                let piece: Vec<u8> = input.get(at..end).unwrap_or_default().to_vec();
                let to = self.below(input.len());
                for (to, from) in input.iter_mut().skip(to).zip(piece) {
                    *to = from;
                }
            }
        }
    }

    fn each(&mut self, input: &mut [u8], at: usize, change: impl Fn(&mut Self, u8) -> u8) {
        if let Some(byte) = input.get_mut(at) {
            *byte = change(self, *byte);
        }
    }
}
