// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the emulator of the host's processor lacks.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use std::process::Command;
use std::sync::OnceLock;

/// The first version that tells KVM of a guest's xsetbv.
const HEARS_XSETBV: (u32, u32) = (8, 1);

/// Options of `paravane conformance` that name what this QEMU does not emulate, so that the suite
/// skips the test and says why. Each begins with a space.
///
/// # Panics
/// When QEMU does not say its version.
#[must_use]
pub fn unemulated() -> &'static str {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        let output = Command::new(super::QEMU).arg("--version").output();
        let said = output.unwrap_or_else(|error| panic!("{}: {error}", super::QEMU));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        version(&said).unwrap_or_else(|| panic!("{}: no version in `{said}`", super::QEMU))
    });
    if *version < HEARS_XSETBV {
        " --append xsetbv=unheard"
    } else {
        ""
    }
}

/// The two numbers of a line like `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)`.
fn version(said: &str) -> Option<(u32, u32)> {
    let (_, rest) = said.split_once("version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{HEARS_XSETBV, version};

    #[test]
    fn versions_are_compared_as_numbers() {
        let of = |text| version(text).unwrap();
        let old = of("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)");
        assert_eq!(old, (7, 2));
        assert!(old < HEARS_XSETBV && of("QEMU emulator version 10.0.0") > HEARS_XSETBV);
        assert!(of("QEMU emulator version 8.1.0-rc1") == HEARS_XSETBV);
        assert_eq!(version("no"), None);
    }
}
