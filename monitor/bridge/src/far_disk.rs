// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk on the bus of a vbusd. The monitor is the client. vbusd maps the monitor's memory, not
//! the guest's, and data is copied between the two. A request of the guest becomes requests of at
//! most [`PART`] bytes.
//!
//! Where vbusd ends, the guest's requests wait until the monitor has joined again, and are made
//! again as far as they were not done. Where an administrator takes the device from the bus, the
//! disk disappears from the guest.

use crate::join::Joiner;
use crate::place::{Place, Trouble, outcome};
use crate::presence::Presence;
use paravane_devices::Waker;
use paravane_vbus::devices::block::{self, Geometry, Parts, SECTOR, Wanted};
use paravane_vbus::{
    Attribute, Broken, ConnectionId, Device, Endpoint, Error, Kind, QueueKind, Round, Work, devices,
};
use paravane_vbus_client::{Error as ClientError, PART, Requests, Wish};
use paravane_vbus_shm::{Role, layout};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Requests to the bus at a time, and of the guest.
const DEPTH: u32 = 16;
const TAKEN: usize = 64;
/// Most bytes of a request of the guest. Linux's are smaller.
const MOST: usize = 64 << 20;

const QUEUES: &[QueueKind] = &[QueueKind {
    number: devices::TX,
    role: Role::Transmit,
}];

/// A request of the guest.
#[derive(Debug)]
struct Taken {
    parts: Parts,
    wanted: Wanted,
    /// Bytes that the bus was asked for, and that it has done.
    asked: usize,
    got: usize,
    /// The bus was asked for all of it.
    whole: bool,
    failed: bool,
    done: bool,
}

/// The disk.
#[derive(Debug)]
pub struct FarDisk {
    id: Option<ConnectionId>,
    queue: Option<Endpoint>,
    /// A request of which descriptors are missing.
    parts: Option<Parts>,
    /// The oldest first.
    taken: VecDeque<Taken>,
    /// Number of the oldest. No number is used twice.
    first: u64,
    geometry: Geometry,
    place: Place<Requests>,
    buffer: Vec<u8>,
}

impl Taken {
    fn new(parts: Parts, wanted: Wanted) -> Self {
        Taken {
            parts,
            wanted,
            asked: 0,
            got: 0,
            whole: false,
            failed: false,
            done: false,
        }
    }

    /// Makes the requests that are not done be sent again.
    fn rewind(&mut self) {
        self.asked = self.got;
        self.whole = false;
    }

    /// Bytes of the part from `start` on.
    fn part(&self, start: usize) -> usize {
        (self.parts.bytes() - start).min(PART)
    }
}

impl FarDisk {
    /// Joins a bus of the vbusd at `socket`, and connects to a device there.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses, or the device is no disk.
    pub fn join(socket: &Path, bus: &str, device: &str) -> Result<Self, ClientError> {
        let client = Requests::connect(socket, bus, device, DEPTH)?;
        Ok(FarDisk {
            id: None,
            queue: None,
            parts: None,
            taken: VecDeque::new(),
            first: 0,
            geometry: *client.geometry(),
            place: Place::new(client),
            buffer: vec![0; PART],
        })
    }

    pub(crate) fn start(&mut self, waker: &Waker, joiner: &Joiner) {
        self.place.start(waker, joiner);
    }

    pub(crate) fn presence(&self) -> Arc<Presence> {
        self.place.presence()
    }

    /// Takes what the thread that joins has found out. Another size is another disk.
    fn look_for_client(&mut self) {
        let geometry = &mut self.geometry;
        self.place.look(|client| {
            let found = *client.geometry();
            std::mem::replace(geometry, found) != found
        });
    }

    /// The connection has ended.
    fn lose(&mut self, why: &ClientError) {
        self.taken.iter_mut().for_each(Taken::rewind);
        self.place.lose(why);
    }

    /// Takes what the bus has done. Returns whether there was something.
    fn collect(&mut self) -> Result<bool, Trouble> {
        let mut some = false;
        while let Some(client) = &mut self.place.client {
            let Some(finished) = client.finished(&mut self.buffer)? else {
                break;
            };
            some = true;
            // It may be of a connection of the guest's that has ended.
            let index = finished.number.checked_sub(self.first);
            let index = index.and_then(|index| usize::try_from(index).ok());
            let taken = index.and_then(|index| self.taken.get_mut(index));
            let (Some(taken), Some(queue)) = (taken, &mut self.queue) else {
                continue;
            };
            let start = taken.got;
            taken.got += taken.part(start);
            taken.failed |= !finished.done;
            if matches!(taken.wanted, Wanted::Read(_)) && finished.done {
                let read = self.buffer.get(..finished.read).unwrap_or_default();
                taken.parts.write(queue, start, read)?;
            }
            if taken.whole && taken.got == taken.parts.bytes() {
                let status = if taken.failed {
                    layout::VBUS_BLOCK_FAILED
                } else {
                    layout::VBUS_BLOCK_DONE
                };
                taken.parts.finish(queue, status)?;
                taken.done = true;
                queue.tell();
            }
        }
        self.give_back();
        Ok(some)
    }

    /// Gives the guest the descriptors of requests that need not wait for others.
    fn give_back(&mut self) {
        let Some(queue) = &mut self.queue else {
            return;
        };
        while let Some(oldest) = self.taken.front().filter(|oldest| oldest.done) {
            queue.give_back(oldest.parts.descriptors(), oldest.parts.bytes());
            self.taken.pop_front();
            self.first += 1;
        }
    }

    /// Takes requests of the guest. Returns how many.
    fn take(&mut self, budget: u32) -> Result<u32, Broken> {
        let mut count = 0;
        while count < budget && self.taken.len() < TAKEN {
            let Some(queue) = &mut self.queue else {
                break;
            };
            let Some(parts) = Parts::next(queue, &mut self.parts)? else {
                break;
            };
            count += 1;
            let wanted = parts.wanted(&self.geometry, MOST);
            let mut taken = Taken::new(parts, wanted);
            if let Wanted::Refused(status) = wanted {
                taken.parts.finish(queue, status)?;
                (taken.done, taken.whole) = (true, true);
                queue.tell();
            }
            self.taken.push_back(taken);
        }
        self.give_back();
        Ok(count)
    }

    /// Asks the bus for what the guest wants, as much as there is room for.
    fn ask(&mut self) -> Result<(), Trouble> {
        let (Some(client), Some(queue)) = (&mut self.place.client, &self.queue) else {
            return Ok(());
        };
        let mut some = false;
        for (number, taken) in (self.first..).zip(&mut self.taken) {
            while !taken.whole && client.has_room() {
                let (start, len) = (taken.asked, taken.part(taken.asked));
                let at = start as u64 / SECTOR;
                let wish = match taken.wanted {
                    Wanted::Read(sector) => Wish::Read(sector + at, len),
                    Wanted::Write(sector) => {
                        let bytes = self.buffer.get_mut(..len).unwrap_or_default();
                        taken.parts.read(queue, start, bytes)?;
                        Wish::Write(sector + at, bytes)
                    }
                    Wanted::Flush | Wanted::Refused(_) => Wish::Flush,
                };
                client.post(number, wish)?;
                some = true;
                taken.asked += len;
                taken.whole = taken.asked == taken.parts.bytes();
            }
        }
        if some {
            client.flush();
        }
        Ok(())
    }

    /// Returns whether it did something, and whether there may be more.
    fn pass(&mut self, budget: u32) -> Result<(bool, bool), Trouble> {
        self.place.take_reports()?;
        let some = self.collect()?;
        let count = self.take(budget)?;
        self.ask()?;
        Ok((some || count > 0, count == budget))
    }

    fn signal(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.signal();
        }
    }
}

impl Device for FarDisk {
    fn interface(&self) -> &'static str {
        block::TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        self.place.attributes()
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        if self.id.is_some() {
            return Err(Error::new(Kind::Busy, "the disk has a connection already"));
        }
        self.id = Some(id);
        self.place.reported = true;
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if self.id != Some(id) {
            return;
        }
        // The bus may still carry out its requests, but touches the monitor's memory only.
        (self.id, self.queue, self.parts) = (None, None, None);
        self.first += self.taken.len() as u64;
        self.taken.clear();
    }

    fn call(
        &mut self,
        _: ConnectionId,
        call: u32,
        _: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        block::call(call, &self.geometry.encode(), result)
    }

    fn share(&mut self, _: ConnectionId, _: u32, endpoint: Endpoint) -> Result<(), Error> {
        if self.queue.is_some() {
            return Err(Error::new(Kind::Exists, "the queue is shared already"));
        }
        self.queue = Some(endpoint);
        Ok(())
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        self.look_for_client();
        if let Some(queue) = &self.queue {
            queue.begin();
        }
        let passed = self.pass(budget);
        self.signal();
        let (work, lost) = outcome(passed, id, round);
        if let Some(why) = lost {
            self.lose(&why);
        }
        work
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        // The CPU is for the programs that wait for the disk.
        false
    }

    fn adapts(&self) -> bool {
        false
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        let Some(client) = &self.place.client else {
            // Nothing to do before it has joined again. The guest's requests wait.
            return false;
        };
        let full = self.taken.len() == TAKEN;
        let queue = self.queue.as_ref().filter(|_| !full);
        let come = queue.is_some_and(|queue| queue.rest() || queue.ready());
        if !client.rest() | come {
            return true;
        }
        self.place.arm();
        false
    }

    fn woken(&mut self) {
        self.place.woken();
        self.look_for_client();
        if self.id.is_none() {
            // No driver makes it work.
            let done = self.place.take_reports().map_err(Trouble::Bus);
            if let Err(Trouble::Bus(why)) = done.and_then(|()| self.collect().map(|_| ())) {
                self.lose(&why);
            }
            self.place.arm();
        }
    }
}
