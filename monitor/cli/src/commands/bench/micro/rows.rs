// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows. Each is a measurement of `bench/micro/`.

use super::super::turns::Named;

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name that the measuring program uses.
    pub name: &'static str,
    /// A description for the user.
    pub text: &'static str,
    /// The largest ratio with which the row passes.
    pub bar: f64,
    pub needs: Needs,
}

/// What a row needs besides the measuring program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Shell,
    Compiler,
    /// The kernel's part is in the program's address space: no instruction of it is in the kernel.
    Vdso,
}

const fn row(name: &'static str, bar: f64, text: &'static str) -> Row {
    Row {
        name,
        text,
        bar,
        needs: Needs::Nothing,
    }
}

impl Named for Row {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// All rows, in the order of the table.
pub static ROWS: [Row; 17] = [
    row("getppid", 1.0, "getppid"),
    row("write", 1.0, "write of a byte to /dev/null"),
    row("read", 1.0, "read of a byte from /dev/zero"),
    row("stat", 1.5, "stat of /dev/null"),
    Row {
        needs: Needs::Vdso,
        ..row(
            "clock_gettime",
            1.1,
            "clock_gettime(CLOCK_MONOTONIC) by the vDSO",
        )
    },
    row("signal_handler", 4.0, "kill of itself, handler, return"),
    row(
        "protection_fault",
        3.3,
        "write to a read-only page, handler, return",
    ),
    row(
        "anonymous_fault",
        3.5,
        "first write to a page, 256 in a row",
    ),
    row(
        "cow_fault",
        3.0,
        "first write to a page shared with the parent, 256 in a row",
    ),
    row(
        "mmap_munmap",
        3.8,
        "mmap of 64 KiB, a write to each page, munmap",
    ),
    row(
        "pipe_switch",
        2.0,
        "a byte to another process and one back, half of it",
    ),
    row("fork_exit", 4.0, "fork, exit, wait"),
    row(
        "fork_exec",
        1.3,
        "fork, exec of a static program, exit, wait",
    ),
    Row {
        needs: Needs::Shell,
        ..row("shell", 1.25, "sh -c with two commands")
    },
    Row {
        needs: Needs::Compiler,
        ..row("compile", 1.1, "gcc -O2 -c of a file of 200 lines")
    },
    row(
        "hackbench",
        3.0,
        "a message of 100 bytes, 10 senders to 10 receivers",
    ),
    row(
        "tcp_round_trip",
        2.0,
        "a byte over TCP on loopback, and one back",
    ),
];
