// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients of a disk that write records, and the disk's file, which loses its name at the same
//! time.

use paravane_vbus_client::{Disk, Error, SECTOR};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Records of each writer, one in a sector.
const RECORDS: u64 = 256;
/// Writers, each with a part of the disk.
pub const WRITERS: usize = 2;
/// How long a request waits for vbusd and the disk. A host whose disk is busy has the files of a
/// vbusd that was killed locked for as long as it takes to end what was under way there.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is in the sector of a record.
fn record(writer: usize, number: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    for (at, word) in sector.chunks_exact_mut(8).enumerate() {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (writer << 32 | at) as u64;
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    sector[..8].copy_from_slice(&number.to_le_bytes());
    sector
}

fn place(writer: usize, number: u64) -> u64 {
    writer as u64 * RECORDS + number % RECORDS
}

/// The file of a disk. Another name outside of the disks' folder keeps it.
pub struct Store {
    name: PathBuf,
    kept: PathBuf,
    file: File,
    /// The last record of each writer that was flushed.
    pub flushed: [AtomicU64; WRITERS],
    /// How often a writer was refused since the disk had no file.
    pub refused: AtomicU64,
}

impl Store {
    /// A file without records, in vbusd's folder.
    pub fn new(folder: &Path) -> Self {
        let (name, kept) = (folder.join("disks/store"), folder.join("kept"));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&name);
        let file = file.unwrap();
        file.set_len(WRITERS as u64 * RECORDS * SECTOR as u64)
            .unwrap();
        fs::hard_link(&name, &kept).unwrap();
        Store {
            name,
            kept,
            file,
            flushed: Default::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Takes the name away.
    pub fn drop_name(&self) {
        fs::remove_file(&self.name).unwrap();
    }

    pub fn restore_name(&self) {
        fs::hard_link(&self.kept, &self.name).unwrap();
    }

    /// Waits until each writer has flushed some more records.
    pub fn is_written(&self) {
        let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
        let before = self.flushed.each_ref().map(count);
        let begun = Instant::now();
        let written = |(now, before): (&AtomicU64, u64)| count(now) > before + 3;
        while !self.flushed.iter().zip(before).all(written) {
            assert!(begun.elapsed() < PATIENCE, "nothing is written");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// All records that were flushed are there, except for those that a later one has replaced.
    pub fn check(&self) {
        for (writer, flushed) in self.flushed.iter().enumerate() {
            let last = flushed.load(Ordering::SeqCst);
            if let Some(lost) = lost_record(&self.file, writer, last) {
                unreachable!("writer {writer}: record {lost} of {last} is lost");
            }
        }
    }
}

/// The first of a writer's records up to this one that is not there, whole.
fn lost_record(file: &File, writer: usize, last: u64) -> Option<u64> {
    (last.saturating_sub(RECORDS) + 1..=last).find(|&number| {
        let mut sector = [0; SECTOR];
        let at = place(writer, number) * SECTOR as u64;
        file.read_exact_at(&mut sector, at).unwrap();
        let mut head = [0; 8];
        head.copy_from_slice(&sector[..8]);
        let found = u64::from_le_bytes(head);
        // A later one may have taken its place.
        found < number
            || !(found - number).is_multiple_of(RECORDS)
            || sector != record(writer, found)
    })
}

#[test]
fn a_lost_record_is_found() {
    let file = tempfile::tempfile().unwrap();
    let put = |number, content: &[u8]| {
        let at = place(1, number) * SECTOR as u64;
        file.write_all_at(content, at).unwrap();
    };
    for number in 1..=RECORDS + 5 {
        put(number, &record(1, number));
    }
    assert_eq!(lost_record(&file, 1, RECORDS + 5), None);
    // One that was written and not flushed.
    put(RECORDS + 6, &record(1, RECORDS + 6));
    assert_eq!(lost_record(&file, 1, RECORDS + 5), None);
    // The one of the round before is there, another writer's, or a part.
    put(4, &record(1, 4));
    assert_eq!(lost_record(&file, 1, RECORDS + 5), Some(RECORDS + 4));
    put(4, &record(0, RECORDS + 4));
    assert_eq!(lost_record(&file, 1, RECORDS + 5), Some(RECORDS + 4));
    put(4, &record(1, RECORDS + 4));
    assert_eq!(lost_record(&file, 1, RECORDS + 5), None);
    put(4, &record(1, RECORDS + 4)[..100]);
    put(5, &record(1, 5)[..100]);
    assert_eq!(lost_record(&file, 1, RECORDS + 5), Some(RECORDS + 5));
}

/// Writes records, flushes each, and reads an earlier one: until the end, through whatever happens
/// to the disk.
pub fn write(socket: &Path, writer: usize, store: &Store, end: &AtomicBool) {
    let mut disk = Disk::connect(socket, "lan", "store", PATIENCE).unwrap();
    let mut number = 0;
    let mut waits_since = Instant::now();
    while !end.load(Ordering::Relaxed) {
        let next = number + 1;
        let mut found = [0; SECTOR];
        let done = disk
            .write(place(writer, next), &record(writer, next))
            .and_then(|()| disk.flush())
            .and_then(|()| disk.read(place(writer, next / 2 + 1), &mut found));
        match done {
            Ok(()) => {}
            // vbusd has started, and its file is not there.
            Err(Error::Refused(why)) if why.to_string().contains("No such file") => {
                store.refused.fetch_add(1, Ordering::SeqCst);
                assert!(waits_since.elapsed() < PATIENCE, "{why}");
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(error) => unreachable!("writer {writer}: {error}"),
        }
        waits_since = Instant::now();
        number = next;
        store.flushed[writer].store(number, Ordering::SeqCst);
        // Those of the last round are there, or those of this one.
        let mut head = [0; 8];
        head.copy_from_slice(&found[..8]);
        let read = u64::from_le_bytes(head);
        assert!(
            read + RECORDS > number && read <= number && found == record(writer, read),
            "writer {writer} has read {read} after {number}"
        );
    }
}
