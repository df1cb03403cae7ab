// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacks the payload of a bzImage (Documentation/arch/x86/boot.rst), and compares it with a
//! vmlinux.

use anyhow::{Context, bail};
use flate2::read::GzDecoder;
use paravane_vmlinux::elf::{Segment, segments};
use std::io::Read;

/// Offsets in the setup header.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;
/// An upper limit for the size of an unpacked kernel, in bytes.
const MAX_SIZE: u64 = 1 << 30;

/// The ELF file in a bzImage, followed by its table of relocations.
pub fn unpack(image: &[u8]) -> anyhow::Result<Vec<u8>> {
    if image.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
        bail!("it has no Linux setup header");
    }
    let word = |at: usize| {
        let bytes = image.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let sectors = match image.get(SETUP_SECTORS) {
        Some(0) | None => 4,
        Some(&n) => usize::from(n),
    };
    let payload = || {
        let start = (sectors + 1) * SECTOR + word(PAYLOAD_OFFSET)?;
        image.get(start..start + word(PAYLOAD_LENGTH)?)
    };
    let payload = payload().context("its payload is not inside the file")?;
    if !payload.starts_with(&[0x1f, 0x8b]) {
        bail!("its payload is not compressed with gzip (CONFIG_KERNEL_GZIP), as is required");
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(payload)
        .take(MAX_SIZE)
        .read_to_end(&mut unpacked)
        .context("its payload cannot be unpacked")?;
    Ok(unpacked)
}

/// The number of loaded bytes, if both files load the same.
pub fn compare(payload: &[u8], vmlinux: &[u8]) -> anyhow::Result<usize> {
    let (packed, whole) = (
        segments(payload).context("the payload")?,
        segments(vmlinux).context("vmlinux")?,
    );
    if packed.is_empty() || packed.len() != whole.len() {
        bail!(
            "the payload has {} segments, vmlinux {}",
            packed.len(),
            whole.len()
        );
    }
    for (a, b) in packed.iter().zip(&whole) {
        differ(a, b)?;
    }
    Ok(packed.iter().map(|s| s.bytes.len()).sum())
}

fn differ(a: &Segment<'_>, b: &Segment<'_>) -> anyhow::Result<()> {
    if (a.address, a.size, a.bytes.len()) != (b.address, b.size, b.bytes.len()) {
        bail!(
            "the payload has a segment at {:#x} with {} bytes, vmlinux at {:#x} with {}",
            a.address,
            a.size,
            b.address,
            b.size
        );
    }
    match a.bytes.iter().zip(b.bytes).position(|(x, y)| x != y) {
        Some(at) => bail!(
            "what is loaded differs, first at {:#x}",
            a.address + at as u64
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;
    use std::io::Write;

    fn image(content: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(content).unwrap();
        let packed = packer.finish().unwrap();
        let mut image = vec![0; 2 * SECTOR];
        image[SETUP_SECTORS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&4u32.to_le_bytes());
        let length = u32::try_from(packed.len()).unwrap();
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
        image.extend(b"code");
        image.extend(packed);
        image
    }

    #[test]
    fn a_payload_comes_out() {
        let file = image(b"content");
        assert_eq!(unpack(&file).unwrap(), b"content");
        for at in [MAGIC, PAYLOAD_LENGTH + 3, 2 * SECTOR + 4] {
            let mut damaged = file.clone();
            damaged[at] ^= 0x7f;
            assert!(unpack(&damaged).is_err(), "{at:#x}");
        }
        assert!(unpack(&file[..file.len() - 12]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            changes in prop::collection::vec((0usize..1040, any::<u8>()), 1..6)
        ) {
            let mut file = image(b"content");
            for (at, byte) in changes {
                if let Some(place) = file.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = unpack(&file);
        }
    }
}
