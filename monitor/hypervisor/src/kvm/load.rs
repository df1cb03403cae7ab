// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts a kernel at its physical addresses, and says how it is entered.

use super::layout::{COMMAND_LINE_MAX, HIGH};
use crate::Executable;
use crate::boot_image::BootImage;
use crate::ram::Ram;
use anyhow::{Context, bail};
use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

const LE: LittleEndian = LittleEndian;

/// How a kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// In 32-bit mode, with the start information of PVH.
    Pvh(u32),
    /// In 64-bit mode, by Linux's boot protocol.
    Linux(u64),
}

/// A kernel in guest memory.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where it begins to run.
    pub entry: Entry,
    /// The first address after it.
    pub end: u64,
    /// The setup header of a bzImage.
    pub header: Vec<u8>,
    /// The first address after the highest initial RAM disk that it can use.
    pub initrd_end: u64,
    /// Bytes of the longest command line, without the zero byte at its end.
    pub command_line_max: usize,
}

/// Puts a kernel into guest memory.
///
/// # Errors
/// The kernel cannot be entered here, or it does not fit.
pub fn load(ram: &Ram, name: &str, file: &[u8]) -> anyhow::Result<Loaded> {
    if BootImage::is_one(file) {
        image(ram, name, file)
    } else {
        elf(ram, name, file)
    }
}

/// Copies the compressed kernel of a bzImage to where it need not move.
fn image(ram: &Ram, name: &str, file: &[u8]) -> anyhow::Result<Loaded> {
    let complain = || format!("guest {name}");
    let image = BootImage::parse(file).with_context(complain)?;
    let end = image.address + image.size;
    if end > ram.low() {
        bail!(
            "guest {name}: it needs memory up to {end:#x}, but the machine's memory ends at {:#x}",
            ram.low()
        );
    }
    if image.address < HIGH {
        bail!("guest {name}: it is for {:#x}, below 1 MiB", image.address);
    }
    let kernel = file.get(image.kernel..).unwrap_or_default();
    ram.store(image.address, kernel).with_context(complain)?;
    Ok(Loaded {
        entry: Entry::Linux(image.entry),
        end,
        header: file.get(image.header).unwrap_or_default().to_vec(),
        initrd_end: image.initrd_max.saturating_add(1),
        command_line_max: image.command_line_max,
    })
}

/// Copies the segments of an ELF file.
fn elf(ram: &Ram, name: &str, file: &[u8]) -> anyhow::Result<Loaded> {
    let complain = || format!("guest {name}");
    let elf = Executable::parse(file).with_context(complain)?;
    let header = FileHeader64::<LittleEndian>::parse(file)
        .ok()
        .with_context(complain)?;
    let segments = header.program_headers(LE, file).ok();
    let entry = match elf.pvh_entry {
        Some(address) => Entry::Pvh(address),
        None => Entry::Linux(header.e_entry(LE)),
    };
    if elf.memory_end > ram.low() {
        bail!(
            "guest {name}: it ends at {:#x}, but the machine's memory ends at {:#x}",
            elf.memory_end,
            ram.low()
        );
    }
    let mut inside = false;
    for segment in segments.unwrap_or_default() {
        if segment.p_type(LE) != PT_LOAD {
            continue;
        }
        let (start, size) = (segment.p_paddr(LE), segment.p_memsz(LE));
        if start < HIGH {
            bail!("guest {name}: a segment at {start:#x}, below 1 MiB");
        }
        if let Entry::Linux(at) = entry {
            inside |= at >= start && at - start < size;
        }
        let bytes = segment.data(LE, file).ok().with_context(complain)?;
        // The rest of the segment is zero, as all of guest memory.
        ram.store(start, bytes).with_context(complain)?;
    }
    if let (Entry::Linux(at), false) = (entry, inside) {
        bail!(
            "guest {name}: no PVH note, and its entry {at:#x} is in none of its segments: not a \
             kernel that KVM can start"
        );
    }
    Ok(Loaded {
        entry,
        end: elf.memory_end,
        header: Vec::new(),
        initrd_end: ram.low(),
        command_line_max: COMMAND_LINE_MAX - 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::MIN_SIZE;

    #[test]
    fn the_conformance_guest_is_entered_by_pvh() {
        let ram = Ram::new(256 << 20, false).unwrap();
        let file = paravane_blobs::CONFORMANCE_GUEST;
        let loaded = load(&ram, "guest", file).unwrap();
        assert!(matches!(loaded.entry, Entry::Pvh(at) if u64::from(at) >= HIGH));
        assert!(loaded.end > HIGH && loaded.end <= ram.size());
    }

    #[test]
    fn too_little_memory_is_told() {
        let ram = Ram::new(MIN_SIZE, false).unwrap();
        let mut file = paravane_blobs::CONFORMANCE_GUEST.to_vec();
        // 64 MiB more of memory for each segment.
        let offset = usize::try_from(u64::from_le_bytes(file[32..40].try_into().unwrap())).unwrap();
        let headers = usize::from(u16::from_le_bytes(file[56..58].try_into().unwrap()));
        for header in (0..headers).map(|header| offset + header * 56) {
            if file[header] == 1 {
                file[header + 40 + 3] += 4;
            }
        }
        let error = format!("{:#}", load(&ram, "x", &file).err().unwrap());
        assert!(
            error.contains("but the machine's memory ends at 0x1000000"),
            "{error}"
        );
    }
}
