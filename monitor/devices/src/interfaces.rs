// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reports about a tap's interface that a device on the tap gets.

use crate::{EventFlags, Waker};
use paravane_net::{Changes, Interface};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tracing::warn;

/// For one device, whose thread is the only one that looks.
#[derive(Debug)]
pub struct Interfaces {
    waker: Waker,
    changes: Changes,
    /// The marks of the waker that were looked at.
    marks: AtomicU32,
    /// The changes that the device knows.
    seen: AtomicU64,
}

impl Interfaces {
    /// Receives changes from now on, which wake the device. `None`: the host does not report
    /// changes, which the log says.
    #[must_use]
    pub fn open(waker: &Waker) -> Option<Self> {
        let opened = Changes::open();
        let changes = opened.inspect_err(|error| warn!("network: {error}")).ok()?;
        let interfaces = Interfaces {
            waker: waker.clone(),
            changes,
            marks: AtomicU32::new(waker.marks()),
            seen: AtomicU64::new(u64::MAX),
        };
        interfaces.arm();
        Some(interfaces)
    }

    fn arm(&self) {
        let armed = self.waker.arm_marked(self.changes.file(), EventFlags::IN);
        if let Err(error) = armed {
            warn!("network: cannot wait for changes of the host's interfaces: {error}");
        }
    }

    /// The state of the interface with this index, if there may be another one since the last call;
    /// for the first call there is. To be called where the device was woken.
    pub fn news(&self, index: u32) -> Option<Interface> {
        let marks = self.waker.marks();
        if self.marks.load(Ordering::Relaxed) != marks {
            self.marks.store(marks, Ordering::Relaxed);
            self.changes.take();
            self.arm();
        }
        self.changes.news(index, &self.seen)
    }
}
