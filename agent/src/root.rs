// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Going from the initial root to the one that the machine was given.
//!
//! `paravane.root=` on the kernel's command line names it: `/dev/NAME` (a disk, written to if that is possible), or
//! `virtiofs:TAG`. What cannot or must not be written to lies below a layer in memory that takes the writes.

use crate::mounts::make_folder;
use rustix::fs::CWD;
use rustix::mount::{MountFlags, mount, mount_move};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const OPTION: &str = "paravane.root=";
const ROOT: &str = "/paravane/root";
/// A disk is there when its driver has found it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the machine's root the root, if it has one. What comes back is the kernel's command line.
pub fn change() -> io::Result<String> {
    temporary("proc", "/proc")?;
    let line = fs::read_to_string("/proc/cmdline")?;
    let Some(root) = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix(OPTION))
    else {
        return Ok(line);
    };
    let named = |error: io::Error| io::Error::other(format!("the root {root}: {error}"));
    let writable = match root.strip_prefix("virtiofs:") {
        Some(tag) => {
            make_folder(Path::new(ROOT))?;
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

fn temporary(kind: &str, place: &str) -> io::Result<()> {
    make_folder(Path::new(place))?;
    match mount(kind, place, kind, MountFlags::empty(), None) {
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Mounts a disk with whatever file system is on it. True: it can be written to.
fn disk(device: &str) -> io::Result<bool> {
    temporary("devtmpfs", "/dev")?;
    let begun = Instant::now();
    while rustix::fs::statat(CWD, device, rustix::fs::AtFlags::empty()).is_err() {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("there is no such disk"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    make_folder(Path::new(ROOT))?;
    // That a file system is not on it is no error, so they are to be silent; but when none is, the kernel's log shall say why.
    let quiet = [MountFlags::SILENT, MountFlags::SILENT | MountFlags::RDONLY];
    for flags in quiet.into_iter().chain([MountFlags::RDONLY]) {
        for line in fs::read_to_string("/proc/filesystems")?.lines() {
            // Those without a device have a word in front.
            let Some(kind) = line.strip_prefix('\t') else {
                continue;
            };
            if mount(device, ROOT, kind, flags, None).is_ok() {
                // A read-only disk can be mounted for writing by a file system that never writes.
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

/// Puts a layer in memory over the root.
fn overlay() -> io::Result<()> {
    let (below, layer) = ("/paravane/below", "/paravane/layer");
    make_folder(Path::new(below))?;
    mount_move(ROOT, below)?;
    temporary("tmpfs", layer)?;
    for folder in ["upper", "work"] {
        make_folder(&Path::new(layer).join(folder))?;
    }
    let options =
        c"lowerdir=/paravane/below,upperdir=/paravane/layer/upper,workdir=/paravane/layer/work";
    mount("overlay", ROOT, "overlay", MountFlags::empty(), options)?;
    Ok(())
}
