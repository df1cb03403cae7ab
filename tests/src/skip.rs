// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Skips tests that cannot run here. The harness counts a test that returns as passed.
//! `scripts/test.sh` counts it as skipped, by a file to which the test adds a line.
//!
//! Crates that cannot depend on this one have this file as a module of their tests.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// Names the file.
const SKIPPED: &str = "PARAVANE_SKIPPED";

/// Says why the test that calls this is skipped. The test has to return then, and to have tested
/// nothing. A test is known by its thread, so it calls this itself, not from another thread.
///
/// # Panics
/// When the file cannot be written.
pub fn skip(reason: &str) {
    skip_named(&this_test(), reason);
}

/// Says why a part of the test that calls this is skipped. The test counts as passed or failed.
///
/// # Panics
/// When the file cannot be written.
#[allow(dead_code)] // In other crates.
pub fn skip_part(reason: &str) {
    skip_named(&format!("{} (in part)", this_test()), reason);
}

fn this_test() -> String {
    std::thread::current().name().unwrap_or("?").to_string()
}

/// Says why the test with this name is skipped. May be called on any thread.
///
/// # Panics
/// When the file cannot be written.
pub fn skip_named(test: &str, reason: &str) {
    // One line.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("skipped: {test}: {reason}");
    let Some(file) = env::var_os(SKIPPED) else {
        return;
    };
    // target/debug/deps/PROGRAM-HASH
    let this = env::current_exe().unwrap_or_default();
    let this = this.file_stem().unwrap_or_default().to_string_lossy();
    let program = this.rsplit_once('-').map_or(&*this, |(program, _)| program);
    let line = format!("{program} {test}: {reason}\n");
    // Test programs run beside each other, so it is one write.
    let open = OpenOptions::new().append(true).create(true).open(&file);
    let written = open.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "{SKIPPED}={}: {written:?}", file.display());
}
