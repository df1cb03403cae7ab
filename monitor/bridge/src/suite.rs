// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the conformance guest finds on virtual buses: nothing of it reaches further than the
//! machine.

use crate::bridge::Bridge;
use crate::console::Console;
use crate::disk::Disk;
use crate::model::Model;
use anyhow::Context;
use paravane_devices::blk;
use paravane_vbus::{Name, devices};
use std::fs::File;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Bytes of the disk.
const DISK: u64 = 1 << 20;

/// The devices: a bus with one of each class of `vbus/core` and with two consoles, of which each is
/// the other's client, and a bus with an empty disk of a MiB.
///
/// # Errors
/// The host has no room for temporary files, or no descriptors.
pub fn suite() -> anyhow::Result<Vec<paravane_devices::Model>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut models = Vec::new();
    for class in devices::classes() {
        let device = class.create(&Name::new(class.name())?);
        models.push(Model::Plain(class.name(), device));
    }
    let (one, other) = consoles(folder.path()).context("cannot make the sockets of consoles")?;
    models.push(Model::Console(Box::new(one)));
    models.push(Model::Console(Box::new(other)));
    let bridges = [
        // The policy of consoles has all that the other devices need.
        Bridge::new("vconsole", models)?,
        Bridge::disk(disk(folder.path())?)?,
    ];
    let own = |bridge| paravane_devices::Model::Own(Box::new(bridge));
    Ok(bridges.map(own).into())
}

fn consoles(folder: &Path) -> std::io::Result<(Console, Console)> {
    let [one, other] = ["one", "other"].map(|name| folder.join(name));
    let listener = UnixListener::bind(&one)?;
    let client = UnixStream::connect(&one)?;
    let other = Console::new(UnixListener::bind(&other)?)?.with_client(client)?;
    Ok((Console::new(listener)?, other))
}

fn disk(folder: &Path) -> anyhow::Result<Disk> {
    let path = folder.join("disk");
    let file = File::create(&path).and_then(|file| file.set_len(DISK));
    file.with_context(|| format!("cannot make {}", path.display()))?;
    Ok(Disk::new(
        blk::Disk::open(&path, blk::Mode::Write)?,
        "suite",
    ))
}
