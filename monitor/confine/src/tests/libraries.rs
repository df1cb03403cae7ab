// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that a C library makes on its own.

use super::{Fate, fate, filters};

/// C libraries make calls of their own: for the stack of a thread, for the heap, and in its files.
#[test]
fn c_libraries_end_no_thread() {
    const GUARD_INSTALL: u64 = 102;
    const GUARD_REMOVE: u64 = 103;
    for (name, filter) in filters() {
        let fate = |number, args| fate(&filter, number, args);
        if fate(libc::SYS_mprotect, [0, 4096, 0, 0, 0, 0]) != Fate::Died {
            for advice in [GUARD_INSTALL, GUARD_REMOVE] {
                let made = fate(libc::SYS_madvise, [0, 4096, advice, 0, 0, 0]);
                assert_eq!(made, Fate::Made, "{name}: {advice}");
            }
        }
        if fate(libc::SYS_openat, [0; 6]) == Fate::Made {
            let none = u64::MAX;
            let read = fate(libc::SYS_read, [none, 0, 0, 0, 0, 0]);
            assert_ne!(read, Fate::Died, "{name}: opens files and cannot read them");
        }
    }
}
