// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Large reads and writes of files in a shared folder.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::worker::Worker;
use paravane_tests::{linux, source_root};
use std::fs;

const MIB: usize = 1 << 20;

/// A file's start, which says where in it each byte is.
fn pattern(length: usize) -> Vec<u8> {
    let words = (0u32..).flat_map(|word| word.wrapping_mul(0x9e37_79b1).to_le_bytes());
    words.take(length).collect()
}

/// Tests ends and beginnings within a page, holes, and pages that the guest has or the host
/// changes.
#[test]
fn what_is_written_is_read_in_any_size() {
    const ODD: usize = 3 * MIB + 777;
    let mut machine = Worker::in_volume("", |_| ());
    let whole = pattern(4 * ODD);
    fs::write(machine.shared().join("source"), &whole).unwrap();
    // The page in which the file ends is in the cache when more is appended.
    machine.does(&format!(
        "for i in 0 1 2 3; do \
           dd if=source bs={ODD} skip=$i count=1 status=none >part; \
           dd if=part of=copy bs={ODD} oflag=append conv=notrunc status=none; \
           tail -c 100 copy >/dev/null; \
         done; \
         cmp source copy"
    ));
    assert!(fs::read(machine.shared().join("copy")).unwrap() == whole);
    // Beyond the end: zeroes lie between.
    machine.does(&format!(
        "printf start >hole; cat hole >/dev/null; \
         dd if=source of=hole bs={ODD} seek=1 count=1 conv=notrunc status=none"
    ));
    let hole = fs::read(machine.shared().join("hole")).unwrap();
    let (front, back) = hole.split_at(ODD);
    assert!(front.starts_with(b"start\0") && front[5..].iter().all(|&byte| byte == 0));
    assert!(back == &whole[..ODD]);
    machine.does("dd if=hole bs=2M status=none | cmp - hole");
    // The guest handles files that became shorter or longer on the host.
    for length in [2 * MIB + 5, 7 * MIB + 9] {
        fs::write(machine.shared().join("copy"), &whole[..length]).unwrap();
        let count = "dd if=copy bs=5M status=none | wc -c";
        let said = (0..100).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            machine.tell(&format!("printf $({count})"))
        });
        let seen = said.map(|said| said.trim().to_string());
        assert!(
            seen.into_iter().any(|said| said == length.to_string()),
            "{length}"
        );
        machine.does(&format!(
            "dd if=copy bs=1M status=none | head -c {length} >/y; cmp /y copy"
        ));
    }
    machine.end();
}

/// Reads, writes, mappings and truncations of all sizes, in a random order that stays the same.
#[test]
fn a_file_is_what_was_done_to_it() {
    let mut machine = Worker::in_volume("", |_| ());
    let source = source_root().join("tests/guest/contents");
    linux::compile(&source, &machine.shared().join("contents"));
    for seed in 1..=2 {
        machine.does(&format!("./contents file {seed} 600"));
    }
    machine.end();
}
