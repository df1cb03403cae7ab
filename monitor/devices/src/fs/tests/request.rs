// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A request as a driver puts it into memory.

use super::{Guest, bytes};

/// Puts a request there. Returns its length, and a place for the answer.
pub(super) fn put(guest: &Guest, at: u64, operation: u32, node: u64, body: &[u8]) -> (u32, u64) {
    let length = u32::try_from(40 + body.len()).unwrap();
    let mut request = bytes(&[length, operation, 7, 0]);
    request.extend(node.to_le_bytes());
    request.extend([0; 16]);
    request.extend(body);
    guest.put(at, &request);
    (length, at + (16 << 10))
}
