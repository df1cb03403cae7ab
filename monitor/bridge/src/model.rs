// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices that a bridge can have.

use crate::console::Console;
use crate::disk::Disk;
use crate::far::Far;
use crate::stack::Stack;
use crate::tap::Tap;
use paravane_devices::Waker;
use paravane_vbus::Device;

/// How long a device looks for work by itself, in microseconds.
const POLL_STACK: &str = "60";
const POLL_FAR: &str = "30";
const POLL_TAP: &str = "0";
const POLL_DISK: &str = "0";
const POLL_CONSOLE: &str = "0";

/// A device that is not on the bus yet.
pub enum Model {
    Stack(Box<Stack>),
    Far(Box<Far>),
    Tap(Box<Tap>),
    Disk(Box<Disk>),
    Console(Box<Console>),
}

impl Model {
    /// The name of its class, the device with the way to its bridge, and how long it looks for
    /// work.
    pub fn start(
        self,
        waker: &Waker,
    ) -> anyhow::Result<(&'static str, Box<dyn Device>, &'static str)> {
        Ok(match self {
            Model::Stack(mut card) => {
                card.start(waker);
                ("venet-user", card, POLL_STACK)
            }
            Model::Far(mut card) => {
                card.start(waker)?;
                ("venet-bus", card, POLL_FAR)
            }
            Model::Tap(mut card) => {
                card.start(waker);
                ("venet-tap", card, POLL_TAP)
            }
            Model::Disk(mut disk) => {
                disk.start(waker);
                ("vblk", disk, POLL_DISK)
            }
            Model::Console(mut console) => {
                console.start(waker);
                ("vconsole", console, POLL_CONSOLE)
            }
        })
    }
}
