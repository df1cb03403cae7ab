// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of a bus with a connection to one device.

use crate::control::{Error, wait};
use crate::lending::Lending;
use crate::link::{Link, Options, PAUSE, may_come_back};
use crate::opening::{Capabilities, open};
use crate::pairs::{Extras, Pairs};
use crate::queues::Put;
use paravane_vbus::ethernet::more;
use paravane_vbus::{Content, Event, Interface, MemoryContext, Parts};
use rustix::event::{PollFd, PollFlags};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is a packet, or room if it was awaited, or [`Client::link`] has changed.
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

/// What a client wants of its device.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Capabilities of an Ethernet device, of which the two agree on some.
    pub capabilities: u32,
    /// Pairs of queues, 1 to 8.
    pub pairs: u32,
    /// The client gets events about the state of an Ethernet device's link.
    pub hearing: bool,
    /// Clients of the device that share, too, may read all that this one sends, and it reads what
    /// they send. Long packets between two of these are not copied by vbusd.
    pub sharing: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            capabilities: 0,
            pairs: 1,
            hearing: false,
            sharing: false,
        }
    }
}

/// A client. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Client {
    options: Options,
    link: Link,
    pairs: Pairs,
    mac: Option<[u8; 6]>,
    caps: Capabilities,
    /// The priority that was set.
    priority: Option<u8>,
    /// What was counted.
    pub statistics: Statistics,
}

impl Client {
    /// Joins a bus, opens a device, and posts all receive buffers.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses; the options are not possible.
    pub fn connect(options: Options) -> Result<Self, Error> {
        Client::connect_with(options, 0)
    }

    /// Connects, and agrees with an Ethernet device on some of these capabilities: then packets are
    /// exchanged by [`Client::put`] and [`Client::collect`].
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with(options: Options, capabilities: u32) -> Result<Self, Error> {
        Client::connect_pairs(options, capabilities, 1)
    }

    /// Connects, and asks an Ethernet device for `pairs` pairs of queues, at most 8. It may have
    /// fewer ([`Client::pairs`]). A frame is sent by the pair of its flow, so the frames of a flow
    /// keep their order. Packets are received from the pairs in turns.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_pairs(options: Options, capabilities: u32, pairs: u32) -> Result<Self, Error> {
        Client::connect_on(
            options,
            Terms {
                capabilities,
                pairs,
                ..Terms::default()
            },
        )
    }

    /// As [`Client::connect_with`], and receives the state of an Ethernet device's link, which
    /// [`Client::link`] returns. A change ends a wait: then it must be called.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_hearing(options: Options, capabilities: u32) -> Result<Self, Error> {
        Client::connect_on(
            options,
            Terms {
                capabilities,
                hearing: true,
                ..Terms::default()
            },
        )
    }

    /// Connects on any terms.
    ///
    /// # Errors
    /// As [`Client::connect`]. A device whose clients do not share is no error
    /// ([`Client::shares`]).
    pub fn connect_on(options: Options, terms: Terms) -> Result<Self, Error> {
        let extras = Extras {
            events: terms.hearing,
            sharing: terms.sharing,
        };
        let mut pairs = Pairs::new(terms.pairs, options.count, options.buffer, extras)?;
        let mut mac = None;
        let mut caps = Capabilities {
            wanted: terms.capabilities,
            ..Capabilities::default()
        };
        let link = open(&options, &mut pairs, &mut mac, &mut caps)?;
        Ok(Client {
            options,
            link,
            pairs,
            mac,
            caps,
            priority: None,
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

    /// The capabilities that the client and the Ethernet device have agreed on. Another device,
    /// after [`Client::reconnect`], may have others.
    #[must_use]
    pub fn capabilities(&self) -> u32 {
        self.caps.agreed
    }

    /// Whether the client shares with others of its device: both want it.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.caps.shares
    }

    /// Packets of others that were lost since vbusd, or the connection, ended before they were
    /// received.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.pairs.lending.as_ref().map_or(0, Lending::lost)
    }

    /// The number of pairs of queues that the client and the device have agreed on.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs.agreed()
    }

    /// The pair by which the last packet came.
    #[must_use]
    pub fn pair(&self) -> usize {
        self.pairs.current()
    }

    /// Whether frames reach the network of the device, as it has said last. True for a client that
    /// has not connected by [`Client::connect_hearing`], or whose device does not report it.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn link(&mut self) -> Result<bool, Error> {
        let Some(events) = &mut self.pairs.events else {
            return Ok(true);
        };
        let (up, inject) = events.take()?;
        if inject {
            self.notify();
        }
        Ok(up)
    }

    /// As [`Client::post`], for a packet that may lie in another client's memory, and with flags.
    /// It is copied once, into several buffers if that was agreed on.
    ///
    /// # Errors
    /// As [`Client::post`], or the other client broke its protocol.
    pub fn put(&mut self, content: &Content<'_>, flags: u32) -> Result<bool, Put> {
        self.reclaim().map_err(Put::Failed)?;
        let put = self.pairs.put(content, flags, more(self.caps.agreed));
        if let Ok(true) = put {
            self.statistics.sent += 1;
        }
        put
    }

    /// Looks for the next packet, which stays where it lies: true. [`Client::parts`] says where,
    /// and [`Client::release`] gives its buffers to the device again. Until then it remains the
    /// next.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn collect(&mut self) -> Result<bool, Error> {
        self.pairs.collect(more(self.caps.agreed))
    }

    /// The packet that [`Client::collect`] has found.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        self.pairs.parts()
    }

    /// The client's memory, and that of others with whom it shares, where that packet lies. The
    /// device, and the sender of a packet, may write it at any time.
    #[must_use]
    pub fn memory(&self) -> &dyn MemoryContext {
        self.pairs.memory()
    }

    /// The packet that [`Client::collect`] has found was dealt with.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn release(&mut self) -> Result<(), Error> {
        if !self.pairs.parts().is_whole() {
            return Ok(());
        }
        let inject = self.pairs.release()?;
        self.statistics.received += 1;
        if inject {
            self.notify();
        }
        Ok(())
    }

    /// Posts a packet without notifying the device. False: no buffer is free.
    ///
    /// # Errors
    /// The packet is longer than a buffer, or the device broke the protocol.
    pub fn post(&mut self, packet: &[u8]) -> Result<bool, Error> {
        self.reclaim()?;
        let posted = self.pairs.send(packet)?;
        self.statistics.sent += u64::from(posted);
        Ok(posted)
    }

    /// Notifies the device of what was posted, if it sleeps.
    pub fn flush(&mut self) {
        if self.pairs.inject() {
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
        let Some((len, inject)) = self.pairs.receive(to)? else {
            return Ok(None);
        };
        self.statistics.received += 1;
        if inject {
            self.notify();
        }
        Ok(Some(len))
    }

    /// Takes back the buffers of packets that the device has delivered, and counts them. Returns
    /// how many packets the device still has.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn reclaim(&mut self) -> Result<u32, Error> {
        let (delivered, left) = self.pairs.reclaim()?;
        self.statistics.delivered += delivered;
        Ok(left)
    }

    fn notify(&mut self) {
        self.statistics.notified += 1;
        self.link.notify();
    }

    /// Waits for a packet, for an event, and with `room` for a packet that was delivered.
    ///
    /// # Errors
    /// [`Error::Lost`]: [`Client::reconnect`] may help.
    pub fn wait(&mut self, time: Option<Duration>, room: bool) -> Result<Woken, Error> {
        if self.pairs.ready(room) {
            return Ok(Woken::Ready);
        }
        if self.link.control.has_event() {
            return Ok(Woken::Event);
        }
        let woken = if self.pairs.rest(room) {
            self.statistics.slept += 1;
            self.sleep(time)
        } else {
            Ok(Woken::Ready)
        };
        self.pairs.watch(room);
        woken
    }

    /// For a caller that waits for many files: asks for notifications on [`Client::files`]. False:
    /// there is a packet, or room if it is awaited, and the caller does not wait.
    #[must_use]
    pub fn rest(&mut self, room: bool) -> bool {
        if self.pairs.ready(room) || self.link.control.has_event() {
            return false;
        }
        self.pairs.rest(room)
    }

    /// As [`Client::rest`], for a caller that takes no packets now: it waits for events, and with
    /// `room` for a packet that was delivered.
    #[must_use]
    pub fn rest_without_packets(&mut self, room: bool) -> bool {
        !self.link.control.has_event() && self.pairs.rest_without_packets(room)
    }

    /// Works again after [`Client::rest`]: there is no need to be notified.
    pub fn watch(&mut self) {
        self.pairs.watch(true);
    }

    /// The files that become readable after [`Client::rest`]: for notifications, which
    /// [`Client::drain`] takes, and for events.
    #[must_use]
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        self.link.files()
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<Woken, Error> {
        let file = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
        let mut files = self.link.files().map(file);
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
        self.link.drain()
    }

    /// The next event of the bus, if one has come.
    ///
    /// # Errors
    /// [`Error::Lost`]: this connection was closed, or vbusd has ended.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        while let Some((event, file)) = self.link.event()? {
            match self.pairs.heard(event, file.as_ref())? {
                // There may be another one, when vbusd knows that this was handled.
                None => self.notify(),
                event => return Ok(event),
            }
        }
        Ok(None)
    }

    /// Sets how early vbusd does what this connection asks for, 0 to 3, at first 1: in each of its
    /// rounds the connection that has waited longest is first, and then the highest priority. A
    /// round has at most 16 turns, and a turn at most 64 packets.
    ///
    /// # Errors
    /// There is no such priority, or vbusd has ended.
    pub fn set_priority(&mut self, priority: u8) -> Result<(), Error> {
        self.link.prioritize(priority)?;
        self.priority = Some(priority);
        Ok(())
    }

    /// Keeps the queues and buffers in memory, so that sending and receiving cause no page fault.
    ///
    /// # Errors
    /// [`Error::Host`]: the process may not lock that much memory (`ulimit -l`).
    pub fn lock_memory(&self) -> Result<(), Error> {
        self.pairs.lock()
    }

    /// Calls the device.
    ///
    /// # Errors
    /// The device refuses, or vbusd has ended.
    pub fn call(&mut self, call: u32, argument: &[u8]) -> Result<Vec<u8>, Error> {
        self.link.call(call, argument)
    }

    /// Connects again after [`Error::Lost`], and continues where the device was: packets
    /// that were posted and not delivered are delivered, some perhaps twice. They are lost if the
    /// device has broken the protocol. Tries until the time is over, since another vbusd may have
    /// to start first.
    ///
    /// # Errors
    /// The last attempt's. A vbusd that refuses for good ends the attempts.
    pub fn reconnect(&mut self, time: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + time;
        loop {
            if self.reclaim().is_ok() {
                self.pairs.mend();
            }
            self.pairs.repair()?;
            let Client {
                options,
                pairs,
                mac,
                caps,
                ..
            } = self;
            let error = match open(options, pairs, mac, caps) {
                Ok(mut link) => {
                    if let Some(priority) = self.priority {
                        link.prioritize(priority)?;
                    }
                    self.link = link;
                    // The new device may have had no notification of what was posted.
                    self.notify();
                    return Ok(());
                }
                Err(error) => error,
            };
            if !may_come_back(&error) || Instant::now() + PAUSE > deadline {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A file that is readable when [`Client::wait`] would return: the notifications'. Only while
    /// `wait` sleeps does the device notify.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.link.bell()
    }
}
