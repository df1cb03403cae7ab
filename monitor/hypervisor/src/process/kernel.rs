// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads a kernel's ELF file for an address space that a host process can have.
//!
//! A kernel is linked for the upper half of the address space; a host process has only the lower
//! half. So the kernel moves into the hole below the layer, by a multiple of 2 MiB to keep its
//! large pages, and every absolute reference to it is relocated ([`super::relocate`]). There are
//! three kinds of segments:
//!
//! * Linked at its physical address: boot code for bare metal. Loaded, but neither moved nor mapped
//!   in the hole.
//! * Linked in the upper half: loaded, its references relocated, mapped in the hole.
//! * Others, such as Linux's per-CPU data, which is linked at 0: loaded, its references relocated.

use super::relocate;
use crate::ram::{LARGE_PAGE, Ram};
use crate::size::size;
use memmap2::{Advice, MmapMut};
use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD, PT_NOTE, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use paravane_abi as abi;
use paravane_abi::process as ph;
use std::io;
use std::ops::Range;
use thiserror::Error;

pub const LE: LittleEndian = LittleEndian;
pub type Header = FileHeader64<LittleEndian>;
type ProgramEntry = ProgramHeader64<LittleEndian>;

const PAGE: u64 = 4096;
/// Link addresses from here on move into the hole.
const UPPER_HALF: u64 = 1 << 63;
/// Where the kernel goes, except for its offset in a large page. The 2 MiB before it stay free.
const LOAD_BASE: u64 = ph::PHV_IMAGE_START + LARGE_PAGE;
/// More segments than any kernel has.
const MAX_SEGMENTS: usize = 64;

/// Why a kernel cannot be loaded.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("no VMI note: this hypervisor has no other way to start a kernel")]
    NoNote,
    #[error("it has no segment in the upper half of the addresses: not a VMI kernel")]
    NoImage,
    #[error("its relocations were not kept: link it with --emit-relocs")]
    NoRelocations,
    #[error("relocation {0}")]
    Relocation(String),
    #[error("{0}")]
    Room(String),
}

/// What a relocation may find at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Boot code for bare metal.
    Boot,
    /// A segment that moves.
    Image,
    /// A segment that does not move and refers to one that does.
    Fixed,
}

/// A segment that is loaded.
#[derive(Debug)]
pub struct Segment {
    pub kind: Kind,
    pub vaddr: u64,
    pub gpa: u64,
    /// Size in memory in bytes. The memory after `bytes` is zero.
    pub size: u64,
    pub bytes: MmapMut,
}

impl Segment {
    /// Its link addresses.
    pub fn range(&self) -> Range<u64> {
        // Checked when it was read: does not wrap.
        self.vaddr..self.vaddr + self.size
    }
}

/// A relocated kernel.
#[derive(Debug)]
pub struct Kernel {
    pub segments: Vec<Segment>,
    /// Page-aligned ranges of the hole and the guest memory that they show, for
    /// [`ph::area::Shared`].
    pub windows: Vec<ph::PhvSegment>,
    /// The VMI entry, relocated.
    pub entry: u64,
    /// The lowest address in the hole.
    pub address: u64,
    /// The guest-physical address of `address`.
    pub gpa: u64,
    /// Size of the range in the hole in bytes.
    pub size: u64,
    /// Load address minus link address, modulo 2^64.
    pub delta: u64,
    /// Its note has [`abi::NOTE_COMPACT`].
    compact: bool,
}

impl Kernel {
    /// Reads and relocates a kernel. `limit` is the end of guest memory that a kernel may use.
    ///
    /// # Errors
    /// Why the kernel cannot be loaded.
    pub fn read(file: &[u8], limit: u64) -> Result<Kernel, LoadError> {
        let header = Header::parse(file).map_err(|e| LoadError::Damaged(e.to_string()))?;
        let entries = header.program_headers(LE, file).map_err(|_| {
            LoadError::Damaged("its program headers are not all inside the file".to_string())
        })?;
        let mut segments = load_segments(entries, file, limit)?;
        let Entry { entry, compact } = entry(entries, file)?.ok_or(LoadError::NoNote)?;

        let image: Vec<&Segment> = segments.iter().filter(|s| s.kind == Kind::Image).collect();
        let first = image
            .iter()
            .min_by_key(|s| s.vaddr)
            .ok_or(LoadError::NoImage)?;
        let (link, gpa) = (first.vaddr, first.gpa);
        let end = image.iter().map(|s| s.range().end).max().unwrap_or(link);
        if !image.iter().any(|s| s.range().contains(&entry)) {
            return Err(LoadError::Damaged(
                "its VMI entry is in none of its upper segments".to_string(),
            ));
        }
        let address = LOAD_BASE + link % LARGE_PAGE;
        let size = end - link;
        if size > ph::PHV_LAYER_BASE - address {
            return Err(LoadError::Room(format!(
                "it has {} MiB in the upper half, the limit is {}",
                size >> 20,
                (ph::PHV_LAYER_BASE - LOAD_BASE) >> 20
            )));
        }
        let delta = address.wrapping_sub(link);
        let windows = windows(&image, delta)?;
        relocate::apply(header, file, &mut segments, link..end, delta)?;
        Ok(Kernel {
            segments,
            windows,
            entry: entry.wrapping_add(delta),
            address,
            gpa,
            size,
            delta,
            compact,
        })
    }

    /// The linear address of guest-physical 0 with `ram` bytes of RAM. Programs have the addresses
    /// below it.
    pub fn direct_map(&self, ram: u64) -> u64 {
        if self.compact && ram <= ph::PHV_DIRECT_MAP_SIZE {
            ph::PHV_DIRECT_MAP
        } else {
            ph::PHV_DIRECT_MAP_WIDE
        }
    }

    /// Stores the segments in fresh guest memory, in which everything else is zero.
    ///
    /// # Errors
    /// The host gives no memory.
    pub fn store(&self, ram: &Ram) -> anyhow::Result<()> {
        for segment in self.segments.iter().filter(|s| s.kind != Kind::Boot) {
            ram.collapse(segment.gpa, segment.size);
        }
        for segment in &self.segments {
            ram.store(segment.gpa, &segment.bytes)?;
        }
        Ok(())
    }
}

fn load_segments(
    entries: &[ProgramEntry],
    file: &[u8],
    limit: u64,
) -> Result<Vec<Segment>, LoadError> {
    let mut segments = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.p_type(LE) == PT_LOAD && entry.p_memsz(LE) > 0 {
            if segments.len() == MAX_SEGMENTS {
                return Err(LoadError::Damaged(format!("over {MAX_SEGMENTS} segments")));
            }
            segments.push(load_segment(entry, index, file)?);
        }
    }
    let end = segments.iter().map(|s| s.gpa + s.size).max().unwrap_or(0);
    if end > limit {
        return Err(LoadError::Room(format!(
            "it ends at {} MiB of the machine's memory, of which a kernel may use {} MiB: give the \
             machine more memory",
            end.div_ceil(1 << 20),
            limit >> 20
        )));
    }
    // If two segments overlapped, the content would depend on their order.
    for key in [
        |s: &Segment| (s.vaddr, s.size),
        |s: &Segment| (s.gpa, s.size),
    ] {
        let mut ranges: Vec<(u64, u64)> = segments.iter().map(key).collect();
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|w| w[0].0 + w[0].1 > w[1].0) {
            return Err(LoadError::Damaged(format!(
                "two of its segments overlap at {:#x}",
                pair[1].0
            )));
        }
    }
    Ok(segments)
}

fn load_segment(entry: &ProgramEntry, index: usize, file: &[u8]) -> Result<Segment, LoadError> {
    let (vaddr, gpa, memory) = (entry.p_vaddr(LE), entry.p_paddr(LE), entry.p_memsz(LE));
    let damaged = |what: &str| LoadError::Damaged(format!("segment {index} {what}"));
    let bytes = entry
        .data(LE, file)
        .map_err(|()| damaged("is not all inside the file"))?;
    if bytes.len() > size(memory) {
        return Err(damaged("has more bytes in the file than in memory"));
    }
    vaddr
        .checked_add(memory)
        .ok_or_else(|| damaged("reaches beyond the end of all addresses"))?;
    gpa.checked_add(memory)
        .ok_or_else(|| damaged("reaches beyond the end of all addresses"))?;
    let kind = match vaddr {
        _ if vaddr == gpa => Kind::Boot,
        UPPER_HALF.. => Kind::Image,
        _ => Kind::Fixed,
    };
    Ok(Segment {
        kind,
        vaddr,
        gpa,
        size: memory,
        bytes: copy(bytes).map_err(|e| LoadError::Room(format!("no memory to load it: {e}")))?,
    })
}

/// Copies into large pages where the host has some: thousands of page faults would take longer than
/// everything else here.
fn copy(bytes: &[u8]) -> io::Result<MmapMut> {
    let mut copy = MmapMut::map_anon(bytes.len())?;
    // A request only, which kernels without large pages refuse.
    let _ = copy.advise(Advice::HugePage);
    copy.copy_from_slice(bytes);
    Ok(copy)
}

/// The link address of the VMI entry.
/// What the VMI note says.
struct Entry {
    entry: u64,
    compact: bool,
}

fn entry(entries: &[ProgramEntry], file: &[u8]) -> Result<Option<Entry>, LoadError> {
    let damaged = |_| LoadError::Damaged("a note does not fit into its segment".to_string());
    for segment in entries.iter().filter(|e| e.p_type(LE) == PT_NOTE) {
        let Some(mut notes) = segment.notes(LE, file).map_err(damaged)? else {
            continue;
        };
        while let Some(note) = notes.next().map_err(damaged)? {
            if note.name() != b"VMI" || u64::from(note.n_type(LE).0) != abi::NOTE_ENTRY {
                continue;
            }
            let word = |at: usize| {
                note.desc()
                    .get(at..)?
                    .first_chunk::<4>()
                    .map(|b| u32::from_le_bytes(*b))
            };
            let version = word(std::mem::offset_of!(abi::NoteEntry, api_version));
            let at = std::mem::offset_of!(abi::NoteEntry, entry);
            let flags = word(std::mem::offset_of!(abi::NoteEntry, flags));
            let (Some(low), Some(high), Some(version), Some(flags)) =
                (word(at), word(at + 4), version, flags)
            else {
                return Err(LoadError::Damaged(format!(
                    "its VMI note is only {} bytes",
                    note.desc().len()
                )));
            };
            if version >> 16 != u32::from(abi::API_MAJOR) {
                return Err(LoadError::Room(format!(
                    "it needs version {} of the VMI, this hypervisor has version {}",
                    version >> 16,
                    abi::API_MAJOR
                )));
            }
            return Ok(Some(Entry {
                entry: u64::from(high) << 32 | u64::from(low),
                compact: u64::from(flags) & abi::NOTE_COMPACT != 0,
            }));
        }
    }
    Ok(None)
}

/// Page-aligned ranges of the hole and the guest memory that they show. The range between two
/// segments belongs to the window if it lies between them in guest memory too: Linux keeps its
/// per-CPU data there.
fn windows(image: &[&Segment], delta: u64) -> Result<Vec<ph::PhvSegment>, LoadError> {
    let mut sorted: Vec<&&Segment> = image.iter().collect();
    sorted.sort_unstable_by_key(|s| s.vaddr);
    let mut windows: Vec<ph::PhvSegment> = Vec::new();
    for segment in sorted {
        if segment.vaddr % PAGE != segment.gpa % PAGE {
            return Err(LoadError::Damaged(format!(
                "the segment at {:#x} cannot be mapped: its physical address {:#x} has another \
                 offset in its page",
                segment.vaddr, segment.gpa
            )));
        }
        let inside = segment.vaddr % PAGE;
        let addr = segment.vaddr.wrapping_add(delta) - inside;
        let gpa = segment.gpa - inside;
        let length = (segment.size + inside).next_multiple_of(PAGE);
        match windows.last_mut() {
            Some(last) if last.addr.wrapping_sub(last.gpa) == addr.wrapping_sub(gpa) => {
                last.size = last.size.max(addr + length - last.addr);
            }
            Some(last) if last.addr + last.size > addr => {
                return Err(LoadError::Damaged(format!(
                    "two of its segments share the page {addr:#x}"
                )));
            }
            _ => windows.push(ph::PhvSegment {
                addr,
                gpa,
                size: length,
            }),
        }
    }
    let most = std::mem::size_of::<[ph::PhvSegment; 8]>() / std::mem::size_of::<ph::PhvSegment>();
    if windows.len() > most {
        return Err(LoadError::Room(format!(
            "it has {} separate parts in the upper half, the limit is {most}",
            windows.len()
        )));
    }
    Ok(windows)
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
