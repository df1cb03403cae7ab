// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Follows a bus of vbusd that a machine takes whole: which devices are on it, and connections to
//! them.

use crate::card;
use crate::far::Far;
use crate::far_disk::FarDisk;
use crate::model::Model;
use paravane_devices::Waker;
use paravane_vbus::devices::block;
use paravane_vbus::{Event, Interface, Kind, Name};
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Control, Error, may_come_back};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use tracing::{info, warn};

/// Most devices of the bus that a guest sees: as many connections has its driver.
pub const DEVICES: usize = crate::bridge::CONNECTIONS;

/// A change of the bus.
#[derive(Debug)]
pub enum Change {
    /// There is another device, of this number on its bus.
    Added(u32, Name, Model),
    /// The device of this number is gone.
    Gone(u32),
}

/// A bus.
#[derive(Debug)]
pub struct Watch {
    socket: PathBuf,
    bus: Name,
    /// While vbusd is there.
    control: Option<Control>,
    changes: Sender<Change>,
    /// The devices of which the machine knows, with their numbers.
    known: BTreeMap<u32, Interface>,
    /// Those that the machine does not take.
    left: BTreeMap<u32, Interface>,
    /// The list of devices has to be looked at.
    stale: bool,
    told: bool,
}

impl Watch {
    /// Joins a bus of the vbusd at `socket`, and connects to its devices.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses.
    pub fn join(socket: &Path, bus: &str) -> Result<(Self, Receiver<Change>), Error> {
        let (changes, receiver) = channel();
        let mut watch = Watch {
            socket: socket.to_path_buf(),
            bus: Name::new(bus)?,
            control: None,
            changes,
            known: BTreeMap::new(),
            left: BTreeMap::new(),
            stale: true,
            told: false,
        };
        watch.follow()?;
        Ok((watch, receiver))
    }

    /// Becomes readable when something happens on the bus.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(Control::socket)
    }

    /// Looks at the bus, and tells the bridge of changes. Returns whether nothing is left to try.
    pub fn look(&mut self, waker: &Waker) -> bool {
        match self.follow() {
            Ok(changed) => {
                if changed {
                    waker.wake();
                }
                self.told &= self.stale;
                !self.stale
            }
            Err(error) => {
                if !std::mem::replace(&mut self.told, true) {
                    warn!("virtual bus {}: {error}", self.bus);
                }
                (self.control, self.stale) = (None, true);
                false
            }
        }
    }

    /// Returns whether the bridge was told something.
    fn follow(&mut self) -> Result<bool, Error> {
        let mut control = match self.control.take() {
            Some(control) => control,
            None => {
                let mut control = Control::connect(&self.socket)?;
                let bus = self.bus.clone();
                control.ask(&Request::Join { bus })?;
                self.stale = true;
                control
            }
        };
        while let Some(event) = control.event()? {
            match event {
                Event::Removed => return Err(Error::Lost("the machine was expelled".into())),
                Event::Closed { .. } => {}
                Event::Added { .. } | Event::Dropped { .. } | Event::Lost => self.stale = true,
            }
        }
        if !self.stale {
            self.control = Some(control);
            return Ok(false);
        }
        let all = match control.ask(&Request::Interfaces)? {
            Reply::Interfaces(all) => all,
            other => return Err(Error::Protocol(format!("an unexpected answer: {other:?}"))),
        };
        self.control = Some(control);
        Ok(self.compare(&all))
    }

    /// Makes what the machine knows the same as this list.
    fn compare(&mut self, all: &[Interface]) -> bool {
        let mut changed = false;
        let there = |interface: &Interface| all.contains(interface);
        let gone = self.known.extract_if(.., |_, known| !there(known));
        for (id, _) in gone.collect::<Vec<_>>() {
            changed = true;
            self.tell(Change::Gone(id));
        }
        self.left.retain(|_, known| there(known));
        self.stale = false;
        for interface in all {
            if self.known.contains_key(&interface.id) || self.left.contains_key(&interface.id) {
                continue;
            }
            if self.known.len() == DEVICES {
                // Looked at again when another one goes.
                warn!(
                    "virtual bus {}: the machine takes {DEVICES} devices, and not {}",
                    self.bus, interface.name
                );
                break;
            }
            match self.connect(interface) {
                Ok(Some((name, model))) => {
                    changed = true;
                    self.known.insert(interface.id, interface.clone());
                    self.tell(Change::Added(interface.id, name, model));
                }
                Ok(None) => {
                    info!(
                        "virtual bus {}: {} is for no machine: its type is {:.40}",
                        self.bus, interface.name, interface.interface
                    );
                    self.left.insert(interface.id, interface.clone());
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.told, true) {
                        warn!("virtual bus {}: {}: {error}", self.bus, interface.name);
                    }
                    let missing =
                        matches!(&error, Error::Refused(why) if why.kind() == Kind::NotFound);
                    if may_come_back(&error) && !missing {
                        self.stale = true;
                    } else {
                        // Such as a disk without a file: until it is linked again.
                        self.left.insert(interface.id, interface.clone());
                    }
                }
            }
        }
        changed
    }

    fn connect(&self, interface: &Interface) -> Result<Option<(Name, Model)>, Error> {
        let name = Name::new(&interface.name)?;
        let (socket, bus) = (&self.socket, self.bus.as_str());
        let model = match interface.interface.as_str() {
            card::TYPE => Model::Far(Box::new(Far::join(socket, bus, name.as_str())?)),
            block::TYPE => Model::FarDisk(Box::new(FarDisk::join(socket, bus, name.as_str())?)),
            _ => return Ok(None),
        };
        Ok(Some((name, model)))
    }

    fn tell(&self, change: Change) {
        // The bridge lives as long as the machine.
        let _ = self.changes.send(change);
    }
}
