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

/// A bus `lan` with a disk `disk`, whose file has the same byte everywhere.
pub fn daemon() -> Daemon {
    let daemon = Daemon::start();
    fs::write(path(&daemon, "image"), vec![0x5a; SECTORS * SECTOR]).unwrap();
    create(&daemon, "disk", &[("file", "image")]).unwrap();
    let mut control = daemon.control();
    create_bus(&mut control, "lan");
    link(&mut control, "lan", "disk");
    daemon
}

pub fn disk(daemon: &Daemon) -> Disk {
    Disk::connect(&daemon.socket(), "lan", "disk", PATIENCE).unwrap()
}

pub fn content(daemon: &Daemon) -> Vec<u8> {
    fs::read(path(daemon, "image")).unwrap()
}
