// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of a machine's vCPUs goes, seen from outside of the machine.
//!
//! A [`Session`] watches the machine's processes for a while. The CPU time of each thread, and the
//! time for which it was ready and had no CPU, come from /proc. Samples of perf ([`perf`]) say what
//! a thread did with its CPU time: the address tells guest programs, guest kernel and layer apart
//! ([`place`]). Where perf may not be used, /proc only distinguishes the host's user mode from its
//! kernel. A [`Report`] has the result, and [`table`] prints it.
//!
//! Nothing here runs in the monitor, and the guest takes no part.

#![forbid(unsafe_code)]

mod book;
mod host_kernel;
mod perf;
mod place;
mod report;
mod session;
mod table;
mod tally;
mod tasks;

pub use book::Book;
pub use perf::{DRAIN, FREQUENCIES};
pub use report::{Counter, Report, Row, Shares};
pub use session::{Session, Source, Subject};
pub use table::table;
pub use tally::Books;
