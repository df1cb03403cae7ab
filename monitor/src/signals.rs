// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Being asked to end while a guest runs.
//!
//! The default action would end the monitor without removing its temporary files. So the signals are only noted,
//! and whoever waits for a guest looks at the note; everything then ends by the ordinary way out of `main`.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Notes the first of SIGINT, SIGTERM and SIGHUP.
#[derive(Clone, Debug)]
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Starts to take note.
    pub fn install() -> io::Result<Self> {
        let seen = Arc::new(AtomicUsize::new(0));
        let again = Arc::new(AtomicBool::new(false));
        for (signal, value) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
            // Whoever asks twice does not want to wait for the tidying.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&seen), value)?;
        }
        Ok(Signals(seen))
    }

    /// The signal that came, if one did.
    pub fn pending(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|&n| n != 0)
    }
}
