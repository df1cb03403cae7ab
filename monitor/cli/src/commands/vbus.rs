// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane vbus`: runs vbusd, and administers one that runs.

use super::OUTPUT;
use crate::arguments::{Vbus, VbusAt, VbusDaemon, VbusLs, VbusShow};
use anyhow::{Context, bail};
use paravane_user_io::outcome::Outcome;
use paravane_vbus_client::Control;
use paravane_vbus_client::bus::{Access, Attribute, BusInfo, DeviceInfo};
use paravane_vbus_client::protocol::{Reply, Request, SOCKET, default_folder};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Runs the command.
pub fn run(args: &Vbus) -> anyhow::Result<Outcome> {
    match args {
        Vbus::Daemon(args) => daemon(args),
        Vbus::Ls(args) => list(args),
        Vbus::Show(args) => show(args),
        Vbus::Classes(at) => match connect(at)?.ask(&Request::Classes)? {
            Reply::Names(names) => print(
                &names
                    .iter()
                    .fold(String::new(), |all, name| all + name + "\n"),
            ),
            other => bail!("vbusd gave an unexpected answer: {other:?}"),
        },
        Vbus::CreateBus(args) => {
            let bus = args.bus.clone();
            change(&args.at, &[Request::CreateBus { bus }])
        }
        Vbus::RmBus(args) => {
            let bus = args.bus.clone();
            change(&args.at, &[Request::RemoveBus { bus }])
        }
        Vbus::Allow(args) => {
            let (uids, gids) = (args.uid.iter().copied(), args.gid.iter().copied());
            let request = Request::SetAccess {
                bus: args.bus.clone(),
                access: Access {
                    uids: uids.collect(),
                    gids: gids.collect(),
                },
            };
            change(&args.at, &[request])
        }
        Vbus::CreateDevice(args) => {
            let request = Request::CreateDevice {
                device: args.device.clone(),
                class: args.class.clone(),
                attributes: args.attributes.clone(),
            };
            change(&args.at, &[request])
        }
        Vbus::RmDevice(args) => {
            let device = args.device.clone();
            change(&args.at, &[Request::RemoveDevice { device }])
        }
        Vbus::Link(args) => {
            let (bus, device) = (args.bus.clone(), args.device.clone());
            change(&args.at, &[Request::Link { bus, device }])
        }
        Vbus::Unlink(args) => {
            let (bus, device) = (args.bus.clone(), args.device.clone());
            change(&args.at, &[Request::Unlink { bus, device }])
        }
        Vbus::Set(args) => {
            let set = |(attribute, value): &(String, String)| Request::SetAttribute {
                device: args.device.clone(),
                attribute: attribute.clone(),
                value: value.clone(),
            };
            let requests: Vec<_> = args.attributes.iter().map(set).collect();
            change(&args.at, &requests)
        }
        Vbus::Reset(args) => {
            let device = args.device.clone();
            change(&args.at, &[Request::Reset { device }])
        }
    }
}

fn folder() -> anyhow::Result<PathBuf> {
    default_folder().context("no folder for the state of vbusd: set HOME or XDG_STATE_HOME")
}

fn daemon(args: &VbusDaemon) -> anyhow::Result<Outcome> {
    let options = paravane_vbusd::Options {
        folder: match &args.folder {
            Some(folder) => folder.clone(),
            None => folder()?,
        },
        socket: args.at.socket.clone(),
    };
    let never = paravane_vbusd::run(&options)?;
    match never {}
}

fn connect(at: &VbusAt) -> anyhow::Result<Control> {
    let socket = match &at.socket {
        Some(socket) => socket.clone(),
        None => folder()?.join(SOCKET),
    };
    Ok(Control::connect(&socket)?)
}

/// Sends requests that change something. Each is done before the next.
fn change(at: &VbusAt, requests: &[Request]) -> anyhow::Result<Outcome> {
    let mut control = connect(at)?;
    for request in requests {
        control.ask(request)?;
    }
    Ok(Outcome::Passed)
}

fn print(text: &str) -> anyhow::Result<Outcome> {
    io::stdout().write_all(text.as_bytes()).context(OUTPUT)?;
    Ok(Outcome::Passed)
}

fn bus_json(bus: &BusInfo) -> Value {
    let interface = |(id, device): (&u32, &String)| json!({ "id": id, "device": device });
    json!({
        "name": bus.name,
        "interfaces": bus.interfaces.iter().map(interface).collect::<Vec<_>>(),
        "members": bus.members,
        "uids": bus.access.uids,
        "gids": bus.access.gids,
    })
}

fn device_json(device: &DeviceInfo) -> Value {
    let attribute =
        |a: &Attribute| json!({ "name": a.name, "value": a.value, "writable": a.writable });
    json!({
        "name": device.name,
        "class": device.class,
        "interface": device.interface,
        "buses": device.buses,
        "attributes": device.attributes.iter().map(attribute).collect::<Vec<_>>(),
    })
}

fn list(args: &VbusLs) -> anyhow::Result<Outcome> {
    let mut control = connect(&args.at)?;
    let (buses, devices) = (control.buses()?, control.devices()?);
    if args.json {
        let all = json!({
            "buses": buses.iter().map(bus_json).collect::<Vec<_>>(),
            "devices": devices.iter().map(device_json).collect::<Vec<_>>(),
        });
        return print(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut text = format!("{:<32} {:>7}  DEVICES\n", "BUS", "CLIENTS");
    for bus in &buses {
        let devices: Vec<_> = bus.interfaces.values().map(String::as_str).collect();
        let (name, clients) = (&bus.name, bus.members.len());
        writeln!(text, "{name:<32} {clients:>7}  {}", devices.join(" "))?;
    }
    writeln!(text, "\n{:<32} {:<16} BUSES", "DEVICE", "CLASS")?;
    for device in &devices {
        let DeviceInfo { name, class, .. } = device;
        writeln!(text, "{name:<32} {class:<16} {}", device.buses.join(" "))?;
    }
    print(&text)
}

fn show(args: &VbusShow) -> anyhow::Result<Outcome> {
    let devices = connect(&args.at)?.devices()?;
    let device = devices
        .iter()
        .find(|info| info.name == args.device.as_str());
    let device = device.with_context(|| format!("there is no device {}", args.device))?;
    if args.json {
        let text = serde_json::to_string_pretty(&device_json(device))?;
        return print(&format!("{text}\n"));
    }
    if let Some(name) = &args.attribute {
        let found = device.attributes.iter().find(|a| a.name == *name);
        let found =
            found.with_context(|| format!("device {} has no attribute {name}", args.device))?;
        return print(&format!("{}\n", found.value));
    }
    let mut text = String::new();
    for attribute in &device.attributes {
        let note = if attribute.writable {
            "  (can be set)"
        } else {
            ""
        };
        writeln!(text, "{:<20} {}{note}", attribute.name, attribute.value)?;
    }
    print(&text)
}
