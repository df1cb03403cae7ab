// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pairs of queues of a client, and which one a packet takes.

use crate::control::Error;
use crate::events::{self, Events};
use crate::lending::{self, Lending};
use crate::queues::{Put, Queues, Shape};
use paravane_vbus::ethernet::{Flow, queues};
use paravane_vbus::{Content, Event, MemoryContext, Parts, limits};
use paravane_vbus_protocol::Shared;
use paravane_vbus_shm::loans;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A pair, and the packet that comes by it.
#[derive(Debug)]
struct Pair {
    queues: Queues,
    parts: Parts,
}

/// The pairs.
#[derive(Debug)]
pub struct Pairs {
    /// As many as the client wants, at least one.
    all: Vec<Pair>,
    /// The number that the device has agreed to: 1 to all.
    agreed: usize,
    /// The pair of the last packet that was received.
    current: usize,
    count: u32,
    buffer: u32,
    extras: Extras,
    /// Invalid data came, so these queues cannot be used again.
    broken: bool,
    /// The queues are to stay in memory.
    locked: AtomicBool,
    /// Where the client wants to know of events.
    pub events: Option<Events>,
    /// Where it shares.
    pub lending: Option<Lending>,
}

/// What a client has besides its pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// A queue of events.
    pub events: bool,
    /// Slots for packets that others read.
    pub sharing: bool,
}

impl Pairs {
    /// `wanted` pairs, whose queues have `count` descriptors and buffers of `buffer` bytes, and
    /// perhaps a queue of events. All receive buffers are posted.
    pub fn new(wanted: u32, count: u32, buffer: u32, extras: Extras) -> Result<Self, Error> {
        let Extras { events, sharing } = extras;
        if !(1..=queues::PAIRS).contains(&wanted) {
            let text = format!(
                "{wanted} pairs are not possible: 1 to {} are",
                queues::PAIRS
            );
            return Err(Error::Invalid(text));
        }
        let counts = [count; 2];
        let pairs = (0..wanted).map(|_| Shape { counts, buffer });
        let shapes: Vec<_> = pairs.chain(events.then_some(events::SHAPE)).collect();
        let slots = lending::slots(count, buffer);
        let words = if sharing { loans::words(slots) } else { 0 };
        let (pairs, table) = Queues::pairs(&shapes, words * size_of::<u32>())?;
        let mut all = Vec::new();
        for mut queues in pairs {
            while queues.rx.post_next()? {}
            let parts = Parts::with_room();
            all.push(Pair { queues, parts });
        }
        let last = all.pop_if(|_| events);
        let first = all.first().filter(|_| sharing);
        let lending = first.map(|pair| Lending::new(&pair.queues, table, slots, buffer));
        Ok(Pairs {
            all,
            agreed: 1,
            current: 0,
            count,
            buffer,
            extras,
            broken: false,
            locked: AtomicBool::new(false),
            events: last.map(|pair| Events::new(pair.queues)),
            lending: lending.transpose()?,
        })
    }

    /// New queues of the same kind, without the packets of these, if these cannot be used again.
    /// Lost packets of others are still counted.
    pub fn repair(&mut self) -> Result<(), Error> {
        let queues = self.all.iter().map(|pair| &pair.queues);
        let events = self.events.as_ref().map(Events::queues);
        if !self.broken && !queues.chain(events).any(Queues::is_broken) {
            return Ok(());
        }
        let wanted = u32::try_from(self.wanted()).unwrap_or(u32::MAX);
        let mut pairs = Pairs::new(wanted, self.count, self.buffer, self.extras)?;
        if let (Some(new), Some(old)) = (&mut pairs.lending, &self.lending) {
            new.inherit(old);
        }
        if self.locked.load(Ordering::Relaxed) {
            pairs.lock()?;
        }
        *self = pairs;
        Ok(())
    }

    /// The number that the client wants.
    pub fn wanted(&self) -> usize {
        self.all.len()
    }

    /// The number that the device has agreed to.
    pub fn agreed(&self) -> usize {
        self.agreed
    }

    /// The memory of all of them, for the device.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.all[0].queues.file.as_fd()
    }

    /// The memory of all of them, and of others, where packets lie.
    pub fn memory(&self) -> &dyn MemoryContext {
        match &self.lending {
            Some(lending) => lending.memory(),
            None => self.all[0].queues.memory(),
        }
    }

    /// Before a device attaches: what another client has lent is read no more.
    pub fn renew(&mut self) -> Result<(), Error> {
        let Some(lending) = &mut self.lending else {
            return Ok(());
        };
        for Pair { queues, parts } in &mut self.all {
            if Lending::is_lent(parts) {
                queues.forget(parts)?;
            }
        }
        lending.renew()
    }

    /// Takes an event of lenders. Others come back.
    pub fn heard(&mut self, event: Event, file: Option<&OwnedFd>) -> Result<Option<Event>, Error> {
        let (place, lender) = match event {
            Event::Lends { place, lender, .. } => (place, Some(lender)),
            Event::Withdrawn { place, .. } => (place, None),
            other => return Ok(Some(other)),
        };
        let Some(lending) = &mut self.lending else {
            return Ok(None);
        };
        if self
            .all
            .iter()
            .any(|pair| Lending::is_in(&pair.parts, place))
        {
            let text = "the memory of a packet is taken away".to_string();
            return Err(Error::Protocol(text));
        }
        match lender {
            Some(lender) => lending.lends(place, lender.0, file)?,
            None => lending.withdrawn(place)?,
        }
        Ok(None)
    }

    /// Keeps all of it in memory.
    pub fn lock(&self) -> Result<(), Error> {
        self.locked.store(true, Ordering::Relaxed);
        self.all[0].queues.lock()
    }

    fn used(&self) -> impl Iterator<Item = &Queues> {
        self.all.iter().take(self.agreed).map(|pair| &pair.queues)
    }

    /// Before a device attaches that has agreed to this number. Packets that it will not see, or
    /// with `anew` would not understand, become packets without bytes.
    pub fn agree(&mut self, agreed: usize, anew: bool) {
        self.agreed = agreed.clamp(1, self.all.len());
        let kept = if anew { 0 } else { self.agreed };
        for pair in self.all.iter_mut().skip(kept) {
            pair.queues.empty();
        }
        self.current = 0;
    }

    /// The queues that the device gets.
    pub fn shared(&self) -> Vec<Shared> {
        let of_pair = |(pair, queues): (u32, &Queues)| {
            let numbers = queues::of_pair(pair).into_iter();
            let shared = numbers.zip(queues.offsets).map(|(queue, offset)| Shared {
                queue,
                offset,
                count: self.count,
            });
            shared.collect::<Vec<_>>()
        };
        let pairs = (0..).zip(self.used()).flat_map(of_pair);
        let events = self.events.as_ref().and_then(Events::shared);
        pairs.chain(events).collect()
    }

    /// The device has attached and passes nothing on yet. With `anew`, what the previous one has
    /// returned is forgotten.
    pub fn attached(&mut self, anew: bool) -> Result<(), Error> {
        for Pair { queues, parts } in self.all.iter_mut().take(self.agreed) {
            queues.attached(parts)?;
            if anew {
                queues.forget_all(parts)?;
            }
        }
        self.events.as_mut().map_or(Ok(()), Events::attached)
    }

    /// Before another device attaches: [`Queues::mend`].
    pub fn mend(&mut self) {
        for pair in &mut self.all {
            pair.queues.mend();
        }
    }

    /// The pair by which packets of a flow are sent.
    fn of_flow(&self, packet: &[u8]) -> usize {
        match self.agreed {
            1 => 0,
            many => Flow::of(packet).spread(many),
        }
    }

    /// Posts a packet that may lie in another client's memory: [`Queues::put`].
    pub fn put(&mut self, content: &Content<'_>, flags: u32, more: u32) -> Result<bool, Put> {
        let number = self.of_flow(content.head());
        let queues = &mut self.all[number].queues;
        if let Some(lending) = &mut self.lending {
            if let Some(put) = lending.put(queues, content, flags, more) {
                return put;
            }
        }
        queues.put(content, flags, more)
    }

    /// Posts a packet. False: no buffer is free.
    pub fn send(&mut self, packet: &[u8]) -> Result<bool, Error> {
        if self.lending.is_some() {
            return match self.put(&Content::of(packet), 0, 0) {
                Err(Put::Failed(why)) => Err(why),
                Err(Put::Broken(culprit)) => Err(Error::Protocol(culprit.broken().to_string())),
                Ok(posted) => Ok(posted),
            };
        }
        let number = self.of_flow(packet);
        self.all[number].queues.send(packet)
    }

    /// Takes back what the device has delivered. Returns how many packets these are, and how many
    /// it still has.
    pub fn reclaim(&mut self) -> Result<(u64, u32), Error> {
        let (mut delivered, mut left) = (0, 0);
        for Pair { queues, .. } in &mut self.all {
            // No more can come back than were posted.
            while let Some(returned) = queues.tx.take()? {
                delivered += u64::from(!queues.tx.is_amid());
                if let Some(lending) = &mut self.lending {
                    lending.came_back(returned.cookie);
                }
            }
            left += queues.tx.outstanding();
        }
        Ok((delivered, left))
    }

    /// The pairs in the order in which they are looked at: each is the first in its turn.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, many) = (self.current + 1, self.agreed);
        (first..first + many).map(move |number| number % many)
    }

    /// Looks for the next packet, unless there is one: true.
    pub fn collect(&mut self, more: u32) -> Result<bool, Error> {
        let found = self.find(more);
        self.broken |= found.is_err();
        found
    }

    fn find(&mut self, more: u32) -> Result<bool, Error> {
        if self.parts().is_whole() {
            return Ok(true);
        }
        for number in self.turns() {
            let Pair { queues, parts } = &mut self.all[number];
            while queues.collect(parts, limits::PACKET, more)? {
                let lending = self.lending.as_mut();
                let there = lending.map_or(Ok(true), |lending| lending.expand(queues, parts))?;
                if there {
                    self.current = number;
                    return Ok(true);
                }
                // At most as many as came back from the device before.
                queues.forget(parts)?;
            }
        }
        Ok(false)
    }

    /// The packet that [`Pairs::collect`] has found.
    pub fn parts(&self) -> &Parts {
        &self.all[self.current].parts
    }

    /// The pair of the packet that came last.
    pub fn current(&self) -> usize {
        self.current
    }

    /// The packet that [`Pairs::collect`] has found was dealt with. Returns whether the device must
    /// be notified.
    pub fn release(&mut self) -> Result<bool, Error> {
        let Pair { queues, parts } = &mut self.all[self.current];
        queues.forget(parts)?;
        Ok(queues.rx.inject())
    }

    /// Copies the next packet. Returns its length, and whether the device must be notified.
    pub fn receive(&mut self, to: &mut [u8]) -> Result<Option<(usize, bool)>, Error> {
        if self.lending.is_some() {
            if !self.collect(0)? {
                return Ok(None);
            }
            let (parts, most) = (self.parts(), to.len());
            let part = to.get_mut(..parts.len().min(most)).unwrap_or_default();
            let read = parts.read(self.memory(), 0, part);
            read.map_err(|why| Error::Protocol(why.to_string()))?;
            let len = parts.len();
            return self.release().map(|inject| Some((len, inject)));
        }
        for number in self.turns() {
            let queues = &mut self.all[number].queues;
            if let Some(len) = queues.receive(to)? {
                let inject = queues.rx.inject();
                self.current = number;
                return Ok(Some((len, inject)));
            }
        }
        Ok(None)
    }

    /// Whether the device must be notified of what was posted.
    pub fn inject(&self) -> bool {
        self.used()
            .fold(false, |due, queues| due | queues.tx.inject())
    }

    /// Whether a packet or an event came, or a packet was delivered if `room` is awaited.
    pub fn ready(&self, room: bool) -> bool {
        self.used()
            .any(|queues| queues.rx.ready() || (room && queues.tx.ready()))
            || self.events.as_ref().is_some_and(Events::ready)
    }

    /// Asks for notifications. False: something came before.
    pub fn rest(&self, room: bool) -> bool {
        self.used()
            .all(|queues| queues.rx.rest() && (!room || queues.tx.rest()))
            && self.events.as_ref().is_none_or(Events::rest)
    }

    /// As [`Pairs::rest`], for a client that takes no packets now. False: a packet was delivered,
    /// if `room` is awaited, or an event came.
    pub fn rest_without_packets(&self, room: bool) -> bool {
        let delivered = |queues: &Queues| queues.tx.ready() || !queues.tx.rest();
        !(room && self.used().any(delivered))
            && self.events.as_ref().is_none_or(|events| events.rest())
    }

    /// Needs no notification of packets, and of those that were delivered if `room` was awaited.
    pub fn watch(&self, room: bool) {
        for queues in self.used() {
            queues.rx.watch();
            if room {
                queues.tx.watch();
            }
        }
    }
}
