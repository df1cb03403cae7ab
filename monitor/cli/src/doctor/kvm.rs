// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /dev/kvm, and whether `--hypervisor auto` uses it: some hosts have one that only emulates.

use super::child::in_child;
use super::{Finding, Status};
use paravane_hypervisor::kvm;
use paravane_hypervisor::kvm::speed::{self, Speed};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

/// Timeout of the measurement, which takes about 20 ms unless nothing works.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the reason why there is no measurement.
const LONGEST: u64 = 1000;
const PROCESSES: &str = "--hypervisor auto uses processes, which need no KVM";

/// How machines get the host's KVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kvm {
    /// Never.
    No,
    /// With `--hypervisor kvm`.
    OnRequest,
    /// With `--hypervisor auto`, too.
    Default,
}

pub fn finding() -> (Finding, Kvm) {
    let without = |text: String| (Finding::new("kvm", Status::Ok, 0, text), Kvm::No);
    if let Err(why) = kvm::check() {
        return without(format!("{why:#}; {PROCESSES}"));
    }
    match explained(TIMEOUT, || speed::measure().map(pack)).map(unpack) {
        Err(why) => without(format!(
            "/dev/kvm is there, and does not work: {why}; {PROCESSES}"
        )),
        Ok(speed) => {
            let kvm = if speed.fast() {
                Kvm::Default
            } else {
                Kvm::OnRequest
            };
            let finding = Finding::new("kvm", Status::Ok, speed.instructions, text(speed));
            (finding, kvm)
        }
    }
}

/// Runs `body` in a child. Returns its result, or why there is none.
fn explained(timeout: Duration, body: impl FnOnce() -> anyhow::Result<u64>) -> Result<u64, String> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string())?;
    let child = move || {
        let tell = |why: &anyhow::Error| {
            // The parent only misses the reason.
            let _ = File::from(write).write_all(format!("{why:#}").as_bytes());
        };
        body().inspect_err(tell).ok()
    };
    in_child(timeout, child).ok_or_else(|| {
        // Both processes have closed the other end: the child has ended.
        let mut why = String::new();
        let _ = File::from(read).take(LONGEST).read_to_string(&mut why);
        match why.is_empty() {
            true => format!("a trial ended without a result, or took more than {timeout:?}"),
            false => why,
        }
    })
}

fn text(speed: Speed) -> String {
    let words = speed.words();
    if speed.fast() {
        format!("/dev/kvm runs {words}: hardware virtualization; --hypervisor auto uses it")
    } else if speed.emulated() {
        format!("/dev/kvm runs {words}: emulated only; {PROCESSES}")
    } else if speed.slow_exits() {
        format!("/dev/kvm runs {words}: exits are slow; {PROCESSES}")
    } else {
        format!("/dev/kvm runs {words}: slow; {PROCESSES}")
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
        let nested = of(1_300_000_000, 36_000);
        assert!(nested.contains(": exits are slow; --hypervisor auto uses processes"));
        assert!(of(60_000_000, 1500).contains(": slow; "));
    }

    #[test]
    fn the_child_tells_why_it_has_no_numbers() {
        let long = Duration::from_secs(5);
        assert_eq!(explained(long, || Ok(7)), Ok(7));
        let why = explained(long, || anyhow::bail!("no room"));
        assert_eq!(why, Err("no room".to_string()));
        let hangs = || loop {
            std::thread::park();
        };
        let why = explained(Duration::from_millis(20), hangs).unwrap_err();
        assert!(why.ends_with("took more than 20ms"), "{why}");
    }
}
