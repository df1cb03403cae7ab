// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane rom`: inspects ROMs.

use crate::rom::{self, Rom};
use anyhow::Context;
use paravane_user_io::files;
use paravane_user_io::outcome::Outcome;
use std::io;
use std::path::Path;

/// Prints the header, sections and calls of a ROM.
pub fn inspect(file: &Path) -> anyhow::Result<Outcome> {
    let bytes = files::read(file, "ROM")?;
    let parsed = Rom::parse(&bytes).with_context(|| format!("ROM {}", file.display()))?;
    rom::inspect(&parsed, &mut io::stdout().lock())?;
    Ok(Outcome::Passed)
}
