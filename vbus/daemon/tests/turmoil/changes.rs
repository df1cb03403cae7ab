// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An administrator's actions in the turmoil.

use crate::common::{Daemon, create_bus, create_device, link, name, soon, unlink};
use crate::disk::Store;
use crate::namespace::{TAP, ip, make_tap};
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Control, Error};
use std::fs::{self, File};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Kinds of changes.
pub const CHANGES: u64 = 13;
/// Bytes of the disk whose clients are killed. It takes longer to write than they live.
const SPARE: u64 = 64 << 20;

/// Gives vbusd a bus with a device of each class that clients use. Returns their names.
pub fn furnish(daemon: &Daemon, taps: bool) -> Vec<&'static str> {
    let spare = File::create(daemon.folder.path().join("disks/spare"));
    spare.unwrap().set_len(SPARE).unwrap();
    let mut control = daemon.control();
    create_bus(&mut control, "lan");
    create_device(&mut control, "dev", "echo");
    for (device, class, attribute) in [
        ("store", "vblk", ("file", "store")),
        ("spare", "vblk", ("file", "spare")),
        ("net", "venet-user", ("loopback", "1")),
        ("out", "venet-tap", ("tap", TAP)),
    ] {
        if device != "out" || taps {
            create(&mut control, device, class, attribute);
        }
    }
    let mut all = vec!["dev", "store", "spare", "net"];
    all.extend(taps.then_some("out"));
    for device in &all {
        link(&mut control, "lan", device);
    }
    all
}

fn create(control: &mut Control, device: &str, class: &str, attribute: (&str, &str)) {
    let request = Request::CreateDevice {
        device: name(device),
        class: class.to_string(),
        attributes: vec![(attribute.0.to_string(), attribute.1.to_string())],
    };
    control.ask(&request).unwrap();
}

/// An administrator.
pub struct Changes<'a> {
    /// There is a tap.
    pub taps: bool,
    pub store: &'a Store,
}

impl Changes<'_> {
    /// Does one thing. vbusd is killed only if it `may_end`.
    pub fn make(&self, daemon: &mut Daemon, round: u64, may_end: bool) {
        let control = &mut daemon.control();
        match round % CHANGES {
            0 => again(control, "dev"),
            1 => reset(control, "dev"),
            2 => again(control, "store"),
            3 => reset(control, "store"),
            4 => again(control, "net"),
            5 => reset(control, "net"),
            6 => again(control, "spare"),
            7 => an_extra_device(daemon, &format!("extra-{round}"), None),
            8 => an_extra_device(daemon, &format!("extra-{round}"), Some("extra")),
            9 => self.a_file_without_a_name(daemon, may_end),
            _ if !self.taps => {}
            10 => again(control, "out"),
            11 => reset(control, "out"),
            _ => {
                ip(&format!("link del {TAP}"));
                thread::sleep(Duration::from_millis(round % 3 * 20));
                make_tap();
            }
        }
    }

    /// The file of the disk loses its name while it is written. No client notices until it has to
    /// be opened again. Its writers go on when it has its name back.
    fn a_file_without_a_name(&self, daemon: &mut Daemon, may_end: bool) {
        // It is open.
        self.store.is_written();
        self.store.drop_name();
        self.store.is_written();
        let control = &mut daemon.control();
        if may_end {
            let refused = || self.store.refused.load(Ordering::SeqCst);
            let before = refused();
            daemon.kill();
            daemon.restart();
            soon("no writer is refused", || refused() > before);
        } else {
            unlink(control, "lan", "store");
            soon("the disk keeps its clients", || {
                set_file(control, "").is_ok()
            });
            assert!(set_file(control, "store").is_err(), "it has a file");
            link(control, "lan", "store");
            thread::sleep(Duration::from_millis(50));
        }
        self.store.check();
        self.store.restore_name();
        if !may_end {
            // Requests under way may hold the file's lock until they are done.
            soon("the file cannot be opened", || {
                set_file(control, "store").is_ok()
            });
        }
        self.store.is_written();
    }
}

fn set_file(control: &mut Control, file: &str) -> Result<(), Error> {
    let request = Request::SetAttribute {
        device: name("store"),
        attribute: "file".to_string(),
        value: file.to_string(),
    };
    control.ask(&request).map(drop)
}

/// Drops a device and adds it again.
fn again(control: &mut Control, device: &str) {
    unlink(control, "lan", device);
    link(control, "lan", device);
}

fn reset(control: &mut Control, device: &str) {
    let device = name(device);
    control.ask(&Request::Reset { device }).unwrap();
}

/// A device comes and goes for good, perhaps with a file.
fn an_extra_device(daemon: &Daemon, device: &str, file: Option<&str>) {
    let control = &mut daemon.control();
    match file {
        None => create_device(control, device, "null"),
        Some(file) => {
            let path = daemon.folder.path().join("disks").join(file);
            fs::write(&path, [0; 4096]).unwrap();
            create(control, device, "vblk", ("file", file));
            fs::remove_file(&path).unwrap();
        }
    }
    link(control, "lan", device);
    unlink(control, "lan", device);
    let device = name(device);
    control.ask(&Request::RemoveDevice { device }).unwrap();
}
