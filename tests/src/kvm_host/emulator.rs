// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Features that the emulator of the host's processor lacks.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the time-stamp counter's rate is measured.
const MEASURE: Duration = Duration::from_millis(50);

/// The first version that tells KVM of a guest's xsetbv.
const HEARS_XSETBV: (u32, u32) = (8, 1);

/// The first version that changes what a processor has been asked for by atomic instructions.
///
/// Before, `vmrun` with a virtual interrupt does it without a lock (`helper_vmrun`:
/// `interrupt_request |= CPU_INTERRUPT_VIRQ`), while a thread that holds QEMU's lock does so for a
/// timer or for another processor. One of the two is lost now and then. Then a processor of the
/// emulated host sleeps although its APIC has an interrupt for it. Linux's timers and messages to
/// other processors are sent once, so that may last for ever.
const KEEPS_REQUESTS: (u32, u32) = (10, 2);

/// Whether QEMU must run on one CPU of this host to lose no interrupt: there the two changes, each
/// an instruction, cannot overlap.
pub(super) fn needs_one_cpu() -> bool {
    version() < KEEPS_REQUESTS
}

/// Options of `paravane conformance` that name what this QEMU does not emulate, so that the suite
/// skips the test and says why. Each begins with a space.
pub(super) fn unemulated() -> &'static str {
    if version() < HEARS_XSETBV {
        " --append xsetbv=unheard"
    } else {
        ""
    }
}

fn version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let output = Command::new(super::QEMU).arg("--version").output();
        let said = output.unwrap_or_else(|error| panic!("{}: {error}", super::QEMU));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        numbers(&said).unwrap_or_else(|| panic!("{}: no version in `{said}`", super::QEMU))
    })
}

/// The two numbers of a line like `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)`.
fn numbers(said: &str) -> Option<(u32, u32)> {
    let (_, rest) = said.split_once("version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The rate of the time-stamp counter in kHz, which is this host's in the emulator, too.
///
/// The emulated host would measure it by a timer that interrupts late on a busy host, and its clock
/// would go many times as fast as it should.
pub(super) fn counter_khz() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (ticks, begun) = tightest();
        std::thread::sleep(MEASURE);
        let (later, end) = tightest();
        let ns = end.duration_since(begun).as_nanos();
        u64::try_from(u128::from(later - ticks) * 1_000_000 / ns).unwrap()
    })
}

/// The counter and the time of one moment: of several tries the one that took least, because this
/// thread may be interrupted between the two.
fn tightest() -> (u64, Instant) {
    let read = |_| {
        let before = counter();
        let now = Instant::now();
        (counter() - before, before, now)
    };
    let (took, before, now) = (0..20).map(read).min_by_key(|sample| sample.0).unwrap();
    (before + took / 2, now)
}

fn counter() -> u64 {
    // SAFETY: it only reads a register, which every x86-64 has.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::{HEARS_XSETBV, KEEPS_REQUESTS, counter_khz, numbers, tightest};
    use std::time::Duration;

    #[test]
    fn the_counter_s_rate_is_right() {
        let (ticks, begun) = tightest();
        std::thread::sleep(Duration::from_millis(300));
        let (later, end) = tightest();
        let us = u64::try_from(end.duration_since(begun).as_micros()).unwrap();
        let khz = (later - ticks) * 1000 / us;
        let told = counter_khz();
        assert!(told.abs_diff(khz) < khz / 50, "{told} kHz, not {khz}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let of = |text| numbers(text).unwrap();
        let old = of("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)");
        assert_eq!(old, (7, 2));
        assert!(old < HEARS_XSETBV && of("QEMU emulator version 10.0.0") > HEARS_XSETBV);
        assert!(of("QEMU emulator version 8.1.0-rc1") == HEARS_XSETBV);
        assert!(
            of("QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)") < KEEPS_REQUESTS
        );
        assert!(of("QEMU emulator version 10.2.0") == KEEPS_REQUESTS);
        assert_eq!(numbers("no"), None);
    }
}
