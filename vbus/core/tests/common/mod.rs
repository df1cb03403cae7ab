// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client in the test's own memory.
#![allow(dead_code, clippy::unwrap_used)]

use paravane_vbus::{
    Access, ConnectionId, Credentials, Endpoint, Error, Kind, MemberId, MemoryContext, Name,
    Notify, Outside, Region, Vbus, devices, limits,
};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::memory::{ALIGN, Queue, size};
use paravane_vbus_shm::north::{Buffer, North, Posted, Returned};
use paravane_vbus_shm::signal::Side;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory of a client: addresses are offsets.
pub struct Memory {
    start: NonNull<u8>,
    len: usize,
}

impl Memory {
    pub fn new(len: usize) -> Arc<Self> {
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(Layout::from_size_align(len, ALIGN).unwrap()) };
        let start = NonNull::new(start).unwrap();
        Arc::new(Memory { start, len })
    }

    fn place(&self, ptr: u64, len: usize) -> Result<*mut u8, Outside> {
        let outside = Outside { ptr, len };
        let first = usize::try_from(ptr).map_err(|_| outside)?;
        match first.checked_add(len) {
            // SAFETY: within the allocation.
            Some(end) if end <= self.len => Ok(unsafe { self.start.as_ptr().add(first) }),
            _ => Err(outside),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.len, ALIGN).unwrap();
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

// SAFETY: the memory is accessed only by atomic operations and raw copies.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

// SAFETY: allocated as long as the value lives.
unsafe impl Region for Memory {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.start, self.len)
    }
}

impl MemoryContext for Memory {
    fn read(&self, ptr: u64, to: &mut [u8]) -> Result<(), Outside> {
        let from = self.place(ptr, to.len())?;
        // SAFETY: `place` has checked the range.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
        Ok(())
    }

    fn write(&self, ptr: u64, from: &[u8]) -> Result<(), Outside> {
        let to = self.place(ptr, from.len())?;
        // SAFETY: `place` has checked the range.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
        Ok(())
    }
}

/// Counts notifications.
#[derive(Default)]
pub struct Bell(pub AtomicU32);

impl Bell {
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Notify for Bell {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub const COUNT: u32 = 8;
const BUFFER: usize = 2048;

/// A client with one connection and both queues.
pub struct Client {
    pub member: MemberId,
    pub id: ConnectionId,
    pub memory: Arc<Memory>,
    pub bell: Arc<Bell>,
    pub rx: North<'static, Vec<Posted>>,
    pub tx: North<'static, Vec<Posted>>,
    /// Notifications to the device.
    pub to_rx: Side<'static>,
    pub to_tx: Side<'static>,
    sent: u64,
}

fn buffers(queue: u64) -> u64 {
    (2 * size(COUNT) as u64).next_multiple_of(4096) + queue * u64::from(COUNT) * BUFFER as u64
}

/// The address of memory for a packet of the largest size, of which each queue has one.
pub fn large(queue: u64) -> u64 {
    buffers(2) + queue * limits::PACKET as u64
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn who(process: u64, uid: u32) -> Credentials {
    Credentials {
        process,
        uid,
        gids: vec![uid + 1000],
    }
}

/// A system with a bus `lan` of users 7 and 8, and a device `dev` of a class on it.
pub fn system(class: &str) -> Vbus {
    let mut vbus = Vbus::new(devices::classes());
    vbus.create_bus(&name("lan")).unwrap();
    let access = Access {
        uids: [7, 8].into(),
        gids: [].into(),
    };
    vbus.set_access(&name("lan"), access).unwrap();
    let at_once = [("poll-us".to_string(), "0".to_string())];
    vbus.create_device(&name("dev"), class, &at_once).unwrap();
    assert_eq!(vbus.link(&name("lan"), &name("dev")), Ok(1));
    vbus
}

impl Client {
    /// Joins `lan` and opens its first device.
    pub fn open(vbus: &mut Vbus, process: u64) -> Self {
        let member = vbus.join(&name("lan"), who(process, 7), false).unwrap();
        let id = vbus.open(member, 1, 1).unwrap();
        let memory = Memory::new(usize::try_from(large(2)).unwrap());
        let bell = Arc::new(Bell::default());
        let make = |offset: usize, role: Role| {
            let (start, _) = memory.range();
            // SAFETY: within the memory, which the client keeps longer than its rings.
            unsafe { Queue::make(start.add(offset), size(COUNT), COUNT, role) }.unwrap()
        };
        let north = |queue: &Queue<'static>| {
            let posted = vec![Posted::default(); COUNT as usize];
            North::begin(queue.ring, queue.role, posted, u32::MAX - 2).unwrap()
        };
        let (rx, tx) = (make(0, Role::Receive), make(size(COUNT), Role::Transmit));
        let mut client = Client {
            member,
            id,
            rx: north(&rx),
            tx: north(&tx),
            to_rx: rx.to_south,
            to_tx: tx.to_south,
            memory,
            bell,
            sent: 0,
        };
        for queue in 0..2 {
            client.share(vbus, queue).unwrap();
        }
        client
    }

    pub fn share(&mut self, vbus: &mut Vbus, queue: u32) -> Result<(), Error> {
        let offset = u64::from(queue) * size(COUNT) as u64;
        let range = offset..offset + size(COUNT) as u64;
        vbus.share(self.member, self.id, queue, |role| {
            let (region, notify) = (self.memory.clone(), self.bell.clone());
            let memory = self.memory.clone();
            Endpoint::open(region, range, COUNT, role, memory, notify)
                .map_err(|error| Error::new(Kind::Broken, error.to_string()))
        })
    }

    /// Opens the device again, and shares only these queues.
    pub fn reopen(&mut self, vbus: &mut Vbus, queues: &[u32]) {
        vbus.close(self.member, self.id).unwrap();
        self.id = vbus.open(self.member, 1, 1).unwrap();
        for &queue in queues {
            self.share(vbus, queue).unwrap();
        }
    }

    /// Posts empty buffers, all that fit.
    pub fn post(&mut self, vbus: &mut Vbus) {
        while self.rx.room() > 0 {
            self.post_one(vbus);
        }
    }

    pub fn post_one(&mut self, vbus: &mut Vbus) {
        let slot = self.sent % u64::from(COUNT);
        self.sent += 1;
        let ptr = buffers(0) + slot * BUFFER as u64;
        self.rx.post(buffer(ptr, BUFFER)).unwrap();
        if self.to_rx.inject() {
            vbus.notified(self.id);
        }
    }

    /// Sends a packet if there is room, and notifies if the device wants it.
    pub fn send(&mut self, vbus: &mut Vbus, packet: &[u8]) -> bool {
        let slot = self.sent % u64::from(COUNT);
        let ptr = buffers(1) + slot * BUFFER as u64;
        if self.tx.room() == 0 {
            return false;
        }
        self.sent += 1;
        self.memory.write(ptr, packet).unwrap();
        self.tx.post(buffer(ptr, packet.len())).unwrap();
        if self.to_tx.inject() {
            vbus.notified(self.id);
        }
        true
    }

    /// The next packet that was received.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let Returned { cookie, used, .. } = self.rx.take().unwrap()?;
        let mut packet = vec![0; used as usize];
        self.memory.read(cookie, &mut packet).unwrap();
        Some(packet)
    }

    /// Number of packets that were delivered since the last call.
    pub fn reclaim(&mut self) -> u32 {
        let mut count = 0;
        while self.tx.take().unwrap().is_some() {
            count += 1;
        }
        count
    }
}

pub fn buffer(ptr: u64, len: usize) -> Buffer {
    Buffer {
        cookie: ptr,
        ptr,
        len: u32::try_from(len).unwrap(),
        flags: 0,
    }
}

/// Works until there is nothing more to do.
pub fn settle(vbus: &mut Vbus) {
    for _ in 0..1000 {
        if !vbus.has_work() {
            return;
        }
        assert_eq!(vbus.work(3), [], "a connection was reset");
    }
    unreachable!("the work has no end");
}

pub fn attribute(vbus: &Vbus, name: &str) -> u64 {
    let info = &vbus.device_infos()[0];
    let found = info.attributes.iter().find(|a| a.name == name);
    found.unwrap().value.parse().unwrap()
}
