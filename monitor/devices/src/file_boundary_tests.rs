// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers that begin in one file of guest memory and end in the next. A hypervisor maps the files
//! side by side, so devices take such buffers like any other.

use super::Device;
use super::fs::{Access, Fs};
use super::rng::Rng;
use super::test_guest::Guest;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::sync::Arc;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// Where the second file begins.
const NEXT: u64 = 1 << 30;

/// A guest whose memory is in two files.
fn guest(queues: usize) -> Guest {
    let sizes = [NEXT, 4 << 20];
    let size = |length: u64| usize::try_from(length).unwrap();
    let mapping = MmapRegion::new(size(sizes.iter().sum())).unwrap();
    let mut at = 0;
    for length in sizes.map(size) {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, length as u64).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: replaces a part of the mapping, which has not been used yet.
        unsafe {
            let place = mapping.as_ptr().add(at).cast();
            mmap(place, length, access, flags, &file, 0).unwrap();
        }
        at += length;
    }
    let mut guest = Guest::new(queues);
    let region = GuestRegionMmap::new(mapping, GuestAddress(0)).unwrap();
    guest.memory = Arc::new(GuestMemoryMmap::from_regions(vec![region]).unwrap());
    guest
}

/// With virtio-queue's writer.
#[test]
fn random_bytes() {
    let (mut guest, mut rng) = (guest(1), Rng::default());
    let mut driver = guest.driver(0);
    let head = guest.offer(0, &[(NEXT - 300, 600, true)]);
    rng.notified(&mut driver, 0).unwrap();
    assert_eq!(guest.used(0), [(head, 600)]);
    let bytes = guest.get(NEXT - 301, 602);
    assert_eq!((bytes[0], bytes[601]), (0, 0));
    for part in bytes[1..601].chunks(100) {
        assert!(part.iter().any(|&byte| byte != 0), "a part was left out");
    }
}

/// With fuse-backend-rs's reader and writer: FUSE_INIT, whose answer is a header of 16 bytes and 64
/// more.
#[test]
fn a_request_of_a_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let (mut guest, mut fs) = (
        guest(2),
        Fs::new(folder.path(), "x", Access::Write).unwrap(),
    );
    let mut driver = guest.driver(0);
    let mut request = Vec::new();
    for word in [56u32, 26, 77, 0, 0, 0, 0, 0, 0, 0, 7, 31, 1 << 17, 0] {
        request.extend(word.to_le_bytes());
    }
    let answer = NEXT - 20;
    // The request's version is in one file, the rest in the other.
    let at = NEXT - 44;
    guest.put(at, &request);
    let length = u32::try_from(request.len()).unwrap();
    // The answer overwrites the request and what follows it.
    let head = guest.offer(1, &[(at, length, false), (answer, 4096, true)]);
    fs.notified(&mut driver, 1).unwrap();
    assert_eq!(guest.used(1), [(head, 80)]);
    let words: Vec<u32> = guest
        .get(answer, 24)
        .chunks(4)
        .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
        .collect();
    assert_eq!(words, [80, 0, 77, 0, 7, words[5]]);
}
