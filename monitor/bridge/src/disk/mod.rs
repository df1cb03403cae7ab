// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk on the machine's bus. It works on files as virtio-blk does, by the same [`Service`], and
//! accesses guest memory in place.
//!
//! A request's status is stored as soon as it is done. Its descriptors go back when those of all
//! earlier requests do. The guest is notified once for all requests of a round, if it wants
//! notifications.

mod request;
#[cfg(test)]
mod tests;

use crate::card::word;
use crate::presence::Presence;
use paravane_devices::blk::{BLOCK, Disk as Store, Heuristics, PHYSICAL_BLOCK, RANGE_MAX, Service};
use paravane_devices::{Memory, Waker};
use paravane_vbus::devices::block;
use paravane_vbus::{
    Attribute, Broken, ConnectionId, Device, Endpoint, Error, Kind, QueueKind, Round, Work, devices,
};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::layout::{self, BlockGeometry};
use request::{Parts, Request, SEGMENTS};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

const QUEUES: &[QueueKind] = &[QueueKind {
    number: devices::TX,
    role: Role::Transmit,
}];

/// The memory of the guest, once there is one.
pub type Attached = Arc<OnceLock<Arc<Memory>>>;

/// What a disk does wrong, to test drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It ends the connection instead of this request, counted from 1, and of each multiple of it.
    #[cfg(any(test, feature = "test-hooks"))]
    Breaks(u64),
    /// It is taken from the bus when it should begin this request.
    #[cfg(any(test, feature = "test-hooks"))]
    Vanishes(u64),
}

/// A request that was taken and whose descriptors have not gone back.
#[derive(Debug)]
struct Taken {
    status: u64,
    descriptors: u32,
    bytes: u64,
    done: bool,
}

/// The disk.
#[derive(Debug)]
pub struct Disk {
    service: Service<Request>,
    serial: String,
    memory: Attached,
    id: Option<ConnectionId>,
    queue: Option<Endpoint>,
    /// A request of which descriptors are missing.
    parts: Option<Parts>,
    /// The oldest first.
    taken: VecDeque<Taken>,
    /// The number of the oldest.
    first: u64,
    /// Of these the service has not said that they are done.
    under_way: usize,
    presence: Arc<Presence>,
    /// Requests so far.
    begun: u64,
    fault: Fault,
}

impl Disk {
    /// A disk. The guest sees `serial`, of which 24 bytes are used.
    #[must_use]
    pub fn new(store: Store, serial: &str) -> Self {
        Disk {
            service: Service::new(store),
            serial: serial.to_string(),
            memory: Attached::default(),
            id: None,
            queue: None,
            parts: None,
            taken: VecDeque::new(),
            first: 0,
            under_way: 0,
            presence: Arc::default(),
            begun: 0,
            fault: Fault::None,
        }
    }

    /// Plants a fault in the disk.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    /// Uses these heuristics, and no others.
    #[must_use]
    pub fn with(mut self, heuristics: Heuristics) -> Self {
        self.service.set_heuristics(heuristics);
        self
    }

    /// Where it expects the guest's memory.
    pub(crate) fn memory(&self) -> Attached {
        Arc::clone(&self.memory)
    }

    pub(crate) fn presence(&self) -> Arc<Presence> {
        Arc::clone(&self.presence)
    }

    pub(crate) fn start(&mut self, waker: &Waker) {
        self.service.start(waker);
    }

    /// The next request of which all descriptors are there.
    fn next(&mut self, memory: &Arc<Memory>) -> Result<Option<Request>, Broken> {
        let Some(queue) = &mut self.queue else {
            return Ok(None);
        };
        // A request has a bounded number of descriptors.
        while let Some(place) = queue.next_place()? {
            let (parts, more) = match self.parts.take() {
                None => Parts::begin(memory, &place)?,
                Some(mut parts) => {
                    let more = parts.add(&place)?;
                    (parts, more)
                }
            };
            if more {
                self.parts = Some(parts);
                continue;
            }
            let number = self.first.wrapping_add(self.taken.len() as u64);
            self.taken.push_back(Taken {
                status: parts.status,
                descriptors: parts.descriptors,
                bytes: parts.bytes(),
                done: false,
            });
            self.under_way += 1;
            return Ok(Some(parts.whole(number)));
        }
        Ok(None)
    }

    /// Does its fault, if it is time.
    fn fail(&mut self) -> Result<(), Broken> {
        self.begun += 1;
        match self.fault {
            Fault::None => Ok(()),
            #[cfg(any(test, feature = "test-hooks"))]
            Fault::Breaks(each) if !self.begun.is_multiple_of(each) => Ok(()),
            #[cfg(any(test, feature = "test-hooks"))]
            Fault::Vanishes(at) if self.begun < at => Ok(()),
            #[cfg(any(test, feature = "test-hooks"))]
            Fault::Vanishes(_) => {
                self.presence.set(0);
                Err(Broken::Parts)
            }
            #[cfg(any(test, feature = "test-hooks"))]
            Fault::Breaks(_) => Err(Broken::Parts),
        }
    }

    /// Reports the result of a request to the guest, and returns the descriptors that need not wait
    /// for others.
    fn finish(&mut self, memory: &Memory, (number, status): (u64, u32)) {
        let index = usize::try_from(number.wrapping_sub(self.first)).ok();
        let Some(taken) = index.and_then(|index| self.taken.get_mut(index)) else {
            return;
        };
        request::tell(memory, taken.status, status);
        taken.done = true;
        self.under_way -= 1;
        let Some(queue) = &mut self.queue else {
            return;
        };
        queue.tell();
        while let Some(oldest) = self.taken.front().filter(|oldest| oldest.done) {
            let bytes = usize::try_from(oldest.bytes).unwrap_or(usize::MAX);
            queue.give_back(oldest.descriptors, bytes);
            self.taken.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    fn signal(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.signal();
        }
    }

    /// Returns whether it did something, and whether there may be more.
    fn pass(&mut self, memory: &Arc<Memory>, budget: u32) -> Result<(bool, bool), Broken> {
        let done = self.service.done();
        let mut some = !done.is_empty();
        for one in done {
            self.finish(memory, one);
        }
        let mut next = self.next(memory)?;
        for _ in 0..budget {
            let Some(request) = next else {
                return Ok((some, false));
            };
            some = true;
            self.fail()?;
            next = self.next(memory)?;
            let alone = next.is_none() && self.under_way == 1;
            if let Some(done) = self.service.begin(request, alone) {
                self.finish(memory, done);
            }
            if alone {
                next = self.next(memory)?;
                if next.is_some() {
                    // The next request may have to wait for the host.
                    self.signal();
                }
                self.service.alone_done(next.is_some());
            }
        }
        // A request that was taken is always begun.
        if let Some(done) = next.and_then(|request| self.service.begin(request, false)) {
            self.finish(memory, done);
        }
        Ok((some, true))
    }

    fn geometry(&self) -> [u8; block::GEOMETRY] {
        let disk = self.service.disk();
        let mut flags = layout::VBUS_BLOCK_HAS_FLUSH;
        flags |= if disk.is_read_only() {
            layout::VBUS_BLOCK_READ_ONLY
        } else {
            layout::VBUS_BLOCK_HAS_DISCARD | layout::VBUS_BLOCK_HAS_ZERO
        };
        let mut all = [0; block::GEOMETRY];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = all.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(
            offset_of!(BlockGeometry, sectors),
            &disk.sectors().to_le_bytes(),
        );
        for (at, value) in [
            (offset_of!(BlockGeometry, flags), word(flags)),
            (offset_of!(BlockGeometry, block), BLOCK),
            (offset_of!(BlockGeometry, physical), PHYSICAL_BLOCK),
            (offset_of!(BlockGeometry, segments), SEGMENTS),
            (offset_of!(BlockGeometry, most), RANGE_MAX),
        ] {
            put(at, &value.to_le_bytes());
        }
        let serial = self.serial.as_bytes();
        let room = size_of::<BlockGeometry>() - offset_of!(BlockGeometry, serial);
        put(
            offset_of!(BlockGeometry, serial),
            serial.get(..room).unwrap_or(serial),
        );
        all
    }
}

impl Device for Disk {
    fn interface(&self) -> &'static str {
        block::TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        vec![Attribute::figure("sectors", self.service.disk().sectors())]
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        if self.id.is_some() {
            return Err(Error::new(Kind::Busy, "the disk has a connection already"));
        }
        self.id = Some(id);
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if self.id != Some(id) {
            return;
        }
        // After this no thread touches the guest's buffers.
        self.service.clear();
        (self.id, self.queue, self.parts) = (None, None, None);
        self.first = self.first.wrapping_add(self.taken.len() as u64);
        self.taken.clear();
        self.under_way = 0;
    }

    fn call(
        &mut self,
        _: ConnectionId,
        call: u32,
        _: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        block::call(call, &self.geometry(), result)
    }

    fn share(&mut self, _: ConnectionId, _: u32, endpoint: Endpoint) -> Result<(), Error> {
        if self.queue.is_some() {
            return Err(Error::new(Kind::Exists, "the queue is shared already"));
        }
        self.queue = Some(endpoint);
        Ok(())
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        let Some(memory) = self.memory.get().map(Arc::clone) else {
            return Work::Nothing;
        };
        if let Some(queue) = &self.queue {
            queue.begin();
        }
        match self.pass(&memory, budget) {
            Ok((done, more)) => {
                self.signal();
                Work::of(done, more)
            }
            Err(broken) => {
                round.broken.push((id, broken));
                Work::Nothing
            }
        }
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        // The CPU is for the programs that wait for the disk.
        false
    }

    fn adapts(&self) -> bool {
        false
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        self.queue
            .as_ref()
            .is_some_and(|queue| queue.rest() || queue.ready())
    }
}
