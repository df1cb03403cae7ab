// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver as a device sees it: queues, guest memory, interrupts.

use super::Ending;
use super::counters::{Counters, count};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::GuestMemoryMmap;

/// Parts of a chain, at most. No driver may exceed the queue's size, with an indirect table neither
/// (virtio 1.2, section 2.7.5.3.1), and the largest queue of a device has 256. Some drivers for Windows
/// add one or two to a disk's `seg_max`, for buffers that begin in the middle of a page.
pub const BUFFERS: usize = 512;
/// Looks at a queue in one round: more than a queue has entries, so a driver's batch fits into one. A
/// queue that is not empty then gets another round, after the other work of the device's thread.
const ROUND: u32 = 512;

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

/// The error for a chain of more than [`BUFFERS`] parts.
pub const TOO_LONG: Broken = Broken::Rule("a request of more buffers than a driver may use");

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
    queues: Vec<Ring>,
    features: u64,
    interrupt: Arc<dyn Interrupt>,
    counters: Arc<Counters>,
    ending: Ending,
    /// Queues that this round left before they were empty, a bit for each.
    left: u32,
}

/// A queue and what has become of it.
#[derive(Debug)]
struct Ring {
    queue: Queue,
    /// Looks in this round.
    looks: u32,
    /// Chains that the device has and has not given back.
    in_flight: u16,
}

impl Driver {
    /// Puts together what the driver has set up. The queues were checked by the transport.
    pub fn new(
        memory: Arc<Memory>,
        mut queues: Vec<Queue>,
        features: u64,
        interrupt: Arc<dyn Interrupt>,
    ) -> Self {
        for queue in &mut queues {
            queue.set_event_idx(features >> VIRTIO_RING_F_EVENT_IDX & 1 == 1);
        }
        let ring = |queue| Ring {
            queue,
            looks: 0,
            in_flight: 0,
        };
        Driver {
            memory,
            queues: queues.into_iter().map(ring).collect(),
            features,
            interrupt,
            counters: Arc::default(),
            ending: Ending::default(),
            left: 0,
        }
    }

    /// The same, of a machine with this end. After its begin no chain comes.
    #[must_use]
    pub fn until(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
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
        self.queues
            .get(queue)
            .is_some_and(|ring| ring.queue.ready())
    }

    /// The end of the driver's machine.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Ends a round of work. Returns the queues (a bit for each) that the round left before they were
    /// empty. The transport notifies the device of them once more, after its other work.
    pub fn end_round(&mut self) -> u32 {
        self.queues.iter_mut().for_each(|ring| ring.looks = 0);
        std::mem::take(&mut self.left)
    }

    /// The next chain of a queue, none if it is empty or not set up. Asks for a notification of the next one before
    /// it says that there is none, so nothing is missed. Also none when this round has been long, and
    /// when the machine ends.
    ///
    /// A chain has at most [`BUFFERS`] parts when it comes from here. The guest can change it afterwards:
    /// code that keeps something for each part counts again.
    ///
    /// Fails when the driver has more chains on their way than the queue has entries, when a chain has too
    /// many parts, and when the ring is damaged.
    pub fn pop(&mut self, queue: usize) -> Result<Option<Chain>, Broken> {
        let broken = |source| Broken::Ring { queue, source };
        let Some(ring) = self.queues.get_mut(queue).filter(|ring| ring.queue.ready()) else {
            return Ok(None);
        };
        if self.ending.begun() {
            return Ok(None);
        }
        while ring.looks < ROUND {
            ring.looks += 1;
            // The iterator answers none, too, where a ring lies outside memory; the transport has checked that.
            if let Some(chain) = ring
                .queue
                .iter(Arc::clone(&self.memory))
                .map_err(broken)?
                .next()
            {
                // A driver has a descriptor of the queue for each.
                if ring.in_flight >= ring.queue.size() {
                    return Err(Broken::Rule(
                        "more requests at a time than its queue has room for",
                    ));
                }
                // A figure: what the device makes of the chain, it reads by itself.
                let bytes = readable(&chain)?;
                count(&self.counters.bytes_from_guest, bytes);
                ring.in_flight += 1;
                return Ok(Some(chain));
            }
            if !ring
                .queue
                .enable_notification(&*self.memory)
                .map_err(broken)?
            {
                return Ok(None);
            }
        }
        self.left |= u32::try_from(queue)
            .ok()
            .and_then(|n| 1u32.checked_shl(n))
            .unwrap_or(0);
        Ok(None)
    }

    /// Puts the last chain that came from [`pop`](Driver::pop) back, for later. Notifications of new ones are not
    /// asked for.
    pub fn put_back(&mut self, queue: usize) {
        if let Some(ring) = self.queues.get_mut(queue) {
            ring.in_flight = ring.in_flight.saturating_sub(1);
            ring.queue.go_to_previous_position();
        }
    }

    /// Gives a chain back, with so many bytes written to it. The driver is told by [`signal`](Driver::signal).
    pub fn push(&mut self, queue: usize, head: u16, written: u32) -> Result<(), Broken> {
        let Some(ring) = self.queues.get_mut(queue).filter(|ring| ring.queue.ready()) else {
            return Ok(());
        };
        count(&self.counters.requests, 1);
        count(&self.counters.bytes_to_guest, written.into());
        ring.in_flight = ring.in_flight.saturating_sub(1);
        ring.queue
            .add_used(&*self.memory, head, written)
            .map_err(|source| Broken::Ring { queue, source })
    }

    /// Interrupts, if the driver wants to know of what was pushed to the queue.
    pub fn signal(&mut self, queue: usize) -> Result<(), Broken> {
        let Some(ring) = self.queues.get_mut(queue).filter(|ring| ring.queue.ready()) else {
            return Ok(());
        };
        let wanted = ring
            .queue
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

/// Bytes of a chain that the device reads. Counts its parts.
fn readable(chain: &Chain) -> Result<u64, Broken> {
    let mut bytes = 0;
    for (index, part) in chain.clone().enumerate() {
        if index == BUFFERS {
            return Err(TOO_LONG);
        }
        if !part.is_write_only() {
            bytes += u64::from(part.len());
        }
    }
    Ok(bytes)
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("queues", &self.queues)
            .field("features", &format_args!("{:#x}", self.features))
            .finish_non_exhaustive()
    }
}
