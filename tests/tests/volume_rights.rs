// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's knowledge of the rights that files of a shared folder give: setuid, setgid and
//! capabilities.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::skip::skip;
use paravane_tests::worker::Worker;
use paravane_tests::{linux, source_root};
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// The guest sees a change after some milliseconds, or a second where none are reported. One that
/// is not reported by mistake it would see after 30 s. A busy host may stop the machine in between.
const BOUND: Duration = Duration::from_secs(10);

/// Puts the program there that shows them.
fn program(folder: &Path) {
    let source = source_root().join("tests/guest/privs");
    linux::compile(&source, &folder.join("privs"));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// The host takes setuid and setgid from a file that the guest writes to. The guest knows the mode
/// that the file had, and not every answer to its requests reports the new mode.
#[test]
fn rights_that_a_write_takes_away_are_gone_in_the_guest() {
    let mut machine = Worker::in_volume("", program);
    // Only the mode, which what was written does not make unknown.
    let look = "./privs mode f";
    for write in [
        "echo evil >>f",
        "echo evil 1<>f",
        ": >f",
        "truncate -s 1 f",
        "fallocate -l 4096 f",
        // The answer to the first has the rights, and what the second does is the guest's own.
        "touch f; echo evil >>f",
    ] {
        let file = machine.shared().join("f");
        let _ = fs::remove_file(&file);
        fs::write(&file, "host").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o6755)).unwrap();
        machine.until(BOUND, look, "6755");
        machine.does(write);
        assert_eq!(mode(&file), 0o755, "{write}");
        machine.until(BOUND, look, "755");
    }
    machine.end();
}

/// A guest remembers that a program has no capabilities, until it gets some. With
/// `cache=none` each start asks.
#[test]
fn capabilities_that_the_host_gives_are_seen() {
    // Version 2, effective: CAP_SETUID.
    let capability: Vec<u8> = [0x0200_0001, 1 << 7, 0, 0, 0u32]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let look = "./privs start ./privs";
    for (options, bound) in [("", BOUND), (":cache=none", Duration::ZERO)] {
        let mut machine = Worker::in_volume(options, program);
        let file = machine.shared().join("privs");
        for round in 0..10 {
            machine.until(bound, look, "0");
            let given = setxattr(
                &file,
                c"security.capability",
                &capability,
                XattrFlags::empty(),
            );
            if round == 0 && given == Err(Errno::PERM) {
                skip("only root gives capabilities");
                machine.end();
                return;
            }
            given.unwrap();
            machine.until(bound, look, "80");
            rustix::fs::removexattr(&file, c"security.capability").unwrap();
        }
        machine.end();
    }
}

/// The host does not report a guest's own changes to the guest.
#[test]
fn capabilities_that_the_guest_gives_are_in_force_at_once() {
    let mut machine = Worker::in_volume(":suid", program);
    let look = "./privs start ./privs";
    for round in 0..10 {
        assert_eq!(machine.tell(look).trim(), "0", "{round}");
        let given = machine.tell("./privs give privs 2>&1");
        if round == 0 && given.contains("Operation not permitted") {
            skip("only root gives capabilities");
            machine.end();
            return;
        }
        assert_eq!(given.trim(), "", "{round}");
        assert_eq!(machine.tell(look).trim(), "80", "{round}");
        assert_eq!(
            machine.tell("./privs take privs 2>&1").trim(),
            "",
            "{round}"
        );
    }
    machine.end();
}
