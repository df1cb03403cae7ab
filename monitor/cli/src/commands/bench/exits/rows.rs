// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machines do. `bench/exits/rows.c` has the same names.

use anyhow::bail;

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// What an operation is.
    pub what: &'static str,
    /// Operations of a round, and with `--quick`.
    pub operations: u64,
    pub quick: u64,
    /// The vCPUs share one processor of the host.
    pub shared: bool,
    /// A round without marks comes first, because memory of the host comes at first touch.
    pub warm: bool,
}

/// The rows that are no commands to the program.
pub const BOOT: &str = "boot";
pub const DELAY: &str = "delay";

const fn row(name: &'static str, what: &'static str, operations: u64, quick: u64) -> Row {
    Row {
        name,
        what,
        operations,
        quick,
        shared: false,
        warm: true,
    }
}

/// In the order of the table.
pub static ROWS: [Row; 12] = [
    Row {
        warm: false,
        ..row(BOOT, "from the machine's start to the program", 1, 1)
    },
    // The warm round lets what the boot has begun end.
    row("idle", "a second in which nothing runs", 2, 1),
    row("ticks", "a second of one program that computes", 2, 1),
    row(
        "hackbench",
        "10 senders, 10 receivers, 2,000 messages, with their start",
        1,
        1,
    ),
    row(
        "pipe",
        "a byte to another process and back, on one vCPU",
        2000,
        200,
    ),
    row(
        "pipe_across",
        "a byte to a process on the other vCPU and back",
        500,
        100,
    ),
    row("fork", "fork, exit, wait, on one vCPU", 100, 20),
    row("ipi", "an interrupt to the other vCPU", 1000, 200),
    row("lock", "a spinlock, taken and released twice", 500, 200),
    Row {
        shared: true,
        warm: false,
        ..row(
            "contend",
            "a spinlock that both vCPUs hold for long, on one processor",
            400,
            400,
        )
    },
    Row {
        shared: true,
        warm: false,
        ..row(
            "flush",
            "a page becomes read-only for both vCPUs, on one processor",
            50,
            20,
        )
    },
    row(
        DELAY,
        "a test of the conformance suite with 100 I/O delays, with its boot",
        1,
        1,
    ),
];

/// The rows with these names, in the table's order; all if there are no names.
pub fn select(names: &[String]) -> anyhow::Result<Vec<&'static Row>> {
    for name in names {
        if !ROWS.iter().any(|row| row.name == name) {
            let known: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            bail!("--row {name}: there are {}", known.join(", "));
        }
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| row.name == name);
    Ok(ROWS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_their_names() {
        assert_eq!(select(&[]).unwrap().len(), ROWS.len());
        let chosen = select(&["flush".to_string(), BOOT.to_string()]).unwrap();
        let names: Vec<_> = chosen.iter().map(|row| row.name).collect();
        assert_eq!(names, [BOOT, "flush"]);
        let error = select(&["none".to_string()]).unwrap_err().to_string();
        assert!(
            error.starts_with("--row none: there are boot, idle,"),
            "{error}"
        );
    }

    #[test]
    fn the_program_has_each_row() {
        let program = paravane_blobs::EXITS;
        for row in ROWS.iter().filter(|row| ![BOOT, DELAY].contains(&row.name)) {
            // The linker may put a string into the end of another one.
            let name = format!("{}\0", row.name);
            let found = program.windows(name.len()).any(|w| w == name.as_bytes());
            assert!(found, "{}", row.name);
        }
    }
}
