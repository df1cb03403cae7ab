// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process as a client of a virtual bus.
//!
//! [`Control`] speaks to vbusd: administrators use it, too. [`Client`] is on a bus, and exchanges
//! packets with one device. Its data path (`send`, `receive`, `flush`) makes no host call but a
//! notification that the device asked for, allocates nothing, and ends after a bounded number of
//! steps. `vbus/c` has the same for C.

#![deny(unsafe_code)]

mod client;
mod control;
#[expect(unsafe_code, reason = "rings in mapped memory")]
mod queues;

pub use client::{Client, Options, Statistics, Woken};
pub use control::{Control, Error};
pub use paravane_vbus as bus;
pub use paravane_vbus_protocol as protocol;
