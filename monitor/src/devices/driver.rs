// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver as a device sees it: queues, guest memory, interrupts.

use super::counters::{Counters, count};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::GuestMemoryMmap;

/// Guest memory, by guest-physical address.
pub type Memory = GuestMemoryMmap;

/// Buffers that belong together, and where they came from. It can be given to another thread.
pub type Chain = DescriptorChain<Arc<Memory>>;

/// The driver has done what no driver may do. The device then asks to be reset, and does nothing before.
#[derive(Debug, Error)]
pub enum Broken {
    /// What is written in a ring cannot be.
    #[error("queue {queue}: {source}")]
    Ring {
        /// Its number.
        queue: usize,
        /// What is wrong with it.
        source: virtio_queue::Error,
    },
    /// A device-specific rule.
    #[error("{0}")]
    Rule(&'static str),
}

/// How a device interrupts its driver. Implemented by the transport.
pub trait Interrupt: Send + Sync {
    /// Buffers were used.
    fn used(&self);
    /// The configuration space is now this.
    fn config(&self, bytes: &[u8]);
}

/// A driver that is ready.
pub struct Driver {
    memory: Arc<Memory>,
    queues: Vec<Queue>,
    features: u64,
    interrupt: Arc<dyn Interrupt>,
    counters: Arc<Counters>,
}

impl Driver {
    /// Puts together what the driver has set up. The queues were checked by the transport.
    pub fn new(memory: Arc<Memory>, mut queues: Vec<Queue>, features: u64, interrupt: Arc<dyn Interrupt>) -> Self {
        for queue in &mut queues {
            queue.set_event_idx(features >> VIRTIO_RING_F_EVENT_IDX & 1 == 1);
        }
        Driver {
            memory,
            queues,
            features,
            interrupt,
            counters: Arc::default(),
        }
    }

    /// The same, which counts there.
    #[must_use]
    pub fn counting(mut self, counters: Arc<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// The features agreed upon.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Guest memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Whether the driver has set up a queue.
    pub fn queue_ready(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(QueueT::ready)
    }

    /// The next chain of a queue, none if it is empty or not set up. Asks for a notification of the next one before
    /// it says that there is none, so nothing is missed.
    pub fn pop(&mut self, queue: usize) -> Result<Option<Chain>, Broken> {
        let broken = |source| Broken::Ring { queue, source };
        let Some(ring) = self.queues.get_mut(queue).filter(|q| q.ready()) else {
            return Ok(None);
        };
        loop {
            // The iterator answers none, too, where a ring lies outside memory; the transport has checked that.
            if let Some(chain) = ring.iter(Arc::clone(&self.memory)).map_err(broken)?.next() {
                // A figure: what the device makes of the chain, it reads by itself.
                let bytes = chain.clone().readable().map(|part| u64::from(part.len())).sum();
                count(&self.counters.bytes_from_guest, bytes);
                return Ok(Some(chain));
            }
            if !ring.enable_notification(&*self.memory).map_err(broken)? {
                return Ok(None);
            }
        }
    }

    /// Puts the last chain that came from [`pop`](Driver::pop) back, for later. Notifications of new ones are not
    /// asked for.
    pub fn put_back(&mut self, queue: usize) {
        if let Some(ring) = self.queues.get_mut(queue) {
            ring.go_to_previous_position();
        }
    }

    /// Gives a chain back, with so many bytes written to it. The driver is told by [`signal`](Driver::signal).
    pub fn push(&mut self, queue: usize, head: u16, written: u32) -> Result<(), Broken> {
        let Some(ring) = self.queues.get_mut(queue).filter(|q| q.ready()) else {
            return Ok(());
        };
        count(&self.counters.requests, 1);
        count(&self.counters.bytes_to_guest, written.into());
        ring.add_used(&*self.memory, head, written)
            .map_err(|source| Broken::Ring { queue, source })
    }

    /// Interrupts, if the driver wants to know of what was pushed to the queue.
    pub fn signal(&mut self, queue: usize) -> Result<(), Broken> {
        let Some(ring) = self.queues.get_mut(queue).filter(|q| q.ready()) else {
            return Ok(());
        };
        let wanted = ring
            .needs_notification(&*self.memory)
            .map_err(|source| Broken::Ring { queue, source })?;
        if wanted {
            self.interrupt.used();
        }
        Ok(())
    }

    /// Shows the driver a new configuration space and interrupts it.
    pub fn config_changed(&self, bytes: &[u8]) {
        self.interrupt.config(bytes);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("queues", &self.queues)
            .field("features", &format_args!("{:#x}", self.features))
            .finish_non_exhaustive()
    }
}
