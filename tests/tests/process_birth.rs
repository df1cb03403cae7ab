// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tracer observes an address-space process from its first instruction until its filter is
//! installed. Nothing can disturb the process, and no memory that the guest can write is executable
//! or decides what it does. Each property is a guard against attacks by guest code in other
//! processes of the machine. The tests find the faults of `layers/faults.txt` that are planted in
//! the guards.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_abi::process as ph;
use paravane_tests::planted::{self, Planted};
use paravane_tests::program;
use paravane_tests::tracer::{ALL_SIGNALS, Call, Traced, numbers as nr};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::path::Path;

const PR_SET_PDEATHSIG: u64 = 1;
const SIGKILL: u64 = 9;
const PAGE: u64 = 4096;

/// A machine of two vCPUs that creates a few processes, with the built-in layer or another one.
fn machine(rom: Option<&Path>) -> Traced {
    // The host then places its own pages where they are most in the way.
    let mut stack = getrlimit(Resource::Stack);
    stack.current = stack.maximum;
    setrlimit(Resource::Stack, stack).unwrap();
    let mut command = program::command();
    command.args([
        "conformance",
        "--hypervisor",
        "process",
        "--cpus",
        "2",
        "--timeout",
        "60",
    ]);
    command.args(["--filter", "core.probe"]);
    if let Some(rom) = rom {
        command.arg("--rom").arg(rom);
    }
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    Traced::run(command, &|number| {
        matches!(number, nr::SECCOMP | nr::PPOLL | nr::CLONE)
    })
    .unwrap()
}

impl Machine for Traced {
    fn born(&self) -> BTreeSet<i32> {
        let processes = self.calls.iter().map(|c| c.process);
        processes.filter(|&p| p != self.zygote).collect()
    }

    /// The zygote's calls from the time on when guest code may exist.
    fn serving(&self) -> Vec<&Call> {
        let zygote = self.calls.iter().filter(|c| c.process == self.zygote);
        zygote.skip_while(|c| c.number != nr::PPOLL).collect()
    }

    fn of(&self, process: i32) -> Vec<&Call> {
        self.calls.iter().filter(|c| c.process == process).collect()
    }
}

trait Machine {
    /// Processes that the zygote has created.
    fn born(&self) -> BTreeSet<i32>;
    fn serving(&self) -> Vec<&Call>;
    fn of(&self, process: i32) -> Vec<&Call>;
}

/// Between its clone and its filter every thread of a process blocks all signals, and so does the
/// zygote while it serves.
fn masks(machine: &Traced) -> Result<(), String> {
    let calls = machine
        .born()
        .into_iter()
        .flat_map(|process| machine.of(process));
    match calls
        .chain(machine.serving())
        .find(|c| c.blocked != ALL_SIGNALS)
    {
        None => Ok(()),
        Some(open) => Err(format!("signals reach {open:?}")),
    }
}

/// With its first call, a process arranges to die with the zygote.
fn death_signal(machine: &Traced) -> Result<(), String> {
    for process in machine.born() {
        let first = machine.of(process)[0];
        // The process that tests whether 32-bit calls work ends at once.
        if machine.of(process).iter().all(|c| c.number != nr::SECCOMP) {
            continue;
        }
        if first.number != nr::PRCTL || first.arguments[..2] != [PR_SET_PDEATHSIG, SIGKILL] {
            return Err(format!("the first call is {first:?}"));
        }
    }
    Ok(())
}

/// A line of /proc/PID/maps.
#[derive(Debug)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
}

fn mappings(maps: &str) -> Vec<Mapping<'_>> {
    let line = |line| -> Option<Mapping<'_>> {
        let (range, rest): (&str, &str) = str::split_once(line, ' ')?;
        let (start, end) = range.split_once('-')?;
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            rights: rest.split(' ').next()?,
        })
    };
    maps.lines().filter_map(line).collect()
}

/// Calls with mappings: of processes that are about to install their filter, and of the zygote
/// while it serves.
fn looks(machine: &Traced) -> Vec<&Call> {
    let calls = machine
        .born()
        .into_iter()
        .flat_map(|process| machine.of(process));
    let at_filter = calls.filter(|c| c.number == nr::SECCOMP);
    let all: Vec<_> = at_filter
        .chain(machine.serving())
        .filter(|c| c.maps.is_some())
        .collect();
    assert!(all.len() > 5, "too little was seen: {}", all.len());
    all
}

/// Memory that is shared with guest code is not executable before the filter is installed.
fn executable(machine: &Traced) -> Result<(), String> {
    for call in looks(machine) {
        let maps = call.maps.as_deref().unwrap_or_default();
        let bad = mappings(maps)
            .into_iter()
            .find(|m| m.rights.contains('x') && m.rights.ends_with('s'));
        if let Some(bad) = bad {
            return Err(format!("{bad:x?} in {}", call.process));
        }
    }
    Ok(())
}

/// No mapping is adjacent to a stack: neither the one in use nor those of the vCPUs.
fn stacks(machine: &Traced) -> Result<(), String> {
    for call in looks(machine) {
        let all = mappings(call.maps.as_deref().unwrap_or_default());
        let used = |m: &Mapping<'_>| (m.start..m.end).contains(&(call.stack - 1));
        let of_vcpus = |m: &Mapping<'_>| {
            let area = ph::PHV_STACKS..ph::PHV_STACKS + ph::PHV_MAX_VCPUS * ph::PHV_STACK_SIZE;
            area.contains(&m.start)
                && !(m.start - ph::PHV_STACKS).is_multiple_of(ph::PHV_STACK_SIZE)
        };
        let stacks: Vec<_> = all.iter().filter(|m| used(m) || of_vcpus(m)).collect();
        // The zygote's, and two for each vCPU.
        if stacks.len() != 5 {
            return Err(format!(
                "{} stacks of {}: {all:x?}",
                stacks.len(),
                call.process
            ));
        }
        for stack in stacks {
            if all
                .iter()
                .any(|m| m.end == stack.start || m.start == stack.end)
            {
                return Err(format!("{stack:x?} of {} has a neighbour", call.process));
            }
            if stack.end - stack.start < 4 * PAGE {
                return Err(format!("{stack:x?} of {} is small", call.process));
            }
        }
    }
    Ok(())
}

/// The data that a new process is made of, such as its filter, cannot be written any more.
fn plan(machine: &Traced) -> Result<(), String> {
    for call in looks(machine)
        .into_iter()
        .filter(|c| c.number != nr::SECCOMP)
    {
        let all = mappings(call.maps.as_deref().unwrap_or_default());
        // In the layer's data: two pages, read-only, private.
        let layer = all
            .iter()
            .filter(|m| (ph::PHV_LAYER_BASE..ph::PHV_HOLE_END).contains(&m.start));
        if !layer
            .clone()
            .any(|m| m.rights == "r--p" && m.end - m.start >= 2 * PAGE)
        {
            return Err(format!(
                "nothing is read-only: {:x?}",
                layer.collect::<Vec<_>>()
            ));
        }
    }
    Ok(())
}

/// No page of the host's own is left where the guest could find it.
fn host_pages(machine: &Traced) -> Result<(), String> {
    for call in looks(machine) {
        let maps = call.maps.as_deref().unwrap_or_default();
        let of_host = |line: &&str| line.contains('[') && !line.ends_with("[vsyscall]");
        if let Some(left) = maps.lines().find(of_host) {
            return Err(format!("{} has {left}", call.process));
        }
    }
    Ok(())
}

type Check = fn(&Traced) -> Result<(), String>;

const CHECKS: [(&str, Check); 6] = [
    ("birth_masks", masks),
    ("birth_death_signal", death_signal),
    ("birth_executable", executable),
    ("birth_stacks", stacks),
    ("birth_plan", plan),
    ("birth_host_pages", host_pages),
];

#[test]
fn nothing_reaches_a_process_before_its_filter() {
    let machine = machine(None);
    assert_eq!(machine.code, 0);
    // The zygote, the process that tests 32-bit calls, and at least one process more than vCPUs.
    assert!(machine.born().len() >= 4, "{:?}", machine.born());
    for (name, check) in CHECKS {
        check(&machine).unwrap_or_else(|message| panic!("{name}: {message}"));
    }
}

#[test]
fn a_guard_that_is_missing_is_found() {
    for (name, check) in CHECKS {
        let faults = planted::found_by(name).unwrap();
        assert!(!faults.is_empty(), "no fault is planted for {name}");
        for fault in faults {
            let planted = Planted::build(&fault).unwrap();
            let machine = machine(Some(&planted.rom()));
            let found = check(&machine);
            println!("{fault}: {found:?}");
            assert!(found.is_err(), "{name} does not find {fault}");
        }
    }
}
