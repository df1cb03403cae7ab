// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel file that a machine boots: a file that the user names, or the built-in conformance
//! guest. It is mapped and checked.

use crate::executable::Executable;
use anyhow::Context;
use memmap2::Mmap;
use paravane_user_io::files;
use std::ops::Deref;
use std::path::Path;

/// A guest kernel that can be started.
#[derive(Debug)]
pub struct KernelFile {
    /// For messages.
    pub name: String,
    /// Its content.
    pub bytes: Bytes,
    /// What its headers and notes say.
    pub elf: Executable,
}

/// What is in a guest's file. Most of it is looked at once, and a part never.
#[derive(Debug)]
pub enum Bytes {
    /// Part of this program.
    BuiltIn(&'static [u8]),
    /// A mapped file.
    Mapped(Mmap),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::BuiltIn(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

impl KernelFile {
    /// Reads `file`, or takes the built-in conformance guest.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let (name, bytes) = match file {
            Some(path) => (
                path.display().to_string(),
                Bytes::Mapped(map(path, "guest")?),
            ),
            None => (
                "built-in guest".to_string(),
                Bytes::BuiltIn(paravane_blobs::CONFORMANCE_GUEST),
            ),
        };
        let elf = Executable::parse(&bytes).with_context(|| format!("guest {name}"))?;
        Ok(KernelFile { name, bytes, elf })
    }
}

/// Maps an ordinary file: to read a kernel of 64 MB took a tenth of the time that it takes to boot it.
fn map(path: &Path, what: &str) -> anyhow::Result<Mmap> {
    let file = files::open(path, what)?;
    // SAFETY: the bytes are a user's own file, which is read while the machine is put together: what is made of them is checked in copies
    // (segments) or used once (relocations, notes), so that somebody who writes to the file meanwhile gets a kernel that is damaged or refused.
    // Who truncates it ends this process, before any guest runs.
    unsafe { Mmap::map(&file) }.with_context(|| format!("cannot read {what} {}", path.display()))
}
