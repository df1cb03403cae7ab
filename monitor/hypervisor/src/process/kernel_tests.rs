// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and relocating kernels: a small one made here, and the conformance kernel.

use super::*;
use proptest::prelude::*;

const LINK: u64 = 0xffff_ffff_8020_0000;
const PHYSICAL: u64 = 0x20_0000;
const DELTA: u64 = (LOAD_BASE).wrapping_sub(LINK);
const LIMIT: u64 = 32 << 20;
/// Link address of the per-CPU segment.
const PERCPU: u64 = 0;

/// Offsets of the parts of the file.
const PROGRAM_HEADERS: usize = 64;
const NOTE: usize = 0x180;
const IMAGE: usize = 0x200;
const IMAGE_SIZE: usize = 0x80;
const PERCPU_DATA: usize = 0x280;
const SYMBOLS: usize = 0x300;
const RELOCATIONS: usize = 0x400;

/// A relocation: place, type, symbol, addend, and the bytes that the linker wrote there.
type Relocation = (u64, u32, u32, i64, u64);

/// Symbol 1 is inside the kernel's range, 2 at its end, 3 in the per-CPU segment, 4 absolute, 5
/// undefined.
const VALUES: [u64; 6] = [0, LINK + 0x40, LINK + 0x3000, PERCPU + 0x10, 0x1234_5678, 0];

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A kernel with boot code, three pages in the upper half, per-CPU data, and these relocations.
fn kernel(relocations: &[Relocation]) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    let sections = RELOCATIONS + 24 * relocations.len();
    file.extend(words(&[LINK, PROGRAM_HEADERS as u64, sections as u64]));
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 4, 0, 64, 0, 4, 0, 0, 0]);
    let mut segment = |index: usize, kind: u64, offset: usize, vaddr, paddr, filesz, memsz| {
        let header = words(&[
            7 << 32 | kind,
            offset as u64,
            vaddr,
            paddr,
            filesz,
            memsz,
            4,
        ]);
        put(&mut file, PROGRAM_HEADERS + 56 * index, &header);
    };
    segment(0, 1, IMAGE, 0x10_0000, 0x10_0000, 16, 16);
    segment(1, 1, IMAGE, LINK, PHYSICAL, IMAGE_SIZE as u64, 0x3000);
    segment(2, 1, PERCPU_DATA, PERCPU, PHYSICAL + 0x3000, 0x40, 0x1000);
    segment(3, 4, NOTE, 0, 0, 32, 32);
    put(
        &mut file,
        NOTE,
        &[4, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, b'V', b'M', b'I', 0],
    );
    put(&mut file, NOTE + 16, &words(&[LINK + 8, 1 << 16]));
    put(&mut file, IMAGE, &[0; IMAGE_SIZE]);
    put(&mut file, PERCPU_DATA, &[0; 0x40]);
    for (index, value) in VALUES.iter().enumerate() {
        let section: u64 = if index == 5 || index == 0 { 0 } else { 0xfff1 };
        put(
            &mut file,
            SYMBOLS + 24 * index,
            &words(&[section << 48, *value, 0]),
        );
    }
    for (index, &(place, kind, symbol, addend, content)) in relocations.iter().enumerate() {
        let info = u64::from(symbol) << 32 | u64::from(kind);
        put(
            &mut file,
            RELOCATIONS + 24 * index,
            &words(&[place, info, addend.cast_unsigned_()]),
        );
        let width = if [1, 24].contains(&kind) { 8 } else { 4 };
        let at = if place >= LINK {
            IMAGE + usize::try_from(place - LINK).unwrap()
        } else {
            PERCPU_DATA + usize::try_from(place).unwrap()
        };
        if place < 0x1000 || (place >= LINK && place + 8 <= LINK + IMAGE_SIZE as u64) {
            put(&mut file, at, &content.to_le_bytes()[..width]);
        }
    }
    // none, the upper segment, symbols, relocations of the upper segment
    let mut section =
        |index: usize, kind: u64, flags, offset: usize, size: usize, link: u64, info: u64| {
            let header = words(&[
                kind << 32,
                flags,
                0,
                offset as u64,
                size as u64,
                info << 32 | link,
                8,
                24,
            ]);
            put(&mut file, sections + 64 * index, &header);
        };
    section(0, 0, 0, 0, 0, 0, 0);
    section(1, 1, 2, IMAGE, IMAGE_SIZE, 0, 0);
    section(2, 2, 0, SYMBOLS, 24 * VALUES.len(), 0, 0);
    section(3, 4, 0, RELOCATIONS, 24 * relocations.len(), 2, 1);
    file
}

/// `i64::cast_unsigned` of newer standard libraries.
trait CastUnsigned {
    fn cast_unsigned_(self) -> u64;
}

impl CastUnsigned for i64 {
    fn cast_unsigned_(self) -> u64 {
        u64::from_le_bytes(self.to_le_bytes())
    }
}

const ABSOLUTE: Relocation = (LINK + 0x10, 1, 1, 4, LINK + 0x44);

fn read(relocations: &[Relocation]) -> Result<Kernel, LoadError> {
    Kernel::read(&kernel(relocations), LIMIT)
}

fn refused(relocations: &[Relocation]) -> String {
    read(relocations).unwrap_err().to_string()
}

/// The field at a link address after relocation.
fn field(image: &Kernel, place: u64) -> u64 {
    let segment = image
        .segments
        .iter()
        .find(|s| s.range().contains(&place))
        .unwrap();
    let at = usize::try_from(place - segment.vaddr).unwrap();
    u64::from_le_bytes(segment.bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn the_image_goes_into_the_hole() {
    let image = read(&[ABSOLUTE]).unwrap();
    assert_eq!(
        (image.address, image.gpa, image.size),
        (LOAD_BASE, PHYSICAL, 0x3000)
    );
    assert_eq!((image.entry, image.delta), (LOAD_BASE + 8, DELTA));
    let windows: Vec<_> = image
        .windows
        .iter()
        .map(|w| (w.addr, w.gpa, w.size))
        .collect();
    assert_eq!(windows, [(LOAD_BASE, PHYSICAL, 0x3000)]);
    let ram = Ram::new(LIMIT, true).unwrap();
    image.store(&ram).unwrap();
    let mut bytes = [0; 8];
    ram.read(PHYSICAL + 0x10, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), LOAD_BASE + 0x44);
}

#[test]
fn the_note_says_where_the_direct_map_may_be() {
    let direct_map = |flags: u32, ram: u64| {
        let mut file = kernel(&[ABSOLUTE]);
        put(&mut file, NOTE + 28, &flags.to_le_bytes());
        Kernel::read(&file, LIMIT).unwrap().direct_map(ram)
    };
    let compact = u32::try_from(abi::NOTE_COMPACT).unwrap();
    let largest = ph::PHV_DIRECT_MAP_SIZE;
    assert_eq!(direct_map(0, LIMIT), ph::PHV_DIRECT_MAP_WIDE);
    assert_eq!(direct_map(compact, largest), ph::PHV_DIRECT_MAP);
    assert_eq!(direct_map(compact, largest + 1), ph::PHV_DIRECT_MAP_WIDE);
    // Flags of a later version.
    assert_eq!(direct_map(!compact, LIMIT), ph::PHV_DIRECT_MAP_WIDE);
    assert_eq!(direct_map(u32::MAX, LIMIT), ph::PHV_DIRECT_MAP);
}

#[test]
fn references_move_with_what_they_refer_to() {
    let far = |target: u64, place: u64| target.wrapping_sub(place);
    let image = read(&[
        ABSOLUTE,
        // sign-extended
        (LINK + 0x18, 11, 1, 0, LINK + 0x40),
        // the end of the range, and before its start
        (LINK + 0x20, 1, 2, 0, LINK + 0x3000),
        (LINK + 0x28, 1, 1, -0x50, LINK - 0x10),
        // a physical address of a symbol, an absolute symbol, an undefined one: unchanged
        (LINK + 0x30, 1, 1, 0x8000_0000, 0x20_0040),
        (LINK + 0x38, 10, 4, 0, 0x1234_5678),
        (LINK + 0x40, 2, 5, -4, 0),
        // relative inside the range; to per-CPU data
        (LINK + 0x48, 2, 1, -4, far(LINK + 0x3c, LINK + 0x48)),
        (LINK + 0x50, 2, 3, -4, far(PERCPU + 0xc, LINK + 0x50)),
        // from per-CPU data to the range
        (PERCPU + 0x8, 1, 1, 0, LINK + 0x40),
    ])
    .unwrap();
    let low = |place| field(&image, place) & 0xffff_ffff;
    assert_eq!(field(&image, LINK + 0x10), LOAD_BASE + 0x44);
    assert_eq!(low(LINK + 0x18), LOAD_BASE + 0x40);
    assert_eq!(field(&image, LINK + 0x20), LOAD_BASE + 0x3000);
    assert_eq!(field(&image, LINK + 0x28), LOAD_BASE - 0x10);
    assert_eq!(field(&image, LINK + 0x30), 0x20_0040);
    assert_eq!(low(LINK + 0x38), 0x1234_5678);
    assert_eq!(low(LINK + 0x40), 0);
    assert_eq!(
        low(LINK + 0x48),
        far(LINK + 0x3c, LINK + 0x48) & 0xffff_ffff
    );
    assert_eq!(
        low(LINK + 0x50),
        far(PERCPU + 0xc, LOAD_BASE + 0x50) & 0xffff_ffff
    );
    assert_eq!(field(&image, PERCPU + 0x8), LOAD_BASE + 0x40);
}

#[test]
fn what_does_not_fit_is_said() {
    assert!(refused(&[(LINK + 0x10, 1, 1, 4, LINK)]).contains("does not match"));
    assert!(refused(&[(LINK + 0x10, 9, 1, 0, 0)]).contains("has type 9"));
    assert!(refused(&[(LINK + 0x10, 1, 6, 0, 0)]).contains("names symbol 6, there are 6"));
    assert!(refused(&[(0x50_0000, 1, 1, 0, 0)]).contains("in none of the segments"));
    assert!(refused(&[(LINK + 0x2000, 1, 1, 0, 0)]).contains("not inside the bytes"));
    assert!(refused(&[(LINK + 0x7c, 1, 1, 0, 0)]).contains("not inside the bytes"));
    assert!(refused(&[(LINK + 0x10, 2, 4, 0, 0)]).contains("does not move"));
    assert!(refused(&[(LINK + 0x10, 10, 1, 0, LINK)]).contains("does not fit"));
    assert_eq!(read(&[]).unwrap_err(), LoadError::NoRelocations);
}

#[test]
fn segments_must_fit() {
    let with = |segment: usize, word: usize, value: u64| {
        let mut file = kernel(&[ABSOLUTE]);
        put(
            &mut file,
            PROGRAM_HEADERS + 56 * segment + 8 * word,
            &value.to_le_bytes(),
        );
        Kernel::read(&file, LIMIT).unwrap_err().to_string()
    };
    assert!(
        with(1, 3, LIMIT).contains("give the machine more memory"),
        "beyond memory"
    );
    assert!(with(1, 3, PHYSICAL - 8).contains("another offset in its page"));
    assert!(
        with(1, 5, LIMIT).contains("give the machine more memory"),
        "too large for memory"
    );
    // The last segment counts, so that one more try is enough.
    let last = with(2, 3, LIMIT + (8 << 20));
    let end = (LIMIT >> 20) + 9;
    assert!(last.contains(&format!("it ends at {end} MiB")), "{last}");
    assert!(with(1, 5, 16).contains("more bytes in the file"));
    assert!(with(1, 5, u64::MAX).contains("beyond the end of all addresses"));
    assert!(with(1, 1, u64::MAX - 3).contains("not all inside the file"));
    assert!(with(2, 3, PHYSICAL).contains("overlap"));
    assert!(with(1, 2, 0x20_0000).contains("no segment in the upper half"));
    assert!(with(3, 0, 7 << 32 | 5).contains("no VMI note"));
    let mut file = kernel(&[ABSOLUTE]);
    put(&mut file, NOTE + 24, &(2u64 << 16).to_le_bytes());
    assert!(
        Kernel::read(&file, LIMIT)
            .unwrap_err()
            .to_string()
            .contains("version 2 of the VMI")
    );
    let mut file = kernel(&[ABSOLUTE]);
    put(
        &mut file,
        PROGRAM_HEADERS + 56 + 40,
        &(0x500_0000u64).to_le_bytes(),
    );
    // without the per-CPU data, which would be in the way
    put(&mut file, PROGRAM_HEADERS + 56 * 2, &[0]);
    assert!(
        Kernel::read(&file, 1 << 30)
            .unwrap_err()
            .to_string()
            .contains("the limit is")
    );
}

#[test]
fn the_conformance_guest_is_one() {
    let image = Kernel::read(paravane_blobs::CONFORMANCE_GUEST, 256 << 20).unwrap();
    assert!(
        image.address > ph::PHV_IMAGE_START && image.address + image.size <= ph::PHV_LAYER_BASE
    );
    assert_eq!(image.delta % LARGE_PAGE, 0);
    image.store(&Ram::new(64 << 20, true).unwrap()).unwrap();
}

/// An accepted kernel lies inside the given memory and can be stored.
fn check(file: &[u8]) {
    if let Ok(image) = Kernel::read(file, LIMIT) {
        assert!(
            image
                .segments
                .iter()
                .all(|s| s.gpa + s.size <= LIMIT && s.bytes.len() as u64 <= s.size)
        );
        assert!(image.address >= LOAD_BASE && image.address + image.size <= ph::PHV_LAYER_BASE);
        for window in &image.windows {
            assert!(window.addr >= LOAD_BASE && window.addr + window.size <= ph::PHV_LAYER_BASE);
            assert!(window.gpa + window.size <= LIMIT);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_change_is_survived(
        changes in prop::collection::vec((0usize..0x560, any::<u8>()), 1..8),
        length in 64usize..=0x560,
        whole: bool,
    ) {
        let relative = (PERCPU + 0xc).wrapping_sub(LINK + 0x50);
        let mut file = kernel(&[ABSOLUTE, (LINK + 0x50, 2, 3, -4, relative)]);
        let end = file.len();
        for (at, byte) in changes {
            file[at % end] = byte;
        }
        if !whole {
            file.truncate(length);
        }
        check(&file);
    }

    #[test]
    fn any_number_in_a_header_is_survived(
        segment in 0usize..4, word in 0usize..7,
        value in prop_oneof![
            any::<u64>(),
            (0u64..64).prop_map(|n| 1 << n),
            (0u64..64).prop_map(|n| 0u64.wrapping_sub(1 << n)),
        ],
        relocation in 0usize..3, other: u64,
    ) {
        let mut file = kernel(&[ABSOLUTE]);
        put(&mut file, PROGRAM_HEADERS + 56 * segment + 8 * word, &value.to_le_bytes());
        check(&file);
        put(&mut file, RELOCATIONS + 8 * relocation, &other.to_le_bytes());
        check(&file);
    }
}
