// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of a bus with a connection to one device.

use crate::control::{Control, Error, unexpected, wait};
use crate::queues::{Queues, tx_offset};
use paravane_vbus::{ConnectionId, Event, Interface, Kind, Name};
use paravane_vbus_protocol::{Reply, Request, Shared};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Type of the devices that exchange Ethernet frames.
const ETHERNET: &str = "virtual-ethernet";
const LINKUP: u32 = 0;
const MACQUERY: u32 = 2;
const MACSET: u32 = 16;
/// Pause between two attempts to reconnect.
const PAUSE: Duration = Duration::from_millis(20);

/// What a client wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// vbusd's socket.
    pub socket: PathBuf,
    /// The bus.
    pub bus: String,
    /// The device.
    pub device: String,
    /// Descriptors of each queue: a power of two.
    pub count: u32,
    /// Bytes of a buffer.
    pub buffer: u32,
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is a packet, or room if it was awaited.
    Ready,
    /// An event of the bus came: [`Client::event`] has it.
    Event,
    /// The time is over.
    Time,
}

/// What a client counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that were posted.
    pub sent: u64,
    /// Packets that the device has taken over: they are not lost if vbusd dies.
    pub delivered: u64,
    /// Packets that were received.
    pub received: u64,
    /// Notifications to the device: host calls.
    pub notified: u64,
    /// Times that this client slept.
    pub slept: u64,
}

/// A client. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Client {
    options: Options,
    link: Link,
    queues: Queues,
    mac: Option<[u8; 6]>,
    /// What was counted.
    pub statistics: Statistics,
}

#[derive(Debug)]
struct Link {
    control: Control,
    connection: ConnectionId,
    interface: Interface,
    kick: OwnedFd,
    bell: OwnedFd,
}

impl Client {
    /// Joins a bus, opens a device, and posts all receive buffers.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses; the options are not possible.
    pub fn connect(options: Options) -> Result<Self, Error> {
        let mut queues = Queues::new(options.count, options.buffer)?;
        while queues.rx.post_next()? {}
        let mut mac = None;
        let link = open(&options, &queues, &mut mac)?;
        Ok(Client {
            options,
            link,
            queues,
            mac,
            statistics: Statistics::default(),
        })
    }

    /// The device's interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.link.interface
    }

    /// Its Ethernet address, if the device is of that type.
    #[must_use]
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    /// Posts a packet without notifying the device. False: no buffer is free.
    ///
    /// # Errors
    /// The packet is longer than a buffer, or the device broke the protocol.
    pub fn post(&mut self, packet: &[u8]) -> Result<bool, Error> {
        self.reclaim()?;
        let posted = self.queues.send(packet)?;
        self.statistics.sent += u64::from(posted);
        Ok(posted)
    }

    /// Notifies the device of what was posted, if it sleeps.
    pub fn flush(&mut self) {
        if self.queues.tx.inject() {
            self.notify();
        }
    }

    /// Posts a packet and notifies the device. False: no buffer is free.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub fn send(&mut self, packet: &[u8]) -> Result<bool, Error> {
        let posted = self.post(packet)?;
        self.flush();
        Ok(posted)
    }

    /// Copies the next packet into `to`, and returns its length, which may be larger than `to`.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn receive(&mut self, to: &mut [u8]) -> Result<Option<usize>, Error> {
        let len = self.queues.receive(to)?;
        if len.is_some() {
            self.statistics.received += 1;
            if self.queues.rx.inject() {
                self.notify();
            }
        }
        Ok(len)
    }

    /// Takes back the buffers of packets that the device has delivered, and counts them. Returns
    /// how many packets the device still has.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn reclaim(&mut self) -> Result<u32, Error> {
        // No more can come back than were posted.
        while self.queues.tx.take()?.is_some() {
            self.statistics.delivered += 1;
        }
        Ok(self.queues.tx.outstanding())
    }

    fn notify(&mut self) {
        self.statistics.notified += 1;
        // Fails only if the counter is full, which wakes all the same.
        let _ = rustix::io::write(&self.link.kick, &1u64.to_ne_bytes());
    }

    /// Waits for a packet, for an event, and with `room` for a packet that was delivered.
    ///
    /// # Errors
    /// [`Error::Lost`]: [`Client::reconnect`] may help.
    pub fn wait(&mut self, time: Option<Duration>, room: bool) -> Result<Woken, Error> {
        let (rx, tx) = (&self.queues.rx, &self.queues.tx);
        if rx.ready() || (room && tx.ready()) {
            return Ok(Woken::Ready);
        }
        if self.link.control.has_event() {
            return Ok(Woken::Event);
        }
        let rests = rx.rest() && (!room || tx.rest());
        let woken = if rests {
            self.statistics.slept += 1;
            self.sleep(time)
        } else {
            Ok(Woken::Ready)
        };
        self.queues.rx.watch();
        if room {
            self.queues.tx.watch();
        }
        woken
    }

    /// For a caller that waits for many files: asks for notifications on [`Client::files`]. False:
    /// there is a packet, or room if it is awaited, and the caller does not wait.
    #[must_use]
    pub fn rest(&mut self, room: bool) -> bool {
        let (rx, tx) = (&self.queues.rx, &self.queues.tx);
        if rx.ready() || (room && tx.ready()) || self.link.control.has_event() {
            return false;
        }
        rx.rest() && (!room || tx.rest())
    }

    /// Works again after [`Client::rest`]: there is no need to be notified.
    pub fn watch(&mut self) {
        self.queues.rx.watch();
        self.queues.tx.watch();
    }

    /// The files that become readable after [`Client::rest`]: for notifications, which
    /// [`Client::drain`] takes, and for events.
    #[must_use]
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.link.bell.as_fd(), self.link.control.socket()]
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<Woken, Error> {
        let link = &self.link;
        let file = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
        let mut files = [file(link.bell.as_fd()), file(link.control.socket())];
        if !wait(&mut files, time)? {
            return Ok(Woken::Time);
        }
        let [bell, control] = files.map(|file| !file.revents().is_empty());
        if bell {
            self.drain()?;
        }
        Ok(if control { Woken::Event } else { Woken::Ready })
    }

    /// Takes the notifications from the socket.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn drain(&self) -> Result<(), Error> {
        let mut bytes = [0; 64];
        match recv(&self.link.bell, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => {
                Err(Error::Lost("the device has closed it".to_string()))
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Host("cannot read a notification", error)),
        }
    }

    /// The next event of the bus, if one has come.
    ///
    /// # Errors
    /// [`Error::Lost`]: this connection was closed, or vbusd has ended.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        match self.link.control.event()? {
            Some(Event::Closed { connection, why }) if connection == self.link.connection => {
                Err(Error::Lost(why))
            }
            Some(Event::Removed) => Err(Error::Lost("the client is on no bus any more".into())),
            event => Ok(event),
        }
    }

    /// Calls the device.
    ///
    /// # Errors
    /// The device refuses, or vbusd has ended.
    pub fn call(&mut self, call: u32, argument: &[u8]) -> Result<Vec<u8>, Error> {
        self.link.call(call, argument)
    }

    /// Makes the connection anew after [`Error::Lost`], and continues where the device was: packets
    /// that were posted and not delivered are delivered, some perhaps twice. Tries until the time
    /// is over, since another vbusd may have to start first.
    ///
    /// # Errors
    /// The last attempt's. A vbusd that refuses for good ends the attempts.
    pub fn reconnect(&mut self, time: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + time;
        loop {
            let error = match open(&self.options, &self.queues, &mut self.mac) {
                Ok(link) => {
                    self.link = link;
                    // The new device may have had no notification of what was posted.
                    self.notify();
                    return Ok(());
                }
                Err(error) => error,
            };
            let again = match &error {
                Error::Refused(refused) => matches!(refused.kind(), Kind::NotFound | Kind::Busy),
                Error::Unreachable(..) | Error::Lost(_) => true,
                _ => false,
            };
            if !again || Instant::now() + PAUSE > deadline {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A file that is readable when [`Client::wait`] would return: the notifications'. Only while
    /// `wait` sleeps does the device notify.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.link.bell.as_fd()
    }
}

impl Link {
    fn call(&mut self, call: u32, argument: &[u8]) -> Result<Vec<u8>, Error> {
        let request = Request::Call {
            connection: self.connection,
            call,
            argument: argument.to_vec(),
        };
        match self.control.ask(&request)? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }
}

/// Joins, opens, shares both queues, and brings the link of an Ethernet device up.
fn open(options: &Options, queues: &Queues, mac: &mut Option<[u8; 6]>) -> Result<Link, Error> {
    let mut control = Control::connect(&options.socket)?;
    let bus = Name::new(&options.bus)?;
    control.ask(&Request::Join { bus })?;
    let found = match control.ask(&Request::Interfaces)? {
        Reply::Interfaces(all) => all.into_iter().find(|one| one.name == options.device),
        other => return Err(unexpected(&other)),
    };
    let interface = found.ok_or_else(|| {
        let text = format!("there is no device {:.40} on the bus", options.device);
        paravane_vbus::Error::new(Kind::NotFound, text)
    })?;
    let request = Request::Open {
        interface: interface.id,
        version: interface.version,
    };
    let (reply, files) = control.ask_with(&request, &[queues.file.as_fd()])?;
    let (connection, [kick, bell]) = match (reply, <[OwnedFd; 2]>::try_from(files)) {
        (Reply::Opened(connection), Ok(files)) => (connection, files),
        (other, _) => return Err(unexpected(&other)),
    };
    for (queue, offset) in [(0, 0), (1, tx_offset(options.count))] {
        let shared = Shared {
            queue,
            offset,
            count: options.count,
        };
        control.ask(&Request::Share { connection, shared })?;
    }
    let mut link = Link {
        control,
        connection,
        interface,
        kick,
        bell,
    };
    if link.interface.interface == ETHERNET {
        // Its old address, unless another client has it now.
        if let Some(mac) = mac {
            let _ = link.call(MACSET, mac);
        }
        let found = link.call(MACQUERY, &[])?;
        *mac = found.try_into().ok();
        link.call(LINKUP, &[])?;
    }
    Ok(link)
}
