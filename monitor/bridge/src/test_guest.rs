// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's driver that tests play by hand.

use crate::Bridge;
use crate::card::word;
use paravane_devices::counters::Counters;
use paravane_devices::{
    Area, Interrupt, Line, Machine, Memory, Message, NoMessage, OwnDevice, Page, Reactor, Wake,
    Waker,
};
use paravane_vbus_shm::layout::{self, Bridge as Registers, Command};
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::north::{Buffer, North, Posted};
use paravane_vbus_shm::ring::Role;
use paravane_vbus_shm::signal::Side;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap};

/// Bytes of guest memory.
pub const MEMORY: usize = 4 << 20;
/// Where the command, its data, the rings and the buffers lie.
pub const COMMAND: u64 = 0x1000;
pub const DATA: u64 = 0x2000;
pub const RINGS: u64 = 0x10000;
pub const BUFFERS: u64 = 0x100000;
/// Descriptors of a queue.
pub const COUNT: u32 = 16;
/// Buffers of a queue, each of a page. They are used in turn.
const PLACES: u64 = 128;
const _: () = assert!(PLACES > COUNT as u64);

/// vCPUs of the guest.
const VCPUS: usize = 2;

/// Counts interrupts of the line, and notes those of the guest's choice.
#[derive(Default)]
pub struct Count {
    pub raised: AtomicU32,
    pub sent: Mutex<Vec<Message>>,
}

impl Interrupt for Count {
    fn used(&self) {}
    fn config(&self, _: &[u8]) {}
}

impl Line for Count {
    fn raise(&self) {
        self.raised.fetch_add(1, Ordering::SeqCst);
    }

    fn message(&self, apic: u32, vector: u32) -> Result<Message, NoMessage> {
        Message::new(apic, vector, VCPUS)
    }

    fn send(&self, message: Message) {
        assert!((message.vcpu() as usize) < VCPUS && message.vector() >= 32);
        self.sent.lock().unwrap().push(message);
    }
}

/// Is never woken.
pub struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

pub fn waker() -> (Arc<Reactor>, Waker) {
    let reactor = Reactor::new().unwrap();
    let waker = reactor.waker(0, Arc::new(Nobody));
    (reactor, waker)
}

/// A queue of the guest.
pub struct Ring {
    pub north: North<'static, Vec<Posted>>,
    pub here: Side<'static>,
    pub there: Side<'static>,
    /// Its first buffer.
    buffers: u64,
    next: u64,
}

impl Ring {
    /// The address of the next buffer.
    fn place(&mut self) -> u64 {
        let ptr = self.buffers + self.next % PLACES * 0x1000;
        self.next += 1;
        ptr
    }

    /// Posts empty buffers of a size.
    pub fn post(&mut self, count: u32, len: u32) {
        for _ in 0..count {
            let ptr = self.place();
            let buffer = Buffer {
                cookie: ptr,
                ptr,
                len,
                flags: 0,
            };
            self.north.post(buffer).unwrap();
        }
    }

    /// The buffers that came back: bytes and flags.
    pub fn received(&mut self, memory: &Memory) -> Vec<(Vec<u8>, u32)> {
        let mut all = Vec::new();
        while let Some(returned) = self.north.take().unwrap() {
            let mut bytes = vec![0; returned.used as usize];
            let at = GuestAddress(returned.cookie);
            memory.read_slice(&mut bytes, at).unwrap();
            all.push((bytes, returned.flags));
        }
        all
    }
}

/// A guest with a bridge.
pub struct Guest {
    pub bridge: Bridge,
    pub memory: Arc<Memory>,
    pub page: Page,
    pub count: Arc<Count>,
    pub counters: Arc<Counters>,
    pub rx: Option<Ring>,
    pub tx: Option<Ring>,
    /// The pair that these are, and those of the others.
    pair: usize,
    others: Vec<[Option<Ring>; 2]>,
    pub events: Option<Ring>,
    pub reactor: Arc<Reactor>,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u32,
    pub interface: u32,
    pub connection: u32,
    pub number: u32,
    pub length: u32,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    pub interface: u32,
    pub connection: u32,
    pub queue: u32,
    pub number: u32,
    pub data: u64,
    pub length: u32,
    pub apic: u32,
}

impl Guest {
    pub fn new(mut bridge: Bridge) -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap();
        let memory: Arc<Memory> = Arc::new(memory);
        let (reactor, waker) = waker();
        bridge.start(&waker).unwrap();
        let page = Area::new(1).unwrap().page(0);
        let count = Arc::<Count>::default();
        let counters = Arc::<Counters>::default();
        bridge.attach(Machine {
            memory: Arc::clone(&memory),
            page: page.clone(),
            line: Arc::clone(&count) as Arc<dyn Line>,
            counters: Arc::clone(&counters),
        });
        Guest {
            bridge,
            memory,
            page,
            count,
            counters,
            rx: None,
            tx: None,
            pair: 0,
            others: Vec::new(),
            events: None,
            reactor,
        }
    }

    fn put(&self, offset: usize, value: u32) {
        let at = GuestAddress(COMMAND + offset as u64);
        self.memory.write_obj(value, at).unwrap();
    }

    fn get(&self, offset: usize) -> u32 {
        let at = GuestAddress(COMMAND + offset as u64);
        self.memory.read_obj(at).unwrap()
    }

    /// A command and its answer.
    pub fn ask(&mut self, command: u64, ask: Ask) -> Answer {
        self.put(offset_of!(Command, command), word(command));
        self.put(offset_of!(Command, status), u32::MAX);
        self.put(offset_of!(Command, interface), ask.interface);
        self.put(offset_of!(Command, connection), ask.connection);
        self.put(offset_of!(Command, queue), ask.queue);
        self.put(offset_of!(Command, number), ask.number);
        self.put(offset_of!(Command, length), ask.length);
        self.put(offset_of!(Command, apic), ask.apic);
        let at = GuestAddress(COMMAND + offset_of!(Command, data) as u64);
        self.memory.write_obj(ask.data, at).unwrap();
        self.store(COMMAND);
        Answer {
            status: self.get(offset_of!(Command, status)),
            interface: self.get(offset_of!(Command, interface)),
            connection: self.get(offset_of!(Command, connection)),
            number: self.get(offset_of!(Command, number)),
            length: self.get(offset_of!(Command, length)),
        }
    }

    /// A store to the command register.
    pub fn store(&mut self, address: u64) {
        let offset = u32::try_from(offset_of!(Registers, command)).unwrap();
        self.bridge.write(offset, 8, address);
    }

    /// A call of a device, whose argument and result are here.
    pub fn call(&mut self, call: u64, argument: &[u8]) -> Result<Vec<u8>, u32> {
        self.memory
            .write_slice(argument, GuestAddress(DATA))
            .unwrap();
        let answer = self.ask(
            layout::VBUS_COMMAND_CALL,
            Ask {
                number: word(call),
                data: DATA,
                length: u32::try_from(argument.len()).unwrap(),
                ..Ask::default()
            },
        );
        let mut bytes = vec![0; answer.length as usize];
        self.memory
            .read_slice(&mut bytes, GuestAddress(DATA))
            .unwrap();
        if answer.status == 0 {
            Ok(bytes)
        } else {
            Err(answer.status)
        }
    }

    fn ring(&self, queue: u32, role: Role) -> Ring {
        let at = RINGS + u64::from(queue) * 0x1000;
        let slice = self
            .memory
            .get_slice(GuestAddress(at), size(COUNT))
            .unwrap();
        let start = NonNull::new(slice.ptr_guard_mut().as_ptr()).unwrap();
        // SAFETY: guest memory lives as long as the test, and is accessed by atomic operations and
        // copies only.
        let made: Queue<'static> = unsafe { Queue::make(start, size(COUNT), COUNT, role) }.unwrap();
        let posted = vec![Posted::default(); COUNT as usize];
        Ring {
            north: North::begin(made.ring, role, posted, 0).unwrap(),
            here: made.to_north,
            there: made.to_south,
            buffers: match (queue, role) {
                (2, _) => BUFFERS + 0x200000,
                (_, Role::Receive) => BUFFERS + 0x80000 * u64::from(queue > 2),
                (_, Role::Transmit) => BUFFERS + 0x100000 + 0x80000 * u64::from(queue > 2),
            },
            next: 0,
        }
    }

    /// Shares a queue.
    pub fn share(&mut self, queue: u32, role: Role) -> u32 {
        let ring = self.ring(queue, role);
        let place = if queue == 2 {
            &mut self.events
        } else if role == Role::Receive {
            &mut self.rx
        } else {
            &mut self.tx
        };
        *place = Some(ring);
        let ask = Ask {
            queue,
            number: COUNT,
            data: RINGS + u64::from(queue) * 0x1000,
            ..Ask::default()
        };
        self.ask(layout::VBUS_COMMAND_SHARE, ask).status
    }

    /// Opens the card with these capabilities, shares the queues, and brings the link up.
    pub fn up(&mut self, caps: u64) {
        self.begin();
        self.open();
        let [a, b, c, d] = word(caps).to_le_bytes();
        self.call(layout::VBUS_ETHERNET_NEGCAP, &[0, 0, 0, 0, a, b, c, d])
            .unwrap();
        assert_eq!(self.share(0, Role::Receive), 0);
        assert_eq!(self.share(1, Role::Transmit), 0);
        self.call(layout::VBUS_ETHERNET_LINKUP, &[]).unwrap();
    }

    /// Brings the card up with several pairs of queues, and with events. The first pair is used.
    pub fn up_pairs(&mut self, caps: u64, pairs: u32) {
        self.begin();
        self.open();
        let [a, b, c, d] = word(caps).to_le_bytes();
        for (group, bits) in [(0, [a, b, c, d]), (1, [1, 0, 0, 0])] {
            let [a, b, c, d] = bits;
            self.call(layout::VBUS_ETHERNET_NEGCAP, &[group, 0, 0, 0, a, b, c, d])
                .unwrap();
        }
        let got = self.call(layout::VBUS_ETHERNET_PAIRS, &pairs.to_le_bytes());
        assert_eq!(got.unwrap(), pairs.to_le_bytes());
        assert_eq!(self.share(2, Role::Receive), 0);
        for pair in 0..pairs {
            let first = if pair == 0 { 0 } else { 2 * pair + 1 };
            self.switch_to(pair as usize);
            assert_eq!(self.share(first, Role::Receive), 0);
            assert_eq!(self.share(first + 1, Role::Transmit), 0);
        }
        self.switch_to(0);
        self.call(layout::VBUS_ETHERNET_LINKUP, &[]).unwrap();
    }

    /// Makes the calls that follow work on this pair.
    pub fn switch_to(&mut self, pair: usize) {
        while self.others.len() <= pair.max(self.pair) {
            self.others.push([None, None]);
        }
        self.others[self.pair] = [self.rx.take(), self.tx.take()];
        [self.rx, self.tx] = std::mem::take(&mut self.others[pair]);
        self.pair = pair;
    }

    /// Gives a queue a vector of a vCPU. Returns the status.
    pub fn choose(&mut self, queue: u32, apic: u32, vector: u32) -> u64 {
        let ask = Ask {
            queue,
            number: vector,
            apic,
            ..Ask::default()
        };
        self.ask(layout::VBUS_COMMAND_INTERRUPT, ask).status.into()
    }

    /// The interrupts since the last call: those of the line, and those of the guest's choice.
    pub fn interrupts(&self) -> (u32, Vec<(u32, u8)>) {
        let raised = self.count.raised.swap(0, Ordering::SeqCst);
        let sent = std::mem::take(&mut *self.count.sent.lock().unwrap());
        let parts = sent.iter().map(|sent| (sent.vcpu(), sent.vector()));
        (raised, parts.collect())
    }

    fn begin(&mut self) {
        let begun = self.ask(layout::VBUS_COMMAND_START, Ask::default());
        assert_eq!(begun.status, 0);
    }

    /// Opens the first connection to the device.
    fn open(&mut self) {
        let ask = Ask {
            interface: 1,
            number: 1,
            ..Ask::default()
        };
        let opened = self.ask(layout::VBUS_COMMAND_OPEN, ask);
        assert_eq!((opened.status, opened.connection), (0, 0));
    }

    /// Opens the disk, and shares its queue.
    pub fn open_disk(&mut self) {
        self.open();
        assert_eq!(self.share(1, Role::Transmit), 0);
    }

    /// Begins, and opens the disk.
    pub fn up_disk(&mut self) {
        self.begin();
        self.open_disk();
    }

    /// Begins, opens the console, and shares its queues.
    pub fn up_console(&mut self) {
        self.begin();
        self.open();
        assert_eq!(self.share(0, Role::Receive), 0);
        assert_eq!(self.share(1, Role::Transmit), 0);
    }

    /// Posts empty buffers of a size.
    pub fn post(&mut self, count: u32, len: u32) {
        self.rx.as_mut().unwrap().post(count, len);
    }

    /// Posts the parts of a frame, each with its flags.
    pub fn send(&mut self, parts: &[(&[u8], u64)]) {
        let memory = Arc::clone(&self.memory);
        let tx = self.tx.as_mut().unwrap();
        for (bytes, flags) in parts {
            let ptr = tx.place();
            memory.write_slice(bytes, GuestAddress(ptr)).unwrap();
            let buffer = Buffer {
                cookie: ptr,
                ptr,
                len: u32::try_from(bytes.len()).unwrap(),
                flags: word(*flags),
            };
            // Refused only where a fuzzed ring makes no sense any more.
            if tx.north.post(buffer).is_err() {
                return;
            }
        }
    }

    /// The buffers that came back: bytes and flags.
    pub fn received(&mut self) -> Vec<(Vec<u8>, u32)> {
        self.rx.as_mut().unwrap().received(&self.memory)
    }

    /// Lets the bridge work until it waits.
    pub fn work(&mut self, notified: u32) {
        let mut left = notified;
        for _ in 0..1_000_000 {
            left = self.bridge.serve(false, left);
            if left == 0 {
                return;
            }
        }
        panic!("the bridge never waits");
    }
}
