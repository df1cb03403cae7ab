// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! Mistakes in copies of the C files. The files themselves have no place for faults: kernels
//! compile them.

/// A mistake.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its name, which ends the names of the copy's functions.
    pub name: &'static str,
    /// Texts of the C files that the copy has others for. Each is there exactly once.
    pub edits: &'static [(&'static str, &'static str)],
}

/// All of them.
pub const FAULTS: &[Fault] = &[
    // A descriptor is handed over, and its index stored, before its contents. In between the north
    // does nothing for a moment, as if it was interrupted.
    Fault {
        name: "owner_first",
        edits: &[
            (
                "\tposted->len = buffer->len;\n",
                "\tposted->len = buffer->len;\n\
                 \tstore(&north->ioq->valid_tail, north->tail + 1);\n\
                 \tif (north->role == VBUS_ROLE_TRANSMIT)\n\
                 \t\tstore(&north->ioq->inuse_tail, north->tail + 1);\n\
                 \t__atomic_store_n(&descriptor->owner, VBUS_SOUTH, __ATOMIC_RELEASE);\n\
                 \tfor (volatile int wait = 0; wait < 1000; wait++)\n\
                 \t\t;\n",
            ),
            (
                "\t__atomic_store_n(&descriptor->owner, VBUS_SOUTH, __ATOMIC_RELEASE);\n",
                "",
            ),
        ],
    },
    // The south is not told how far descriptors are posted.
    Fault {
        name: "index_missing",
        edits: &[("\tstore(&north->ioq->valid_tail, north->tail);\n", "")],
    },
    // Half of the descriptors are used.
    Fault {
        name: "wraps_early",
        edits: &[(
            "&north->descriptors[index & (north->count - 1)]",
            "&north->descriptors[index & (north->count - 1) >> 1]",
        )],
    },
    // A full ring accepts one more descriptor.
    Fault {
        name: "full_accepts",
        edits: &[(
            "north->tail - north->head == north->count",
            "north->tail - north->head > north->count",
        )],
    },
    // A descriptor comes back twice.
    Fault {
        name: "comes_twice",
        edits: &[("\tnorth->head++;\n", "")],
    },
    // What the south can write is taken for what was posted.
    Fault {
        name: "trusts_descriptor",
        edits: &[(
            "returned->cookie = posted->cookie;",
            "returned->cookie = descriptor->cookie;",
        )],
    },
    // The length of a received packet is not compared with that of the buffer.
    Fault {
        name: "length_unchecked",
        edits: &[("returned->used > posted->len", "0")],
    },
    // The other side is never notified.
    Fault {
        name: "never_notifies",
        edits: &[(
            "!__atomic_exchange_n(&side->pending, 1",
            "__atomic_exchange_n(&side->pending, 1",
        )],
    },
    // A side sleeps without a check for work that came in between.
    Fault {
        name: "rests_without_look",
        edits: &[(
            "\treturn vbus_side_enable(side);\n",
            "\tvbus_side_enable(side);\n\treturn 0;\n",
        )],
    },
];
