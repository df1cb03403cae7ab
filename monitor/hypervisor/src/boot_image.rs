// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux's own kernel format, bzImage: what distributions install as /boot/vmlinuz. A setup header
//! says how to start it (Documentation/arch/x86/boot.rst). The kernel in it is compressed and
//! unpacks itself.

use std::ops::Range;
use thiserror::Error;

/// Offsets in the file, and in `boot_params`.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const JUMP_LENGTH: usize = 0x201;
const PROTOCOL: usize = 0x206;
const RELEASE: usize = 0x20e;
const RELOCATABLE: usize = 0x234;
const LOAD_FLAGS: usize = 0x236;
const INITRD_MAX: usize = 0x22c;
const COMMAND_LINE_MAX: usize = 0x238;
const PREFERRED: usize = 0x258;
const INIT_SIZE: usize = 0x260;
const HEADER_END: usize = 0x264;

/// Sectors of setup code if the header says 0.
const USUAL_SECTORS: usize = 4;
const SECTOR: usize = 512;
/// The first protocol with all fields that are used here (Linux 3.8).
const OLDEST: u16 = 0x20c;
/// The flag of an entry in 64-bit mode, and its place in the kernel.
const HAS_64_BIT_ENTRY: u16 = 1;
const ENTRY_64: u64 = 0x200;
/// Text of the release before its first space is shorter than this.
const LONGEST_RELEASE: usize = 128;

/// What the setup header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootImage {
    /// The setup header, which `boot_params` gets at the same place.
    pub header: Range<usize>,
    /// Where the kernel begins in the file.
    pub kernel: usize,
    /// The guest-physical address for which it was built. It works there without relocation.
    pub address: u64,
    /// The bytes from there that it needs while it unpacks itself.
    pub size: u64,
    /// The guest-physical address of its entry in 64-bit mode.
    pub entry: u64,
    /// The highest address of the last byte of an initial RAM disk.
    pub initrd_max: u64,
    /// The longest command line, without the zero byte at its end.
    pub command_line_max: usize,
    /// The kernel's release, such as `6.1.0-9-cloud-amd64`, as `uname -r` says.
    pub release: Option<String>,
}

/// Why a bzImage cannot be booted.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BootImageError {
    /// The file ends in the header or in the setup code.
    #[error("truncated: {0} bytes")]
    Truncated(usize),
    /// It has an old boot protocol.
    #[error("boot protocol {}.{:02}, 2.12 or later is needed (Linux 3.8)", .0 >> 8, .0 & 0xff)]
    Old(u16),
    /// It is for 32-bit processors.
    #[error("no entry in 64-bit mode: an x86-64 kernel is needed")]
    Not64Bit,
    /// The header's numbers are not possible.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}

impl BootImage {
    /// Whether a file has this format.
    pub fn is_one(file: &[u8]) -> bool {
        file.get(MAGIC..MAGIC + 4) == Some(b"HdrS")
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Why the file cannot be booted.
    pub fn parse(file: &[u8]) -> Result<Self, BootImageError> {
        let truncated = BootImageError::Truncated(file.len());
        let Some(head) = file.first_chunk::<HEADER_END>() else {
            return Err(truncated);
        };
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if half(PROTOCOL) < OLDEST {
            return Err(BootImageError::Old(half(PROTOCOL)));
        }
        if half(LOAD_FLAGS) & HAS_64_BIT_ENTRY == 0 {
            return Err(BootImageError::Not64Bit);
        }
        let sectors = match usize::from(head[SETUP_SECTORS]) {
            0 => USUAL_SECTORS,
            sectors => sectors,
        };
        let kernel = (sectors + 1) * SECTOR;
        if file.len() <= kernel {
            return Err(truncated);
        }
        let (address, size) = (long(PREFERRED), u64::from(word(INIT_SIZE)));
        if head[RELOCATABLE] == 0 && address == 0 {
            return Err(BootImageError::Damaged("no address to load it to"));
        }
        if size < (file.len() - kernel) as u64 || address.checked_add(size.max(ENTRY_64)).is_none()
        {
            return Err(BootImageError::Damaged(
                "it needs less memory than it has bytes",
            ));
        }
        let end = MAGIC + usize::from(head[JUMP_LENGTH]);
        if !(INIT_SIZE + 4..=kernel).contains(&end) {
            return Err(BootImageError::Damaged("the length of its header"));
        }
        Ok(BootImage {
            header: SETUP_SECTORS..end,
            kernel,
            address,
            size,
            entry: address + ENTRY_64,
            initrd_max: word(INITRD_MAX).into(),
            command_line_max: usize::try_from(word(COMMAND_LINE_MAX)).unwrap_or(usize::MAX),
            release: release(file, usize::from(half(RELEASE)) + SECTOR),
        })
    }
}

/// The first word at an offset. It names a folder of the host, so a word that could lead elsewhere
/// is none.
fn release(file: &[u8], at: usize) -> Option<String> {
    let text = file.get(at..)?.iter().take(LONGEST_RELEASE);
    let word: Vec<u8> = text.copied().take_while(u8::is_ascii_graphic).collect();
    let usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(byte);
    let word = String::from_utf8(word).ok()?;
    let one_folder = word.bytes().all(|byte| usual(&byte)) && !word.starts_with('.');
    (one_folder && !word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of five sectors of setup code and 100 bytes of kernel.
    pub fn file() -> Vec<u8> {
        let mut file = vec![0; 6 * SECTOR + 100];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(SETUP_SECTORS, &[5]);
        put(JUMP_LENGTH, &[0x6a]);
        put(MAGIC, b"HdrS");
        put(PROTOCOL, &0x20fu16.to_le_bytes());
        put(RELEASE, &0x300u16.to_le_bytes());
        put(0x500, b"6.1.0-9-cloud-amd64 (debian-kernel)");
        put(RELOCATABLE, &[1]);
        put(LOAD_FLAGS, &[0x3f]);
        put(INITRD_MAX, &0x7fff_ffffu32.to_le_bytes());
        put(COMMAND_LINE_MAX, &2047u32.to_le_bytes());
        put(PREFERRED, &0x100_0000u64.to_le_bytes());
        put(INIT_SIZE, &0x2000u32.to_le_bytes());
        file
    }

    #[test]
    fn a_release_is_the_name_of_one_folder() {
        for (text, expected) in [
            (&b"6.1.0-9-cloud-amd64 (d)"[..], Some("6.1.0-9-cloud-amd64")),
            (b"6.12.0+~rc1_x \0", Some("6.12.0+~rc1_x")),
            (b"/tmp/x (d)", None),
            (b"../../../tmp", None),
            (b"..", None),
            (b"a/b", None),
            (b" ", None),
        ] {
            assert_eq!(release(text, 0).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn the_header_is_read() {
        let file = file();
        assert!(BootImage::is_one(&file));
        let image = BootImage::parse(&file).unwrap();
        let expected = BootImage {
            header: 0x1f1..0x26c,
            kernel: 6 * SECTOR,
            address: 0x100_0000,
            size: 0x2000,
            entry: 0x100_0200,
            initrd_max: 0x7fff_ffff,
            command_line_max: 2047,
            release: Some("6.1.0-9-cloud-amd64".to_string()),
        };
        assert_eq!(image, expected);
    }

    #[test]
    fn each_defect_is_told() {
        let change = |at: usize, bytes: &[u8]| {
            let mut file = file();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            let error = BootImage::parse(&file).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        for (at, bytes, part) in [
            (PROTOCOL, &[9, 2][..], "boot protocol 2.09"),
            (LOAD_FLAGS, &[0xfe], "no entry in 64-bit mode"),
            (SETUP_SECTORS, &[64], "truncated"),
            (INIT_SIZE, &[8, 0, 0, 0], "less memory than"),
            (JUMP_LENGTH, &[1], "the length of its header"),
            (PREFERRED, &[0xff; 8], "less memory than"),
        ] {
            assert!(change(at, bytes).contains(part), "{part}");
        }
        // The entry would lie beyond the last address.
        let mut file = self::file();
        file[INIT_SIZE..INIT_SIZE + 4].copy_from_slice(&100u32.to_le_bytes());
        file[PREFERRED..PREFERRED + 8].copy_from_slice(&(u64::MAX - 0x100).to_le_bytes());
        let error = BootImage::parse(&file).err();
        assert!(
            matches!(error, Some(BootImageError::Damaged(_))),
            "{error:?}"
        );
        assert_eq!(change(RELEASE, &[0xff; 2]), "", "no release is no defect");
        for length in [0, 0x1f1, 0x263, 6 * SECTOR] {
            let error = BootImage::parse(&file[..length]).err().unwrap();
            assert_eq!(error, BootImageError::Truncated(length));
        }
        assert!(!BootImage::is_one(b"\x7fELF"));
    }
}
