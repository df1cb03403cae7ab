// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's resources that a machine gets: folders, disks, a network.

use super::bus;
use super::descriptors::{self, Shares};
use super::network::{self, Connected, NetworkReport};
use super::superblock;
use crate::socket;
use crate::spec::{Disk, DiskDevice, DiskFormat, DiskMode, Heuristic, Spec, Volume, VolumeCache};
use anyhow::{Context, bail};
use paravane_agent_protocol::Mount;
use paravane_bridge::{self as bridge, Bridge, Fault};
use paravane_devices::Model;
use paravane_devices::blk::{self, Block, Flush, Format, Mode};
use paravane_devices::fs::{Access, Cache, Fs, Sharing};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

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
/// It is two. Locks would say that another machine has it.
fn check_disks<'a>(disks: impl Iterator<Item = &'a Disk>) -> anyhow::Result<()> {
    let mut before: Vec<(u64, u64, bool)> = Vec::new();
    for disk in disks.filter(|disk| disk.device != DiskDevice::Bus) {
        // What cannot be examined cannot be opened.
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
    let lone = spec.uses(Heuristic::LoneReads);
    let direct = spec.uses(Heuristic::DirectReads);
    let early = spec.uses(Heuristic::EarlyWrites);
    let fault = match disk.device {
        DiskDevice::Bus => return bus::disk(&disk.file.to_string_lossy()),
        DiskDevice::Virtio => {
            let mut device = Block::on(open()?, &serial);
            if !lone {
                device = device.without_lone_reads();
            }
            if !direct {
                device = device.without_direct_reads();
            }
            if !early {
                device = device.without_early_writes();
            }
            return Ok(Model::virtio(device));
        }
        DiskDevice::Vbus => Fault::None,
        #[cfg(feature = "test-hooks")]
        DiskDevice::VbusBreaks => Fault::Breaks(500),
        #[cfg(feature = "test-hooks")]
        DiskDevice::VbusVanishes => Fault::Vanishes(500),
    };
    let mut device = bridge::Disk::new(open()?, &serial);
    if !lone {
        device = device.without_lone_reads();
    }
    if !direct {
        device = device.without_direct_reads();
    }
    if !early {
        device = device.without_early_writes();
    }
    let bridge = Bridge::disk(device.with_fault(fault))?;
    Ok(Model::Own(Box::new(bridge)))
}

/// `HOST:GUEST[:OPTION..]`, with the options ro, rw or suid, cache=WORD and workers.
pub fn volume(word: &str) -> anyhow::Result<Volume> {
    let (mut rest, mut access, mut cache, mut workers) = (word, None, None, None);
    while let Some((before, option)) = rest.rsplit_once(':') {
        let before_this = match option {
            "ro" | "rw" | "suid" => access.replace(option),
            "workers" => workers.replace(option),
            _ => match option.strip_prefix("cache=") {
                Some(kind) => cache.replace(kind),
                None => break,
            },
        };
        if let Some(other) = before_this {
            bail!("{option} and {other} exclude each other");
        }
        rest = before;
    }
    let cache = match cache {
        None | Some("auto") => VolumeCache::Auto,
        Some("always") => VolumeCache::Always,
        Some("none") => VolumeCache::None,
        Some(other) => bail!("cache={other}: auto, always or none is expected"),
    };
    let Some((host, guest)) = rest.rsplit_once(':') else {
        bail!("HOST:GUEST is expected, {VOLUME_OPTIONS}");
    };
    if !guest.starts_with('/') {
        if host.contains(":/") {
            bail!("unknown option {guest}: HOST:GUEST is expected, {VOLUME_OPTIONS}");
        }
        bail!("{guest:?}: the place in the guest must be an absolute path");
    }
    if guest.trim_matches('/').is_empty() {
        bail!("the guest's / is its root: --rootfs makes a folder the root");
    }
    let host = existing(host)?;
    if !host.is_dir() {
        bail!("{} is not a directory", host.display());
    }
    Ok(Volume {
        host,
        guest: guest.to_string(),
        read_only: access == Some("ro"),
        suid: access == Some("suid"),
        cache,
        workers: workers.is_some(),
    })
}

/// What can follow the folders of a volume.
const VOLUME_OPTIONS: &str = "optionally with :ro, :rw or :suid, :cache=WORD and :workers";

/// Checks that no two volumes have the same place in the guest.
///
/// # Errors
/// Two have: the second would hide the first.
pub fn check_volumes(volumes: &[Volume]) -> anyhow::Result<()> {
    let place = |volume: &Volume| volume.guest.trim_end_matches('/').to_string();
    let mut places: Vec<String> = volumes.iter().map(place).collect();
    places.sort_unstable();
    let twice = places.windows(2).find(|pair| pair.first() == pair.last());
    match twice.and_then(|pair| pair.first()) {
        Some(place) => bail!("two volumes are at {place} in the guest"),
        None => Ok(()),
    }
}

/// `FILE[:ro|:snapshot|:cut][:raw|:qcow2][:vbus]`, and for a disk that is no root
/// `bus:NAME/DEVICE`.
pub fn disk(word: &str) -> anyhow::Result<Disk> {
    match word.strip_prefix("bus:") {
        Some(place) if bus::place(place).is_some() => Ok(Disk {
            file: place.into(),
            mode: DiskMode::Write,
            device: DiskDevice::Bus,
            format: DiskFormat::Named,
        }),
        Some(_) => bail!("bus:NAME/DEVICE names a bus and a device on it"),
        None => root(word),
    }
}

/// `FILE[:ro|:snapshot|:cut][:raw|:qcow2][:vbus]`.
pub fn root(word: &str) -> anyhow::Result<Disk> {
    let (mut file, mut mode, mut device, mut format) = (word, None, None, None);
    while let Some((before, option)) = file.rsplit_once(':') {
        let other = match option {
            "ro" => set(&mut mode, option, DiskMode::ReadOnly),
            "snapshot" => set(&mut mode, option, DiskMode::Snapshot),
            "cut" => set(&mut mode, option, DiskMode::Cut),
            #[cfg(feature = "test-hooks")]
            "cut-unsafe" => set(&mut mode, option, DiskMode::CutUnsafe),
            "raw" => set(&mut format, option, DiskFormat::Raw),
            "qcow2" => set(&mut format, option, DiskFormat::Qcow2),
            "vbus" => set(&mut device, option, DiskDevice::Vbus),
            #[cfg(feature = "test-hooks")]
            "vbus-breaks" => set(&mut device, option, DiskDevice::VbusBreaks),
            #[cfg(feature = "test-hooks")]
            "vbus-vanishes" => set(&mut device, option, DiskDevice::VbusVanishes),
            _ => break,
        };
        if let Some(other) = other {
            bail!("{option} and {other} exclude each other");
        }
        file = before;
    }
    Ok(Disk {
        file: existing(file)?,
        mode: mode.map_or(DiskMode::Write, |(_, mode)| mode),
        device: device.map_or(DiskDevice::Virtio, |(_, device)| device),
        format: format.map_or(DiskFormat::Named, |(_, format)| format),
    })
}

/// Sets an option of a word. Returns the one that was set before.
fn set<'a, T>(place: &mut Option<(&'a str, T)>, option: &'a str, value: T) -> Option<&'a str> {
    place.replace((option, value)).map(|(before, _)| before)
}

fn existing(path: &str) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("{path:?}"))?;
    std::fs::metadata(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_and_disks() {
        let read = volume("/tmp:/mnt/x:ro").unwrap();
        assert_eq!((read.guest.as_str(), read.read_only), ("/mnt/x", true));
        let write = volume("/tmp:/mnt").unwrap();
        assert!(!read.suid && !write.read_only && !write.suid);
        let suid = volume("/tmp:/mnt:suid").unwrap();
        assert_eq!(
            (suid.guest.as_str(), suid.read_only, suid.suid),
            ("/mnt", false, true)
        );
        let both = volume("/tmp:/mnt:workers:ro").unwrap();
        assert_eq!(
            (both.workers, both.read_only, both.suid, both.cache),
            (true, true, false, VolumeCache::Auto)
        );
        let always = volume("/tmp:/mnt:ro:cache=always").unwrap();
        assert_eq!(
            (always.cache, always.read_only),
            (VolumeCache::Always, true)
        );
        assert_eq!(
            volume("/tmp:/mnt:cache=none").unwrap().cache,
            VolumeCache::None
        );
        for bad in [
            "/tmp",
            "/tmp:/mnt:workers:workers",
            "/tmp:/mnt:cache=auto:cache=none",
            "/tmp:/mnt:cache=some",
            "/tmp:/mnt:cache=",
            "/tmp:cache=auto",
            "/tmp:mnt",
            "/nonexistent:/mnt",
            "/etc/passwd:/mnt",
            "",
            "/tmp:ro",
            "/tmp:suid",
            "/tmp:/mnt:ro:suid",
            "/tmp:/mnt:suid:ro",
            "/tmp:/mnt:rw:ro",
            "/tmp:/",
            "/tmp://",
        ] {
            assert!(volume(bad).is_err(), "{bad}");
        }
        let error = volume("/tmp:/mnt:rx").unwrap_err().to_string();
        assert!(error.starts_with("unknown option rx: "), "{error}");
        let also_write = volume("/tmp:/mnt:rw").unwrap();
        assert!(!also_write.read_only && !also_write.suid);
        let other = volume("/tmp:/srv/mnt").unwrap();
        assert!(check_volumes(&[write.clone(), other.clone()]).is_ok());
        let error = check_volumes(&[write, other, volume("/:/mnt/").unwrap()]).unwrap_err();
        assert_eq!(error.to_string(), "two volumes are at /mnt in the guest");
        assert_eq!(disk("/etc/passwd:ro").unwrap().mode, DiskMode::ReadOnly);
        assert_eq!(
            disk("/etc/passwd:snapshot").unwrap().mode,
            DiskMode::Snapshot
        );
        assert_eq!(disk("/etc/passwd:cut").unwrap().mode, DiskMode::Cut);
        for word in ["/etc/passwd:cut:vbus", "/etc/passwd:vbus:cut"] {
            let both = disk(word).unwrap();
            assert_eq!(
                (both.mode, both.is_on_bus()),
                (DiskMode::Cut, true),
                "{word}"
            );
        }
        assert!(!disk("/etc/passwd:cut").unwrap().is_on_bus());
        for (word, format) in [
            ("/etc/passwd", DiskFormat::Named),
            ("/etc/passwd:raw", DiskFormat::Raw),
            ("/etc/passwd:ro:qcow2", DiskFormat::Qcow2),
            ("/etc/passwd:raw:vbus:snapshot", DiskFormat::Raw),
        ] {
            assert_eq!(root(word).unwrap().format, format, "{word}");
        }
        let far = disk("bus:lan/store").unwrap();
        assert_eq!(
            (far.file.to_str(), far.device, far.is_on_bus()),
            (Some("lan/store"), DiskDevice::Bus, true)
        );
        assert!(root("bus:lan/store").is_err());
        for bad in [
            "/nonexistent",
            "/etc/passwd:vbus:vbus",
            "/etc/passwd:ro:cut",
            "/etc/passwd:raw:ro:qcow2",
            "/etc/passwd:raw:raw",
            "/etc/passwd:bus",
            "bus:lan",
            "bus:lan/store:ro",
            "bus:lan/store:raw",
            "bus:/store",
        ] {
            assert!(disk(bad).is_err(), "{bad}");
        }
    }

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
