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

/// How long a card looks for work by itself, in microseconds. Other devices do not.
const POLL_STACK: u32 = 60;
pub const POLL_FAR: u32 = 30;
const POLL_WIRE: u32 = 60;

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
    /// Whether the guest sees the device; `None`: always.
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

    /// How long it looks for work by itself, in microseconds, unless it is set otherwise; `None`:
    /// it is no card, and does not look.
    pub fn poll(&self) -> Option<u32> {
        match self {
            Model::Stack(_) => Some(POLL_STACK),
            Model::Far(_) => Some(POLL_FAR),
            Model::Wire(_) => Some(POLL_WIRE),
            Model::FarDisk(_) | Model::Disk(_) | Model::Console(_) | Model::Plain(..) => None,
        }
    }

    /// The name of its class, and the device with the way to its bridge. `joiner` is for devices of
    /// another bus.
    pub fn start(self, waker: &Waker, joiner: Option<&Joiner>) -> (&'static str, Box<dyn Device>) {
        match self {
            Model::Stack(mut card) => {
                card.base.start(&host::waker(waker));
                ("venet-user", card)
            }
            Model::Far(mut card) => {
                if let Some(joiner) = joiner {
                    card.start(waker, joiner);
                }
                ("venet-bus", card)
            }
            Model::FarDisk(mut disk) => {
                if let Some(joiner) = joiner {
                    disk.start(waker, joiner);
                }
                ("vblk-bus", disk)
            }
            Model::Wire(mut card) => {
                let on_interface = card.interface_index().is_some();
                let make = if on_interface {
                    host::waker_on_interface
                } else {
                    host::waker
                };
                card.start(&make(waker));
                (card.class(), card)
            }
            Model::Disk(mut disk) => {
                disk.start(waker);
                ("vblk", disk)
            }
            Model::Console(mut console) => {
                console.start(waker);
                ("vconsole", console)
            }
            Model::Plain(class, device) => (class, device),
        }
    }
}
