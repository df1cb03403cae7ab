// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file as a disk of a vbusd, which is there for the benchmark.

use super::super::vbus::{BUS, Daemon};
use anyhow::{Context, bail};
use paravane_vbus_client::bus::{Kind, Name};
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Control, Error};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The device, and its file in vbusd's folder of disks.
const DISK: &str = "disk";
/// How long a machine that has ended may still be connected.
const PATIENCE: Duration = Duration::from_secs(10);

/// vbusd with the disk.
pub struct Bus(Daemon);

impl Bus {
    /// Starts vbusd, with its files in this folder.
    pub fn start(folder: Option<&Path>) -> anyhow::Result<Self> {
        let bus = Bus(Daemon::start_in(folder)?);
        let mut control = bus.control()?;
        let device = Name::new(DISK)?;
        control.ask(&Request::CreateDevice {
            device: device.clone(),
            class: "vblk".to_string(),
            attributes: Vec::new(),
        })?;
        let bus_name = Name::new(BUS)?;
        control.ask(&Request::Link {
            bus: bus_name,
            device,
        })?;
        Ok(bus)
    }

    fn control(&self) -> anyhow::Result<Control> {
        Control::connect(&self.0.socket()).context("vbusd")
    }

    /// Where the file must be.
    pub fn file(&self) -> PathBuf {
        self.0.folder().join("disks").join(DISK)
    }

    /// The option `--disk` of a machine.
    pub fn option(&self) -> String {
        format!("bus:{BUS}/{DISK}")
    }

    /// What `XDG_STATE_HOME` of the machine must be.
    pub fn state(&self) -> &Path {
        self.0.state()
    }

    /// The number of vbusd's process.
    pub fn process(&self) -> u32 {
        self.0.process()
    }

    /// Makes vbusd serve the file by this engine.
    pub fn serve(&self, engine: &str) -> anyhow::Result<()> {
        self.set("engine", engine)?;
        self.set("file", DISK)
    }

    /// Makes vbusd give the file free.
    pub fn release(&self) -> anyhow::Result<()> {
        self.set("file", "")
    }

    fn set(&self, attribute: &str, value: &str) -> anyhow::Result<()> {
        let request = Request::SetAttribute {
            device: Name::new(DISK)?,
            attribute: attribute.to_string(),
            value: value.to_string(),
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.control()?.ask(&request) {
                Ok(_) => return Ok(()),
                Err(Error::Refused(error))
                    if error.kind() == Kind::Busy && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => bail!("{attribute}={value}: {error}"),
            }
        }
    }
}
