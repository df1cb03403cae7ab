// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of each vCPU, by place and by function.

use crate::book::Book;
use crate::host_kernel::HostKernel;
use crate::perf::Hit;
use crate::place::Place;
use std::collections::HashMap;

/// Kinds of entries to the host's kernel that are counted apart. There are a few hundred system
/// calls.
const MAX_KINDS: usize = 1024;

/// The samples of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Samples in each place.
    pub places: [u64; Place::ALL.len()],
    /// Samples in functions of the guest's kernel; `None`: between functions.
    pub guest_kernel: HashMap<Option<usize>, u64>,
    /// Samples in functions of the layer.
    pub layer: HashMap<Option<usize>, u64>,
    /// Samples in the host's kernel, by what entered it.
    pub host_kernel: HashMap<String, u64>,
}

/// The functions of all programs, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// The guest's kernel.
    pub guest_kernel: Option<Book>,
    /// The layer.
    pub layer: Option<Book>,
    /// The host's kernel.
    pub host_kernel: Option<HostKernel>,
    /// The end of the guest's user range.
    pub user_end: u64,
}

impl Tally {
    /// Adds a sample. The memory that this takes depends on the number of functions, not on the
    /// addresses, which a guest chooses.
    pub fn add(&mut self, hit: &Hit<'_>, books: &Books) {
        let place = if hit.host {
            Place::Host
        } else {
            Place::of(hit.ip, books.user_end)
        };
        if let Some(count) = self.places.get_mut(place as usize) {
            *count += 1;
        }
        let (book, functions) = match place {
            Place::Image => (&books.guest_kernel, &mut self.guest_kernel),
            Place::Layer => (&books.layer, &mut self.layer),
            Place::Host => {
                if let Some(kernel) = &books.host_kernel {
                    let mut kind = kernel.kind(hit.chain);
                    if self.host_kernel.len() >= MAX_KINDS && !self.host_kernel.contains_key(&kind)
                    {
                        kind = "other".to_string();
                    }
                    *self.host_kernel.entry(kind).or_default() += 1;
                }
                return;
            }
            Place::Program | Place::Mapped | Place::Other => return,
        };
        if let Some(book) = book {
            *functions.entry(book.find(hit.ip)).or_default() += 1;
        }
    }

    /// Samples in a place.
    pub fn of(&self, place: Place) -> u64 {
        self.places.get(place as usize).copied().unwrap_or(0)
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.places.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paravane_abi::process as ph;

    fn hit(ip: u64, host: bool) -> Hit<'static> {
        Hit {
            thread: (1, 1),
            ip,
            host,
            chain: &[],
        }
    }

    #[test]
    fn a_hostile_guest_s_addresses_take_no_memory() {
        let mut tally = Tally::default();
        let books = Books {
            guest_kernel: Some(Book::default()),
            layer: Some(Book::default()),
            host_kernel: Some(HostKernel::default()),
            user_end: ph::PHV_DIRECT_MAP,
        };
        for n in 0..10_000u64 {
            for base in [ph::PHV_USER_START, ph::PHV_IMAGE_START, ph::PHV_LAYER_BASE] {
                tally.add(&hit(base + n, false), &books);
            }
            tally.add(&hit(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), true), &books);
        }
        for place in [Place::Program, Place::Image, Place::Layer, Place::Host] {
            assert_eq!(tally.of(place), 10_000, "{place:?}");
        }
        assert_eq!(tally.total(), 40_000);
        assert_eq!(tally.guest_kernel, HashMap::from([(None, 10_000)]));
        assert_eq!(tally.layer, HashMap::from([(None, 10_000)]));
        assert_eq!(tally.host_kernel.len(), 1);
    }

    #[test]
    fn without_symbols_only_places_count() {
        let mut tally = Tally::default();
        tally.add(&hit(ph::PHV_IMAGE_START, false), &Books::default());
        tally.add(&hit(0, true), &Books::default());
        assert_eq!((tally.total(), tally.of(Place::Host)), (2, 1));
        assert!(tally.guest_kernel.is_empty() && tally.host_kernel.is_empty());
    }
}
