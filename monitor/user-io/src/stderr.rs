// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard error that never blocks. A guest can fill the pipe, and its reader may not read. The
//! machine must end nevertheless.

use crate::outlet::Outlet::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for a slow reader. Output that it has not read by then is lost.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// When all patience ends.
static HURRY: Mutex<Option<Instant>> = Mutex::new(None);

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
    let hurry = *HURRY.lock().unwrap_or_else(PoisonError::into_inner);
    write_until(bytes, patience(Instant::now(), hurry));
    bytes.clear();
}

/// From this time on no reader is waited for: the program has to end.
pub fn hurry(from: Instant) {
    *HURRY.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
}

/// Has panics reported by [`say`]. The standard library's report waits for the reader, and the
/// thread with it, so that no other thread learns of its end.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let mut report = format!("\nthread '{}' {panic}\n", thread.name().unwrap_or("?"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            let _ = writeln!(report, "{backtrace}");
        }
        say(&report);
    }));
}

fn patience(now: Instant, hurry: Option<Instant>) -> Instant {
    hurry.map_or(now + PATIENCE, |hurry| hurry.min(now + PATIENCE))
}

fn write_until(bytes: &mut Vec<u8>, end: Instant) {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match Error.write(rest) {
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if Instant::now() < end && writable(end) => {}
            Err(Errno::AGAIN) => break,
            // The reader has ended.
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
            &mut [PollFd::from_borrowed_fd(Error.file(), PollFlags::OUT)],
            Some(&left),
        ) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|count| count > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_when_the_program_has_to() {
        let now = Instant::now();
        let (soon, late) = (now + PATIENCE / 5, now + 5 * PATIENCE);
        assert_eq!(patience(now, None), now + PATIENCE);
        assert_eq!(patience(now, Some(late)), now + PATIENCE);
        assert_eq!(patience(now, Some(soon)), soon);
        assert_eq!(patience(late, Some(soon)), soon);
    }
}
