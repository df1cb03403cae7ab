// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recognizes the file system in an image by its magic number.

use anyhow::{Context, bail};
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Name, offset, bytes.
const KNOWN: [(&str, u64, &[u8]); 8] = [
    ("ext4", 0x438, b"\x53\xef"),
    ("xfs", 0, b"XFSB"),
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("squashfs", 0, b"hsqs"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("iso9660", 0x8001, b"CD001"),
    // The disk device checks its contents, and whether it may be one.
    ("qcow2", 0, b"QFI\xfb"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
];
/// Signature at the end of the first sector of a disk with partitions (MBR or GPT).
const PARTITIONS: (u64, &[u8]) = (510, b"\x55\xaa");

/// Refuses an image that cannot be a guest's root, before a guest is started for it. If it is
/// `raw`, it is no qcow2 image, whatever it begins with.
pub fn check(image: &Path, raw: bool) -> anyhow::Result<()> {
    let path = || image.display().to_string();
    // The open of a pipe would wait for its writer.
    let kind = std::fs::metadata(image).with_context(path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        bail!(
            "{}: neither a folder, nor a file, nor a block device",
            path()
        );
    }
    let file = File::open(image).with_context(path)?;
    let has = |at: u64, bytes: &[u8]| {
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, at).is_ok() && found == bytes
    };
    let mut known = KNOWN.iter().filter(|(name, ..)| !raw || *name != "qcow2");
    if let Some((name, ..)) = known.find(|(_, at, bytes)| has(*at, bytes)) {
        tracing::debug!("{}: {name}", image.display());
        let metadata = file.metadata().with_context(path)?;
        let there = metadata.len();
        match length(name, &file) {
            Some(all) if metadata.is_file() && all > there => bail!(
                "{}: {there} bytes of {all} that its file system ({name}) has: the rest is missing",
                image.display()
            ),
            _ => return Ok(()),
        }
    }
    let name = image.display();
    if has(PARTITIONS.0, PARTITIONS.1) {
        bail!(
            "{name}: a disk with partitions, but a root is one file system: give one of them, or \
             the disk with --disk"
        );
    }
    if has(0, b"\x1f\x8b") || has(0, b"\xfd7zXZ") || has(0, b"\x28\xb5\x2f\xfd") {
        bail!("{name}: compressed: unpack it first");
    }
    if has(257, b"ustar") {
        bail!("{name}: a tar archive: use --image for a container image");
    }
    bail!("{name}: no file system that is known: ext4, xfs, erofs or squashfs is needed")
}

/// The size in bytes that a file system states, where it is easy to find.
fn length(name: &str, file: &File) -> Option<u64> {
    let bytes = |at: u64, count: usize| {
        let mut found = [0; 8];
        file.read_exact_at(found.get_mut(..count)?, at).ok()?;
        Some(found)
    };
    let little = |at: u64, count: usize| bytes(at, count).map(u64::from_le_bytes);
    match name {
        "ext4" => {
            // Blocks, the upper half of which counts with the feature "64bit", of 1 KiB shifted.
            let has_upper = little(0x460, 4)? & 0x80 != 0;
            let upper = if has_upper { little(0x550, 4)? } else { 0 };
            let size = 1024u64.checked_shl(u32::try_from(little(0x418, 4)?).ok()?)?;
            (little(0x404, 4)? | upper << 32).checked_mul(size)
        }
        "xfs" => {
            let size = u64::from_be_bytes(bytes(4, 4)?) >> 32;
            u64::from_be_bytes(bytes(8, 8)?).checked_mul(size)
        }
        "squashfs" => little(40, 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The open of a pipe would wait for a writer.
    #[test]
    fn a_pipe_is_no_image() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let said = check(&pipe, false).unwrap_err().to_string();
        assert!(
            said.ends_with("neither a folder, nor a file, nor a block device"),
            "{said}"
        );
    }

    #[test]
    fn what_is_raw_is_no_qcow2_image() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let put = |at: u64, bytes: &[u8]| image.as_file().write_all_at(bytes, at).unwrap();
        put(0, b"QFI\xfb");
        assert!(check(image.path(), false).is_ok());
        let error = check(image.path(), true).unwrap_err().to_string();
        assert!(error.contains("no file system that is known"), "{error}");
        put(0x438, b"\x53\xef");
        assert!(check(image.path(), true).is_ok());
    }

    #[test]
    fn what_was_cut_off() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let file = image.as_file();
        let why = || check(image.path(), false).map_err(|error| error.to_string());
        let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
        for (name, words) in [
            // 768 blocks of 4 KiB.
            (
                "ext4",
                &[
                    (0x438, &b"\x53\xef"[..]),
                    (0x404, &[0, 3, 0, 0]),
                    (0x418, &[2, 0, 0, 0]),
                ][..],
            ),
            (
                "xfs",
                &[(0, b"XFSB\0\0\x10\0"), (8, &[0, 0, 0, 0, 0, 0, 3, 0])],
            ),
            (
                "squashfs",
                &[(0, b"hsqs"), (40, &[0, 0, 0x30, 0, 0, 0, 0, 0])],
            ),
        ] {
            file.set_len(0).unwrap();
            file.set_len(3 << 20).unwrap();
            words.iter().for_each(|&(at, bytes)| put(at, bytes));
            assert_eq!(why(), Ok(()), "{name}");
            file.set_len((3 << 20) - 512).unwrap();
            let told = why().unwrap_err();
            assert!(
                told.contains(&format!("of 3145728 that its file system ({name})")),
                "{told}"
            );
        }
        // Nonsense is the guest's kernel's business.
        file.set_len(0).unwrap();
        file.set_len(3 << 20).unwrap();
        put(0x400, &[0xff; 0x400]);
        put(0x438, b"\x53\xef");
        assert_eq!(why(), Ok(()));
    }

    #[test]
    fn what_is_in_an_image() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let why = || check(image.path(), false).map_err(|error| error.to_string());
        assert!(why().unwrap_err().contains("no file system"));
        image.as_file().set_len(1 << 20).unwrap();
        assert!(why().unwrap_err().contains("no file system"));
        image.as_file().write_all_at(b"\x55\xaa", 510).unwrap();
        assert!(why().unwrap_err().contains("partitions"));
        for (name, at, bytes) in KNOWN {
            image.as_file().write_all_at(bytes, at).unwrap();
            assert_eq!(why(), Ok(()), "{name}");
            image
                .as_file()
                .write_all_at(&vec![0; bytes.len()], at)
                .unwrap();
        }
        image.as_file().write_all_at(b"ustar", 257).unwrap();
        image.as_file().write_all_at(&[0; 2], 510).unwrap();
        assert!(why().unwrap_err().contains("--image"));
        image.as_file().write_all_at(b"\x1f\x8b", 0).unwrap();
        assert!(why().unwrap_err().contains("compressed"));
    }
}
