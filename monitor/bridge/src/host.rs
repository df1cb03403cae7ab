// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine gives its cards: the thread that waits for files, and the way to a vCPU.

use paravane_devices::{EventFlags, Line, Waker};
use paravane_vbus_cards::{Peer, Wake, Waker as CardWaker};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

#[derive(Debug)]
struct Files(Waker);

impl Wake for Files {
    fn arm(&self, file: BorrowedFd<'_>, events: EventFlags) -> io::Result<()> {
        self.0.arm(file, events)
    }

    fn disarm(&self, file: BorrowedFd<'_>) {
        self.0.disarm(file);
    }
}

/// The way by which files wake a card of the bridge that this wakes.
pub fn waker(waker: &Waker) -> CardWaker {
    Arc::new(Files(waker.clone()))
}

struct Vcpu(Arc<dyn Line>);

impl Peer for Vcpu {
    fn busy(&self) -> bool {
        self.0.busy()
    }

    fn looks(&self, on: bool) {
        self.0.looks(on);
    }
}

/// The vCPU that the line interrupts.
pub fn peer(line: &Arc<dyn Line>) -> Arc<dyn Peer> {
    Arc::new(Vcpu(Arc::clone(line)))
}
