// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host allocates blocks for small writes that follow each other, before they come.
//!
//! A new image has holes. The journal of a guest's file system writes some blocks there and flushes
//! them, over and over. At each flush, the host must record in its own journal that the blocks now
//! belong to the file. That takes as long as the flush itself. So zeroes are written to the hole
//! after such a write. The next flush records these blocks, too, and later ones only write data.
//!
//! The guest did not ask for the zeroes, so they must neither replace data nor take room that
//! others need. The policy of a disk's threads (`policies/monitor.json`) admits `lseek`, but no
//! `fstatfs`, and no `ioctl` with `FS_IOC_FIEMAP`. So the monitor looks at the free room when it
//! opens the disk, and finds data by seeks.

use super::storage::write_zeroes;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

/// The most bytes of a write after which others are expected.
const SMALL: u64 = 64 << 10;
/// The most bytes of zeroes after a write.
const MOST: u64 = 128 << 10;
/// Places of the disk that are known at a time.
const STREAMS: usize = 8;
/// Parts of the file without data that are known at a time.
const PARTS: usize = 8;
/// The free bytes of the host's file system that are left to others: so many...
const RESERVE: u64 = 1 << 30;
/// ...and at least this part of all, which the tools of ext4 also keep back by default.
const RESERVE_PART: u64 = 20;
/// Zeroes take at most this part of the free bytes beyond the reserve. The rest is for data, and
/// for other disks in the file system.
const SHARE: u64 = 8;
/// File systems that overwrite data in place (`statfs(2)`): ext2 to ext4, and XFS. Others would
/// allocate other blocks for the data, and those in memory flush nothing.
const IN_PLACE: [u64; 2] = [0xef53, 0x5846_5342];

/// Writes that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where the next one begins.
    next: u64,
    /// The bytes so far, since one had no flush before it.
    length: u64,
    /// The host has blocks up to here, or they were asked for.
    ready: u64,
    /// Flushes before the last one.
    flushes: u64,
    /// The number of the last one.
    used: u64,
}

/// Decides where blocks are needed.
#[derive(Debug, Default)]
struct Streams {
    all: [Stream; STREAMS],
    flushes: u64,
    /// Small writes so far.
    writes: u64,
}

impl Streams {
    /// Notes a write. Returns the bytes after it for which there should be blocks: at most as many
    /// as the stream has written.
    fn write(&mut self, bytes: &Range<u64>) -> Option<Range<u64>> {
        self.writes += 1;
        let new = Stream {
            next: bytes.end,
            length: 0,
            ready: 0,
            flushes: self.flushes,
            used: self.writes,
        };
        let known = |one: &&mut Stream| one.used > 0 && one.next == bytes.start;
        let Some(stream) = self.all.iter_mut().find(known) else {
            // In place of the one that was used before all others.
            let oldest = self.all.iter_mut().min_by_key(|one| one.used);
            oldest.into_iter().for_each(|oldest| *oldest = new);
            return None;
        };
        // Without a flush in between, the host makes room for many at a time.
        if stream.flushes == self.flushes {
            *stream = new;
            return None;
        }
        *stream = Stream {
            length: stream.length + bytes.end - bytes.start,
            ready: stream.ready,
            ..new
        };
        if bytes.end <= stream.ready {
            return None;
        }
        stream.ready = bytes.end + stream.length.min(MOST);
        Some(bytes.end..stream.ready)
    }
}

/// Parts of the file that have no data: they are holes, or allocated and not yet written.
///
/// `SEEK_DATA` passes all extents up to the first data. A large image that `fallocate` has made has
/// thousands of them, and the seek does not stop at the end of a range. So what a seek has
/// passed is remembered, until a write goes there. Data comes only from this monitor's writes, as
/// far as the lock of the file is obeyed. The largest parts are kept: a seek that is made again
/// passes a part that was smaller than each of them.
#[derive(Debug, Default)]
struct Empty([Range<u64>; PARTS]);

impl Empty {
    /// The end of the part that has this place; `None` if none is known.
    fn end(&self, at: u64) -> Option<u64> {
        let mut parts = self.0.iter();
        parts.find(|part| part.contains(&at)).map(|part| part.end)
    }

    /// A part, in place of the smallest one if that is smaller.
    fn add(&mut self, new: Range<u64>) {
        let size = |part: &Range<u64>| part.end.saturating_sub(part.start);
        for part in &mut self.0 {
            if new.start <= part.start && part.end <= new.end {
                *part = 0..0;
            }
        }
        if let Some(smallest) = self.0.iter_mut().min_by_key(|part| size(part))
            && size(smallest) < size(&new)
        {
            *smallest = new;
        }
    }

    /// These bytes will have data.
    fn cut(&mut self, bytes: &Range<u64>) {
        let mut more = None;
        for part in &mut self.0 {
            if bytes.end <= part.start || part.end <= bytes.start {
                continue;
            }
            let before = part.start..bytes.start;
            let after = bytes.end..part.end;
            if before.is_empty() {
                *part = after;
            } else {
                *part = before;
                // If parts overlapped, only the last rest would be kept: the others are forgotten.
                more = Some(after);
            }
        }
        more.into_iter().for_each(|part| self.add(part));
    }
}

/// What the writes so far tell.
#[derive(Debug, Default)]
struct Known {
    streams: Streams,
    empty: Empty,
}

impl Known {
    /// Notes a write that begins. Returns the bytes after it for which there should be blocks.
    fn write(&mut self, bytes: &Range<u64>) -> Option<Range<u64>> {
        self.empty.cut(bytes);
        let small = bytes.end - bytes.start <= SMALL;
        small.then(|| self.streams.write(bytes)).flatten()
    }
}

/// Has the host allocate blocks of a file before they are written.
#[derive(Debug)]
pub struct Ahead {
    known: Mutex<Known>,
    /// Bytes of zeroes that may still be written; 0 is for good. Held by writers, and exclusively
    /// while zeroes are written: they must not overwrite data.
    left: RwLock<u64>,
}

impl Ahead {
    /// For an open file; `None` where there is nothing to gain, or no room to spare. Makes calls
    /// that the policy of a disk's threads does not admit.
    pub fn of(file: &File) -> Option<Self> {
        let in_place = rustix::fs::fstatfs(file).is_ok_and(|stat| {
            IN_PLACE
                .iter()
                .any(|&kind| i128::from(stat.f_type) == i128::from(kind))
        });
        let is_file = file.metadata().is_ok_and(|data| data.is_file());
        let room = rustix::fs::fstatvfs(file).map_or(0, |stat| {
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            spare(bytes(stat.f_bavail), bytes(stat.f_blocks))
        });
        (in_place && is_file && room > 0).then(|| Ahead::with(room))
    }

    /// Writes at most so many bytes of zeroes.
    pub(super) fn with(zeroes: u64) -> Self {
        Ahead {
            known: Mutex::default(),
            left: RwLock::new(zeroes),
        }
    }

    /// A flush begins.
    pub fn flush(&self) {
        self.known().streams.flushes += 1;
    }

    /// Writes no more zeroes. There is no way back: writes are no longer noted.
    pub fn stop(&self) {
        *self.alone() = 0;
    }

    /// Writes these bytes of the file by this call, and zeroes after them if that is expected to
    /// pay off. All writes of data must be made here. `length` is the file's, in bytes.
    ///
    /// The zeroes come last, so that they do not take the room of the data. After the first error
    /// there are no more of them: the host may lack room, which is then for data. Where the host
    /// allocates late, it reports that only to a flush.
    ///
    /// A write costs two locks. One that goes beyond the zeroes of its stream also costs up to
    /// three host calls: a seek, and writes of 64 KiB.
    ///
    /// # Errors
    /// The call's. Those of the zeroes are ignored: they change nothing that the guest can read.
    pub fn write(
        &self,
        file: &File,
        bytes: &Range<u64>,
        length: u64,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let left = self.left.read().unwrap_or_else(PoisonError::into_inner);
        // Noted before there is data, so that no one takes the bytes for empty when there is.
        let wanted = (*left > 0).then(|| self.known().write(bytes)).flatten();
        let result = write();
        drop(left);
        match (&result, wanted) {
            (Ok(()), Some(wanted)) => self.fill(file, wanted.start..wanted.end.min(length)),
            (Ok(()), None) => {}
            (Err(_), _) => self.stop(),
        }
        result
    }

    /// Writes zeroes to these bytes, up to the first data, as far as they may be written.
    fn fill(&self, file: &File, bytes: Range<u64>) {
        let mut left = self.alone();
        let bytes = bytes.start..bytes.end.min(bytes.start.saturating_add(*left));
        if bytes.is_empty() {
            return;
        }
        *left = match self.fill_hole(file, bytes) {
            Ok(zeroes) => left.saturating_sub(zeroes),
            Err(_) => 0,
        };
    }

    /// Writes zeroes to these bytes of a file, up to the first data. Returns how many. No one else
    /// may write.
    pub(super) fn fill_hole(&self, file: &File, bytes: Range<u64>) -> io::Result<u64> {
        let known = self.known().empty.end(bytes.start);
        let end = match known {
            Some(end) => end,
            None => match seek(file, SeekFrom::Data(bytes.start)) {
                Ok(data) => data,
                // There is none.
                Err(Errno::NXIO) => u64::MAX,
                Err(error) => return Err(error.into()),
            },
        };
        let zeroes = bytes.start..bytes.end.min(end);
        let mut all = self.known();
        if known.is_none() {
            all.empty.add(bytes.start..end);
        }
        // Once is enough.
        all.empty.cut(&zeroes);
        drop(all);
        let length = zeroes.end.saturating_sub(zeroes.start);
        write_zeroes(file, zeroes.start, length, &|| false)?;
        Ok(length)
    }

    /// Bytes of zeroes that may still be written.
    #[cfg(test)]
    pub(super) fn left(&self) -> u64 {
        *self.alone()
    }

    /// The end of what is known to be empty from this byte on.
    #[cfg(test)]
    pub(super) fn empty_to(&self, at: u64) -> Option<u64> {
        self.known().empty.end(at)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, u64> {
        self.left.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The zeroes for which a file system has room to spare, in bytes, as `free` and `all` are.
fn spare(free: u64, all: u64) -> u64 {
    free.saturating_sub(RESERVE.max(all / RESERVE_PART)) / SHARE
}

#[cfg(test)]
mod tests {
    use super::super::storage::SECTOR;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const BLOCK: u64 = 4096;

    /// Block writes one after the other from here on, each with a flush before it.
    fn stream(streams: &mut Streams, from: u64, blocks: u64) -> Vec<Range<u64>> {
        let write = |block| {
            streams.flushes += 1;
            let start = from + block * BLOCK;
            streams.write(&(start..start + BLOCK))
        };
        (0..blocks).filter_map(write).collect()
    }

    #[test]
    fn room_is_made_for_as_much_as_was_written() {
        let mut streams = Streams::default();
        let found = stream(&mut streams, 0, 200);
        let sizes: Vec<_> = found
            .iter()
            .map(|one| (one.end - one.start) / BLOCK)
            .collect();
        assert_eq!(sizes, [1, 3, 7, 15, 31, 32, 32, 32, 32, 32]);
        assert!(found.windows(2).all(|two| two[0].end <= two[1].start));
    }

    #[test]
    fn writes_that_are_not_flushed_make_no_room() {
        let mut streams = Streams::default();
        for block in 0..100 {
            assert_eq!(streams.write(&(block * BLOCK..(block + 1) * BLOCK)), None);
        }
    }

    #[test]
    fn writes_elsewhere_make_no_room() {
        let mut streams = Streams::default();
        for block in 0..100 {
            streams.flushes += 1;
            let start = block * 3 * BLOCK;
            assert_eq!(streams.write(&(start..start + BLOCK)), None);
        }
    }

    #[test]
    fn several_streams_are_known() {
        let mut streams = Streams::default();
        let mut found = 0;
        for block in 0..10 {
            for one in 1..=u64::try_from(STREAMS).unwrap() {
                found += stream(&mut streams, (one << 30) + block * BLOCK, 1).len();
            }
        }
        assert!(found > STREAMS);
    }

    #[test]
    fn a_full_file_system_has_no_room_to_spare() {
        const GIB: u64 = 1 << 30;
        assert_eq!(spare(GIB, 10 * GIB), 0);
        assert_eq!(spare(9 * GIB, 10 * GIB), GIB);
        assert_eq!(spare(50 * GIB, 1000 * GIB), 0);
        assert_eq!(spare(58 * GIB, 1000 * GIB), GIB);
        assert_eq!(spare(0, 0), 0);
    }

    proptest! {
        /// No byte with data is ever taken for empty.
        #[test]
        fn what_is_known_to_be_empty_has_no_data(
            steps in prop::collection::vec((0..200u64, 1..20u64, any::<bool>()), 1..200)
        ) {
            let (mut empty, mut data) = (Empty::default(), BTreeSet::new());
            for (start, length, write) in steps {
                if write {
                    empty.cut(&(start..start + length));
                    data.extend(start..start + length);
                } else {
                    let end = data.range(start..).next().copied().unwrap_or(u64::MAX);
                    empty.add(start..end);
                }
                for at in 0..220 {
                    if let Some(end) = empty.end(at) {
                        prop_assert_eq!(data.range(at..end).next(), None);
                    }
                }
            }
        }

        /// However a driver writes, and overwrites, the file gets at most twice the blocks that it
        /// has ever written: also after discards, for blocks that were discarded count. The zeroes
        /// are at most twice the bytes of its writes. Earlier zeroes are where it writes next.
        #[test]
        fn room_is_bounded(
            writes in prop::collection::vec(
                (0..8u64, 1..100u64, prop::option::weighted(0.1, 0..300u64), any::<bool>()),
                1..300,
            )
        ) {
            let (mut streams, mut places) = (Streams::default(), [0u64; 8]);
            let (mut wrote, mut zeroes) = (0, 0);
            let (mut written, mut blocks) = (BTreeSet::new(), BTreeSet::new());
            let all = |bytes: &Range<u64>| bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
            for (place, sectors, to, flush) in writes {
                streams.flushes += u64::from(flush);
                let at = &mut places[usize::try_from(place).unwrap()];
                *at = to.map_or(*at, |sector| sector * SECTOR);
                let start = (place << 40) + *at;
                let bytes = start..start + sectors * SECTOR;
                *at += sectors * SECTOR;
                wrote += sectors * SECTOR;
                let ahead = streams.write(&bytes).unwrap_or(bytes.end..bytes.end);
                zeroes += ahead.end - ahead.start;
                written.extend(all(&bytes));
                blocks.extend(all(&(bytes.start..ahead.end)));
            }
            let (written, blocks) = (written.len(), blocks.len());
            prop_assert!(blocks <= 2 * written, "{blocks} for {written}");
            prop_assert!(zeroes <= 2 * wrote, "{zeroes} for {wrote}");
        }
    }
}
