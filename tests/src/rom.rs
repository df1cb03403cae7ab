// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modifies layer images.

use paravane_abi::{CallEntry, RomHeader, SECTIONS, Section};
use std::mem::offset_of;

/// Offset of the major version in the header.
pub const API_MAJOR: usize = offset_of!(RomHeader, api_major);
/// Offset of the VMI signature.
pub const VMI_SIGNATURE: usize = offset_of!(RomHeader, vmi_signature);
/// Offset of the offset of the section table.
pub const SECTIONS_OFFSET: usize = offset_of!(RomHeader, sections);

/// Offset of the first linear address that the hypervisor keeps; after it is their end.
pub const RESERVE_START: usize = offset_of!(RomHeader, reserve_start);

/// Offset of the bytes of layer data for each vCPU.
pub const PERCPU_SIZE: usize = offset_of!(RomHeader, percpu_size);
/// Offset of the flags in the header.
pub const FLAGS: usize = offset_of!(RomHeader, flags);

/// In the entry of a call: offset of the relocation record.
pub const RELOC: usize = offset_of!(CallEntry, reloc);
/// In the entry of a call: offset of the offset of its inline code.
pub const INLINE: usize = offset_of!(CallEntry, inline_offset);

/// In the entry of a section: offset of the feature bits.
pub const FEATURES: usize = offset_of!(Section, features);

/// The four bytes at an offset, as a number.
///
/// # Panics
/// When the image ends before.
#[must_use]
#[allow(clippy::unwrap_used)] // A panic fails the test.
pub fn word(image: &[u8], at: usize) -> usize {
    let bytes = image[at..at + 4].try_into().unwrap();
    usize::try_from(u32::from_le_bytes(bytes)).unwrap()
}

/// Offset of the entry of a section in the image of a layer that has it.
///
/// # Panics
/// When it has not.
#[must_use]
#[allow(clippy::unwrap_used)] // A panic fails the test.
pub fn section(image: &[u8], name: &str) -> usize {
    let id = SECTIONS.iter().find(|s| s.name == name).unwrap().id;
    let count = word(image, offset_of!(RomHeader, section_count)) & 0xffff;
    let size = word(image, offset_of!(RomHeader, section_size)) & 0xffff;
    let mut entries = (0..count).map(|i| word(image, SECTIONS_OFFSET) + i * size);
    entries
        .find(|&at| word(image, at) & 0xffff == usize::from(id))
        .unwrap()
}

/// Offset of the entry of a call, `section.call`, in the image of a layer that has its section.
///
/// # Panics
/// When it has not.
#[must_use]
#[allow(clippy::unwrap_used)] // A panic fails the test.
pub fn call(image: &[u8], name: &str) -> usize {
    let (of, _) = name.split_once('.').unwrap();
    let calls = SECTIONS.iter().find(|s| s.name == of).unwrap().calls;
    let index = calls.iter().position(|call| call.name == name).unwrap();
    let size = word(image, offset_of!(RomHeader, call_size));
    word(image, section(image, of) + offset_of!(Section, calls)) + index * size
}

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
