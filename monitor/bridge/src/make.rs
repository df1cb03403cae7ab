// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes bridges for each kind of device, and chooses the policies of their threads.

use crate::bridge::{Bridge, Whole, poll};
use crate::console::Console;
use crate::disk::Disk;
use crate::far::Far;
use crate::far_disk::FarDisk;
use crate::model::{Model, POLL_FAR};
use crate::watch::{Change, Watch};
use paravane_devices::Setting;
use paravane_vbus::Error;
use paravane_vbus::ethernet::{KICK, Kick};
use paravane_vbus_cards::{Stack, Wire};
use std::sync::mpsc::Receiver;

/// How long after one another a card's notifications come at least to be rare.
fn rare(at_first: Kick) -> Setting {
    Setting::new(KICK, at_first.microseconds())
}

impl Bridge {
    /// With a card on the user-mode network.
    ///
    /// # Errors
    /// None that can happen.
    pub fn stack(card: Stack) -> Result<Self, Error> {
        let way = card.base.way();
        // The thread does what that of virtio-net does, and has its policy.
        let mut bridge = Bridge::new("net-user", vec![Model::Stack(Box::new(card))])?;
        bridge.way = Some(way);
        Ok(bridge)
    }

    /// With a card on another bus.
    ///
    /// # Errors
    /// None that can happen.
    pub fn far(card: Far) -> Result<Self, Error> {
        let kick = card.kick();
        let mut bridge = Bridge::new("bus", vec![Model::Far(Box::new(card))])?;
        bridge.rare = Some(rare(kick));
        Ok(bridge)
    }

    /// With a disk on another bus.
    ///
    /// # Errors
    /// None that can happen.
    pub fn far_disk(disk: FarDisk) -> Result<Self, Error> {
        Bridge::new("bus", vec![Model::FarDisk(Box::new(disk))])
    }

    /// With all devices of another bus, as it changes.
    ///
    /// # Errors
    /// None that can happen.
    pub fn whole((watch, changes): (Watch, Receiver<Change>)) -> Result<Self, Error> {
        let mut bridge = Bridge::new("bus", Vec::new())?;
        bridge.poll = Some(poll(POLL_FAR));
        bridge.whole = Some(Whole {
            watch: Some(watch),
            changes,
        });
        Ok(bridge)
    }

    /// With a card on a tap, or on passt.
    ///
    /// # Errors
    /// None that can happen.
    pub fn wire(card: Wire) -> Result<Self, Error> {
        // The thread does what that of virtio-net does, and has its policy.
        let way = card.base.way();
        let mut bridge = Bridge::new("net", vec![Model::Wire(Box::new(card))])?;
        bridge.way = Some(way);
        bridge.rare = Some(rare(Kick::FIRST));
        Ok(bridge)
    }

    /// Lets the bridge's thread do all its work, and no vCPU.
    #[must_use]
    pub fn without_kicker_work(mut self) -> Self {
        self.rare = None;
        self
    }

    /// With a disk.
    ///
    /// # Errors
    /// None that can happen.
    pub fn disk(disk: Disk) -> Result<Self, Error> {
        let memory = disk.memory();
        // The thread does what that of virtio-blk does, and has its policy.
        let mut bridge = Bridge::new("disk", vec![Model::Disk(Box::new(disk))])?;
        bridge.memory = Some(memory);
        Ok(bridge)
    }

    /// With a console.
    ///
    /// # Errors
    /// None that can happen.
    pub fn console(console: Console) -> Result<Self, Error> {
        Bridge::new("vconsole", vec![Model::Console(Box::new(console))])
    }
}
