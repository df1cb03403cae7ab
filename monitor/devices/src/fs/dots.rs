// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entries `.` and `..` at the start of a folder's list.
//!
//! The crate leaves them out of a list, and programs expect them. The kernel looks neither up in a
//! shared folder: of both it needs only the name.

use fuse_backend_rs::api::filesystem::DirEntry;
use std::io;

/// The positions after the two. The host's own positions are small numbers or hashes. The hashes of
/// ext4 have 63 bits, so an entry has one of these positions with a probability of 2^-62.
const AFTER_SELF: u64 = 0x7fff_ffff_ffff_ff01;
const AFTER_PARENT: u64 = 0x7fff_ffff_ffff_ff02;
/// The inode number of `..`: `FUSE_UNKNOWN_INO`. The folder above may be out of the guest's sight.
const UNKNOWN: u64 = 0xffff_ffff;

/// Passes the entries that come at a position of a list or after it to `add`, until that has no
/// room and returns 0. `ino` gives the folder's own inode number. Returns where the host's list
/// continues, and whether one of the two was added; `None`: there was no room.
///
/// # Errors
/// That of `add` or `ino`.
pub fn list(
    position: u64,
    ino: impl FnOnce() -> io::Result<u64>,
    add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
) -> io::Result<Option<(u64, bool)>> {
    let (own, passed) = match position {
        0 => (ino()?, 0),
        AFTER_SELF => (UNKNOWN, 1),
        AFTER_PARENT => (UNKNOWN, 2),
        other => return Ok(Some((other, false))),
    };
    let both = [(".", own, AFTER_SELF), ("..", UNKNOWN, AFTER_PARENT)];
    for (name, ino, offset) in both.into_iter().skip(passed) {
        let entry = DirEntry {
            ino,
            offset,
            type_: u32::from(libc::DT_DIR),
            name: name.as_bytes(),
        };
        if add(entry)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some((0, passed < both.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(position: u64, room: usize) -> (Vec<String>, Option<(u64, bool)>, u64) {
        let (mut names, mut last) = (Vec::new(), position);
        let next = list(position, || Ok(5), &mut |entry| {
            if names.len() == room {
                return Ok(0);
            }
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            last = entry.offset;
            Ok(1)
        });
        (names, next.unwrap_or(None), last)
    }

    #[test]
    fn a_list_begins_with_both_whatever_the_room() {
        let (names, next, _) = listed(0, 2);
        assert_eq!((names.join(" ").as_str(), next), (". ..", Some((0, true))));
        let (names, next, after) = listed(0, 1);
        assert_eq!((names.join(" ").as_str(), next), (".", None));
        let (names, next, after) = listed(after, 1);
        assert_eq!((names.join(" ").as_str(), next), ("..", Some((0, true))));
        assert_eq!(listed(after, 1), (vec![], Some((0, false)), after));
        assert_eq!(listed(0, 0), (vec![], None, 0));
        assert_eq!(listed(77, 2), (vec![], Some((77, false)), 77));
    }
}
