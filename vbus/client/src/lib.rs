// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process as a client of a virtual bus.
//!
//! [`Control`] speaks to vbusd: administrators use it, too. [`Client`] is on a bus, and exchanges
//! packets with one device; [`Disk`] reads and writes a disk. The data path of a client (`send`,
//! `receive`, `flush`) makes no host call but a notification that the device asked for, allocates
//! nothing, and ends after a bounded number of steps. `vbus/c` has the same for C.

#![deny(unsafe_code)]

mod client;
mod control;
mod disk;
mod events;
#[expect(unsafe_code, reason = "words in mapped memory")]
mod lending;
mod link;
#[expect(unsafe_code, reason = "mapped memory")]
mod memory;
mod opening;
mod pairs;
#[expect(unsafe_code, reason = "rings in mapped memory")]
mod queues;
mod requests;

pub use client::{Client, Statistics, Terms, Woken};
pub use control::{Control, Error};
pub use disk::Disk;
pub use link::{Options, may_come_back};
pub use paravane_vbus as bus;
pub use paravane_vbus_protocol as protocol;
pub use queues::Put;
pub use requests::{Finished, PART, Requests, SECTOR, Wish};
