// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notifications to a client: one byte on a socket.
//!
//! An eventfd would block vbusd: a client shares its flags, so it can make it blocking and full at
//! any moment. A socket has a flag for each call. It also gives the host's scheduler the hint that
//! the sender will sleep soon.

use paravane_vbus::Notify;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;

/// vbusd's end of the socket.
#[derive(Debug)]
pub struct Bell(pub OwnedFd);

impl Notify for Bell {
    fn notify(&self) {
        // A full socket has bytes that the client has not read: it is notified already. One that is
        // closed has a client that has gone, which the control socket reports.
        let _ = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
