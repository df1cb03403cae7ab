// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a process's output with a time limit: a test that waits for a line must fail if the line
//! never comes.

use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The text that a pipe carries. A thread reads it, so what writes to the pipe never waits for the
/// test. After this value is dropped, the thread closes the pipe when further text comes.
#[derive(Debug)]
pub struct Lines {
    shared: Arc<Shared>,
    /// How many bytes were handed out.
    taken: usize,
    /// The thread goes on without this value.
    drained: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<Heard>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    bytes: Vec<u8>,
    ended: bool,
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// Begins to read. Without a pipe there is no text.
    #[must_use]
    pub fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let shared = Arc::new(Shared::default());
        let drained = Arc::new(AtomicBool::new(false));
        match pipe {
            Some(pipe) => {
                let (shared, drained) = (Arc::downgrade(&shared), drained.clone());
                thread::spawn(move || read(pipe, &shared, &drained));
            }
            None => shared.heard().ended = true,
        }
        Lines {
            shared,
            taken: 0,
            drained,
        }
    }

    /// Throws away what comes from here on, so that the pipe stays open and never fills.
    pub fn drain(self) {
        self.drained.store(true, Ordering::SeqCst);
    }

    /// The next line with its line end, which the last one may lack. Empty after the end, as from
    /// `read_line`.
    ///
    /// # Panics
    /// When it does not come within `limit`. Tells what was read until then.
    pub fn next_within(&mut self, limit: Duration) -> String {
        let mut length = None;
        self.wait(limit, |new, ended| {
            let line = new.iter().position(|&byte| byte == b'\n');
            length = line.map(|end| end + 1).or(ended.then_some(new.len()));
            length.is_some()
        });
        match length {
            Some(length) => String::from_utf8_lossy(&self.take(length)).into_owned(),
            None => self.fail(limit, "no further line"),
        }
    }

    /// The lines from here to the end, without their line ends. Each must come within `limit`.
    pub fn each_within(&mut self, limit: Duration) -> impl Iterator<Item = String> + '_ {
        std::iter::from_fn(move || {
            let line = self.next_within(limit);
            line.lines().next().map(str::to_string)
        })
    }

    /// The text from here to the end.
    ///
    /// # Panics
    /// When the end does not come within `limit`. Tells what was read until then.
    pub fn rest_within(&mut self, limit: Duration) -> String {
        String::from_utf8_lossy(&self.bytes_within(limit)).into_owned()
    }

    /// The bytes from here to the end, which need not be text.
    ///
    /// # Panics
    /// As [`Self::rest_within`].
    pub fn bytes_within(&mut self, limit: Duration) -> Vec<u8> {
        if self.wait(limit, |_, ended| ended) {
            self.take(usize::MAX)
        } else {
            self.fail(limit, "no end")
        }
    }

    /// Whether the text ends within `limit`.
    #[must_use]
    pub fn end_within(&self, limit: Duration) -> bool {
        self.wait(limit, |_, ended| ended)
    }

    /// All that was read until now, also what was handed out.
    #[must_use]
    pub fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.shared.heard().bytes).into_owned()
    }

    /// Waits for a state of what is not handed out yet. Returns whether it came.
    fn wait(&self, limit: Duration, mut done: impl FnMut(&[u8], bool) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut heard = self.shared.heard();
        loop {
            if done(&heard.bytes[self.taken..], heard.ended) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.news.wait_timeout(heard, left);
            heard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let heard = self.shared.heard();
        let end = self.taken.saturating_add(length).min(heard.bytes.len());
        let bytes = heard.bytes[self.taken..end].to_vec();
        drop(heard);
        self.taken = end;
        bytes
    }

    #[allow(clippy::panic)] // A panic fails the test.
    fn fail(&self, limit: Duration, what: &str) -> ! {
        panic!("{what} within {limit:?} after: {:?}", self.so_far())
    }
}

fn read(mut pipe: impl Read, shared: &Weak<Shared>, drained: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = match pipe.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // Data that came before an error is kept.
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        let Some(shared) = shared.upgrade() else {
            if drained.load(Ordering::SeqCst) {
                continue;
            }
            return;
        };
        shared.heard().bytes.extend_from_slice(&buffer[..length]);
        shared.news.notify_all();
    }
    if let Some(shared) = shared.upgrade() {
        shared.heard().ended = true;
        shared.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;
    use std::io::Write;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_are_those_of_read_line() {
        let mut lines = Lines::of(Some(&b"one\n\nthree"[..]));
        for line in ["one\n", "\n", "three", "", ""] {
            assert_eq!(lines.next_within(LONG), line);
        }
        let mut lines = Lines::of(Some(&b"one\ntwo\nthree"[..]));
        assert_eq!(lines.next_within(LONG), "one\n");
        assert_eq!(lines.rest_within(LONG), "two\nthree");
        assert_eq!(lines.rest_within(LONG), "");
        let mut lines = Lines::of(Some(&b"one\n\nthree"[..]));
        assert!(lines.each_within(LONG).eq(["one", "", "three"]));
        assert!(Lines::of(None::<&[u8]>).end_within(LONG));
    }

    #[test]
    fn a_line_that_does_not_come_is_an_error_with_the_text_until_then() {
        let (pipe, mut end) = std::io::pipe().unwrap();
        let mut lines = Lines::of(Some(pipe));
        end.write_all(b"ready\nhalf a li").unwrap();
        assert_eq!(lines.next_within(LONG), "ready\n");
        while lines.so_far().len() < 15 {
            std::thread::yield_now();
        }
        let short = Duration::from_millis(20);
        let next = catch_unwind(AssertUnwindSafe(|| lines.next_within(short)));
        let message = *next.unwrap_err().downcast::<String>().unwrap();
        let expected = r#"no further line within 20ms after: "ready\nhalf a li""#;
        assert_eq!(message, expected);
        assert!(!lines.end_within(short));
        end.write_all(b"ne\n").unwrap();
        assert_eq!(lines.next_within(LONG), "half a line\n");
        lines.drain();
        // More than a pipe holds.
        for _ in 0..100 {
            end.write_all(&[b'x'; 1 << 12]).unwrap();
        }
    }

    #[test]
    fn a_pipe_that_nobody_wants_to_read_is_closed() {
        let (pipe, mut end) = std::io::pipe().unwrap();
        drop(Lines::of(Some(pipe)));
        let begun = Instant::now();
        while end.write_all(b"nobody reads it\n").is_ok() {
            assert!(begun.elapsed() < LONG, "the pipe stays open");
        }
    }
}
