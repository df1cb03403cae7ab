// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory balloon (virtio 1.2, section 5.5): returns memory that the guest does not use to the
//! host.
//!
//! Linux reports blocks of free pages some time after they became free, and waits for the answer
//! before it uses them again. The device returns a page by punching a hole in the file that backs
//! guest memory (madvise(2), `MADV_REMOVE`). The page disappears from all processes that map it;
//! the next access allocates a new page of zeroes, without involving the guest or the layer. A hole
//! makes the host walk each process's page tables, so ranges of one report are merged first.
//!
//! A lying guest harms only itself: it can write zeroes to its own memory anyway.

use super::{Broken, Chain, Device, Driver, kind};
use rustix::mm::{Advice, madvise};
use std::io::Read;
use vm_memory::{GuestAddress, GuestMemory};

const INFLATE: usize = 0;
/// The third queue, because neither statistics nor hints are offered.
const REPORTING: usize = 2;
/// More than the 32 that Linux puts into one report.
const QUEUE_SIZE: u16 = 128;

/// Feature bits: the guest takes pages back when it has no others; it reports free pages.
const F_DEFLATE_ON_OOM: u64 = 1 << 2;
const F_REPORTING: u64 = 1 << 5;

/// The unit of the driver's page numbers (section 5.5.6), whatever the guest's page size is.
const PAGE: u64 = 4096;
/// The most page numbers that are read from one buffer: Linux writes 256.
const NUMBERS: usize = 1 << 14;
/// The most ranges that are merged before holes are made.
const BATCH: usize = 1 << 14;

/// The device.
#[derive(Debug, Default)]
pub struct Balloon {
    /// The number of pages that the guest says it has given. It is only displayed.
    actual: [u8; 4],
}

/// A range of guest memory in bytes: from, to.
type Range = (u64, u64);

impl Device for Balloon {
    fn kind(&self) -> u32 {
        kind::BALLOON
    }

    fn name(&self) -> String {
        "balloon".to_string()
    }

    fn features(&self) -> u64 {
        F_DEFLATE_ON_OOM | F_REPORTING
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![QUEUE_SIZE; 3]
    }

    fn config(&self) -> Vec<u8> {
        // The first field is the number of pages that the host wants: none.
        [[0; 4], self.actual].concat()
    }

    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        if let (4, Ok(actual)) = (offset, bytes.try_into()) {
            self.actual = actual;
        }
    }

    fn notified(&mut self, driver: &mut Driver, queue: usize) -> Result<(), Broken> {
        loop {
            let (mut heads, mut ranges) = (Vec::new(), Vec::new());
            while ranges.len() < BATCH && heads.len() < usize::from(QUEUE_SIZE) {
                let Some(chain) = driver.pop(queue)? else {
                    break;
                };
                heads.push(chain.head_index());
                match queue {
                    INFLATE => numbers(driver, chain, &mut ranges),
                    REPORTING => reported(chain, &mut ranges),
                    // Deflation: pages that the guest takes back exist as soon as it touches them.
                    _ => {}
                }
            }
            if heads.is_empty() {
                return driver.signal(queue);
            }
            // Before the guest learns of it: afterwards the pages may contain data.
            give_back(driver, merge(ranges));
            for head in heads {
                driver.push(queue, head, 0)?;
            }
        }
    }
}

/// Page numbers to inflate with.
fn numbers(driver: &Driver, chain: Chain, ranges: &mut Vec<Range>) {
    let Ok(reader) = chain.reader(driver.memory()) else {
        return;
    };
    let mut bytes = Vec::new();
    if reader
        .take(4 * NUMBERS as u64)
        .read_to_end(&mut bytes)
        .is_err()
    {
        return;
    }
    for number in bytes.chunks_exact(4) {
        let number: [u8; 4] = number.try_into().unwrap_or_default();
        let from = u64::from(u32::from_le_bytes(number)) * PAGE;
        ranges.push((from, from + PAGE));
    }
}

/// Buffers that are themselves free pages.
fn reported(chain: Chain, ranges: &mut Vec<Range>) {
    for buffer in chain.filter(|buffer| buffer.is_write_only()) {
        let from = buffer.addr().0;
        if let Some(to) = from.checked_add(buffer.len().into()) {
            // Only whole pages.
            let (from, to) = (from.checked_next_multiple_of(PAGE), to / PAGE * PAGE);
            ranges.extend(from.filter(|&from| from < to).map(|from| (from, to)));
        }
    }
}

/// Merges the ranges into as few as possible.
fn merge(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Punches holes for ranges, as far as they are in guest memory.
fn give_back(driver: &Driver, ranges: Vec<Range>) {
    let memory = driver.memory();
    let end = memory.last_addr().0.saturating_add(1);
    for (from, to) in ranges {
        if driver.ending().begun() {
            return;
        }
        let length = usize::try_from(to.min(end).saturating_sub(from)).unwrap_or(0);
        for slice in memory.get_slices(GuestAddress(from), length).flatten() {
            let at = slice.ptr_guard_mut();
            // SAFETY: the slice is guest memory, to which there are no references: the guest may
            // write zeroes there at any time.
            let done = unsafe { madvise(at.as_ptr().cast(), slice.len(), Advice::LinuxRemove) };
            // A host that cannot do this only keeps the memory.
            if let Err(error) = done {
                tracing::debug!(
                    "balloon: {} bytes of {from:#x} to {to:#x} stay: {error}",
                    slice.len()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_guest::{FREE, Guest, MEMORY};
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;
    use vm_memory::{Bytes, FileOffset, GuestMemoryMmap, GuestMemoryRegion};

    const DEFLATE: usize = 1;

    /// A guest whose memory is a file that is completely written.
    fn guest() -> Guest {
        let mut guest = Guest::new(3);
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(file);
        file.set_len(MEMORY as u64).unwrap();
        let ranges = [(GuestAddress(0), MEMORY, Some(FileOffset::new(file, 0)))];
        guest.memory = Arc::new(GuestMemoryMmap::from_ranges_with_files(ranges).unwrap());
        // Including the rings, so that nothing is allocated later.
        let mut bytes = vec![0xaa; MEMORY];
        bytes.iter_mut().take(0x100_000).for_each(|byte| *byte = 0);
        guest.memory.write_slice(&bytes, GuestAddress(0)).unwrap();
        guest
    }

    fn blocks(guest: &Guest) -> u64 {
        let region = guest.memory.find_region(GuestAddress(0)).unwrap();
        let file = region.file_offset().unwrap().file();
        file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn what_is_reported_is_gone_and_nothing_else() {
        let mut guest = guest();
        let (mut driver, mut balloon) = (guest.driver(F_REPORTING), Balloon::default());
        let before = blocks(&guest);
        // Two adjacent ranges, one that is not aligned, and one that begins in memory and ends
        // outside.
        let head = guest.offer(
            REPORTING,
            &[
                (FREE, 0x10000, true),
                (FREE + 0x10000, 0x10000, true),
                (FREE + 0x40010, 0x3000, true),
                (MEMORY as u64 - 0x1000, 0x8000, true),
                // The device may only read it, so it is not a report.
                (FREE + 0x80000, 0x10000, false),
            ],
        );
        balloon.notified(&mut driver, REPORTING).unwrap();
        assert_eq!(guest.used(REPORTING), [(head, 0)]);
        assert_eq!(before - blocks(&guest), 0x20000 + 0x2000 + 0x1000);
        assert!(guest.get(FREE, 0x20000).iter().all(|&b| b == 0));
        assert_eq!(guest.get(FREE + 0x20000, 0x20000), vec![0xaa; 0x20000]);
        assert_eq!(guest.get(FREE + 0x40010, 0xff0), vec![0xaa; 0xff0]);
        assert_eq!(guest.get(FREE + 0x80000, 0x1000), vec![0xaa; 0x1000]);
        // And usable at once.
        guest.put(FREE, b"again");
        assert_eq!(guest.get(FREE, 5), b"again");
    }

    #[test]
    fn pages_by_number() {
        let mut guest = guest();
        let (mut driver, mut balloon) = (guest.driver(0), Balloon::default());
        let before = blocks(&guest);
        let page = u32::try_from(FREE / PAGE).unwrap();
        let numbers: Vec<u8> = [page + 9, page + 8, page + 8, u32::MAX, 1 << 20]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        guest.put(FREE, &numbers);
        // The last number is incomplete.
        let length = u32::try_from(numbers.len()).unwrap() + 3;
        guest.offer(INFLATE, &[(FREE, length, false)]);
        guest.offer(INFLATE, &[(u64::MAX - 100, 4096, false)]);
        balloon.notified(&mut driver, INFLATE).unwrap();
        assert_eq!(guest.used(INFLATE).len(), 2);
        assert_eq!(before - blocks(&guest), 2 * PAGE);
        guest.offer(DEFLATE, &[(FREE, 4, false)]);
        balloon.notified(&mut driver, DEFLATE).unwrap();
        assert_eq!(guest.used(DEFLATE).len(), 1);
        balloon.write_config(4, &7u32.to_le_bytes());
        balloon.write_config(0, &7u32.to_le_bytes());
        balloon.write_config(4, &[1]);
        assert_eq!(balloon.config(), [0, 0, 0, 0, 7, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn put_together_they_are_the_same(
            ranges in prop::collection::vec((0u64..100, 0u64..20), 0..30),
        ) {
            let ranges: Vec<Range> = ranges
                .into_iter()
                .map(|(from, length)| (from, from + length))
                .collect();
            let merged = merge(ranges.clone());
            for byte in 0..130 {
                let inside = |ranges: &[Range]| {
                    ranges.iter().any(|&(from, to)| (from..to).contains(&byte))
                };
                prop_assert_eq!(inside(&merged), inside(&ranges));
            }
            prop_assert!(merged.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
