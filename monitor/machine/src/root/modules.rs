// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The modules of a distribution's kernel that drive a machine's devices and its root, and those
//! that they need. They go into the initial root, and the agent loads them.

use anyhow::{Context, bail};
use object::{Object, ObjectSection};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Drivers of the devices, then file systems. A kernel may have any of them built in.
const WANTED: [&str; 14] = [
    "virtio_mmio",
    "vmw_vsock_virtio_transport",
    "virtio_rng",
    "virtio_balloon",
    "virtio_blk",
    "virtio_net",
    "virtiofs",
    "overlay",
    "ext4",
    "xfs",
    "btrfs",
    "squashfs",
    "erofs",
    "isofs",
];
/// Modules of a chain of needs.
const LONGEST: usize = 64;
/// Folders in a folder of modules.
const DEEPEST: usize = 12;
/// Files in a folder of modules. Distributions have up to about 7,000.
const MOST_FILES: usize = 1 << 16;
/// Modules that are taken, and the bytes of all of them, unpacked.
const MOST: usize = 256;
const ALL: u64 = 1 << 30;
/// Bytes of a module, unpacked. The largest modules of distributions have about 20 MiB.
const LARGEST: u64 = 256 << 20;

/// A module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Its file, not compressed.
    pub bytes: Vec<u8>,
}

/// The folder of a kernel's modules: beside the kernel's file, as in an unpacked package, or the
/// host's.
pub fn folder(kernel: &Path, release: &str) -> Option<PathBuf> {
    let beside = kernel.parent().and_then(Path::parent);
    let roots = beside.into_iter().chain([Path::new("/")]);
    let mut folders = roots.flat_map(|root| {
        ["lib/modules", "usr/lib/modules"].map(|modules| root.join(modules).join(release))
    });
    folders.find(|folder| folder.is_dir())
}

/// Reads the wanted modules of a folder and those that they need, in the order in which they are
/// loaded.
///
/// # Errors
/// A file cannot be read or unpacked, or one that is needed is missing.
pub fn read(folder: &Path) -> anyhow::Result<Vec<Module>> {
    let (kernel, mut all) = (folder.join("kernel"), BTreeMap::new());
    let complain = || folder.display().to_string();
    if fs::symlink_metadata(&kernel).is_ok_and(|found| found.is_symlink()) {
        bail!(
            "{} is a link, and links to modules are not followed",
            kernel.display()
        );
    }
    list(&kernel, DEEPEST, &mut all).with_context(complain)?;
    let mut taking = Taking {
        all,
        modules: Vec::new(),
        taken: 0,
        left: ALL,
    };
    for name in WANTED {
        if taking.all.contains_key(name) {
            taking.add(name, LONGEST)?;
        }
    }
    Ok(taking.modules)
}

/// Modules that are being taken.
struct Taking {
    all: BTreeMap<String, PathBuf>,
    /// Those that are complete, after those that they need.
    modules: Vec<Module>,
    /// Files that were read, and the bytes that further ones may have.
    taken: usize,
    left: u64,
}

impl Taking {
    /// Adds a module after those that it needs, `most` in a row.
    fn add(&mut self, name: &str, most: usize) -> anyhow::Result<()> {
        if self.modules.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let Some(path) = self.all.get(name).filter(|_| most > 0).cloned() else {
            bail!("the kernel's module {name}, which another one needs, is missing");
        };
        if self.taken >= MOST {
            bail!("the kernel's drivers need more than {MOST} modules");
        }
        let bytes = unpack(&path, LARGEST)?;
        self.taken += 1;
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            bail!("the kernel's modules have more than {} MiB", ALL >> 20);
        };
        self.left = left;
        let complain = || path.display().to_string();
        for need in needs(&bytes).with_context(complain)? {
            self.add(&need, most - 1)?;
        }
        self.modules.push(Module {
            name: name.to_string(),
            bytes,
        });
        Ok(())
    }
}

/// Finds the files of all modules below a folder, by name. Follows no links.
fn list(folder: &Path, depth: usize, all: &mut BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && depth > 0 {
            list(&path, depth - 1, all)?;
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko")
            && kind.is_file()
        {
            if all.len() >= MOST_FILES {
                bail!("there are more than {MOST_FILES} modules");
            }
            // The names of files and of modules differ in this.
            all.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

/// The content of a module's file, which may be compressed: at most `most` bytes.
fn unpack(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let context = || format!("cannot read module {}", path.display());
    // It may have become something else since it was found.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).with_context(context)?;
    let file = File::from(file);
    if !file.metadata().with_context(context)?.is_file() {
        bail!("{}: not an ordinary file", context());
    }
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => {
            let mut bytes = Vec::new();
            file.take(most + 1)
                .read_to_end(&mut bytes)
                .with_context(context)?;
            return within(bytes, path, most);
        }
    };
    unpack_by(Command::new(program).arg("-dc"), file, path, most)
        .with_context(|| format!("{program} cannot unpack {}", path.display()))
}

/// The bytes, if there are no more than `most`.
fn within(bytes: Vec<u8>, path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    if bytes.len() as u64 > most {
        bail!(
            "{} has more than {} MiB unpacked",
            path.display(),
            most >> 20
        );
    }
    Ok(bytes)
}

/// What a program prints, at most `most` bytes: the file may say that it is of any size.
fn unpack_by(program: &mut Command, file: File, path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut child = program
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("it cannot be started")?;
    let mut bytes = Vec::new();
    let read = child.stdout.take().map_or_else(
        || Err(io::Error::other("no output")),
        |output| output.take(most + 1).read_to_end(&mut bytes),
    );
    let too_large = bytes.len() as u64 > most;
    if too_large {
        child.kill()?;
    }
    let status = child.wait()?;
    read?;
    let bytes = within(bytes, path, most)?;
    if !status.success() {
        bail!("it ended with {status}");
    }
    Ok(bytes)
}

/// The modules that a module needs.
fn needs(bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    let file = object::File::parse(bytes)?;
    let section = file.section_by_name(".modinfo").context("no module")?;
    let text = section.data()?;
    let names = text
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(b"depends="))
        .flat_map(|list| list.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name).replace('-', "_"))
        .filter(|name| !name.is_empty());
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object file of three sections, one with this entry of module information.
    fn module(depends: &str) -> Vec<u8> {
        let text = format!("license=GPL\0depends={depends}\0name=x\0");
        let names = "\0.modinfo\0.shstrtab\0";
        let (at, size) = (64, text.len() as u64);
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
        file.resize(16, 0);
        for half in [1u16, 62] {
            file.extend(half.to_le_bytes());
        }
        file.extend(1u32.to_le_bytes());
        let sections = at + size + names.len() as u64;
        for word in [0, 0, sections] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for half in [64u16, 0, 0, 64, 3, 2] {
            file.extend(half.to_le_bytes());
        }
        file.extend(text.as_bytes());
        file.extend(names.as_bytes());
        for (name, kind, offset, length) in [
            (0u32, 0u32, 0, 0),
            (1, 1, at, size),
            (10, 3, at + size, names.len() as u64),
        ] {
            file.extend(name.to_le_bytes());
            file.extend(kind.to_le_bytes());
            for word in [0, 0, offset, length, 0, 1, 0] {
                file.extend(word.to_le_bytes());
            }
        }
        file
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, depends) in files {
            let path = folder.path().join("kernel").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, module(depends)).unwrap();
        }
        folder
    }

    #[test]
    fn needs_come_first_and_once() {
        let folder = tree(&[
            ("net/vsock.ko", ""),
            ("net/vmw_vsock_virtio_transport.ko", "common,vsock,virtio"),
            ("net/common.ko", "vsock,virtio"),
            ("drivers/virtio/virtio.ko", ""),
            ("drivers/virtio/virtio_mmio.ko", "virtio"),
            ("drivers/virtio-rng.ko", "virtio"),
            ("sound/other.ko", ""),
        ]);
        let names: Vec<_> = read(folder.path())
            .unwrap()
            .into_iter()
            .map(|module| module.name)
            .collect();
        let expected = [
            "virtio",
            "virtio_mmio",
            "vsock",
            "common",
            "vmw_vsock_virtio_transport",
            "virtio_rng",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_missing_or_circular_is_told() {
        for (files, part) in [
            (&[("virtio_mmio.ko", "ring")][..], "module ring"),
            (
                &[("virtio_mmio.ko", "a"), ("a.ko", "virtio_mmio")],
                "is missing",
            ),
        ] {
            let error = format!("{:#}", read(tree(files).path()).err().unwrap());
            assert!(error.contains(part), "{error}");
        }
        let folder = tree(&[]);
        fs::create_dir(folder.path().join("kernel")).unwrap();
        assert_eq!(read(folder.path()).unwrap(), []);
        fs::write(folder.path().join("kernel/ext4.ko"), "text").unwrap();
        assert!(read(folder.path()).is_err());
    }

    #[test]
    fn a_module_that_unpacks_to_more_than_fits_is_refused() {
        let unpack = |text: &str, most| {
            unpack_by(
                Command::new("sh").arg("-c").arg(text),
                File::open("/dev/null").unwrap(),
                Path::new("m.xz"),
                most,
            )
        };
        assert_eq!(unpack("printf 1234", 4).unwrap(), b"1234");
        let error = unpack("printf 1234; exit 3", 4).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        // A program that never ends is ended, and what it printed is not kept.
        let error = unpack("while :; do echo 1; done", 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "m.xz has more than 1 MiB unpacked");
    }

    #[test]
    fn there_are_only_so_many_and_none_behind_a_link() {
        // A driver that needs more than are taken.
        let names: Vec<String> = (0..MOST).map(|number| format!("m{number}")).collect();
        let mut files = vec![("virtio_mmio.ko".to_string(), names.join(","))];
        files.extend(
            names
                .iter()
                .map(|name| (format!("{name}.ko"), String::new())),
        );
        let files: Vec<_> = files
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let folder = tree(&files);
        let error = read(folder.path()).unwrap_err().to_string();
        assert_eq!(error, "the kernel's drivers need more than 256 modules");
        // One fewer is taken.
        fs::write(
            folder.path().join("kernel/virtio_mmio.ko"),
            module(&names[1..].join(",")),
        )
        .unwrap();
        assert_eq!(read(folder.path()).unwrap().len(), MOST);
        // Links are no modules, and no folders of them.
        let other = tree(&[("ext4.ko", "")]);
        let link = std::os::unix::fs::symlink::<PathBuf, PathBuf>;
        let folder = tree(&[("erofs.ko", "")]);
        let (from, to) = (other.path().join("kernel"), folder.path().join("kernel"));
        link(from.join("ext4.ko"), to.join("ext4.ko")).unwrap();
        link(from.clone(), to.join("more")).unwrap();
        let found = read(folder.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "erofs");
        assert!(unpack(&to.join("ext4.ko"), LARGEST).is_err());
        fs::remove_dir_all(&to).unwrap();
        link(from, to).unwrap();
        assert!(read(folder.path()).is_err());
        // Together they have a bound, which is not that of one.
        let mut taking = Taking {
            all: BTreeMap::from([("ext4".to_string(), other.path().join("kernel/ext4.ko"))]),
            modules: Vec::new(),
            taken: 0,
            left: 100,
        };
        let error = taking.add("ext4", LONGEST).unwrap_err().to_string();
        assert!(error.contains("have more than 1024 MiB"), "{error}");
    }

    #[test]
    fn modules_are_beside_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let (kernel, modules) = (
            root.path().join("boot/vmlinuz-1"),
            root.path().join("lib/modules/1-test"),
        );
        assert_eq!(folder(&kernel, "1-test"), None);
        fs::create_dir_all(&modules).unwrap();
        assert_eq!(folder(&kernel, "1-test"), Some(modules));
    }
}
