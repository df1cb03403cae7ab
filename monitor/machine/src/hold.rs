// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A monitor's or a restarter's hold on its machine: the lock, and the records that change while
//! it is held. Each record is a value in JSON with spaces after it. It is written with its full
//! size before the machine starts, and overwritten later, so a full disk does not matter then.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Digits and spaces of a process id.
const PID_WIDTH: usize = 10;
/// The size of a record in bytes.
const RECORD: usize = 64;

/// How a machine ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The exit code that `run` would have returned.
    pub code: u8,
}

/// The lives of a machine that may start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lives {
    /// The process id of its restarter, while the machine runs.
    pub restarter: u32,
    /// How often the machine has started again.
    pub restarts: u32,
}

/// A monitor's hold on its machine: the open lock, and the record of the end, which has its room
/// already.
#[derive(Debug)]
pub struct Hold {
    lock: File,
    record: File,
    lives: File,
}

impl Hold {
    /// Makes the records without a content. `lock` is locked.
    pub(crate) fn new(mut lock: File, record: &Path, lives: &Path) -> anyhow::Result<Self> {
        lock.set_len(0)?;
        lock.write_all(digits(std::process::id()).as_bytes())?;
        Ok(Hold {
            lock,
            record: reserve(record)?,
            lives: reserve(lives)?,
        })
    }

    /// For a restarter: records which process is the monitor now, and how often the machine has
    /// started again.
    ///
    /// # Errors
    /// The host cannot write the records.
    pub fn set_monitor(&mut self, pid: i32, restarts: u32) -> anyhow::Result<()> {
        let mut write = || {
            self.lock.rewind()?;
            self.lock.write_all(digits(pid).as_bytes())?;
            let lives = Lives {
                restarter: std::process::id(),
                restarts,
            };
            set_record(&mut self.lives, Some(&lives))
        };
        write().context("cannot record the machine's monitor")
    }

    /// Records how the machine ended. The host's disk may be full.
    ///
    /// # Errors
    /// The host cannot write the record.
    pub fn set_ended(&mut self, ended: &Ended) -> anyhow::Result<()> {
        let mut write = || {
            set_record(&mut self.record, Some(ended))?;
            self.record.sync_data()
        };
        write().context("cannot record the machine's end")
    }
}

/// A process id for the lock, as long as any other, so that the file has its room. It is written at
/// once: a reader sees no mix of two.
fn digits(pid: impl std::fmt::Display) -> String {
    format!("{pid:<PID_WIDTH$}")
}

/// Overwrites the record. Its size does not change.
fn set_record(record: &mut File, content: Option<&impl Serialize>) -> io::Result<()> {
    let mut text = serde_json::to_vec(&content)?;
    text.resize(RECORD, b' ');
    record.rewind()?;
    record.write_all(&text)
}

/// Makes a record with its full size and no content. File systems reserve the room when a file is
/// written to, so a start need not wait for the disk.
fn reserve(path: &Path) -> anyhow::Result<File> {
    let make = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let mut record = options.open(path)?;
        set_record(&mut record, None::<&Ended>)?;
        Ok::<_, io::Error>(record)
    };
    make().with_context(|| format!("cannot write {}", path.display()))
}
