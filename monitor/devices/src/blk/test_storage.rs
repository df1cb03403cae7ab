// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk without data, which tests make slow.

use super::storage::{Stop, Storage};
use crate::buffers::Buffers;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

type Hook<A> = Box<dyn Fn(A) -> io::Result<()> + Send + Sync>;

/// The disk. Everything succeeds at once unless a hook decides.
pub struct Fake {
    /// A read; the argument says whether it may wait.
    pub read: Hook<bool>,
    pub flush: Hook<()>,
    /// Bytes whose writing was to start.
    pub started: AtomicU64,
    /// Bytes that were to be zeroes.
    pub zeroed: AtomicU64,
}

impl Default for Fake {
    fn default() -> Self {
        Fake {
            read: Box::new(|_| Ok(())),
            flush: Box::new(|()| Ok(())),
            started: AtomicU64::new(0),
            zeroed: AtomicU64::new(0),
        }
    }
}

impl Storage for Fake {
    fn len(&self) -> u64 {
        1 << 40
    }
    fn read(&self, _: u64, _: &Buffers, wait: bool) -> io::Result<()> {
        (self.read)(wait)
    }
    fn read_bytes(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, _: u64, _: &Buffers) -> io::Result<()> {
        Ok(())
    }
    fn write_bytes(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn start_writeback(&self, _: u64, length: u64) {
        self.started.fetch_add(length, Ordering::SeqCst);
    }
    fn flush(&self) -> io::Result<()> {
        (self.flush)(())
    }
    fn zero(&self, _: u64, length: u64, _: bool, _: Stop<'_>) -> io::Result<()> {
        self.zeroed.fetch_add(length, Ordering::SeqCst);
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}
