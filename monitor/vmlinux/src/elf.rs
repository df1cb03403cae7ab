// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads code, symbols and tables of a kernel's ELF file.

use anyhow::{Context, bail};
use object::LittleEndian as LE;
use object::elf::{
    FileHeader64, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_RELA, STT_FUNC,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use paravane_user_io::text::hex;
use std::cmp::Reverse;
use std::collections::BTreeMap;

type Header = FileHeader64<LE>;

/// Type of the note, with the name GNU, that identifies a build.
const NOTE_BUILD_ID: u32 = 3;

/// A loaded section.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Its name in the section header.
    pub name: String,
    /// Link address.
    pub address: u64,
    /// Its bytes in the file.
    pub bytes: &'a [u8],
    /// The section contains instructions.
    pub code: bool,
}

/// A loaded segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Link address.
    pub address: u64,
    /// Its bytes in the file.
    pub bytes: &'a [u8],
    /// Bytes that it occupies in memory.
    pub size: u64,
}

/// A kernel's ELF file.
#[derive(Debug)]
pub struct Image<'a> {
    /// Loaded sections, in the order of the file.
    pub sections: Vec<Section<'a>>,
    /// Symbols in code sections, in ascending order of address; one for each address.
    pub symbols: Vec<(u64, String)>,
    /// The build ID, in hexadecimal digits.
    pub build_id: Option<String>,
    /// The number of relocations of loaded sections, by type.
    pub relocations: BTreeMap<u32, u64>,
}

impl<'a> Image<'a> {
    /// Reads a kernel's ELF file.
    ///
    /// # Errors
    /// The file is not an ELF file, or its tables are damaged.
    pub fn read(file: &'a [u8]) -> anyhow::Result<Self> {
        let header = Header::parse(file).context("not an ELF file")?;
        let table = header
            .sections(LE, file)
            .context("its sections are damaged")?;
        let loaded = |flags| SHF_ALLOC.0 & flags != 0;
        let mut sections = Vec::new();
        let mut code = Vec::new();
        let mut relocations = BTreeMap::new();
        for (index, section) in table.enumerate() {
            let flags = section.sh_flags(LE).0;
            if section.sh_type(LE) == SHT_RELA {
                let target = table.section(object::SectionIndex(section.sh_info(LE) as usize));
                if target.is_ok_and(|t| loaded(t.sh_flags(LE).0)) {
                    let list = section
                        .rela(LE, file)
                        .context("a relocation section is damaged")?;
                    let list = list.map(|(list, _)| list).unwrap_or_default();
                    for relocation in list {
                        *relocations
                            .entry(relocation.r_type(LE, false).0)
                            .or_default() += 1;
                    }
                }
                continue;
            }
            if !loaded(flags) || section.sh_type(LE) == SHT_NOBITS {
                continue;
            }
            let is_code = flags & SHF_EXECINSTR.0 != 0;
            if is_code {
                code.push(index.0);
            }
            sections.push(Section {
                name: String::from_utf8_lossy(table.section_name(LE, section)?).into_owned(),
                address: section.sh_addr(LE),
                bytes: section
                    .data(LE, file)
                    .ok()
                    .context("a section is not inside the file")?,
                code: is_code,
            });
        }
        let best = code_symbols(file, &table, &code)?;
        if best.is_empty() {
            bail!("it has no symbols: use the file that `paravane kernel build` writes");
        }
        let build_id = sections
            .iter()
            .find(|s| s.name == ".notes")
            .and_then(|s| build_id(s.bytes));
        Ok(Image {
            sections,
            symbols: best
                .into_iter()
                .map(|(address, symbol)| (address, symbol.name))
                .collect(),
            build_id,
            relocations,
        })
    }

    /// A section by its name.
    pub fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// The name of the symbol that contains an address.
    pub fn symbol(&self, address: u64) -> &str {
        self.find(address).map_or("?", |(name, _)| name)
    }

    /// The name of the symbol that contains an address, and the offset in it, in bytes.
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        let behind = self.symbols.partition_point(|(at, _)| *at <= address);
        let (at, name) = self.symbols.get(behind.checked_sub(1)?)?;
        Some((name, address - at))
    }
}

/// A symbol of a code section.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Symbol {
    function: bool,
    size: u64,
    name: String,
}

/// The symbols in code sections (`code`: their indices) by address. Of several at one address the
/// result has a function, else the first name in order.
fn code_symbols(
    file: &[u8],
    table: &SectionTable<'_, Header>,
    code: &[usize],
) -> anyhow::Result<BTreeMap<u64, Symbol>> {
    let symbols = table
        .symbols(LE, file, object::elf::SHT_SYMTAB)
        .context("its symbols are damaged")?;
    let mut best: BTreeMap<u64, Symbol> = BTreeMap::new();
    for symbol in symbols.iter() {
        // Undefined and special symbols are in no code section.
        if !code.contains(&usize::from(symbol.st_shndx(LE).0)) {
            continue;
        }
        let name = String::from_utf8_lossy(symbol.name(LE, symbols.strings())?).into_owned();
        // `__pfx_` symbols name the padding before a function.
        if name.is_empty() || name.starts_with("__pfx_") {
            continue;
        }
        let new = Symbol {
            function: symbol.st_type() == STT_FUNC,
            size: symbol.st_size(LE),
            name,
        };
        let entry = best
            .entry(symbol.st_value(LE))
            .or_insert_with(|| new.clone());
        if (new.function, Reverse(&new.name)) > (entry.function, Reverse(&entry.name)) {
            *entry = new;
        }
    }
    Ok(best)
}

/// A function's place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Link address.
    pub address: u64,
    /// Its length in bytes, at least 1. It ends before the next function.
    pub size: u64,
    /// Its name.
    pub name: String,
}

/// The functions of a program, in ascending order of address.
///
/// A symbol without a size, as in assembler, reaches to the next one, or to the end of its section.
///
/// # Errors
/// The file is not an ELF file, or its tables are damaged.
pub fn functions(file: &[u8]) -> anyhow::Result<Vec<Function>> {
    let header = Header::parse(file).context("not an ELF file")?;
    let table = header
        .sections(LE, file)
        .context("its sections are damaged")?;
    let wanted = SHF_ALLOC.0 | SHF_EXECINSTR.0;
    let (mut code, mut ends) = (Vec::new(), Vec::new());
    for (index, section) in table.enumerate() {
        if section.sh_flags(LE).0 & wanted == wanted {
            code.push(index.0);
            ends.push(section.sh_addr(LE).saturating_add(section.sh_size(LE)));
        }
    }
    ends.sort_unstable();
    let symbols = code_symbols(file, &table, &code)?;
    let mut next = symbols.keys().skip(1);
    let mut all = Vec::with_capacity(symbols.len());
    for (&address, symbol) in &symbols {
        let section_end = ends.get(ends.partition_point(|&end| end <= address));
        let section_end = section_end.copied().unwrap_or(u64::MAX);
        let end = next.next().map_or(section_end, |&at| at.min(section_end));
        let room = end - address;
        all.push(Function {
            address,
            size: if symbol.size == 0 {
                room
            } else {
                symbol.size.min(room)
            },
            name: symbol.name.clone(),
        });
    }
    Ok(all)
}

/// The build ID of a kernel's file, in hexadecimal digits; `None` without one.
///
/// # Errors
/// The file is not an ELF file, or its sections are damaged.
pub fn build_id_of(file: &[u8]) -> anyhow::Result<Option<String>> {
    let header = Header::parse(file).context("not an ELF file")?;
    let table = header
        .sections(LE, file)
        .context("its sections are damaged")?;
    let notes = table.section_by_name(LE, b".notes");
    let notes = notes.and_then(|(_, section)| section.data(LE, file).ok());
    Ok(notes.and_then(build_id))
}

/// The loaded segments of an ELF file.
pub fn segments(file: &[u8]) -> anyhow::Result<Vec<Segment<'_>>> {
    let header = Header::parse(file).context("not an ELF file")?;
    let mut all = Vec::new();
    for entry in header.program_headers(LE, file)? {
        if entry.p_type(LE) == PT_LOAD {
            all.push(Segment {
                address: entry.p_vaddr(LE),
                bytes: entry
                    .data(LE, file)
                    .ok()
                    .context("a segment is not inside the file")?,
                size: entry.p_memsz(LE),
            });
        }
    }
    Ok(all)
}

/// The build ID in the bytes of a note section.
pub fn build_id(mut notes: &[u8]) -> Option<String> {
    loop {
        let word = |at: usize| {
            notes
                .get(at..)?
                .first_chunk()
                .map(|b| u32::from_le_bytes(*b))
        };
        let (names, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let start = 12 + names.checked_next_multiple_of(4)?;
        let text = notes.get(12..12 + names)?;
        let content = notes.get(start..start.checked_add(size)?)?;
        if text == b"GNU\0" && kind == NOTE_BUILD_ID {
            return Some(hex(content));
        }
        notes = notes.get(start + size.checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_behind_another_note() {
        let note = |kind: u32, content: &[u8]| {
            let mut bytes = Vec::new();
            for word in [4, u32::try_from(content.len()).unwrap(), kind] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(b"GNU\0");
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let notes = [note(1, b"12345"), note(3, &[0xab, 1])].concat();
        assert_eq!(build_id(&notes).as_deref(), Some("ab01"));
        assert_eq!(build_id(&notes[..notes.len() - 4]), None);
        assert_eq!(build_id(b"x"), None);
    }

    /// Reads this test's own program.
    #[test]
    fn functions_do_not_overlap_and_have_a_size() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let all = functions(&file).unwrap();
        let own = all
            .iter()
            .find(|f| f.name.contains("functions_do_not_overlap_and_have_a_size") && f.size > 16);
        assert!(own.is_some(), "{} functions", all.len());
        for pair in all.windows(2) {
            let [a, b] = pair else { unreachable!() };
            assert!(a.size > 0 && a.address + a.size <= b.address, "{a:?} {b:?}");
        }
        assert!(functions(b"\x7fELF").is_err());
        assert!(build_id_of(b"").is_err());
    }
}
