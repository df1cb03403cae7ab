// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ROM that a guest boots on: a file that the user names, or a built-in one.

use crate::rom::Rom;
use anyhow::{Context, bail};
use paravane_hypervisor::Layer;
use paravane_user_io::files;
use std::borrow::Cow;
use std::path::Path;

/// A ROM, and the layer's name that the guest must find in it.
#[derive(Debug)]
pub struct LayerFile {
    /// The name that the guest must expect; `none` without a ROM, or with one that it must refuse.
    pub expect: String,
    pub rom: Option<Cow<'static, [u8]>>,
}

impl LayerFile {
    /// One of the built-in layers.
    pub fn built_in(layer: Layer) -> Self {
        LayerFile {
            expect: layer.name().to_string(),
            rom: layer.rom().or(layer.program()).map(Cow::Borrowed),
        }
    }

    /// Loads a ROM from a file. The guest expects `layer`, or else the name in the ROM.
    pub fn load(path: &Path, layer: Option<Layer>) -> anyhow::Result<Self> {
        let bytes = files::read(path, "ROM")?;
        let rom = Rom::parse(&bytes).with_context(|| format!("ROM {}", path.display()))?;
        let expect = match layer {
            Some(Layer::None) => {
                bail!("--rom and --layer none cannot be combined, except with --unchecked-rom")
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

    /// Loads a ROM without checks. The guest must refuse it unless `layer` is given.
    pub fn load_unchecked(path: &Path, layer: Option<Layer>) -> anyhow::Result<Self> {
        let expect = layer.unwrap_or(Layer::None).name().to_string();
        Ok(LayerFile {
            expect,
            rom: Some(Cow::Owned(files::read(path, "ROM")?)),
        })
    }
}
