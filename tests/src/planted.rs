// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layers with a planted fault (`layers/faults.txt`), for tests that must fail with it.

use crate::program::{self, Run};
use crate::source_root;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
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
        let file = folder.path().join(name(layer));
        let sound = sound(layer)?;
        make(layer, folder.path(), |make| {
            make.arg(format!("FAULT={fault}"));
            make.arg(format!("SOUND={}", sound.display()));
        })?;
        Ok(Planted {
            file,
            _folder: folder,
        })
    }

    /// The file of the layer, for `--rom`.
    #[must_use]
    pub fn rom(&self) -> PathBuf {
        self.file.clone()
    }
}

/// The name of the file that make leaves for a layer.
fn name(layer: &str) -> String {
    let kind = if layer.starts_with("process") {
        "elf"
    } else {
        "rom"
    };
    format!("{layer}.{kind}")
}

/// Makes a layer in a folder.
fn make(layer: &str, out: &Path, more: impl FnOnce(&mut Command)) -> Result<(), String> {
    let mut make = Command::new("make");
    // Do not use the job server of a make that runs this test.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    let jobs = thread::available_parallelism().map_or(1, NonZero::get);
    make.arg(format!("-j{jobs}"))
        .arg(format!("OUT={}", out.display()))
        .arg("-C");
    if layer.starts_with("process") {
        make.arg(source_root().join("layers/process"));
        make.args((layer == "process-stats").then_some("STATS=1"));
    } else {
        make.arg(source_root().join("layers"))
            .arg(out.join(name(layer)));
    }
    more(&mut make);
    let done = make.output().map_err(|e| format!("make: {e}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("make: {}", String::from_utf8_lossy(&done.stderr)))
    }
}

/// Where the layer without a fault is, whose objects all faults share. It is made once for each
/// test program, in cargo's target folder, so that only what has changed is compiled.
fn sound(layer: &str) -> Result<PathBuf, String> {
    static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let folder = program::target_folder()?.join("tmp/layers");
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if !made.contains(layer) {
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let lock = File::create(folder.join("lock")).map_err(|e| e.to_string())?;
        // Another test program may do the same at the moment.
        lock.lock().map_err(|e| e.to_string())?;
        make(layer, &folder, |_| ())?;
        made.insert(layer.to_string());
    }
    Ok(folder)
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

/// The longest time of a run without a fault, in seconds.
const LIMIT: u64 = 60;
/// The longest time of a run with a fault: this multiple of the time without it.
const LONGER: u32 = 4;
/// The least value of the longest time of a run with a fault.
const LEAST: Duration = Duration::from_secs(5);
/// What other programs of the host do may decide a run. One of this number of runs without a fault
/// must pass. A fault is not found when this number of runs with it pass.
const TRIES: usize = 3;

/// Runs one test of the suite as `run` does, which must pass; then with each layer that has a fault
/// of the list, where it must fail or hang. A run that ends otherwise is repeated. `run`
/// passes the words that it gets to the suite: they include `--timeout`.
///
/// # Panics
/// When it does not so.
#[allow(clippy::unwrap_used)] // A failed setup fails the test.
pub fn with_and_without_faults(list: &str, test: &str, run: impl Fn(&[&str]) -> Run) {
    let without = |limit: &str| run(&["--filter", test, "--timeout", limit]);
    // Others whose names begin as this one's may be skipped.
    let skipped = format!("- {test} # SKIP");
    let passes = |run: &Run| {
        run.code == 0 && run.tap_result(test) == Some(true) && !run.stdout.contains(&skipped)
    };
    let mut failed = Vec::new();
    let took = (0..TRIES).find_map(|_| {
        let begun = Instant::now();
        let sound = without(&LIMIT.to_string());
        let took = begun.elapsed();
        let passed = passes(&sound);
        failed.push(sound);
        passed.then_some(took)
    });
    assert!(took.is_some(), "{failed:?}");
    let limit = (took.unwrap_or_default() * LONGER).max(LEAST);
    let limit = limit.as_secs().to_string();
    let faults = found_by(list).unwrap();
    assert!(!faults.is_empty());
    for fault in faults {
        let layer = Planted::build(&fault).unwrap();
        let rom = layer.rom();
        let rom = rom.to_str().unwrap();
        let planted = |limit: &str| run(&["--filter", test, "--timeout", limit, "--rom", rom]);
        let mut passed = Vec::new();
        let found = (0..TRIES).any(|_| {
            let mut faulty = planted(&limit);
            // It hangs, or the host is busy: then the run without the fault hangs, too.
            if faulty.tap_result(test).is_none() && without(&limit).code != 0 {
                faulty = planted(&LIMIT.to_string());
            }
            // Without the fault it passes now, too: it was not something else of the host.
            let found =
                faulty.tap_result(test) != Some(true) && passes(&without(&LIMIT.to_string()));
            passed.push(faulty);
            found
        });
        assert!(found, "{fault}: {passed:?}");
    }
}
