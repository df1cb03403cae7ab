// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies the relocations of a kernel to the address at which it is loaded.
//!
//! A linker with `--emit-relocs` keeps its relocations, which say where the file contains an
//! absolute address. The field already has the value for the link address. Each field is checked
//! against its expected value before it is changed, so relocations that do not belong to the file
//! are refused, instead of producing a broken kernel.

use super::kernel::{Header, Kind, LE, LoadError, Segment};
use object::elf::{
    R_X86_64_32, R_X86_64_32S, R_X86_64_64, R_X86_64_NONE, R_X86_64_PC8, R_X86_64_PC16,
    R_X86_64_PC32, R_X86_64_PC64, R_X86_64_PLT32, Rela64, RelocationType, SHF_ALLOC, SHF_EXECINSTR,
    SHN_UNDEF, SHT_SYMTAB, SectionHeader64, Sym64,
};
use object::read::elf::{FileHeader, SectionHeader};
use std::ops::Range;

type Relocation = Rela64<object::LittleEndian>;
type Symbol = Sym64<object::LittleEndian>;
type SectionOf = SectionHeader64<object::LittleEndian>;

/// The width of a field and the values that it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Full,
    Signed32,
    Unsigned32,
}

impl Field {
    fn width(self) -> usize {
        if self == Field::Full { 8 } else { 4 }
    }

    /// The bytes of a value, if it fits.
    fn encode(self, value: u64) -> Option<[u8; 8]> {
        let fits = match self {
            Field::Full => true,
            Field::Signed32 => i32::try_from(i64::from_le_bytes(value.to_le_bytes())).is_ok(),
            Field::Unsigned32 => u32::try_from(value).is_ok(),
        };
        fits.then(|| value.to_le_bytes())
    }
}

/// Whether a type of relocation can be applied.
pub fn known(kind: u32) -> bool {
    kind == R_X86_64_NONE.0 || field(RelocationType(kind)).is_some()
}

/// Applies all relocations of a file to its loaded segments: references to `image` (link addresses)
/// move by `delta`.
pub fn apply(
    header: &Header,
    file: &[u8],
    segments: &mut [Segment],
    image: Range<u64>,
    delta: u64,
) -> Result<(), LoadError> {
    let damaged = |what: &str| LoadError::Damaged(what.to_string());
    let sections = header
        .section_headers(LE, file)
        .map_err(|e| LoadError::Damaged(e.to_string()))?;
    let fixed = segments
        .iter()
        .filter(|s| s.kind == Kind::Fixed)
        .map(Segment::range)
        .collect();
    let mut mover = Mover {
        segments,
        fixed,
        image,
        delta,
        last: 0,
    };
    let mut any = false;
    // A kernel whose build has stripped most relocations again (Linux's `vmlinux`) has some left,
    // but none of its code.
    let is_code = |s: &SectionOf| {
        s.sh_flags(LE).contains(SHF_ALLOC) && s.sh_flags(LE).contains(SHF_EXECINSTR)
    };
    let mut code_moved = !sections.iter().any(is_code);
    for section in sections {
        let Some((relocations, _)) = section
            .rela(LE, file)
            .map_err(|_| damaged("a relocation section is not inside the file"))?
        else {
            continue;
        };
        let Some(target) = sections
            .get(section.sh_info(LE) as usize)
            .filter(|t| t.sh_flags(LE).contains(SHF_ALLOC))
        else {
            // Relocations of what is not loaded, such as debug information, or of no section at
            // all.
            continue;
        };
        let symbols = sections
            .get(section.sh_link(LE) as usize)
            .filter(|s| s.sh_type(LE) == SHT_SYMTAB)
            .ok_or_else(|| damaged("a relocation section has no symbol table"))?;
        let symbols: &[Symbol] = symbols
            .data_as_array(LE, file)
            .map_err(|_| damaged("the symbol table is not inside the file"))?;
        any |= !relocations.is_empty();
        code_moved |= is_code(target);
        for relocation in relocations {
            mover.one(relocation, symbols)?;
        }
    }
    if any && code_moved {
        Ok(())
    } else {
        Err(LoadError::NoRelocations)
    }
}

struct Mover<'a> {
    segments: &'a mut [Segment],
    /// Link addresses of segments that are loaded, do not move, and are not boot code.
    fixed: Vec<Range<u64>>,
    image: Range<u64>,
    delta: u64,
    /// The segment of the last relocation: they come in order.
    last: usize,
}

impl Mover<'_> {
    fn one(&mut self, relocation: &Relocation, symbols: &[Symbol]) -> Result<(), LoadError> {
        let place = relocation.r_offset.get(LE);
        let kind = relocation.r_type(LE, false);
        let Some(segment) = self.segment(place) else {
            return Err(error(place, "is in none of the segments"));
        };
        if segment.kind == Kind::Boot || kind == R_X86_64_NONE {
            return Ok(());
        }
        let place_moves = segment.kind == Kind::Image;
        let index = relocation.r_sym(LE, false);
        let symbol = symbols.get(index as usize).ok_or_else(|| {
            error(
                place,
                &format!("names symbol {index}, there are {}", symbols.len()),
            )
        })?;
        let value = symbol.st_value.get(LE);
        let target = value.wrapping_add(u64::from_le_bytes(
            relocation.r_addend.get(LE).to_le_bytes(),
        ));
        let target_moves = self.moves(value, target);
        let (field, relative) = field(kind).ok_or_else(|| {
            error(
                place,
                &format!("has type {}, which a kernel should not have", kind.0),
            )
        })?;
        let Some(field) = field else {
            // Fields of 8 or 16 bits reach only what is next to them.
            return if place_moves == target_moves {
                Ok(())
            } else {
                Err(error(place, "is too narrow for this distance"))
            };
        };
        if !relative {
            return if target_moves {
                self.add(place, field, target, self.delta)
            } else {
                Ok(())
            };
        }
        match (place_moves, target_moves) {
            (true, true) | (false, false) => Ok(()),
            // From what stays to what moves.
            (false, true) => self.add(place, field, target.wrapping_sub(place), self.delta),
            // An undefined weak symbol: code checks whether it is defined, and finds the linker's
            // value.
            (true, false) if symbol.st_shndx.get(LE) == SHN_UNDEF => Ok(()),
            (true, false) if self.fixed.iter().any(|r| r.contains(&value)) => self.add(
                place,
                field,
                target.wrapping_sub(place),
                self.delta.wrapping_neg(),
            ),
            (true, false) => Err(error(
                place,
                &format!("refers to {target:#x} relative to itself, which does not move"),
            )),
        }
    }

    /// Whether a reference moves. The end of the kernel's range counts, because a symbol may be
    /// there. So does an address a little outside if its symbol is inside, as in `array - 8`. A
    /// symbol minus the offset between linear and physical addresses does not count.
    fn moves(&self, symbol: u64, target: u64) -> bool {
        let image = self.image.start..=self.image.end;
        image.contains(&target) || (image.contains(&symbol) && target >> 63 == 1)
    }

    fn segment(&mut self, place: u64) -> Option<&Segment> {
        if !self.segments.get(self.last)?.range().contains(&place) {
            self.last = self
                .segments
                .iter()
                .position(|s| s.range().contains(&place))?;
        }
        self.segments.get(self.last)
    }

    /// Checks that a field holds `value`, and adds `change` to it. `last` is the segment of
    /// `place`.
    fn add(&mut self, place: u64, field: Field, value: u64, change: u64) -> Result<(), LoadError> {
        let segment = self
            .segments
            .get_mut(self.last)
            .ok_or_else(|| error(place, "is in none of the segments"))?;
        let at =
            usize::try_from(place - segment.vaddr).map_err(|_| error(place, "is too far away"))?;
        let bytes = at
            .checked_add(field.width())
            .and_then(|end| segment.bytes.get_mut(at..end))
            .ok_or_else(|| {
                error(
                    place,
                    "is not inside the bytes that the file has for its segment",
                )
            })?;
        let Some(old) = field.encode(value) else {
            return Err(error(
                place,
                "does not match: its value does not fit into its field",
            ));
        };
        if !old.starts_with(bytes) {
            return Err(error(
                place,
                &format!("does not match: {value:#x} should be there"),
            ));
        }
        let new = field.encode(value.wrapping_add(change)).ok_or_else(|| {
            error(
                place,
                &format!("does not fit at the kernel's address: {value:#x}"),
            )
        })?;
        for (to, from) in bytes.iter_mut().zip(new) {
            *to = from;
        }
        Ok(())
    }
}

/// The field of a relocation type (`None` if it is too narrow to leave a function), and whether it
/// is relative to its place.
fn field(kind: RelocationType) -> Option<(Option<Field>, bool)> {
    match kind {
        R_X86_64_64 => Some((Some(Field::Full), false)),
        R_X86_64_32S => Some((Some(Field::Signed32), false)),
        R_X86_64_32 => Some((Some(Field::Unsigned32), false)),
        R_X86_64_PC32 | R_X86_64_PLT32 => Some((Some(Field::Signed32), true)),
        R_X86_64_PC64 => Some((Some(Field::Full), true)),
        R_X86_64_PC8 | R_X86_64_PC16 => Some((None, true)),
        _ => None,
    }
}

fn error(place: u64, what: &str) -> LoadError {
    LoadError::Relocation(format!("at {place:#x} {what}"))
}
