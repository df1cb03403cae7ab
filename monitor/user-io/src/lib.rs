// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the monitor exchanges with its user: files that the user names, printable text, standard
//! output and error, the monitor's own log, progress, exit codes, the signals that ask it to end,
//! work that such a signal interrupts, and the event loop that serves all of these at once. Nothing
//! here knows what a virtual machine is.

#![forbid(unsafe_code)]

pub mod events;
pub mod files;
pub mod log;
pub mod outcome;
pub mod outlet;
pub mod progress;
pub mod signals;
pub mod stderr;
pub mod text;
pub mod worker;
