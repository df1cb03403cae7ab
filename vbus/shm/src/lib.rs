// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! shm-signal and ioq: notifications and rings in memory that two sides share.
//!
//! The *north* owns the memory: a guest, or a client process. The *south* is the device. The layout
//! is made from `abi/vbus.toml` ([`layout`]); docs/vbus.md has the rules. The C side of a guest is
//! in `vbus/guest/`. The code here knows neither devices nor buses, makes no host call, allocates
//! nothing, and works with any kind of peer. [`signal`] says when a side must notify the other, and
//! the caller does it. [`ring`] moves descriptors, and the caller moves the bytes.
//!
//! A peer can write all of the memory at any time. Each side keeps its own indices, and what it
//! needs of a descriptor, in memory of its own. It reads a word of the peer once and checks it. A
//! violation of the rules is a [`Breach`]. The side remembers it, and does nothing more until there
//! is a new connection.
#![no_std]
#![deny(unsafe_code)]

#[cfg(not(loom))]
pub use core::sync::atomic;
#[cfg(loom)]
pub use loom::sync::atomic;

pub mod fault;
#[rustfmt::skip]
#[cfg_attr(not(loom), expect(unsafe_code, reason = "marks types that any bytes are valid for"))]
pub mod layout;
pub mod loans;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "takes memory that the caller has mapped")]
pub mod memory;
pub mod north;
pub mod ring;
pub mod signal;
pub mod south;

pub use ring::{Breach, Role};

/// A number of [`layout`] as one of 32 bits.
///
/// # Panics
/// It does not fit: at compile time, where it is used for constants.
#[must_use]
pub const fn word(value: u64) -> u32 {
    assert!(value <= 0xffff_ffff);
    #[expect(clippy::cast_possible_truncation, reason = "just asserted")]
    {
        value as u32
    }
}
