// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices on a machine's bus.

use crate::join::Joiner;
use crate::model::Model;
use crate::presence::Presence;
use crate::watch::Change;
use paravane_devices::Waker;
use paravane_vbus::{Error, Name, Vbus};
use std::sync::Arc;
use tracing::warn;

/// The attribute of every device that says how long it looks for work by itself.
pub const POLL: &str = "poll-us";

/// A device.
#[derive(Debug)]
struct Shown {
    /// Its number on the bus of vbusd that the machine takes whole, else 0.
    number: u32,
    name: Name,
    /// The number of the device to show (without: always 1), and the one that is shown; 0: none.
    presence: Option<Arc<Presence>>,
    present: u32,
    /// It is a card.
    card: bool,
}

/// The devices.
#[derive(Debug)]
pub struct Devices {
    bus: Name,
    /// How long cards look for work by themselves, in microseconds.
    poll: u32,
    all: Vec<Shown>,
}

impl Devices {
    /// None, on this bus.
    pub fn new(bus: &Name) -> Self {
        Devices {
            bus: bus.clone(),
            poll: 0,
            all: Vec::new(),
        }
    }

    /// Adds a device to the bus.
    ///
    /// # Errors
    /// There is one of this name.
    pub fn add(
        &mut self,
        vbus: &mut Vbus,
        (number, name, model): (u32, Name, Model),
        waker: &Waker,
        joiner: Option<&Joiner>,
    ) -> Result<(), Error> {
        let presence = model.presence();
        let card = model.poll().is_some();
        let poll = if card { self.poll } else { 0 };
        let (class, device) = model.start(waker, joiner);
        let attributes = [(POLL.to_string(), poll.to_string())];
        vbus.add_device(&name, class, device, &attributes)?;
        vbus.link(&self.bus, &name)?;
        self.all.push(Shown {
            number,
            name,
            presence,
            present: 1,
            card,
        });
        Ok(())
    }

    /// Cards look for work for `poll` microseconds from now on.
    pub fn set_poll(&mut self, vbus: &mut Vbus, poll: u32) {
        if std::mem::replace(&mut self.poll, poll) == poll {
            return;
        }
        for one in self.all.iter().filter(|one| one.card) {
            if let Err(error) = vbus.set_attribute(&one.name, POLL, &poll.to_string()) {
                warn!("virtual bus: {error}");
            }
        }
    }

    /// Carries out a change of the bus that the machine takes whole.
    pub fn change(&mut self, vbus: &mut Vbus, change: Change, waker: &Waker, joiner: &Joiner) {
        let done = match change {
            Change::Added(number, name, model) => {
                self.add(vbus, (number, name, model), waker, Some(joiner))
            }
            Change::Gone(number) => self.remove(vbus, number),
        };
        if let Err(error) = done {
            warn!("virtual bus: {error}");
        }
    }

    fn remove(&mut self, vbus: &mut Vbus, number: u32) -> Result<(), Error> {
        let Some(index) = self.all.iter().position(|one| one.number == number) else {
            return Ok(());
        };
        let gone = self.all.remove(index);
        if gone.present != 0 {
            vbus.unlink(&self.bus, &gone.name)?;
        }
        vbus.remove_device(&gone.name)
    }

    /// Something happened on the host of which the devices had requested a notification.
    pub fn woken(&self, vbus: &mut Vbus) {
        for one in &self.all {
            vbus.woken(&one.name);
        }
    }

    /// Follows the devices: one may have been taken from its place, or replaced.
    pub fn follow(&mut self, vbus: &mut Vbus) {
        for one in &mut self.all {
            let number = one
                .presence
                .as_ref()
                .map_or(1, |presence| presence.number());
            if number == one.present {
                continue;
            }
            let mut done = Ok(());
            if one.present != 0 {
                done = vbus.unlink(&self.bus, &one.name);
            }
            if number != 0 {
                done = done.and_then(|()| vbus.link(&self.bus, &one.name).map(|_| ()));
            }
            if let Err(error) = done {
                warn!("virtual bus: {error}");
            }
            one.present = number;
        }
    }
}
