// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory for the host's vectored I/O: data moves between a file and the guest without a
//! copy.

use super::{Chain, Memory, driver};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use vm_memory::{GuestAddress, GuestMemory};

/// The most pieces that the host takes in one call.
const IOV_MAX: usize = 1024;

/// Ranges of guest memory, one after another.
#[derive(Clone, Debug)]
pub struct Buffers {
    memory: Arc<Memory>,
    /// Host address and length. They are inside `memory`, which stays mapped as long as this value
    /// lives.
    pieces: Vec<(usize, usize)>,
    length: u64,
}

/// A part of [`Buffers`].
#[derive(Clone, Copy, Debug)]
pub struct Part {
    offset: u64,
    length: u64,
}

impl Part {
    /// `length` bytes from `offset` on.
    pub fn of(offset: u64, length: u64) -> Self {
        Part { offset, length }
    }
}

impl Buffers {
    /// No ranges.
    pub fn new(memory: Arc<Memory>) -> Self {
        Buffers {
            memory,
            pieces: Vec::new(),
            length: 0,
        }
    }

    /// Adds a range. Returns false if not all of it is in guest memory.
    pub fn add(&mut self, address: GuestAddress, length: u32) -> bool {
        let Ok(count) = usize::try_from(length) else {
            return false;
        };
        let before = self.pieces.len();
        for slice in self.memory.get_slices(address, count) {
            let Ok(slice) = slice else {
                self.pieces.truncate(before);
                return false;
            };
            self.pieces
                .push((slice.ptr_guard_mut().as_ptr() as usize, slice.len()));
        }
        self.length += u64::from(length);
        true
    }

    /// The buffers of a chain that the device reads, and those that it writes; `None` if one is not
    /// in guest memory, or if there are too many.
    pub fn of(memory: &Arc<Memory>, chain: Chain) -> Option<(Self, Self)> {
        let (mut readable, mut writable) = (
            Buffers::new(Arc::clone(memory)),
            Buffers::new(Arc::clone(memory)),
        );
        // Counted again: the guest may have made the chain longer since `Driver::pop` counted.
        for (index, part) in chain.enumerate() {
            let to = if part.is_write_only() {
                &mut writable
            } else {
                &mut readable
            };
            if index == driver::BUFFERS || !to.add(part.addr(), part.len()) {
                return None;
            }
        }
        Some((readable, writable))
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there is not a byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part; what lies beyond the end is left out.
    pub fn part(&self, part: Part) -> Buffers {
        let mut result = Buffers::new(Arc::clone(&self.memory));
        let (mut skip, mut left) = (part.offset, part.length);
        for &(address, length) in &self.pieces {
            let length = length as u64;
            if skip >= length {
                skip -= length;
                continue;
            }
            let take = (length - skip).min(left);
            if take == 0 {
                break;
            }
            // Both are below `length`, which came from a usize.
            let (from, count) = (to_usize(skip), to_usize(take));
            result.pieces.push((address + from, count));
            result.length += take;
            left -= take;
            skip = 0;
        }
        result
    }

    /// Copies the first bytes out. Returns how many there were.
    pub fn copy_out(&self, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for &(address, length) in &self.pieces {
            let count = length.min(bytes.len() - done);
            // SAFETY: the piece is inside guest memory, which is mapped. The guest may change it at
            // any time, and any bytes are acceptable. The target is ours and long enough.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    address as *const u8,
                    bytes.as_mut_ptr().add(done),
                    count,
                )
            };
            done += count;
        }
        done
    }

    /// Copies bytes in, as far as there is room. Returns how many.
    pub fn copy_in(&self, bytes: &[u8]) -> usize {
        let mut done = 0;
        for &(address, length) in &self.pieces {
            let count = length.min(bytes.len() - done);
            // SAFETY: as in `copy_out`, in the other direction.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr().add(done), address as *mut u8, count)
            };
            done += count;
        }
        done
    }

    /// Fills all of it from a file. With `wait` false it fails with `WouldBlock` where the host
    /// would have to wait for a disk.
    ///
    /// # Errors
    /// The host's error, or the file ends before.
    pub fn read_from(&self, file: &File, offset: u64, wait: bool) -> io::Result<()> {
        let flags = if wait { 0 } else { libc::RWF_NOWAIT };
        self.transfer(offset, |pieces, count, offset| {
            // SAFETY: the pieces are inside guest memory, which stays mapped during the call;
            // nothing here relies on their content. The file is open.
            let result = unsafe { libc::preadv2(file.as_raw_fd(), pieces, count, offset, flags) };
            if result < 0
                && flags != 0
                && io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP)
            {
                // The file system never waits, or cannot say whether it would.
                // SAFETY: as above.
                return unsafe { libc::preadv(file.as_raw_fd(), pieces, count, offset) };
            }
            result
        })
    }

    /// Writes all of it to a file.
    ///
    /// # Errors
    /// The host's error.
    pub fn write_to(&self, file: &File, offset: u64) -> io::Result<()> {
        self.transfer(offset, |pieces, count, offset| {
            // SAFETY: as in `read_from`.
            unsafe { libc::pwritev(file.as_raw_fd(), pieces, count, offset) }
        })
    }

    fn transfer(
        &self,
        mut offset: u64,
        call: impl Fn(*const libc::iovec, libc::c_int, libc::off_t) -> libc::ssize_t,
    ) -> io::Result<()> {
        let vector = |&(address, length): &(usize, usize)| libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: length,
        };
        let mut vectors: Vec<libc::iovec> = self.pieces.iter().map(vector).collect();
        let mut first = 0;
        while first < vectors.len() {
            if vectors[first].iov_len == 0 {
                first += 1;
                continue;
            }
            let count = (vectors.len() - first).min(IOV_MAX);
            let at = libc::off_t::try_from(offset).map_err(io::Error::other)?;
            let done = call(
                vectors[first..].as_ptr(),
                libc::c_int::try_from(count).unwrap_or(1),
                at,
            );
            let mut done = match usize::try_from(done) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(done) => done,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() == io::ErrorKind::Interrupted {
                        continue;
                    }
                    return Err(error);
                }
            };
            offset += done as u64;
            while done > 0 {
                let piece = &mut vectors[first];
                let part = done.min(piece.iov_len);
                piece.iov_base = piece.iov_base.wrapping_byte_add(part);
                piece.iov_len -= part;
                done -= part;
                if piece.iov_len == 0 {
                    first += 1;
                }
            }
        }
        Ok(())
    }
}

fn to_usize(value: u64) -> usize {
    // Hosts have 64 bits.
    usize::try_from(value).unwrap_or(usize::MAX)
}
