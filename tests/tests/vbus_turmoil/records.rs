// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records that a guest writes to a disk, one in a sector, and the lines in which it says so.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Sectors of the disk in which records are kept, each with its number.
pub const RECORDS: u64 = 1024;

/// `keep` gives cards their addresses, whenever there are any: of Ethernet (a pattern), `=`, and of
/// IP. `put` writes its input to the disk, by a node of its own: the disk may go at any time, and a
/// file must not take the place of its node. `memory` says how much memory the kernel has, in KiB,
/// without names of files that it keeps as long as there is room: each pass leaves those that were
/// used since the one before.
pub const KEEP: &str = "keep() {
        while :; do
            for card in $(ls /sys/class/net | grep eth); do
                for pair in \"$@\"; do
                    own=${pair#*=}
                    case $(cat /sys/class/net/$card/address) in ${pair%=*}) ;; *) continue;; esac
                    ip addr show dev $card | grep -q \" $own/\" && continue
                    ip addr add $own/24 dev $card; ip link set $card up
                done
            done 2>/dev/null
            usleep 20000
        done
    }
    put() {
        numbers=$(cat /sys/block/vbd*/dev) || return 1
        rm -f /dev/own; mknod /dev/own b ${numbers%:*} ${numbers#*:} || return 1
        dd of=/dev/own \"$@\"
    } 2>/dev/null
    ";

/// The lines of a machine, as they come.
pub fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        while let Some(line) = next_line(&mut output) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The next line. `None` at the end: what a machine that was killed said of a line is not one.
fn next_line(output: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    output.read_line(&mut line).ok()?;
    line.strip_suffix('\n').map(ToString::to_string)
}

#[test]
fn a_part_of_a_line_is_not_taken_for_one() {
    let mut output = "kept 12\nkept 1".as_bytes();
    assert_eq!(next_line(&mut output).unwrap(), "kept 12");
    assert_eq!(next_line(&mut output), None);
}

/// The first of the records up to this one that is not on the disk.
pub fn lost_record(disk: &File, kept: u64) -> Option<u64> {
    (kept.saturating_sub(RECORDS) + 1..=kept).find(|number| {
        let mut sector = [0; 512];
        disk.read_exact_at(&mut sector, number % RECORDS * 512)
            .unwrap();
        let found: u64 = String::from_utf8_lossy(&sector).trim().parse().unwrap_or(0);
        // A later one may have taken its place.
        found < *number || !(found - number).is_multiple_of(RECORDS)
    })
}

#[test]
fn a_lost_record_is_found() {
    let disk = tempfile::tempfile().unwrap();
    disk.set_len(RECORDS * 512).unwrap();
    let write = |number: u64, place: u64| {
        let sector = format!("{number:<511}\n");
        disk.write_all_at(sector.as_bytes(), place % RECORDS * 512)
            .unwrap();
    };
    for number in 1..=RECORDS + 5 {
        write(number, number);
    }
    assert_eq!(lost_record(&disk, RECORDS + 5), None);
    // One that was written and not said to be kept.
    write(RECORDS + 6, RECORDS + 6);
    assert_eq!(lost_record(&disk, RECORDS + 5), None);
    // One that was said to be, and the one of the round before is there.
    write(4, 4);
    assert_eq!(lost_record(&disk, RECORDS + 5), Some(RECORDS + 4));
}
