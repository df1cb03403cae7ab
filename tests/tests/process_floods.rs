// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests that make the host use memory: page tables, mappings, private memory. The monitor ends a
//! machine that exceeds its budget, within a quarter of a second.

// Alone: it measures time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_abi::process::{PHV_ARENA_SIZE, PHV_STACK_SIZE};
use paravane_tests::hostile::{check, command};
use paravane_tests::over::Over;
use paravane_tests::program::{self, Run};
use paravane_tests::tree;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most MiB that a machine may use beyond its budget, and the time until it ends.
const OVERSHOOT: u64 = 256;
const END: Duration = Duration::from_millis(250);

static ALONE: Mutex<()> = Mutex::new(());

/// A line of the host's /proc/meminfo, in MiB.
fn of_host(kind: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|l| l.starts_with(kind)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        >> 10
}

/// Memory that the host has available, in MiB.
fn available() -> u64 {
    of_host("MemAvailable")
}

/// Memory of the host kernel's own structures, such as those of mappings, in MiB.
fn structures() -> u64 {
    of_host("SUnreclaim")
}

/// What a machine used while it ran.
struct Taken {
    run: Run,
    /// Time, and KiB of page tables and private memory of all processes.
    samples: Vec<(Instant, u64)>,
    /// The most private memory of all processes, in KiB.
    private: u64,
    /// The most that the host's shared memory grew, in MiB: the machine's RAM, as far as the guest
    /// uses it, and what its processes share. Other programs change it, too.
    shared: u64,
    /// When its last process was gone.
    gone: Instant,
    /// The most that the available memory of the host shrank, in MiB. Other programs change it,
    /// too.
    host: u64,
    /// The most that the host kernel's structures grew, in MiB.
    structures: u64,
}

impl Taken {
    /// Runs a machine and samples its memory.
    fn by(command: &mut Command) -> Self {
        let (before, structures_before) = (available(), structures());
        let shared_before = of_host("Shmem:");
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let monitor = child.id();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let guard = Over(&done);
            let sampler = scope.spawn(|| {
                let (mut samples, mut least, mut gone, mut started) =
                    (Vec::new(), before, Instant::now(), false);
                let (mut most_structures, mut most_shared, mut private) = (0, 0, 0);
                let (mut spaces, mut looked) = (Vec::new(), Instant::now());
                while !done.load(Ordering::Relaxed) {
                    least = least.min(available());
                    most_structures = structures().max(most_structures);
                    most_shared = of_host("Shmem:").max(most_shared);
                    // To find processes takes longer than to sample them, and a flood creates none.
                    if looked.elapsed() > Duration::from_millis(20) {
                        spaces = tree::spaces(monitor);
                        looked = Instant::now();
                    }
                    spaces.retain(|&pid| tree::overhead(pid).is_some());
                    if !spaces.is_empty() {
                        started = true;
                        gone = Instant::now();
                    }
                    // Without mappings: to count those takes long.
                    let overheads = spaces.iter().filter_map(|&pid| tree::overhead(pid));
                    let add = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
                    let kib = overheads.fold([0; 2], add);
                    samples.push((Instant::now(), kib[0] + kib[1]));
                    private = kib[1].max(private);
                    std::thread::sleep(Duration::from_millis(2));
                }
                assert!(started, "it had no processes");
                let most = [private, most_shared, most_structures];
                (samples, least, most, gone)
            });
            let run = program::finish_child(child);
            drop(guard);
            let (samples, least, most, gone) = sampler.join().unwrap();
            let [private, most_shared, most_structures] = most;
            Taken {
                run,
                samples,
                private,
                shared: most_shared.saturating_sub(shared_before),
                gone,
                host: before.saturating_sub(least),
                structures: most_structures.saturating_sub(structures_before),
            }
        })
    }

    /// The most page tables and private memory, in MiB.
    fn most(&self) -> u64 {
        self.samples.iter().map(|&(_, kib)| kib).max().unwrap_or(0) >> 10
    }

    /// From the first sample above this number of MiB: the time until the memory stopped growing,
    /// the time until all processes had ended, and how much of it this thread, too, had no
    /// processor.
    fn late(&self, budget: u64) -> Option<[Duration; 3]> {
        let over = self
            .samples
            .iter()
            .position(|(_, kib)| kib >> 10 > budget)?;
        let last = self.samples.iter().max_by_key(|(_, kib)| kib)?.0;
        let start = self.samples[over].0;
        // The machine may have passed the limit just after the sample before.
        let pairs = self.samples[over.saturating_sub(1)..].windows(2);
        let starved = pairs
            .map(|pair| pair[1].0.duration_since(pair[0].0).saturating_sub(SAMPLE))
            .sum();
        Some([
            last.duration_since(start),
            self.gone.duration_since(start),
            starved,
        ])
    }
}

/// The budget that the message of the monitor names, in MiB.
fn budget(run: &Run) -> u64 {
    let line = run
        .stdout
        .lines()
        .find(|l| l.contains("the budget is "))
        .unwrap();
    let words = line.split("the budget is ").nth(1).unwrap();
    words.split(' ').next().unwrap().parse().unwrap()
}

/// Interval between two samples when a processor is free.
const SAMPLE: Duration = Duration::from_millis(20);
/// If this thread lacked a processor for longer, the times say nothing about the monitor.
const STARVED: Duration = Duration::from_millis(50);
/// Time for the monitor to get a processor, and for the host to free the memory of the processes.
const TOLERANCE: Duration = Duration::from_millis(250);

/// Page tables of the host, made by host calls: two tables for each page (0), full tables (1),
/// first tables in all processes (8).
#[test]
fn floods_of_tables_are_ended() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in [0, 1, 8] {
        let mut machine = command("flood", &[format!("kind={kind}")]);
        let taken = Taken::by(machine.args(["--cpus", "2", "--timeout", "60"]));
        check(&taken.run, "flood");
        assert!(
            taken
                .run
                .stdout
                .contains("of the host's page tables and private memory"),
            "kind {kind}: {:?}",
            taken.run
        );
        let budget = budget(&taken.run);
        println!(
            "kind {kind}: budget {budget} MiB, taken {} \
            (host {}), {:?} until it stopped and was gone",
            taken.most(),
            taken.host,
            taken.late(budget)
        );
        // However late the monitor looks.
        assert!(
            taken.most() <= budget + 4 * OVERSHOOT,
            "kind {kind}: {} MiB",
            taken.most()
        );
        let Some([stopped, gone, starved]) = taken.late(budget) else {
            continue;
        };
        // The monitor, too, looks late then, and the guest has taken more meanwhile.
        if starved > STARVED {
            println!("the host is too busy to measure: {starved:?} without a processor");
            continue;
        }
        assert!(
            taken.most() <= budget + OVERSHOOT,
            "kind {kind}: {} MiB",
            taken.most()
        );
        assert!(stopped <= END, "kind {kind}: {stopped:?}");
        assert!(gone <= END + TOLERANCE, "kind {kind}: {gone:?}");
    }
}

/// Mappings: the host's structures for all that the processes can have exceed the budget.
#[test]
#[ignore = "a million of mappings take long"]
fn floods_of_mappings_are_ended() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut machine = command("flood", &["kind=7".to_string()]);
    // Sixty processes can have 900 MiB.
    machine.args(["--spaces", "60"]);
    let taken = Taken::by(machine.args(["--timeout", "300"]));
    check(&taken.run, "flood");
    assert!(
        taken.run.stdout.contains("MiB for mappings"),
        "{:?}",
        taken.run
    );
    let budget = budget(&taken.run);
    println!(
        "mappings: budget {budget} MiB, the host's structures {}",
        taken.structures
    );
    // A figure of the whole host: there is none for one process.
    assert!(
        taken.structures < budget + OVERSHOOT,
        "{} MiB",
        taken.structures
    );
}

/// MiB of RAM, of which the guest uses at most this part.
const RAM: u64 = 256;
const USED: u64 = 48;
/// MiB of shadow that all processes share.
const POOL: u64 = 32 + RAM / 16;
const VCPUS: u64 = 2;

/// The layer's shadows and stacks in all processes take at most the promised memory.
#[test]
fn floods_of_private_memory_find_an_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut machine = command("flood", &["kind=3".to_string()]);
    machine.args(["--cpus", &VCPUS.to_string(), "--timeout", "60"]);
    let taken = Taken::by(machine.args(["--memory", &RAM.to_string()]));
    check(&taken.run, "flood");
    let line = taken.run.stdout.lines().find(|l| l.contains("flooded"));
    assert!(line.is_some(), "{:?}", taken.run);
    let line = line.unwrap_or_default();
    let spaces: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!(
        "{spaces} spaces, taken {} MiB (host {} MiB): private {} KiB, shared {} MiB",
        taken.most(),
        taken.host,
        taken.private,
        taken.shared
    );
    assert!(spaces >= 64, "{spaces}");
    // Private memory of each process: the arena, which is 1 MiB of shadow, and the stacks. Two more
    // processes than those that are flooded.
    let kib = |bytes: u64| bytes >> 10;
    let private = (spaces + 2) * kib(PHV_ARENA_SIZE + VCPUS * PHV_STACK_SIZE);
    assert!(taken.private <= private, "{} KiB", taken.private);
    // Of all: 32 MiB and a sixteenth of RAM, in the file of the shared area. The guest fills them.
    assert!(taken.shared <= POOL + USED, "{} MiB", taken.shared);
    assert!(
        taken.host < (private >> 10) + POOL + RAM + OVERSHOOT,
        "{} MiB",
        taken.host
    );
}

/// A guest may map anything in its own tables: the layer limits its memory, and the machine
/// continues.
#[test]
fn legal_floods_are_served() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in [4, 5, 6] {
        let taken =
            Taken::by(command("flood", &[format!("kind={kind}")]).args(["--timeout", "60"]));
        let run = &taken.run;
        assert!(!run.stdout.contains("was ended"), "kind {kind}: {run:?}");
        // The guest ended in the ordinary way without running a test.
        assert!(run.stdout.contains("never said"), "kind {kind}: {run:?}");
        assert!(
            taken.most() < 72,
            "kind {kind}: it took {} MiB",
            taken.most()
        );
    }
}
