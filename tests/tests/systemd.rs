// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Debian with its own systemd as process 1.
//!
//! The image is made by `paravane image build`, which takes packages from Debian's mirror; it is kept for the next run.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use paravane_tests::{program, vm};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;

const LONG: &str = "PARAVANE_TEST_LONG";

/// The image in the user's cache; made if it is not there.
fn debian() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    let folder = cache.join("paravane/tests");
    let image = folder.join("bookworm.ext4");
    if !image.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let run = program::run([
            "image".as_ref(),
            "build".as_ref(),
            "--size".as_ref(),
            "2048".as_ref(),
            image.as_os_str(),
        ]);
        assert_eq!(run.code, 0, "{run:?}");
    }
    image
}

struct User(TempDir);

impl User {
    fn finish(&self, command: &mut Command) -> program::Run {
        program::finish(command.env("XDG_STATE_HOME", self.0.path()))
    }

    fn ok(&self, words: &[&str]) -> String {
        let run = self.finish(program::command().args(words));
        assert_eq!(run.code, 0, "{words:?}: {run:?}");
        run.stdout
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.finish(program::command().args(["rm", "--force", "debian"]));
    }
}

#[test]
fn debian_comes_up_whole_and_goes_down_in_order() {
    if std::env::var_os(LONG).is_none() {
        return;
    }
    let image = debian();
    let user = User(tempfile::tempdir().unwrap());
    let root = format!("{}:snapshot", image.display());
    let begun = Instant::now();
    let mut command = vm::command(["--detach", "--name", "debian", "--memory", "512M", "--cpus", "2"]);
    let run = user.finish(command.args(["--net", "user", "--rootfs", &root]));
    assert_eq!((run.code, run.stdout.as_str()), (0, "debian\n"), "{run:?}");
    let inside = |words: &[&str]| user.ok(&[&["exec", "debian", "--"], words].concat());

    let state =
        user.finish(program::command().args(["exec", "debian", "--", "systemctl", "is-system-running", "--wait"]));
    let failed = inside(&["systemctl", "--failed", "--plain", "--no-legend"]);
    assert_eq!(
        (state.stdout.as_str(), failed.as_str()),
        ("running\n", ""),
        "{}",
        user.ok(&["logs", "debian"])
    );
    println!("up after {:?}", begun.elapsed());
    assert_eq!(inside(&["cat", "/proc/1/comm"]), "systemd\n");
    assert_eq!(inside(&["systemctl", "is-active", "multi-user.target"]), "active\n");
    // By DHCP, since the image says so.
    assert!(inside(&["networkctl", "status", "eth0"]).contains("DHCP"), "no DHCP");
    let journal = inside(&["journalctl", "--boot", "--priority", "err", "--no-pager", "--quiet"]);
    assert_eq!(journal, "", "errors in the journal");

    assert!(user.ok(&["logs", "debian"]).contains("Debian"), "no console");
    inside(&["sh", "-c", "echo kept > /var/tmp/kept"]);
    user.ok(&["stop", "--time", "60", "debian"]);
    assert!(
        user.ok(&["ps", "--all"]).contains("exited 0"),
        "{}",
        user.ok(&["ps", "--all"])
    );
    let log = user.ok(&["logs", "debian"]);
    assert!(log.contains("Power down") || log.contains("Powering off"), "{log}");
}
