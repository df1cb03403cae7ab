// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel file that a machine boots: a file that the user names, or the built-in conformance
//! guest. It is mapped and checked.

use crate::boot_image::BootImage;
use crate::executable::Executable;
use anyhow::{Context, bail};
use memmap2::Mmap;
use paravane_user_io::files;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

/// A kernel that a machine can boot.
#[derive(Debug)]
pub struct KernelFile {
    /// The file's name, for messages.
    pub name: String,
    /// Its content.
    pub bytes: Bytes,
    /// Its format, and what its headers and notes say.
    pub format: Format,
}

/// The format of a kernel file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// An ELF file.
    Elf(Executable),
    /// A bzImage, which only KVM boots.
    BootImage(BootImage),
}

/// The content of a kernel file. Most of it is read once, some of it never.
#[derive(Debug)]
pub enum Bytes {
    /// Part of this program.
    BuiltIn(&'static [u8]),
    /// A mapped file, which stays open: later readers get the same one.
    Mapped(Mmap, File),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::BuiltIn(bytes) => bytes,
            Bytes::Mapped(map, _) => map,
        }
    }
}

impl KernelFile {
    /// Maps `file`, or takes the built-in conformance kernel, and checks it.
    ///
    /// # Errors
    /// The file cannot be read, or no machine can boot it.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let (name, bytes) = match file {
            Some(path) => (path.display().to_string(), map(path, "guest")?),
            None => (
                "built-in guest".to_string(),
                Bytes::BuiltIn(paravane_blobs::CONFORMANCE_GUEST),
            ),
        };
        let complain = || format!("guest {name}");
        let format = if BootImage::is_one(&bytes) {
            Format::BootImage(BootImage::parse(&bytes).with_context(complain)?)
        } else {
            Format::Elf(Executable::parse(&bytes).with_context(complain)?)
        };
        Ok(KernelFile {
            name,
            bytes,
            format,
        })
    }

    /// The release of a Linux that is not VMI-Linux as far as its format tells; empty if its header
    /// says none. Such a kernel may have its drivers in modules.
    pub fn release(&self) -> Option<String> {
        match &self.format {
            Format::BootImage(image) => Some(image.release.clone().unwrap_or_default()),
            Format::Elf(elf) if elf.vmi_entry.is_some() => None,
            Format::Elf(_) => Executable::release(&self.bytes),
        }
    }

    /// The open file, which nothing has read yet; `None`: it is part of this program.
    pub fn file(&self) -> Option<&File> {
        match &self.bytes {
            Bytes::BuiltIn(_) => None,
            Bytes::Mapped(_, file) => Some(file),
        }
    }

    /// What the headers and notes of an ELF file say.
    ///
    /// # Errors
    /// It is a bzImage.
    pub fn elf(&self) -> anyhow::Result<&Executable> {
        match &self.format {
            Format::Elf(elf) => Ok(elf),
            Format::BootImage(_) => bail!(
                "guest {}: a bzImage, which only --hypervisor kvm starts: give an ELF file, such \
                 as vmlinux of `paravane kernel build`",
                self.name
            ),
        }
    }
}

/// Maps a regular file. Reading a kernel of 64 MB instead took a tenth of the time of its boot.
fn map(path: &Path, what: &str) -> anyhow::Result<Bytes> {
    let file = files::open(path, what)?;
    // SAFETY: the file belongs to the user. It is read while the machine is prepared, and what is
    // made of it is checked in copies (segments) or used once (relocations, notes). A program that
    // writes to the file at this time gets a damaged or refused kernel. One that truncates it ends
    // this process, before any guest runs.
    let map = unsafe { Mmap::map(&file) }
        .with_context(|| format!("cannot read {what} {}", path.display()))?;
    Ok(Bytes::Mapped(map, file))
}
