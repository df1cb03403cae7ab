// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes of commands.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It worked.
    Passed,
    /// It ran, and something failed.
    Failed,
    /// This signal ended it.
    Interrupted(u8),
    /// A guest ended with this exit code.
    Guest(u8),
}

impl Outcome {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Passed => 0,
            Outcome::Failed => 1,
            Outcome::Interrupted(signal) => 128 + (signal & 0x7f),
            Outcome::Guest(code) => code,
        }
    }
}
