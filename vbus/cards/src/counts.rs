// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cards have counted. Any thread reads it, without the one that runs the cards.

use paravane_vbus::Attribute;
use std::sync::atomic::{AtomicU64, Ordering};

/// The figures of a card, or of several together.
#[derive(Debug, Default)]
pub struct Counts {
    /// Frames of the guest that were passed on.
    sent: AtomicU64,
    /// Frames that the guest got.
    received: AtomicU64,
    /// Looks.
    looked: AtomicU64,
    /// Looks that found the host's answer.
    answered: AtomicU64,
}

fn add(to: &AtomicU64) {
    to.fetch_add(1, Ordering::Relaxed);
}

fn figure(name: &str, value: &AtomicU64) -> Attribute {
    Attribute::figure(name, value.load(Ordering::Relaxed))
}

impl Counts {
    pub(crate) fn sent(&self) {
        add(&self.sent);
    }

    pub(crate) fn received(&self) {
        add(&self.received);
    }

    pub(crate) fn looked(&self) {
        add(&self.looked);
    }

    pub(crate) fn answered(&self) {
        add(&self.answered);
    }

    /// Frames of the guest, and for it.
    #[must_use]
    pub fn frames(&self) -> [Attribute; 2] {
        [
            figure("sent", &self.sent),
            figure("received", &self.received),
        ]
    }

    /// Looks, and those that found the host's answer.
    #[must_use]
    pub fn looks(&self) -> [Attribute; 2] {
        [
            figure("looked", &self.looked),
            figure("answered", &self.answered),
        ]
    }
}
