// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A third layer (`tests/outsider/`), written as docs/writing-a-layer.md says: it passes the suite,
//! and boots Linux on bare metal. Linux applies each of its relocation records.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::bare::{TROUBLE, boot_linux, calls, outsider};
use paravane_tests::{program, rom};
use std::fs;

#[test]
fn it_passes_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let rom = outsider(folder.path());
    for cpus in ["1", "2"] {
        let run = program::finish(
            program::command()
                .args(["conformance", "--hypervisor", "qemu", "--tap"])
                .args(["--timeout", "600", "--cpus", cpus, "--rom"])
                .arg(&rom),
        );
        assert!(run.last_line().contains(" 0 failed"), "{run:?}");
        assert_eq!(run.code, 0, "{run:?}");
        // A section that is absent is no error, and its calls are not tested.
        assert!(
            run.stdout
                .contains("# SKIP the layer has no section lock\n"),
            "{run:?}"
        );
    }
}

/// Tests each record alone: some sites become calls, some are erased, some get the layer's code,
/// and the rest stay.
#[test]
fn linux_obeys_each_record() {
    let folder = tempfile::tempdir().unwrap();
    let rom = outsider(folder.path());
    let run = boot_linux(&folder, &rom, "2");
    assert!(run.stdout.contains("log VMI: layer outsider 1."), "{run:?}");
    for word in ["WARNING:", "BUG:", "Oops", "Call Trace", " failed"] {
        assert!(!run.stdout.contains(word), "{word}: {run:?}");
    }
    let calls = calls(&run.stdout);
    println!("{calls:?}");
    let sites = |call: &str, record: &str, hold: &str| {
        let (is, sites) = &calls[call];
        assert_eq!(*is, record, "{call}: {run:?}");
        let others: u64 = sites.iter().filter(|s| *s.0 != hold).map(|s| s.1).sum();
        assert_eq!(others, 0, "{call} in sites that are not {hold}: {run:?}");
        sites[hold]
    };
    assert!(sites("cpu.irq_enable", "inline", "inline") > 100);
    for call in ["cpu.get_cr2", "cpu.set_cr4", "mmu.invalidate_page"] {
        assert!(sites(call, "inline", "inline") > 0, "{call}: {run:?}");
    }
    // Their code is longer than a site.
    assert!(sites("cpu.irq_disable", "inline", "call") > 100);
    assert!(sites("cpu.irq_flag", "inline", "call") > 100);
    assert!(sites("mmu.get_cr3", "inline", "call") > 0);
    assert!(sites("mmu.set_cr3", "call", "call") > 0);
    assert!(sites("cpu.io_delay", "nop", "nop") > 0);
    assert!(sites("cpu.wbinvd", "nop", "nop") > 0);
    for call in ["cpu.halt", "cpu.get_cr0", "cpu.set_cr0", "cpu.set_cr2"] {
        sites(call, "none", "native");
    }
    // The layer was called, on both vCPUs. Each count is in another place of its data. Those and
    // the layer itself are where it has found them before; this processor has five levels of
    // tables.
    for cpu in ["0", "1"] {
        let line = format!("\ncount {cpu} stays 5\n");
        assert!(run.stdout.contains(&line), "{line}{run:?}");
        for (call, least) in [
            ("irq_disable", 1000),
            ("irq_flag", 1000),
            ("get_cr3", 1),
            ("set_cr3", 100),
        ] {
            let start = format!("count {cpu} {call} ");
            let mut lines = run.stdout.lines();
            let count = lines.find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok());
            assert!(
                count.is_some_and(|c| c >= least),
                "{start}{count:?}: {run:?}"
            );
        }
    }
}

/// Linux uses the layer's other services: ends of interrupts, a flush of a space in one call, the
/// layer's wall clock with its jumps, and stolen time.
#[test]
fn linux_uses_what_the_layer_offers() {
    let folder = tempfile::tempdir().unwrap();
    let rom = outsider(folder.path());
    let run = boot_linux(&folder, &rom, "1");
    let count = |call: &str| -> u64 {
        let start = format!("count 0 {call} ");
        let mut lines = run.stdout.lines();
        let line = lines.find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start}: {run:?}"))
            .parse()
            .unwrap()
    };
    assert!(count("eoi") > 100, "{run:?}");
    // Each fork of the program flushes what has become read-only.
    assert!(count("flush_space") > 100, "{run:?}");
    // At least the first time, and what was missing when the clock source came.
    assert!(count("wallclock") >= 1, "{run:?}");
    // Each of the 100 sleeps has one.
    assert!(count("set_alarm") > 100, "{run:?}");
    let has = |line: &str| run.stdout.contains(&format!("\n{line}\n"));
    assert!(has("device vmi") && has("source vmi"), "{run:?}");
    let after = |start: &str| {
        let mut lines = run.stdout.lines();
        lines.find_map(|line| line.strip_prefix(start)).unwrap()
    };
    let slept = after("slept ").strip_suffix(" ms").unwrap();
    assert!(slept.parse::<u64>().unwrap() >= 200, "{run:?}");
    let moved: u64 = after("moved ").parse().unwrap();
    assert!((3598..3610).contains(&moved), "{run:?}");
    assert_eq!(after("stolen before "), "0", "{run:?}");
    let (stolen, all) = run
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("stolen ")?.strip_suffix(" ms"))
        .and_then(|line| line.split_once(" of "))
        .unwrap();
    let (stolen, all): (u64, u64) = (stolen.parse().unwrap(), all.parse().unwrap());
    let share = stolen * 100 / all.max(1);
    assert!((18..=32).contains(&share), "{share} %: {run:?}");
    for word in TROUBLE {
        assert!(!run.stdout.contains(word), "{word}: {run:?}");
    }
}

/// If an entry lacks its mark, Linux names it and turns indirect branch tracking off.
#[test]
fn an_unmarked_entry_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = outsider(folder.path());
    let line = "has no endbr64, without IBT";
    let run = boot_linux(&folder, &good, "1");
    assert!(!run.stdout.contains(line), "{run:?}");
    let good = fs::read(good).unwrap();
    let halt = rom::word(&good, rom::call(&good, "cpu.halt"));
    assert_eq!(good[halt..halt + 4], [0xf3, 0x0f, 0x1e, 0xfa]);
    let file = folder.path().join("unmarked.rom");
    fs::write(&file, rom::with(&good, halt, &[0x0f, 0x1f, 0x40, 0])).unwrap();
    let run = boot_linux(&folder, &file, "1");
    let line = format!("log VMI: layer outsider: cpu.halt {line}\n");
    assert!(run.stdout.contains(&line), "{run:?}");
    assert!(run.stdout.contains("log VMI: layer outsider 1."), "{run:?}");
}

/// Numbers of CPUs and ids of local APICs differ: with three cores in a socket the second socket
/// begins at 4.
#[test]
fn the_layer_learns_the_real_apic_ids() {
    let folder = tempfile::tempdir().unwrap();
    let rom = outsider(folder.path());
    let run = boot_linux(&folder, &rom, "6,sockets=2,cores=3");
    for (cpu, id) in [(0, 0), (2, 2), (3, 4), (5, 6)] {
        let line = format!("\ncount {cpu} apic_id {id}\n");
        assert!(run.stdout.contains(&line), "{line}{run:?}");
    }
}

/// A call without a native form is absent: Linux names it, and stays native.
#[test]
fn an_absent_call_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read(outsider(folder.path())).unwrap();
    for name in ["core.init", "cpu.write_gdt"] {
        let entry = rom::call(&good, name);
        assert_ne!(rom::word(&good, entry), 0, "{name}");
        let file = folder.path().join(name);
        fs::write(&file, rom::with(&good, entry, &[0; 4])).unwrap();
        let run = boot_linux(&folder, &file, "2");
        let line = format!("log VMI: layer outsider: {name} is absent, native\n");
        assert!(run.stdout.contains(&line), "{run:?}");
    }
}

/// A hypervisor that keeps addresses of the direct map, or of programs, cannot have them.
#[test]
fn addresses_in_use_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read(outsider(folder.path())).unwrap();
    for (start, end) in [
        (0xffff_8700_0000_0000_u64, 0xffff_8880_0000_1000_u64),
        (0x10_0000_0000, 0x20_0000_0000),
    ] {
        let file = folder.path().join("keeps.rom");
        let bytes = [start.to_le_bytes(), end.to_le_bytes()].concat();
        fs::write(&file, rom::with(&good, rom::RESERVE_START, &bytes)).unwrap();
        let run = boot_linux(&folder, &file, "1");
        let line = format!(
            "log VMI: layer outsider: keeps addresses {start:#x} to {end:#x}, which are in use, \
             native\n"
        );
        assert!(run.stdout.contains(&line), "{run:?}");
        assert!(calls(&run.stdout).is_empty(), "{run:?}");
    }
}

/// A record cannot be applied: Linux names it, and stays native.
#[test]
fn a_bad_record_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read(outsider(folder.path())).unwrap();
    // The code of cpu.set_cr4: its length, then mov %rdi,%cr4.
    let code = [3, 0x0f, 0x22, 0xe7];
    let at = good.windows(4).position(|bytes| bytes == code).unwrap();
    let bad = folder.path().join("bad.rom");
    fs::write(&bad, rom::with(&good, at, &[16])).unwrap();
    let run = boot_linux(&folder, &bad, "2");
    assert!(
        run.stdout
            .contains("log VMI: layer outsider: cpu.set_cr4: bad relocation record, native\n"),
        "{run:?}"
    );
    assert!(calls(&run.stdout).is_empty(), "{run:?}");
}
