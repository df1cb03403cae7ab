// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bridge between a machine and a virtual bus (docs/vbus.md).
//!
//! A machine has a bus of its own inside the monitor: a [`paravane_vbus::Vbus`] of which the guest
//! is the only client. The [`Bridge`] is its connector. It takes the guest's commands from a
//! register, maps the guest's rings, passes notifications to the devices of the bus, and
//! interrupts. All of that runs on the bridge's thread. All that the guest writes is hostile input.
//!
//! A device of that bus does the work. [`Stack`] is a card on the user-mode network, [`Wire`] one
//! on a tap or on passt; they are in the crate `paravane-vbus-cards`. [`Far`] is a card on the bus
//! of a vbusd, of which the monitor is a client: frames are copied between the guest's memory and
//! the monitor's, so vbusd never has memory of a guest. [`FarDisk`] is a disk there. [`Disk`] is a
//! disk, [`Console`] a console. A machine with several devices has a bridge for each, so each has a
//! thread and a policy. One bridge takes all devices of a bus of vbusd, which come and go while the
//! machine runs ([`Watch`]).

#![deny(unsafe_code)]

mod bridge;
mod command;
mod console;
#[cfg(test)]
mod console_tests;
mod disk;
mod far;
mod far_disk;
#[cfg(test)]
mod far_share_tests;
#[cfg(test)]
mod far_tests;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod fuzz_disk;
#[cfg(test)]
mod fuzz_far;
mod host;
#[cfg(test)]
mod hostile_vbusd;
mod interrupts;
mod join;
mod make;
#[expect(unsafe_code, reason = "rings in guest memory")]
mod memory;
mod model;
mod only_card;
#[cfg(test)]
mod pair_tests;
mod place;
mod planted;
mod shown;
mod suite;
#[cfg(test)]
#[expect(unsafe_code, reason = "rings in guest memory")]
mod test_guest;
#[cfg(test)]
mod tests;
mod watch;
#[cfg(test)]
mod watch_tests;
#[cfg(test)]
mod wire_tests;

use paravane_vbus_cards::{card, presence};

pub use bridge::Bridge;
pub use console::Console;
pub use disk::{Disk, Fault};
pub use far::Far;
pub use far_disk::FarDisk;
pub use only_card::only_card;
pub use paravane_vbus_cards::{Stack, Wire};
#[cfg(feature = "test-hooks")]
pub use planted::plant;
pub use suite::suite;
pub use watch::Watch;
