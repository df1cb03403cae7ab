// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an input reaches, by the counters that the compiler adds for source-based coverage: 64-bit
//! words in a section of their own. Without the counters no input reaches anything new.

/// What was reached so far: for each counter, a bit for each magnitude of its value.
#[derive(Default)]
pub struct Coverage(Vec<u8>);

#[cfg(paravane_coverage)]
mod counters {
    unsafe extern "C" {
        #[link_name = "__start___llvm_prf_cnts"]
        static mut START: u64;
        #[link_name = "__stop___llvm_prf_cnts"]
        static mut STOP: u64;
    }

    /// All counters. Other threads may count at the same time; their counts are attributed to the
    /// input.
    pub fn all() -> &'static mut [u64] {
        let (start, stop) = (&raw mut START, &raw mut STOP);
        // SAFETY: the linker places the counters between the two symbols. All are plain words that
        // only compiled code writes.
        unsafe {
            std::slice::from_raw_parts_mut(
                start,
                usize::try_from(stop.offset_from(start)).unwrap_or(0),
            )
        }
    }
}

impl Coverage {
    /// Whether the program has counters.
    pub const THERE: bool = cfg!(paravane_coverage);

    /// Called before an input runs.
    #[allow(clippy::unused_self)] // Without counters.
    pub fn begin(&mut self) {
        #[cfg(paravane_coverage)]
        counters::all().fill(0);
    }

    /// Called after an input has run. True: it reached something new.
    pub fn end(&mut self) -> bool {
        #[cfg(paravane_coverage)]
        {
            let counters = counters::all();
            self.0.resize(counters.len(), 0);
            let mut new = false;
            for (seen, count) in self.0.iter_mut().zip(counters) {
                // 1, 2, 3, 4 to 7, 8 to 15, ..., 128 and more.
                let bit = match *count {
                    0 => continue,
                    small @ 1..=3 => 1 << (small - 1),
                    more => 1 << (more.ilog2() + 1).min(7),
                };
                new |= *seen & bit == 0;
                *seen |= bit;
            }
            return new;
        }
        #[cfg(not(paravane_coverage))]
        {
            self.0.is_empty() && Self::THERE
        }
    }
}
