// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the host's KVM is fast: some hosts have one that only emulates.

use super::host;
use anyhow::{Context, bail};
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use vm_memory::MmapRegion;

/// Instructions per second. A slower processor is emulated.
const SLOW_RATE: u64 = 100_000_000;
/// Instructions per second of a KVM that emulates each: a few millions. A processor that has to
/// share a busy host is not as slow.
const EMULATED_RATE: u64 = 20_000_000;
/// The cost of an exit to this program in ns. A more expensive one is emulated.
const SLOW_EXIT: u64 = 20_000;
/// The time of each of the two measurements.
const MEASURE: Duration = Duration::from_millis(8);
/// The samples of each, however long they take.
const FEWEST: u32 = 12;
const PAGE: usize = 4096;
/// dec %ecx; jnz back to it; out %al, $0x10; jmp to the out
const CODE: [u8; 8] = [0x66, 0x49, 0x75, 0xfc, 0xe6, 0x10, 0xeb, 0xfc];
const LOOP: u64 = 0;
/// Rounds of the first loop.
const ROUNDS: u64 = 500;
/// The largest number of rounds: a fast processor needs a millisecond for them.
const MOST_ROUNDS: u64 = 2_000_000;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speed {
    /// Instructions per second.
    pub instructions: u64,
    /// The cost of an exit to this program and back in nanoseconds.
    pub exit_ns: u64,
}

impl Speed {
    /// Whether machines on this KVM are fast.
    pub fn fast(self) -> bool {
        self.instructions >= SLOW_RATE && !self.slow_exits()
    }

    /// Whether the processor of a machine on this KVM is emulated. One that is merely slow to
    /// leave, as on a host that is a virtual machine itself, is not.
    pub fn emulated(self) -> bool {
        self.instructions < EMULATED_RATE
    }

    /// Whether exits to this program cost too much.
    pub fn slow_exits(self) -> bool {
        self.exit_ns > SLOW_EXIT
    }

    /// Both numbers, for people.
    pub fn words(self) -> String {
        format!(
            "{}.{} million instructions per second, {}.{} us for an exit",
            self.instructions / 1_000_000,
            self.instructions / 100_000 % 10,
            self.exit_ns / 1000,
            self.exit_ns / 100 % 10
        )
    }
}

/// Measures both in about 20 ms on an idle host, on a machine of one page.
///
/// # Errors
/// Why this KVM cannot be used.
pub fn measure() -> anyhow::Result<Speed> {
    let kvm = host::open()?;
    let complain = "the host's KVM does not run a machine of one page";
    let page: MmapRegion = MmapRegion::new(PAGE).context("cannot make guest memory")?;
    for (at, byte) in CODE.into_iter().enumerate() {
        // SAFETY: inside of the page, to which no other reference exists.
        unsafe { page.as_ptr().add(at).write_volatile(byte) };
    }
    let machine = host::create(&kvm)?;
    let mut vcpu = prepare(&machine, &page).context(complain)?;
    // The first exits pay for the start.
    run(&mut vcpu, LOOP, ROUNDS)?;
    let (mut rounds, mut best, mut begun) = (ROUNDS, 0, Instant::now());
    let mut samples = Samples::start();
    while samples.more() {
        run(&mut vcpu, LOOP, rounds)?;
        let took = begun.elapsed();
        begun = Instant::now();
        best = best.max(per_second(2 * rounds + 1, took));
        if took * 8 < MEASURE {
            rounds = (rounds * 2).min(MOST_ROUNDS);
        }
    }
    let mut cheapest = Duration::MAX;
    let mut samples = Samples::start();
    while samples.more() {
        let begun = Instant::now();
        exit(&mut vcpu)?;
        cheapest = cheapest.min(begun.elapsed());
    }
    Ok(Speed {
        instructions: best,
        exit_ns: u64::try_from(cheapest.as_nanos())?,
    })
}

fn per_second(instructions: u64, time: Duration) -> u64 {
    let rate = u128::from(instructions) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The best of many counts, so that the host's other programs do not: on a busy host the processor
/// may be away for longer than the whole measurement.
struct Samples {
    begun: Instant,
    count: u32,
}

impl Samples {
    fn start() -> Self {
        Samples {
            begun: Instant::now(),
            count: 0,
        }
    }

    /// Whether one more follows.
    fn more(&mut self) -> bool {
        self.count += 1;
        self.count <= FEWEST || self.begun.elapsed() < MEASURE
    }
}

fn prepare(machine: &VmFd, page: &MmapRegion) -> anyhow::Result<VcpuFd> {
    let region = kvm_userspace_memory_region {
        memory_size: PAGE as u64,
        userspace_addr: page.as_ptr().addr() as u64,
        ..Default::default()
    };
    // SAFETY: the caller drops the page after the machine and the virtual CPU, which it declared
    // later.
    unsafe { machine.set_user_memory_region(region)? };
    let vcpu = machine.create_vcpu(0)?;
    let mut segments = vcpu.get_sregs()?;
    (segments.cs.base, segments.cs.selector) = (0, 0);
    vcpu.set_sregs(&segments)?;
    Ok(vcpu)
}

/// Runs the loop, up to the next exit.
fn run(vcpu: &mut VcpuFd, at: u64, rounds: u64) -> anyhow::Result<()> {
    let mut registers = vcpu.get_regs()?;
    (registers.rip, registers.rcx, registers.rflags) = (at, rounds, 2);
    vcpu.set_regs(&registers)?;
    exit(vcpu)
}

/// Runs up to the next exit, which is an access of a port.
fn exit(vcpu: &mut VcpuFd) -> anyhow::Result<()> {
    match vcpu.run()? {
        VcpuExit::IoOut(..) => Ok(()),
        other => bail!("the host's KVM makes an unexpected exit: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn speed(instructions: u64, exit_ns: u64) -> Speed {
        Speed {
            instructions,
            exit_ns,
        }
    }

    #[test]
    fn both_must_be_fast() {
        assert!(speed(2_000_000_000, 1200).fast());
        assert!(!speed(4_000_000, 1200).fast());
        assert!(!speed(1_300_000_000, 36_000).fast());
    }

    #[test]
    fn the_words_have_both_numbers() {
        let words = speed(4_200_000, 36_150).words();
        assert_eq!(
            words,
            "4.2 million instructions per second, 36.1 us for an exit"
        );
    }

    #[test]
    fn a_busy_host_gets_its_samples() {
        let mut late = Samples {
            begun: Instant::now() - 2 * MEASURE,
            count: 0,
        };
        let count = (0..100).take_while(|_| late.more()).count();
        assert_eq!(count, FEWEST as usize);
        assert_eq!(
            per_second(5000, Duration::from_micros(10)),
            500_000_000,
            "a rate"
        );
    }

    /// On a host with KVM, the measurement takes no longer than promised, with some time added for
    /// a busy host.
    #[test]
    fn a_measurement_is_short() {
        let begun = Instant::now();
        match measure() {
            Ok(speed) => {
                eprintln!("{}", speed.words());
                assert!(speed.instructions > 1000 && speed.exit_ns > 50, "{speed:?}");
                assert!(
                    begun.elapsed() < Duration::from_secs(2),
                    "{:?}",
                    begun.elapsed()
                );
            }
            Err(why) => eprintln!("skipped: {why:#}"),
        }
    }
}
