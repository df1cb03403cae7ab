// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The code by which a running kernel takes and releases spinlocks, as gdb finds it.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::program;
use std::process::{Command, Stdio};

/// Functions that take or release a lock. `_raw_spin_unlock` is inlined wherever it is used, as in
/// `_atomic_dec_and_lock`. Locks for readers and writers are queued by a spinlock of their own.
pub const FUNCTIONS: [&str; 13] = [
    "_raw_spin_lock",
    "_raw_spin_lock_irq",
    "_raw_spin_lock_irqsave",
    "_raw_spin_unlock_irqrestore",
    "_raw_spin_unlock_bh",
    "_atomic_dec_and_lock",
    "_raw_read_lock",
    "_raw_read_lock_irqsave",
    "_raw_write_lock_irq",
    "_raw_write_lock_irqsave",
    "_raw_write_unlock_irqrestore",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
];

/// The instructions of [`FUNCTIONS`]: a line for each, with its bytes. Calls have none: that of the
/// slow path, which is taken by contended locks, differs. `until`: gdb's commands by which it stops
/// the kernel after that has patched its sites.
///
/// # Panics
/// When gdb does not find them.
#[must_use]
pub fn listed(until: &[&str]) -> Vec<String> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch"]);
    for command in until {
        gdb.args(["-ex", command]);
    }
    for function in FUNCTIONS {
        gdb.args(["-ex", &format!("disassemble /r {function}")]);
    }
    let run = program::finish(gdb.args(["-ex", "kill"]).stdin(Stdio::null()));
    // 0x... <+4>: TAB bytes TAB instruction
    let lines = run.stdout.lines().filter_map(|line| line.split_once(" <+"));
    let lines = lines.map(|(_, rest)| match rest.split_once("\tcall") {
        Some((bytes, _)) => format!("{} call", bytes.split('\t').next().unwrap()),
        None => rest.split('<').next().unwrap().trim_end().to_string(),
    });
    let lines: Vec<String> = lines.collect();
    for function in FUNCTIONS {
        let dump = format!("Dump of assembler code for function {function}:");
        assert!(run.stdout.contains(&dump), "{function}: {run:?}");
    }
    assert!(lines.len() > 4 * FUNCTIONS.len(), "{run:?}");
    lines
}
