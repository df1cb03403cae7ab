// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine gives its cards: the thread that waits for files, and the way to a vCPU.

use paravane_devices::{EventFlags, Interfaces, Line, Waker};
use paravane_net::Interface;
use paravane_vbus_cards::{Peer, Wake, Waker as CardWaker};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

#[derive(Debug)]
struct Files {
    waker: Waker,
    /// For a card on a tap.
    interfaces: Option<Interfaces>,
}

impl Wake for Files {
    fn arm(&self, file: BorrowedFd<'_>, events: EventFlags) -> io::Result<()> {
        self.waker.arm(file, events)
    }

    fn disarm(&self, file: BorrowedFd<'_>) {
        self.waker.disarm(file);
    }

    fn interface(&self, index: u32) -> Option<Interface> {
        self.interfaces.as_ref()?.news(index)
    }
}

/// The way by which files wake a card of the bridge that this wakes.
pub fn waker(waker: &Waker) -> CardWaker {
    Arc::new(Files {
        waker: waker.clone(),
        interfaces: None,
    })
}

/// The way by which files, and changes of the host's interfaces, wake a card on an interface.
pub fn waker_on_interface(waker: &Waker) -> CardWaker {
    Arc::new(Files {
        waker: waker.clone(),
        interfaces: Interfaces::open(waker),
    })
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
