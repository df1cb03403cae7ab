// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports of a switch that share their memory.
#![allow(dead_code)]

use super::common::{Bell, COUNT, Memory, buffer, name, settle, who};
use paravane_vbus::ethernet::lent::{LENT, Lent};
use paravane_vbus::spaces::base;
use paravane_vbus::{
    ConnectionId, Endpoint, Error, Event, Kind, MemberId, MemoryContext, ReadOnly, Readable,
    Region, Spaces, Table, Vbus,
};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::loans::{Loans, words};
use paravane_vbus_shm::memory::{self, Queue, size};
use paravane_vbus_shm::north::{North, Posted};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a slot and of a buffer, and their numbers.
pub const SIZE: usize = 2048;
pub const SLOTS: u32 = 8;
/// A frame that is long enough to be lent.
pub const LONG: usize = 1500;

/// Where the words and the receive buffers are.
fn table() -> u64 {
    (2 * size(COUNT) as u64).next_multiple_of(4096)
}

fn received() -> u64 {
    table() + 4096
}

/// Memory that others read.
pub struct Slots(pub Arc<Memory>);

// SAFETY: allocated as long as the value lives.
unsafe impl Readable for Slots {
    fn range(&self) -> (NonNull<u8>, usize) {
        Region::range(&*self.0)
    }
}

/// A client that shares.
pub struct Port {
    pub member: MemberId,
    pub id: ConnectionId,
    pub memory: Arc<Memory>,
    pub slots: Arc<Memory>,
    pub loans: Loans<'static>,
    pub rx: North<'static, Vec<Posted>>,
    pub tx: North<'static, Vec<Posted>>,
    pub mac: [u8; 6],
    /// By place: the lender, and its memory.
    pub known: BTreeMap<u32, (u32, Arc<Memory>)>,
    pub handled: u32,
    /// The port's own memory, for packets that are copied.
    next: u64,
}

/// A frame that came.
#[derive(Debug)]
pub struct Got {
    /// The buffer that it came in.
    pub cookie: u64,
    /// Its bytes in the receiver's memory.
    pub bytes: Vec<u8>,
    /// Its record, if it was lent.
    pub lent: Option<Lent>,
}

impl Port {
    /// Joins, opens and offers its memory.
    pub fn offer(vbus: &mut Vbus, process: u64) -> Result<Self, Error> {
        let member = vbus.join(&name("lan"), who(process, 7), false)?;
        Port::offer_as(vbus, member)
    }

    pub fn offer_as(vbus: &mut Vbus, member: MemberId) -> Result<Self, Error> {
        let id = vbus.open(member, 1, 1)?;
        let len = received() + u64::from(2 * COUNT) * SIZE as u64;
        let memory = Memory::new(usize::try_from(len).unwrap());
        let slots = Memory::new(SLOTS as usize * SIZE);
        let (start, _) = memory.range();
        let offset = usize::try_from(table()).unwrap();
        // SAFETY: within the memory, which the port keeps.
        let found = unsafe { memory::words(start.add(offset), 4096, words(SLOTS)) };
        let make = |offset: usize, role: Role| {
            // SAFETY: as above.
            let queue: Queue<'static> =
                unsafe { Queue::make(start.add(offset), size(COUNT), COUNT, role) }.unwrap();
            let posted = vec![Posted::default(); COUNT as usize];
            North::begin(queue.ring, role, posted, u32::MAX - 2).unwrap()
        };
        let mut port = Port {
            member,
            id,
            rx: make(0, Role::Receive),
            tx: make(size(COUNT), Role::Transmit),
            slots,
            loans: Loans::new(found.unwrap()).unwrap(),
            mac: [0; 6],
            known: BTreeMap::new(),
            handled: 0,
            next: 0,
            memory,
        };
        port.lend(vbus)?;
        Ok(port)
    }

    pub fn lend(&mut self, vbus: &mut Vbus) -> Result<(), Error> {
        vbus.lend(self.member, self.id, || {
            let size = u32::try_from(SIZE).unwrap();
            Table::open(self.memory.clone(), table(), SLOTS, size)
                .map_err(|why| Error::new(Kind::Broken, why.to_string()))
        })
    }

    /// Shares its queues, and is up with all buffers posted.
    pub fn up(&mut self, vbus: &mut Vbus) {
        let mut spaces = Spaces::new(self.memory.clone(), 1);
        spaces.set(1, Some(Arc::new(ReadOnly(Slots(self.slots.clone())))));
        let spaces: Arc<dyn MemoryContext> = Arc::new(spaces);
        for queue in 0..2 {
            let offset = u64::from(queue) * size(COUNT) as u64;
            let shared = vbus.share(self.member, self.id, queue, |role| {
                let range = offset..offset + size(COUNT) as u64;
                let (region, bell) = (self.memory.clone(), Arc::new(Bell::default()));
                Endpoint::open(region, range, COUNT, role, spaces.clone(), bell)
                    .map_err(|why| Error::new(Kind::Broken, why.to_string()))
            });
            shared.unwrap();
        }
        let mac = vbus.call(self.member, self.id, 2, &[]).unwrap();
        self.mac = mac.try_into().unwrap();
        vbus.call(self.member, self.id, 0, &[]).unwrap();
        for number in 0..u64::from(COUNT) {
            self.post(vbus, received() + number * SIZE as u64);
        }
    }

    pub fn open(vbus: &mut Vbus, process: u64) -> Self {
        let mut port = Port::offer(vbus, process).unwrap();
        port.up(vbus);
        port
    }

    /// Posts a receive buffer, again if it was taken: that returns what was lent in it.
    pub fn post(&mut self, vbus: &mut Vbus, cookie: u64) {
        self.rx.post(buffer(cookie, SIZE)).unwrap();
        vbus.notified(self.id);
    }

    /// Takes the next event of a lender: maps what `slots` finds.
    pub fn hear(&mut self, vbus: &mut Vbus, slots: impl Fn(ConnectionId) -> Option<Arc<Memory>>) {
        match vbus.event(self.member) {
            Some(Event::Lends {
                connection,
                place,
                lender,
            }) if connection == self.id => {
                let lower = u32::try_from(lender.0).unwrap();
                let found = slots(lender);
                let mapped = if found.is_some() { lower } else { 0 };
                match found {
                    Some(memory) => self.known.insert(place, (lower, memory)),
                    None => self.known.remove(&place),
                };
                self.loans.set_mapped(place as usize, mapped);
            }
            Some(Event::Withdrawn { connection, place }) if connection == self.id => {
                self.known.remove(&place);
                self.loans.set_mapped(place as usize, 0);
            }
            _ => return,
        }
        self.handled += 1;
        self.loans.set_handled(self.handled);
        vbus.notified(self.id);
    }

    /// A frame to this address, with a payload of one byte.
    pub fn frame(&self, to: [u8; 6], byte: u8, len: usize) -> Vec<u8> {
        let mut frame = [&to[..], &self.mac, &[8, 0]].concat();
        frame.resize(len, byte);
        frame
    }

    /// Posts a frame from this slot.
    pub fn send(&mut self, vbus: &mut Vbus, slot: u32, frame: &[u8]) {
        let at = u64::from(slot) * SIZE as u64;
        self.slots.write(at, frame).unwrap();
        self.tx.post(buffer(base(1) + at, frame.len())).unwrap();
        vbus.notified(self.id);
    }

    /// Posts a frame from its own memory.
    pub fn send_own(&mut self, vbus: &mut Vbus, frame: &[u8]) {
        let number = u64::from(COUNT) + self.next % u64::from(COUNT);
        self.next += 1;
        let at = received() + number * SIZE as u64;
        self.memory.write(at, frame).unwrap();
        self.tx.post(buffer(at, frame.len())).unwrap();
        vbus.notified(self.id);
    }

    /// The next frame. Its buffer stays here.
    pub fn take(&mut self) -> Option<Got> {
        let back = self.rx.take().unwrap()?;
        let mut bytes = vec![0; back.used as usize];
        self.memory.read(back.cookie, &mut bytes).unwrap();
        let lent = (back.flags == LENT).then(|| {
            let mut lent = Lent::default();
            assert!(lent.read(&bytes, bytes.len()), "it makes no sense");
            lent
        });
        Some(Got {
            cookie: back.cookie,
            bytes,
            lent,
        })
    }

    /// All bytes of a frame, also those in its sender's memory, as they are now.
    pub fn whole(&self, got: &Got) -> Vec<u8> {
        let Some(lent) = &got.lent else {
            return got.bytes.clone();
        };
        let (lender, memory) = &self.known[&lent.place];
        assert_eq!(*lender, lent.lender, "it is of another lender");
        let (first, len) = lent.head;
        let mut frame = got.bytes[first..first + len].to_vec();
        for &(offset, len) in &lent.parts {
            let mut part = vec![0; len as usize];
            memory.read(offset.into(), &mut part).unwrap();
            frame.extend(part);
        }
        frame
    }

    /// Numbers of the slots that are lent.
    pub fn lent(&self) -> Vec<u32> {
        (0..SLOTS)
            .filter(|&slot| !self.loans.is_free(slot))
            .collect()
    }

    /// Takes back its descriptors.
    pub fn reclaim(&mut self) -> u32 {
        let mut count = 0;
        while self.tx.take().unwrap().is_some() {
            count += 1;
        }
        count
    }
}

/// Lets all ports handle the announcements of each other.
pub fn acquaint(vbus: &mut Vbus, ports: &mut [&mut Port]) {
    for _ in 0..40 {
        settle(vbus);
        let all: Vec<_> = ports.iter().map(|p| (p.id, p.slots.clone())).collect();
        let find = |id| all.iter().find(|one| one.0 == id).map(|one| one.1.clone());
        for port in &mut *ports {
            port.hear(vbus, find);
        }
    }
    settle(vbus);
}
