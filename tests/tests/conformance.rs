// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance suite, run like a user runs it: every layer with several numbers of vCPUs, every
//! planted fault caught by its test, and kept binaries of old versions together with new ones.
//!
//! Each run is a test with a name of its own. They run one after the other: a virtual machine with
//! four vCPUs fills a small host, and tests of time fail on a crowded one. Faults that show with
//! one vCPU and do not depend on time are tried two at once.

// Alone: it measures time, and its machines have more vCPUs than the host has processors.
// Threads: two, and only tests that measure nothing run beside another one.

#[path = "conformance/bus_faults.rs"]
mod bus_faults;
#[path = "conformance/calls.rs"]
mod calls;
#[path = "conformance/faults.rs"]
mod faults;
#[path = "conformance/kept.rs"]
mod kept;
#[path = "conformance/kept_linux.rs"]
mod kept_linux;
#[path = "conformance/suite.rs"]
mod suite;

use libtest_mimic::{Arguments, Failed, Trial};
use paravane_tests::conditions::is_long;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

/// A file to which each test appends a line: the seconds that it took, a space, its name.
const TIMES: &str = "PARAVANE_TEST_TIMES";

/// Held for reading by a test that may run beside others of its kind, for writing by one that may
/// not.
static HOST: RwLock<()> = RwLock::new(());

/// A test that has the host to itself.
fn alone(
    name: impl Into<String>,
    run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::test(name.clone(), move || {
        let _host = HOST.write().unwrap_or_else(PoisonError::into_inner);
        timed(&name, run)
    })
}

/// A test that runs beside others of its kind.
fn beside_others(
    name: impl Into<String>,
    run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::test(name.clone(), move || {
        let _host = HOST.read().unwrap_or_else(PoisonError::into_inner);
        timed(&name, run)
    })
}

/// Runs a test, and appends its time to the file of [`TIMES`], if there is one.
fn timed(name: &str, run: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    let start = Instant::now();
    let result = run();
    if let Some(file) = std::env::var_os(TIMES) {
        let line = format!("{:.2} {name}\n", start.elapsed().as_secs_f64());
        let mut file = File::options().create(true).append(true).open(file)?;
        file.write_all(line.as_bytes())?;
    }
    result
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    // More vCPUs, more repetitions.
    let long = is_long();
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(suite::trials(long));
    trials.extend(calls::trials());
    trials.extend(faults::trials());
    trials.extend(bus_faults::trials());
    trials.extend(kept::trials(long));
    libtest_mimic::run(&arguments, trials).exit_code()
}
