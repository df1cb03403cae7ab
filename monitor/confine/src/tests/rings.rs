// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread has a ring of io_uring, and no other one.

use super::*;

const WITH_RING: &str = "vbusd-disks-uring";
/// `IORING_ENTER_GETEVENTS`, with `IORING_ENTER_REGISTERED_RING`.
const WAIT: u64 = 1;
const NUMBERED: u64 = 1 << 4;
/// `IORING_REGISTER_FILES_UPDATE`, with `IORING_REGISTER_USE_REGISTERED_RING`.
const UPDATE: u64 = 6;
const BY_NUMBER: u64 = 1 << 31;

#[test]
fn a_ring_is_one_thread_s_and_does_not_change() {
    let enter = libc::SYS_io_uring_enter;
    let register = libc::SYS_io_uring_register;
    for (name, filter) in filters() {
        let own = if name == WITH_RING {
            Fate::Made
        } else {
            Fate::Died
        };
        for (call, args) in [
            (enter, [0, 1, 1, WAIT | NUMBERED, 0, 0]),
            (register, [0, UPDATE | BY_NUMBER, 0, 0, 0, 0]),
        ] {
            assert_eq!(fate(&filter, call, args), own, "{name}: {call}");
        }
        let mut others = vec![
            (libc::SYS_io_uring_setup, [8, 0, 0, 0, 0, 0]),
            // Another ring, or one by a descriptor.
            (enter, [1, 1, 1, WAIT | NUMBERED, 0, 0]),
            (enter, [0, 1, 1, WAIT, 0, 0]),
            (enter, [0, 1, 1, 0, 0, 0]),
            // Wakes a thread of the kernel; has more arguments in memory.
            (enter, [0, 1, 1, WAIT | NUMBERED | 2, 0, 0]),
            (enter, [0, 1, 1, WAIT | NUMBERED | 8, 0, 0]),
            // A signal mask.
            (enter, [0, 1, 1, WAIT | NUMBERED, 4096, 8]),
            (register, [1, UPDATE | BY_NUMBER, 0, 0, 0, 0]),
            (register, [0, UPDATE, 0, 0, 0, 0]),
            (register, [u64::MAX, 17, 0, 0, 0, 0]),
        ];
        let changes = (0..40).filter(|&change| change != UPDATE);
        others.extend(changes.map(|change| (register, [0, change | BY_NUMBER, 0, 0, 0, 0])));
        for (call, args) in others {
            assert_eq!(
                fate(&filter, call, args),
                Fate::Died,
                "{name}: {call} {args:x?}"
            );
        }
    }
}

/// Besides its ring, the thread may read data that is in memory, and release locks of files.
#[test]
fn a_thread_with_a_ring_waits_there() {
    let filter = &filters()[WITH_RING];
    let bad = u64::MAX;
    for (call, args, expected) in [
        (libc::SYS_preadv2, [bad, 0, 0, 0, 0, 8], Fate::Made),
        (libc::SYS_preadv2, [bad, 0, 0, 0, 0, 0], Fate::Died),
        (libc::SYS_flock, [bad, 8, 0, 0, 0, 0], Fate::Made),
        (libc::SYS_flock, [bad, 6, 0, 0, 0, 0], Fate::Died),
        (libc::SYS_pread64, [bad, 0, 0, 0, 0, 0], Fate::Made),
        (libc::SYS_read, [bad, 0, 0, 0, 0, 0], Fate::Died),
    ] {
        assert_eq!(fate(filter, call, args), expected, "{call} {args:x?}");
    }
}
