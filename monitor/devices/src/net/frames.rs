// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames between the driver's buffers and this process.

use super::F_MRG_RXBUF;
use crate::buffers::Buffers;
use crate::{Broken, Chain, Driver};
use paravane_net::MAX_FRAME;
use paravane_net::link::HEADER;
use paravane_net::user::Port;
use std::sync::Arc;
use tracing::debug;

/// The queue with the driver's empty buffers.
pub const RX: usize = 0;
/// The queue with the driver's frames.
pub const TX: usize = 1;

/// Offset of `num_buffers` in the header.
const NUM_BUFFERS: usize = 10;

/// Reads a driver's frame, after its header, into `space`. `None` if it is no frame: too short, too
/// long, or not in guest memory.
pub fn read<'a>(driver: &Driver, chain: Chain, space: &'a mut Vec<u8>) -> Option<&'a mut [u8]> {
    let (buffers, _) = Buffers::of(driver.memory(), chain)?;
    let length = usize::try_from(buffers.len()).ok()?;
    if !(HEADER..=HEADER + MAX_FRAME).contains(&length) {
        debug!("network: a frame of {length} bytes is dropped");
        return None;
    }
    if space.len() < length {
        space.resize(length, 0);
    }
    let frame = space.get_mut(..length)?;
    (buffers.copy_out(frame) == length).then_some(frame)
}

/// The driver's empty buffers.
pub struct Room<'a> {
    pub driver: &'a mut Driver,
    /// Frames that were given since the last signal.
    pub given: usize,
    /// The driver has broken a rule: it gets nothing more.
    pub broken: Option<Broken>,
}

impl<'a> Room<'a> {
    pub fn of(driver: &'a mut Driver) -> Self {
        Room {
            driver,
            given: 0,
            broken: None,
        }
    }

    /// The result of all that was given.
    pub fn end(self) -> Result<usize, Broken> {
        self.broken.map_or(Ok(self.given), Err)
    }
}

impl Port for Room<'_> {
    fn give(&mut self, frame: &mut [u8]) -> bool {
        if self.broken.is_some() {
            return false;
        }
        match give(self.driver, frame) {
            Ok(given) => {
                self.given += usize::from(given);
                given
            }
            Err(error) => {
                self.broken = Some(error);
                false
            }
        }
    }
}

/// Writes a frame to as many of the driver's buffers as it takes. False: there are not enough yet.
pub fn give(driver: &mut Driver, frame: &mut [u8]) -> Result<bool, Broken> {
    let several = driver.features() & F_MRG_RXBUF != 0;
    let memory = Arc::clone(driver.memory());
    let mut chains = Vec::new();
    let (mut room, length) = (0, frame.len() as u64);
    while room < length {
        let Some(chain) = driver.pop(RX)? else {
            chains.iter().for_each(|_| driver.put_back(RX));
            return Ok(false);
        };
        let head = chain.head_index();
        // The descriptors are read only once: the guest may change them at any time.
        let buffers = Buffers::of(&memory, chain).map(|(_, writable)| writable);
        room += buffers.as_ref().map_or(0, Buffers::len);
        chains.push((head, buffers));
        if !several {
            break;
        }
    }
    // A driver that adds buffers without room gets them back as used, and the frame is lost.
    let count = u16::try_from(chains.len()).unwrap_or(u16::MAX);
    if let Some(field) = frame.get_mut(NUM_BUFFERS..HEADER) {
        field.copy_from_slice(&count.to_le_bytes());
    }
    let mut left: &[u8] = if room < length { &[] } else { frame };
    for (head, buffers) in chains {
        let done = buffers.map_or(0, |buffers| buffers.copy_in(left));
        left = left.get(done..).unwrap_or_default();
        driver.push(RX, head, u32::try_from(done).unwrap_or(0))?;
    }
    Ok(true)
}
