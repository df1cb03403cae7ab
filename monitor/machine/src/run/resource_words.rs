// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the words by which options name folders and disks.

use super::bus;
use crate::spec::{Disk, DiskDevice, DiskFormat, DiskMode, Volume, VolumeCache};
use anyhow::{Context, bail};
use std::path::PathBuf;

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

/// The words that can follow the folders of a volume.
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
            "slow" => set(&mut device, option, DiskDevice::VirtioSlow),
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
}
