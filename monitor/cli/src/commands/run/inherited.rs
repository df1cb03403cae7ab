// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a machine that are named by a descriptor of this program, such as /dev/fd/3.
//!
//! A shell gives pipes and open files such names (`<(...)`). The monitor of a machine in the
//! background has none of this program's descriptors, and a machine may be started later.

use anyhow::bail;
use paravane_machine::spec::Spec;
use std::path::{Path, PathBuf};

/// The most links that are followed, as in Linux.
const LINKS: u32 = 40;

/// Refuses a machine with such a file, which will run in the background.
pub fn refuse(spec: &Spec) -> anyhow::Result<()> {
    let files = [("--kernel", &spec.kernel), ("--initrd", &spec.initrd)];
    let files = files
        .into_iter()
        .filter_map(|(option, file)| Some((option, file.as_deref()?)));
    let rootfs = spec.rootfs.iter().map(|disk| ("--rootfs", &*disk.file));
    let disks = spec.disks.iter().map(|disk| ("--disk", &*disk.file));
    let volumes = spec
        .volumes
        .iter()
        .map(|volume| ("--volume", &*volume.host));
    for (option, file) in files.chain(rootfs).chain(disks).chain(volumes) {
        if is_inherited(file) {
            bail!(
                "{option} {}: a machine in the background does not have the open files of this \
                 program: name a file, or use `run` without --detach",
                file.display()
            );
        }
    }
    Ok(())
}

/// Whether a path leads through the list of this process's descriptors.
fn is_inherited(path: &Path) -> bool {
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        // A path below a descriptor of a folder is in the folder then, so its parts are checked.
        if folder.ancestors().any(|above| is_list(above, &own)) {
            return true;
        }
        let Ok(folder) = folder.canonicalize() else {
            return false;
        };
        if is_list(&folder, &own) {
            return true;
        }
        match std::fs::read_link(folder.join(name)) {
            Ok(target) => path = folder.join(target),
            Err(_) => return false,
        }
    }
    false
}

/// Whether a folder is the list of descriptors of this process, or of one of its threads.
fn is_list(folder: &Path, own: &Path) -> bool {
    folder.canonicalize().is_ok_and(|folder| {
        folder.starts_with(own) && folder.file_name().is_some_and(|name| name == "fd")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn descriptors_of_this_process_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/stdin", &link).unwrap();
        let own = format!("/proc/{}/fd/0", std::process::id());
        for path in [
            "/dev/fd/0",
            // It need not be open any more.
            "/dev/fd/999",
            "/dev/stdin",
            "/proc/self/fd/0",
            "/proc/thread-self/fd/0",
            "/dev/fd/0/file",
            own.as_str(),
            link.to_str().unwrap(),
        ] {
            assert!(is_inherited(Path::new(path)), "{path}");
        }
        let file = folder.path().join("file");
        let parent = format!("/proc/{}/fd/0", std::os::unix::process::parent_id());
        for path in [
            "/dev/null",
            "/dev",
            "/",
            "/no/such/file",
            "/proc/self/exe",
            parent.as_str(),
            file.to_str().unwrap(),
        ] {
            assert!(!is_inherited(Path::new(path)), "{path}");
        }
    }
}
