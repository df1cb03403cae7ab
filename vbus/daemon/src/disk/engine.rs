// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways in which the file of a disk is read and written: the attribute `engine`.

use std::fmt::{self, Display, Formatter};

/// How a disk's file is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Data in the page cache is copied at once; other requests go through the ring, if there is
    /// one.
    #[default]
    Auto,
    /// All of it goes through the ring.
    Uring,
    /// One request at a time, by `pread` and `pwrite`.
    Pread,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 3] = [Engine::Auto, Engine::Uring, Engine::Pread];

    /// Its name, as the attribute's value.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Uring => "uring",
            Engine::Pread => "pread",
        }
    }

    /// That of this name.
    pub fn of(name: &str) -> Option<Self> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// What does the work on a host with or without rings: the attribute `engine-used`. A disk that
    /// needs a ring takes no clients without.
    pub fn used(self, ring: bool) -> &'static str {
        match (self, ring) {
            (Engine::Pread, _) | (Engine::Auto, false) => Engine::Pread.name(),
            (_, true) => Engine::Uring.name(),
            (Engine::Uring, false) => "none",
        }
    }
}

impl Display for Engine {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_what_they_lead_to() {
        for engine in Engine::ALL {
            assert_eq!(Engine::of(&engine.to_string()), Some(engine));
        }
        assert_eq!(Engine::of("Auto"), None);
        let used = |ring| Engine::ALL.map(|engine| engine.used(ring));
        assert_eq!(used(true), ["uring", "uring", "pread"]);
        assert_eq!(used(false), ["pread", "none", "pread"]);
    }
}
