// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `victim`: a process that guests must not reach. It prints `ready` and counts the signals that it
//! gets. When its standard input ends, it prints the count.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

fn main() -> ExitCode {
    for signal in 1..=64 {
        // SAFETY: the handler only adds to an atomic number. The host refuses signals that cannot
        // be caught.
        unsafe { libc::signal(signal, count as *const () as libc::sighandler_t) };
    }
    println!("ready");
    let mut rest = Vec::new();
    let ended = io::stdin().read_to_end(&mut rest);
    println!("{}", SIGNALS.load(Ordering::SeqCst));
    if ended.is_ok() && io::stdout().flush().is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
