// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's resources that a machine gets: folders, disks, a network.

use super::bus;
use super::descriptors::{self, Shares};
use super::network::{self, Connected, NetworkReport};
use super::superblock;
use crate::heuristic::Heuristic;
use crate::socket;
use crate::spec::{Disk, DiskDevice, DiskFormat, DiskMode, Spec, VolumeCache};
use anyhow::{Context, bail};
use paravane_agent_protocol::Mount;
use paravane_bridge::{self as bridge, Bridge, Fault};
use paravane_devices::Model;
use paravane_devices::blk::{self, Block, Flush, Format, Mode};
use paravane_devices::fs::{Access, Cache, Fs, Sharing};
use std::os::unix::fs::MetadataExt;

/// The virtio-fs tag of a root that is a folder.
const ROOT_TAG: &str = "rootfs";

/// The word of the kernel's command line that names the root for the agent.
pub fn root_option(spec: &Spec) -> Option<String> {
    let root = spec.rootfs.as_ref()?;
    Some(if root.file.is_dir() {
        format!("paravane.root=virtiofs:{ROOT_TAG}")
    } else if root.is_on_bus() {
        "paravane.root=/dev/vbd0".to_string()
    } else {
        "paravane.root=/dev/vda".to_string()
    })
}

/// What the guest learns of it, and what lives as long as the machine.
#[derive(Debug, Default)]
pub struct Resources {
    pub mounts: Vec<Mount>,
    /// The machine has a disk that outlives it.
    pub keeps: bool,
    pub connected: Connected,
    /// The sockets of consoles are removed with it.
    _consoles: Vec<socket::Name>,
}

impl Resources {
    /// Opens all resources of a machine, and makes its devices.
    pub fn new(
        spec: &Spec,
        report: NetworkReport,
        devices: &mut Vec<Model>,
    ) -> anyhow::Result<Self> {
        let mut resources = Resources::default();
        let files = Shares::of(descriptors::limit()).folders;
        if let Some(root) = spec.rootfs.as_ref().filter(|r| r.file.is_dir()) {
            if root.is_on_bus() {
                bail!("--rootfs: :vbus is for disk images, and this is a folder");
            }
            if root.format != DiskFormat::Named {
                bail!("--rootfs: :raw and :qcow2 are for disk images, and this is a folder");
            }
            let sharing = Sharing {
                descriptors: files,
                ..Access::ReadOnly.into()
            };
            devices.push(Model::virtio(
                Fs::new(&root.file, ROOT_TAG, sharing).context("--rootfs")?,
            ));
        }
        let root = spec.rootfs.as_ref().filter(|r| !r.file.is_dir());
        if let Some(root) = root {
            superblock::check(&root.file, root.format == DiskFormat::Raw).context("--rootfs")?;
        }
        let disks = || root.into_iter().chain(&spec.disks);
        check_disks(disks()).context("--disk")?;
        for (index, disk) in disks().enumerate() {
            resources.keeps |= writes(disk);
            // The root comes first.
            let option = if root.is_some() && index == 0 {
                "--rootfs"
            } else {
                "--disk"
            };
            devices.push(make_disk(disk, index, spec).context(option)?);
        }
        for (index, volume) in spec.volumes.iter().enumerate() {
            let tag = format!("volume{index}");
            let access = match (volume.read_only, volume.suid) {
                (true, _) => Access::ReadOnly,
                (false, false) => Access::Write,
                (false, true) => Access::Suid,
            };
            resources.keeps |= !volume.read_only && volume.cache == VolumeCache::Always;
            let sharing = Sharing {
                access,
                cache: match volume.cache {
                    VolumeCache::None => Cache::None,
                    VolumeCache::Auto => Cache::Auto,
                    VolumeCache::Always => Cache::Always,
                },
                workers: volume.workers,
                descriptors: files,
            };
            devices.push(Model::virtio(
                Fs::new(&volume.host, &tag, sharing).context("--volume")?,
            ));
            resources.mounts.push(Mount {
                source: tag,
                target: volume.guest.clone().into_bytes(),
                kind: "virtiofs".to_string(),
                read_only: volume.read_only,
            });
        }
        // A folder in another folder is mounted after it, whatever the order of the options.
        resources.mounts.sort_by_key(|mount| depth(&mount.target));
        for path in &spec.consoles {
            let context = || format!("--console {}", path.display());
            let (listener, name) = socket::listen(path).with_context(context)?;
            let console = bridge::Console::new(listener).with_context(context)?;
            devices.push(Model::Own(Box::new(Bridge::console(console)?)));
            resources._consoles.push(name);
        }
        if let Some(bus) = &spec.bus {
            // It may have disks that the guest writes to.
            resources.keeps = true;
            let devices_of_bus = bus::whole(bus, spec);
            devices.push(devices_of_bus.with_context(|| format!("--bus {bus}"))?);
        }
        resources.connected = network::connect(spec, report, devices)?;
        Ok(resources)
    }
}

/// How many names a path has.
fn depth(path: &[u8]) -> usize {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty()).count()
}

/// Whether a machine changes the file of a disk.
fn writes(disk: &Disk) -> bool {
    !matches!(disk.mode, DiskMode::ReadOnly | DiskMode::Snapshot)
}

/// Checks that a file that the machine writes is one disk of it.
///
/// # Errors
/// It is two. Locks would report that another machine has it.
fn check_disks<'a>(disks: impl Iterator<Item = &'a Disk>) -> anyhow::Result<()> {
    let mut before: Vec<(u64, u64, bool)> = Vec::new();
    for disk in disks.filter(|disk| disk.device != DiskDevice::Bus) {
        // A file that cannot be examined cannot be opened.
        let Ok(file) = std::fs::metadata(&disk.file) else {
            continue;
        };
        let this = (file.dev(), file.ino(), writes(disk));
        let same = |other: &&(u64, u64, bool)| (other.0, other.1) == (this.0, this.1);
        if before.iter().filter(same).any(|other| other.2 || this.2) {
            bail!(
                "{}: the machine has it twice: use it read-only in both places, or give a copy",
                disk.file.display()
            );
        }
        before.push(this);
    }
    Ok(())
}

/// The virtio device for a disk.
fn block(disk: blk::Disk, serial: &str, spec: &Spec) -> Block {
    Block::on(disk, serial).with(heuristics(spec))
}

/// What the machine's disks guess.
fn heuristics(spec: &Spec) -> blk::Heuristics {
    blk::Heuristics {
        lone_reads: spec.uses(Heuristic::LoneReads),
        direct_reads: spec.uses(Heuristic::DirectReads),
        early_writes: spec.uses(Heuristic::EarlyWrites),
        allocate_ahead: spec.uses(Heuristic::AllocateAhead),
    }
}

/// The device for a disk, the machine's `index`th.
fn make_disk(disk: &Disk, index: usize, spec: &Spec) -> anyhow::Result<Model> {
    let mode = match disk.mode {
        DiskMode::Write => Mode::Write,
        DiskMode::ReadOnly => Mode::ReadOnly,
        DiskMode::Snapshot => Mode::Snapshot,
        DiskMode::Cut => Mode::Cut(Flush::Honoured),
        #[cfg(feature = "test-hooks")]
        DiskMode::CutUnsafe => Mode::Cut(Flush::Ignored),
    };
    let format = match disk.format {
        DiskFormat::Named => Format::Named,
        DiskFormat::Raw => Format::Raw,
        DiskFormat::Qcow2 => Format::Qcow2,
    };
    let open = || blk::Disk::open_as(&disk.file, format, mode);
    let serial = format!("disk{index}");
    let fault = match disk.device {
        DiskDevice::Bus => return bus::disk(&disk.file.to_string_lossy()),
        DiskDevice::Virtio => return Ok(Model::virtio(block(open()?, &serial, spec))),
        #[cfg(feature = "test-hooks")]
        DiskDevice::VirtioSlow => {
            return Ok(Model::virtio(
                block(open()?, &serial, spec).slow_on_the_first_cpu(),
            ));
        }
        DiskDevice::Vbus => Fault::None,
        #[cfg(feature = "test-hooks")]
        DiskDevice::VbusBreaks => Fault::Breaks(500),
        #[cfg(feature = "test-hooks")]
        DiskDevice::VbusVanishes => Fault::Vanishes(500),
    };
    let device = bridge::Disk::new(open()?, &serial).with(heuristics(spec));
    let bridge = Bridge::disk(device.with_fault(fault))?;
    Ok(Model::Own(Box::new(bridge)))
}

#[cfg(test)]
mod tests {
    use super::super::resource_words::disk;
    use super::*;

    #[test]
    fn a_file_that_is_written_is_one_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, [0; 512]).unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        let check = |first: &str, second: &str| {
            let first = disk(&format!("{}{first}", one.display())).unwrap();
            let second = disk(&format!("{}{second}", other.display())).unwrap();
            check_disks([&first, &second].into_iter())
        };
        assert!(check(":ro", ":ro").is_ok() && check(":ro", ":snapshot").is_ok());
        for (first, second) in [("", ""), (":ro", ""), ("", ":snapshot"), (":cut", ":vbus")] {
            let error = check(first, second).unwrap_err().to_string();
            assert!(error.contains("the machine has it twice"), "{error}");
        }
        let bus = disk("bus:lan/store").unwrap();
        assert!(check_disks([&bus, &bus].into_iter()).is_ok());
    }
}
