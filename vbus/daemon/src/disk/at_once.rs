// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of a request that the thread does itself, because it needs no wait: the engine `auto`.
//!
//! Reads have a flag against waits (`RWF_NOWAIT`). Writes to the page cache do not have it on every
//! file system, so the thread avoids the causes of waits. The main causes are other requests to the
//! file: one that waits for the disk may hold the lock of the file. Another cause is the host, for
//! instance when it must write out pages first. The thread notices this by the time that a write
//! takes, and then leaves writes to the ring for a while. So the thread, which all disks share,
//! loses only a small part of its time.

use super::file::Image;
use super::ring::Operation;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes that the page cache has as a whole.
const PAGE: usize = 4096;
/// A write that takes longer has waited. The largest is copied in a tenth of it.
const SLOW: Duration = Duration::from_millis(1);
/// The thread leaves writes to the ring after a slow one, for this multiple of its time and within
/// these bounds.
const TIMES: u32 = 16;
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// What was done of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Bytes from its start on.
    pub bytes: usize,
    /// The call has waited nevertheless.
    pub slow: bool,
}

/// Whether the thread writes itself.
#[derive(Debug, Default)]
pub struct AtOnce {
    /// Not before then.
    rests: Option<Instant>,
}

impl AtOnce {
    /// Does what needs no wait for the disk. `alone`: the ring has no request to the file. An error
    /// is left to the rest of the request: it comes again.
    pub fn attempt(
        &mut self,
        image: &Image,
        operation: Operation,
        offset: u64,
        buffer: &mut [u8],
        alone: bool,
    ) -> Attempt {
        match operation {
            Operation::Read => Attempt {
                bytes: read(image, offset, buffer),
                slow: false,
            },
            // The page cache takes whole pages without a look at the disk.
            Operation::Write if alone && is_pages(offset, buffer.len()) => {
                let begun = Instant::now();
                if self.rests_at(begun) {
                    return Attempt::default();
                }
                Attempt {
                    bytes: image.file.write_at(buffer, offset).unwrap_or(0),
                    slow: self.took(begun, begun.elapsed()),
                }
            }
            Operation::Write | Operation::Flush => Attempt::default(),
        }
    }

    fn rests_at(&self, now: Instant) -> bool {
        self.rests.is_some_and(|until| now < until)
    }

    /// Notes how long a write took. Returns whether it has waited.
    fn took(&mut self, begun: Instant, time: Duration) -> bool {
        if time < SLOW {
            return false;
        }
        let rest = time.saturating_mul(TIMES).clamp(SHORTEST, LONGEST);
        self.rests = Some(begun + time + rest);
        true
    }
}

/// Looks whether the file system can say that a request would wait. Where it cannot, the kernel
/// could take it for one that never waits (FUSE), and have the thread wait in the ring's own call.
pub fn probe(image: &Image) {
    // Refused before the file system sees it, or it does not wait.
    read(image, 0, &mut [0]);
}

fn read(image: &Image, offset: u64, buffer: &mut [u8]) -> usize {
    if image.always_waits.load(Ordering::Relaxed) {
        return 0;
    }
    let mut parts = [IoSliceMut::new(buffer)];
    match preadv2(&image.file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
        Ok(bytes) => bytes,
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
            image.always_waits.store(true, Ordering::Relaxed);
            0
        }
        Err(_) => 0,
    }
}

fn is_pages(offset: u64, len: usize) -> bool {
    len.is_multiple_of(PAGE) && offset.is_multiple_of(PAGE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_rests_after_a_slow_write_for_a_while_that_its_time_decides() {
        let ms = Duration::from_millis;
        let begun = Instant::now();
        for (time, rest) in [
            (Duration::from_micros(999), None),
            (ms(1), Some(SHORTEST)),
            (ms(20), Some(ms(320))),
            (ms(200), Some(ms(3200))),
            (Duration::from_secs(60), Some(LONGEST)),
        ] {
            let mut all = AtOnce::default();
            assert_eq!(all.took(begun, time), rest.is_some(), "{time:?}");
            let end = begun + time;
            let Some(rest) = rest else {
                assert!(!all.rests_at(end));
                continue;
            };
            assert!(all.rests_at(end) && all.rests_at(end + rest - ms(1)));
            assert!(!all.rests_at(end + rest), "{time:?}");
        }
    }
}
