// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vbusd that sends and writes what a test wants. It accepts every client, and gives the test the
//! other ends of the client's sockets and memory.

use paravane_vbus::ethernet::call;
use paravane_vbus::{ConnectionId, Event, Interface};
use paravane_vbus_client::protocol::{Reply, Request, Shared, decode, encode, receive, send};
use paravane_vbus_shm::layout::{self, Descriptor, Ioq};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::dup;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, socket_with, socketpair,
};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;

/// What the device is, and says of itself.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub interface: String,
    /// The result of each call.
    pub result: Vec<u8>,
    /// The capabilities that a card agrees on.
    pub caps: u32,
    /// The request of this number, counted from 1, has this answer instead.
    pub odd: Option<(u32, Vec<u8>)>,
}

/// What a client has, seen from the device.
pub struct Theirs {
    control: OwnedFd,
    memory: File,
    /// Dropped, it ends the connection.
    bell: Option<OwnedFd>,
    /// Receive, transmit and events: place, descriptors, and the number of the next.
    queues: [(u64, u32, u32); 3],
}

pub struct HostileVbusd {
    _folder: TempDir,
    pub socket: PathBuf,
    script: Arc<Mutex<Script>>,
    clients: Receiver<Theirs>,
    count: Arc<AtomicU32>,
}

impl HostileVbusd {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        let (sender, clients) = channel();
        let script = Arc::<Mutex<Script>>::default();
        let (said, count) = (Arc::clone(&script), Arc::<AtomicU32>::default());
        let counts = Arc::clone(&count);
        thread::spawn(move || {
            while let Ok(client) = accept(&listener) {
                counts.fetch_add(1, Ordering::SeqCst);
                let (script, sender) = (said.lock().unwrap().clone(), sender.clone());
                thread::spawn(move || answer(&client, &script, &sender));
            }
        });
        HostileVbusd {
            _folder: folder,
            socket,
            script,
            clients,
            count,
        }
    }

    /// How many clients have come.
    pub fn clients(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// The result of `join` for a device, and that device's end, if a client got so far.
    pub fn join<T>(&self, script: Script, join: impl FnOnce() -> T) -> (T, Option<Theirs>) {
        *self.script.lock().unwrap() = script;
        let made = join();
        (made, self.clients.try_iter().last())
    }
}

/// Serves a client until it has shared its queues and asked what it wants, or has left.
fn answer(client: &OwnedFd, script: &Script, clients: &Sender<Theirs>) {
    let mut packet = vec![0; 64 << 10];
    let (mut memory, mut bell) = (None, None);
    let (mut queues, mut number) = ([(0, 0, 0); 3], 0);
    while let Ok((len, files)) = receive(client.as_fd(), &mut packet, RecvFlags::empty()) {
        number += 1;
        let mut theirs = Vec::new();
        let request = decode::<Request>(&packet[..len]).unwrap();
        let reply = match &request {
            Request::Interfaces => Reply::Interfaces(vec![Interface {
                id: 1,
                name: "dev".to_string(),
                interface: script.interface.clone(),
                version: 1,
            }]),
            Request::Open { .. } => {
                memory = files.into_iter().next().map(File::from);
                let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
                let pair = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
                bell = Some(pair.0);
                theirs = vec![eventfd(0, EventfdFlags::CLOEXEC).unwrap(), pair.1];
                Reply::Opened(ConnectionId(1))
            }
            Request::Share { shared, .. } => {
                let Shared {
                    queue,
                    offset,
                    count,
                } = *shared;
                queues[queue as usize] = (offset, count, 0);
                Reply::Done
            }
            Request::Call {
                call: call::NEGCAP,
                argument,
                ..
            } => {
                let mut group = argument[..4].to_vec();
                group.extend(script.caps.to_le_bytes());
                Reply::Bytes(group)
            }
            Request::Call { .. } => Reply::Bytes(script.result.clone()),
            _ => Reply::Done,
        };
        // Before the answer: the client goes on with that.
        if let (Some(memory), Request::Share { .. }) = (&memory, &request) {
            let theirs = Theirs {
                control: dup(client).unwrap(),
                memory: memory.try_clone().unwrap(),
                bell: bell.as_ref().map(|bell| dup(bell).unwrap()),
                queues,
            };
            let _ = clients.send(theirs);
        }
        let files: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
        let odd = script.odd.as_ref().filter(|(at, _)| *at == number);
        let packet = odd.map_or_else(|| encode(&reply).unwrap(), |(_, odd)| odd.clone());
        if packet.is_empty() || send(client.as_fd(), &packet, &files, SendFlags::NOSIGNAL).is_err()
        {
            return;
        }
    }
}

/// Places within a descriptor.
const PTR: u64 = offset_of!(Descriptor, ptr) as u64;
const LEN: u64 = offset_of!(Descriptor, len) as u64;
const USED: u64 = offset_of!(Descriptor, used) as u64;
const FLAGS: u64 = offset_of!(Descriptor, flags) as u64;
const OWNER: u64 = offset_of!(Descriptor, owner) as u64;

impl Theirs {
    pub fn read(&self, at: u64, to: &mut [u8]) {
        // Beyond the end there is nothing.
        let _ = self.memory.read_at(to, at);
    }

    /// Within the memory only: a file of these seals cannot grow.
    pub fn write(&self, at: u64, from: &[u8]) {
        let _ = self.memory.write_all_at(from, at);
    }

    pub fn word(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// The place of a ring, and its bytes.
    pub fn ring(&self, queue: usize) -> (u64, u64) {
        let (at, count, _) = self.queues[queue];
        let bytes = size_of::<Ioq>() as u64 + u64::from(count) * size_of::<Descriptor>() as u64;
        (at, bytes)
    }

    /// The next descriptor of a queue that the device has, and the place and bytes of its buffer.
    fn next(&self, queue: usize) -> Option<(u64, u64, u32)> {
        let (at, count, next) = self.queues[queue];
        if count == 0 {
            return None;
        }
        let slot = u64::from(next % count) * size_of::<Descriptor>() as u64;
        let place = at + size_of::<Ioq>() as u64 + slot;
        let mut ptr = [0; 8];
        self.read(place + PTR, &mut ptr);
        let owned = u64::from(self.word(place + OWNER)) == layout::VBUS_SOUTH;
        owned.then(|| (place, u64::from_le_bytes(ptr), self.word(place + LEN)))
    }

    fn give(&mut self, queue: usize, place: u64, index: usize) {
        let (at, _, next) = &mut self.queues[queue];
        *next = next.wrapping_add(1);
        let (at, next) = (*at + index as u64, *next);
        self.write(at, &next.to_le_bytes());
        let owner = u32::try_from(layout::VBUS_NORTH).unwrap();
        self.write(place + OWNER, &owner.to_le_bytes());
        self.ring_bell();
    }

    /// Fills the client's next buffer, as a device does, and says that it has `used` bytes.
    pub fn fill(&mut self, bytes: &[u8], used: u32, flags: u32) {
        self.fill_of(0, bytes, used, flags);
    }

    /// Fills the client's next buffer for an event.
    pub fn send_event(&mut self, bytes: &[u8], used: u32) {
        self.fill_of(2, bytes, used, 0);
    }

    fn fill_of(&mut self, queue: usize, bytes: &[u8], used: u32, flags: u32) {
        let Some((place, ptr, len)) = self.next(queue) else {
            return;
        };
        let most = bytes.len().min(len as usize);
        self.write(ptr, &bytes[..most]);
        self.write(place + USED, &used.to_le_bytes());
        self.write(place + FLAGS, &flags.to_le_bytes());
        self.give(queue, place, offset_of!(Ioq, inuse_tail));
    }

    /// Takes the client's next buffer, as a device does: `answer` gets what is in it and returns
    /// what the device writes there.
    pub fn take(&mut self, answer: impl FnOnce(&[u8]) -> Vec<u8>) -> bool {
        let Some((place, ptr, len)) = self.next(1) else {
            return false;
        };
        let mut bytes = vec![0; (len as usize).min(1 << 17)];
        self.read(ptr, &mut bytes);
        self.write(ptr, &answer(&bytes));
        self.give(1, place, offset_of!(Ioq, inuse_head));
        true
    }

    pub fn ring_bell(&self) {
        if let Some(bell) = &self.bell {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(bell, &[1], flags);
        }
    }

    pub fn hang_up(&mut self) {
        if let Some(bell) = self.bell.take() {
            let _ = rustix::net::shutdown(&bell, rustix::net::Shutdown::Both);
        }
    }

    /// Sends the client this, which it has not asked for.
    pub fn say(&self, packet: &[u8]) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.control, packet, flags);
    }

    /// Says that another client lends, with this file.
    pub fn lends(&self, place: u32, lender: u64, file: Option<&OwnedFd>) {
        let event = Reply::Event(Event::Lends {
            connection: ConnectionId(1),
            place,
            lender: ConnectionId(lender),
        });
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let files: Vec<_> = file.map(AsFd::as_fd).into_iter().collect();
        let _ = send(
            self.control.as_fd(),
            &encode(&event).unwrap(),
            &files,
            flags,
        );
    }

    pub fn tell(&self, event: Event) {
        self.say(&encode(&Reply::Event(event)).unwrap());
    }
}
