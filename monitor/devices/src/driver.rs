// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver from a device's point of view: queues, guest memory, interrupts.

use super::counters::{Counters, count};
use super::{Ending, Message, NoMessage};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thiserror::Error;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::GuestMemoryMmap;

/// The most buffers of a chain. No driver may exceed the queue's size, not even with an indirect
/// table (virtio 1.2, section 2.7.5.3.1), and the largest queue of a device has 512. A disk's has
/// 256: some drivers for Windows exceed its `seg_max` by one or two, for buffers that begin in the
/// middle of a page.
pub const BUFFERS: usize = 512;
/// The number of times that one round looks at a queue: no queue has more entries, so a
/// driver's batch fits into one. If the queue is not empty then, it gets another round after the
/// other work of the device's thread.
const ROUND: u32 = 512;

/// Guest memory, by guest-physical address.
pub type Memory = GuestMemoryMmap;

/// Buffers that belong together, and their origin. It can be sent to another thread.
pub type Chain = DescriptorChain<Arc<Memory>>;

/// The driver has broken a rule. The device asks for a reset, and does nothing until it comes.
#[derive(Debug, Error)]
pub enum Broken {
    /// A ring contains invalid values.
    #[error("queue {queue}: {source}")]
    Ring {
        /// The queue's number.
        queue: usize,
        /// What is invalid.
        source: virtio_queue::Error,
    },
    /// A rule of this kind of device.
    #[error("{0}")]
    Rule(&'static str),
}

/// The error for a chain of more than [`BUFFERS`] buffers.
pub const TOO_LONG: Broken = Broken::Rule("a request with more buffers than a driver may use");

/// Interrupts the driver. The transport implements it.
pub trait Interrupt: Send + Sync {
    /// The device has used buffers.
    fn used(&self);
    /// The configuration space has changed to this.
    fn config(&self, bytes: &[u8]);
}

/// A device's way to its driver.
pub trait Line: Interrupt {
    /// Interrupts without a reason of virtio's: the driver looks at its device.
    fn raise(&self);

    /// Checks a vector of a vCPU that the guest wants in place of the line.
    ///
    /// # Errors
    /// The machine has none.
    fn message(&self, apic: u32, vector: u32) -> Result<Message, NoMessage>;

    /// Interrupts by the guest's choice and not by the line, by an edge. A vCPU that is off gets
    /// nothing, then or later.
    fn send(&self, message: Message);

    /// Whether the vCPU that gets the interrupts is known to run, or to wait for a CPU: it may be
    /// that of the caller.
    fn busy(&self) -> bool {
        false
    }

    /// The calling thread looks for work instead of sleeping, and that pays off; or it does so no
    /// more. While it does, and has a CPU of its own, the vCPU may wait for it in the same way.
    fn looks(&self, _on: bool) {}
}

/// A driver that is ready.
pub struct Driver {
    memory: Arc<Memory>,
    queues: Vec<Ring>,
    features: u64,
    interrupt: Arc<dyn Interrupt>,
    counters: Arc<Counters>,
    ending: Ending,
    /// Queues, a bit for each, that this round left before they were empty.
    left: u32,
}

/// A queue and its state.
#[derive(Debug)]
struct Ring {
    queue: Queue,
    /// The number of times that this round has looked at it.
    looks: u32,
    /// Chains that the device has popped and not pushed.
    in_flight: u16,
}

impl Driver {
    /// Combines what the driver has set up. The transport has checked the queues.
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

    /// Gives the driver the machine's end. Once the end has begun, [`pop`](Driver::pop)
    /// returns no chain.
    #[must_use]
    pub fn until(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Gives the driver these counters.
    #[must_use]
    pub fn counting(mut self, counters: Arc<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// The negotiated features.
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

    /// Ends a round of work. Returns the queues, a bit for each, that the round left before they
    /// were empty. The transport calls [`notified`](super::Device::notified) for them again, after
    /// the device's other work.
    pub fn end_round(&mut self) -> u32 {
        self.queues.iter_mut().for_each(|ring| ring.looks = 0);
        std::mem::take(&mut self.left)
    }

    /// The next chain of a queue; `None` if the queue is empty or not set up. Before that it
    /// enables the notification of the next chain, so that none is missed. Also `None` after a long
    /// round, and when the machine ends.
    ///
    /// The chain has at most [`BUFFERS`] buffers now. The guest can change it afterwards: code that
    /// keeps something for each buffer must count again.
    ///
    /// # Errors
    /// The driver has more chains in flight than the queue has entries, the chain has too many
    /// buffers, or the ring is damaged.
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
            // The iterator also returns `None` for a ring outside memory; the transport has
            // excluded that.
            if let Some(chain) = ring
                .queue
                .iter(Arc::clone(&self.memory))
                .map_err(broken)?
                .next()
            {
                // A driver has one descriptor of the queue for each chain.
                if ring.in_flight >= ring.queue.size() {
                    return Err(Broken::Rule(
                        "more requests at a time than its queue has room for",
                    ));
                }
                // For statistics only: the device itself reads the chain again.
                let (buffers, bytes) = buffers(&chain)?;
                count(&self.counters.buffers, buffers);
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

    /// The number of chains of a queue that were popped and not pushed.
    pub fn in_flight(&self, queue: usize) -> u16 {
        self.queues.get(queue).map_or(0, |ring| ring.in_flight)
    }

    /// The number of chains that the driver has put into a queue and the device has not popped. The
    /// guest can make it any number; it affects only the order of work.
    pub fn waiting(&self, queue: usize) -> u16 {
        let Some(ring) = self.queues.get(queue).filter(|ring| ring.queue.ready()) else {
            return 0;
        };
        let offered = ring.queue.avail_idx(&*self.memory, Ordering::Acquire);
        offered.map_or(0, |index| index.0.wrapping_sub(ring.queue.next_avail()))
    }

    /// Puts the last chain from [`pop`](Driver::pop) back for later. Does not enable notifications
    /// of new ones.
    pub fn put_back(&mut self, queue: usize) {
        if let Some(ring) = self.queues.get_mut(queue) {
            ring.in_flight = ring.in_flight.saturating_sub(1);
            ring.queue.go_to_previous_position();
        }
    }

    /// Returns a chain to the driver after `written` bytes were written to it.
    /// [`signal`](Driver::signal) notifies the driver.
    ///
    /// # Errors
    /// The ring is damaged.
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

    /// Interrupts the driver if it wants to know of the chains that were pushed to the queue.
    ///
    /// # Errors
    /// The ring is damaged.
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

    /// Shows a new configuration space to the driver and interrupts it.
    pub fn config_changed(&self, bytes: &[u8]) {
        self.interrupt.config(bytes);
    }
}

/// The number of a chain's buffers, and of the bytes that the device reads from them.
fn buffers(chain: &Chain) -> Result<(u64, u64), Broken> {
    let (mut buffers, mut bytes) = (0, 0);
    for (index, part) in chain.clone().enumerate() {
        if index == BUFFERS {
            return Err(TOO_LONG);
        }
        buffers += 1;
        if !part.is_write_only() {
            bytes += u64::from(part.len());
        }
    }
    Ok((buffers, bytes))
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("queues", &self.queues)
            .field("features", &format_args!("{:#x}", self.features))
            .finish_non_exhaustive()
    }
}
