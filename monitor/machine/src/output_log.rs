// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of a background machine, limited in size: the oldest output is dropped.
//!
//! The file `output` is the monitor's standard output and error. When it is full, it replaces
//! `output.1`, and a new file is started. So the last [`LIMIT`] bytes are always kept, and never
//! more than twice that.

use crate::store::Machine;
use anyhow::Context;
use paravane_user_io::stderr::say;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Size at which a file is full, in bytes.
pub const LIMIT: u64 = 16 << 20;

/// A reader for `logs`.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    /// The previous file, which is printed first.
    old: Option<File>,
    now: Option<File>,
}

impl Log {
    /// Opens both files.
    pub fn open(machine: &Machine) -> anyhow::Result<Self> {
        let path = machine.output();
        Ok(Log {
            old: open(&path.with_extension("1"))?,
            now: open(&path)?,
            path,
        })
    }

    /// Skips everything printed so far.
    pub fn skip(&mut self) -> anyhow::Result<()> {
        self.old = None;
        if let Some(file) = &mut self.now {
            file.seek(SeekFrom::End(0))?;
        }
        Ok(())
    }

    /// The bytes that are there now and were not read yet. The machine may go on printing faster
    /// than they are read.
    fn rest(&mut self) -> io::Result<u64> {
        let mut bytes = 0;
        for file in [&mut self.old, &mut self.now].into_iter().flatten() {
            bytes += file
                .metadata()?
                .len()
                .saturating_sub(file.stream_position()?);
        }
        Ok(bytes)
    }

    /// Prints what was printed up to now.
    pub fn print_so_far(&mut self) -> anyhow::Result<()> {
        let rest = self.rest()?;
        let mut out = io::stdout().lock();
        io::copy(&mut self.take(rest), &mut out)?;
        Ok(out.flush()?)
    }

    /// Prints the last lines of what was printed up to now. A line without an end counts.
    pub fn print_last(&mut self, lines: usize) -> anyhow::Result<()> {
        let mut all = Vec::new();
        let rest = self.rest()?;
        self.take(rest).read_to_end(&mut all)?;
        let mut out = io::stdout().lock();
        out.write_all(last_lines(&all, lines))?;
        Ok(out.flush()?)
    }

    /// Prints what was added since the last call. Waits for the reader of standard output.
    pub fn print(&mut self) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        io::copy(self, &mut out)?;
        Ok(out.flush()?)
    }
}

impl Read for Log {
    /// Reads what was added since the last call, the oldest bytes first. 0 means: nothing yet.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            for file in [self.old.as_mut(), self.now.as_mut()].into_iter().flatten() {
                match file.read(buffer)? {
                    0 => {}
                    count => return Ok(count),
                }
            }
            let next = open(&self.path).map_err(io::Error::other)?;
            let number = |file: &Option<File>| {
                file.as_ref()
                    .and_then(|f| f.metadata().ok())
                    .map(|meta| meta.ino())
            };
            if number(&next) == number(&self.now) {
                self.old = None;
                return Ok(0);
            }
            // The name refers to a new file. The rest of the previous file comes first.
            self.old = self.now.take();
            self.now = next;
        }
    }
}

/// The last lines of a text, whose last line may have no end.
fn last_lines(text: &[u8], lines: usize) -> &[u8] {
    let lines = text
        .split_inclusive(|&byte| byte == b'\n')
        .rev()
        .take(lines);
    let length: usize = lines.map(<[u8]>::len).sum();
    text.get(text.len() - length..).unwrap_or_default()
}

fn open(path: &Path) -> anyhow::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// For a background monitor: starts a new file if standard output is the machine's file and full.
/// Where the host refuses that, the file grows to twice its size, and is then emptied.
pub fn turn(machine: &Machine) {
    let Some(size) = full(machine) else {
        return;
    };
    let Err(error) = start_new(&machine.output()) else {
        return;
    };
    if size >= 2 * LIMIT && rustix::fs::ftruncate(rustix::stdio::stdout(), 0).is_ok() {
        say(&format!(
            "paravane: the machine's output was dropped: cannot make a new file for it: {error}\n"
        ));
    }
}

/// For the restarter of a background machine: makes the machine's file standard output and error. A
/// monitor may have started a new one, which only that monitor has.
///
/// # Errors
/// The file cannot be opened.
pub fn follow(machine: &Machine) -> anyhow::Result<()> {
    let path = machine.output();
    let mut options = OpenOptions::new();
    let open = options.append(true).create(true).mode(0o600).open(&path);
    let file = open.with_context(|| path.display().to_string())?;
    rustix::stdio::dup2_stdout(&file)?;
    Ok(rustix::stdio::dup2_stderr(&file)?)
}

/// The size of the machine's file, if it is full and standard output.
fn full(machine: &Machine) -> Option<u64> {
    let output = rustix::fs::fstat(rustix::stdio::stdout()).ok()?;
    let size = u64::try_from(output.st_size).ok()?;
    if size < LIMIT {
        return None;
    }
    // Standard output of a foreground machine may be any file.
    let file = fs::metadata(machine.output()).ok()?;
    (file.ino() == output.st_ino && file.dev() == output.st_dev).then_some(size)
}

/// Replaces the file. The old one stays in place until there is a new one.
fn start_new(path: &Path) -> io::Result<()> {
    let made = path.with_extension("new");
    let mut options = OpenOptions::new();
    let new = options.append(true).create(true).mode(0o600).open(&made)?;
    // Left by an earlier try.
    new.set_len(0)?;
    let old = path.with_extension("1");
    fs::rename(path, &old)?;
    if let Err(error) = fs::rename(&made, path) {
        // Under its name, it is still found, and bounded.
        fs::rename(&old, path)?;
        return Err(error);
    }
    rustix::stdio::dup2_stdout(&new)?;
    Ok(rustix::stdio::dup2_stderr(&new)?)
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn lines_are_counted_from_the_end() {
        let cases: [(&[u8], usize, &[u8]); 7] = [
            (b"", 2, b""),
            (b"a\nb\n", 0, b""),
            (b"a\nb\n", 1, b"b\n"),
            (b"a\nb\nc", 2, b"b\nc"),
            (b"a\nb", 5, b"a\nb"),
            (b"\n\n", 1, b"\n"),
            (b"a", usize::MAX, b"a"),
        ];
        for (text, lines, expected) in cases {
            assert_eq!(last_lines(text, lines), expected, "{text:?} {lines}");
        }
    }
}
