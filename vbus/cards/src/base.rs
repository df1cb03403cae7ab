// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cards on a network of the host have in common.

use crate::card::{Called, Port, Properties};
use crate::counts::Counts;
use crate::host::{Waker, Way};
use crate::looks::Looker;
use paravane_vbus::Error;
use std::sync::Arc;

/// The client's end, and the thread that runs the card.
#[derive(Debug)]
pub struct Base {
    pub(crate) port: Port,
    pub(crate) properties: Properties,
    pub(crate) looker: Looker,
    /// By this the host wakes the card.
    pub(crate) waker: Option<Waker>,
    /// The host's side was reported, or may be ready.
    pub(crate) reported: bool,
}

impl Base {
    pub(crate) fn new(properties: Properties) -> Self {
        Base {
            port: Port::default(),
            properties,
            looker: Looker::default(),
            waker: None,
            reported: false,
        }
    }

    /// The card sleeps from now on, instead of looking for what comes next.
    pub fn forbid_looks(&mut self) {
        self.looker.forbid();
    }

    /// The card counts there from now on.
    pub fn count(&mut self, counts: Arc<Counts>) {
        self.looker.count(counts);
    }

    /// Where the card expects the way to the guest.
    #[must_use]
    pub fn way(&self) -> Way {
        self.looker.way()
    }

    /// The host wakes the card by this.
    pub fn start(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
        self.port.start(waker);
    }

    /// Carries out a call of the client.
    pub(crate) fn call(
        &mut self,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<Called, Error> {
        self.port.call(&self.properties, call, argument, result)
    }
}
