// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: an administrator sets the attributes of disks whose files are there, or are none
//! that a disk can have, while clients connect and leave, and the files change.
//!
//! A model says which values are accepted. An accepted value is read back, a refused one changes no
//! attribute, clients see the file that was set, and a file is open only where the model has one.

use super::{attributes, word};
use crate::disk::{DiskClass, FOLDER, Pool};
use paravane_fuzz::{Input, fuzz};
use paravane_vbus::devices::block::{Geometry, SECTOR};
use paravane_vbus::{ConnectionId, Credentials, MemberId, Name, Vbus};
use paravane_vbus_shm::layout;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most steps of an input.
const STEPS: usize = 100;
const DEVICES: [&str; 2] = ["one", "two"];
/// Files that can be those of disks.
const GOOD: [&str; 4] = ["disk.img", "same.img", "other.img", "shared.img"];
/// Files that can not, and names that are none.
const BAD: [&str; 10] = [
    "locked.img",
    "odd.img",
    "empty.img",
    "fifo",
    "link.img",
    "folder",
    "none.img",
    "../outside.img",
    ".",
    "",
];
const NAMES: [&str; 9] = [
    "file",
    "file",
    "file",
    "read-only",
    "read-only",
    "engine",
    "engine-used",
    "connections",
    "poll-us",
];
const FLAGS: [&str; 4] = ["0", "1", "", "2"];
const ENGINES: [&str; 5] = ["auto", "uring", "pread", "", "none"];
/// Sizes that a file gets.
const SIZES: [u64; 5] = [0, 512, 1000, 4096, 1 << 40];

/// A disk as the model has it.
struct Disk {
    name: Name,
    interface: u32,
    file: String,
    read_only: bool,
    engine: String,
    /// The inode of the file that is open, and whether for reads only.
    open: Option<(u64, bool)>,
    connections: Vec<ConnectionId>,
    /// Sectors of the file when the first of these clients connected.
    sectors: u64,
}

impl Disk {
    fn new(vbus: &mut Vbus, name: &str) -> Self {
        let name = Name::new(name).unwrap();
        vbus.create_device(&name, "vblk", &[]).unwrap();
        let interface = vbus.link(&bus(), &name).unwrap();
        Disk {
            name,
            interface,
            file: String::new(),
            read_only: false,
            engine: "auto".to_string(),
            open: None,
            connections: Vec::new(),
            sectors: 0,
        }
    }
}

/// Removes a device, whose clients must leave.
fn remove(vbus: &mut Vbus, name: &str) {
    let name = Name::new(name).unwrap();
    vbus.unlink(&bus(), &name).unwrap();
    vbus.remove_device(&name).unwrap();
}

fn bus() -> Name {
    Name::new("lan").unwrap()
}

/// The host of an input.
struct Host<'a> {
    folder: PathBuf,
    restores: &'a AtomicBool,
    /// The host refuses the ring that an engine needs.
    ringless: bool,
    /// Files that the target has locked.
    locked: [File; 2],
    /// The sizes of files by their inodes.
    sizes: BTreeMap<u64, u64>,
}

/// A file with this size. Returns its inode, too.
fn sized(path: &Path, size: u64) -> (File, u64) {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false);
    let file = options.open(path).unwrap();
    file.set_len(size).unwrap();
    let inode = file.metadata().unwrap().ino();
    (file, inode)
}

impl Host<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the files.
    fn make<'a>(folder: &Path, restores: &'a AtomicBool, ringless: bool) -> Host<'a> {
        let folder = folder.join(FOLDER);
        let outside = folder.with_file_name("outside.img");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let mut sizes = BTreeMap::new();
        let mut made = |path: PathBuf, size: u64| {
            let (file, inode) = sized(&path, size);
            sizes.insert(inode, size);
            file
        };
        made(outside, 4096);
        let path = |name: &str| folder.join(name);
        made(path("disk.img"), 4096);
        made(path("other.img"), 512);
        made(path("odd.img"), 1000);
        made(path("empty.img"), 0);
        fs::hard_link(path("disk.img"), path("same.img")).unwrap();
        symlink("../outside.img", path("link.img")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let locked = made(path("locked.img"), 4096);
        flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
        let shared = made(path("shared.img"), 4096);
        flock(&shared, FlockOperation::NonBlockingLockShared).unwrap();
        Host {
            folder,
            restores,
            ringless,
            locked: [locked, shared],
            sizes,
        }
    }

    /// The inode that a disk has open after it has tried to open a file of this name.
    fn opens(&self, name: &str, read_only: bool, others: &[(u64, bool)]) -> Option<u64> {
        let found = fs::symlink_metadata(self.path(name)).ok()?;
        let whole = found.len() > 0 && found.len().is_multiple_of(SECTOR);
        let inode = found.ino();
        let mut users = others.iter().filter(|(other, _)| *other == inode);
        let locked = users.any(|(_, only)| !(read_only && *only));
        let ours = name == "locked.img" || name == "shared.img" && !read_only;
        (found.is_file() && whole && !locked && !ours).then_some(inode)
    }

    /// The files of the folder that this process has open.
    fn open_files(&self) -> usize {
        let all = fs::read_dir("/proc/self/fd").unwrap();
        // Another test may have closed one.
        let links = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(&self.folder)).count()
    }
}

struct World<'a> {
    vbus: &'a mut Vbus,
    host: Host<'a>,
    member: MemberId,
    disks: Vec<Disk>,
}

impl World<'_> {
    /// The files that other disks have open.
    fn others(&self, at: usize) -> Vec<(u64, bool)> {
        let disks = self.disks.iter().enumerate();
        let others = disks.filter(|(other, _)| *other != at);
        others.filter_map(|(_, disk)| disk.open).collect()
    }

    /// A disk without clients opens a file. Returns whether it can.
    fn opens(&mut self, at: usize, file: &str, read_only: bool) -> bool {
        self.disks[at].open = None;
        if file.is_empty() || self.host.restores.load(Ordering::SeqCst) {
            return true;
        }
        let inode = self.host.opens(file, read_only, &self.others(at));
        self.disks[at].open = inode.map(|inode| (inode, read_only));
        inode.is_some()
    }

    fn has_ring_for(&self, engine: &str) -> bool {
        engine != "uring" || !self.host.ringless
    }

    /// What the model does with a value. Returns whether the disk must accept it. `None`: any.
    fn model(&mut self, at: usize, name: &str, value: &str) -> Option<bool> {
        let idle = self.disks[at].connections.is_empty();
        let (file, read_only) = (self.disks[at].file.clone(), self.disks[at].read_only);
        let accepted = match name {
            "file" => {
                let known = value.is_empty() || Name::new(value).is_ok();
                known && idle && self.opens(at, value, read_only)
            }
            "read-only" => {
                let known = ["0", "1"].contains(&value);
                known && idle && self.opens(at, &file, value == "1")
            }
            "engine" => {
                let known = ENGINES[..3].contains(&value) && idle;
                known && (self.host.restores.load(Ordering::SeqCst) || self.has_ring_for(value))
            }
            "poll-us" => return None,
            _ => false,
        };
        let disk = &mut self.disks[at];
        match name {
            _ if !accepted => {}
            "file" => disk.file = value.to_string(),
            "read-only" => disk.read_only = value == "1",
            _ => disk.engine = value.to_string(),
        }
        Some(accepted)
    }

    fn set(&mut self, at: usize, input: &mut Input<'_>) {
        let name = word(input, &NAMES);
        let value = match name.as_str() {
            "read-only" => word(input, &FLAGS),
            "engine" => word(input, &ENGINES),
            _ if input.u8().is_multiple_of(2) => word(input, &BAD),
            _ => word(input, &GOOD),
        };
        let device = self.disks[at].name.clone();
        let before = attributes(self.vbus, &device);
        let accepted = self.model(at, &name, &value);
        let set = self.vbus.set_attribute(&device, &name, &value);
        let wanted = accepted.unwrap_or(set.is_ok());
        assert_eq!(set.is_ok(), wanted, "{name} {value:?}: {set:?}");
        let after = attributes(self.vbus, &device);
        if set.is_err() {
            assert_eq!(before, after, "a refused value has changed something");
        }
    }

    fn connect(&mut self, at: usize) {
        let disk = &self.disks[at];
        let (file, read_only, open) = (disk.file.clone(), disk.read_only, disk.open);
        let all: usize = self.disks.iter().map(|disk| disk.connections.len()).sum();
        let may = all < paravane_vbus::limits::CONNECTIONS && self.has_ring_for(&disk.engine);
        let (first, interface) = (disk.connections.is_empty(), disk.interface);
        // A file that is configured during a restore is opened only after the restore.
        let restores = self.host.restores.load(Ordering::SeqCst);
        let there = may && !file.is_empty() && {
            open.is_some() || self.opens(at, &file, read_only) && !restores
        };
        let open = self.disks[at].open;
        let size = open.map_or(0, |(inode, _)| self.host.sizes[&inode]);
        let whole = !first || size > 0 && size.is_multiple_of(SECTOR);
        let opened = self.vbus.open(self.member, interface, 1);
        assert_eq!(opened.is_ok(), there && whole, "{opened:?}");
        let disk = &mut self.disks[at];
        if let Ok(id) = opened {
            if first {
                disk.sectors = size / SECTOR;
            }
            disk.connections.push(id);
        }
    }

    /// Clients see the disk that was there when the first of them connected.
    fn look(&mut self, at: usize) {
        let disk = &self.disks[at];
        let Some(&id) = disk.connections.last() else {
            return;
        };
        let call = u32::try_from(layout::VBUS_BLOCK_GEOMETRY).unwrap();
        let found = self.vbus.call(self.member, id, call, &[]).unwrap();
        let found = Geometry::decode(&found).unwrap();
        let wanted = (disk.sectors, disk.read_only);
        assert_eq!((found.sectors, found.read_only), wanted);
    }

    /// The attributes are those that were accepted, and no other file is open.
    fn check(&self) {
        for disk in &self.disks {
            let all = attributes(self.vbus, &disk.name);
            let read = |name: &str| {
                let found = all.iter().find(|one| one.name == name).unwrap();
                found.value.clone()
            };
            let found = ["file", "read-only", "engine", "connections"].map(read);
            let read_only = u8::from(disk.read_only).to_string();
            let many = disk.connections.len().to_string();
            let wanted = [disk.file.clone(), read_only, disk.engine.clone(), many];
            assert_eq!(found, wanted);
        }
        let open = self.disks.iter().filter(|disk| disk.open.is_some());
        let ours = self.host.locked.len();
        assert_eq!(self.host.open_files(), open.count() + ours);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.u8() % 2);
        match input.u8() % 16 {
            0..7 => self.set(at, input),
            7..10 => self.connect(at),
            10 | 11 => {
                if let Some(id) = self.disks[at].connections.pop() {
                    self.vbus.close(self.member, id).unwrap();
                }
            }
            12 => self.look(at),
            13 => {
                // A file that a disk may have open gets another size, or another one its name.
                let (name, size) = (input.pick(&["disk.img", "other.img"]), input.pick(&SIZES));
                if input.u8().is_multiple_of(4) {
                    fs::remove_file(self.host.path(name)).unwrap();
                }
                let (_, inode) = sized(&self.host.path(name), size);
                self.host.sizes.insert(inode, size);
            }
            14 => {
                let restores = self.host.restores.load(Ordering::SeqCst);
                self.host.restores.store(!restores, Ordering::SeqCst);
            }
            _ => {
                remove(self.vbus, DEVICES[at]);
                self.disks[at] = Disk::new(self.vbus, DEVICES[at]);
            }
        }
        self.check();
    }
}

fn play(vbus: &mut Vbus, host: Host<'_>, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    vbus.create_bus(&bus()).unwrap();
    let root = Credentials {
        process: 1,
        uid: 0,
        gids: Vec::new(),
    };
    let member = vbus.join(&bus(), root, true).unwrap();
    let disks = DEVICES.map(|name| Disk::new(vbus, name)).into();
    let mut world = World {
        vbus,
        host,
        member,
        disks,
    };
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    let World { vbus, host, .. } = world;
    for name in DEVICES {
        remove(vbus, name);
    }
    vbus.leave(member);
    vbus.remove_bus(&bus()).unwrap();
    assert_eq!(host.open_files(), host.locked.len(), "a file stays open");
}

#[test]
fn vbusd_disks() {
    let (restores, pool) = (Arc::new(AtomicBool::new(false)), Pool::start().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let ringless = pool.refusal().is_some();
    fuzz("vbusd_disks", || {
        let class = DiskClass::new(folder.path(), &pool, &restores);
        let mut vbus = Vbus::new(vec![Box::new(class)]);
        move |bytes| {
            restores.store(false, Ordering::SeqCst);
            let host = Host::make(folder.path(), &restores, ringless);
            play(&mut vbus, host, bytes);
        }
    });
}
