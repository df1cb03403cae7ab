// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet frames with something unfinished in them: checksums to be completed, TCP segments that
//! are longer than the MTU. Clients of a device can agree on different capabilities. A device that
//! passes frames on finishes them for clients that cannot.

mod flow;
mod frame;
mod kick;
pub mod lent;
pub mod queues;
mod segment;

pub use flow::{Flow, Flows};
pub use frame::{Form, Frame, HEAD, Passed, Way};
pub(crate) use kick::none as no_kick;
pub use kick::{KICK, Kick};
pub use segment::complete;

use paravane_vbus_shm::{layout, word};

/// The type of interfaces that exchange Ethernet frames.
pub const TYPE: &str = "virtual-ethernet";

/// Calls.
pub mod call {
    use super::{layout, word};

    /// Begins to pass frames.
    pub const LINKUP: u32 = word(layout::VBUS_ETHERNET_LINKUP);
    /// Stops.
    pub const LINKDOWN: u32 = word(layout::VBUS_ETHERNET_LINKDOWN);
    /// The address.
    pub const MACQUERY: u32 = word(layout::VBUS_ETHERNET_MACQUERY);
    /// Agrees on capabilities.
    pub const NEGCAP: u32 = word(layout::VBUS_ETHERNET_NEGCAP);
    /// Gives the posted buffers back empty.
    pub const FLUSHRX: u32 = word(layout::VBUS_ETHERNET_FLUSHRX);
    /// The number of the event queue.
    pub const EVQQUERY: u32 = word(layout::VBUS_ETHERNET_EVQQUERY);
    /// Asks for an address.
    pub const MACSET: u32 = word(layout::VBUS_ETHERNET_MACSET);
    /// The MTU, and the largest one.
    pub const MTUQUERY: u32 = word(layout::VBUS_ETHERNET_MTUQUERY);
    /// Agrees on a number of pairs of queues.
    pub const PAIRS: u32 = word(layout::VBUS_ETHERNET_PAIRS);
    /// The attribute [`KICK`](super::KICK), in microseconds. Guests do not ask for it: only the
    /// networks of a bus of vbusd have the call.
    pub const KICK: u32 = 32;
}

/// Capability bits of group 0.
pub mod cap {
    use super::{layout, word};

    /// A frame may take several descriptors.
    pub const CHAIN: u32 = word(layout::VBUS_ETHERNET_CAP_CHAIN);
    /// Checksums may be incomplete.
    pub const CSUM: u32 = word(layout::VBUS_ETHERNET_CAP_CSUM);
    /// The client sends long TCP segments over IPv4.
    pub const TSO4: u32 = word(layout::VBUS_ETHERNET_CAP_TSO4);
    /// It takes them.
    pub const RX_TSO4: u32 = word(layout::VBUS_ETHERNET_CAP_RX_TSO4);
    /// As [`TSO4`], over IPv6.
    pub const TSO6: u32 = word(layout::VBUS_ETHERNET_CAP_TSO6);
    /// As [`RX_TSO4`], over IPv6.
    pub const RX_TSO6: u32 = word(layout::VBUS_ETHERNET_CAP_RX_TSO6);
    /// All of them.
    pub const ALL: u32 = CHAIN | CSUM | TSO4 | RX_TSO4 | TSO6 | RX_TSO6;
}

/// Flags of descriptors.
pub mod flag {
    use super::{Ip, layout, word};

    /// The frame goes on in the next descriptor.
    pub const MORE: u32 = word(layout::VBUS_ETHERNET_MORE);
    /// A checksum must be completed.
    pub const CSUM: u32 = word(layout::VBUS_ETHERNET_CSUM);
    /// A long TCP segment over IPv4.
    pub const TSO4: u32 = word(layout::VBUS_ETHERNET_TSO4);
    /// A long TCP segment over IPv6: both bits.
    pub const TSO6: u32 = word(layout::VBUS_ETHERNET_TSO6);

    const OFFSET: u32 = word(layout::VBUS_ETHERNET_OFFSET_SHIFT);
    const START: u32 = word(layout::VBUS_ETHERNET_START_SHIFT);
    const SIZE: u32 = word(layout::VBUS_ETHERNET_SIZE_SHIFT);

    /// The version of IP of the long TCP segment, if the frame is one.
    #[must_use]
    pub fn long_over(flags: u32) -> Option<Ip> {
        match flags & TSO6 {
            TSO6 => Some(Ip::V6),
            TSO4 => Some(Ip::V4),
            _ => None,
        }
    }

    /// Where the checksum begins to count, and where it is.
    pub(super) fn checksum(flags: u32) -> (usize, usize) {
        let start = (flags >> START & 0xff) as usize;
        (start, start + (flags >> OFFSET & 0xf) as usize * 2)
    }

    /// Bytes of each segment.
    pub(super) fn size(flags: u32) -> usize {
        (flags >> SIZE) as usize
    }

    /// Of the flags only those of a checksum.
    pub(super) fn short(flags: u32) -> u32 {
        flags & (CSUM | 0xf << OFFSET | 0xff << START)
    }

    /// Of the flags only those of a long segment.
    pub(super) fn long(flags: u32) -> u32 {
        short(flags) | flags & (TSO6 | u32::MAX << SIZE)
    }
}

/// The flag of a descriptor after which another one of the frame follows, for a client with these
/// capabilities; 0: a frame has one.
#[must_use]
pub fn more(caps: u32) -> u32 {
    if caps & cap::CHAIN == 0 {
        0
    } else {
        flag::MORE
    }
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// 4.
    V4,
    /// 6.
    V6,
}

/// What may be unfinished in frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// A checksum is incomplete.
    pub checksum: bool,
    /// A TCP segment over IPv4 is as long as several. Not without the first.
    pub long4: bool,
    /// A TCP segment over IPv6 is as long as several. Not without the first.
    pub long6: bool,
}

impl Unfinished {
    /// In frames that a client with these capabilities sends.
    #[must_use]
    pub fn sent(caps: u32) -> Self {
        Unfinished::by(caps, cap::CSUM, [cap::TSO4, cap::TSO6])
    }

    /// In frames that it takes.
    #[must_use]
    pub fn received(caps: u32) -> Self {
        let all = cap::CHAIN | cap::CSUM;
        Unfinished::by(caps, all, [cap::RX_TSO4, cap::RX_TSO6])
    }

    /// Whether it may be a TCP segment over this that is as long as several.
    #[must_use]
    pub fn has_long(self, ip: Ip) -> bool {
        match ip {
            Ip::V4 => self.long4,
            Ip::V6 => self.long6,
        }
    }

    fn by(caps: u32, all: u32, long: [u32; 2]) -> Self {
        let [long4, long6] = long.map(|long| caps & (all | long) == all | long);
        Unfinished {
            checksum: caps & cap::CSUM != 0,
            long4,
            long6,
        }
    }
}
