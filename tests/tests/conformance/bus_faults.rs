// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutation tests of virtual buses: each test `bus.*` finds a mistake of the monitor
//! (`monitor/bridge/src/planted.rs`), and passes without it.

use crate::{beside_others, suite};
use libtest_mimic::{Failed, Trial};
use paravane_tests::{planted_turns, program};

/// Each test, the mistake that it finds, and the number of vCPUs.
const FOUND: [(&str, &str, &str); 39] = [
    ("bus.interface.lists", "lists-less", "1"),
    ("bus.command.refuses", "cuts-arguments", "1"),
    ("bus.command.by_stores", "wrong-byte", "1"),
    ("bus.command.either_way", "wrong-byte", "1"),
    ("bus.command.random", "wrong-byte", "1"),
    ("bus.echo.returns", "wrong-byte", "1"),
    ("bus.null.takes", "idle-devices", "1"),
    ("bus.open.connections", "wrong-byte", "1"),
    ("bus.signal.interrupts", "no-interrupts", "1"),
    ("bus.event.closed", "no-events", "1"),
    ("bus.start.ends", "keeps-connections", "1"),
    ("bus.echo.two_vcpus", "wrong-byte", "2"),
    ("bus.interrupt.arrives", "only-line", "2"),
    ("bus.interrupt.moves", "interrupt-stays", "2"),
    ("bus.interrupt.returns", "interrupt-stays", "1"),
    ("bus.interrupt.refuses", "takes-any-vector", "1"),
    ("bus.interrupt.apart", "one-interrupt", "1"),
    ("bus.interrupt.resets", "keeps-interrupts", "1"),
    ("bus.console.bytes", "wrong-byte", "1"),
    ("bus.block.keeps", "wrong-byte", "1"),
    ("bus.block.refuses", "wrong-byte", "1"),
    ("bus.block.breach", "no-events", "1"),
    ("bus.ethernet.frames", "wrong-byte", "1"),
    ("bus.ethernet.drops", "wrong-byte", "1"),
    ("bus.ethernet.flush", "idle-devices", "1"),
    ("bus.ethernet.chain", "wrong-byte", "1"),
    ("bus.ethernet.chain_waits", "wrong-byte", "1"),
    ("bus.ethernet.chain_alone", "wrong-byte", "1"),
    ("bus.ethernet.chain_breach", "reads-outside", "1"),
    ("bus.ethernet.agrees", "loses-results", "1"),
    ("bus.ethernet.agrees_down", "wrong-byte", "1"),
    ("bus.ethernet.pairs", "loses-results", "1"),
    ("bus.ethernet.pair_flows", "wrong-byte", "1"),
    ("bus.ethernet.pair_stands", "idle-devices", "1"),
    ("bus.ethernet.checksum", "wrong-byte", "1"),
    ("bus.ethernet.segments", "wrong-byte", "1"),
    ("bus.ethernet.segments_malformed", "wrong-byte", "1"),
    ("bus.ethernet.link", "wrong-byte", "1"),
    ("bus.ethernet.link_refuses", "loses-results", "1"),
];

pub fn trials() -> Vec<Trial> {
    let found = FOUND.into_iter();
    let trials = found.map(|(test, fault, cpus)| {
        let name = format!("bus_fault::{fault}::{test}");
        let later = !planted_turns::has_turn(&name);
        beside_others(name, move || caught(test, fault, cpus)).with_ignored_flag(later)
    });
    trials.collect()
}

fn caught(test: &str, fault: &str, cpus: &str) -> Result<(), Failed> {
    let run = |more: &[&str]| {
        let words = [
            "conformance",
            "--hypervisor",
            "process",
            "--tap",
            "--cpus",
            cpus,
        ];
        let mut command = program::command_with_hooks();
        command.args(words).args(["--filter", test]);
        program::finish(command.args(more))
    };
    let sound = run(&["--timeout", "600"]);
    if sound.tap_result(test) != Some(true) {
        let said = format!("{test} does not pass:\n{}{}", sound.stdout, sound.stderr);
        return Err(said.into());
    }
    let faulty = suite::faulty(
        |limit| run(&["--bus-fault", fault, "--timeout", limit]),
        |limit| run(&["--timeout", limit]),
    );
    // A test that did not run to its end has not passed.
    if faulty.code != 0 && faulty.tap_result(test) != Some(true) {
        return Ok(());
    }
    let said = format!("{test} does not fail:\n{}{}", faulty.stdout, faulty.stderr);
    Err(said.into())
}
