// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that stay in their sender's memory: the ports that have agreed to that, and what is lent
//! from one to another.
//!
//! A port that shares has a *place*, by which the others know its memory. The switch announces the
//! others to it one at a time, so that no more than one file at a time is on its way to its client.
//! A lent slot is free again when the receiver has posted again the descriptor by which it got the
//! slot. No receiver can delay a sender: the sender's descriptors are returned at once, and a frame
//! without a free slot is copied.
//!
//! A receiver holds no more of a sender's slots than are free. So a receiver that keeps all of its
//! slots has at most half of them, a second one at most a third, and some are left for others.

use super::SwitchPort;
use crate::content::{Content, Culprit};
use crate::device::{ConnectionId, Round};
use crate::endpoint::{Broken, Endpoint, Sent};
use crate::error::{Error, Kind};
use crate::ethernet::lent::{FEWEST, LENT, Lent, PARTS};
use crate::events::Event;
use crate::spaces::split;
use crate::table::Table;
use paravane_vbus_shm::loans::PLACES;
use std::collections::{BTreeMap, VecDeque};

/// A slot that a port holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Of the descriptor by which it came.
    index: u32,
    place: usize,
    lender: ConnectionId,
    slot: u32,
}

/// What was last announced to a port of a place.
#[derive(Clone, Copy, Debug)]
struct Known {
    lender: ConnectionId,
    /// Slots of the lender that the port holds.
    held: u32,
}

/// A port that shares. Its place is its number among them.
#[derive(Debug)]
struct Share {
    id: ConnectionId,
    table: Table,
    /// How often each of its slots is lent, and all together.
    lent: Vec<u32>,
    total: u32,
    known: [Option<Known>; PLACES],
    /// Announcements to it.
    told: u32,
    /// What it holds, of each pair in the order of the descriptors.
    held: Vec<VecDeque<Held>>,
}

impl Share {
    /// A slot was lent, or has come back.
    fn count(&mut self, slot: u32, lent: bool) {
        let Some(count) = self.lent.get_mut(slot as usize) else {
            return;
        };
        if lent {
            (*count, self.total) = (*count + 1, self.total + 1);
            self.table.loans.lend(slot, true);
        } else if *count > 0 {
            (*count, self.total) = (*count - 1, self.total - 1);
            if *count == 0 {
                self.table.loans.lend(slot, false);
            }
        }
    }

    /// Slots that may be lent, if the receiver holds fewer.
    fn free(&self) -> u32 {
        u32::try_from(self.lent.len())
            .unwrap_or(0)
            .saturating_sub(self.total)
    }

    /// The next announcement to the port of a place that this lender has now.
    fn announcement(&mut self, place: usize, now: Option<ConnectionId>) -> Option<Event> {
        let known = self.known.get_mut(place)?;
        let before = known.map(|known| known.lender);
        if before == now || known.is_some_and(|known| known.held > 0) {
            return None;
        }
        *known = now.map(|lender| Known { lender, held: 0 });
        self.told = self.told.wrapping_add(1);
        let (connection, place) = (self.id, u32::try_from(place).unwrap_or(u32::MAX));
        Some(match now {
            Some(lender) => Event::Lends {
                connection,
                place,
                lender,
            },
            None => Event::Withdrawn { connection, place },
        })
    }
}

/// All ports that share.
#[derive(Debug, Default)]
pub struct Lending {
    /// The administrator agrees: further ports may share.
    pub permitted: bool,
    shares: [Option<Share>; PLACES],
    /// What ports held whose connections have ended, until their clients have.
    left: BTreeMap<ConnectionId, Vec<Held>>,
    /// There may be something to announce.
    news: bool,
    /// Frames that were lent, and bytes of them that were not copied.
    pub frames: u64,
    pub bytes: u64,
    // Room for the next one.
    lent: Lent,
    slots: Vec<u32>,
    buffer: Vec<u8>,
}

/// The lower bits of a connection's number, which is never used twice.
fn lower(id: ConnectionId) -> u32 {
    u32::try_from(id.0 & u64::from(u32::MAX)).unwrap_or(0)
}

impl Lending {
    /// A port shares from now on.
    pub fn begin(&mut self, id: ConnectionId, table: Table) -> Result<(), Error> {
        if !self.permitted {
            let text = "the switch does not let its ports share memory: its attribute share is 0";
            return Err(Error::new(Kind::Denied, text));
        }
        if self.shares(id) {
            return Err(Error::new(Kind::Exists, "the port shares memory already"));
        }
        let place = self.shares.iter_mut().find(|place| place.is_none());
        let place = place.ok_or_else(|| Error::limit("ports that share memory", PLACES))?;
        *place = Some(Share {
            id,
            lent: vec![0; table.loans.slots()],
            table,
            total: 0,
            known: [None; PLACES],
            told: 0,
            held: Vec::new(),
        });
        self.news = true;
        Ok(())
    }

    /// Number of ports that share.
    pub fn ports(&self) -> usize {
        self.shares.iter().flatten().count()
    }

    /// Whether a port shares.
    pub fn shares(&self, id: ConnectionId) -> bool {
        self.place(id).is_some()
    }

    fn place(&self, id: ConnectionId) -> Option<usize> {
        let mut shares = self.shares.iter();
        shares.position(|share| share.as_ref().is_some_and(|share| share.id == id))
    }

    /// A port has gone. Its client may still read what was lent to it.
    pub fn end(&mut self, id: ConnectionId) {
        let share = self.place(id).and_then(|place| self.shares.get_mut(place));
        if let Some(share) = share.and_then(Option::take) {
            let held: Vec<_> = share.held.into_iter().flatten().collect();
            if !held.is_empty() {
                self.left.insert(id, held);
            }
            self.news = true;
        }
    }

    /// Whether a port that has gone held something.
    pub fn has_left(&self, id: ConnectionId) -> bool {
        self.left.contains_key(&id)
    }

    /// The client of a port that has gone reads no more.
    pub fn released(&mut self, id: ConnectionId) {
        for held in self.left.remove(&id).into_iter().flatten() {
            self.give_back(held);
        }
    }

    /// Slots that are lent go back to their owner, if it is still there.
    fn give_back(&mut self, held: Held) {
        let lender = self.shares.get_mut(held.place).and_then(Option::as_mut);
        if let Some(lender) = lender.filter(|lender| lender.id == held.lender) {
            lender.count(held.slot, false);
        }
    }

    /// Takes slots back that their receivers need no more.
    pub fn collect(&mut self, ports: &BTreeMap<ConnectionId, SwitchPort>) {
        for number in 0..PLACES {
            let receiver = self.shares.get_mut(number).and_then(Option::as_mut);
            let Some(receiver) = receiver.filter(|receiver| !receiver.held.is_empty()) else {
                continue;
            };
            let Some(port) = ports.get(&receiver.id) else {
                continue;
            };
            // It leaves the port while the lenders are notified.
            let mut held = std::mem::take(&mut receiver.held);
            for (queue, pair) in held.iter_mut().zip(&port.pairs) {
                let Some(rx) = &pair.queues.rx else {
                    continue;
                };
                while queue.front().is_some_and(|one| rx.returned(one.index)) {
                    if let Some(one) = queue.pop_front() {
                        self.put_down(number, one.place);
                        self.give_back(one);
                    }
                }
            }
            if let Some(Some(receiver)) = self.shares.get_mut(number) {
                receiver.held = held;
            }
        }
    }

    /// A port holds a slot of a place less.
    fn put_down(&mut self, receiver: usize, place: usize) {
        let receiver = self.shares.get_mut(receiver).and_then(Option::as_mut);
        let known = receiver.and_then(|receiver| receiver.known.get_mut(place)?.as_mut());
        if let Some(known) = known {
            known.held = known.held.saturating_sub(1);
            self.news |= known.held == 0;
        }
    }

    /// Announces to ports the others that share, or share no more: the next one when the port's
    /// client has handled the last.
    pub fn announce(&mut self, round: &mut Round) {
        if !std::mem::take(&mut self.news) {
            return;
        }
        let now: [Option<ConnectionId>; PLACES] =
            std::array::from_fn(|place| Some(self.shares.get(place)?.as_ref()?.id));
        for (own, share) in self.shares.iter_mut().enumerate() {
            let Some(share) = share else {
                continue;
            };
            if share.table.loans.handled() != share.told {
                self.news = true;
                continue;
            }
            let mut others = now.iter().enumerate().filter(|(place, _)| *place != own);
            let event = others.find_map(|(place, &now)| share.announcement(place, now));
            if let Some(event) = event {
                self.news = true;
                round.events.push((share.id, event));
            }
        }
    }

    /// Lends a frame to a port, whose next buffer gets the frame's record. `None`: it must be
    /// copied. Otherwise the bytes that were copied.
    ///
    /// # Errors
    /// The receiver broke the protocol.
    pub fn pass(
        &mut self,
        from: ConnectionId,
        (to, pair): (ConnectionId, usize),
        rx: &mut Endpoint,
        content: &Content<'_>,
        flags: u32,
    ) -> Result<Option<(Sent, usize)>, Broken> {
        let body = content.len() - content.head().len();
        if body < FEWEST {
            return Ok(None);
        }
        let (Some(place), Some(other)) = (self.place(from), self.place(to)) else {
            return Ok(None);
        };
        if !self.describe(from, (place, other), content, flags) {
            return Ok(None);
        }
        // One that is too small would go back empty.
        let room = rx.next_buffer()?.map(|room| room as usize);
        if room.is_some_and(|room| room < self.buffer.len()) {
            return Ok(None);
        }
        let index = rx.index();
        let put = rx.put(&Content::of(&self.buffer), LENT, 0);
        let sent = put.map_err(Culprit::broken)?;
        if sent == Sent::Yes {
            rx.statistics.bytes += (content.len() - self.buffer.len()) as u64;
            (self.frames, self.bytes) = (self.frames + 1, self.bytes + body as u64);
            self.hold(from, (place, other), (pair, index));
        }
        Ok(Some((sent, self.buffer.len())))
    }

    /// Creates the description of a frame for a port. False: the frame cannot be lent to it.
    fn describe(
        &mut self,
        from: ConnectionId,
        (place, other): (usize, usize),
        content: &Content<'_>,
        flags: u32,
    ) -> bool {
        let share = |place: usize| self.shares.get(place).and_then(Option::as_ref);
        let (Some(lender), Some(receiver)) = (share(place), share(other)) else {
            return false;
        };
        let known = receiver.known.get(place).copied().flatten();
        let known = known.filter(|known| known.lender == from);
        if receiver.table.loans.mapped(place) != lower(from) {
            return false;
        }
        self.slots.clear();
        self.lent.parts.clear();
        for (ptr, len) in content.body() {
            let slot = lender.table.slot(ptr, len);
            let (Some(slot), Ok(len)) = (slot, u32::try_from(len)) else {
                return false;
            };
            // A slot is in the first 4 GiB of its memory.
            let offset = u32::try_from(split(ptr).1).unwrap_or(u32::MAX);
            self.slots.push(slot);
            self.lent.parts.push((offset, len));
            if self.slots.len() > PARTS {
                return false;
            }
        }
        let more = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        if known.is_none_or(|known| known.held.saturating_add(more) > lender.free()) {
            return false;
        }
        self.lent.place = u32::try_from(place).unwrap_or(u32::MAX);
        (self.lent.lender, self.lent.flags) = (lower(from), flags);
        self.lent.write(content.head(), &mut self.buffer);
        true
    }

    /// A port holds the slots of a frame.
    fn hold(
        &mut self,
        lender: ConnectionId,
        (place, other): (usize, usize),
        (pair, index): (usize, u32),
    ) {
        if let Some(Some(lender)) = self.shares.get_mut(place) {
            for &slot in &self.slots {
                lender.count(slot, true);
            }
        }
        let Some(Some(receiver)) = self.shares.get_mut(other) else {
            return;
        };
        if let Some(Some(known)) = receiver.known.get_mut(place) {
            known.held += u32::try_from(self.slots.len()).unwrap_or(0);
        }
        if receiver.held.len() <= pair {
            receiver.held.resize_with(pair + 1, VecDeque::new);
        }
        if let Some(queue) = receiver.held.get_mut(pair) {
            queue.extend(self.slots.iter().map(|&slot| Held {
                index,
                place,
                lender,
                slot,
            }));
        }
    }
}
