// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether and how a machine ends, as its threads know it.

use paravane_devices::Ending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The end of one machine.
#[derive(Debug, Default)]
pub struct EndState {
    /// The monitor ends the machine. Devices look at it, too.
    pub ending: Ending,
    /// Why the machine cannot go on.
    failure: Mutex<Option<String>>,
    /// The exit code that a debugger gets, plus one; 0: none yet.
    exit_code: AtomicU32,
}

impl EndState {
    /// Records why the machine cannot go on. The first reason stays.
    pub fn set_failure(&self, why: String) {
        self.lock().get_or_insert(why);
    }

    /// Why the machine cannot go on.
    pub fn failure(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the exit code that a debugger gets.
    pub fn set_exit_code(&self, code: u8) {
        self.exit_code.store(u32::from(code) + 1, Ordering::SeqCst);
    }

    /// The exit code that a debugger gets, once there is one.
    pub fn exit_code(&self) -> Option<u8> {
        let code = self.exit_code.load(Ordering::SeqCst).checked_sub(1)?;
        u8::try_from(code).ok()
    }
}
