// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux on bare metal with the native layers in an option ROM, whose records a test changes: Linux
//! applies each record alone, and uses the services that a layer offers.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_abi::{LOCK_RUN_STATES, RELOC_CALL, RELOC_NOP};
use paravane_tests::bare::{TROUBLE, boot, calls, root};
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::{linux, lock_code, rom};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The calls that Linux has sites of.
const SITES: [&str; 14] = [
    "cpu.irq_flag",
    "cpu.irq_disable",
    "cpu.irq_enable",
    "cpu.halt",
    "cpu.get_cr0",
    "cpu.set_cr0",
    "cpu.get_cr2",
    "cpu.set_cr2",
    "cpu.set_cr4",
    "cpu.io_delay",
    "cpu.wbinvd",
    "mmu.set_cr3",
    "mmu.get_cr3",
    "mmu.invalidate_page",
];

/// Boots Linux with this layer in the ROM, which it takes without trouble. `what` is special about
/// the layer.
fn booted(layer: &[u8], cpus: &str, what: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layer.rom");
    fs::write(&file, layer).unwrap();
    let kernel = linux::kernel().with_file_name("bzImage");
    let run = boot(&folder, &kernel, &file, cpus);
    let run = run.unwrap_or_else(|why| panic!("{what}: {why}"));
    for bad in TROUBLE {
        assert!(!run.stdout.contains(bad), "{what}: {bad}: {run:?}");
    }
    let taken = run.stdout.contains("log VMI: layer native");
    assert!(taken, "{what}: {run:?}");
    run
}

/// With the native layer, every site keeps the instruction that it has without a layer.
#[test]
fn the_native_layer_changes_no_site() {
    let run = booted(paravane_blobs::NATIVE_ROM, "2", "native");
    // Its records say that the kernel's own clock and timers are as good.
    assert!(run.stdout.contains("\ndevice lapic"), "{run:?}");
    assert!(!run.stdout.contains("\nsource vmi\n"), "{run:?}");
    let calls = calls(&run.stdout);
    assert_eq!(calls.len(), SITES.len(), "{run:?}");
    assert!(!run.stdout.contains("\nlock "), "{run:?}");
    assert!(!run.stdout.contains("\nvcpu "), "{run:?}");
    for (call, (record, sites)) in calls {
        assert_eq!(record, "none", "{call}: {run:?}");
        for (hold, count) in sites {
            assert_eq!(
                count > 0,
                hold == "native",
                "{call}: {hold} {count}: {run:?}"
            );
        }
    }
}

/// Tests each call with sites alone: the layer has a record for this call only, so its sites become
/// calls, or are erased, and the other sites keep their instructions.
#[test]
#[ignore = "minutes: make test-release"]
fn linux_obeys_one_record_alone() {
    let called = SITES.map(|call| (call, RELOC_CALL, "call"));
    let erased = ["cpu.io_delay", "cpu.wbinvd"].map(|call| (call, RELOC_NOP, "nop"));
    for (call, record, word) in called.into_iter().chain(erased) {
        let at = rom::call(paravane_blobs::NATIVE_ROM, call) + rom::RELOC;
        let record = [u8::try_from(record).unwrap()];
        let layer = rom::with(paravane_blobs::NATIVE_ROM, at, &record);
        let run = booted(&layer, "1", &format!("{call} {word}"));
        let calls = calls(&run.stdout);
        assert_eq!(calls.len(), SITES.len(), "{call} {word}: {run:?}");
        for (other, (is, sites)) in calls {
            let (record, hold) = match other == call {
                true => (word, word),
                false => ("none", "native"),
            };
            assert_eq!(is, record, "{call} {word}: {other}: {run:?}");
            for (holds, count) in sites {
                assert_eq!(count > 0, holds == hold, "{call} {word}: {other}: {run:?}");
            }
        }
    }
}

/// Locks wait in a layer that asks for that, and the kernel reads each vCPU's run state if the
/// layer offers it. This also works with a layer from a ROM.
#[test]
fn linux_waits_for_locks_in_a_layer_of_a_rom() {
    let native = paravane_blobs::NATIVE_ROM;
    let record = [u8::try_from(RELOC_CALL).unwrap()];
    let wait = rom::with(native, rom::call(native, "lock.wait") + rom::RELOC, &record);
    let states = LOCK_RUN_STATES.to_le_bytes();
    let at = rom::section(native, "lock") + rom::FEATURES;
    let begin = |run: &Run, word: &str| {
        let lines = run.stdout.lines().filter(|line| line.starts_with(word));
        lines.map(String::from).collect::<Vec<_>>()
    };
    for (layer, states) in [(rom::with(&wait, at, &states), true), (wait, false)] {
        let run = booted(&layer, "2", &format!("lock.wait, run states {states}"));
        let number = |line: &String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let locks = begin(&run, "lock taken_slow ");
        assert_eq!(locks.len(), 1, "{run:?}");
        println!("{locks:?}");
        // Two CPUs had to wait for each other, and came to an end.
        assert!(number(&locks[0]) > 0, "{run:?}");
        let contended = begin(&run, "contended ");
        assert_eq!(contended.len(), 2, "{run:?}");
        assert!(contended.iter().all(|line| number(line) > 0), "{run:?}");
        let cpus = (0..2).map(|cpu| format!("vcpu cpu{cpu} running preempted 0 stolen_ns 0"));
        let cpus: Vec<_> = cpus.filter(|_| states).collect();
        assert_eq!(begin(&run, "vcpu "), cpus, "{run:?}");
    }
}

/// The code of locks in Linux with this layer in the ROM, on two CPUs.
fn code_of_locks(layer: &[u8], append: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("layer.rom"), layer).unwrap();
    fs::write(path("root"), root(&folder)).unwrap();
    let kernel = linux::kernel();
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args([
        "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", "512",
    ]);
    qemu.args([
        "-smp", "2", "-display", "none", "-vga", "none", "-serial", "none",
    ]);
    qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-append"]);
    // Its addresses are those of the file, for gdb.
    qemu.arg(format!("quiet nokaslr {append}"));
    qemu.arg("-kernel").arg(kernel.with_file_name("bzImage"));
    qemu.arg("-initrd").arg(path("root"));
    qemu.arg("-option-rom").arg(path("layer.rom"));
    // It waits for gdb before its first instruction.
    let socket = format!("unix:{},server=on,wait=off", path("gdb").display());
    qemu.arg("-S").args(["-gdb", &socket]);
    let mut machine = Ends(qemu.stdin(Stdio::null()).spawn().unwrap());
    let begun = Instant::now();
    while !path("gdb").exists() {
        assert!(machine.0.try_wait().unwrap().is_none(), "QEMU has ended");
        assert!(begun.elapsed() < program::PATIENCE, "QEMU does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    lock_code::listed(&[
        &format!("symbol-file {}", kernel.display()),
        &format!("target remote {}", path("gdb").display()),
        "hbreak kernel_execve",
        "continue",
    ])
}

/// With the native layer in the ROM an uncontended lock takes the same instructions as with
/// `nopvspin`. Where locks wait in a layer that leaves the kernel its privilege, a release looks
/// for waiters, so this can see a difference.
#[test]
fn an_uncontended_lock_is_the_same_instructions() {
    let native = paravane_blobs::NATIVE_ROM;
    let plain = code_of_locks(native, "nopvspin");
    assert_eq!(code_of_locks(native, ""), plain);
    let record = [u8::try_from(RELOC_CALL).unwrap()];
    let wait = rom::with(native, rom::call(native, "lock.wait") + rom::RELOC, &record);
    assert_ne!(code_of_locks(&wait, ""), plain);
    assert_eq!(code_of_locks(&wait, "nopvspin"), plain);
}

/// The lines of /sys/kernel/debug/vmi/stats after a word: calls, cycles and the histogram's sum.
fn stats<'a>(text: &'a str, word: &str) -> BTreeMap<&'a str, [u64; 3]> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix(word)?.trim_start().split(' ');
            let name = words.next().unwrap();
            let calls = words.next().unwrap().parse().unwrap();
            let cycles = words.next().unwrap().parse().unwrap();
            let buckets = words.map(|pair| pair.split_once(':').unwrap().1.parse::<u64>().unwrap());
            Some((name, [calls, cycles, buckets.sum()]))
        })
        .collect()
}

/// native-stats from within Linux: counts, cycles, histograms, and their reset.
#[test]
fn linux_shows_what_a_layer_has_counted() {
    let run = booted(paravane_blobs::NATIVE_STATS_ROM, "2", "native-stats");
    let (before, after) = (stats(&run.stdout, "stat"), stats(&run.stdout, "reset"));
    println!("{before:?}");
    for (call, least) in [
        ("cpu.irq_disable", 10000),
        ("cpu.irq_enable", 10000),
        ("cpu.irq_flag", 10000),
        ("mmu.set_cr3", 200),
        ("cpu.write_msr", 100),
        // Between the two, not by the kernel's own driver.
        ("apic.send_ipi", 10),
    ] {
        let [calls, cycles, buckets] = before[call];
        assert!(calls >= least, "{call} {calls}: {run:?}");
        assert!(cycles >= calls, "{call} {calls} {cycles}: {run:?}");
        // The call that reads is interrupted by calls that are counted meanwhile.
        assert!(
            buckets.abs_diff(calls) <= calls / 100 + 10,
            "{call} {calls} {buckets}: {run:?}"
        );
    }
    assert!(
        after["cpu.irq_disable"][0] < before["cpu.irq_disable"][0] / 2,
        "{run:?}"
    );
}
