// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses a ROM: an option ROM with a VMI header (`abi/vmi.toml`, `vmi_rom_header` and the tables
//! that it points to).
//!
//! The file may contain anything. A ROM that `Rom::parse` accepts can be used without further
//! checks: every table, entry point and inline replacement lies inside of it. Offsets are computed
//! in 64 bits, so no sum can wrap.

mod inspect;
mod read;
#[cfg(test)]
mod tests;

pub use inspect::inspect;

use paravane_abi as abi;
use paravane_user_io::text;
use read::{Reader, field};
use thiserror::Error;

/// A ROM that has passed every check.
#[derive(Debug, PartialEq, Eq)]
pub struct Rom {
    pub header: Header,
    pub sections: Vec<Section>,
    pub extable: Vec<ExtableEntry>,
}

/// The fields of the header that are of interest to a user.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub rom_bytes: u32,
    pub api_major: u8,
    pub api_minor: u8,
    pub header_size: u16,
    pub image_size: u32,
    pub load_size: u32,
    pub percpu_size: u32,
    pub reserve_start: u64,
    pub reserve_end: u64,
    pub name: String,
    pub flags: u32,
}

/// A section that the layer implements.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    pub id: u16,
    pub version: u16,
    pub compat: u16,
    pub features: u32,
    pub calls: Vec<CallEntry>,
}

/// One call of a section.
#[derive(Debug, PartialEq, Eq)]
pub struct CallEntry {
    /// Entry point; `None` if the layer does not implement the call.
    pub offset: Option<u32>,
    pub reloc: Reloc,
}

/// What replaces a site of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloc {
    None,
    Call,
    Jump,
    Nop,
    Inline(Vec<u8>),
}

/// An instruction of the layer that may fault, with its fixup.
#[derive(Debug, PartialEq, Eq)]
pub struct ExtableEntry {
    pub insn: u32,
    pub fixup: u32,
}

/// Why a ROM is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RomError {
    #[error("truncated: {have} bytes, a layer's image has at least {need}")]
    Short { have: usize, need: usize },
    #[error("not an option ROM: it does not start with the bytes 55 AA")]
    Signature,
    #[error("truncated: {have} bytes, its header says {need}")]
    Truncated { have: usize, need: u32 },
    #[error("damaged: its bytes add up to {0:#04x} instead of 0, the checksum does not fit")]
    Checksum(u8),
    #[error("an option ROM, but not a VMI layer: it has no VMI6 signature at byte 8")]
    NoVmiHeader,
    #[error(
        "written for VMI {major}.{minor}, this program knows VMI {}.x",
        abi::API_MAJOR
    )]
    Major { major: u8, minor: u8 },
    #[error("damaged: {what} is {value}, {rule}")]
    Value {
        what: String,
        value: u64,
        rule: String,
    },
    #[error("damaged: {what} reaches from byte {start} to {end}, the image ends at {limit}")]
    OutOfBounds {
        what: String,
        start: u64,
        end: u64,
        limit: u64,
    },
    #[error("damaged: section {0} is there twice")]
    DuplicateSection(u16),
}

fn value(what: impl Into<String>, value: impl Into<u64>, rule: impl Into<String>) -> RomError {
    RomError::Value {
        what: what.into(),
        value: value.into(),
        rule: rule.into(),
    }
}

/// The size of a structure of the interface: at most a few hundred bytes.
#[allow(clippy::cast_possible_truncation)]
const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

const HEADER_SIZE: u32 = size::<abi::RomHeader>();

impl Rom {
    /// Checks everything that a kernel relies on.
    pub fn parse(file: &[u8]) -> Result<Rom, RomError> {
        let image = image(file)?;
        let header = header(image)?;
        // Bytes after image_size are padding: no table may point there.
        let image = Reader::new(image.bytes(0, header.image_size.into(), "image_size")?);
        let sections = sections(image)?;
        let extable = extable(image)?;
        Ok(Rom {
            header,
            sections,
            extable,
        })
    }
}

/// The part of the file that is the option ROM, after the checks of the firmware and of a kernel's
/// scan.
fn image(file: &[u8]) -> Result<Reader<'_>, RomError> {
    let whole = Reader::new(file);
    let short = RomError::Short {
        have: file.len(),
        need: HEADER_SIZE as usize,
    };
    let signature = field!(whole, 0, abi::RomHeader, rom_signature as u16);
    match signature {
        Ok(s) if u64::from(s) == abi::ROM_SIGNATURE => {}
        Ok(_) => return Err(RomError::Signature),
        Err(_) => return Err(short),
    }
    if file.len() < HEADER_SIZE as usize {
        return Err(short);
    }
    let units = field!(whole, 0, abi::RomHeader, rom_length as u8)?;
    let bytes = u32::from(units) * ROM_UNIT;
    if bytes < HEADER_SIZE {
        return Err(value("rom_length", units, "the least is 1"));
    }
    let rom = whole
        .bytes(0, bytes.into(), "")
        .map_err(|_| RomError::Truncated {
            have: file.len(),
            need: bytes,
        })?;
    let sum = rom.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    if sum != 0 {
        return Err(RomError::Checksum(sum));
    }
    Ok(Reader::new(rom))
}

#[allow(clippy::cast_possible_truncation)] // 512
const ROM_UNIT: u32 = abi::ROM_UNIT as u32;

fn header(image: Reader<'_>) -> Result<Header, RomError> {
    macro_rules! get {
        ($field:ident as $int:ty) => {
            field!(image, 0, abi::RomHeader, $field as $int)?
        };
    }
    if u64::from(get!(vmi_signature as u32)) != abi::SIGNATURE {
        return Err(RomError::NoVmiHeader);
    }
    let (major, minor) = (get!(api_major as u8), get!(api_minor as u8));
    if major != abi::API_MAJOR {
        return Err(RomError::Major { major, minor });
    }
    let rom_bytes = u32::from(get!(rom_length as u8)) * ROM_UNIT;
    let raw_name: [u8; 16] =
        image.array(std::mem::offset_of!(abi::RomHeader, name) as u64, "name")?;
    let name_end = raw_name
        .iter()
        .position(|&b| b == 0)
        .unwrap_or(raw_name.len());
    let header = Header {
        rom_bytes,
        api_major: major,
        api_minor: minor,
        header_size: get!(header_size as u16),
        image_size: get!(image_size as u32),
        load_size: get!(load_size as u32),
        percpu_size: get!(percpu_size as u32),
        reserve_start: get!(reserve_start as u64),
        reserve_end: get!(reserve_end as u64),
        name: text::clean(&raw_name[..name_end]),
        flags: get!(flags as u32),
    };
    check_header(&header)?;
    Ok(header)
}

fn check_header(h: &Header) -> Result<(), RomError> {
    let image = h.image_size;
    if u32::from(h.header_size) < HEADER_SIZE {
        return Err(value(
            "header_size",
            h.header_size,
            format!("the least is {HEADER_SIZE}"),
        ));
    }
    if u32::from(h.header_size) > image {
        return Err(value(
            "header_size",
            h.header_size,
            format!("image_size is only {image}"),
        ));
    }
    if image > h.rom_bytes {
        return Err(value(
            "image_size",
            image,
            format!("rom_length says {} bytes", h.rom_bytes),
        ));
    }
    if h.load_size < image {
        return Err(value(
            "load_size",
            h.load_size,
            format!("image_size is {image}"),
        ));
    }
    if u64::from(h.percpu_size) % abi::PERCPU_ALIGN != 0 {
        return Err(value(
            "percpu_size",
            h.percpu_size,
            format!("not a multiple of {}", abi::PERCPU_ALIGN),
        ));
    }
    if h.reserve_start > h.reserve_end {
        return Err(value(
            "reserve_start",
            h.reserve_start,
            format!("reserve_end is {}", h.reserve_end),
        ));
    }
    Ok(())
}

fn sections(image: Reader<'_>) -> Result<Vec<Section>, RomError> {
    let at = field!(image, 0, abi::RomHeader, sections as u32)?;
    let count = field!(image, 0, abi::RomHeader, section_count as u16)?;
    let step = field!(image, 0, abi::RomHeader, section_size as u16)?;
    let call_step = field!(image, 0, abi::RomHeader, call_size as u32)?;
    let least = size::<abi::Section>();
    if u32::from(step) < least {
        return Err(value("section_size", step, format!("the least is {least}")));
    }
    let least = size::<abi::CallEntry>();
    if call_step < least {
        return Err(value(
            "call_size",
            call_step,
            format!("the least is {least}"),
        ));
    }
    let mut sections: Vec<Section> = Vec::new();
    for at in image.table(at, count.into(), step.into(), "the table of sections")? {
        let section = section(image, at, call_step)?;
        if sections.iter().any(|s| s.id == section.id) {
            return Err(RomError::DuplicateSection(section.id));
        }
        sections.push(section);
    }
    Ok(sections)
}

fn section(image: Reader<'_>, at: u64, call_step: u32) -> Result<Section, RomError> {
    macro_rules! get {
        ($field:ident as $int:ty) => {
            field!(image, at, abi::Section, $field as $int)?
        };
    }
    let id = get!(id as u16);
    let (version, compat) = (get!(version as u16), get!(compat as u16));
    if version == 0 || compat == 0 || compat > version {
        let rule = format!("from 1 to the section's version, which is {version}, was expected");
        return Err(value(format!("compat of section {id}"), compat, rule));
    }
    let (table, count) = (get!(calls as u32), get!(call_count as u16));
    let what = format!("the table of calls of section {id}");
    let calls = image
        .table(table, count.into(), call_step, &what)?
        .enumerate()
        .map(|(index, at)| call(image, at, &format!("section {id} call {index}")))
        .collect::<Result<_, _>>()?;
    Ok(Section {
        id,
        version,
        compat,
        features: get!(features as u32),
        calls,
    })
}

fn call(image: Reader<'_>, at: u64, name: &str) -> Result<CallEntry, RomError> {
    let offset = field!(image, at, abi::CallEntry, offset as u32)?;
    let kind = field!(image, at, abi::CallEntry, reloc as u8)?;
    let inline = field!(image, at, abi::CallEntry, inline_offset as u32)?;
    if offset != 0 {
        // The length of the code is not known. At least one byte must exist.
        image.bytes(offset.into(), 1, &format!("the entry of {name}"))?;
    }
    let reloc = match u64::from(kind) {
        abi::RELOC_NONE => Reloc::None,
        abi::RELOC_CALL => Reloc::Call,
        abi::RELOC_JUMP => Reloc::Jump,
        abi::RELOC_NOP => Reloc::Nop,
        abi::RELOC_INLINE => Reloc::Inline(inline_code(image, inline.into(), name)?),
        _ => {
            return Err(value(
                format!("reloc of {name}"),
                kind,
                "no such kind is known",
            ));
        }
    };
    if offset == 0 && matches!(reloc, Reloc::Call | Reloc::Jump | Reloc::Inline(_)) {
        return Err(value(
            format!("offset of {name}"),
            offset,
            "but its sites are to be sent there",
        ));
    }
    Ok(CallEntry {
        offset: (offset != 0).then_some(offset),
        reloc,
    })
}

fn inline_code(image: Reader<'_>, at: u64, name: &str) -> Result<Vec<u8>, RomError> {
    let what = format!("the inline code of {name}");
    // A kernel copies the whole structure.
    let entry = Reader::new(image.bytes(at, size::<abi::Inline>().into(), &what)?);
    let length = field!(entry, 0, abi::Inline, length as u8)?;
    if length == 0 || u64::from(length) > abi::INLINE_MAX {
        return Err(value(
            format!("length of {what}"),
            length,
            format!("1 to {} was expected", abi::INLINE_MAX),
        ));
    }
    Ok(entry
        .bytes(
            std::mem::offset_of!(abi::Inline, code) as u64,
            length.into(),
            &what,
        )?
        .to_vec())
}

fn extable(image: Reader<'_>) -> Result<Vec<ExtableEntry>, RomError> {
    let at = field!(image, 0, abi::RomHeader, extable as u32)?;
    let count = field!(image, 0, abi::RomHeader, extable_count as u32)?;
    image
        .table(
            at,
            count,
            size::<abi::ExtableEntry>(),
            "the exception table",
        )?
        .enumerate()
        .map(|(n, at)| {
            let insn = field!(image, at, abi::ExtableEntry, insn as u32)?;
            let fixup = field!(image, at, abi::ExtableEntry, fixup as u32)?;
            image.bytes(
                insn.into(),
                1,
                &format!("the instruction of exception entry {n}"),
            )?;
            image.bytes(
                fixup.into(),
                1,
                &format!("the fixup of exception entry {n}"),
            )?;
            Ok(ExtableEntry { insn, fixup })
        })
        .collect()
}
