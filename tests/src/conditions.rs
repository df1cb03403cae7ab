// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions of tests: how long they may take, and the features of the host.

use crate::skip::skip;
use rustix::thread::sched_getaffinity;
use std::env;

/// Set in long runs.
const LONG: &str = "PARAVANE_TEST_LONG";

/// Whether this is a long run (`make test-release`). A test that tests nothing in a short one has
/// `#[ignore]` instead.
#[must_use]
pub fn is_long() -> bool {
    env::var_os(LONG).is_some()
}

/// A length: `long` for `make test-release`, else `short`.
#[must_use]
pub fn by_length<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Whether this test may run on two CPUs. If not, it is skipped.
#[must_use]
pub fn has_two_cpus() -> bool {
    let two = sched_getaffinity(None).is_ok_and(|cpus| cpus.count() > 1);
    if !two {
        skip("one CPU");
    }
    two
}

/// Whether this test runs as root. If not, it is skipped; `what` only root can do.
#[must_use]
pub fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(&format!("only root can {what}"));
    }
    root
}
