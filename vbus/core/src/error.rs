// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors: a kind for programs, a line for people.

use serde::{Deserialize, Serialize};

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No such thing, or the client may not see it.
    NotFound,
    /// There is one already.
    Exists,
    /// It is in use.
    Busy,
    /// The client has no permission.
    Denied,
    /// The input makes no sense.
    Invalid,
    /// A limit is reached.
    Limit,
    /// The client broke the protocol of a queue; its connection is reset.
    Broken,
    /// The host refused something.
    Host,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{text}")]
pub struct Error {
    kind: Kind,
    text: String,
}

impl Error {
    /// An error with one line of text.
    #[must_use]
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Error {
            kind,
            text: text.into(),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn not_found(what: &str, name: &str) -> Self {
        Error::new(Kind::NotFound, format!("there is no {what} {name:.40}"))
    }

    pub(crate) fn exists(what: &str, name: &str) -> Self {
        Error::new(
            Kind::Exists,
            format!("there is a {what} {name:.40} already"),
        )
    }

    pub(crate) fn limit(what: &str, most: usize) -> Self {
        Error::new(
            Kind::Limit,
            format!("no more than {most} {what} are possible"),
        )
    }
}
