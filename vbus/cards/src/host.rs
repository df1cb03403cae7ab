// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a card needs of the thread that runs it.

use paravane_net::Interface;
use paravane_net::tap::Offload;
use rustix::event::epoll::EventFlags;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

/// Lets files wake a card: [`Device::woken`](paravane_vbus::Device::woken) is called then.
pub trait Wake: fmt::Debug + Send + Sync {
    /// Wakes the card once when a file is ready (`IN`, `OUT`; also when it ends or fails). It must
    /// be armed again for the next time. A closed file disarms itself.
    ///
    /// # Errors
    /// The host's error.
    fn arm(&self, file: BorrowedFd<'_>, events: EventFlags) -> io::Result<()>;

    /// Disarms a file.
    fn disarm(&self, file: BorrowedFd<'_>);

    /// The state of the host's interface with this index, which the card leads to, if there may be
    /// another one since the last call; for the first call there is. `None` always: the thread gets
    /// no events of interfaces. A change wakes the card.
    fn interface(&self, index: u32) -> Option<Interface> {
        let _ = index;
        None
    }
}

/// Sets which unfinished frames the host may give a card, in place of the card's thread: the host
/// may take long for that.
pub trait Offloads: fmt::Debug + Send {
    /// Sets them some time later, after those that were set before. A failure is reported in the
    /// log.
    fn set(&self, offload: Offload);
}

/// Wakes one card.
pub type Waker = Arc<dyn Wake>;

/// The processor that gets a card's notifications, as far as the card's thread knows it.
pub trait Peer: Send + Sync {
    /// Whether it is known to run, or to wait for a CPU: it may be that of the caller.
    fn busy(&self) -> bool;

    /// The calling thread looks for work instead of sleeping, and that pays off; or it does so no
    /// more.
    fn looks(&self, on: bool);
}

/// The way to the client's processor, once there is one. Clients that are processes of the host
/// have none.
pub type Way = Arc<OnceLock<Arc<dyn Peer>>>;
