// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The users and groups that may join a bus.

use crate::error::Error;
use crate::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The identity of a client. The connector has it from the host's kernel, not from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process, or another number that is the client's alone while it is connected. It belongs
    /// to at most one bus.
    pub process: u64,
    /// The user.
    pub uid: u32,
    /// The groups.
    pub gids: Vec<u32>,
}

/// Users and groups that may join a bus. The administrator always may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Users.
    #[serde(default)]
    pub uids: BTreeSet<u32>,
    /// Groups.
    #[serde(default)]
    pub gids: BTreeSet<u32>,
}

impl Access {
    /// Whether these credentials may join.
    #[must_use]
    pub fn admits(&self, who: &Credentials) -> bool {
        self.uids.contains(&who.uid) || who.gids.iter().any(|gid| self.gids.contains(gid))
    }

    /// Checks that the lists are not too long.
    ///
    /// # Errors
    /// They are.
    pub fn check(&self) -> Result<(), Error> {
        if self.uids.len() + self.gids.len() > limits::ALLOWED {
            return Err(Error::limit("users and groups of a bus", limits::ALLOWED));
        }
        Ok(())
    }
}
