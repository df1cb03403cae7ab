// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a guest kernel's ELF file: whether and how it can be booted.
//!
//! The back ends get the file as it is. These checks give a wrong file a clear error message
//! instead of a silent console.

use memchr::memmem;
use object::LittleEndian;
use object::elf::{ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64};
use object::elf::{PT_LOAD, PT_NOTE, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use paravane_abi as abi;
use thiserror::Error;

/// How a kernel can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Physical address of the 32-bit PVH entry: QEMU, Xen, Cloud Hypervisor.
    pub pvh_entry: Option<u32>,
    /// Linear address of the 64-bit VMI entry.
    pub vmi_entry: Option<u64>,
    /// The first guest-physical address after all segments.
    pub memory_end: u64,
}

/// Why a file cannot be booted.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ExecutableError {
    /// It has no ELF magic number.
    #[error("not an ELF file")]
    NotElf,
    /// A header or a segment ends after the end of the file.
    #[error("truncated: {0}")]
    Truncated(String),
    /// It is not for 64-bit x86.
    #[error("wrong machine: {0}, an x86-64 kernel was expected")]
    Machine(String),
    /// It is neither an executable nor position-independent; the ELF type.
    #[error("not an executable: ELF type {0}")]
    Type(u16),
    /// The headers contradict each other.
    #[error("damaged: {0}")]
    Damaged(String),
    /// It has neither entry note, and is not Linux.
    #[error("no VMI note and no PVH note: not a kernel that Paravane can start")]
    NoNote,
}

type Header = FileHeader64<LittleEndian>;
type Segment = ProgramHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// Type of the note with the name Xen that holds the PVH entry (XEN_ELFNOTE_PHYS32_ENTRY).
const NOTE_PVH: u32 = 18;
/// What Linux prints first. Its release follows.
const BANNER: &[u8] = b"Linux version ";
/// A release is shorter than this (`struct new_utsname`).
const LONGEST_RELEASE: usize = 65;
/// Size of an ELF-64 header in bytes.
const HEADER_SIZE: usize = size_of::<Header>();
/// Offsets of the class and the byte order in e_ident.
const EI_CLASS: usize = 4;
const EI_DATA: usize = 5;

impl Executable {
    /// Checks a file. An accepted file contains all its segments, and each entry is inside a
    /// segment.
    ///
    /// # Errors
    /// Why the file cannot be booted.
    pub fn parse(file: &[u8]) -> Result<Executable, ExecutableError> {
        let header = header(file)?;
        let segments = segments(header, file)?;
        let mut guest = Executable {
            pvh_entry: None,
            vmi_entry: None,
            memory_end: 0,
        };
        for (index, segment) in segments.iter().enumerate() {
            guest.add_segment(segment, index, file)?;
        }
        let noted = guest.pvh_entry.is_some() || guest.vmi_entry.is_some();
        if !noted && Self::release(file).is_none() {
            return Err(ExecutableError::NoNote);
        }
        guest.check_entries(segments)?;
        Ok(guest)
    }

    /// The release of the Linux that a file contains, such as `6.1.0-9-cloud-amd64`, as `uname -r`
    /// says.
    pub fn release(file: &[u8]) -> Option<String> {
        memmem::find_iter(file, BANNER).find_map(|at| {
            let text = file.get(at + BANNER.len()..)?;
            let text = text.get(..LONGEST_RELEASE).unwrap_or(text);
            let release = text.split(|byte| *byte == b' ').next()?;
            let good = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+~_".contains(byte);
            // Also not the format of such a text.
            let is_one = release.first()?.is_ascii_digit() && release.iter().all(good);
            (is_one && release.len() < text.len())
                .then(|| String::from_utf8_lossy(release).into_owned())
        })
    }

    fn add_segment(
        &mut self,
        segment: &Segment,
        index: usize,
        file: &[u8],
    ) -> Result<(), ExecutableError> {
        let kind = segment.p_type(LE);
        if kind != PT_LOAD && kind != PT_NOTE {
            return Ok(());
        }
        let (at, size) = segment.file_range(LE);
        segment.data(LE, file).map_err(|()| {
            let end = at.saturating_add(size);
            ExecutableError::Truncated(format!(
                "segment {index} ends at byte {end}, the file at {}",
                file.len()
            ))
        })?;
        if kind == PT_NOTE {
            return self.add_notes(segment, file);
        }
        let memory = segment.p_memsz(LE);
        if memory < size {
            return Err(ExecutableError::Damaged(format!(
                "segment {index} has more bytes in the file than in memory"
            )));
        }
        let wraps =
            || ExecutableError::Damaged(format!("segment {index} ends beyond the last address"));
        segment.p_vaddr(LE).checked_add(memory).ok_or_else(wraps)?;
        let end = segment.p_paddr(LE).checked_add(memory).ok_or_else(wraps)?;
        self.memory_end = self.memory_end.max(end);
        Ok(())
    }

    fn add_notes(&mut self, segment: &Segment, file: &[u8]) -> Result<(), ExecutableError> {
        let damaged =
            |_| ExecutableError::Damaged("a note does not fit into its segment".to_string());
        let Some(mut notes) = segment.notes(LE, file).map_err(damaged)? else {
            return Ok(());
        };
        while let Some(note) = notes.next().map_err(damaged)? {
            let short = |name: &str| {
                ExecutableError::Damaged(format!(
                    "its {name} note has only {} bytes",
                    note.desc().len()
                ))
            };
            match (note.name(), u64::from(note.n_type(LE).0)) {
                (b"Xen", kind) if kind == u64::from(NOTE_PVH) => {
                    // QEMU reads four bytes, whatever the note's length. Other loaders expect eight
                    // or accept both.
                    let entry = note.desc().first_chunk().ok_or_else(|| short("PVH"))?;
                    self.pvh_entry = Some(u32::from_le_bytes(*entry));
                }
                (b"VMI", abi::NOTE_ENTRY) => {
                    if note.desc().len() < size_of::<abi::NoteEntry>() {
                        return Err(short("VMI"));
                    }
                    let at = std::mem::offset_of!(abi::NoteEntry, entry);
                    let entry = note
                        .desc()
                        .get(at..)
                        .and_then(|d| d.first_chunk())
                        .ok_or_else(|| short("VMI"))?;
                    self.vmi_entry = Some(u64::from_le_bytes(*entry));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks the entries: one outside every segment would start the guest in empty memory.
    fn check_entries(&self, segments: &[Segment]) -> Result<(), ExecutableError> {
        let inside = |entry: u64, start: fn(&Segment) -> u64| {
            segments.iter().any(|s| {
                s.p_type(LE) == PT_LOAD && start(s) <= entry && entry - start(s) < s.p_memsz(LE)
            })
        };
        let outside = |name| {
            Err(ExecutableError::Damaged(format!(
                "its {name} entry is in none of its segments"
            )))
        };
        if self
            .pvh_entry
            .is_some_and(|e| !inside(e.into(), |s| s.p_paddr(LE)))
        {
            return outside("PVH");
        }
        if self
            .vmi_entry
            .is_some_and(|e| !inside(e, |s| s.p_vaddr(LE)))
        {
            return outside("VMI");
        }
        Ok(())
    }
}

fn header(file: &[u8]) -> Result<&Header, ExecutableError> {
    if !file.starts_with(&ELFMAG) {
        return Err(ExecutableError::NotElf);
    }
    if file.len() < HEADER_SIZE {
        return Err(ExecutableError::Truncated(format!(
            "{} bytes, an ELF header has {HEADER_SIZE}",
            file.len()
        )));
    }
    // The class and the byte order decide how the other fields are read.
    if file.get(EI_CLASS) != Some(&ELFCLASS64.0) {
        return Err(ExecutableError::Machine(
            "built for a 32-bit processor".to_string(),
        ));
    }
    if file.get(EI_DATA) != Some(&ELFDATA2LSB.0) {
        return Err(ExecutableError::Machine(
            "built for a big-endian processor".to_string(),
        ));
    }
    let header = Header::parse(file).map_err(|e| ExecutableError::Damaged(e.to_string()))?;
    let machine = header.e_machine(LE);
    if machine != EM_X86_64 {
        return Err(ExecutableError::Machine(format!(
            "ELF machine {}",
            machine.0
        )));
    }
    let kind = header.e_type(LE);
    if kind != ET_EXEC && kind != ET_DYN {
        return Err(ExecutableError::Type(kind.0));
    }
    // Nothing here reads sections. They come last in most files, so their presence shows that the
    // file is complete.
    if header.section_headers(LE, file).is_err() {
        return Err(ExecutableError::Truncated(
            "its section headers are not all inside the file".to_string(),
        ));
    }
    Ok(header)
}

fn segments<'a>(header: &Header, file: &'a [u8]) -> Result<&'a [Segment], ExecutableError> {
    header.program_headers(LE, file).map_err(|_| {
        ExecutableError::Truncated("its program headers are not all inside the file".to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An ELF file with a note segment and a loaded segment, both entries at 1 MiB.
    fn valid() -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(ELFMAG);
        file.extend([2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for half in [2u16, 62] {
            file.extend(half.to_le_bytes());
        }
        file.extend(1u32.to_le_bytes());
        for word in [0x10_0000u64, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for half in [64u16, 56, 2, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        segment(&mut file, 1, [0, 0x10_0000, 0x10_0000, 228, 4096]);
        segment(&mut file, 4, [176, 0, 0, 52, 52]);
        note(&mut file, *b"Xen\0", 18, &0x10_0000u32.to_le_bytes());
        let mut entry = 0x10_0000u64.to_le_bytes().to_vec();
        entry.extend([0; 8]);
        note(&mut file, *b"VMI\0", 1, &entry);
        assert_eq!(file.len(), 228);
        file
    }

    fn segment(file: &mut Vec<u8>, kind: u32, words: [u64; 5]) {
        file.extend(kind.to_le_bytes());
        file.extend(7u32.to_le_bytes());
        for word in words.into_iter().chain([4]) {
            file.extend(word.to_le_bytes());
        }
    }

    fn note(file: &mut Vec<u8>, name: [u8; 4], kind: u32, desc: &[u8]) {
        for word in [4, u32::try_from(desc.len()).unwrap(), kind] {
            file.extend(word.to_le_bytes());
        }
        file.extend(name);
        file.extend(desc);
    }

    #[test]
    fn both_entries_are_found() {
        let guest = Executable::parse(&valid()).unwrap();
        assert_eq!(guest.pvh_entry, Some(0x10_0000));
        assert_eq!(guest.vmi_entry, Some(0x10_0000));
        assert_eq!(guest.memory_end, 0x10_1000);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let after = |at: usize, byte: u8| {
            let mut file = valid();
            file[at] = byte;
            Executable::parse(&file).unwrap_err().to_string()
        };
        assert_eq!(
            Executable::parse(b"#!/bin/sh"),
            Err(ExecutableError::NotElf)
        );
        assert!(
            Executable::parse(&valid()[..40])
                .unwrap_err()
                .to_string()
                .starts_with("truncated: 40 bytes")
        );
        assert!(
            Executable::parse(&valid()[..100])
                .unwrap_err()
                .to_string()
                .contains("program headers")
        );
        let cut = Executable::parse(&valid()[..227]).unwrap_err().to_string();
        assert_eq!(
            cut,
            "truncated: segment 0 ends at byte 228, the file at 227"
        );
        assert!(after(4, 1).contains("32-bit"));
        assert!(after(5, 2).contains("big-endian"));
        assert!(after(18, 183).contains("ELF machine 183"));
        assert!(after(16, 1).contains("ELF type 1"));
        assert!(after(120, 6).contains("no VMI note and no PVH note"));
        assert!(after(64 + 41, 0).contains("more bytes in the file than in memory"));
        assert!(after(176 + 18, 0).contains("PVH entry is in none"));
    }

    /// An older Linux, or one without these options, is started by its own boot protocol.
    #[test]
    fn linux_needs_no_note() {
        let mut file = valid();
        file[120] = 6;
        assert_eq!(Executable::parse(&file), Err(ExecutableError::NoNote));
        file.extend(b"%s version %s\0Linux version %d\0Linux version 6.1.0-9-amd64 (gcc) #1\0");
        let guest = Executable::parse(&file).unwrap();
        assert_eq!((guest.pvh_entry, guest.vmi_entry), (None, None));
        let release = |text: &[u8]| Executable::release(text);
        assert_eq!(release(&file).as_deref(), Some("6.1.0-9-amd64"));
        assert_eq!(release(b"Linux version 6.1"), None);
        assert_eq!(release(b"Linux version 6/../.. x"), None);
        assert_eq!(release(b"Linux version "), None);
        let long = [BANNER, &[b'6'; LONGEST_RELEASE][..], b" x"].concat();
        assert_eq!(release(&long), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Executable::parse(&bytes);
        }

        #[test]
        fn an_accepted_file_has_its_entries_in_memory(
            changes in prop::collection::vec((0usize..228, any::<u8>()), 1..6),
            length in 150usize..=228,
        ) {
            let mut file = valid();
            for (at, byte) in changes {
                file[at] = byte;
            }
            file.truncate(length);
            if let Ok(guest) = Executable::parse(&file) {
                prop_assert!(guest.pvh_entry.is_some() || guest.vmi_entry.is_some());
                prop_assert!(guest.pvh_entry.is_none_or(|e| u64::from(e) < guest.memory_end));
            }
        }
    }
}
