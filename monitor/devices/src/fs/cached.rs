// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of files to guest memory, on threads that must not wait for a disk from the host's memory
//! only.

use super::place;
use fuse_backend_rs::file_buf::FileVolatileSlice;
use fuse_backend_rs::file_traits::FileReadWriteVolatile;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// No file system of a disk has smaller blocks, in bytes. Cached parts of a file begin and end at
/// multiples of this, except for the file's end.
const BLOCK: u64 = 512;

/// Guest memory to read to: addresses and sizes in bytes.
pub struct Parts(Vec<(usize, usize)>);

impl Parts {
    /// Makes them of the crate's.
    ///
    /// # Safety
    /// The memory must be mapped for as long as this value is used.
    pub unsafe fn new(parts: &[FileVolatileSlice<'_>]) -> Self {
        let part = |part: &FileVolatileSlice<'_>| (part.as_ptr() as usize, part.len());
        Parts(parts.iter().map(part).collect())
    }

    /// Reads what a file has at a place. Returns fewer bytes than there is room for only at the
    /// file's end.
    ///
    /// # Errors
    /// The host's, or [`place::may_wait`]'s.
    pub fn fill(&self, file: BorrowedFd<'_>, at: u64) -> io::Result<usize> {
        if place::is_patient() {
            return self.read(file, at, 0);
        }
        let wanted: usize = self.0.iter().map(|part| part.1).sum();
        match self.read(file, at, libc::RWF_NOWAIT) {
            Ok(done) if done == wanted || is_end(file, at.saturating_add(done as u64))? => Ok(done),
            // A file system that does not know the flag has the file in memory, or is slow, which
            // is noticed.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => self.read(file, at, 0),
            _ => place::may_wait().map(|()| 0),
        }
    }

    /// One call of preadv2().
    fn read(&self, file: BorrowedFd<'_>, at: u64, flags: i32) -> io::Result<usize> {
        let at = i64::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        let parts = self.0.iter().map(|&(address, size)| libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: size,
        });
        let parts: Vec<_> = parts.collect();
        let count = i32::try_from(parts.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the parts are mapped memory (`new`), which nothing in this program borrows: it is
        // the guest's.
        let done = unsafe { libc::preadv2(file.as_raw_fd(), parts.as_ptr(), count, at, flags) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }
}

/// Whether a read that ended there has come to the file's end. It ends in the middle of a block
/// only then: what the host's memory lacks is whole blocks.
fn is_end(file: BorrowedFd<'_>, at: u64) -> io::Result<bool> {
    let size = || statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE);
    Ok(!at.is_multiple_of(BLOCK) || size()?.stx_size <= at)
}

/// What the crate reads from to guest memory, by calls of `F` with the parts and the place in the
/// file.
pub struct ReadAt<F>(pub F);

impl<F: FnMut(&[FileVolatileSlice<'_>], u64) -> io::Result<usize>> FileReadWriteVolatile
    for ReadAt<F>
{
    fn read_vectored_at_volatile(
        &mut self,
        parts: &[FileVolatileSlice<'_>],
        at: u64,
    ) -> io::Result<usize> {
        (self.0)(parts, at)
    }

    fn read_at_volatile(&mut self, part: FileVolatileSlice<'_>, at: u64) -> io::Result<usize> {
        (self.0)(&[part], at)
    }

    fn read_volatile(&mut self, _: FileVolatileSlice<'_>) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_volatile(&mut self, _: FileVolatileSlice<'_>) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at_volatile(&mut self, _: FileVolatileSlice<'_>, _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// Reads from a place, and says whether a worker would have to do it.
    fn read(file: &File, room: usize, at: u64) -> Option<usize> {
        let mut buffer = vec![0; room];
        let parts = Parts(vec![(buffer.as_mut_ptr() as usize, room)]);
        place::without_waiting(|| parts.fill(file.as_fd(), at).unwrap_or(usize::MAX))
    }

    /// A read never waits for the disk because of the file's end.
    #[test]
    fn what_is_in_memory_is_read_without_waiting() {
        let path = tempfile::NamedTempFile::new().unwrap();
        for size in [0, 1, 511, 512, 513, 4096, 5000, 8192] {
            std::fs::write(&path, vec![7; size]).unwrap();
            let file = File::open(&path).unwrap();
            assert_eq!(read(&file, 8192, 0), Some(size));
            assert_eq!(
                read(&file, 512, 4096),
                Some(size.saturating_sub(4096).min(512))
            );
        }
    }

    /// A read also ends before a block that is not in memory.
    #[test]
    fn only_an_end_within_a_block_is_the_files_without_a_look() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, [7; 5000]).unwrap();
        let file = File::open(&path).unwrap();
        let ends = [512, 4096, 4608, 5000].map(|at| is_end(file.as_fd(), at).unwrap());
        assert_eq!(ends, [false, false, false, true]);
        std::fs::write(&path, [7; 4608]).unwrap();
        assert!(is_end(file.as_fd(), 4608).unwrap() && !is_end(file.as_fd(), 4096).unwrap());
    }
}
