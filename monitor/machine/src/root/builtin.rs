// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The list of the drivers that a kernel of `paravane kernel build` has built in, so that the
//! guest's `modprobe` succeeds for them. It goes into the initial root, and the agent copies it to
//! `/lib/modules/RELEASE`.
//!
//! busybox reads the text, and needs a `modules.dep`, which may be empty. kmod reads an index only:
//! a trie, as its `depmod` writes it (kmod's `libkmod-index.c`).

use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The list's name, beside the kernel and in the guest.
const NAME: &str = paravane_kernel::BUILTIN;
/// Bytes of a list. That of the default configuration has 11 KB.
const LARGEST: u64 = 1 << 20;
/// Bytes of a line, and so the depth of the trie.
const LONGEST: usize = 256;

const MAGIC: u32 = 0xb007_f457;
const VERSION: u32 = 0x0002_0001;
/// What a node has, in the offset that refers to it.
const PREFIX: u32 = 1 << 31;
const VALUES: u32 = 1 << 30;
const CHILDREN: u32 = 1 << 29;

/// A file of `/lib/modules/RELEASE`: name and content.
pub type ListFile = (&'static str, Vec<u8>);

/// The files for a kernel, made from the list beside it. None for a kernel without one, such as an
/// older one.
///
/// # Errors
/// The list cannot be read, or is none.
pub fn read(kernel: &Path) -> anyhow::Result<Vec<ListFile>> {
    let path = kernel.with_file_name(NAME);
    let complain = || path.display().to_string();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(complain),
    };
    let mut text = String::new();
    file.take(LARGEST + 1)
        .read_to_string(&mut text)
        .with_context(complain)?;
    if text.len() as u64 > LARGEST {
        bail!("{} has more than {} MiB", path.display(), LARGEST >> 20);
    }
    let index = index(&names(&text).with_context(complain)?)?;
    Ok(vec![
        (NAME, text.into_bytes()),
        ("modules.builtin.bin", index),
        ("modules.dep", Vec::new()),
    ])
}

/// The names of the modules in a list of their files.
fn names(text: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let file = line.rsplit('/').next().unwrap_or_default();
        let name = file.strip_suffix(".ko").unwrap_or_default();
        // The index has one byte for each child, and ends text with a zero.
        if name.is_empty() || line.len() > LONGEST || !line.bytes().all(|b| b.is_ascii_graphic()) {
            bail!("line {}: no path of a module", number + 1);
        }
        // The names of files and of modules differ in this.
        names.insert(name.replace('-', "_"));
    }
    Ok(names)
}

/// The index of these names, which have no values.
fn index(names: &BTreeSet<String>) -> anyhow::Result<Vec<u8>> {
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let mut bytes = Vec::new();
    for word in [MAGIC, VERSION, 0] {
        bytes.extend(word.to_be_bytes());
    }
    let root = node(&names, 0, &mut bytes)?;
    if let Some(place) = bytes.get_mut(8..12) {
        place.copy_from_slice(&root.to_be_bytes());
    }
    Ok(bytes)
}

/// Writes the node of sorted names that have the same first `depth` bytes, after its children.
/// Returns the reference to it.
fn node(names: &[&[u8]], depth: usize, bytes: &mut Vec<u8>) -> anyhow::Result<u32> {
    let (Some(first), Some(last)) = (names.first(), names.last()) else {
        // kmod's depmod writes a root without anything as well.
        return Ok(u32::try_from(bytes.len())?);
    };
    // Of sorted names, what the first and the last have in common is in all.
    let common = first.iter().zip(*last).take_while(|(a, b)| a == b).count();
    let prefix = first.get(depth..common).unwrap_or_default();
    let ends = first.len() == common;
    let rest = names.get(usize::from(ends)..).unwrap_or_default();
    let at = |name: &[u8]| name.get(common).copied().unwrap_or_default();
    let range = rest.first().zip(rest.last()).map(|(a, b)| (at(a), at(b)));
    let mut children = Vec::new();
    if let Some((low, high)) = range {
        for byte in low..=high {
            let begin = rest.partition_point(|name| at(name) < byte);
            let end = rest.partition_point(|name| at(name) <= byte);
            let below = rest.get(begin..end).unwrap_or_default();
            children.push(if below.is_empty() {
                0
            } else {
                node(below, common + 1, bytes)?
            });
        }
    }
    let mut reference = u32::try_from(bytes.len())?;
    if !prefix.is_empty() {
        bytes.extend(prefix);
        bytes.push(0);
        reference |= PREFIX;
    }
    if let Some((low, high)) = range {
        bytes.extend([low, high]);
        bytes.extend(children.iter().flat_map(|child| child.to_be_bytes()));
        reference |= CHILDREN;
    }
    if ends {
        // One value, of priority 0: the empty text.
        bytes.extend(1u32.to_be_bytes());
        bytes.extend(0u32.to_be_bytes());
        bytes.push(0);
        reference |= VALUES;
    }
    Ok(reference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LIST: &str = "kernel/fs/overlayfs/overlay.ko\nkernel/crypto/sha256-ssse3.ko\n\
                        kernel/crypto/sha256.ko\n";

    #[test]
    fn the_index_is_that_of_depmod() {
        let expected = b"\xb0\x07\xf4\x57\0\x02\0\x01\x20\0\0\x40\
            verlay\0\0\0\0\x01\0\0\0\0\0\
            ssse3\0\0\0\0\x01\0\0\0\0\0\
            ha256\0__\xc0\0\0\x1c\0\0\0\x01\0\0\0\0\0\
            os\xc0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0\0\xe0\0\0\x2b";
        assert_eq!(index(&names(LIST).unwrap()).unwrap(), expected);
        let nothing = index(&names("").unwrap()).unwrap();
        assert_eq!(nothing, b"\xb0\x07\xf4\x57\0\x02\0\x01\0\0\0\x0c");
    }

    #[test]
    fn a_kernel_without_a_list_has_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("vmlinux");
        assert_eq!(read(&kernel).unwrap(), []);
        fs::write(folder.path().join(NAME), LIST).unwrap();
        let files = read(&kernel).unwrap();
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [NAME, "modules.builtin.bin", "modules.dep"]);
        assert_eq!(files[0].1, LIST.as_bytes());
    }

    #[test]
    fn what_is_no_list_is_told() {
        let long = format!("kernel/{}.ko\n", "x".repeat(LONGEST));
        for text in [
            "kernel/a.ko\n\n",
            "kernel/.ko\n",
            "a b.ko\n",
            "\u{fc}.ko\n",
            &long,
        ] {
            let error = names(text).unwrap_err().to_string();
            assert!(error.contains("no path of a module"), "{text}: {error}");
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), vec![b'a'; (1 << 20) + 1]).unwrap();
        let error = read(&folder.path().join("vmlinux")).unwrap_err();
        assert!(error.to_string().contains("more than 1 MiB"), "{error}");
    }
}
