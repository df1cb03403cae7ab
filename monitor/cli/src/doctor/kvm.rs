// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /dev/kvm, and whether `--hypervisor auto` uses it: some hosts have one that only emulates.

use super::child::in_child;
use super::{Finding, Status};
use paravane_hypervisor::kvm;
use paravane_hypervisor::kvm::speed::{self, Speed};
use std::time::Duration;

/// Timeout of the measurement, which takes about 20 ms unless nothing works.
const TIMEOUT: Duration = Duration::from_secs(10);
const PROCESSES: &str = "--hypervisor auto uses processes, which need no KVM";

pub fn finding() -> Finding {
    if let Err(why) = kvm::check() {
        return Finding::new("kvm", Status::Ok, 0, format!("{why:#}; {PROCESSES}"));
    }
    let measured = in_child(TIMEOUT, || speed::measure().ok().map(pack)).map(unpack);
    match measured {
        None => {
            let text = format!("/dev/kvm is there, and does not work; {PROCESSES}");
            Finding::new("kvm", Status::Ok, 0, text)
        }
        Some(speed) => Finding::new("kvm", Status::Ok, speed.instructions, text(speed)),
    }
}

fn text(speed: Speed) -> String {
    let words = speed.words();
    if speed.fast() {
        format!("/dev/kvm runs {words}: hardware virtualization; --hypervisor auto uses it")
    } else {
        format!("/dev/kvm runs {words}: emulated only; {PROCESSES}")
    }
}

/// A child returns one number: thousands of instructions per second, then nanoseconds of an exit.
fn pack(speed: Speed) -> u64 {
    let fit = |value: u64| value.min(u32::MAX.into());
    fit(speed.instructions / 1000) << 32 | fit(speed.exit_ns)
}

fn unpack(packed: u64) -> Speed {
    Speed {
        instructions: (packed >> 32) * 1000,
        exit_ns: packed & u64::from(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numbers_come_out_of_the_child() {
        for (instructions, exit_ns) in [(2_000_000_000, 1500), (4_000_000, 36_000), (0, 1)] {
            let speed = Speed {
                instructions,
                exit_ns,
            };
            assert_eq!(unpack(pack(speed)), speed);
        }
    }

    #[test]
    fn the_consequence_is_told() {
        let of = |instructions, exit_ns| {
            text(Speed {
                instructions,
                exit_ns,
            })
        };
        assert!(of(2_000_000_000, 1500).ends_with("--hypervisor auto uses it"));
        assert!(of(4_000_000, 1500).contains("emulated only"));
    }
}
