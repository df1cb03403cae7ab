// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small kernels for the process hypervisor that do one bad thing. Each is an ELF file with a VMI
//! note and a few instructions of 64-bit code, written byte by byte.

use object::{Object, ObjectSymbol};
use paravane_abi::process::area::Shared;
use std::mem::offset_of;

/// What such a kernel does.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// Loops.
    Spin,
    /// Makes this host call through the layer's instruction.
    HostCall(u32),
    /// Overwrites all memory that it shares with the monitor.
    Scribble,
    /// Maps one page in each GiB, then the next page, and so on.
    FloodMappings,
    /// Says that the machine has ended, rings no doorbell, and ends its process.
    HideDeath,
    /// Asks for more processes, after it has disabled the filter of new ones.
    GrowUnfiltered,
}

const LINK: u64 = 0xffff_ffff_8020_0000;
const PHYSICAL: u64 = 0x20_0000;
/// Offsets in the file: note, code, symbols, relocations.
const NOTE: usize = 0x100;
const IMAGE: usize = 0x200;
const IMAGE_SIZE: usize = 0x100;
const SYMBOLS: usize = 0x300;
const RELOCATIONS: usize = 0x340;
const SECTIONS: usize = 0x380;
/// A word after the code that has a relocation.
const WORD: usize = 0xf0;

/// Makes the kernel.
///
/// # Panics
/// When the built-in layer has no instruction for host calls.
#[must_use]
pub fn build(deed: Deed) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]); // executable, x86-64
    file.extend(words(&[LINK, 64, SECTIONS as u64]));
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 4, 0, 0, 0]);
    let (load, note) = (7 << 32 | 1, 4 << 32 | 4);
    let size = IMAGE_SIZE as u64;
    put(
        &mut file,
        64,
        &words(&[load, IMAGE as u64, LINK, PHYSICAL, size, size, 4096]),
    );
    put(
        &mut file,
        120,
        &words(&[note, NOTE as u64, 0, 0, 32, 32, 4]),
    );
    put(&mut file, NOTE, b"\x04\0\0\0\x10\0\0\0\x01\0\0\0VMI\0");
    put(&mut file, NOTE + 16, &words(&[LINK, 1 << 16]));
    put(&mut file, IMAGE, &code(deed));
    put(&mut file, IMAGE + WORD, &words(&[LINK]));
    // Symbol 1 is the entry. The relocation puts its address into the word.
    put(&mut file, SYMBOLS, &words(&[0, 0, 0, 1 << 48, LINK, 0]));
    put(
        &mut file,
        RELOCATIONS,
        &words(&[LINK + WORD as u64, 1 << 32 | 1, 0]),
    );
    let section = |kind: u64, flags, offset: usize, size, link: u64, info: u64| {
        words(&[
            kind << 32,
            flags,
            0,
            offset as u64,
            size,
            info << 32 | link,
            8,
            24,
        ])
    };
    put(&mut file, SECTIONS + 64, &section(1, 2, IMAGE, size, 0, 0));
    put(&mut file, SECTIONS + 128, &section(2, 0, SYMBOLS, 48, 0, 0));
    put(
        &mut file,
        SECTIONS + 192,
        &section(4, 0, RELOCATIONS, 24, 2, 1),
    );
    file
}

fn code(deed: Deed) -> Vec<u8> {
    let mut code = Vec::new();
    match deed {
        Deed::Spin => {}
        Deed::HostCall(number) => {
            code.push(0xb8); // mov $number, %eax
            code.extend(number.to_le_bytes());
            code.extend(host_call());
        }
        Deed::Scribble => {
            code.extend([0x48, 0xbf]); // movabs $SHARED, %rdi
            code.extend(paravane_abi::process::PHV_SHARED.to_le_bytes());
            code.extend([0xb9, 0x00, 0x00, 0x40, 0x00]); // mov $0x400000, %ecx
            code.extend([0xb0, 0xa5, 0xf3, 0xaa]); // mov $0xa5, %al; rep stosb
        }
        Deed::HideDeath => {
            code.extend(store(&[(offset_of!(Shared, vm_state), 1)]));
            code.extend([0xb8, 0xe7, 0x00, 0x00, 0x00]); // mov $231, %eax
            code.extend(host_call());
        }
        Deed::FloodMappings => return flood(),
        Deed::GrowUnfiltered => code.extend(grow()),
    }
    code.extend([0xeb, 0xfe]); // 1: jmp 1b
    code
}

/// Stores values in fields of the shared area, by their offsets.
fn store(fields: &[(usize, u32)]) -> Vec<u8> {
    let mut code = Vec::new();
    for (offset, value) in fields {
        code.extend([0x48, 0xbf]); // movabs $field, %rdi
        code.extend((paravane_abi::process::PHV_SHARED + *offset as u64).to_le_bytes());
        code.extend([0xc7, 0x07]); // movl $value, (%rdi)
        code.extend(value.to_le_bytes());
    }
    code
}

fn grow() -> Vec<u8> {
    #[allow(clippy::cast_possible_truncation)] // 64-bit hosts only
    let filter = paravane_abi::process::PHV_SHARED_FILTER as usize;
    let mut code = store(&[
        // ret ALLOW
        (filter, 6),
        (filter + 4, 0x7fff_0000),
        (offset_of!(Shared, proc_wanted), 12),
        (offset_of!(Shared, doorbell), 1000),
    ]);
    code.extend([0xbe, 0x01, 0x00, 0x00, 0x00]); // mov $FUTEX_WAKE, %esi
    code.extend([0xba, 0x01, 0x00, 0x00, 0x00]); // mov $1, %edx
    code.extend([0xb8, 0xca, 0x00, 0x00, 0x00]); // mov $202, %eax
    code.extend(host_call());
    code
}

fn flood() -> Vec<u8> {
    let mut code = vec![0x45, 0x31, 0xe4]; // xor %r12d, %r12d
    let outer = code.len();
    code.extend([0x48, 0xbb]); // movabs $0x100000000, %rbx
    code.extend(words(&[1 << 32]));
    code.extend([0x4c, 0x01, 0xe3]); // add %r12, %rbx
    let inner = code.len();
    code.extend([
        0x48, 0x89, 0xdf, // mov %rbx, %rdi
        0xbe, 0x00, 0x10, 0x00, 0x00, // mov $4096, %esi
        0xba, 0x01, 0x00, 0x00, 0x00, // mov $PROT_READ, %edx
        0x41, 0xba, 0x11, 0x80, 0x00, 0x00, // mov $(MAP_SHARED|MAP_FIXED|MAP_POPULATE), %r10d
        0x41, 0xb8, 0x05, 0x00, 0x00, 0x00, // mov $5, %r8d
        0x45, 0x31, 0xc9, // xor %r9d, %r9d
        0xb8, 0x09, 0x00, 0x00, 0x00, // mov $9, %eax
    ]);
    code.extend(host_call());
    code.extend([0x48, 0x81, 0xc3, 0x00, 0x00, 0x00, 0x40]); // add $0x40000000, %rbx
    code.extend([0x48, 0xb9]); // movabs $0x3fff00000000, %rcx
    code.extend(words(&[0x3fff_0000_0000]));
    code.extend([0x48, 0x39, 0xcb]); // cmp %rcx, %rbx
    code.extend([0x72, back(code.len(), inner)]); // jb inner
    code.extend([0x49, 0x81, 0xc4, 0x00, 0x00, 0x20, 0x00]); // add $0x200000, %r12
    code.extend([0xeb, back(code.len(), outer)]); // jmp outer
    code
}

/// The displacement of a two-byte jump at `from`.
fn back(from: usize, to: usize) -> u8 {
    u8::try_from(from + 2 - to).unwrap_or(0).wrapping_neg()
}

/// Calls the layer's only instruction for host calls, with the arguments in the registers.
#[allow(clippy::expect_used)] // A panic fails the test.
fn host_call() -> Vec<u8> {
    let layer =
        object::File::parse(paravane_blobs::PROCESS_LAYER).expect("the layer is an ELF file");
    let end = layer
        .symbols()
        .find(|s| s.name() == Ok("ph_host_call_end"))
        .expect("the layer calls the host");
    let address = u32::try_from(end.address() - 2).expect("the layer is in the low 2 GiB");
    let mut code = vec![0xb9]; // mov $address, %ecx
    code.extend(address.to_le_bytes());
    code.extend([0xff, 0xd1]); // call *%rcx
    code
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    if let Some(to) = file.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

fn words(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
