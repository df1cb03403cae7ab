// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entropy device (virtio 1.2, section 5.4): fills buffers from the host's random number generator.

use super::{Broken, Chain, Device, Driver, kind};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::Write;

const QUEUE: usize = 0;
/// The most bytes for one buffer: a driver that asks for a GiB at once must not keep the thread
/// busy for seconds.
const AT_ONCE: usize = 64 << 10;

/// The device.
#[derive(Debug, Default)]
pub struct Rng {}

impl Device for Rng {
    fn kind(&self) -> u32 {
        kind::RNG
    }

    fn name(&self) -> String {
        "rng".to_string()
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![64]
    }

    fn notified(&mut self, driver: &mut Driver, _queue: usize) -> Result<(), Broken> {
        while let Some(chain) = driver.pop(QUEUE)? {
            let head = chain.head_index();
            let written = fill(driver, chain);
            driver.push(QUEUE, head, written)?;
        }
        driver.signal(QUEUE)
    }
}

/// Fills a chain. Returns the number of bytes. A chain that points outside memory gets none.
fn fill(driver: &Driver, chain: Chain) -> u32 {
    let Ok(mut writer) = chain.writer(driver.memory()) else {
        return 0;
    };
    let mut left = writer.available_bytes().min(AT_ONCE);
    let mut bytes = [0u8; 4096];
    let mut written = 0;
    while left > 0 {
        let part = left.min(bytes.len());
        // Cannot fail once the host's generator is ready. Requests of up to 256 bytes are always
        // filled; a signal may shorten larger ones.
        let Ok(got) = getrandom(&mut bytes[..part], GetRandomFlags::empty()) else {
            break;
        };
        if got == 0 || writer.write_all(&bytes[..got]).is_err() {
            break;
        }
        left -= got;
        written += u32::try_from(got).unwrap_or(0);
    }
    written
}
