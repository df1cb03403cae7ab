// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows: what is measured in the guest (`guest/conformance/tests/vmi_bench*.c`), and its
//! counterpart on the host.

use super::super::turns::Named;

/// How a row's cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// By the clock of the side that does it.
    Time,
    /// By the CPU time of all processes that take part, from outside.
    Cpu,
}

/// The counterpart on the host.
#[derive(Clone, Copy, Debug)]
pub struct Counterpart {
    /// The name that [`super::host`] uses.
    pub what: &'static str,
    /// Operations in a batch, and batches.
    pub ops: u32,
    pub batches: u32,
    /// A description for the user.
    pub text: &'static str,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub vcpus: u32,
    pub cost: Cost,
    /// Batches in the guest.
    pub batches: u32,
    pub host: Counterpart,
    /// Host calls per operation, except for returns from signals. Counted once with perf's
    /// raw_syscalls:sys_enter, and used if the layer does not count them itself. A switch saves a
    /// wait if the next wake comes first.
    pub host_calls: f64,
    /// The largest ratio with which the row passes.
    pub bar: Option<f64>,
}

const GETPPID: Counterpart = host("getppid", 1000, 201, "getppid");
const SIGNAL: Counterpart = host("signal", 100, 201, "tgkill to itself, handler, return");
const PIPE: Counterpart = host(
    "pipe",
    50,
    201,
    "pipe, to the other process and back on one CPU, half of it",
);
const FIRST_TOUCH: Counterpart = host("first_touch", 64, 201, "first write to an anonymous page");
const MUNMAP: Counterpart = host("munmap", 64, 201, "munmap of one page");
const FORK: Counterpart = host(
    "fork",
    10,
    1000,
    "fork, 32 first writes in the child, exit, wait",
);
const FORK_SHORT: Counterpart = host("fork", 10, 200, "the same");
const SIGNAL_OTHER: Counterpart = host(
    "signal_other",
    10,
    201,
    "tgkill to a spinning thread, its handler's word in memory",
);
const FUTEX: Counterpart = host(
    "futex",
    10,
    201,
    "futex wake of a thread on another CPU, and back",
);

const fn host(what: &'static str, ops: u32, batches: u32, text: &'static str) -> Counterpart {
    Counterpart {
        what,
        ops,
        batches,
        text,
    }
}

const fn row(name: &'static str, host: Counterpart, host_calls: f64, bar: Option<f64>) -> Row {
    Row {
        name,
        vcpus: 1,
        cost: Cost::Time,
        batches: 201,
        host,
        host_calls,
        bar,
    }
}

const fn two(name: &'static str, host: Counterpart, host_calls: f64) -> Row {
    Row {
        vcpus: 2,
        ..row(name, host, host_calls, None)
    }
}

const fn spaces(
    name: &'static str,
    batches: u32,
    host: Counterpart,
    host_calls: f64,
    bar: Option<f64>,
) -> Row {
    Row {
        cost: Cost::Cpu,
        batches,
        ..row(name, host, host_calls, bar)
    }
}

impl Named for Row {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// All rows, in the order of the table.
pub static ROWS: [Row; 14] = [
    row("syscall_injected", GETPPID, 0.0, Some(1.0)),
    row("syscall_trapped", SIGNAL, 0.0, Some(1.4)),
    row("address_space_switch", PIPE, 1.6, Some(1.3)),
    row("fault_first_touch", FIRST_TOUCH, 1.0, Some(5.0)),
    row("fault_first_touch_scattered", FIRST_TOUCH, 1.0, None),
    row("fault_hidden", FIRST_TOUCH, 1.0, Some(4.0)),
    row("fault_contiguous_16", FIRST_TOUCH, 1.0 / 16.0, Some(1.0)),
    row("flush", MUNMAP, 1.0, None),
    spaces("address_space_create_drop", 1000, FORK, 9.0, Some(1.0)),
    // No two pages are neighbours, so the layer cannot map several at once.
    spaces(
        "address_space_create_drop_scattered",
        200,
        FORK_SHORT,
        39.0,
        None,
    ),
    row("interrupt", SIGNAL, 0.0, None),
    two("ipi", SIGNAL_OTHER, 1.0),
    two("halt_wake", FUTEX, 4.0),
    two("kick", FUTEX, 4.0),
];
