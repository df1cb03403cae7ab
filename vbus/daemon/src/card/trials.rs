// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is tried on a thread of cards before an administrator's request is carried out.
//!
//! A device that finds a value which must be tried leaves the trial here, and refuses the request.
//! The first thread orders the trial, and makes the request again when it has succeeded.

use super::crew::Crew;
use super::kinds::Try;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A requested trial: its thread, and its value.
pub struct Trial {
    pub crew: Arc<Crew>,
    pub value: String,
    pub attempt: Try,
}

/// Trials of one request at a time.
#[derive(Clone, Default)]
pub struct Trials(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    wanted: Option<Trial>,
    passed: Vec<String>,
}

impl fmt::Debug for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trials").field(&self.lock().passed).finish()
    }
}

impl Trials {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins, for which these values were tried.
    pub fn begin(&self, passed: Vec<String>) {
        let mut state = self.lock();
        (state.wanted, state.passed) = (None, passed);
    }

    /// The trial that the request needs.
    pub fn wanted(&self) -> Option<Trial> {
        self.lock().wanted.take()
    }

    /// Whether a value was tried with success.
    pub fn passed(&self, value: &str) -> bool {
        self.lock().passed.iter().any(|known| known == value)
    }

    /// The request needs this.
    pub fn want(&self, trial: Trial) {
        self.lock().wanted = Some(trial);
    }
}
