// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of odd sizes, with and without a gap, and what the host allocates for it.

use super::*;

#[test]
fn regions_cover_everything_once() {
    assert_eq!(region_size(256 << 20), 1 << 30);
    assert_eq!(region_size(16 << 30), 1 << 30);
    assert!((17u64 << 30).div_ceil(region_size(17 << 30)) <= ph::PHV_MAX_REGIONS);
    for large in [true, false] {
        cover_everything_once(&Ram::new((1 << 30) + (4 << 20), large).unwrap());
    }
}

fn cover_everything_once(ram: &Ram) {
    let regions: Vec<_> = ram.regions().iter().map(|r| (r.gpa, r.size)).collect();
    assert_eq!(regions, [(0, 1 << 30), (1 << 30, 4 << 20)]);
    // Bytes that are written across the boundary are in both files.
    ram.write((1 << 30) - 2, b"abcd").unwrap();
    let read = |region: usize, offset: u64| {
        let mut bytes = [0; 2];
        ram.regions()[region]
            .file
            .read_exact_at(&mut bytes, offset)
            .unwrap();
        bytes
    };
    assert_eq!((&read(0, (1 << 30) - 2), &read(1, 0)), (b"ab", b"cd"));
    assert!(ram.write((1 << 30) + (4 << 20) - 2, b"abcd").is_err());
}

#[test]
fn a_gap_is_left_out() {
    let gap = (32 << 20)..(1 << 32);
    let ram = Ram::around(48 << 20, gap.clone(), false).unwrap();
    let regions: Vec<_> = ram.regions().iter().map(|r| (r.gpa, r.size)).collect();
    assert_eq!(regions, [(0, 32 << 20), (1 << 32, 16 << 20)]);
    assert_eq!((ram.size(), ram.low()), (48 << 20, 32 << 20));
    ram.write(gap.end + 5, b"high").unwrap();
    ram.store(gap.start - 3, b"low").unwrap();
    let mut bytes = [0; 4];
    ram.regions()[1].file.read_exact_at(&mut bytes, 5).unwrap();
    assert_eq!(&bytes, b"high");
    for (gpa, bytes) in [(gap.start - 3, b"lower"), (gap.end - 1, b"below")] {
        assert!(ram.write(gpa, bytes).is_err() && ram.store(gpa, bytes).is_err());
    }
    // What fits below has no gap.
    let ram = Ram::around(32 << 20, gap, false).unwrap();
    assert_eq!((ram.regions().len(), ram.low()), (1, 32 << 20));
}

#[test]
fn what_is_written_is_read_and_nothing_outside() {
    for large in [true, false] {
        is_read_and_nothing_outside(&Ram::new(MIN_SIZE, large).unwrap());
    }
}

fn is_read_and_nothing_outside(ram: &Ram) {
    ram.write(MIN_SIZE - 3, b"abc").unwrap();
    // On a host without large pages this returns false and changes nothing either.
    let _ = ram.collapse(MIN_SIZE - LARGE_PAGE, LARGE_PAGE);
    let mut bytes = [0; 3];
    ram.read(MIN_SIZE - 3, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abc");
    ram.store(MIN_SIZE - 2, b"de").unwrap();
    ram.read(MIN_SIZE - 3, &mut bytes).unwrap();
    assert_eq!(&bytes, b"ade");
    assert!(ram.store(MIN_SIZE - 2, b"abc").is_err());
    assert!(ram.store(u64::MAX, b"abc").is_err());
    assert!(ram.write(MIN_SIZE - 2, b"abc").is_err());
    assert!(ram.write(u64::MAX, b"abc").is_err());
}

#[test]
fn a_first_touch_allocates_what_was_wanted() {
    let allocated = |ram: &Ram| {
        ram.write(5 * LARGE_PAGE + 4096, &[1]).unwrap();
        ram.regions[0].file.metadata().unwrap().blocks() * 512
    };
    // A host may have no user namespaces, no large pages, or no free one at this moment. Its
    // policy may give large pages to memfds, too.
    let large = Ram::new(MIN_SIZE, true).unwrap();
    let expected = match large.large_pages() {
        LargePages::All => [2 * LARGE_PAGE, LARGE_PAGE + 4096],
        LargePages::Image => [LARGE_PAGE + 4096; 2],
        LargePages::None => [2 * 4096; 2],
    };
    assert!(expected.contains(&allocated(&large)), "{expected:?}");
    let policy = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let policy = std::fs::read_to_string(policy).unwrap_or_default();
    if policy.is_empty() || policy.contains("[never]") {
        assert_eq!(allocated(&Ram::new(MIN_SIZE, false).unwrap()), 4096);
    }
}

#[test]
fn odd_sizes_are_refused() {
    for size in [0, 1 << 20, MIN_SIZE + 4096, u64::MAX] {
        assert!(Ram::new(size, true).is_err(), "{size:#x}");
    }
}
