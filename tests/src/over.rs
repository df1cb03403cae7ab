// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flag that ends the threads of a scope.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped. A scope waits for its threads also if its closure panics, so
/// threads that run until a flag is set must see it then, too: otherwise a failed assertion is a
/// wait without end.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::Over;
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_panic_in_the_scope_ends_its_threads() {
        let failed = catch_unwind(|| {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _over = Over(&over);
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                });
                panic!("as a failed assertion");
            });
        });
        assert!(failed.is_err());
    }
}
