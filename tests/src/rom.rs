// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modifies layer images.

use paravane_abi::RomHeader;
use std::mem::offset_of;

/// Offset of the major version in the header.
pub const API_MAJOR: usize = offset_of!(RomHeader, api_major);
/// Offset of the VMI signature.
pub const VMI_SIGNATURE: usize = offset_of!(RomHeader, vmi_signature);
/// Offset of the offset of the section table.
pub const SECTIONS: usize = offset_of!(RomHeader, sections);

/// Offset of the first linear address that the hypervisor keeps; after it is their end.
pub const RESERVE_START: usize = offset_of!(RomHeader, reserve_start);

/// A copy of `image` with `bytes` at `at` and a valid checksum.
#[must_use]
pub fn with(image: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    if let Some(place) = image.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    seal(&mut image);
    image
}

/// Makes the sum of all bytes zero.
pub fn seal(image: &mut [u8]) {
    let sum = image.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    if let Some(checksum) = image.get_mut(offset_of!(RomHeader, checksum)) {
        *checksum = checksum.wrapping_sub(sum);
    }
}
