// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The members of untrusted tar archives, with a bound on the memory that an archive can take.
//!
//! The crate `tar` reads GNU long names, long links and PAX records whole before it returns the
//! member that they belong to, and a header gives their length. Therefore the reader below the
//! crate returns at most [`HEADERS`] bytes between two members. It parses nothing, so it cannot
//! disagree with the crate.

use anyhow::{Context, bail};
use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;
use tar::{Archive, Entries, Entry};

/// Largest sum of headers, long names and records before a member, in bytes. A path has at most
/// 4096 bytes, and a member has at most two paths.
pub const HEADERS: u64 = 64 << 10;
/// Largest padding after a member's contents, in bytes.
const PADDING: u64 = 511;

/// How many bytes may still be read before the next member.
#[derive(Clone, Debug, Default)]
struct Left(Rc<Cell<Option<u64>>>);

impl Left {
    /// Contents are being read: their reader counts the bytes.
    const ANY: Option<u64> = Some(u64::MAX);
    /// The bound was reached.
    const EXCEEDED: Option<u64> = None;
}

/// A reader with this bound.
#[derive(Debug)]
pub struct Bounded<R> {
    inner: R,
    left: Left,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left.0.get().unwrap_or(0);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 && !into.is_empty() {
            self.left.0.set(Left::EXCEEDED);
            return Err(io::Error::other("too long"));
        }
        let length = self.inner.read(into.get_mut(..most).unwrap_or_default())?;
        if left != u64::MAX {
            self.left.0.set(Some(left.saturating_sub(length as u64)));
        }
        Ok(length)
    }
}

impl<R: Seek> Seek for Bounded<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Calls `with` for each member of an archive. Contents that `with` does not read are skipped.
///
/// # Errors
/// An error of `with`; a damaged archive; more than [`HEADERS`] bytes of names and records for one
/// member.
pub fn each<R: Read>(
    archive: R,
    mut with: impl FnMut(&mut Entry<'_, Bounded<R>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let left = Left::default();
    let mut archive = bounded(archive, &left);
    walk(archive.entries()?, &left, |entry| {
        with(entry)?;
        // Only the next member's headers remain to be read.
        io::copy(entry, &mut io::sink())?;
        Ok(())
    })
}

/// Calls `with` for each member of an archive in a file. Contents that `with` does not read are
/// seeked over.
///
/// # Errors
/// As those of [`each`].
pub fn each_in_file<R: Read + Seek>(
    archive: R,
    with: impl FnMut(&mut Entry<'_, Bounded<R>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let left = Left::default();
    let mut archive = bounded(archive, &left);
    walk(archive.entries_with_seek()?, &left, with)
}

fn bounded<R: Read>(inner: R, left: &Left) -> Archive<Bounded<R>> {
    let left = left.clone();
    Archive::new(Bounded { inner, left })
}

fn walk<R: Read>(
    mut entries: Entries<'_, Bounded<R>>,
    left: &Left,
    mut with: impl FnMut(&mut Entry<'_, Bounded<R>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        left.0.set(Some(HEADERS + PADDING));
        let entry = entries.next();
        if left.0.get() == Left::EXCEEDED {
            bail!(
                "names and records of more than {} KiB for one file: refused",
                HEADERS >> 10
            );
        }
        let Some(entry) = entry else {
            return Ok(());
        };
        left.0.set(Left::ANY);
        with(&mut entry.context("not a tar archive, or a damaged one")?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use tar::{Builder, EntryType, Header};

    /// A stream of a header and then the same block forever. It counts the bytes that are read.
    struct Endless {
        header: Header,
        block: [u8; 512],
        taken: u64,
    }

    impl Endless {
        fn new(header: Header, block: [u8; 512]) -> Self {
            let taken = 0;
            Endless {
                header,
                block,
                taken,
            }
        }
    }

    impl Read for &mut Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let at = usize::try_from(self.taken).unwrap();
            let block = if at < 512 {
                self.header.as_bytes()
            } else {
                &self.block
            };
            let length = (&block[at % 512..]).read(into)?;
            self.taken += length as u64;
            Ok(length)
        }
    }

    fn header(kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_path("name").unwrap();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(size);
        header.set_cksum();
        header
    }

    /// A member with a GNU long name of that many bytes, followed by another member.
    fn named(length: usize) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        let name = vec![b'n'; length];
        let long = header(EntryType::GNULongName, length as u64);
        builder.append(&long, &name[..]).unwrap();
        let file = header(EntryType::Regular, 1000);
        builder.append(&file, &[1; 1000][..]).unwrap();
        builder.append(&file, &[1; 1000][..]).unwrap();
        builder.into_inner().unwrap()
    }

    fn lengths(archive: &[u8], in_file: bool) -> anyhow::Result<Vec<usize>> {
        let mut all = Vec::new();
        if in_file {
            each_in_file(Cursor::new(archive), |entry| {
                all.push(entry.path_bytes().len());
                Ok(())
            })?;
        } else {
            each(archive, |entry| {
                all.push(entry.path_bytes().len());
                Ok(())
            })?;
        }
        Ok(all)
    }

    #[test]
    fn names_and_records_are_refused_before_they_are_read() {
        for kind in [
            EntryType::GNULongName,
            EntryType::GNULongLink,
            EntryType::XHeader,
        ] {
            let mut endless = Endless::new(header(kind, 1 << 40), [b'a'; 512]);
            let error = each(&mut endless, |_| Ok(())).unwrap_err().to_string();
            assert!(error.contains("more than 64 KiB"), "{kind:?}: {error}");
            assert!(
                endless.taken <= HEADERS + PADDING,
                "{kind:?}: {}",
                endless.taken
            );
        }
    }

    #[test]
    fn sparse_maps_are_bounded_too() {
        let mut header = header(EntryType::GNUSparse, 0);
        header.as_gnu_mut().unwrap().set_is_extended(true);
        header.set_cksum();
        // Each further block announces another one.
        let mut block = [0; 512];
        block[504] = 1;
        let mut endless = Endless::new(header, block);
        let error = each(&mut endless, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("more than 64 KiB"), "{error}");
        assert!(endless.taken <= HEADERS + PADDING, "{}", endless.taken);
    }

    #[test]
    fn what_is_not_too_long_is_read() {
        for in_file in [false, true] {
            assert_eq!(lengths(&named(4000), in_file).unwrap(), [4000, 4]);
            assert_eq!(lengths(&named(60 << 10), in_file).unwrap(), [60 << 10, 4]);
            let error = lengths(&named(64 << 10), in_file).unwrap_err().to_string();
            assert!(error.contains("more than 64 KiB"), "{error}");
            assert!(lengths(&[1; 2000], in_file).is_err());
            assert!(lengths(&[], in_file).unwrap().is_empty());
        }
    }
}
