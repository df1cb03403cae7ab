// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard error of a program that must not wait for its reader: a guest can fill the pipe, and nobody
//! may read it. A machine ends all the same.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stderr;
use std::time::{Duration, Instant};

/// A pipe that can be written to takes so much at least without making us wait (POSIX's `PIPE_BUF`).
const PIECE: usize = 4096;
/// For a reader that is slow; what it has not taken then is lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// Says something, which ends with the end of its line.
pub fn say(words: &str) {
    finish(&mut words.as_bytes().to_vec());
}

/// Writes what can be written without waiting, and takes it off.
pub fn write(bytes: &mut Vec<u8>) {
    write_until(bytes, Instant::now());
}

/// Writes all of it, if somebody reads it; nothing is left.
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
            // A descriptor that does not wait, of which others have copies.
            Err(Errno::AGAIN) if Instant::now() < end => {}
            Err(Errno::AGAIN) => break,
            // Nobody reads it any more.
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
