// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a kernel finds in memory at its start: the memory map, the command line, the initial RAM
//! disk, ACPI tables, a layer's ROM. By PVH it gets the first three in `hvm_start_info`, by Linux's
//! 64-bit boot protocol in `boot_params` (Documentation/arch/x86/boot.rst and zero-page.rst).

use super::layout::{
    COMMAND_LINE, COMMAND_LINE_MAX, GAP, GDT, HIGH, LOW_END, PAGE_TABLES, ROM, ROM_END, START_INFO,
    TABLES, ZERO_PAGE,
};
use super::load::{Entry, Loaded};
use crate::boot_data::{check_command_line, initrd};
use crate::ram::Ram;
use anyhow::bail;

/// Kinds of memory in both memory maps.
const RAM: u32 = 1;
const RESERVED: u32 = 2;

/// PVH: a magic number, the version, and offsets after the structure.
const PVH_MAGIC: u32 = 0x336e_c578;
const PVH_VERSION: u32 = 1;
const PVH_MAP: u64 = START_INFO + 0x100;
const PVH_MODULES: u64 = START_INFO + 0x200;

/// Linux: offsets in `boot_params`.
const ZERO_PAGE_SIZE: usize = 4096;
const ACPI_ROOT: usize = 0x070;
const MAP_ENTRIES: usize = 0x1e8;
const HEADER: usize = 0x1f1;
const BOOT_FLAG: usize = 0x1fe;
const HEADER_MAGIC: usize = 0x202;
const PROTOCOL: usize = 0x206;
const LOADER: usize = 0x210;
const LOAD_FLAGS: usize = 0x211;
const INITRD: usize = 0x218;
const INITRD_SIZE: usize = 0x21c;
const COMMAND_LINE_AT: usize = 0x228;
const ALIGNMENT: usize = 0x230;
const COMMAND_LINE_SIZE: usize = 0x238;
const MAP: usize = 0x2d0;

/// What a kernel learns from the hypervisor.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The command line.
    pub command_line: &'a str,
    /// The initial RAM disk, empty for none.
    pub initrd: &'a [u8],
    /// A layer's ROM.
    pub rom: Option<&'a [u8]>,
    /// The ACPI tables.
    pub tables: &'a [u8],
}

/// Writes all of it.
///
/// # Errors
/// Something is too large.
pub fn store(ram: &Ram, kernel: &Loaded, facts: &Facts<'_>) -> anyhow::Result<()> {
    let most = kernel.command_line_max.min(COMMAND_LINE_MAX - 1);
    check_command_line(facts.command_line, most)?;
    ram.write(COMMAND_LINE, facts.command_line.as_bytes())?;
    if let Some(rom) = facts.rom {
        if rom.len() as u64 > ROM_END - ROM {
            bail!(
                "the layer's ROM has {} bytes, the limit is {}",
                rom.len(),
                ROM_END - ROM
            );
        }
        ram.write(ROM, rom)?;
    }
    ram.write(TABLES, facts.tables)?;
    let end = ram.low().min(kernel.initrd_end);
    let initrd = initrd(ram, end, kernel.end, facts.initrd)?;
    match kernel.entry {
        Entry::Pvh(_) => start_info(ram, initrd, facts),
        Entry::Linux(_) => {
            page_tables(ram)?;
            ram.write(GDT, &super::registers::descriptors())?;
            zero_page(ram, initrd, kernel, facts)
        }
    }
}

/// Address, size and kind of each range.
fn memory_map(ram: &Ram) -> Vec<(u64, u64, u32)> {
    let mut map = vec![
        (0, LOW_END, RAM),
        (TABLES, HIGH - TABLES, RESERVED),
        (HIGH, ram.low() - HIGH, RAM),
    ];
    if ram.size() > ram.low() {
        map.push((GAP.end, ram.size() - ram.low(), RAM));
    }
    map
}

fn start_info(ram: &Ram, initrd: u64, facts: &Facts<'_>) -> anyhow::Result<()> {
    let map = memory_map(ram);
    let mut entries = Vec::new();
    for &(address, size, kind) in &map {
        for word in [address, size, kind.into()] {
            entries.extend(word.to_le_bytes());
        }
    }
    ram.write(PVH_MAP, &entries)?;
    let modules = u32::from(initrd != 0);
    let mut module = Vec::new();
    for word in [initrd, facts.initrd.len() as u64, 0, 0] {
        module.extend(word.to_le_bytes());
    }
    ram.write(PVH_MODULES, &module)?;
    let mut info = Vec::new();
    for word in [PVH_MAGIC, PVH_VERSION, 0, modules] {
        info.extend(word.to_le_bytes());
    }
    for word in [PVH_MODULES, COMMAND_LINE, TABLES, PVH_MAP] {
        info.extend(word.to_le_bytes());
    }
    info.extend(u32::try_from(map.len())?.to_le_bytes());
    info.extend(0u32.to_le_bytes());
    ram.write(START_INFO, &info)
}

fn zero_page(ram: &Ram, initrd: u64, kernel: &Loaded, facts: &Facts<'_>) -> anyhow::Result<()> {
    let mut page = vec![0; ZERO_PAGE_SIZE];
    // The header of a bzImage stays, except for the fields that a loader fills in.
    let header = page.get_mut(HEADER..).unwrap_or_default().iter_mut();
    header
        .zip(&kernel.header)
        .for_each(|(to, from)| *to = *from);
    let own_header = !kernel.header.is_empty();
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let map = memory_map(ram);
    put(ACPI_ROOT, &TABLES.to_le_bytes());
    put(MAP_ENTRIES, &[u8::try_from(map.len())?]);
    if !own_header {
        put(BOOT_FLAG, &0xaa55u16.to_le_bytes());
        put(HEADER_MAGIC, b"HdrS");
        put(PROTOCOL, &0x020fu16.to_le_bytes());
        // The kernel is above 1 MiB.
        put(LOAD_FLAGS, &[1]);
        put(ALIGNMENT, &0x20_0000u32.to_le_bytes());
        put(
            COMMAND_LINE_SIZE,
            &u32::try_from(COMMAND_LINE_MAX - 1)?.to_le_bytes(),
        );
    }
    // A loader without a number of its own.
    put(LOADER, &[0xff]);
    put(INITRD, &u32::try_from(initrd)?.to_le_bytes());
    put(
        INITRD_SIZE,
        &u32::try_from(facts.initrd.len())?.to_le_bytes(),
    );
    put(COMMAND_LINE_AT, &u32::try_from(COMMAND_LINE)?.to_le_bytes());
    for ((address, size, kind), at) in map.into_iter().zip((MAP..).step_by(20)) {
        put(at, &address.to_le_bytes());
        put(at + 8, &size.to_le_bytes());
        put(at + 16, &kind.to_le_bytes());
    }
    ram.write(ZERO_PAGE, &page)
}

/// The first 4 GiB at their own addresses, in pages of 2 MiB.
fn page_tables(ram: &Ram) -> anyhow::Result<()> {
    const TABLE: u64 = 0x1000;
    const PRESENT_WRITABLE: u64 = 3;
    const LARGE: u64 = 0x80;
    let (second, third) = (PAGE_TABLES + TABLE, PAGE_TABLES + 2 * TABLE);
    ram.write(PAGE_TABLES, &(second | PRESENT_WRITABLE).to_le_bytes())?;
    let mut entries = Vec::new();
    for table in 0..4 {
        entries.extend(((third + table * TABLE) | PRESENT_WRITABLE).to_le_bytes());
    }
    ram.write(second, &entries)?;
    let mut entries = Vec::new();
    for page in 0..4 * 512u64 {
        entries.extend((page << 21 | LARGE | PRESENT_WRITABLE).to_le_bytes());
    }
    ram.write(third, &entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::MIN_SIZE;

    fn kernel() -> Loaded {
        Loaded {
            entry: Entry::Linux(0x10_0000),
            end: 0x20_0000,
            header: Vec::new(),
            initrd_end: MIN_SIZE,
            command_line_max: usize::MAX,
        }
    }

    fn facts<'a>(line: &'a str, initrd: &'a [u8], rom: Option<&'a [u8]>) -> Facts<'a> {
        Facts {
            command_line: line,
            initrd,
            rom,
            tables: b"tables",
        }
    }

    #[test]
    fn linux_finds_its_command_line_and_initrd() {
        let ram = Ram::new(MIN_SIZE, false).unwrap();
        store(&ram, &kernel(), &facts("quiet", b"archive", Some(b"rom"))).unwrap();
        let mut page = vec![0; ZERO_PAGE_SIZE];
        ram.read(ZERO_PAGE, &mut page).unwrap();
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
        let text = |at: u32, length: usize| {
            let mut bytes = vec![0; length];
            ram.read(at.into(), &mut bytes).unwrap();
            bytes
        };
        assert_eq!(text(word(COMMAND_LINE_AT), 6), b"quiet\0");
        assert_eq!(text(word(INITRD), 7), b"archive");
        assert_eq!(word(INITRD_SIZE), 7);
        assert_eq!(text(word(ACPI_ROOT), 6), b"tables");
        assert_eq!(text(0xc_0000, 3), b"rom");
        assert_eq!((page[MAP_ENTRIES], word(MAP + 16)), (3, RAM));
    }

    #[test]
    fn what_a_compressed_kernel_says_is_kept() {
        let ram = Ram::new(MIN_SIZE, false).unwrap();
        let mut image = kernel();
        image.header = (0..=0x7a).collect();
        image.initrd_end = 8 << 20;
        image.command_line_max = 5;
        store(&ram, &image, &facts("quiet", b"archive", None)).unwrap();
        let mut page = vec![0; ZERO_PAGE_SIZE];
        ram.read(ZERO_PAGE, &mut page).unwrap();
        assert_eq!((page[HEADER], page[HEADER + 0x7a]), (0, 0x7a));
        assert_eq!(page[ALIGNMENT..ALIGNMENT + 2], [0x3f, 0x40]);
        assert_eq!(page[LOADER], 0xff);
        let initrd = u32::from_le_bytes(page[INITRD..INITRD + 4].try_into().unwrap());
        assert_eq!(initrd, (8 << 20) - 4096);
        let error = store(&ram, &image, &facts("longer", b"", None)).err();
        assert!(format!("{:#}", error.unwrap()).contains("6 bytes, the limit is 5"));
    }

    /// The map has the RAM that does not fit below the gap after the gap.
    #[test]
    fn memory_above_4_gib_is_in_the_map() {
        let ram = Ram::around(5 << 30, GAP, false).unwrap();
        let map = memory_map(&ram);
        assert_eq!(map[2], (HIGH, GAP.start - HIGH, RAM));
        assert_eq!(map[3], (1 << 32, 2 << 30, RAM));
        assert_eq!(memory_map(&Ram::new(1 << 30, false).unwrap()).len(), 3);
    }

    #[test]
    fn what_is_too_large_is_told() {
        let ram = Ram::new(MIN_SIZE, false).unwrap();
        let long = "x".repeat(COMMAND_LINE_MAX);
        let big = vec![0; 15 << 20];
        for (facts, what) in [
            (facts(&long, b"", None), "the command line has"),
            (facts("a\0b", b"", None), "a zero byte"),
            (facts("", &big, None), "the initial RAM disk has 15 MiB"),
            (facts("", b"", Some(&big)), "the layer's ROM has"),
        ] {
            let error = format!("{:#}", store(&ram, &kernel(), &facts).err().unwrap());
            assert!(error.contains(what), "{error}");
        }
    }
}
