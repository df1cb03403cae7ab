// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layers with a planted fault (`layers/faults.txt`), for tests that must fail with it.

use crate::source_root;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use tempfile::TempDir;

/// A layer that was built for one test. Its folder is removed with the value.
#[derive(Debug)]
pub struct Planted {
    file: PathBuf,
    _folder: TempDir,
}

impl Planted {
    /// Builds the process layer with a fault.
    ///
    /// # Errors
    /// The output of make.
    pub fn build(fault: &str) -> Result<Self, String> {
        Planted::of("process", fault)
    }

    /// Builds a layer with a fault, and no other layer.
    ///
    /// # Errors
    /// The output of make.
    pub fn of(layer: &str, fault: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let out = folder.path();
        let mut make = Command::new("make");
        // Do not use the job server of a make that runs this test.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        let jobs = thread::available_parallelism().map_or(1, NonZero::get);
        make.arg(format!("-j{jobs}"))
            .arg(format!("OUT={}", out.display()))
            .arg(format!("FAULT={fault}"))
            .arg("-C");
        let file = if layer.starts_with("process") {
            make.arg(source_root().join("layers/process"));
            make.args((layer == "process-stats").then_some("STATS=1"));
            out.join(format!("{layer}.elf"))
        } else {
            let rom = out.join(format!("{layer}.rom"));
            make.arg(source_root().join("layers")).arg(&rom);
            rom
        };
        let done = make.output().map_err(|e| format!("make: {e}"))?;
        if done.status.success() {
            Ok(Planted {
                file,
                _folder: folder,
            })
        } else {
            Err(format!("make: {}", String::from_utf8_lossy(&done.stderr)))
        }
    }

    /// The file of the layer, for `--rom`.
    #[must_use]
    pub fn rom(&self) -> PathBuf {
        self.file.clone()
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
