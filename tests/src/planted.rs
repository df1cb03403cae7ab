// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layers with a planted fault (`layers/faults.txt`), for tests that must fail with it.

use crate::source_root;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A layer that was built for one test. Its folder is removed with the value.
#[derive(Debug)]
pub struct Planted {
    folder: TempDir,
}

impl Planted {
    /// Builds the process layer with a fault.
    ///
    /// # Errors
    /// The output of make.
    pub fn build(fault: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let make = Command::new("make")
            .arg("-C")
            .arg(source_root().join("layers/process"))
            .arg(format!("OUT={}", folder.path().display()))
            .arg(format!("FAULT={fault}"))
            // Do not use the job server of a make that runs this test.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .output()
            .map_err(|e| format!("make: {e}"))?;
        if make.status.success() {
            Ok(Planted { folder })
        } else {
            Err(format!("make: {}", String::from_utf8_lossy(&make.stderr)))
        }
    }

    /// The file of the layer, for `--rom`.
    #[must_use]
    pub fn rom(&self) -> PathBuf {
        self.folder.path().join("process.elf")
    }
}

/// The faults that `outside.TEST` finds according to the list.
///
/// # Errors
/// The list cannot be read.
pub fn found_by(test: &str) -> Result<Vec<String>, String> {
    let path = source_root().join("layers/faults.txt");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let test = format!("outside.{test}");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    Ok(lines
        .filter(|words| words.get(3) == Some(&test.as_str()))
        .map(|words| words[0].to_string())
        .collect())
}
