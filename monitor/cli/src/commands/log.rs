// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the output of a background machine, for `logs` and `attach`.
//!
//! The monitor writes to `output`. When that is full, it becomes `output.1` and replaces the one
//! before. A reader that has both open loses nothing until the monitor has filled two more files.

use anyhow::Context;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How much is read at once when lines are counted from the end, in bytes.
const BLOCK: usize = 64 << 10;
/// The attempts to open both files before the monitor replaces one of them.
const ATTEMPTS: u32 = 100;

/// A reader.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    /// The files that may have bytes that were not read, the oldest first. Each is open at the
    /// place up to which it was read. After the monitor has replaced a file, another of its threads
    /// may still print to the old one.
    files: VecDeque<File>,
}

/// Where the files of a [`Log`] ended.
#[derive(Debug)]
pub struct Ends(Vec<u64>);

impl Log {
    /// Opens the files. `path` is that of `output`.
    ///
    /// # Errors
    /// A file is there, and cannot be opened.
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        let files = pair(&path)?.into_iter().flatten().collect();
        Ok(Log { path, files })
    }

    /// Skips everything printed so far.
    pub fn skip(&mut self) -> anyhow::Result<()> {
        for file in &mut self.files {
            file.seek(SeekFrom::End(0))?;
        }
        Ok(())
    }

    /// Where each file ends now. The machine may print faster than the files are read.
    pub fn ends(&self) -> io::Result<Ends> {
        let lengths = self.files.iter().map(|file| Ok(file.metadata()?.len()));
        lengths.collect::<Result<_, _>>().map(Ends)
    }

    /// Skips everything but the last lines before these ends. A line without an end counts.
    pub fn skip_to_last(&mut self, lines: usize, ends: &Ends) -> anyhow::Result<()> {
        let mut newlines = lines;
        // The end of the last line does not begin another one.
        let mut last = true;
        let mut found = false;
        for (file, &end) in self.files.iter_mut().zip(&ends.0).rev() {
            let begin = if found {
                end
            } else {
                let begin = begin_of_last(file, end, &mut newlines, &mut last)?;
                found = begin.is_some();
                begin.unwrap_or(0)
            };
            file.seek(SeekFrom::Start(begin))?;
        }
        Ok(())
    }

    /// Copies what comes before these ends, and was not read yet.
    pub fn copy_to(&mut self, ends: &Ends, out: &mut impl Write) -> anyhow::Result<()> {
        for (file, &end) in self.files.iter_mut().zip(&ends.0) {
            let rest = end.saturating_sub(file.stream_position()?);
            io::copy(&mut file.take(rest), out)?;
        }
        Ok(out.flush()?)
    }

    /// Prints what was added since the last call. Waits for the reader of standard output.
    pub fn print(&mut self) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        io::copy(self, &mut out)?;
        Ok(out.flush()?)
    }

    /// Adds the files that the monitor has begun since the last call. Returns whether there are.
    fn advance(&mut self) -> anyhow::Result<bool> {
        let newest = self.files.back().map(number).transpose()?;
        let now = open(&self.path)?;
        if now.is_none() || now.as_ref().map(number).transpose()? == newest {
            return Ok(false);
        }
        let known: Vec<Number> = self.files.iter().map(number).collect::<Result<_, _>>()?;
        let before = self.files.len();
        for file in pair(&self.path)?.into_iter().flatten() {
            if !known.contains(&number(&file)?) {
                self.files.push_back(file);
            }
        }
        // All files that were known have been read. The newest of them is kept for another look.
        self.files.drain(..before.saturating_sub(1));
        Ok(true)
    }
}

impl Read for Log {
    /// Reads what was added since the last call, the oldest bytes first. 0 means: nothing yet.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            for file in &mut self.files {
                // The monitor empties a file that it cannot replace.
                if file.metadata()?.len() < file.stream_position()? {
                    file.rewind()?;
                }
                match file.read(buffer)? {
                    0 => {}
                    count => return Ok(count),
                }
            }
            if !self.advance().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
    }
}

/// What distinguishes a file from others, while it is open.
type Number = (u64, u64);

fn number(file: &File) -> io::Result<Number> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Opens `output.1` and `output` as they are at one moment.
fn pair(path: &Path) -> anyhow::Result<[Option<File>; 2]> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let now = open(path)?;
        let old = open(&path.with_extension("1"))?;
        let again = open(path)?;
        let of = |file: &Option<File>| file.as_ref().map(number).transpose();
        // Between two renames of the monitor, `output` does not exist.
        let replaced = of(&now)? != of(&again)? || now.is_none() && old.is_some();
        if !replaced || attempt == ATTEMPTS {
            return Ok([old, now]);
        }
    }
}

fn open(path: &Path) -> anyhow::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Where the last lines of the first `end` bytes of a file begin. None: they begin in an earlier
/// file, or with this one. Counts `lines` down, and clears `last` after the byte at the end.
fn begin_of_last(
    file: &File,
    end: u64,
    lines: &mut usize,
    last: &mut bool,
) -> io::Result<Option<u64>> {
    let mut block = vec![0; BLOCK];
    let mut at = end;
    while at > 0 {
        let size = usize::try_from(at).map_or(BLOCK, |at| at.min(BLOCK));
        at -= size as u64;
        let bytes = block.get_mut(..size).unwrap_or_default();
        match file.read_exact_at(bytes, at) {
            // The monitor has just emptied the file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        for (offset, &byte) in bytes.iter().enumerate().rev() {
            if byte == b'\n' && !*last {
                *lines = lines.saturating_sub(1);
            }
            *last = false;
            if *lines == 0 {
                return Ok(Some(at + offset as u64 + 1));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let path = folder.path().join("output");
        (folder, path)
    }

    fn all(log: &mut Log) -> String {
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        text
    }

    /// As the monitor does.
    fn replace(path: &Path, bytes: &str) {
        fs::rename(path, path.with_extension("1")).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn lines_are_counted_from_the_end() {
        let cases: [(&str, &str, usize, &str); 14] = [
            ("", "", 2, ""),
            ("", "a\nb\n", 0, ""),
            ("", "a\nb\n", 1, "b\n"),
            ("", "a\nb\nc", 2, "b\nc"),
            ("", "a\nb", 5, "a\nb"),
            ("", "\n\n", 1, "\n"),
            ("", "a", usize::MAX, "a"),
            ("a\nb\n", "", 1, "b\n"),
            ("a\nb\n", "c\n", 1, "c\n"),
            ("a\nb\n", "c\n", 2, "b\nc\n"),
            ("a\nb", "c\n", 1, "bc\n"),
            ("a\nb", "c\nd", 2, "bc\nd"),
            ("a\nb", "\n", 1, "b\n"),
            ("a\n", "b\n", 9, "a\nb\n"),
        ];
        for (old, now, lines, expected) in cases {
            let files = [("output.1", old.as_bytes()), ("output", now.as_bytes())];
            let (_folder, path) = folder(&files);
            let mut log = Log::open(path).unwrap();
            let ends = log.ends().unwrap();
            // The machine prints more before these lines are read: a thread to the file before,
            // and others.
            for path in [log.path.with_extension("1"), log.path.clone()] {
                let mut file = File::options().append(true).open(path).unwrap();
                file.write_all(b"more\n").unwrap();
            }
            log.skip_to_last(lines, &ends).unwrap();
            let mut text = Vec::new();
            log.copy_to(&ends, &mut text).unwrap();
            assert_eq!(
                String::from_utf8(text).unwrap(),
                expected,
                "{old:?} {now:?} {lines}"
            );
            assert_eq!(all(&mut log), "more\nmore\n");
        }
    }

    #[test]
    fn the_beginning_is_not_read() {
        let (_folder, path) = folder(&[]);
        let file = File::create(&path).unwrap();
        // A file with more holes than a host has memory.
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"\nlast\n", 1 << 40).unwrap();
        let mut log = Log::open(path).unwrap();
        let ends = log.ends().unwrap();
        log.skip_to_last(1, &ends).unwrap();
        assert_eq!(all(&mut log), "last\n");
        // A line over several blocks.
        let (_folder, path) = folder(&[("output.1", b"x\nbegin"), ("output", &[b'y'; 200_000])]);
        let mut log = Log::open(path).unwrap();
        let ends = log.ends().unwrap();
        log.skip_to_last(1, &ends).unwrap();
        assert_eq!(all(&mut log).len(), 200_005);
    }

    #[test]
    fn files_that_are_replaced_are_read_to_their_ends() {
        let (_folder, path) = folder(&[("output.1", b"1"), ("output", b"2")]);
        let mut log = Log::open(path.clone()).unwrap();
        assert_eq!(all(&mut log), "12");
        // Once, and twice between two looks.
        replace(&path, "3");
        assert_eq!(all(&mut log), "3");
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"4").unwrap();
        replace(&path, "5");
        replace(&path, "6");
        // By a thread of the monitor that is about to learn of the new file.
        let old = path.with_extension("1");
        let mut late = File::options().append(true).open(old).unwrap();
        assert_eq!(all(&mut log), "456");
        late.write_all(b"7").unwrap();
        assert_eq!(all(&mut log), "7");
        assert_eq!(all(&mut log), "");
        assert!(log.files.len() <= 3, "{}", log.files.len());
    }

    #[test]
    fn a_file_that_is_emptied_is_read_from_its_beginning() {
        let (_folder, path) = folder(&[("output", b"old text")]);
        let mut log = Log::open(path.clone()).unwrap();
        assert_eq!(all(&mut log), "old text");
        fs::write(&path, "new").unwrap();
        assert_eq!(all(&mut log), "new");
    }

    #[test]
    fn output_that_is_not_there_yet_comes() {
        let (_folder, path) = folder(&[]);
        let mut log = Log::open(path.clone()).unwrap();
        assert_eq!(all(&mut log), "");
        fs::write(&path, "first").unwrap();
        assert_eq!(all(&mut log), "first");
    }
}
