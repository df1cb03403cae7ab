// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that a user names, read and checked, or the built-in ones.

use crate::cli::Layer;
use crate::guest::Guest;
use crate::rom::Rom;
use anyhow::{Context, bail};
use memmap2::Mmap;
use paravane_user_io::files;
use std::borrow::Cow;
use std::ops::Deref;
use std::path::Path;

/// A guest kernel that can be started.
#[derive(Debug)]
pub struct GuestFile {
    /// For messages.
    pub name: String,
    pub bytes: Bytes,
    pub elf: Guest,
}

/// What is in a guest's file. Most of it is looked at once, and a part never.
#[derive(Debug)]
pub enum Bytes {
    BuiltIn(&'static [u8]),
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

impl GuestFile {
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
        let elf = Guest::parse(&bytes).with_context(|| format!("guest {name}"))?;
        Ok(GuestFile { name, bytes, elf })
    }
}

/// A layer's image, and the name that the guest must find in it.
#[derive(Debug)]
pub struct LayerFile {
    /// The name that the guest is told to expect; `none` when there is no image, or one that it must refuse.
    pub expect: String,
    pub rom: Option<Cow<'static, [u8]>>,
}

impl LayerFile {
    /// One of the built-in layers.
    pub fn built_in(layer: Layer) -> Self {
        LayerFile {
            expect: layer.name().to_string(),
            rom: layer.rom().map(Cow::Borrowed),
        }
    }

    /// An image from a file; the guest expects `layer`, or else what the image calls itself.
    pub fn load(path: &Path, layer: Option<Layer>) -> anyhow::Result<Self> {
        let bytes = files::read(path, "ROM")?;
        let rom = Rom::parse(&bytes).with_context(|| format!("ROM {}", path.display()))?;
        let expect = match layer {
            Some(Layer::None) => {
                bail!("--rom and --layer none exclude each other, but with --unchecked-rom")
            }
            Some(layer) => layer.name().to_string(),
            None => rom.header.name,
        };
        if expect.is_empty() || expect.contains(|c: char| c.is_whitespace() || c == '=') {
            bail!(
                "ROM {}: its name `{expect}` is not one word, say which --layer to expect",
                path.display()
            );
        }
        Ok(LayerFile {
            expect,
            rom: Some(Cow::Owned(bytes)),
        })
    }

    /// An image as it is: the guest is to refuse it unless `layer` says otherwise.
    pub fn load_unchecked(path: &Path, layer: Option<Layer>) -> anyhow::Result<Self> {
        let expect = layer.unwrap_or(Layer::None).name().to_string();
        Ok(LayerFile {
            expect,
            rom: Some(Cow::Owned(files::read(path, "ROM")?)),
        })
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
