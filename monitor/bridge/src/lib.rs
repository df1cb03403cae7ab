// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bridge between a machine and a virtual bus (docs/vbus.md).
//!
//! A machine has a bus of its own inside the monitor: a [`paravane_vbus::Vbus`] of which the guest
//! is the only client. The [`Bridge`] is its connector. It takes the guest's commands from a
//! register, maps the guest's rings, passes notifications to the devices of the bus, and
//! interrupts. All of that runs on the bridge's thread. What the guest writes is hostile input.
//!
//! A device of that bus does the work. [`Stack`] is a card on the user-mode network, [`Wire`] one on
//! a tap or on passt. [`Far`] is a card on the bus of a vbusd, of which the monitor is a client: frames are
//! copied between the guest's memory and the monitor's, so vbusd never has memory of a guest.
//! [`FarDisk`] is a disk there. [`Disk`] is a disk, [`Console`] a console. A machine with several
//! devices has a bridge for each, so each has a thread and a policy. One bridge takes all devices
//! of a bus of vbusd, which come and go while the machine runs ([`Watch`]).

#![deny(unsafe_code)]

mod alarm;
mod bridge;
mod card;
mod command;
mod console;
#[cfg(test)]
mod console_tests;
mod disk;
mod far;
mod far_disk;
mod flow;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod fuzz_disk;
mod interrupts;
mod join;
mod looks;
mod make;
#[expect(unsafe_code, reason = "rings in guest memory")]
mod memory;
mod model;
mod offload;
mod pair;
#[cfg(test)]
mod pair_tests;
mod place;
mod planted;
mod presence;
mod shown;
mod stack;
mod suite;
#[cfg(test)]
#[expect(unsafe_code, reason = "rings in guest memory")]
mod test_guest;
#[cfg(test)]
mod tests;
mod watch;
mod wire;
#[cfg(test)]
mod wire_tests;

pub use bridge::Bridge;
pub use console::Console;
pub use disk::{Disk, Fault};
pub use far::Far;
pub use far_disk::FarDisk;
#[cfg(feature = "test-hooks")]
pub use planted::plant;
pub use stack::Stack;
pub use suite::suite;
pub use watch::Watch;
pub use wire::Wire;
