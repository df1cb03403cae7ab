// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for what another program or thread does.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `look` gives something. `what` is the text with which a test fails.
///
/// # Panics
/// When it gives nothing within `limit`.
pub fn some<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        // A look may take long, or this thread may wait for a processor after it.
        let late = begun.elapsed() > limit;
        if let Some(seen) = look() {
            return seen;
        }
        assert!(!late, "not in {limit:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until it is so.
///
/// # Panics
/// When it is not within `limit`.
pub fn until(what: &str, limit: Duration, mut so: impl FnMut() -> bool) {
    some(what, limit, || so().then_some(()));
}

/// Waits until this value is seen.
///
/// # Panics
/// When it is not within `limit`; says which one is.
pub fn equal<T: PartialEq + Debug>(limit: Duration, wanted: &T, mut look: impl FnMut() -> T) {
    let begun = Instant::now();
    loop {
        let late = begun.elapsed() > limit;
        let seen = look();
        if seen == *wanted {
            return;
        }
        assert!(!late, "not in {limit:?}: {seen:?}, not {wanted:?}");
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_comes_is_waited_for_and_what_does_not_fails() {
        let mut looks = 0..;
        until("it", LONG, || looks.next() == Some(3));
        assert_eq!(some("it", LONG, || looks.next()), 4);
        let failed = |wait: fn()| {
            *catch_unwind(wait)
                .unwrap_err()
                .downcast::<String>()
                .unwrap()
        };
        let said = failed(|| until("it is so", SHORT, || false));
        assert_eq!(said, "not in 20ms: it is so");
        let said = failed(|| equal(SHORT, &1, || 2));
        assert_eq!(said, "not in 20ms: 2, not 1");
    }
}
