// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network namespace of the test's own, in which it may make taps.

use std::env;
use std::fs::File;
use std::process::Command;

/// Set where the test runs in its namespace.
const INSIDE: &str = "PARAVANE_TURMOIL_INSIDE";
/// Seconds that a test may take there besides those of `PARAVANE_TURMOIL_SECONDS`, and in a long
/// run.
const MOST: u64 = 300;
const MOST_OF_ALL: u64 = 1200;
/// The tap, and its end of the wire.
pub const TAP: &str = "vm0";
pub const ADDRESS: [u8; 4] = [10, 9, 0, 1];

/// Where a test goes on.
pub enum Place {
    /// Here, with taps.
    Inside,
    /// Here, without taps: this host has none.
    NoTaps,
    /// It has run, in a process of its own.
    Done,
}

/// Runs this test again in a process and a namespace of its own, if it is not there yet. Such a
/// process has nothing of other tests, either.
pub fn enter(test: &str) -> Place {
    if env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        make_tap();
        return Place::Inside;
    }
    let open = File::options().read(true).write(true).open("/dev/net/tun");
    if let Err(error) = open {
        eprintln!("NOT TESTED: taps. /dev/net/tun: {error}");
        return Place::NoTaps;
    }
    let tried = unshare().arg("true").output().unwrap();
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr);
        eprintln!("NOT TESTED: taps. No network namespace: {}", why.trim());
        return Place::NoTaps;
    }
    let long = env::var_os("PARAVANE_TEST_LONG").is_some();
    let most = if long { MOST_OF_ALL } else { MOST };
    let asked = env::var("PARAVANE_TURMOIL_SECONDS").map_or(0, |text| text.parse().unwrap());
    let again = unshare()
        // A test in the foreground gets the terminal's interrupts.
        .args(["timeout", "--foreground", "--signal=KILL"])
        .arg((most + asked).to_string())
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(again.unwrap().success(), "{test} has failed there");
    Place::Done
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
}

/// Runs `ip` with these words.
pub fn ip(words: &str) {
    try_ip(words).unwrap();
}

fn try_ip(words: &str) -> Result<(), String> {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    let failed = || format!("ip {words}: {}", errors.trim());
    done.status.success().then_some(()).ok_or_else(failed)
}

/// Makes the tap. A vbusd of root that has just found the one before makes one itself, without an
/// address: then that one has to go first.
pub fn make_tap() {
    let address = ADDRESS.map(|byte| byte.to_string()).join(".");
    let add = format!("tuntap add {TAP} mode tap");
    for _ in 0..20 {
        if try_ip(&add).is_ok() {
            break;
        }
        let _ = try_ip(&format!("link del {TAP}"));
    }
    ip(&format!("addr add {address}/24 dev {TAP}"));
    ip(&format!("link set {TAP} up"));
}
