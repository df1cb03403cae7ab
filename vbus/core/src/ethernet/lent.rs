// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A frame that is lent: what its receiver gets in a buffer, in place of the frame.
//!
//! The buffer has a head of five words, a place and a length for each part of the frame that stays
//! in the sender's memory, and then the first bytes of the frame. These are a copy: the delivered
//! bytes are those that were checked. The flags of the descriptor are [`LENT`].

use super::HEAD;
use crate::limits;

/// Flags of a descriptor whose buffer says where the frame lies. Without the flag of a checksum,
/// they mean nothing else.
pub const LENT: u32 = 1 << 31;
/// Most parts of a frame that stay in its sender's memory. A frame of more is copied.
pub const PARTS: usize = 32;
/// Fewer bytes than these in its sender's memory are copied: that costs no more.
pub const FEWEST: usize = 1024;
/// Bytes of the words before the places, and of a place.
const WORDS: usize = 20;
const PLACE: usize = 8;
/// Most bytes of all of it.
pub const MOST: usize = WORDS + PARTS * PLACE + HEAD;

/// The record before the first bytes of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// Where the receiver has mapped the sender's memory.
    pub place: u32,
    /// The lower bits of the sender's connection.
    pub lender: u32,
    /// The frame's flags.
    pub flags: u32,
    /// Offsets in the sender's memory, and bytes.
    pub parts: Vec<(u32, u32)>,
    /// Where the first bytes of the frame are in the buffer, and how many.
    pub head: (usize, usize),
}

impl Lent {
    /// With room for as many parts as there can be.
    #[must_use]
    pub fn with_room() -> Self {
        Lent {
            parts: Vec::with_capacity(PARTS),
            ..Lent::default()
        }
    }

    /// Writes it, with the first bytes of the frame.
    pub fn write(&self, head: &[u8], to: &mut Vec<u8>) {
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        to.clear();
        let (bytes, parts) = (word(head.len()), word(self.parts.len()));
        for word in [self.place, self.lender, self.flags, bytes, parts] {
            to.extend(word.to_le_bytes());
        }
        for &(offset, len) in &self.parts {
            to.extend(offset.to_le_bytes());
            to.extend(len.to_le_bytes());
        }
        to.extend_from_slice(head);
    }

    /// Reads it from the first [`MOST`] bytes of a buffer, or all of it, and from the buffer's
    /// length. False: it makes no sense. Whether the parts are in the sender's memory is checked
    /// where they are read.
    pub fn read(&mut self, from: &[u8], used: usize) -> bool {
        let word = |at: usize| {
            let bytes = from.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map(|bytes| u32::from_le_bytes(*bytes))
        };
        let words = [0, 4, 8, 12, 16].map(word);
        let [
            Some(place),
            Some(lender),
            Some(flags),
            Some(head),
            Some(parts),
        ] = words
        else {
            return false;
        };
        let number = |word: u32| usize::try_from(word).unwrap_or(usize::MAX);
        let (head, parts) = (number(head), number(parts));
        if head == 0 || head > HEAD || parts == 0 || parts > PARTS {
            return false;
        }
        let first = WORDS + parts * PLACE;
        if first + head != used || from.len() != used {
            return false;
        }
        (self.place, self.lender, self.flags) = (place, lender, flags);
        self.head = (first, head);
        self.parts.clear();
        let mut all = head;
        for at in (WORDS..first).step_by(PLACE) {
            let (Some(offset), Some(len)) = (word(at), word(at + 4)) else {
                return false;
            };
            all = all.saturating_add(number(len));
            if len == 0 || all > limits::PACKET {
                return false;
            }
            self.parts.push((offset, len));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> (Lent, Vec<u8>) {
        let lent = Lent {
            place: 3,
            lender: 7,
            flags: 0x1234,
            parts: vec![(0, 9216), (18432, 100)],
            head: (36, 54),
        };
        let mut bytes = vec![9];
        lent.write(&[0x55; 54], &mut bytes);
        (lent, bytes)
    }

    #[test]
    fn what_was_written_is_read() {
        let (lent, bytes) = some();
        let mut found = Lent::default();
        assert!(found.read(&bytes, bytes.len()));
        assert_eq!(found, lent);
        assert_eq!(bytes[36..], [0x55; 54]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (_, bytes) = some();
        let mut found = Lent::default();
        for len in 0..bytes.len() {
            assert!(!found.read(&bytes[..len], bytes.len()), "{len}");
            assert!(!found.read(&bytes[..len], len), "{len}");
        }
        // The number of bytes, that of parts, a part without bytes, one that is too long.
        for (at, value) in [
            (12, 0),
            (12, 55),
            (12, 289),
            (16, 0),
            (16, 1),
            (16, 33),
            (24, 0),
            (24, 65_500),
        ] {
            let mut other = bytes.clone();
            other[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
            assert!(!found.read(&other, other.len()), "{at}: {value}");
        }
    }
}
