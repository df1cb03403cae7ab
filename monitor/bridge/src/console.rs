// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A console on the machine's bus: bytes between the guest and a client of a Unix socket.
//!
//! One client at a time is served; others wait. Without a client the guest's bytes stay in its
//! queue, and bytes that a client has not taken go to the next client.

use crate::card::word;
use paravane_confine::pass_files;
use paravane_devices::{EventFlags, Waker};
use paravane_vbus::{
    Attribute, Broken, ConnectionId, Device, Endpoint, Error, Kind, QueueKind, Round, Sent, Work,
    devices,
};
use paravane_vbus_shm::Role;
use paravane_vbus_shm::layout;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use tracing::warn;

/// The interface's type.
const TYPE: &str = "virtual-console";

const QUEUES: &[QueueKind] = &[
    QueueKind {
        number: devices::RX,
        role: Role::Receive,
    },
    QueueKind {
        number: devices::TX,
        role: Role::Transmit,
    },
];

/// The longest packet of the guest, in bytes.
const PACKET: usize = word(layout::VBUS_CONSOLE_PACKET) as usize;
/// Bytes that are read from a client at once.
const PART: usize = 1024;
/// The flag of a buffer after which another one of the same packet follows. A console has no
/// packets, so the guest does not care.
const MORE: u32 = 1;

/// The console.
#[derive(Debug)]
pub struct Console {
    listener: UnixListener,
    client: Option<UnixStream>,
    /// The client takes no more bytes: it has probably left. The bytes that it has sent are still
    /// read.
    deaf: bool,
    /// Why the last client could not be taken. Until one was, its call to the socket would be
    /// reported over and over.
    refused: Option<Errno>,
    id: Option<ConnectionId>,
    rx: Option<Endpoint>,
    tx: Option<Endpoint>,
    /// Bytes of the guest, of which `written` were written to a client.
    output: Vec<u8>,
    written: usize,
    /// The guest has not got the buffer of these bytes back.
    held: bool,
    /// Bytes of a client for which the guest has no buffer.
    input: Vec<u8>,
    waker: Option<Waker>,
    clients: u64,
}

impl Console {
    /// A console whose clients connect to this socket.
    ///
    /// # Errors
    /// The socket cannot be made as the console needs it.
    pub fn new(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // An older kernel closes what came on the thread of the console.
        pass_files(&listener, false)?;
        Ok(Console {
            listener,
            client: None,
            deaf: false,
            refused: None,
            id: None,
            rx: None,
            tx: None,
            output: Vec::new(),
            written: 0,
            held: false,
            input: Vec::new(),
            waker: None,
            clients: 0,
        })
    }

    /// Gives the console its first client.
    ///
    /// # Errors
    /// The client cannot be made non-blocking.
    pub(crate) fn with_client(mut self, client: UnixStream) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        (self.client, self.clients) = (Some(client), 1);
        Ok(self)
    }

    pub(crate) fn start(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    /// The guest's bytes that were taken and not written yet.
    fn left(&self) -> &[u8] {
        self.output.get(self.written..).unwrap_or_default()
    }

    /// Takes a client if there is none.
    fn welcome(&mut self) {
        if self.client.is_some() {
            return;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.listener, flags) {
            Ok(socket) => {
                self.client = Some(UnixStream::from(socket));
                (self.deaf, self.refused) = (false, None);
                self.clients += 1;
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => self.refused = None,
            // This process or the host has no descriptor or no memory left.
            Err(error) => {
                if self.refused.replace(error) != Some(error) {
                    warn!("console: cannot take a client: {error}");
                }
            }
        }
    }

    /// Whether there is a client that takes bytes.
    fn hears(&self) -> bool {
        self.client.is_some() && !self.deaf
    }

    /// Writes what is left. Returns whether any of it was written.
    fn flush(&mut self) -> bool {
        let before = self.written;
        while let Some(client) = self.client.as_mut().filter(|_| !self.deaf) {
            let left = self.output.get(self.written..).unwrap_or_default();
            if left.is_empty() {
                break;
            }
            match client.write(left) {
                Ok(count) if count > 0 => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // It has gone. The next one gets the rest.
                Ok(_) | Err(_) => self.deaf = true,
            }
        }
        if self.held && self.left().is_empty() {
            self.held = false;
            if let Some(tx) = &mut self.tx {
                tx.complete(self.output.len());
            }
        }
        self.written > before
    }

    /// Passes bytes of the guest on. Returns whether it did something.
    fn print(&mut self) -> Result<bool, Broken> {
        if !self.left().is_empty() {
            return Ok(self.flush());
        }
        let hears = self.hears();
        let Some(tx) = self.tx.as_mut().filter(|_| hears) else {
            return Ok(false);
        };
        self.written = 0;
        self.output.clear();
        match tx.packet(&mut self.output, PACKET) {
            Ok(None) => Ok(false),
            Ok(Some(_)) => {
                self.held = true;
                self.flush();
                Ok(true)
            }
            Err(broken) => {
                self.output.clear();
                Err(broken)
            }
        }
    }

    /// Passes bytes of the client on. Returns whether it did something.
    fn read(&mut self) -> Result<bool, Broken> {
        let Some(rx) = &mut self.rx else {
            return Ok(false);
        };
        if let (true, Some(client)) = (self.input.is_empty(), &mut self.client) {
            let mut part = [0; PART];
            match client.read(&mut part) {
                Ok(count) if count > 0 => {
                    let bytes = part.get(..count).unwrap_or_default();
                    self.input.extend_from_slice(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
                Ok(_) | Err(_) => {
                    self.client = None;
                    return Ok(true);
                }
            }
        }
        if self.input.is_empty() {
            return Ok(false);
        }
        // Input that is larger than all of the guest's buffers is lost.
        let waits = rx.scatter(&self.input, 0, MORE)? == Sent::NoBuffer;
        if !waits {
            self.input.clear();
        }
        Ok(!waits)
    }

    /// Moves bytes in both directions. Returns whether it did something, and whether there may be
    /// more.
    fn pass(&mut self, budget: u32) -> Result<(bool, bool), Broken> {
        let mut done = false;
        for _ in 0..budget {
            self.welcome();
            let printed = self.print()?;
            if !(self.read()? | printed) {
                return Ok((done, false));
            }
            done = true;
        }
        Ok((done, true))
    }

    /// Waits for the host.
    fn arm(&self) {
        let Some(waker) = &self.waker else { return };
        let armed = match &self.client {
            // The guest's next packet is the next occasion.
            None if self.refused.is_some() => {
                waker.disarm(&self.listener);
                return;
            }
            None => waker.arm(&self.listener, EventFlags::IN),
            Some(client) => {
                let mut events = EventFlags::empty();
                events.set(EventFlags::OUT, !self.deaf && !self.left().is_empty());
                events.set(EventFlags::IN, self.input.is_empty() && self.rx.is_some());
                // One that has gone would be reported over and over while nothing asks it.
                if events.is_empty() {
                    waker.disarm(client);
                    return;
                }
                waker.arm(client, events)
            }
        };
        if let Err(error) = armed {
            warn!("console: cannot wait for the host: {error}");
        }
    }
}

impl Device for Console {
    fn interface(&self) -> &'static str {
        TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        vec![Attribute::figure("clients", self.clients)]
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        if self.id.is_some() {
            let text = "the console has a connection already";
            return Err(Error::new(Kind::Busy, text));
        }
        self.id = Some(id);
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if self.id == Some(id) {
            (self.id, self.rx, self.tx) = (None, None, None);
            self.held = false;
        }
    }

    fn share(&mut self, _: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        let place = match queue {
            devices::RX => &mut self.rx,
            devices::TX => &mut self.tx,
            _ => return Err(Error::new(Kind::NotFound, "the console has no such queue")),
        };
        if place.is_some() {
            return Err(Error::new(Kind::Exists, "the queue is shared already"));
        }
        *place = Some(endpoint);
        Ok(())
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        for queue in [&self.rx, &self.tx].into_iter().flatten() {
            queue.begin();
        }
        let passed = self.pass(budget);
        for queue in [&mut self.rx, &mut self.tx].into_iter().flatten() {
            queue.signal();
        }
        match passed {
            Ok((done, more)) => Work::of(done, more),
            Err(broken) => {
                round.broken.push((id, broken));
                Work::Nothing
            }
        }
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        // A person waits for a console, and notices no microseconds.
        false
    }

    fn adapts(&self) -> bool {
        false
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        let rests = |queue: &Endpoint| queue.rest() || queue.ready();
        let takes = self.hears() && self.left().is_empty();
        let tx = match &self.tx {
            Some(tx) if takes => rests(tx),
            // The buffers that it has posted already stay there.
            Some(tx) => self.refused.is_some() && tx.rest(),
            None => false,
        };
        let holds = !self.input.is_empty();
        let rx = self.rx.as_ref().filter(|_| holds).is_some_and(rests);
        if tx || rx {
            return true;
        }
        self.arm();
        false
    }
}
