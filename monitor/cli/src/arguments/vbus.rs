// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `vbus`.

use clap::{Args, Subcommand};
use paravane_vbus_client::bus::Name;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Vbus {
    /// Run vbusd, the virtual bus of this user's processes, until it is killed
    Daemon(VbusDaemon),
    /// List buses and devices
    Ls(VbusLs),
    /// List the classes of devices that can be made
    Classes(VbusAt),
    /// Create a bus: a container of devices, visible to the clients that join it
    CreateBus(VbusBus),
    /// Remove a bus that no device is linked to
    RmBus(VbusBus),
    /// Set which users and groups may join a bus, besides the user of vbusd
    Allow(VbusAllow),
    /// Create a device of a class
    CreateDevice(VbusCreateDevice),
    /// Remove a device that is linked to no bus
    RmDevice(VbusDevice),
    /// Link a device to a bus, whose clients see it then
    Link(VbusLink),
    /// Unlink a device from a bus; connections to it are closed
    Unlink(VbusLink),
    /// Print the attributes of a device
    Show(VbusShow),
    /// Set attributes of a device
    Set(VbusSet),
    /// Close all connections to a device; clients connect again
    Reset(VbusDevice),
}

/// Where vbusd listens.
#[derive(Debug, Args)]
pub struct VbusAt {
    /// Socket of vbusd [default: socket in the folder of this user's vbusd]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct VbusDaemon {
    /// Folder of the state [default: paravane/vbus in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusLs {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusBus {
    /// The bus
    #[arg(value_parser = name)]
    pub bus: Name,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusAllow {
    /// The bus
    #[arg(value_parser = name)]
    pub bus: Name,

    /// Number of a user; without any, no other user may
    #[arg(long, value_name = "UID")]
    pub uid: Vec<u32>,

    /// Number of a group
    #[arg(long, value_name = "GID")]
    pub gid: Vec<u32>,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusCreateDevice {
    /// The device
    #[arg(value_parser = name)]
    pub device: Name,

    /// Its class, one of `paravane vbus classes`
    pub class: String,

    /// Attributes to set
    #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
    pub attributes: Vec<(String, String)>,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusDevice {
    /// The device
    #[arg(value_parser = name)]
    pub device: Name,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusLink {
    /// The bus
    #[arg(value_parser = name)]
    pub bus: Name,

    /// The device
    #[arg(value_parser = name)]
    pub device: Name,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusShow {
    /// The device
    #[arg(value_parser = name)]
    pub device: Name,

    /// Print only the value of this attribute
    #[arg(conflicts_with = "json")]
    pub attribute: Option<String>,

    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub at: VbusAt,
}

#[derive(Debug, Args)]
pub struct VbusSet {
    /// The device
    #[arg(value_parser = name)]
    pub device: Name,

    /// Attributes and their values
    #[arg(value_name = "NAME=VALUE", value_parser = attribute, required = true)]
    pub attributes: Vec<(String, String)>,

    #[command(flatten)]
    pub at: VbusAt,
}

/// The name of a bus or device.
pub fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => Err("NAME=VALUE is expected".to_string()),
    }
}
