// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own tests of locks and of RCU, which are modules of VMI-Linux.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, vm};

/// The lengths for `make test-release`.
const LONG: &str = "PARAVANE_TEST_LONG";

/// What the kernel says when something is wrong.
const BAD: [&str; 7] = [
    "BUG:",
    "WARNING:",
    "detected stall",
    "self-detected",
    "lockup",
    "Oops",
    "!!!",
];

/// A module with its parameters.
struct Torture {
    module: &'static str,
    parameters: &'static str,
}

const LOCKS: [Torture; 3] = [
    Torture {
        module: "locktorture",
        parameters: "torture_type=spin_lock stat_interval=5",
    },
    Torture {
        module: "locktorture",
        parameters: "torture_type=rw_lock_irq stat_interval=5",
    },
    Torture {
        module: "locktorture",
        parameters: "torture_type=mutex_lock stat_interval=5 onoff_interval=1000 onoff_holdoff=3",
    },
];
const RCU: [Torture; 2] = [
    Torture {
        module: "rcutorture",
        parameters: "torture_type=rcu stat_interval=5 onoff_interval=500 onoff_holdoff=1",
    },
    Torture {
        module: "rcutorture",
        parameters: "torture_type=srcu stat_interval=5",
    },
];

/// Runs a test for some seconds. The module prints its verdict when it is unloaded.
fn torture(test: &Torture, cpus: u32, seconds: u32) {
    let modules = linux::kernel().with_file_name("modules");
    let volume = format!("{}:/x:ro", modules.display());
    let Torture { module, parameters } = test;
    let script = format!(
        "dmesg -C; insmod /x/torture.ko && insmod /x/{module}.ko {parameters} || exit 1; \
         sleep {seconds}; rmmod {module} || exit 2; \
         dmesg | grep -E 'End of test|{BAD}|Writes:|rtc:' | tail -n 40",
        BAD = BAD.join("|")
    );
    let mut command = vm::command(["--cpus", &cpus.to_string(), "--memory", "512M"]);
    command.args(["--volume", &volume, "--", "sh", "-c", &script]);
    let run = program::finish(&mut command);
    let said = &run.stdout;
    println!("{module} {parameters}, {cpus} vCPUs, {seconds} s:\n{said}");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(said.contains("End of test: SUCCESS"), "{said}");
    for bad in BAD {
        assert!(!said.contains(bad), "{bad}: {said}");
    }
}

/// A few seconds of each kind of lock, on more vCPUs than there are processors.
#[test]
fn locks_are_tortured_shortly() {
    torture(&LOCKS[0], 4, 8);
}

/// The same of RCU, while CPUs go and come.
#[test]
fn rcu_is_tortured_shortly() {
    torture(&RCU[0], 4, 10);
}

/// Two minutes of each test at 2, 8 and 16 vCPUs: half an hour.
#[test]
fn locks_and_rcu_are_tortured_long() {
    if std::env::var_os(LONG).is_none() {
        eprintln!("skipped: takes half an hour; {LONG} asks for it");
        return;
    }
    for cpus in [2, 8, 16] {
        for test in LOCKS.iter().chain(&RCU) {
            torture(test, cpus, 120);
        }
    }
}
