// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Follows a bus of vbusd that a machine takes whole: which devices are on it, and connections to
//! them.

use crate::card;
use crate::far::Far;
use crate::far_disk::FarDisk;
use crate::model::Model;
use paravane_devices::Waker;
use paravane_vbus::devices::block;
use paravane_vbus::{Event, Interface, Name};
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Control, Error};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Most devices of the bus that a guest sees: as many connections has its driver.
pub const DEVICES: usize = crate::bridge::CONNECTIONS;
/// Pause between two attempts to connect to devices that vbusd could not make work.
pub const PAUSE: Duration = Duration::from_millis(200);

/// A change of the bus.
#[derive(Debug)]
pub enum Change {
    /// There is another device, of this number on its bus.
    Added(u32, Name, Model),
    /// The device of this number has ended.
    Gone(u32),
}

/// A device to which the machine is to connect.
#[derive(Debug)]
struct Waiting {
    interface: Interface,
    /// vbusd could not make it work: a tap that is missing, a disk without a file.
    failed: bool,
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
    /// Those that it takes when there is room for them and vbusd can make them work.
    waiting: BTreeMap<u32, Waiting>,
    /// Those that it does not take.
    left: BTreeMap<u32, Interface>,
    /// When it last tried those that have failed.
    tried: Instant,
    /// The list of devices has to be looked at.
    stale: bool,
    told: bool,
    /// The log says that there is no room.
    told_full: bool,
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
            waiting: BTreeMap::new(),
            left: BTreeMap::new(),
            tried: Instant::now(),
            stale: true,
            told: false,
            told_full: false,
        };
        watch.follow()?;
        Ok((watch, receiver))
    }

    /// Becomes readable when something happens on the bus.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(Control::socket)
    }

    /// Checks the bus, and reports changes to the bridge. Returns whether nothing is left to try.
    pub fn look(&mut self, waker: &Waker) -> bool {
        match self.follow() {
            Ok(changed) => {
                if changed {
                    waker.wake();
                }
                self.told = false;
                self.waiting.is_empty() || self.is_full()
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

    /// Returns whether the bridge was notified.
    fn follow(&mut self) -> Result<bool, Error> {
        let mut control = match self.control.take() {
            Some(control) => control,
            None => {
                let mut control = Control::connect(&self.socket)?;
                let bus = self.bus.clone();
                control.ask(&Request::Join { bus })?;
                // Another vbusd may make them work.
                self.left.clear();
                self.stale = true;
                control
            }
        };
        let mut changed = false;
        while let Some(event) = control.event()? {
            match event {
                Event::Removed => return Err(Error::Lost("the machine was expelled".into())),
                Event::Closed { .. } | Event::Lends { .. } | Event::Withdrawn { .. } => {}
                Event::Added { .. } | Event::Dropped { .. } | Event::Lost => self.stale = true,
            }
        }
        if self.stale {
            let all = match control.ask(&Request::Interfaces)? {
                Reply::Interfaces(all) => all,
                other => return Err(Error::Protocol(format!("an unexpected answer: {other:?}"))),
            };
            changed = self.compare(all);
            self.stale = false;
        }
        self.control = Some(control);
        Ok(changed | self.take())
    }

    fn is_full(&self) -> bool {
        self.known.len() == DEVICES
    }

    /// Forgets the devices that are no longer in the list, and waits for those that are new.
    /// Returns whether the bridge was notified.
    fn compare(&mut self, all: Vec<Interface>) -> bool {
        let there = |interface: &Interface| all.contains(interface);
        let gone = self.known.extract_if(.., |_, known| !there(known));
        let gone: Vec<_> = gone.map(|(id, _)| id).collect();
        for &id in &gone {
            self.tell(Change::Gone(id));
        }
        self.waiting.retain(|_, known| there(&known.interface));
        self.left.retain(|_, known| there(known));
        for interface in all {
            let id = interface.id;
            if !self.known.contains_key(&id) && !self.left.contains_key(&id) {
                self.waiting.entry(id).or_insert(Waiting {
                    interface,
                    failed: false,
                });
            }
        }
        !gone.is_empty()
    }

    /// Connects to the devices that wait, as far as there is room and vbusd can make them work.
    /// Returns whether the bridge was notified.
    fn take(&mut self) -> bool {
        let again = self.tried.elapsed() >= PAUSE;
        if again {
            self.tried = Instant::now();
        }
        let due = |one: &Waiting| again || !one.failed;
        let due: Vec<u32> = self
            .waiting
            .iter()
            .filter_map(|(&id, one)| due(one).then_some(id))
            .collect();
        let mut changed = false;
        for id in due {
            if self.is_full() {
                if !std::mem::replace(&mut self.told_full, true) {
                    warn!(
                        "virtual bus {}: the machine takes {DEVICES} devices, and not those beyond",
                        self.bus
                    );
                }
                break;
            }
            if let Some(one) = self.waiting.remove(&id) {
                changed |= self.connect_to(id, one);
            }
        }
        self.told_full &= self.is_full();
        changed
    }

    /// Connects to a device. Returns whether it reported that to the bridge.
    fn connect_to(&mut self, id: u32, mut one: Waiting) -> bool {
        let (bus, name) = (&self.bus, &one.interface.name);
        match self.connect(&one.interface) {
            Ok(Some((name, model))) => {
                if one.failed {
                    info!("virtual bus {bus}: {name} works now");
                }
                self.known.insert(id, one.interface);
                self.tell(Change::Added(id, name, model));
                return true;
            }
            Ok(None) => {
                info!(
                    "virtual bus {bus}: {name} is for no machine: its type is {:.40}",
                    one.interface.interface
                );
                self.left.insert(id, one.interface);
            }
            // Until it is linked again, or vbusd is started again.
            Err(error @ (Error::Invalid(_) | Error::Protocol(_) | Error::Breach(_))) => {
                warn!("virtual bus {bus}: {name}: {error}");
                self.left.insert(id, one.interface);
            }
            // vbusd itself, too, may have ended: then the next look finds out.
            Err(error) => {
                if !std::mem::replace(&mut one.failed, true) {
                    warn!("virtual bus {bus}: {name}, which comes when it works: {error}");
                }
                self.waiting.insert(id, one);
            }
        }
        false
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
