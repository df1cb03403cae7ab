// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the monitor exchanges with its user: files that the user names, printable text, standard
//! error, progress, exit codes, the signals that ask it to end, and work that such a signal
//! interrupts. Nothing here knows what a virtual machine is.

#![forbid(unsafe_code)]

pub mod files;
pub mod outcome;
pub mod progress;
pub mod signals;
pub mod stderr;
pub mod text;
pub mod worker;
