// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an address in a machine's process belongs to.

use paravane_abi::process as ph;

/// Whose code a vCPU's thread executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A program of the guest.
    Program,
    /// The guest kernel's own image.
    Image,
    /// What the guest kernel has mapped for itself elsewhere: modules, generated code.
    Mapped,
    /// The layer.
    Layer,
    /// The host's kernel.
    Host,
    /// Memory in which nothing should be executed, such as the shared area.
    Other,
}

impl Place {
    /// All places, in the order of their discriminants.
    pub const ALL: [Place; 6] = [
        Place::Program,
        Place::Image,
        Place::Mapped,
        Place::Layer,
        Place::Host,
        Place::Other,
    ];

    /// The place of an address that was executed in the host's user mode, in a machine whose user
    /// range ends at `user_end`.
    pub fn of(address: u64, user_end: u64) -> Self {
        match address {
            ph::PHV_HOLE_START..ph::PHV_IMAGE_START => Place::Mapped,
            ph::PHV_IMAGE_START..ph::PHV_LAYER_BASE => Place::Image,
            ph::PHV_LAYER_BASE..ph::PHV_HOLE_END => Place::Layer,
            _ if (ph::PHV_USER_START..user_end).contains(&address) => Place::Program,
            // The direct map, and what follows it.
            _ if (user_end..ph::PHV_KERNEL_END).contains(&address) => Place::Mapped,
            _ => Place::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER_END: u64 = ph::PHV_DIRECT_MAP_WIDE;

    #[test]
    fn the_borders_of_each_range() {
        for (address, place) in [
            (0, Place::Other),
            (ph::PHV_USER_START - 1, Place::Other),
            (ph::PHV_USER_START, Place::Program),
            (ph::PHV_HOLE_START - 1, Place::Program),
            (ph::PHV_HOLE_START, Place::Mapped),
            (ph::PHV_IMAGE_START - 1, Place::Mapped),
            (ph::PHV_IMAGE_START, Place::Image),
            (ph::PHV_LAYER_BASE - 1, Place::Image),
            (ph::PHV_LAYER_BASE, Place::Layer),
            (ph::PHV_HOLE_END - 1, Place::Layer),
            (ph::PHV_HOLE_END, Place::Program),
            (USER_END - 1, Place::Program),
            (USER_END, Place::Mapped),
            (ph::PHV_KERNEL_END - 1, Place::Mapped),
            (ph::PHV_KERNEL_END, Place::Other),
            (ph::PHV_SHARED, Place::Other),
            (u64::MAX, Place::Other),
        ] {
            assert_eq!(Place::of(address, USER_END), place, "{address:#x}");
        }
    }

    #[test]
    fn each_place_has_its_own_number() {
        for (number, place) in Place::ALL.into_iter().enumerate() {
            assert_eq!(place as usize, number);
        }
    }
}
