// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vbusd with a disk.

use super::{Daemon, create_bus, link, name};
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Disk, Error, SECTOR};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

pub const SECTORS: usize = 2048;
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn path(daemon: &Daemon, file: &str) -> PathBuf {
    daemon.folder.path().join("disks").join(file)
}

pub fn create(daemon: &Daemon, device: &str, attributes: &[(&str, &str)]) -> Result<(), Error> {
    let attributes = attributes.iter();
    let request = Request::CreateDevice {
        device: name(device),
        class: "vblk".to_string(),
        attributes: attributes
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect(),
    };
    daemon.control().ask(&request).map(drop)
}

/// Makes tests of functions that take an engine: one for each engine and function.
#[macro_export]
macro_rules! with_engines {
    ($($test:ident),* $(,)?) => {
        mod auto {
            $(#[test] fn $test() { super::$test("auto"); })*
        }
        mod uring {
            $(#[test] fn $test() { super::$test("uring"); })*
        }
        mod pread {
            $(#[test] fn $test() { super::$test("pread"); })*
        }
    };
}

/// A bus `lan` with a disk `disk`, whose file has the same byte everywhere, and which is served by
/// this engine.
pub fn daemon(engine: &str) -> Daemon {
    furnished(Daemon::start(), engine)
}

/// Gives a vbusd such a disk.
pub fn furnished(daemon: Daemon, engine: &str) -> Daemon {
    fs::write(path(&daemon, "image"), vec![0x5a; SECTORS * SECTOR]).unwrap();
    create(&daemon, "disk", &[("file", "image"), ("engine", engine)]).unwrap();
    let mut control = daemon.control();
    create_bus(&mut control, "lan");
    link(&mut control, "lan", "disk");
    daemon
}

pub fn disk(daemon: &Daemon) -> Disk {
    Disk::connect(&daemon.socket(), "lan", "disk", PATIENCE).unwrap()
}

/// Sets an attribute of the disk.
pub fn set(daemon: &Daemon, attribute: &str, value: &str) -> Result<(), Error> {
    let request = Request::SetAttribute {
        device: name("disk"),
        attribute: attribute.to_string(),
        value: value.to_string(),
    };
    daemon.control().ask(&request).map(drop)
}

/// The value of an attribute of the disk.
pub fn value(daemon: &Daemon, attribute: &str) -> String {
    let devices = daemon.control().devices().unwrap();
    let disk = devices.iter().find(|info| info.name == "disk").unwrap();
    let mut found = disk.attributes.iter().filter(|a| a.name == attribute);
    found.next().unwrap().value.clone()
}

pub fn content(daemon: &Daemon) -> Vec<u8> {
    fs::read(path(daemon, "image")).unwrap()
}
