// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Digests as images have them: `sha256:` and 64 hexadecimal digits.

use anyhow::bail;
use paravane_user_io::text::hex;
use sha2::{Digest, Sha256};
use std::io::{self, Read};

const KIND: &str = "sha256:";

/// Of bytes.
pub fn of(bytes: &[u8]) -> String {
    text(Sha256::new_with_prefix(bytes))
}

/// Of a sum that is complete.
pub fn text(sum: Sha256) -> String {
    format!("{KIND}{}", hex(&sum.finalize()))
}

/// The digits of one; nothing else may be in a name.
pub fn digits(digest: &str) -> anyhow::Result<&str> {
    let digits = digest.strip_prefix(KIND).unwrap_or_default();
    if digits.len() != 64
        || !digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        bail!("{digest:?} is no digest by SHA-256");
    }
    Ok(digits)
}

/// Reads on, and sums up what was read.
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

    /// The digest of all, once the rest is read, too.
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
