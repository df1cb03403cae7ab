// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `paravane`. Everything is in the library of this crate.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    paravane::main()
}
