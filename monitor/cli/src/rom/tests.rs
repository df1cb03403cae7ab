// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use proptest::prelude::*;
use std::mem::offset_of;

/// Offsets in the ROM that the tests build.
const SECTIONS: usize = 128;
const CALLS: usize = 160;
const INLINE: usize = 200;
const EXTABLE: usize = 220;
const CODE: u32 = 256;
const IMAGE_SIZE: u32 = 300;

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Makes the checksum correct again.
fn seal(image: &mut [u8]) {
    let at = offset_of!(abi::RomHeader, checksum);
    image[at] = 0;
    let sum = image.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    image[at] = sum.wrapping_neg();
}

macro_rules! set {
    ($image:expr, $at:expr, $structure:ty, $field:ident, $value:expr) => {
        put(
            $image,
            $at + offset_of!($structure, $field),
            &$value.to_le_bytes(),
        )
    };
}

/// A section number that is not in use.
const UNKNOWN: u16 = 1001;

/// A small layer with one of everything: two sections, an inline replacement, an exception entry.
fn valid() -> Vec<u8> {
    let mut image = vec![0; 512];
    let i = &mut image[..];
    set!(i, 0, abi::RomHeader, rom_signature, 0xaa55u16);
    set!(i, 0, abi::RomHeader, rom_length, 1u8);
    set!(i, 0, abi::RomHeader, vmi_signature, 0x3649_4d56u32);
    set!(i, 0, abi::RomHeader, api_major, abi::API_MAJOR);
    set!(i, 0, abi::RomHeader, header_size, 128u16);
    set!(i, 0, abi::RomHeader, image_size, IMAGE_SIZE);
    set!(i, 0, abi::RomHeader, load_size, 4096u32);
    set!(i, 0, abi::RomHeader, percpu_size, 64u32);
    set!(i, 0, abi::RomHeader, sections, 128u32);
    set!(i, 0, abi::RomHeader, section_count, 2u16);
    set!(i, 0, abi::RomHeader, section_size, 16u16);
    set!(i, 0, abi::RomHeader, call_size, 12u32);
    set!(i, 0, abi::RomHeader, extable, 220u32);
    set!(i, 0, abi::RomHeader, extable_count, 1u32);
    put(i, offset_of!(abi::RomHeader, name), b"test\0");
    for (n, id, calls) in [(0, 1u16, 160u32), (1, UNKNOWN, 172)] {
        let at = SECTIONS + 16 * n;
        set!(i, at, abi::Section, id, id);
        set!(i, at, abi::Section, version, 2u16);
        set!(i, at, abi::Section, compat, 1u16);
        set!(i, at, abi::Section, call_count, 1u16);
        set!(i, at, abi::Section, calls, calls);
    }
    set!(i, CALLS, abi::CallEntry, offset, CODE);
    set!(i, CALLS, abi::CallEntry, reloc, 4u8);
    set!(i, CALLS, abi::CallEntry, inline_offset, 200u32);
    set!(i, CALLS + 12, abi::CallEntry, offset, CODE);
    set!(i, CALLS + 12, abi::CallEntry, reloc, 1u8);
    put(i, INLINE, &[1, 0xfa]);
    set!(i, EXTABLE, abi::ExtableEntry, insn, CODE);
    set!(i, EXTABLE, abi::ExtableEntry, fixup, CODE + 4);
    seal(i);
    image
}

#[test]
fn a_valid_image_is_read() {
    let rom = Rom::parse(&valid()).unwrap();
    assert_eq!(rom.header.name, "test");
    assert_eq!(rom.sections.len(), 2);
    assert_eq!(rom.sections[0].calls[0].reloc, Reloc::Inline(vec![0xfa]));
    assert_eq!(rom.sections[1].calls[0].reloc, Reloc::Call);
    assert_eq!(
        (rom.extable[0].insn, rom.extable[0].fixup),
        (CODE, CODE + 4)
    );
    let mut text = Vec::new();
    inspect(&rom, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    for part in [
        "test",
        "section 1 cpu",
        "cpu.irq_disable",
        "inline  fa",
        "section 1001 unknown",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn bytes_behind_the_image_do_not_matter() {
    let mut image = valid();
    image.extend([1, 2, 3]);
    Rom::parse(&image).unwrap();
}

/// The result of parsing the valid ROM after one change.
fn after(change: impl Fn(&mut [u8])) -> String {
    let mut image = valid();
    change(&mut image);
    seal(&mut image);
    Rom::parse(&image).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_said() {
    assert!(
        Rom::parse(b"")
            .unwrap_err()
            .to_string()
            .starts_with("truncated: 0 bytes")
    );
    assert!(
        Rom::parse(&valid()[..100])
            .unwrap_err()
            .to_string()
            .starts_with("truncated: 100 bytes")
    );
    assert_eq!(
        Rom::parse(&valid()[..511]),
        Err(RomError::Truncated {
            have: 511,
            need: 512
        })
    );
    assert_eq!(Rom::parse(b"MZ and so on"), Err(RomError::Signature));
    let mut image = valid();
    image[400] ^= 1;
    assert!(matches!(Rom::parse(&image), Err(RomError::Checksum(_))));

    assert!(after(|i| i[2] = 0).contains("rom_length is 0"));
    assert!(after(|i| i[8] = b'X').contains("no VMI6 signature"));
    assert!(after(|i| set!(i, 0, abi::RomHeader, api_major, 9u8)).contains("written for VMI 9.0"));
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, header_size, 127u16)).contains("header_size is 127")
    );
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, header_size, 301u16)).contains("header_size is 301")
    );
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, image_size, 513u32)).contains("image_size is 513")
    );
    assert!(after(|i| set!(i, 0, abi::RomHeader, load_size, 299u32)).contains("load_size is 299"));
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, percpu_size, 65u32)).contains("percpu_size is 65")
    );
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, reserve_start, 1u64)).contains("reserve_start is 1")
    );
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, section_size, 15u16)).contains("section_size is 15")
    );
    assert!(after(|i| set!(i, 0, abi::RomHeader, call_size, 11u32)).contains("call_size is 11"));
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, sections, u32::MAX))
            .contains("the table of sections reaches")
    );
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, section_count, u16::MAX))
            .contains("the table of sections")
    );
    assert!(
        after(|i| set!(i, 0, abi::RomHeader, extable_count, u32::MAX))
            .contains("the exception table")
    );
    assert!(
        after(|i| set!(i, EXTABLE, abi::ExtableEntry, insn, IMAGE_SIZE))
            .contains("exception entry 0")
    );
    assert!(
        after(|i| set!(i, EXTABLE, abi::ExtableEntry, fixup, u32::MAX))
            .contains("exception entry 0")
    );
    assert!(
        after(|i| set!(i, SECTIONS, abi::Section, id, UNKNOWN))
            .contains("section 1001 is there twice")
    );
    assert!(
        after(|i| set!(i, SECTIONS, abi::Section, compat, 3u16))
            .contains("compat of section 1 is 3")
    );
    assert!(
        after(|i| set!(i, SECTIONS, abi::Section, calls, 290u32))
            .contains("calls of section 1 reaches")
    );
    assert!(
        after(|i| set!(i, CALLS, abi::CallEntry, offset, IMAGE_SIZE))
            .contains("the entry of section 1 call 0")
    );
    assert!(
        after(|i| set!(i, CALLS, abi::CallEntry, offset, 0u32))
            .contains("offset of section 1 call 0 is 0")
    );
    assert!(
        after(|i| set!(i, CALLS, abi::CallEntry, reloc, 5u8))
            .contains("reloc of section 1 call 0 is 5")
    );
    assert!(
        after(|i| set!(i, CALLS, abi::CallEntry, inline_offset, 299u32)).contains("inline code")
    );
    assert!(
        after(|i| i[INLINE] = 16).contains("length of the inline code of section 1 call 0 is 16")
    );
    assert!(after(|i| i[INLINE] = 0).contains("is 0"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = Rom::parse(&bytes);
    }

    /// Changes a valid ROM and corrects the checksum, so that the changes reach the later checks.
    #[test]
    fn an_accepted_rom_is_inside_the_image(
        changes in prop::collection::vec((0usize..256, any::<u8>()), 1..6),
    ) {
        let mut image = valid();
        for (at, byte) in changes {
            // Mostly in tables and counts.
            image[at] = byte;
        }
        seal(&mut image);
        if let Ok(rom) = Rom::parse(&image) {
            let limit = rom.header.image_size;
            prop_assert!(limit as usize <= image.len() && limit <= rom.header.load_size);
            for call in rom.sections.iter().flat_map(|s| &s.calls) {
                prop_assert!(call.offset.is_none_or(|o| o < limit));
                if let Reloc::Inline(code) = &call.reloc {
                    prop_assert!((1..=15).contains(&code.len()));
                }
            }
            for entry in &rom.extable {
                prop_assert!(entry.insn < limit && entry.fixup < limit);
            }
            inspect(&rom, &mut Vec::new()).unwrap();
        }
    }
}
