// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane`: the monitor's command line.
//!
//! Exit codes of every command: 0, it succeeded; 1, it ran and something failed; 2, it could not
//! run (bad input, something missing); 128 + n, signal n ended it. `run` returns the exit code of
//! the guest's command.

#![deny(unsafe_code)]

mod arguments;
mod commands;
mod doctor;
mod layer_file;
mod rom;
mod tap;

use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Interrupted;
use paravane_user_io::{outlet, stderr, text};
use std::io;
use std::process::ExitCode;

/// The command could not be run.
const EXIT_BAD_INPUT: u8 = 2;
/// The number of the signal that a program gets when the reader of its output has ended.
const SIGPIPE: u8 = 13;

/// Runs the command line of this process. Returns the exit code.
pub fn main() -> ExitCode {
    outlet::open();
    paravane_vbusd::ignore_file_limits();
    stderr::report_panics();
    let args = match arguments::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(end) => return end.report(),
    };
    let result = arguments::start_log(args.log).and_then(|()| commands::run(&args.command));
    ExitCode::from(report(result))
}

/// Reports the result of a command, if it needs words. Returns the exit code.
fn report(result: anyhow::Result<Outcome>) -> u8 {
    let error = match result {
        Ok(outcome) => return outcome.code(),
        Err(error) => error,
    };
    if let Some(Interrupted(signal)) = error.downcast_ref() {
        return Outcome::Interrupted(*signal).code();
    }
    // The reader of the output has ended (`paravane ... | head`). That needs no message. The exit
    // code is that of the signal that ends other programs then.
    let reader_left = error
        .chain()
        .filter_map(|e| e.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe);
    if reader_left {
        return Outcome::Interrupted(SIGPIPE).code();
    }
    complain(&error);
    EXIT_BAD_INPUT
}

/// Prints an error as one line.
fn complain(error: &anyhow::Error) {
    let line = text::one_line(&format!("{error:#}"));
    stderr::say(&format!("paravane: {line}\n"));
}
