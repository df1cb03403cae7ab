// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices that the conformance guest finds on virtual buses. None of them leads out of the
//! machine.

use crate::bridge::Bridge;
use crate::console::Console;
use crate::disk::Disk;
use crate::model::Model;
use anyhow::Context;
use paravane_devices::blk;
use paravane_net::Link;
use paravane_vbus::{Name, devices};
use paravane_vbus_cards::Wire;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Bytes of the disk.
const DISK: u64 = 1 << 20;

/// The largest packet of cards.
const MTU: u16 = 1500;

/// The devices: a bus with one of each class of `vbus/core` and with two consoles, of which each is
/// the other's client; a bus with an empty disk of a MiB; and a bus with two cards, which are the
/// ends of one wire.
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
        Bridge::new("net", cards().context("cannot make the sockets of cards")?)?,
    ];
    let own = |bridge| paravane_devices::Model::Own(Box::new(bridge));
    Ok(bridges.map(own).into())
}

fn consoles(folder: &Path) -> std::io::Result<(Console, Console)> {
    // The address of a socket has room for 107 bytes, and the folder's path may be longer.
    let folder = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    let [one, other] = ["one", "other"].map(|name| short.join(name));
    let listener = UnixListener::bind(&one)?;
    let client = UnixStream::connect(&one)?;
    let other = Console::new(UnixListener::bind(&other)?)?.with_client(client)?;
    Ok((Console::new(listener)?, other))
}

/// The wire is a stream, as the one to passt is.
fn cards() -> std::io::Result<Vec<Model>> {
    let (one, other) = UnixStream::pair()?;
    let card = |end: UnixStream, number| -> std::io::Result<Model> {
        let link = Link::stream(end.into(), MTU)?;
        let card = Wire::new(link, [2, 0, 0, 0, 0, number]);
        Ok(Model::Wire(Box::new(card)))
    };
    Ok(vec![card(one, 1)?, card(other, 2)?])
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

#[cfg(test)]
mod tests {
    #[test]
    fn a_temporary_folder_may_have_a_long_path() {
        let folder = tempfile::Builder::new()
            .prefix(&"long".repeat(40))
            .tempdir()
            .unwrap();
        super::consoles(folder.path()).unwrap();
    }
}
