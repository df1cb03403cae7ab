// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets: a driver that does what the input says, for each device.
//!
//! An input is a list of steps: a well-formed request, descriptors and ring entries of any kind, indices that jump, indirect tables,
//! notifications, something that happens on the host. Whatever it does, the device must not panic, hang, or write
//! where no descriptor lets it.

use super::balloon::Balloon;
use super::blk::{Block, Mode};
use super::console::Console;
use super::fs::Fs;
use super::mmio::{Action, Registers};
use super::net::Net;
use super::page::Area;
use super::rng::Rng;
use super::testing::{FREE, Guest, MEMORY};
use super::vsock::{Hub, Vsock};
use super::{Device, Driver, Memory, Reactor, Wake};
use crate::confine;
use paravane_fuzz::{Input, fuzz};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use virtio_queue::QueueT;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// Steps of an input, at most.
const STEPS: usize = 200;
/// Bytes at the end of memory to which no descriptor with a right to write leads.
const CANARY: usize = 64 << 10;
const CANARY_AT: u64 = (MEMORY - CANARY) as u64;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Features of queues: event indices, indirect descriptors, version 1.
const EVENT_IDX: u64 = 1 << 29;
const INDIRECT_DESC: u64 = 1 << 28;
const VERSION_1: u64 = 1 << 32;

/// A request as a driver makes it: what the device reads, and the sizes of what it may write.
struct Request {
    out: Vec<u8>,
    room: Vec<u32>,
}

/// What a target adds to a driver that knows only queues.
trait Target {
    fn queues(&self) -> usize;
    fn device(&mut self) -> &mut dyn Device;
    /// The next request for a queue.
    fn request(&mut self, queue: usize, input: &mut Input<'_>) -> Request;
    /// Something happens on the host.
    fn host(&mut self, input: &mut Input<'_>);
}

struct Player<'a> {
    guest: Guest,
    driver: Driver,
    target: &'a mut dyn Target,
    features: u64,
    /// Where the next buffers lie.
    free: u64,
    /// No descriptor may lead to the canary.
    canary: bool,
}

fn play(target: &mut dyn Target, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let offered = target.device().features() | EVENT_IDX | INDIRECT_DESC;
    let features = input.u64() & offered | VERSION_1;
    let guest = Guest::new(target.queues());
    guest
        .memory
        .write_slice(&[0xc5; CANARY], GuestAddress(CANARY_AT))
        .unwrap();
    let mut player = Player {
        driver: guest.driver(features),
        guest,
        target,
        features,
        free: FREE,
        canary: true,
    };
    player.activate();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        player.step(&mut input);
    }
    player.target.device().reset();
    if player.canary {
        let end = player.guest.get(CANARY_AT, CANARY);
        assert!(end == [0xc5; CANARY], "written where no descriptor leads");
    }
}

impl Player<'_> {
    fn activate(&mut self) {
        self.driver = self.guest.driver(self.features);
        if self.target.device().activate(&mut self.driver).is_err() {
            self.target.device().reset();
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let queue = usize::from(input.u8()) % self.target.queues();
        match input.u8() % 16 {
            0 => {
                let (index, address) = (u16::from(input.u8()), self.address(input));
                let length = u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0);
                let (flags, next) = (input.u16() & 7 | input.u16() & 0xff00, u16::from(input.u8()));
                self.descriptor(queue, index, address, length, flags, next);
            }
            1 => self.guest.bump(queue, u16::from(input.u8() % 8)),
            2 => self.guest.bump(queue, input.u16()),
            3 => self.guest.entry(queue, input.u8().into(), input.u16()),
            4 => {
                // Only what no descriptor stands in: tables are written by steps that know what they do.
                let at = FREE + input.size() % (CANARY_AT - FREE - 64);
                self.guest.put(at, input.bytes(64));
            }
            5 => self.indirect(queue, input),
            6 => self.guest.flags(queue, input.u16(), input.u16()),
            7 => self.target.host(input),
            8 => {
                let done = self.target.device().woken(&mut self.driver);
                self.judge(done.is_ok());
            }
            9 | 10 => {
                let done = self.target.device().notified(&mut self.driver, queue);
                self.judge(done.is_ok());
            }
            11 => {
                let (at, bytes) = (usize::from(input.u8()), input.bytes(8));
                self.target.device().write_config(at, bytes);
            }
            _ => {
                self.request(queue, input);
                let done = self.target.device().notified(&mut self.driver, queue);
                self.judge(done.is_ok());
            }
        }
    }

    /// As a transport does: a driver that broke a rule starts again.
    fn judge(&mut self, good: bool) {
        if !good {
            self.target.device().reset();
            self.activate();
        }
    }

    fn address(&mut self, input: &mut Input<'_>) -> u64 {
        match input.u8() % 8 {
            0 => input.u64(),
            1 => MEMORY as u64 - u64::from(input.u16()),
            2 => 0x10000 + u64::from(input.u16()) * 4,
            _ => FREE + input.size() % (CANARY_AT - FREE),
        }
    }

    fn descriptor(&mut self, queue: usize, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        let end = address.saturating_add(length.into());
        // An indirect table can lie anywhere, and a ring that is written to can become anything.
        let rings = flags & WRITE != 0 && address < FREE;
        let writes = flags & WRITE != 0 && end > CANARY_AT;
        self.canary &= !rings && !writes && flags & INDIRECT == 0;
        self.guest.descriptor(queue, index, address, length, flags, next);
    }

    /// Room for buffers, which comes round again.
    fn place(&mut self, length: usize) -> u64 {
        let length = length as u64 + 64;
        if self.free + length > CANARY_AT {
            self.free = FREE;
        }
        self.free += length;
        self.free - length
    }

    /// A well-formed chain, its parts as the input wants them.
    fn request(&mut self, queue: usize, input: &mut Input<'_>) {
        let Request { out, room } = self.target.request(queue, input);
        let mut chain = Vec::new();
        let cut = usize::from(input.u8()).min(out.len());
        for part in [&out[..cut], &out[cut..]] {
            if !part.is_empty() {
                let at = self.place(part.len());
                self.guest.put(at, part);
                chain.push((at, u32::try_from(part.len()).unwrap_or(0), false));
            }
        }
        for size in room {
            let size = size.min(128 << 10);
            let at = self.place(size as usize);
            chain.push((at, size, true));
        }
        if !chain.is_empty() {
            self.guest.offer(queue, &chain);
        }
    }

    /// A descriptor that leads to a table of others.
    fn indirect(&mut self, queue: usize, input: &mut Input<'_>) {
        self.canary = false;
        let count = usize::from(input.u8() % 16);
        let table = self.place(count * 16);
        for index in 0..count as u64 {
            let address = self.address(input);
            let at = table + index * 16;
            self.guest.write(at, address);
            self.guest
                .write(at + 8, u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0));
            self.guest.write(at + 12, input.u16() & 7);
            self.guest.write(at + 14, u16::from(input.u8() % 20));
        }
        let length = u32::try_from(count * 16).unwrap_or(0) + u32::from(input.u8() % 3);
        let head = self.guest.offer(queue, &[(table, length, false)]);
        self.guest
            .descriptor(queue, head, table, length, INDIRECT | input.u16() & 3, input.u16());
        let done = self.target.device().notified(&mut self.driver, queue);
        self.judge(done.is_ok());
    }
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

fn start(device: &mut dyn Device) {
    device
        .start(&Reactor::new().unwrap().waker(0, Arc::new(Nobody)))
        .unwrap();
}

fn sizes(input: &mut Input<'_>) -> Vec<u32> {
    let count = input.u8() % 4;
    (0..count)
        .map(|_| u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0))
        .collect()
}

struct Simple<D> {
    device: D,
    queues: usize,
    /// The other side of a stream.
    peer: Option<UnixStream>,
}

impl<D: Device> Target for Simple<D> {
    fn queues(&self) -> usize {
        self.queues
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.device
    }

    fn request(&mut self, _: usize, input: &mut Input<'_>) -> Request {
        let length = usize::from(input.u8());
        Request {
            out: input.bytes(length).to_vec(),
            room: sizes(input),
        }
    }

    fn host(&mut self, input: &mut Input<'_>) {
        let Some(peer) = &mut self.peer else { return };
        match input.u8() % 3 {
            0 => drop(peer.read(&mut [0; 4096])),
            1 => drop(peer.write(input.bytes(100))),
            // It hangs up.
            _ => drop(peer.shutdown(std::net::Shutdown::Write)),
        }
    }
}

#[test]
fn balloon() {
    fuzz("balloon", || {
        |bytes| {
            let mut target = Simple {
                device: Balloon::default(),
                queues: 3,
                peer: None,
            };
            play(&mut target, bytes);
        }
    });
}

#[test]
fn rng() {
    fuzz("rng", || {
        |bytes| {
            let mut target = Simple {
                device: Rng::default(),
                queues: 1,
                peer: None,
            };
            play(&mut target, bytes);
        }
    });
}

#[test]
fn console() {
    fuzz("console", || {
        |bytes| {
            let (ours, peer) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            let mut device = Console::new(ours).unwrap();
            start(&mut device);
            play(
                &mut Simple {
                    device,
                    queues: 2,
                    peer: Some(peer),
                },
                bytes,
            );
        }
    });
}

struct Card(Simple<Net>);

impl Target for Card {
    fn queues(&self) -> usize {
        2
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.0.device
    }

    fn request(&mut self, queue: usize, input: &mut Input<'_>) -> Request {
        if queue == 0 {
            return Request {
                out: Vec::new(),
                room: sizes(input),
            };
        }
        let mut out = input.bytes(12).to_vec();
        let length = usize::try_from(input.size() % 70_000).unwrap_or(0);
        out.extend(input.bytes(64));
        out.resize(out.len() + length, 0x42);
        Request { out, room: Vec::new() }
    }

    fn host(&mut self, input: &mut Input<'_>) {
        self.0.host(input);
    }
}

#[test]
fn net() {
    fuzz("net", || {
        |bytes| {
            use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (ours, peer) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            let link = paravane_net::Link::messages(ours, 1500).unwrap();
            let mut device = Net::new(link, [2, 0, 0, 0, 0, 1]);
            start(&mut device);
            let peer = Some(UnixStream::from(peer));
            play(
                &mut Card(Simple {
                    device,
                    queues: 2,
                    peer,
                }),
                bytes,
            );
        }
    });
}

struct Sockets {
    device: Vsock,
    hub: Hub,
    listener: super::vsock::Listener,
    streams: Vec<UnixStream>,
}

impl Target for Sockets {
    fn queues(&self) -> usize {
        2
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.device
    }

    /// A packet: header, and data as it says, or not.
    fn request(&mut self, queue: usize, input: &mut Input<'_>) -> Request {
        if queue == 0 {
            return Request {
                out: Vec::new(),
                room: vec![input.pick(&[44, 43, 300, 4096, 70_000])],
            };
        }
        let length = usize::from(input.u8());
        let data = input.bytes(length);
        let (source, host) = (
            input.pick(&[3u64, 3, 3, 3, 2, u64::MAX]),
            input.pick(&[2u64, 2, 2, 2, 3]),
        );
        let mut out = source.to_le_bytes().to_vec();
        out.extend(host.to_le_bytes());
        out.extend(u32::from(input.u8() % 4).to_le_bytes());
        out.extend(input.pick(&[1u32, 1, 1, 2, 1 << 30, u32::MAX]).to_le_bytes());
        let said = if input.u8() % 8 == 0 {
            input.u32()
        } else {
            u32::try_from(data.len()).unwrap_or(0)
        };
        out.extend(said.to_le_bytes());
        out.extend(input.pick(&[1u16, 1, 1, 1, 2]).to_le_bytes());
        out.extend(u16::from(input.u8() % 9).to_le_bytes());
        out.extend(u32::from(input.u8() % 5).to_le_bytes());
        out.extend(u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0).to_le_bytes());
        out.extend(u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0).to_le_bytes());
        out.extend(data);
        Request { out, room: Vec::new() }
    }

    fn host(&mut self, input: &mut Input<'_>) {
        match input.u8() % 5 {
            0 => self.streams.extend(self.listener.accept(Some(Instant::now()))),
            1 => {
                // Nobody waits for the answer.
                let _ = self.hub.connect(input.u8().into(), Duration::ZERO);
            }
            2 => drop(self.streams.pop()),
            kind => {
                let Some(stream) = self.streams.last_mut() else { return };
                let _ = stream.set_nonblocking(true);
                if kind == 3 {
                    let _ = stream.write(input.bytes(100));
                } else {
                    let _ = stream.read(&mut [0; 4096]);
                }
            }
        }
    }
}

#[test]
fn vsock() {
    fuzz("vsock", || {
        |bytes| {
            let hub = Hub::default();
            let listener = hub.listen(1).unwrap();
            let mut device = Vsock::new(3, &hub).unwrap();
            start(&mut device);
            play(
                &mut Sockets {
                    device,
                    hub,
                    listener,
                    streams: Vec::new(),
                },
                bytes,
            );
        }
    });
}

struct Disk(Block);

impl Target for Disk {
    fn queues(&self) -> usize {
        1
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.0
    }

    fn request(&mut self, _: usize, input: &mut Input<'_>) -> Request {
        // Reads, writes, flush, identity, discard, zeroes; and any.
        let kind = input.pick(&[0u32, 1, 4, 8, 11, 13, 0xff]);
        let kind = if kind == 0xff { input.u32() } else { kind };
        let mut out = kind.to_le_bytes().to_vec();
        out.extend([0; 4]);
        out.extend(input.size().to_le_bytes());
        if matches!(kind, 11 | 13) {
            for _ in 0..input.u8() % 4 {
                out.extend(input.size().to_le_bytes());
                out.extend(u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0).to_le_bytes());
                out.extend(u32::from(input.u8() % 4).to_le_bytes());
            }
        } else if kind == 1 {
            let length = usize::from(input.u8() % 4) * 512 + usize::from(input.u8() % 32 / 30);
            out.extend([7; 2048].iter().take(length));
        }
        let mut room = sizes(input);
        if kind == 0 {
            room.iter_mut().for_each(|size| *size = *size % 9 * 512);
        }
        room.push(1);
        Request { out, room }
    }

    fn host(&mut self, _: &mut Input<'_>) {}
}

#[test]
fn blk() {
    fuzz("blk", || {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[5; 64 * 512]).unwrap();
        move |bytes| {
            let mode = match bytes.first() {
                Some(first) if first % 8 == 0 => Mode::ReadOnly,
                Some(first) if first % 8 == 1 => Mode::Write,
                _ => Mode::Snapshot,
            };
            let written = matches!(mode, Mode::Write);
            // A child that another test has just forked can hold the lock of the disk before for a moment.
            let deadline = Instant::now() + Duration::from_secs(5);
            let mut device = loop {
                match Block::new(file.path(), mode, "fuzz") {
                    Ok(device) => break device,
                    Err(error) => assert!(Instant::now() < deadline, "{error:#}"),
                }
                std::thread::yield_now();
            };
            start(&mut device);
            play(&mut Disk(device), bytes.get(1..).unwrap_or_default());
            // Neither longer nor shorter; and only who may write has written.
            let content = fs::read(file.path()).unwrap();
            assert!(content.len() == 64 * 512, "the disk's size has changed");
            assert!(written || content == [5; 64 * 512], "written to what is not");
            if content != [5; 64 * 512] {
                fs::write(file.path(), [5; 64 * 512]).unwrap();
            }
        }
    });
}

struct Folder(Fs);

impl Target for Folder {
    fn queues(&self) -> usize {
        2
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.0
    }

    /// A request of FUSE's: header, and a body that names what is there, or is anything.
    fn request(&mut self, _: usize, input: &mut Input<'_>) -> Request {
        let opcode = match input.u8() {
            known @ 0..=60 => u32::from(known),
            61..=0x80 => 1,
            _ => input.pick(&[26u32, 3, 14, 15, 16, 27, 28, 35, 44, 9, 42]),
        };
        let mut body = Vec::new();
        for _ in 0..input.u8() % 6 {
            match input.u8() % 5 {
                0 => body.extend(input.u64().to_le_bytes()),
                1 => body.extend(u64::from(input.u8() % 8).to_le_bytes()),
                2 => body.extend(input.pick(&[
                    &b"file\0"[..],
                    b"sub\0",
                    b"..\0",
                    b".\0",
                    b"/etc/passwd\0",
                    b"link\0",
                    b"a/b\0",
                    b"new\0",
                    b"",
                ])),
                3 => body.extend(u32::from(input.u8()).to_le_bytes()),
                _ => body.extend(input.bytes(24)),
            }
        }
        let node = if input.u8() % 8 == 0 {
            input.u64()
        } else {
            u64::from(input.u8() % 6)
        };
        let length = 40 + u32::try_from(body.len()).unwrap_or(0);
        let length = if input.u8() % 16 == 0 { input.u32() } else { length };
        let mut out = length.to_le_bytes().to_vec();
        out.extend(opcode.to_le_bytes());
        out.extend(input.u8().to_le_bytes());
        out.extend([0; 7]);
        out.extend(node.to_le_bytes());
        out.extend([0; 16]);
        out.extend(body);
        Request {
            out,
            room: vec![input.pick(&[4096, 16, 15, 80, 144, 70_000])],
        }
    }

    fn host(&mut self, _: &mut Input<'_>) {}
}

/// Makes the folder what it was.
fn fill(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Never through a link.
        let gone = if path.symlink_metadata().unwrap().is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        gone.unwrap();
    }
    fs::create_dir(folder.join("sub")).unwrap();
    fs::write(folder.join("file"), "content").unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
}

/// Under the thread's own policy and with the shared folder's files alone: what would get out of it ends the test.
#[test]
fn fs_() {
    let outer = tempfile::tempdir().unwrap();
    let shared = outer.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(outer.path().join("secret"), "x").unwrap();
    let device = Fs::new(&shared, "fuzz", false).unwrap();
    fuzz("fs", || {
        // The folder is put back by a thread that may do so.
        let ((ask, asked), (done, made)) = (channel::<()>(), channel());
        let folder = shared.clone();
        std::thread::spawn(move || {
            for () in asked {
                fill(&folder);
                done.send(()).unwrap();
            }
        });
        confine::enter("fs", &device.files()).unwrap();
        let mut target = Folder(device);
        move |bytes| {
            ask.send(()).unwrap();
            made.recv().unwrap();
            play(&mut target, bytes);
        }
    });
    assert_eq!(fs::read_to_string(outer.path().join("secret")).unwrap(), "x");
    let names: Vec<_> = fs::read_dir(outer.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// Accesses to the registers of a device.
#[test]
fn registers() {
    fuzz("registers", || {
        |bytes| {
            let mut input = Input::new(bytes);
            let page = Area::new(1).unwrap().page(0);
            let (ours, _peer) = UnixStream::pair().unwrap();
            let device = Console::new(ours).unwrap();
            let mut registers = Registers::new(page.clone(), &device).unwrap();
            let memory: Memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
            while !input.is_empty() {
                let offset = match input.u8() % 4 {
                    0 => input.u32(),
                    1 => 0x100 + u32::from(input.u8()),
                    _ => u32::from(input.u8() % 64) * 4,
                };
                let (width, value) = (input.pick(&[4u32, 4, 4, 4, 1, 2, 8, 3]), input.size());
                match registers.write(&memory, offset, width, value) {
                    Action::Reset => registers.reset(&device.config()),
                    Action::Activate => assert!(registers.active() && registers.features() & VERSION_1 != 0),
                    Action::Config { offset, bytes } => assert!(offset + bytes.len() <= device.config().len()),
                    Action::None => {}
                }
                if input.u8() == 0xee {
                    registers.needs_reset();
                    assert!(!registers.active());
                }
                for queue in registers.queues() {
                    assert!(!queue.ready() || queue.is_valid(&memory));
                }
            }
        }
    });
}
