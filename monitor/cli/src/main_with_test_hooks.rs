// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `paravane` with the hooks that only tests use (feature `test-hooks`): faults that
//! they plant, devices and clocks that misbehave.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    paravane::main()
}
