// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance suite, run like a user runs it: every layer with several numbers of vCPUs, every
//! planted fault caught by its test, and kept images of old versions together with new ones.
//!
//! Each run is a test with a name of its own. They run one after the other by default: a virtual
//! machine with four vCPUs fills a small host, and tests of time fail on a crowded one.

#[path = "conformance/faults.rs"]
mod faults;
#[path = "conformance/kept.rs"]
mod kept;
#[path = "conformance/suite.rs"]
mod suite;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// More vCPUs, more repetitions: for `make test-release`.
const LONG: &str = "PARAVANE_TEST_LONG";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let long = std::env::var_os(LONG).is_some();
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(suite::trials(long));
    trials.extend(faults::trials());
    trials.extend(kept::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
