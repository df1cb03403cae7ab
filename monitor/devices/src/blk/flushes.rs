// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of flushes after the host has lost data.

use std::io;
use std::sync::{Mutex, PoisonError};

/// The flushes of an open file.
///
/// The host reports data that it could not write once for each open file, then treats its pages as
/// written, and tries no more: the next flush would succeed. But a driver may have several flushes
/// under way, and the contents of the disk are unknown. So all flushes after one that has failed
/// fail, until the file is opened again.
#[derive(Debug, Default)]
pub struct Flushes {
    /// One has failed.
    lost: Mutex<bool>,
}

impl Flushes {
    /// Flushes the file by this call. One call is made at a time, since the host would report the
    /// error to only one of several.
    ///
    /// # Errors
    /// The call's, or an earlier one has failed.
    pub fn flush(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        // Data that can be written is still written.
        let result = call();
        if *lost {
            return Err(io::Error::other("the host has lost data before"));
        }
        *lost = result.is_err();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn after_one_that_failed_all_fail() {
        let flushes = Flushes::default();
        flushes.flush(|| Ok(())).unwrap();
        let error = flushes.flush(|| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
        for _ in 0..3 {
            let mut called = false;
            let result = flushes.flush(|| {
                called = true;
                Ok(())
            });
            assert!(result.is_err() && called);
        }
    }

    /// The host reports the error to the first of two, and the other one has returned before.
    #[test]
    fn one_at_the_same_time_fails_too() {
        let flushes = Flushes::default();
        let (begun, first) = channel();
        thread::scope(|scope| {
            let fails = scope.spawn(|| {
                flushes.flush(|| {
                    begun.send(()).unwrap();
                    thread::sleep(Duration::from_millis(50));
                    Err(io::ErrorKind::StorageFull.into())
                })
            });
            first.recv().unwrap();
            assert!(flushes.flush(|| Ok(())).is_err());
            assert!(fails.join().unwrap().is_err());
        });
    }
}
