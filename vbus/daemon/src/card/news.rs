// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the threads of cards tell the first thread: connections that it is to close.

use anyhow::Context;
use paravane_vbus::{Broken, ConnectionId, Name};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Why a connection is to be closed.
#[derive(Debug)]
pub enum End {
    /// The client broke the protocol.
    Broken(Broken),
    /// The network of the card has ended.
    Gone,
}

/// The connections, by device.
#[derive(Debug)]
pub struct News {
    ended: Mutex<BTreeMap<Name, Vec<(ConnectionId, End)>>>,
    bell: OwnedFd,
}

impl News {
    /// None.
    pub fn new() -> anyhow::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Arc::new(News {
            ended: Mutex::default(),
            bell: eventfd(0, flags).context("eventfd")?,
        }))
    }

    /// Becomes readable, once for each edge, when there are some.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Another one. Each connection comes once.
    pub fn add(&self, device: Name, id: ConnectionId, end: End) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.entry(device).or_default().push((id, end));
        drop(ended);
        // Fails only if the counter is full, which wakes all the same.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// The devices of which there are some.
    pub fn devices(&self) -> Vec<Name> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.keys().cloned().collect()
    }

    /// Those of a device.
    pub fn take(&self, device: &Name) -> Vec<(ConnectionId, End)> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.remove(device).unwrap_or_default()
    }
}
