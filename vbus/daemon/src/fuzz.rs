// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: an administrator sets any attribute of devices of vbusd's own classes. The devices
//! are in the state of a configuration that is restored: they open no file, tap or network.

mod disks;

use crate::card::Cards;
use crate::disk::{DiskClass, Pool};
use paravane_fuzz::{Input, fuzz};
use paravane_net::passt::Starter;
use paravane_vbus::{Attribute, Name, Vbus};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The most steps of an input.
const STEPS: usize = 100;
const CLASSES: [&str; 3] = ["vblk", "venet-tap", "venet-user"];
const NAMES: [&str; 13] = [
    "file",
    "engine",
    "read-only",
    "engine-used",
    "tap",
    "mac",
    "loopback",
    "link-local",
    "poll-us",
    "connections",
    "kick-us",
    "publish",
    "mtu",
];
const VALUES: [&str; 16] = [
    "",
    "0",
    "1",
    "auto",
    "uring",
    "pread",
    "disk.img",
    "../disk.img",
    "/dev/null",
    "02:00:00:00:00:01",
    "ff:ff:ff:ff:ff:ff",
    "+2:00:00:00:00:01",
    "8080:80,127.0.0.1:5353:53/udp",
    "[::1]:1:2,0:80",
    "9000",
    "575",
];

/// Often one of these words.
pub fn word(input: &mut Input<'_>, known: &[&str]) -> String {
    match input.u8() % 8 {
        0 => String::from_utf8_lossy(input.bytes(40)).into_owned(),
        1 => "9".repeat(usize::from(input.u8())),
        _ => input.pick(known).to_string(),
    }
}

/// What a device has now.
pub fn attributes(vbus: &Vbus, device: &Name) -> Vec<Attribute> {
    let infos = vbus.device_infos();
    let found = infos.into_iter().find(|info| info.name == device.as_str());
    found.unwrap().attributes
}

fn play(vbus: &mut Vbus, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let devices = CLASSES.map(|class| Name::new(class).unwrap());
    for (device, class) in devices.iter().zip(CLASSES) {
        vbus.create_device(device, class, &[]).unwrap();
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let device = &devices[usize::from(input.u8()) % devices.len()];
        let (name, value) = (word(&mut input, &NAMES), word(&mut input, &VALUES));
        let before = attributes(vbus, device);
        let set = vbus.set_attribute(device, &name, &value);
        let after = attributes(vbus, device);
        if set.is_err() {
            assert_eq!(before, after, "a refused value has changed something");
            continue;
        }
        // A file's name leads out of no folder.
        assert!(name != "file" || !value.contains('/'), "{value:?}");
        let others = |all: &[Attribute]| {
            let others = all.iter().filter(|one| one.name != name && one.writable);
            others.cloned().collect::<Vec<_>>()
        };
        assert_eq!(others(&before), others(&after), "another has changed");
        // A kept value can be restored.
        let kept = after.iter().find(|one| one.name == name).unwrap();
        assert!(kept.writable, "{name} is a figure");
        vbus.set_attribute(device, &name, &kept.value).unwrap();
        assert_eq!(attributes(vbus, device), after);
    }
    for device in &devices {
        vbus.remove_device(device).unwrap();
    }
}

#[test]
fn vbusd_attributes() {
    let restores = Arc::new(AtomicBool::new(true));
    let (cards, pool) = (
        Cards::start(10_000, Starter::on_thread().unwrap()).unwrap(),
        Pool::start().unwrap(),
    );
    fuzz("vbusd_attributes", || {
        let disk = DiskClass::new(Path::new("/nonexistent"), &pool, &restores);
        let mut classes: Vec<_> = cards.classes(&restores).into();
        classes.push(Box::new(disk));
        let mut vbus = Vbus::new(classes);
        move |bytes| play(&mut vbus, bytes)
    });
}
