// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A driver that tests of devices play by hand.

use super::{Driver, Interrupt, Memory};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// Size of guest memory in bytes.
pub const MEMORY: usize = 4 << 20;
/// The first address that is free for buffers.
pub const FREE: u64 = 1 << 20;
const QUEUE: u64 = 0x10000;
/// Where the available ring of queue 0 lies.
pub const RING: u64 = QUEUE + AVAILABLE;
const AVAILABLE: u64 = 0x8000;
const USED: u64 = 0xc000;
/// Entries of each queue.
pub const SIZE: u16 = 256;

const WRITE: u16 = 2;
const NEXT: u16 = 1;
const INDIRECT: u16 = 4;

/// Counts interrupts.
#[derive(Debug, Default)]
pub struct Count {
    pub used: AtomicUsize,
    pub config: AtomicUsize,
}

impl Interrupt for Count {
    fn used(&self) {
        self.used.fetch_add(1, Ordering::SeqCst);
    }

    fn config(&self, _bytes: &[u8]) {
        self.config.fetch_add(1, Ordering::SeqCst);
    }
}

/// A guest with some queues.
#[derive(Debug)]
pub struct Guest {
    pub memory: Arc<Memory>,
    pub count: Arc<Count>,
    queues: u64,
    next_descriptor: Vec<u16>,
    seen: Vec<u16>,
}

impl Guest {
    /// A guest whose driver has set up this many queues.
    pub fn new(queues: usize) -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap();
        Guest {
            memory: Arc::new(memory),
            count: Arc::default(),
            queues: queues as u64,
            next_descriptor: vec![0; queues],
            seen: vec![0; queues],
        }
    }

    /// The driver as the device sees it.
    pub fn driver(&self, features: u64) -> Driver {
        let queue = |index: u64| {
            let mut queue = Queue::new(SIZE).unwrap();
            let at = |offset: u64| Some(u32::try_from(QUEUE * (index + 1) + offset).unwrap());
            queue.set_desc_table_address(at(0), Some(0));
            queue.set_avail_ring_address(at(AVAILABLE), Some(0));
            queue.set_used_ring_address(at(USED), Some(0));
            queue.set_ready(true);
            assert!(queue.is_valid(&*self.memory));
            queue
        };
        Driver::new(
            Arc::clone(&self.memory),
            (0..self.queues).map(queue).collect(),
            features,
            Arc::clone(&self.count) as Arc<dyn Interrupt>,
        )
    }

    /// Makes a chain of buffers (address, length, whether the device writes) available. Returns its
    /// head.
    pub fn offer(&mut self, queue: usize, buffers: &[(u64, u32, bool)]) -> u16 {
        let base = QUEUE * (queue as u64 + 1);
        let head = self.next_descriptor[queue];
        for (index, &(address, length, write)) in buffers.iter().enumerate() {
            let this = self.next_descriptor[queue];
            let next = (this + 1) % SIZE;
            let more = index + 1 < buffers.len();
            let flags = if write { WRITE } else { 0 } | if more { NEXT } else { 0 };
            self.descriptor(queue, this, address, length, flags, next);
            self.next_descriptor[queue] = next;
        }
        let index: u16 = self.read(base + AVAILABLE + 2);
        self.write(base + AVAILABLE + 4 + u64::from(index % SIZE) * 2, head);
        self.write(base + AVAILABLE + 2, index.wrapping_add(1));
        head
    }

    /// Makes a chain with an indirect table of this many one-byte buffers available. Returns its
    /// head.
    pub fn offer_table(&mut self, queue: usize, table: u64, parts: u16) -> u16 {
        for index in 0..parts {
            let at = table + u64::from(index) * 16;
            self.write(at, FREE);
            self.write(at + 8, 1u32);
            self.write(
                at + 12,
                if index + 1 < parts {
                    NEXT | WRITE
                } else {
                    WRITE
                },
            );
            self.write(at + 14, index + 1);
        }
        let head = self.offer(queue, &[(table, 0, false)]);
        self.descriptor(queue, head, table, u32::from(parts) * 16, INDIRECT, 0);
        head
    }

    /// Writes a descriptor.
    pub fn descriptor(
        &self,
        queue: usize,
        index: u16,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    ) {
        let at = QUEUE * (queue as u64 + 1) + u64::from(index) * 16;
        self.write(at, address);
        self.write(at + 8, length);
        self.write(at + 12, flags);
        self.write(at + 14, next);
    }

    /// Adds to the index of the available ring.
    pub fn bump(&self, queue: usize, by: u16) {
        let at = QUEUE * (queue as u64 + 1) + AVAILABLE + 2;
        self.write(at, self.read::<u16>(at).wrapping_add(by));
    }

    /// Writes an entry of the available ring.
    pub fn entry(&self, queue: usize, index: u16, head: u16) {
        let at = QUEUE * (queue as u64 + 1) + AVAILABLE + 4;
        self.write(at + u64::from(index % SIZE) * 2, head);
    }

    /// Writes the flags of the available ring and the event index after it.
    pub fn flags(&self, queue: usize, flags: u16, event: u16) {
        let at = QUEUE * (queue as u64 + 1) + AVAILABLE;
        self.write(at, flags);
        self.write(at + 4 + u64::from(SIZE) * 2, event);
    }

    /// The chains that the device has used since the last call: heads, and bytes written.
    pub fn used(&mut self, queue: usize) -> Vec<(u16, u32)> {
        let base = QUEUE * (queue as u64 + 1) + USED;
        let index: u16 = self.read(base + 2);
        let mut all = Vec::new();
        while self.seen[queue] != index {
            let at = base + 4 + u64::from(self.seen[queue] % SIZE) * 8;
            all.push((
                u16::try_from(self.read::<u32>(at)).unwrap(),
                self.read(at + 4),
            ));
            self.seen[queue] = self.seen[queue].wrapping_add(1);
        }
        all
    }

    /// Writes to guest memory.
    pub fn write<T: vm_memory::ByteValued>(&self, address: u64, value: T) {
        self.memory.write_obj(value, GuestAddress(address)).unwrap();
    }

    /// Reads from guest memory.
    pub fn read<T: vm_memory::ByteValued>(&self, address: u64) -> T {
        self.memory.read_obj(GuestAddress(address)).unwrap()
    }

    /// Writes bytes to guest memory.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.memory
            .write_slice(bytes, GuestAddress(address))
            .unwrap();
    }

    /// Reads bytes from guest memory.
    pub fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory
            .read_slice(&mut bytes, GuestAddress(address))
            .unwrap();
        bytes
    }
}
