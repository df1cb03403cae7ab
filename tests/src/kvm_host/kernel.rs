// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel of the emulated host: Debian's cloud kernel with its KVM modules, fetched by apt and
//! kept in the user's cache by its version.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use object::{Object, ObjectSection};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's package that depends on the newest cloud kernel.
const NEWEST: &str = "linux-image-cloud-amd64";
/// The modules, in the order in which they are loaded.
pub const MODULES: [&str; 3] = ["irqbypass", "kvm", "kvm-amd"];

/// The beginnings of the names of modules that drive a machine's devices, and of what they need.
const DRIVERS: [&str; 7] = [
    "virtio",
    "vsock",
    "vmw_vsock",
    "net_failover",
    "failover",
    "fuse",
    "overlay",
];

/// Offsets in the header of a bzImage.
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD: usize = 0x248;
const PAYLOAD_SIZE: usize = 0x24c;

/// A kernel in the cache.
#[derive(Clone, Debug)]
pub struct Kernel(PathBuf);

impl Kernel {
    /// Finds it, or fetches it from the mirror of the host's apt.
    ///
    /// # Panics
    /// When it cannot be fetched.
    #[must_use]
    pub fn get() -> Self {
        let depends = said("apt-cache", &["depends", NEWEST]);
        let package = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
            .unwrap_or_else(|| panic!("apt knows no {NEWEST}: apt-get update"));
        let package = format!("linux-image-{package}");
        let policy = said("apt-cache", &["policy", &package]);
        let version = policy
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "))
            .unwrap_or_else(|| panic!("apt has no {package}: apt-get update"));
        let tests = crate::debian::cache();
        let folder = tests.join(format!("{package}_{}", version.replace(':', "_")));
        let _alone = crate::debian::lock(&tests, &package);
        if !folder.exists() {
            fetch(&tests, &package, &folder);
        }
        Kernel(folder)
    }

    /// The kernel itself, a bzImage.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.0.join("vmlinuz")
    }

    /// The release, as `uname -r` says.
    ///
    /// # Panics
    /// When the cache has another folder in its place.
    #[must_use]
    pub fn release(&self) -> String {
        let name = self.0.file_name().unwrap().to_string_lossy();
        let (package, _) = name.split_once('_').unwrap();
        package.trim_start_matches("linux-image-").to_string()
    }

    /// The names of the modules that drive a machine's devices, and of those that they need.
    ///
    /// # Panics
    /// When the folder cannot be read.
    #[must_use]
    pub fn drivers(&self) -> Vec<String> {
        fs::read_dir(&self.0)
            .unwrap()
            .filter_map(|entry| {
                let name = entry.unwrap().file_name().to_string_lossy().into_owned();
                let name = name.strip_suffix(".ko")?.to_string();
                DRIVERS
                    .iter()
                    .any(|start| name.starts_with(start))
                    .then_some(name)
            })
            .collect()
    }

    /// Modules after those that they need, as far as they are not built in.
    ///
    /// # Panics
    /// When a module is damaged.
    #[must_use]
    pub fn with_needs(&self, names: &[&str]) -> Vec<(String, PathBuf)> {
        let mut all: Vec<(String, PathBuf)> = Vec::new();
        for name in names {
            // The names of files and of modules differ in this.
            let paths = [name.to_string(), name.replace('_', "-")];
            let paths = paths.map(|name| self.0.join(format!("{name}.ko")));
            let Some(path) = paths.into_iter().find(|path| path.exists()) else {
                continue;
            };
            let needs = needs(&fs::read(&path).unwrap());
            let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
            for module in self.with_needs(&needs) {
                if !all.contains(&module) {
                    all.push(module);
                }
            }
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if !all.iter().any(|(known, _)| *known == name) {
                all.push((name, path));
            }
        }
        all
    }

    /// The kernel as an ELF file, which the compressed kernel contains.
    ///
    /// # Panics
    /// When it cannot be unpacked.
    #[must_use]
    pub fn vmlinux(&self) -> Vec<u8> {
        let image = fs::read(self.image()).unwrap();
        let word = |at: usize| {
            let bytes = image[at..at + 4].try_into().unwrap();
            usize::try_from(u32::from_le_bytes(bytes)).unwrap()
        };
        // Documentation/arch/x86/boot.rst. The size of what is packed follows it.
        let start = (usize::from(image[SETUP_SECTORS]) + 1) * 512 + word(PAYLOAD);
        let packed = &image[start..start + word(PAYLOAD_SIZE) - 4];
        let tool = match packed {
            [0x1f, 0x8b, ..] => "gzip",
            [0xfd, b'7', ..] => "xz",
            [0x28, 0xb5, ..] => "zstd",
            [2, 0x21, ..] => "lz4",
            other => panic!("unknown compression: {:x?}", &other[..4]),
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(packed).unwrap();
        let output = Command::new(tool)
            .arg("-dc")
            .stdin(file.reopen().unwrap())
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{tool} -dc");
        output.stdout
    }

    /// A module, by its name without `.ko`.
    ///
    /// # Panics
    /// When the package has no such module.
    #[must_use]
    pub fn module(&self, name: &str) -> PathBuf {
        let path = self.0.join(format!("{name}.ko"));
        assert!(path.exists(), "no module {name} in {}", self.0.display());
        path
    }
}

/// Unpacks the kernel and all modules into `folder`, which appears when it is whole.
fn fetch(tests: &Path, package: &str, folder: &Path) {
    let part = tempfile::tempdir_in(tests).unwrap();
    let (tree, flat) = (part.path().join("tree"), part.path().join("flat"));
    fs::create_dir_all(&flat).unwrap();
    let user = "APT::Sandbox::User=root";
    let status = Command::new("apt-get")
        .args(["-qq", "-o", user, "download", package])
        .current_dir(part.path())
        .status();
    assert!(
        status.unwrap().success(),
        "{package} cannot be fetched: apt-get update"
    );
    let mut files = fs::read_dir(part.path())
        .unwrap()
        .map(|e| e.unwrap().path());
    let deb = files.find(|path| path.extension().is_some_and(|e| e == "deb"));
    let unpacked = Command::new("dpkg-deb")
        .arg("-x")
        .args([deb.unwrap(), tree.clone()])
        .status();
    assert!(unpacked.unwrap().success(), "dpkg-deb -x");
    flatten(&tree, &flat);
    assert!(flat.join("vmlinuz").exists(), "{package} has no kernel");
    fs::rename(flat, folder).unwrap();
}

/// Moves the kernel and the modules of a tree into one folder; unpacks what is compressed.
fn flatten(tree: &Path, flat: &Path) {
    for entry in fs::read_dir(tree).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type().unwrap().is_dir() {
            flatten(&path, flat);
        } else if name.starts_with("vmlinuz-") {
            fs::rename(path, flat.join("vmlinuz")).unwrap();
        } else if name.ends_with(".ko") {
            fs::rename(&path, flat.join(&*name)).unwrap();
        } else if let Some(module) = name.strip_suffix(".ko.xz") {
            let bytes = Command::new("xz").arg("-dc").arg(&path).output().unwrap();
            assert!(bytes.status.success(), "xz -dc {name}");
            fs::write(flat.join(format!("{module}.ko")), bytes.stdout).unwrap();
        }
    }
}

/// The modules that a module needs.
fn needs(module: &[u8]) -> Vec<String> {
    let file = object::File::parse(module).unwrap();
    let info = file.section_by_name(".modinfo").unwrap().data().unwrap();
    let mut lines = info.split(|byte| *byte == 0);
    let line = lines.find_map(|line| line.strip_prefix(b"depends="));
    let text = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(str::to_string).collect()
}

fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program)
        .args(words)
        .env("LC_ALL", "C")
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
