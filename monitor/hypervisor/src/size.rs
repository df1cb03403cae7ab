// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of bytes and things as sizes in memory.

/// Converts a number that counts bytes or things in memory, such as one of `process.toml`.
#[allow(clippy::cast_possible_truncation)] // this program is for 64-bit hosts only
pub const fn size(value: u64) -> usize {
    value as usize
}
