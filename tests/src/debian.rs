// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian images for the long tests. `paravane image build` makes them with packages from the
//! mirror of the host's apt. They are kept in the user's cache.

use crate::{program, source_root};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The size of the file system, in MiB.
const SIZE: u32 = 4096;

/// A Debian 12 image with these packages and those of every image. It is made again if the packages
/// or the program have changed.
///
/// # Panics
/// When it cannot be made.
#[must_use]
#[allow(clippy::unwrap_used)] // A failed setup fails the test.
pub fn image(name: &str, packages: &[&str]) -> PathBuf {
    let folder = cache();
    let _alone = lock(&folder, name);
    let (image, made_by) = (
        folder.join(format!("{name}.ext4")),
        folder.join(format!("{name}.recipe")),
    );
    let recipe = fs::read_to_string(source_root().join("monitor/images/src/debian.rs")).unwrap();
    let recipe = format!("{packages:?} {SIZE}\n{recipe}");
    if !image.exists() || fs::read_to_string(&made_by).ok().as_ref() != Some(&recipe) {
        let mut command = program::command();
        command.args([
            "image",
            "build",
            "--suite",
            "bookworm",
            "--size",
            &SIZE.to_string(),
        ]);
        if !packages.is_empty() {
            command.args(["--include", &packages.join(",")]);
        }
        let run = program::finish(command.arg(&image));
        assert_eq!(run.code, 0, "{run:?}");
        fs::write(made_by, recipe).unwrap();
    }
    image
}

/// Waits until no other test, of this program or another one, looks for the thing with this name
/// in a folder of the cache, or makes it. The folder need not exist. The others wait until the
/// value is dropped.
///
/// # Panics
/// When the folder cannot be written.
#[allow(clippy::unwrap_used)] // A failed setup fails the test.
pub(crate) fn lock(folder: &Path, name: &str) -> File {
    fs::create_dir_all(folder).unwrap();
    let lock = File::create(folder.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    lock
}

/// Where the tests keep what they have fetched.
#[must_use]
pub fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"),
        PathBuf::from,
    );
    cache.join("paravane/tests")
}

/// With network servers, a database, containers, and benchmarks for disks and networks.
#[must_use]
pub fn with_services() -> PathBuf {
    image(
        "services",
        &[
            "openssh-server",
            "nginx-light",
            "curl",
            "iperf3",
            "postgresql",
            "fio",
            "podman",
            "netavark",
            "crun",
            "iptables",
            "uidmap",
            "busybox-static",
        ],
    )
}
