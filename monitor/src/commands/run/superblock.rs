// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What file system is in an image, by the bytes that each has at a place of its own.

use anyhow::{Context, bail};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Name, place, bytes.
const KNOWN: [(&str, u64, &[u8]); 8] = [
    ("ext4", 0x438, b"\x53\xef"),
    ("xfs", 0, b"XFSB"),
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("squashfs", 0, b"hsqs"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("iso9660", 0x8001, b"CD001"),
    // Whatever is in it; the disk's code looks into it.
    ("qcow2", 0, b"QFI\xfb"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
];
/// At the end of the first sector of a disk that has partitions; and in front of its second, if by GPT.
const PARTITIONS: (u64, &[u8]) = (510, b"\x55\xaa");

/// Complains about an image that no guest can have as its root, before one is started for it.
pub fn check(image: &Path) -> anyhow::Result<()> {
    let file = File::open(image).with_context(|| image.display().to_string())?;
    let has = |at: u64, bytes: &[u8]| {
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, at).is_ok() && found == bytes
    };
    if let Some((name, ..)) = KNOWN.iter().find(|(_, at, bytes)| has(*at, bytes)) {
        tracing::debug!("{}: {name}", image.display());
        return Ok(());
    }
    let name = image.display();
    if has(PARTITIONS.0, PARTITIONS.1) {
        bail!("{name}: a disk with partitions, and a root is one file system: give that, or the disk with --disk");
    }
    if has(0, b"\x1f\x8b") || has(0, b"\xfd7zXZ") || has(0, b"\x28\xb5\x2f\xfd") {
        bail!("{name}: compressed: unpack it first");
    }
    if has(257, b"ustar") {
        bail!("{name}: a tar archive: an image of a container goes with --image");
    }
    bail!("{name}: no file system that is known: ext4, xfs, erofs and squashfs are")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_an_image() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let why = || check(image.path()).map_err(|error| error.to_string());
        assert!(why().unwrap_err().contains("no file system"));
        image.as_file().set_len(1 << 20).unwrap();
        assert!(why().unwrap_err().contains("no file system"));
        image.as_file().write_all_at(b"\x55\xaa", 510).unwrap();
        assert!(why().unwrap_err().contains("partitions"));
        for (name, at, bytes) in KNOWN {
            image.as_file().write_all_at(bytes, at).unwrap();
            assert_eq!(why(), Ok(()), "{name}");
            image.as_file().write_all_at(&vec![0; bytes.len()], at).unwrap();
        }
        image.as_file().write_all_at(b"ustar", 257).unwrap();
        image.as_file().write_all_at(&[0; 2], 510).unwrap();
        assert!(why().unwrap_err().contains("--image"));
        image.as_file().write_all_at(b"\x1f\x8b", 0).unwrap();
        assert!(why().unwrap_err().contains("compressed"));
    }
}
