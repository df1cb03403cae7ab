// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which pair of queues frames belong to.

use super::queues::PAIRS;

/// Flows whose pairs a card remembers. Flows beyond share places.
const FLOWS: usize = 256;
/// Of no flow that was seen.
const NONE: u8 = u8::MAX;
const _: () = assert!(PAIRS < NONE as u32);

/// The pair by which the guest has sent the last frame of a flow: its answer goes there, too, and
/// so to the vCPU that waits for it.
#[derive(Debug)]
pub struct Flows([u8; FLOWS]);

impl Default for Flows {
    fn default() -> Self {
        Flows([NONE; FLOWS])
    }
}

impl Flows {
    /// The guest has sent a frame by this pair.
    pub fn sent(&mut self, frame: &[u8], pair: usize) {
        if let Some(place) = self.0.get_mut(usize::from(Flow::of(frame).0)) {
            *place = u8::try_from(pair).unwrap_or(NONE);
        }
    }

    /// The pair for a frame to the guest, one of `pairs`.
    pub fn pair(&self, frame: &[u8], pairs: usize) -> usize {
        let flow = Flow::of(frame);
        match self.0.get(usize::from(flow.0)) {
            Some(&pair) if usize::from(pair) < pairs => usize::from(pair),
            _ => flow.spread(pairs),
        }
    }
}

/// A number that both directions of a flow share. Frames that are no IP packets have one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(u8);

impl Flow {
    /// That of a frame, of which the headers are enough.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        Flow(number(frame))
    }

    /// One of `pairs` pairs, the same for all frames of the flow.
    #[must_use]
    pub fn spread(self, pairs: usize) -> usize {
        usize::from(self.0).checked_rem(pairs).unwrap_or(0)
    }
}

fn number(frame: &[u8]) -> u8 {
    let word = |at: usize| {
        let bytes = frame
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let ports = |protocol: u8, at: usize| match protocol {
        // TCP, UDP.
        6 | 17 => (word(at) >> 16).wrapping_add(word(at) & 0xffff),
        _ => 0,
    };
    let sum = match (byte(12), byte(13)) {
        (0x08, 0x00) => {
            let at = 14 + usize::from(byte(14) & 0xf) * 4;
            // Only the first fragment has ports.
            let whole = word(20) & 0x3fff_0000 == 0;
            let ports = if whole { ports(byte(23), at) } else { 0 };
            word(26).wrapping_add(word(30)).wrapping_add(ports)
        }
        (0x86, 0xdd) => {
            let addresses = (22..54).step_by(4).map(word);
            let addresses = addresses.fold(0, u32::wrapping_add);
            addresses.wrapping_add(ports(byte(20), 54))
        }
        _ => return 0,
    };
    let [first, ..] = sum.wrapping_mul(0x9e37_79b1).to_be_bytes();
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(source: [u8; 6], destination: [u8; 6]) -> Vec<u8> {
        let mut frame = vec![0; 54];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 6;
        frame[26..30].copy_from_slice(&source[..4]);
        frame[30..34].copy_from_slice(&destination[..4]);
        frame[34..36].copy_from_slice(&source[4..]);
        frame[36..38].copy_from_slice(&destination[4..]);
        frame
    }

    #[test]
    fn an_answer_goes_where_its_question_came_from() {
        let (here, there) = ([10, 0, 2, 15, 0x9c, 0x40], [10, 0, 2, 2, 0, 80]);
        let mut flows = Flows::default();
        for pair in [3, 1, 2] {
            flows.sent(&tcp(here, there), pair);
            assert_eq!(flows.pair(&tcp(there, here), 4), pair);
        }
        // With fewer pairs than then.
        assert!(flows.pair(&tcp(there, here), 2) < 2);
    }

    #[test]
    fn flows_that_were_never_seen_use_all_pairs() {
        let flows = Flows::default();
        let mut used = [0; 4];
        for port in 0..=255 {
            let frame = tcp([10, 0, 2, 2, 0x80, port], [10, 0, 2, 15, 0, 80]);
            used[flows.pair(&frame, 4)] += 1;
        }
        assert!(used.iter().all(|&used| used > 16), "{used:?}");
    }

    #[test]
    fn whatever_a_frame_is_it_has_a_number() {
        let mut flows = Flows::default();
        let long = [0xff; 80];
        for kind in [[8, 0], [0x86, 0xdd], [8, 6], [0, 0]] {
            for length in 0..long.len() {
                let mut frame = long[..length].to_vec();
                if length >= 14 {
                    frame[12..14].copy_from_slice(&kind);
                }
                flows.sent(&frame, 1);
                assert_eq!(flows.pair(&frame, 2), 1);
                assert_eq!(flows.pair(&frame, 1), 0);
            }
        }
    }
}
