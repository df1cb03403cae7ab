// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's own log on standard error. No thread waits for its reader: a line that finds no
//! room is left out, and the next one that does says how many were.
//!
//! A guest can cause lines without end, on threads that no other thread watches. If standard error
//! is a file that another part of this program keeps small, that part is notified when the log has
//! grown.

use crate::outlet::Outlet;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The log rings its bell after this number of bytes.
const GROWN: usize = 1 << 20;

static STATE: Mutex<State> = Mutex::new(State::new());
static BELL: OnceLock<OwnedFd> = OnceLock::new();

/// Makes the bell. Without this the log works, but rings none.
///
/// # Errors
/// The host gives no descriptor.
pub fn start() -> io::Result<()> {
    let _ = BELL.set(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    Ok(())
}

/// Readable once the log has grown by [`GROWN`] since [`heard`].
pub fn bell() -> Option<BorrowedFd<'static>> {
    BELL.get().map(AsFd::as_fd)
}

/// Makes the bell silent until the log has grown again.
pub fn heard() {
    if let Some(bell) = BELL.get() {
        // AGAIN if it has not rung.
        let _ = rustix::io::read(bell, &mut [0; 8]);
    }
}

/// Takes one line in each write.
#[derive(Clone, Copy, Debug)]
pub struct Log;

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if state.line(line, |bytes| Outlet::Error.write(bytes)) {
            if let Some(bell) = BELL.get() {
                // AGAIN if it has rung 2^64 times.
                let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits lines that a guest can cause without end: ten at once, then one in a second.
#[derive(Debug)]
pub struct Seldom {
    /// Lines that may be written now.
    free: u32,
    /// When the last of them became free.
    since: Option<Instant>,
    left_out: u64,
}

impl Seldom {
    /// Lines at once.
    const MOST: u32 = 10;

    /// No line yet.
    #[must_use]
    pub const fn new() -> Self {
        Seldom {
            free: Self::MOST,
            since: None,
            left_out: 0,
        }
    }

    /// Whether a line may be written now: then the number of those left out since the last.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.free = self.free.saturating_add(more).min(Self::MOST);
            self.since = Some(since + Duration::from_secs(seconds));
        }
        let Some(free) = self.free.checked_sub(1) else {
            self.left_out += 1;
            return None;
        };
        self.free = free;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Default for Seldom {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct State {
    /// Lines that were left out since the last one that was not.
    missing: u64,
    /// Only a part of the last line was written.
    torn: bool,
    /// Bytes since the bell was rung.
    grown: usize,
}

impl State {
    const fn new() -> Self {
        State {
            missing: 0,
            torn: false,
            grown: 0,
        }
    }

    /// Writes a line if there is room. Returns whether the log has grown.
    fn line(&mut self, line: &[u8], put: impl Fn(&[u8]) -> Result<usize, Errno>) -> bool {
        let mut bytes = Vec::new();
        if self.torn {
            bytes.push(b'\n');
        }
        if self.missing > 0 {
            let missing = self.missing;
            let words = format!("paravane: {missing} lines of the log are missing here\n");
            bytes.extend(words.as_bytes());
        }
        let before = bytes.len();
        bytes.extend(line);
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match put(rest) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                // There is no room, or no reader, or the disk is full.
                Err(_) => break,
            }
        }
        if done >= before {
            self.missing = 0;
        }
        if done < bytes.len() {
            self.missing += 1;
        }
        if let Some(last) = done.checked_sub(1).and_then(|last| bytes.get(last)) {
            self.torn = *last != b'\n';
        }
        self.grown += done;
        let grown = self.grown >= GROWN;
        if grown {
            self.grown = 0;
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A pipe with room for `room` bytes.
    struct Pipe {
        room: Cell<usize>,
        bytes: RefCell<Vec<u8>>,
    }

    impl Pipe {
        fn put(&self, bytes: &[u8]) -> Result<usize, Errno> {
            let count = bytes.len().min(self.room.get());
            if count == 0 {
                return Err(Errno::AGAIN);
            }
            self.room.set(self.room.get() - count);
            self.bytes.borrow_mut().extend(bytes.iter().take(count));
            Ok(count)
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let pipe = Pipe {
            room: Cell::new(8),
            bytes: RefCell::default(),
        };
        let mut state = State::new();
        for line in ["first\n", "second\n", "third\n", "fourth\n"] {
            assert!(!state.line(line.as_bytes(), |bytes| pipe.put(bytes)));
        }
        assert_eq!(*pipe.bytes.borrow(), b"first\nse");
        pipe.room.set(1000);
        for line in ["fifth\n", "sixth\n"] {
            state.line(line.as_bytes(), |bytes| pipe.put(bytes));
        }
        let all = "first\nse\nparavane: 3 lines of the log are missing here\nfifth\nsixth\n";
        assert_eq!(String::from_utf8_lossy(&pipe.bytes.borrow()), all);
    }

    #[test]
    fn the_bell_rings_each_time_the_log_has_grown() {
        let mut state = State::new();
        let line = [b'x'; 1 << 10];
        let rings = |state: &mut State| {
            (0..4096)
                .filter(|_| state.line(&line, |b| Ok(b.len())))
                .count()
        };
        assert_eq!(rings(&mut state), 4);
        assert_eq!(rings(&mut state), 4);
        // Lines that are left out fill no file.
        let lost = (0..4096).filter(|_| state.line(&line, |_| Err(Errno::AGAIN)));
        assert_eq!(lost.count(), 0);
    }
    #[test]
    fn lines_without_end_become_one_in_a_second() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut seldom = Seldom::new();
        let lines: Vec<_> = (0..5000).filter_map(|ms| seldom.next(at(ms))).collect();
        assert_eq!(lines, [&[0; 10][..], &[990, 999, 999, 999]].concat());
        // After a pause there may be ten again.
        let lines: Vec<_> = (0..500)
            .filter_map(|ms| seldom.next(at(60_000 + ms)))
            .collect();
        assert_eq!(lines, [&[999][..], &[0; 9]].concat());
    }
}
