// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small guests that print a text and end in a given way, to test how the monitor treats guests
//! that crash, hang or lie.
//!
//! Each is an ELF file with a PVH note and a few instructions of 32-bit code, written byte by byte
//! so that no second toolchain is needed.

/// How such a guest ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Writes this value to the exit port: 0x10 is passed, 0x11 is failed.
    Exit(u32),
    /// Never.
    Hang,
    /// Never, and it prints its text again and again.
    Chatter,
    /// By a triple fault.
    TripleFault,
}

const LOAD: u32 = 0x10_0000;
const HEADERS: u32 = 64 + 2 * 56;
const NOTE: u32 = 20;
const ENTRY: u32 = LOAD + HEADERS + NOTE;

/// A guest that prints `text` on its serial port, then ends.
///
/// # Panics
/// When the text has 4 GiB or more.
#[must_use]
pub fn build(text: &str, end: End) -> Vec<u8> {
    let mut code = code(0, end);
    // The text follows the code, whose length does not depend on the address of the text.
    let text_at = ENTRY + u32::try_from(code.len()).unwrap_or(0);
    code = self::code(text_at, end);
    code.extend(text.bytes().chain([0]));
    elf(&code)
}

fn code(text: u32, end: End) -> Vec<u8> {
    let mut code = vec![0xfc]; // cld
    code.push(0xbe); // mov $text, %esi
    code.extend(text.to_le_bytes());
    code.extend([
        0xac, // 1: lodsb
        0x84, 0xc0, // test %al, %al
        0x74, 0x08, // jz 2f
        0xba, 0xf8, 0x03, 0x00, 0x00, // mov $0x3f8, %edx
        0xee, // out %al, %dx
        0xeb, 0xf3, // jmp 1b
    ]); // 2:
    match end {
        End::Exit(value) => {
            code.push(0xb8); // mov $value, %eax
            code.extend(value.to_le_bytes());
            code.extend([0xba, 0xf4, 0x00, 0x00, 0x00]); // mov $0xf4, %edx
            code.push(0xef); // out %eax, %dx
        }
        End::Chatter => {
            // Back to the start.
            let back = u8::try_from(code.len() + 2).unwrap_or(0).wrapping_neg();
            code.extend([0xeb, back]);
        }
        End::TripleFault => {
            code.extend([0x6a, 0x00, 0x6a, 0x00]); // push $0, twice: a table register of zeros
            code.extend([0x0f, 0x01, 0x1c, 0x24]); // lidt (%esp)
            code.push(0xcc); // int3
        }
        End::Hang => {}
    }
    code.extend([0xfa, 0xf4, 0xeb, 0xfc]); // 3: cli; hlt; jmp 3b
    code
}

fn elf(code: &[u8]) -> Vec<u8> {
    let size = u64::from(HEADERS + NOTE) + code.len() as u64;
    let mut file = Vec::new();
    file.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]); // executable, x86-64
    for word in [u64::from(ENTRY), 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0; 4]);
    for half in [64u16, 56, 2, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // One segment loads the whole file with its headers. The other segment is the note.
    program_header(
        &mut file,
        1,
        [0, LOAD.into(), LOAD.into(), size, size + 4096],
    );
    program_header(
        &mut file,
        4,
        [HEADERS.into(), 0, 0, NOTE.into(), NOTE.into()],
    );
    for word in [4, 4, 18] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(*b"Xen\0");
    file.extend(ENTRY.to_le_bytes());
    file.extend(code);
    file
}

fn program_header(file: &mut Vec<u8>, kind: u32, words: [u64; 5]) {
    file.extend(kind.to_le_bytes());
    file.extend(7u32.to_le_bytes());
    for word in words.into_iter().chain([4]) {
        file.extend(word.to_le_bytes());
    }
}
