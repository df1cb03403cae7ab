// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host allocates blocks for small writes that follow each other, before they come.
//!
//! A new image has holes. The journal of a guest's file system writes some blocks there and flushes
//! them, over and over. At each flush, the host must record in its own journal that the blocks now
//! belong to the file. That takes as long as the flush itself. So zeroes are written to the hole
//! after such a write. The next flush records these blocks, too, and later ones only write data.

use super::storage::write_zeroes;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// The most bytes of a write after which others are expected.
const SMALL: u64 = 64 << 10;
/// The most bytes of zeroes after a write.
const MOST: u64 = 128 << 10;
/// Places of the disk that are known at a time.
const STREAMS: usize = 8;
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

/// Has the host allocate blocks of a file before they are written.
#[derive(Debug, Default)]
pub struct Ahead {
    streams: Mutex<Streams>,
    /// Held by writers, and exclusively while zeroes are written: they must not overwrite data.
    order: RwLock<()>,
}

impl Ahead {
    /// For an open file; `None` where there is nothing to gain.
    pub fn of(file: &File) -> Option<Self> {
        let in_place = rustix::fs::fstatfs(file).is_ok_and(|stat| {
            IN_PLACE
                .iter()
                .any(|&kind| i128::from(stat.f_type) == i128::from(kind))
        });
        let is_file = file.metadata().is_ok_and(|data| data.is_file());
        (in_place && is_file).then(Ahead::default)
    }

    /// A flush begins.
    pub fn flush(&self) {
        self.lock().flushes += 1;
    }

    /// Writes zeroes after these bytes if that is expected to pay off. The caller may write while
    /// it holds the guard. `length` is the file's.
    ///
    /// A write costs two locks. One that goes beyond the zeroes of its stream also costs up to
    /// three host calls: a seek, and writes of 64 KiB.
    pub fn write(&self, file: &File, bytes: &Range<u64>, length: u64) -> RwLockReadGuard<'_, ()> {
        let small = bytes.end - bytes.start <= SMALL;
        let wanted = small.then(|| self.lock().write(bytes)).flatten();
        if let Some(wanted) = wanted.filter(|wanted| wanted.start < length) {
            let _order = self.order.write().unwrap_or_else(PoisonError::into_inner);
            // The write itself reports what is wrong with the file.
            _ = fill_hole(file, wanted.start..wanted.end.min(length));
        }
        self.order.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes zeroes to these bytes of a file, up to the first data.
fn fill_hole(file: &File, bytes: Range<u64>) -> io::Result<()> {
    let end = match seek(file, SeekFrom::Data(bytes.start)) {
        Ok(data) => data.min(bytes.end),
        // There is none.
        Err(Errno::NXIO) => bytes.end,
        Err(error) => return Err(error.into()),
    };
    let length = end.saturating_sub(bytes.start);
    write_zeroes(file, bytes.start, length, &|| false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::FileExt;

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

    /// On a file system that allocates.
    #[test]
    fn only_holes_are_filled() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[7; 4096], 32 << 10).unwrap();
        fill_hole(&file, 8 << 10..64 << 10).unwrap();
        fill_hole(&file, 32 << 10..64 << 10).unwrap();
        fill_hole(&file, 1020 << 10..1 << 20).unwrap();
        let mut all = vec![1; 1 << 20];
        file.read_exact_at(&mut all, 0).unwrap();
        let data: Vec<_> = (0..all.len()).filter(|&at| all[at] != 0).collect();
        assert_eq!((data.len(), data[0]), (4096, 32 << 10));
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        let hole = |from| seek(&file, SeekFrom::Hole(from)).unwrap();
        let begin = seek(&file, SeekFrom::Data(0)).unwrap();
        if begin == 8 << 10 {
            assert_eq!(hole(8 << 10), 36 << 10);
            assert_eq!(hole(1020 << 10), 1 << 20);
        }
    }

    proptest! {
        /// Whatever a driver does, the file gets blocks for at most twice what it writes, and at
        /// most twice as many zeroes as it writes bytes. Earlier zeroes are where it writes next.
        #[test]
        fn room_is_bounded(
            writes in prop::collection::vec((0..8u64, 1..16u64, any::<bool>()), 1..300)
        ) {
            let (mut streams, mut places) = (Streams::default(), [0u64; 8]);
            let (mut wrote, mut zeroes) = (0, 0);
            let mut blocks = BTreeSet::new();
            for (place, count, flush) in writes {
                streams.flushes += u64::from(flush);
                let at = &mut places[usize::try_from(place).unwrap()];
                let start = (place << 40) + *at;
                let bytes = start..start + count * BLOCK;
                *at += count * BLOCK;
                wrote += count;
                let ahead = streams.write(&bytes).unwrap_or(bytes.end..bytes.end);
                zeroes += (ahead.end - ahead.start) / BLOCK;
                blocks.extend((bytes.start..ahead.end).step_by(4096));
            }
            prop_assert!(blocks.len() as u64 <= 2 * wrote, "{} for {wrote}", blocks.len());
            prop_assert!(zeroes <= 2 * wrote, "{zeroes} for {wrote}");
        }
    }
}
