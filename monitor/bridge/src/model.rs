// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices that a bridge can have.

use crate::console::Console;
use crate::disk::Disk;
use crate::far::Far;
use crate::far_disk::FarDisk;
use crate::host;
use crate::join::Joiner;
use crate::presence::Presence;
use paravane_devices::Waker;
use paravane_vbus::Device;
use paravane_vbus_cards::{Stack, Wire};
use std::fmt;
use std::sync::Arc;

/// How long a device looks for work by itself, in microseconds.
const POLL_STACK: &str = "60";
const POLL_FAR: &str = "30";
const POLL_WIRE: &str = "60";
const POLL_DISK: &str = "0";
const POLL_CONSOLE: &str = "0";
const POLL_PLAIN: &str = "0";

/// A device that is not on the bus yet.
pub enum Model {
    Stack(Box<Stack>),
    Far(Box<Far>),
    FarDisk(Box<FarDisk>),
    Wire(Box<Wire>),
    Disk(Box<Disk>),
    Console(Box<Console>),
    /// A device of `vbus/core`, and the name of its class.
    Plain(&'static str, Box<dyn Device>),
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Model::Stack(_) => "venet-user",
            Model::Far(_) => "venet-bus",
            Model::FarDisk(_) => "vblk-bus",
            Model::Wire(card) => card.class(),
            Model::Disk(_) => "vblk",
            Model::Console(_) => "vconsole",
            Model::Plain(class, _) => class,
        })
    }
}

impl Model {
    /// Whether the device is to be seen; `None`: always.
    pub fn presence(&self) -> Option<Arc<Presence>> {
        match self {
            Model::Stack(_) | Model::Console(_) | Model::Plain(..) => None,
            Model::Far(card) => Some(card.presence()),
            Model::FarDisk(disk) => Some(disk.presence()),
            Model::Wire(card) => Some(card.presence()),
            Model::Disk(disk) => Some(disk.presence()),
        }
    }

    /// Whether it is a device of another bus, which needs a [`Joiner`].
    pub fn is_far(&self) -> bool {
        matches!(self, Model::Far(_) | Model::FarDisk(_))
    }

    /// The name of its class, the device with the way to its bridge, and how long it looks for
    /// work. `joiner` is for devices of another bus.
    pub fn start(
        self,
        waker: &Waker,
        joiner: Option<&Joiner>,
    ) -> (&'static str, Box<dyn Device>, &'static str) {
        match self {
            Model::Stack(mut card) => {
                card.base.start(&host::waker(waker));
                ("venet-user", card, POLL_STACK)
            }
            Model::Far(mut card) => {
                if let Some(joiner) = joiner {
                    card.start(waker, joiner);
                }
                ("venet-bus", card, POLL_FAR)
            }
            Model::FarDisk(mut disk) => {
                if let Some(joiner) = joiner {
                    disk.start(waker, joiner);
                }
                ("vblk-bus", disk, POLL_DISK)
            }
            Model::Wire(mut card) => {
                card.base.start(&host::waker(waker));
                (card.class(), card, POLL_WIRE)
            }
            Model::Disk(mut disk) => {
                disk.start(waker);
                ("vblk", disk, POLL_DISK)
            }
            Model::Console(mut console) => {
                console.start(waker);
                ("vconsole", console, POLL_CONSOLE)
            }
            Model::Plain(class, device) => (class, device, POLL_PLAIN),
        }
    }
}
