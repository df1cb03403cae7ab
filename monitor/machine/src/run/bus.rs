// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices that a machine takes from the buses of this user's vbusd.

use super::card;
use crate::spec::Spec;
use anyhow::{Context, bail};
use paravane_bridge::{Bridge, Far, FarDisk, Watch, only_card};
use paravane_devices::Model;
use paravane_vbus::Name;
use std::path::PathBuf;

/// The socket of this user's vbusd.
fn socket() -> anyhow::Result<PathBuf> {
    let folder = paravane_vbus_protocol::default_folder();
    let folder = folder.context("neither XDG_STATE_HOME nor HOME is an absolute path")?;
    Ok(folder.join(paravane_vbus_protocol::SOCKET))
}

/// A bus and a device on it: `NAME/DEVICE`.
pub fn place(word: &str) -> Option<(&str, &str)> {
    let (bus, device) = word.split_once('/')?;
    (Name::new(bus).is_ok() && Name::new(device).is_ok()).then_some((bus, device))
}

/// A bus, and a device on it if it is named: `NAME[/DEVICE]`.
pub fn network(word: &str) -> Option<(&str, Option<&str>)> {
    let (bus, device) = match word.split_once('/') {
        Some((bus, device)) => (bus, Some(device)),
        None => (word, None),
    };
    let good = |name: &str| Name::new(name).is_ok();
    (good(bus) && device.is_none_or(good)).then_some((bus, device))
}

/// A card on a bus, which may share with others there, and its device. Without a name, that is the
/// only network of the bus.
pub fn card(
    bus: &str,
    device: Option<&str>,
    share: bool,
    spec: &Spec,
) -> anyhow::Result<(Model, String)> {
    let socket = socket()?;
    let device = match device {
        Some(device) => device.to_string(),
        None => only_card(&socket, bus)?,
    };
    let join = if share { Far::join_sharing } else { Far::join };
    let card = join(&socket, bus, &device)?;
    Ok((card::model(Bridge::far(card)?, spec), device))
}

/// A disk on a bus, at a [`place`].
pub fn disk(word: &str) -> anyhow::Result<Model> {
    let Some((bus, device)) = place(word) else {
        bail!("bus:NAME/DEVICE names a bus and a device on it");
    };
    let disk = FarDisk::join(&socket()?, bus, device)?;
    Ok(Model::Own(Box::new(Bridge::far_disk(disk)?)))
}

/// All devices of a bus.
pub fn whole(bus: &str, spec: &Spec) -> anyhow::Result<Model> {
    let watch = Watch::join(&socket()?, bus)?;
    Ok(card::model(Bridge::whole(watch)?, spec))
}
