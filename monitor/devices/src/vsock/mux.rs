// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All connections of a guest: what its packets mean, and what to send to it. Knows nothing of
//! queues and guest memory.

use super::connection::{Connection, Input};
use super::hub::Hub;
use super::packet::{HOST_CID, Header, SHUTDOWN_BOTH, SHUTDOWN_SEND, STREAM, op};
use crate::EventFlags;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most answers that wait for the guest to add buffers. Until then its packets are not read.
const ANSWERS: usize = 1024;
/// The first port of the host's end of connections that the host makes.
const FIRST_PORT: u32 = 1 << 30;

/// The ports of the host's and of the guest's end.
type Key = (u32, u32);

/// The connections.
#[derive(Debug)]
pub struct Mux {
    hub: Hub,
    /// The most connections at a time; further ones are refused.
    most: usize,
    cid: u64,
    connections: BTreeMap<Key, Connection>,
    /// Headers without data for the guest.
    answers: VecDeque<Header>,
    /// Connections that may have data for the guest.
    ready: VecDeque<Key>,
    /// The streams of the host's ends.
    files: OwnedFd,
    next_port: u32,
}

impl Mux {
    /// The connections of a guest with this address, of which there may be `most` at a time.
    ///
    /// # Errors
    /// The host's error.
    pub fn new(hub: Hub, cid: u64, most: usize) -> io::Result<Self> {
        Ok(Mux {
            hub,
            most,
            cid,
            connections: BTreeMap::new(),
            answers: VecDeque::new(),
            ready: VecDeque::new(),
            files: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            next_port: FIRST_PORT,
        })
    }

    /// Readable when [`poll`](Mux::poll) has something to do.
    pub fn files(&self) -> BorrowedFd<'_> {
        self.files.as_fd()
    }

    /// Drops all connections.
    pub fn reset(&mut self) {
        for (_, mut connection) in std::mem::take(&mut self.connections) {
            refuse(&mut connection);
        }
        self.answers.clear();
        self.ready.clear();
    }

    /// Whether packets of the guest may be taken. Otherwise packets must be sent to it first.
    pub fn takes(&self) -> bool {
        self.answers.len() < ANSWERS
    }

    /// Whether there may be something to send.
    pub fn has_output(&self) -> bool {
        !self.answers.is_empty() || !self.ready.is_empty()
    }

    /// Starts the connections that the host wants.
    pub fn connect(&mut self) {
        while self.takes() {
            let Some(request) = self.hub.next_request() else {
                return;
            };
            let port = self.free_port(request.port);
            let key = (port, request.port);
            match Connection::new(request.stream, Some(request.answer)) {
                Ok(mut connection) if self.connections.len() < self.most => {
                    let mut header = self.header(key, op::REQUEST);
                    connection.fill_credit(&mut header);
                    self.connections.insert(key, connection);
                    self.answers.push_back(header);
                    self.arm(key);
                }
                Ok(mut connection) => refuse(&mut connection),
                // Its end closes, so the host notices.
                Err(_) => {}
            }
        }
    }

    /// Handles a packet of the guest.
    pub fn receive(&mut self, header: &Header, data: &[u8]) {
        if header.source_cid != self.cid || header.target_cid != HOST_CID {
            return;
        }
        let key = (header.target_port, header.source_port);
        if header.kind != STREAM {
            if header.op != op::RST {
                let mut answer = self.header(key, op::RST);
                answer.kind = header.kind;
                self.answers.push_back(answer);
            }
            return;
        }
        if !self.take(key, header, data) {
            self.remove(key, true);
        }
    }

    /// False: the connection is over, and the guest needs a reset.
    fn take(&mut self, key: Key, header: &Header, data: &[u8]) -> bool {
        if self.connections.get(&key).is_some_and(|found| found.gone) {
            // For the guest, there is no such connection. The host gets the data that it sent
            // before.
            if header.op != op::RST {
                let answer = self.header(key, op::RST);
                self.answers.push_back(answer);
            }
            return true;
        }
        if header.op == op::RST {
            match self.connections.get_mut(&key) {
                Some(connection) if connection.outlives() => {
                    connection.leave();
                    self.arm(key);
                }
                _ => self.remove(key, false),
            }
            return true;
        }
        if header.op == op::REQUEST {
            return !self.connections.contains_key(&key) && self.accept(key, header);
        }
        let Some(connection) = self.connections.get_mut(&key) else {
            return false;
        };
        connection.note_credit(header);
        let good = match header.op {
            op::RESPONSE => match connection.answer.take() {
                // The receiver of the answer may have given up and closed the stream.
                Some(answer) => answer.send(Ok(())).is_ok(),
                None => false,
            },
            op::RW => connection.receive(data),
            op::SHUTDOWN => {
                connection.note_shutdown(header.flags);
                connection.open() && connection.flush()
            }
            op::CREDIT_UPDATE => true,
            op::CREDIT_REQUEST => {
                self.tell_credit(key);
                true
            }
            _ => false,
        };
        good && self.go_on(key)
    }

    fn accept(&mut self, key: Key, header: &Header) -> bool {
        if self.connections.len() >= self.most {
            return false;
        }
        let Some(stream) = self.hub.offer(key.0) else {
            return false;
        };
        let Ok(mut connection) = Connection::new(stream, None) else {
            return false;
        };
        connection.note_credit(header);
        let mut answer = self.header(key, op::RESPONSE);
        connection.fill_credit(&mut answer);
        self.connections.insert(key, connection);
        self.answers.push_back(answer);
        self.arm(key);
        true
    }

    /// Does what a connection needs next. False: it is over.
    fn go_on(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(&key) else {
            return true;
        };
        if !connection.peer_sends && !connection.peer_receives && !connection.waits() {
            return false;
        }
        let owes = connection.owes_credit();
        if connection.has_output() && !connection.queued {
            connection.queued = true;
            self.ready.push_back(key);
        }
        if owes {
            self.tell_credit(key);
        }
        self.arm(key);
        true
    }

    fn tell_credit(&mut self, key: Key) {
        let mut header = self.header(key, op::CREDIT_UPDATE);
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.fill_credit(&mut header);
            self.answers.push_back(header);
        }
    }

    /// Removes a connection, and sends the guest a reset if `tell` is set and the guest still has
    /// it.
    fn remove(&mut self, key: Key, tell: bool) {
        let mut gone = false;
        if let Some(mut connection) = self.connections.remove(&key) {
            gone = connection.gone;
            if connection.queued {
                self.ready.retain(|ready| *ready != key);
            }
            if gone {
                connection.discard();
            }
            refuse(&mut connection);
        }
        if tell && !gone {
            let header = self.header(key, op::RST);
            self.answers.push_back(header);
        }
    }

    /// How many places in the queue are taken.
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.ready.len()
    }

    /// Checks which streams of the host are ready.
    pub fn poll(&mut self) {
        let mut events = Vec::with_capacity(64);
        let none = Timespec::default();
        // One call: each stream is reported once until it is armed again, and the caller repeats
        // this as long as there are more.
        if epoll::wait(&self.files, spare_capacity(&mut events), Some(&none)).is_err() {
            return;
        }
        for event in events {
            let data = event.data.u64();
            let half = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(0);
            let (key, flags) = ((half(data >> 32), half(data)), event.flags);
            let Some(connection) = self.connections.get_mut(&key) else {
                continue;
            };
            let mut good =
                connection.open() || !flags.intersects(EventFlags::HUP | EventFlags::ERR);
            if flags.intersects(EventFlags::OUT | EventFlags::ERR) {
                good &= connection.flush();
            }
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP) {
                connection.readable = true;
            }
            if !(good && self.go_on(key)) {
                self.remove(key, true);
            }
        }
    }

    /// The next packet for the guest; its data is at the beginning of `buffer`. `None` if there is
    /// none now.
    pub fn send(&mut self, buffer: &mut [u8]) -> Option<Header> {
        if let Some(header) = self.answers.pop_front() {
            return Some(header);
        }
        while let Some(key) = self.ready.pop_front() {
            let mut header = self.header(key, op::RW);
            let Some(connection) = self.connections.get_mut(&key) else {
                continue;
            };
            connection.queued = false;
            // It may have lost the right to send since.
            if !connection.has_output() {
                self.arm(key);
                continue;
            }
            match connection.read(buffer) {
                Input::Data(length) => {
                    header.length = u32::try_from(length).unwrap_or(0);
                    connection.fill_credit(&mut header);
                    // The others come first.
                    self.go_on(key);
                    return Some(header);
                }
                Input::Later => self.arm(key),
                Input::End(both) => {
                    header.op = op::SHUTDOWN;
                    header.flags = if both { SHUTDOWN_BOTH } else { SHUTDOWN_SEND };
                    connection.fill_credit(&mut header);
                    if both {
                        self.remove(key, false);
                    } else {
                        self.arm(key);
                    }
                    return Some(header);
                }
                Input::Broken => {
                    self.remove(key, false);
                    header.op = op::RST;
                    return Some(header);
                }
            }
        }
        None
    }

    fn header(&self, key: Key, op: u16) -> Header {
        Header {
            source_cid: HOST_CID,
            target_cid: self.cid,
            source_port: key.0,
            target_port: key.1,
            kind: STREAM,
            op,
            ..Header::default()
        }
    }

    fn free_port(&mut self, guest_port: u32) -> u32 {
        // There are fewer connections than ports.
        loop {
            let port = self.next_port;
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.connections.contains_key(&(port, guest_port)) {
                return port;
            }
        }
    }

    /// Arms a connection's stream for what the connection needs.
    fn arm(&self, key: Key) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        let mut events = EventFlags::empty();
        if connection.waits() {
            events |= EventFlags::OUT;
        }
        if connection.open()
            && !connection.readable
            && !connection.ended
            && connection.peer_receives
        {
            events |= EventFlags::IN | EventFlags::RDHUP;
        }
        // While the connection is not open, only the stream's end matters, which is always
        // reported.
        if events.is_empty() && connection.open() {
            return;
        }
        let data = epoll::EventData::new_u64(u64::from(key.0) << 32 | u64::from(key.1));
        let (file, events) = (connection.file(), events | EventFlags::ONESHOT);
        if epoll::modify(&self.files, file, data, events).is_err() {
            // Fails when the host has no memory left: the connection then hangs until one of its
            // ends closes it.
            let _ = epoll::add(&self.files, file, data, events);
        }
    }
}

/// Reports to the waiting caller that there is no connection.
fn refuse(connection: &mut Connection) {
    if let Some(answer) = connection.answer.take() {
        // The caller may have given up.
        let _ = answer.send(Err(io::ErrorKind::ConnectionRefused.into()));
    }
}
