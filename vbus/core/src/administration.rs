// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an administrator does: buses, devices, links, attributes.
//!
//! The verbs are those of the original's configfs: make and remove a bus; make a device of a class,
//! and remove it; link a device to a bus, which makes an interface there, and unlink it. A bus or
//! device that is in use cannot be removed.

use crate::access::Access;
use crate::client::{Member, MemberId};
use crate::device::{Attribute, Class, ConnectionId, Device};
use crate::error::{Error, Kind};
use crate::ethernet::{KICK, TYPE, no_kick};
use crate::events::Event;
use crate::limits;
use crate::name::Name;
use crate::polls::{Polling, Polls, Thread};
use crate::turns::Turns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// All classes, devices, buses and clients.
#[derive(Default)]
pub struct Vbus {
    pub(crate) classes: Vec<Box<dyn Class>>,
    pub(crate) devices: BTreeMap<Name, DeviceEntry>,
    pub(crate) buses: BTreeMap<Name, Bus>,
    pub(crate) members: BTreeMap<MemberId, Member>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    /// Connections that have ended, and whose clients may still read what was lent to them.
    pub(crate) left: BTreeMap<ConnectionId, (MemberId, Name)>,
    pub(crate) turns: Turns,
    /// Room for those of a round that go on.
    pub(crate) going_on: Vec<ConnectionId>,
    /// What the thread has done.
    pub(crate) thread: Thread,
    /// All that the last round did was to poll.
    pub(crate) only_polls: bool,
    /// An event was added since the connector asked last.
    pub(crate) news: bool,
    pub(crate) last_member: u64,
    pub(crate) last_connection: u64,
}

pub(crate) struct DeviceEntry {
    pub class: &'static str,
    pub device: Box<dyn Device>,
    /// How long the device looks for work by itself, at most, before it wants to be notified again.
    pub poll: Duration,
    /// What that led to.
    pub polls: Polls,
    /// Connections that were reset because their clients broke the protocol.
    pub broken: u64,
}

/// Name of the attribute with [`DeviceEntry::poll`], which every device has.
pub(crate) const POLL: &str = "poll-us";
/// Its value at first.
const POLL_FIRST: Duration = Duration::from_micros(40);

/// Reads an attribute that is a short time.
///
/// # Errors
/// It is no number of microseconds, or too many.
pub fn microseconds(attribute: &str, value: &str) -> Result<u32, Error> {
    let most = limits::MICROSECONDS;
    let number = value.parse().ok().filter(|&number| number <= most);
    number.ok_or_else(|| {
        let text = format!("{value:.40?} is no value of {attribute}: 0 to {most} are");
        Error::new(Kind::Invalid, text)
    })
}

impl DeviceEntry {
    fn set(&mut self, attribute: &str, value: &str) -> Result<(), Error> {
        if value.len() > limits::VALUE {
            return Err(Error::limit("bytes of a value", limits::VALUE));
        }
        let interface = self.device.interface();
        if attribute == KICK && interface != TYPE {
            return Err(no_kick(interface));
        }
        if attribute != POLL {
            return self.device.set(attribute, value);
        }
        self.poll = Duration::from_micros(microseconds(attribute, value)?.into());
        self.device.set_poll(self.poll);
        Ok(())
    }

    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        let mut all = vec![Attribute::setting(POLL, self.poll.as_micros().to_string())];
        all.extend(self.device.attributes());
        if self.device.adapts() {
            all.extend(self.polls.attributes());
        }
        all.push(Attribute::figure("resets-broken", self.broken));
        all
    }
}

#[derive(Debug, Default)]
pub(crate) struct Bus {
    pub access: Access,
    /// By number.
    pub interfaces: BTreeMap<u32, Name>,
    pub last_interface: u32,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub member: MemberId,
    pub bus: Name,
    pub interface: u32,
    pub device: Name,
    /// It is in `turns`.
    pub queued: bool,
    pub priority: u8,
    /// When its device polls.
    pub polling: Polling,
}

/// A bus, for administrators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusInfo {
    /// Its name.
    pub name: String,
    /// Number of each interface, and its device.
    pub interfaces: BTreeMap<u32, String>,
    /// Processes of its clients.
    pub members: Vec<u64>,
    /// The users and groups that may join besides the administrator.
    pub access: Access,
}

/// A device, for administrators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// What a driver must speak.
    pub interface: String,
    /// Buses that it is linked to.
    pub buses: Vec<String>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

impl fmt::Debug for Vbus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vbus")
            .field("devices", &self.devices.keys())
            .field("buses", &self.buses)
            .field("members", &self.members)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl Vbus {
    /// With these classes, and nothing else.
    #[must_use]
    pub fn new(classes: Vec<Box<dyn Class>>) -> Self {
        Vbus {
            classes,
            ..Vbus::default()
        }
    }

    /// Names of the classes.
    #[must_use]
    pub fn classes(&self) -> Vec<&'static str> {
        self.classes.iter().map(|class| class.name()).collect()
    }

    /// Makes a bus.
    ///
    /// # Errors
    /// There is one of this name, or there are too many.
    pub fn create_bus(&mut self, name: &Name) -> Result<(), Error> {
        if self.buses.contains_key(name) {
            return Err(Error::exists("bus", name.as_str()));
        }
        if self.buses.len() == limits::BUSES {
            return Err(Error::limit("buses", limits::BUSES));
        }
        self.buses.insert(name.clone(), Bus::default());
        Ok(())
    }

    /// Removes a bus without interfaces. Its clients learn of it, and are on no bus then.
    ///
    /// # Errors
    /// There is none of this name, or a device is linked to it.
    pub fn remove_bus(&mut self, name: &Name) -> Result<(), Error> {
        let bus = self.bus(name)?;
        if let Some(device) = bus.interfaces.values().next() {
            let text = format!("device {device} is linked to bus {name}: unlink it first");
            return Err(Error::new(Kind::Busy, text));
        }
        self.buses.remove(name);
        self.expel(|member| member.is_on(name));
        Ok(())
    }

    /// Sets who may join a bus. A client that no longer may must leave, unless it is one of the
    /// administrator's.
    ///
    /// # Errors
    /// There is no such bus, or the lists are too long.
    pub fn set_access(&mut self, name: &Name, access: Access) -> Result<(), Error> {
        access.check()?;
        let bus = self.buses.get_mut(name);
        bus.ok_or_else(|| Error::not_found("bus", name.as_str()))?
            .access = access.clone();
        self.expel(|member| {
            member.is_on(name) && !member.administrator && !access.admits(&member.who)
        });
        Ok(())
    }

    /// Makes a device of a class, and sets attributes.
    ///
    /// # Errors
    /// There is no such class, a device of this name, too many devices, or an attribute that cannot
    /// be set so. Nothing is made then.
    pub fn create_device(
        &mut self,
        name: &Name,
        class: &str,
        attributes: &[(String, String)],
    ) -> Result<(), Error> {
        let Some(known) = self.classes.iter().find(|known| known.name() == class) else {
            let text = format!(
                "there is no device class {class:.40}: {} are",
                self.classes().join(", ")
            );
            return Err(Error::new(Kind::NotFound, text));
        };
        let (class, device) = (known.name(), known.create(name));
        self.add_device(name, class, device, attributes)
    }

    /// Adds a device that the connector has made, and sets attributes.
    ///
    /// # Errors
    /// There is a device of this name, there are too many, or an attribute cannot be set so.
    /// Nothing is added then.
    pub fn add_device(
        &mut self,
        name: &Name,
        class: &'static str,
        device: Box<dyn Device>,
        attributes: &[(String, String)],
    ) -> Result<(), Error> {
        if self.devices.contains_key(name) {
            return Err(Error::exists("device", name.as_str()));
        }
        if self.devices.len() == limits::DEVICES {
            return Err(Error::limit("devices", limits::DEVICES));
        }
        let mut entry = DeviceEntry {
            class,
            device,
            poll: POLL_FIRST,
            polls: Polls::default(),
            broken: 0,
        };
        entry.device.set_poll(entry.poll);
        for (attribute, value) in attributes {
            entry.set(attribute, value)?;
        }
        self.devices.insert(name.clone(), entry);
        Ok(())
    }

    /// Removes a device that is linked to no bus.
    ///
    /// # Errors
    /// There is none of this name, or it is linked to a bus.
    pub fn remove_device(&mut self, name: &Name) -> Result<(), Error> {
        self.device(name)?;
        if let Some(bus) = self.buses_of(name).next() {
            let text = format!("device {name} is linked to bus {bus}: unlink it first");
            return Err(Error::new(Kind::Busy, text));
        }
        self.devices.remove(name);
        Ok(())
    }

    /// Sets an attribute of a device.
    ///
    /// # Errors
    /// There is no such device or attribute, or the value is not possible.
    pub fn set_attribute(
        &mut self,
        name: &Name,
        attribute: &str,
        value: &str,
    ) -> Result<(), Error> {
        self.device_mut(name)?.set(attribute, value)?;
        self.stir(name);
        Ok(())
    }

    /// Links a device to a bus. Returns the number of the interface. Clients of the bus see it.
    ///
    /// # Errors
    /// There is no such bus or device, they are linked already, the bus is full, or the device
    /// refuses it.
    pub fn link(&mut self, bus: &Name, device: &Name) -> Result<u32, Error> {
        let entry = self.device(device)?;
        let interface = entry.device.interface();
        let found = self.bus(bus)?;
        if found.interfaces.values().any(|known| known == device) {
            let text = format!("device {device} is linked to bus {bus} already");
            return Err(Error::new(Kind::Exists, text));
        }
        if found.interfaces.len() == limits::INTERFACES {
            return Err(Error::limit("devices of a bus", limits::INTERFACES));
        }
        // A bus outlives no 2^32 links.
        let id = found.last_interface.wrapping_add(1);
        if let Some(found) = self.buses.get_mut(bus) {
            found.last_interface = id;
            found.interfaces.insert(id, device.clone());
        }
        self.announce(
            bus,
            &Event::Added {
                id,
                name: device.to_string(),
                interface: interface.to_string(),
            },
        );
        Ok(id)
    }

    /// Unlinks a device from a bus, also while clients use it: their connections are closed.
    ///
    /// # Errors
    /// There is no such bus, or the device is not linked to it.
    pub fn unlink(&mut self, bus: &Name, device: &Name) -> Result<(), Error> {
        let interfaces = &self.bus(bus)?.interfaces;
        let id = interfaces
            .iter()
            .find_map(|(&id, name)| (name == device).then_some(id));
        let Some(id) = id else {
            let text = format!("device {device} is not linked to bus {bus}");
            return Err(Error::new(Kind::NotFound, text));
        };
        self.close_where(
            |connection| connection.bus == *bus && connection.interface == id,
            "the device was unlinked",
        );
        if let Some(found) = self.buses.get_mut(bus) {
            found.interfaces.remove(&id);
        }
        self.announce(bus, &Event::Dropped { id });
        Ok(())
    }

    /// Resets a device: closes all connections to it. Returns how many there were.
    ///
    /// # Errors
    /// There is no such device.
    pub fn reset(&mut self, device: &Name) -> Result<usize, Error> {
        self.device(device)?;
        Ok(self.close_where(
            |connection| connection.device == *device,
            "the device was reset",
        ))
    }

    /// All buses.
    #[must_use]
    pub fn bus_infos(&self) -> Vec<BusInfo> {
        let info = |(name, bus): (&Name, &Bus)| BusInfo {
            name: name.to_string(),
            interfaces: bus
                .interfaces
                .iter()
                .map(|(&id, device)| (id, device.to_string()))
                .collect(),
            members: self
                .members
                .values()
                .filter(|member| member.is_on(name))
                .map(|member| member.who.process)
                .collect(),
            access: bus.access.clone(),
        };
        self.buses.iter().map(info).collect()
    }

    /// All devices.
    #[must_use]
    pub fn device_infos(&self) -> Vec<DeviceInfo> {
        let info = |(name, entry): (&Name, &DeviceEntry)| DeviceInfo {
            name: name.to_string(),
            class: entry.class.to_string(),
            interface: entry.device.interface().to_string(),
            buses: self.buses_of(name).map(ToString::to_string).collect(),
            attributes: entry.attributes(),
        };
        self.devices.iter().map(info).collect()
    }

    pub(crate) fn bus(&self, name: &Name) -> Result<&Bus, Error> {
        let bus = self.buses.get(name);
        bus.ok_or_else(|| Error::not_found("bus", name.as_str()))
    }

    pub(crate) fn device(&self, name: &Name) -> Result<&DeviceEntry, Error> {
        let device = self.devices.get(name);
        device.ok_or_else(|| Error::not_found("device", name.as_str()))
    }

    pub(crate) fn device_mut(&mut self, name: &Name) -> Result<&mut DeviceEntry, Error> {
        let device = self.devices.get_mut(name);
        device.ok_or_else(|| Error::not_found("device", name.as_str()))
    }

    fn buses_of<'a>(&'a self, device: &'a Name) -> impl Iterator<Item = &'a Name> {
        self.buses
            .iter()
            .filter(move |(_, bus)| bus.interfaces.values().any(|name| name == device))
            .map(|(name, _)| name)
    }

    fn announce(&mut self, bus: &Name, event: &Event) {
        self.news = true;
        for member in self.members.values_mut() {
            if member.is_on(bus) {
                member.events.push(event.clone());
            }
        }
    }
}
