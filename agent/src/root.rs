// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes from the initial root to the machine's root.
//!
//! `paravane.root=` on the kernel's command line names it: `/dev/NAME` for a disk, which is mounted
//! read-write if possible, or `virtiofs:TAG`. A root that cannot be written gets an overlay in
//! memory.

use crate::mounts::make_directory;
use rustix::fs::CWD;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_move, unmount};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const OPTION: &str = "paravane.root=";
const ROOT: &str = "/paravane/root";
/// Time for the driver to find the disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Changes to the machine's root, if it has one. Returns the kernel's command line.
pub fn change() -> io::Result<String> {
    temporary("proc", "/proc")?;
    let line = fs::read_to_string("/proc/cmdline")?;
    let Some(root) = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix(OPTION))
    else {
        // The initial root stays, and gets this mount with the others.
        unmount("/proc", UnmountFlags::empty())?;
        return Ok(line);
    };
    let named = |error: io::Error| io::Error::other(format!("the root {root}: {error}"));
    let writable = match root.strip_prefix("virtiofs:") {
        Some(tag) => {
            make_directory(Path::new(ROOT))?;
            mount(tag, ROOT, "virtiofs", MountFlags::RDONLY, None).map_err(|e| named(e.into()))?;
            false
        }
        None => disk(root).map_err(named)?,
    };
    if !writable {
        overlay().map_err(named)?;
    }
    std::env::set_current_dir(ROOT)?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")?;
    Ok(line)
}

/// Mounts a file system in memory on the initial root.
fn temporary(kind: &str, place: &str) -> io::Result<()> {
    make_directory(Path::new(place))?;
    match mount(kind, place, kind, MountFlags::empty(), None) {
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Mounts a disk, whatever its file system is. Returns whether the root can be written.
fn disk(device: &str) -> io::Result<bool> {
    temporary("devtmpfs", "/dev")?;
    let begun = Instant::now();
    while rustix::fs::statat(CWD, device, rustix::fs::AtFlags::empty()).is_err() {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("there is no such disk"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    make_directory(Path::new(ROOT))?;
    // Trying one file system after the other is no error, so most attempts are silent. The last
    // ones let the kernel log why they fail.
    let quiet = [MountFlags::SILENT, MountFlags::SILENT | MountFlags::RDONLY];
    for flags in quiet.into_iter().chain([MountFlags::RDONLY]) {
        for line in fs::read_to_string("/proc/filesystems")?.lines() {
            // Lines of file systems without a device start with a word.
            let Some(kind) = line.strip_prefix('\t') else {
                continue;
            };
            if mount(device, ROOT, kind, flags, None).is_ok() {
                // A file system without writes mounts without complaint on a read-only disk.
                let writes = !flags.contains(MountFlags::RDONLY)
                    && !["squashfs", "erofs", "iso9660"].contains(&kind);
                return Ok(writes);
            }
        }
    }
    Err(io::Error::other(
        "there is no file system on it that this kernel knows, or it is damaged",
    ))
}

/// Mounts an overlay in memory over the root.
fn overlay() -> io::Result<()> {
    let (below, layer) = ("/paravane/below", "/paravane/layer");
    make_directory(Path::new(below))?;
    mount_move(ROOT, below)?;
    temporary("tmpfs", layer)?;
    for folder in ["upper", "work"] {
        make_directory(&Path::new(layer).join(folder))?;
    }
    let options =
        c"lowerdir=/paravane/below,upperdir=/paravane/layer/upper,workdir=/paravane/layer/work";
    mount("overlay", ROOT, "overlay", MountFlags::empty(), options)?;
    Ok(())
}
