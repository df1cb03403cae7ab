// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard error that never blocks. A guest can fill the pipe, and its reader may not read. The
//! machine must end all the same.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stderr;
use std::time::{Duration, Instant};

/// A writable pipe takes at least this many bytes without blocking (POSIX's `PIPE_BUF`).
const PIECE: usize = 4096;
/// How long a slow reader is waited for. What it has not read by then is lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// Prints text, which ends with a newline.
pub fn say(words: &str) {
    finish(&mut words.as_bytes().to_vec());
}

/// Writes what can be written without waiting, and removes it from `bytes`.
pub fn write(bytes: &mut Vec<u8>) {
    write_until(bytes, Instant::now());
}

/// Writes all of it if the reader keeps up; drops the rest.
pub fn finish(bytes: &mut Vec<u8>) {
    write_until(bytes, Instant::now() + PATIENCE);
    bytes.clear();
}

fn write_until(bytes: &mut Vec<u8>, end: Instant) {
    let mut done = 0;
    while done < bytes.len() && writable(end) {
        let piece = bytes
            .get(done..bytes.len().min(done + PIECE))
            .unwrap_or_default();
        match rustix::io::write(stderr(), piece) {
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // The descriptor is non-blocking because another process that shares it made it so.
            Err(Errno::AGAIN) if Instant::now() < end => {}
            Err(Errno::AGAIN) => break,
            // The reader is gone.
            Err(_) => done = bytes.len(),
        }
    }
    bytes.drain(..done);
}

fn writable(end: Instant) -> bool {
    loop {
        let left =
            Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(
            &mut [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)],
            Some(&left),
        ) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|count| count > 0),
        }
    }
}
