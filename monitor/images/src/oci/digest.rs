// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Digests as images contain them: `sha256:` and 64 hexadecimal digits.

use anyhow::bail;
use paravane_user_io::text::hex;
use sha2::{Digest, Sha256};
use std::io::{self, Read};

const KIND: &str = "sha256:";

/// The digest of bytes.
pub fn of(bytes: &[u8]) -> String {
    text(Sha256::new_with_prefix(bytes))
}

/// The digest of a finished hash.
pub fn text(sum: Sha256) -> String {
    format!("{KIND}{}", hex(&sum.finalize()))
}

/// The digits of a digest. They are checked, so that they are safe as a file name.
pub fn digits(digest: &str) -> anyhow::Result<&str> {
    let digits = digest.strip_prefix(KIND).unwrap_or_default();
    if digits.len() != 64
        || !digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        bail!("{digest:?} is not a SHA-256 digest");
    }
    Ok(digits)
}

/// A reader that hashes what passes through it.
pub struct Summed<R> {
    inner: R,
    sum: Sha256,
}

impl<R: Read> Summed<R> {
    pub fn new(inner: R) -> Self {
        Summed {
            inner,
            sum: Sha256::new(),
        }
    }

    /// Reads the rest. Returns the digest of everything.
    pub fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(text(self.sum))
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(into)?;
        self.sum.update(into.get(..length).unwrap_or_default());
        Ok(length)
    }
}
