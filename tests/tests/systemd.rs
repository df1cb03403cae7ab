// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Debian with its own systemd as process 1.
//!
//! Takes a mirror: `make test-release` runs it.

use paravane_tests::{debian, program, system::System};
use std::time::Instant;

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn debian_starts_every_unit_and_shuts_down_in_order() {
    let image = debian::image("bookworm", &[]);
    // Build it before time is measured.
    let _ = program::path();
    let begun = Instant::now();
    let system = System::start(
        &image,
        &["--memory", "512M", "--cpus", "2", "--net", "user"],
    );
    system.is_up();
    println!("up after {:?}", begun.elapsed());
    assert_eq!(system.inside(&["cat", "/proc/1/comm"]), "systemd\n");
    assert_eq!(
        system.inside(&["systemctl", "is-active", "multi-user.target"]),
        "active\n"
    );
    // By DHCP, since the image is configured so.
    assert!(
        system
            .inside(&["networkctl", "status", "eth0"])
            .contains("DHCP"),
        "no DHCP"
    );
    let journal = system.inside(&[
        "journalctl",
        "--boot",
        "--priority",
        "err",
        "--no-pager",
        "--quiet",
    ]);
    assert_eq!(journal, "", "errors in the journal");
    let list = system.ok(&["ps"]);
    assert!(list.contains("debian  running"), "{list}");

    // A command that takes all memory ends, and nothing else.
    let other = ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"];
    let other = system.inside(&other);
    let run = system.run(&["exec", "debian", "--", "tail", "/dev/zero"]);
    assert_eq!(run.code, 137, "{run:?}");
    let _ = system.inside(&["kill", other.trim()]);
    assert_eq!(
        system.inside(&["systemctl", "is-active", "paravane-agent"]),
        "active\n"
    );
    assert_eq!(system.inside(&["cat", "/proc/self/oom_score_adj"]), "0\n");

    assert!(
        system.ok(&["logs", "debian"]).contains("Debian"),
        "no console"
    );
    let _ = system.ok(&["stop", "--time", "60", "debian"]);
    let list = system.ok(&["ps", "--all"]);
    assert!(list.contains("exited 0"), "{list}");
    let log = system.ok(&["logs", "debian"]);
    assert!(
        log.contains("Power down") || log.contains("Powering off"),
        "{log}"
    );
}
