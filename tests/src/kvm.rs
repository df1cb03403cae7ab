// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The KVM of the host that runs the tests.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::program;
use crate::skip::skip;
use serde_json::Value;
use std::sync::OnceLock;

/// Instructions per second below which a KVM only emulates, as the monitor has it.
pub const EMULATED: u64 = 100_000_000;

/// Instructions per second of the host's KVM, or why it cannot be used.
///
/// # Errors
/// The reason that `paravane doctor` gives.
///
/// # Panics
/// When `paravane doctor` says nothing of KVM.
pub fn speed() -> Result<u64, String> {
    static SPEED: OnceLock<Result<u64, String>> = OnceLock::new();
    let measure = || {
        let doctor = program::run(["doctor", "--json"]);
        let report: Value = serde_json::from_str(&doctor.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let kvm = findings.iter().find(|f| f["name"] == "kvm").unwrap();
        let text = kvm["text"].as_str().unwrap().to_string();
        eprintln!("calibration: {text}");
        match kvm["value"].as_u64().unwrap() {
            0 => Err(text),
            rate => Ok(rate),
        }
    };
    SPEED.get_or_init(measure).clone()
}

/// The speed. If there is none, the test is skipped.
#[must_use]
pub fn usable() -> Option<u64> {
    speed().map_err(|why| skip(&why)).ok()
}

/// Whether it is hardware's. If not, the test is skipped.
#[must_use]
pub fn is_fast() -> bool {
    let why = match speed() {
        Ok(rate) if rate >= EMULATED => return true,
        Ok(_) => "it needs a KVM that does not emulate".to_string(),
        Err(why) => why,
    };
    skip(&why);
    false
}
