// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that survives a restart: buses, devices with their attributes, links. Clients come
//! back by themselves.

use crate::access::Access;
use crate::administration::Vbus;
use crate::error::{Error, Kind};
use crate::name::Name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the format.
const VERSION: u32 = 1;

/// Everything that an administrator has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Version of the format: 1.
    pub version: u32,
    /// Devices by name.
    pub devices: BTreeMap<Name, DeviceConfiguration>,
    /// Buses by name.
    pub buses: BTreeMap<Name, BusConfiguration>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfiguration {
    /// Its class.
    pub class: String,
    /// Attributes that can be set.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// A bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusConfiguration {
    /// The users and groups that may join.
    #[serde(default)]
    pub access: Access,
    /// Interfaces by number.
    #[serde(default)]
    pub interfaces: BTreeMap<u32, Name>,
    /// The last number that was given to an interface.
    #[serde(default)]
    pub last_interface: u32,
}

impl Vbus {
    /// What survives a restart.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        let devices = self.devices.iter().map(|(name, entry)| {
            let writable = entry.attributes().into_iter().filter(|a| a.writable);
            let configuration = DeviceConfiguration {
                class: entry.class.to_string(),
                attributes: writable.map(|a| (a.name, a.value)).collect(),
            };
            (name.clone(), configuration)
        });
        let buses = self.buses.iter().map(|(name, bus)| {
            let configuration = BusConfiguration {
                access: bus.access.clone(),
                interfaces: bus.interfaces.clone(),
                last_interface: bus.last_interface,
            };
            (name.clone(), configuration)
        });
        Configuration {
            version: VERSION,
            devices: devices.collect(),
            buses: buses.collect(),
        }
    }

    /// Makes everything that the configuration has. `self` is new.
    ///
    /// # Errors
    /// The configuration makes no sense. `self` must not be used then.
    pub fn restore(&mut self, configuration: &Configuration) -> Result<(), Error> {
        if configuration.version != VERSION {
            let text = format!("version {} is not known", configuration.version);
            return Err(Error::new(Kind::Invalid, text));
        }
        for (name, device) in &configuration.devices {
            let attributes: Vec<_> = device.attributes.clone().into_iter().collect();
            self.create_device(name, &device.class, &attributes)?;
        }
        for (name, bus) in &configuration.buses {
            self.create_bus(name)?;
            self.set_access(name, bus.access.clone())?;
            for (&id, device) in &bus.interfaces {
                self.number_next(name, id)?;
                self.link(name, device)?;
            }
            self.number_next(name, bus.last_interface.wrapping_add(1))?;
        }
        Ok(())
    }

    /// The next interface of a bus gets this number.
    fn number_next(&mut self, bus: &Name, id: u32) -> Result<(), Error> {
        let entry = self.buses.get_mut(bus);
        let entry = entry.ok_or_else(|| Error::not_found("bus", bus.as_str()))?;
        if id <= entry.last_interface {
            let text = format!("bus {bus}: the numbers of its interfaces contradict each other");
            return Err(Error::new(Kind::Invalid, text));
        }
        entry.last_interface = id - 1;
        Ok(())
    }
}
