// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of buses and devices.

use crate::error::{Error, Kind};
use crate::limits;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;

/// A name: 1 to 32 letters, digits, `.`, `_` or `-`, the first of them a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with what a name may be.
    pub fn new(text: &str) -> Result<Self, Error> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if first && text.len() <= limits::NAME && text.chars().all(allowed) {
            return Ok(Name(text.to_string()));
        }
        Err(Error::new(
            Kind::Invalid,
            format!(
                "{text:.40?} is no name: 1 to {} letters, digits, `.`, `_` or `-`, beginning with \
                 a letter or digit, are",
                limits::NAME
            ),
        ))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Name::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "0", "web-1.lan_2", &"x".repeat(32)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            ".a",
            "a b",
            "a/b",
            "a\n",
            "\u{e4}",
            &"x".repeat(33),
        ] {
            let error = Name::new(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{bad}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
