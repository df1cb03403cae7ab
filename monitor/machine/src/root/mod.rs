// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initial root file system: the agent, busybox, and the files of /etc that programs need.
//!
//! Each start assembles it in memory as an archive, and the guest's kernel unpacks it. A user's
//! archive replaces busybox; the agent is appended to it.

pub mod builtin;
pub mod busybox;
pub mod modules;

use crate::initramfs::Initramfs;
use builtin::ListFile;
use modules::Module;
use std::io;

/// The path of the agent, for the kernel's `rdinit=`.
pub const AGENT: &str = "/paravane/agent";

/// The host name of machines.
pub const HOSTNAME: &str = "paravane";

/// Directories: path and mode.
const FOLDERS: &[(&str, u32)] = &[
    ("bin", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("sbin", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/sbin", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o1777),
];

/// Files: path and content.
const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
    (
        "etc/hosts",
        "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 paravane\n",
    ),
    ("etc/shells", "/bin/sh\n/bin/ash\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n",
    ),
    (
        "etc/profile",
        "export PS1='\\u@\\h:\\w\\$ '\nalias ll='ls -l'\n",
    ),
];

/// Makes the archive of the built-in root.
///
/// # Errors
/// A file has 4 GiB or more.
pub fn built_in(busybox: &busybox::Busybox) -> io::Result<Vec<u8>> {
    let mut archive = Initramfs::default();
    for (path, mode) in FOLDERS {
        archive.directory(path, *mode)?;
    }
    for (path, text) in FILES {
        archive.file(path, 0o644, text.as_bytes())?;
    }
    archive.file("bin/busybox", 0o755, &busybox.program)?;
    for applet in &busybox.applets {
        archive.symlink(applet, "/bin/busybox")?;
    }
    add_agent(&mut archive)?;
    archive.finish()
}

/// Whether the kernel's `initramfs.c` accepts the bytes as an archive, by their start. Zeroes may
/// precede the archive, and zeroes alone are an empty archive.
pub fn is_archive(bytes: &[u8]) -> bool {
    const STARTS: [&[u8]; 9] = [
        b"070701",
        b"070702",
        b"\x1f\x8b",
        b"\xfd7zXZ",
        b"\x28\xb5\x2f\xfd",
        b"BZh",
        b"\x02\x21\x4c\x18",
        b"\x5d\x00\x00",
        b"\x89LZO",
    ];
    let zeroes = bytes.iter().take_while(|&&byte| byte == 0).count();
    let bytes = bytes.get(zeroes..).unwrap_or_default();
    bytes.is_empty() || STARTS.iter().any(|start| bytes.starts_with(start))
}

/// Appends modules, which the agent loads in this order.
///
/// # Errors
/// A module has 4 GiB or more.
pub fn with_modules(mut archive: Vec<u8>, modules: &[Module]) -> io::Result<Vec<u8>> {
    let mut more = Initramfs::default();
    more.directory("paravane", 0o755)?;
    more.directory("paravane/modules", 0o755)?;
    for (number, module) in modules.iter().enumerate() {
        let path = format!("paravane/modules/{number:03}-{}.ko", module.name);
        more.file(&path, 0o644, &module.bytes)?;
    }
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(more.finish()?);
    Ok(archive)
}

/// Appends the files of `/lib/modules/RELEASE`, which the agent copies there.
///
/// # Errors
/// None in practice: they are small.
pub fn with_lists(mut archive: Vec<u8>, files: &[ListFile]) -> io::Result<Vec<u8>> {
    let mut more = Initramfs::default();
    more.directory("paravane", 0o755)?;
    more.directory("paravane/builtin", 0o755)?;
    for (name, content) in files {
        more.file(&format!("paravane/builtin/{name}"), 0o644, content)?;
    }
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(more.finish()?);
    Ok(archive)
}

/// Appends the agent to a user's archive, which may be compressed.
///
/// # Errors
/// None in practice: the agent is small.
pub fn with_agent(mut archive: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut agent = Initramfs::default();
    add_agent(&mut agent)?;
    // The kernel looks for the next archive at multiples of four.
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(agent.finish()?);
    Ok(archive)
}

fn add_agent(archive: &mut Initramfs) -> io::Result<()> {
    archive.directory("paravane", 0o755)?;
    archive.file("paravane/agent", 0o755, paravane_blobs::AGENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::io::Read;

    fn unpack(mut archive: &[u8]) -> HashMap<String, (u32, Vec<u8>)> {
        let mut files = HashMap::new();
        loop {
            let mut reader = cpio::NewcReader::new(archive).unwrap();
            let entry = (reader.entry().name().to_string(), reader.entry().mode());
            if reader.entry().is_trailer() {
                return files;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            archive = reader.finish().unwrap();
            assert!(files.insert(entry.0, (entry.1, content)).is_none(), "twice");
        }
    }

    #[test]
    fn the_archive_contains_each_file_once() {
        let busybox = busybox::Busybox {
            program: b"\x7fELF".to_vec(),
            applets: vec!["bin/sh".to_string(), "usr/bin/env".to_string()],
        };
        let files = unpack(&built_in(&busybox).unwrap());
        assert_eq!(files["bin/busybox"], (0o100_755, b"\x7fELF".to_vec()));
        assert_eq!(files["bin/sh"], (0o120_777, b"/bin/busybox".to_vec()));
        assert_eq!(files["paravane/agent"].1, paravane_blobs::AGENT);
        assert_eq!(files["tmp"].0, 0o041_777);
        // The archive contains the directory of each entry.
        for path in files.keys() {
            let parent = path.rsplit_once('/').map(|(parent, _)| parent);
            assert!(
                parent.is_none_or(|parent| files[parent].0 & 0o170_000 == 0o040_000),
                "{path}"
            );
        }
    }

    #[test]
    fn the_agent_is_appended_to_an_archive() {
        let archive = with_agent(b"12345".to_vec()).unwrap();
        assert_eq!(archive[..8], *b"12345\0\0\0");
        assert!(unpack(&archive[8..]).contains_key("paravane/agent"));
    }

    #[test]
    fn modules_are_appended_in_their_order() {
        let module = |name: &str| Module {
            name: name.to_string(),
            bytes: name.as_bytes().to_vec(),
        };
        let archive = with_modules(b"1".to_vec(), &[module("virtio"), module("ext4")]).unwrap();
        let files = unpack(&archive[4..]);
        assert_eq!(files["paravane/modules/000-virtio.ko"].1, b"virtio");
        assert_eq!(files["paravane/modules/001-ext4.ko"].1, b"ext4");
    }

    #[test]
    fn lists_are_appended() {
        let lists = [
            ("modules.builtin", b"a.ko\n".to_vec()),
            ("modules.dep", vec![]),
        ];
        let files = unpack(&with_lists(b"1".to_vec(), &lists).unwrap()[4..]);
        assert_eq!(files["paravane/builtin/modules.builtin"].1, b"a.ko\n");
        assert_eq!(files["paravane/builtin/modules.dep"].1, b"");
    }
}
