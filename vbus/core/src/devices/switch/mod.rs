// SPDX-License-Identifier: Apache-2.0 OR MIT
//! venet-switch: the clients of a bus exchange Ethernet frames.
//!
//! Each connection is a port with an address of its own (`MACQUERY`). A frame goes to the port with
//! its destination, a broadcast or multicast to all others; nothing is learnt from frames, so the
//! tables are as large as the number of ports. A frame whose source is not the sender's address is
//! dropped, as is one for an address that no port has. If a receiver has posted no buffer, the
//! frame is dropped; with the attribute `lossless` its sender waits for a buffer instead.
//!
//! A frame is copied once, from its sender's memory to the receiver's. Each port agrees on
//! capabilities for itself. A checksum that the receiver would not complete is completed here, and
//! a long TCP segment that it would not take is cut, in the sender's turn.
//!
//! A port has a pair of queues, or as many as its client has asked for. The flow of a frame selects
//! the pair of the receiver, so the frames of a flow that its sender sends by one pair keep their
//! order. The pairs of a sender take turns. A pair whose frame waits does not stop the others.
//!
//! With the attribute `share`, ports may agree to read each other's frames where they lie
//! (`lending`). Between two of these the switch copies only the headers of a long frame.
//!
//! Calls are those of venet (Haskins, 2009): `LINKUP`, `LINKDOWN`, `MACQUERY`, `NEGCAP`, `FLUSHRX`;
//! `PAIRS`; `MACSET`, by which a client that comes back asks for the address that it had; and
//! `KICK`.

mod lending;
mod port;

use self::lending::Lending;
use self::port::{Copied, Dropped, Finished, Pair, SwitchPort};
use super::{Totals, Turn};
use crate::content::Culprit;
use crate::device::{
    Attribute, Class, ConnectionId, Device, QueueKind, Round, Work, flag, no_attribute,
};
use crate::endpoint::{Broken, Endpoint, Sent};
use crate::error::{Error, Kind};
use crate::ethernet::queues::OF_PAIRS;
use crate::ethernet::{Flow, Form, Frame, KICK, Kick, TYPE, Unfinished, Way, call, cap, more};
use crate::limits;
use crate::memory::MemoryContext;
use crate::name::Name;
use crate::table::Table;
use std::collections::BTreeMap;

/// Largest number of ports.
const PORTS: usize = 64;

type Mac = [u8; 6];

/// Makes [`Switch`].
#[derive(Debug)]
pub struct SwitchClass;

impl Class for SwitchClass {
    fn name(&self) -> &'static str {
        "venet-switch"
    }

    fn create(&self, name: &Name) -> Box<dyn Device> {
        // FNV-1a of the name: devices of different names have different addresses, most likely.
        let hash = name.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Box::new(Switch {
            prefix: hash.to_be_bytes(),
            ports: BTreeMap::new(),
            totals: Totals::default(),
            lossless: false,
            offload: true,
            kick: Kick::FIRST,
            dropped: Dropped::default(),
            finished: Finished::default(),
            lending: Lending::default(),
            copied: Copied::default(),
        })
    }
}

/// The device.
#[derive(Debug)]
pub struct Switch {
    prefix: [u8; 4],
    ports: BTreeMap<ConnectionId, SwitchPort>,
    totals: Totals,
    lossless: bool,
    /// Whether the switch agrees on capabilities, from now on.
    offload: bool,
    kick: Kick,
    dropped: Dropped,
    finished: Finished,
    lending: Lending,
    copied: Copied,
}

/// The outcome of one frame, or of a segment of it.
enum Step {
    Done,
    /// The pair has no frame, or there is no buffer for the one that it holds.
    Waits,
}

/// Where a frame is now.
enum Next {
    /// It was delivered, or dropped.
    Gone,
    /// Further segments must be cut off.
    More,
    /// It waits for buffers of this port and pair.
    For((ConnectionId, usize)),
}

impl Switch {
    fn free_mac(&self) -> Option<Mac> {
        let [a, b, c, d] = self.prefix;
        // Locally administered, unicast.
        let mac = |number: u8| [0x02, a, b, c, d, number];
        (1..=u8::MAX)
            .map(mac)
            .find(|mac| self.ports.values().all(|port| port.mac != *mac))
    }

    /// Gives a port an address that is like one of [`Switch::free_mac`], and that no other client
    /// knows as its own. A port whose client does not know its address yet gives it away: clients
    /// that come back together would otherwise take each other's.
    fn set_mac(&mut self, id: ConnectionId, argument: &[u8]) -> Result<usize, Error> {
        let [a, b, c, d] = self.prefix;
        let wanted: Option<Mac> = argument.try_into().ok();
        let wanted = wanted.filter(|mac| mac[..5] == [0x02, a, b, c, d] && mac[5] != 0);
        let Some(wanted) = wanted else {
            return Err(Error::new(
                Kind::Invalid,
                "this is no address of the switch",
            ));
        };
        let port = self.port(id)?;
        if port.up {
            let text = "the address is chosen while the link is down";
            return Err(Error::new(Kind::Busy, text));
        }
        let given_up = port.mac;
        let mut others = self.ports.iter_mut().filter(|(other, _)| **other != id);
        if let Some((_, other)) = others.find(|(_, port)| port.mac == wanted) {
            if other.settled {
                return Err(Error::new(Kind::Busy, "another port has this address"));
            }
            other.mac = given_up;
        }
        let port = self.port(id)?;
        (port.mac, port.settled) = (wanted, true);
        Ok(0)
    }

    fn port(&mut self, id: ConnectionId) -> Result<&mut SwitchPort, Error> {
        let port = self.ports.get_mut(&id);
        port.ok_or_else(|| Error::not_found("connection", "of this number"))
    }

    /// Moves one frame of a port's pair, or one segment of it.
    fn step(
        &mut self,
        (id, number): (ConnectionId, usize),
        turn: &mut Turn,
        broken: &mut Vec<(ConnectionId, Broken)>,
    ) -> Result<Step, Broken> {
        let Some(from) = self.ports.get_mut(&id).filter(|port| port.up) else {
            return Ok(Step::Waits);
        };
        let (mac, caps) = (from.mac, from.caps);
        let Some(pair) = from.pairs.get_mut(number) else {
            return Ok(Step::Waits);
        };
        let Some(tx) = &mut pair.queues.tx else {
            return Ok(Step::Waits);
        };
        let memory = tx.memory();
        if pair.frame.form().is_none() {
            let parts = &mut pair.frame.parts;
            if !tx.collect(parts, limits::PACKET, more(caps))? {
                return Ok(Step::Waits);
            }
            let read = pair.frame.read(&*memory, Unfinished::sent(caps));
            read.map_err(Broken::Memory)?;
        }
        // The frame leaves the port while it is delivered to others.
        let mut frame = std::mem::take(&mut pair.frame);
        let next = self.deliver((id, mac), &mut frame, &*memory, turn, broken);
        let from = self.ports.get_mut(&id);
        let Some(pair) = from.and_then(|from| from.pairs.get_mut(number)) else {
            return Ok(Step::Waits);
        };
        pair.frame = frame;
        pair.waits_for = None;
        match next? {
            Next::Gone => pair.forget_frame(),
            Next::More => {}
            Next::For(other) => {
                pair.waits_for = Some(other);
                return Ok(Step::Waits);
            }
        }
        Ok(Step::Done)
    }

    /// Delivers a frame, or a segment of it. Only its sender's breach is an error.
    fn deliver(
        &mut self,
        (from, mac): (ConnectionId, Mac),
        frame: &mut Frame,
        memory: &dyn MemoryContext,
        turn: &mut Turn,
        broken: &mut Vec<(ConnectionId, Broken)>,
    ) -> Result<Next, Broken> {
        // Its headers were looked at.
        turn.looked();
        let Some((to, source)) = frame.addresses() else {
            self.dropped.malformed += 1;
            return Ok(Next::Gone);
        };
        if source != mac {
            self.dropped.source += 1;
            return Ok(Next::Gone);
        }
        let to_all = to[0] & 1 != 0;
        if to_all && matches!(frame.form(), Some(Form::Long(_))) {
            // TCP has one receiver. A copy of each segment for each port would have no bound.
            self.dropped.malformed += 1;
            return Ok(Next::Gone);
        }
        let flow = Flow::of(frame.head());
        let mut known = to_all;
        for (&id, port) in &mut self.ports {
            if id == from || !port.up || !(to_all || to == port.mac) {
                continue;
            }
            known = true;
            let (number, caps) = (flow.spread(port.pairs.len()), port.caps);
            let pair = port.pairs.get_mut(number);
            let Some(rx) = pair.and_then(|pair| pair.queues.rx.as_mut()) else {
                continue;
            };
            let (mut copied, mut len, mut lent) = (0, 0, false);
            let lending = &mut self.lending;
            let passed = frame.pass(memory, Unfinished::received(caps), |content, flags| {
                len = content.len();
                if !to_all {
                    let passed = lending.pass(from, (id, number), rx, content, flags);
                    if let Some((sent, bytes)) = passed.map_err(Culprit::Receiver)? {
                        (copied, lent) = (bytes, true);
                        return Ok(sent);
                    }
                }
                copied = len;
                rx.put(content, flags, more(caps))
            });
            let passed = match passed {
                Ok(passed) => passed,
                Err(Culprit::Sender(error)) => return Err(error),
                Err(Culprit::Receiver(error)) => {
                    broken.push((id, error));
                    continue;
                }
            };
            // A frame is finished before anybody knows whether there is a buffer for it.
            if passed.sent != Sent::Yes && passed.way != Way::Whole {
                turn.wasted(copied);
            }
            match passed.sent {
                Sent::Yes => {
                    // One of several copies.
                    turn.copied(copied);
                    if !lent {
                        self.copied.count(len);
                    }
                    rx.signal();
                    match passed.way {
                        Way::Whole => {}
                        Way::Summed => self.finished.checksums += 1,
                        Way::Cut => self.finished.segments += 1,
                    }
                    if passed.more {
                        return Ok(Next::More);
                    }
                }
                // A frame for all waits for no port.
                Sent::NoBuffer if self.lossless && !to_all => return Ok(Next::For((id, number))),
                // With it go the segments that it has left.
                Sent::NoBuffer | Sent::TooLong => self.dropped.no_buffer += 1,
            }
        }
        if !known {
            self.dropped.unknown += 1;
        }
        Ok(Next::Gone)
    }

    /// The queue whose buffers a pair waits for.
    fn awaited(&self, pair: &Pair) -> Option<&Endpoint> {
        let (id, number) = pair.waits_for?;
        let receiver = self.ports.get(&id)?.pairs.get(number);
        receiver.and_then(|pair| pair.queues.rx.as_ref())
    }

    /// Ports whose frames wait for buffers of this one, and a bit for each pair that they wait for.
    fn waiting(&self, id: ConnectionId) -> impl Iterator<Item = (ConnectionId, u32)> {
        self.ports.iter().filter_map(move |(&other, port)| {
            let waits = port.pairs.iter().filter_map(|pair| pair.waits_for);
            let pairs = waits
                .filter(|(awaited, _)| *awaited == id)
                .fold(0, |pairs, (_, number)| pairs | 1 << number);
            (pairs != 0).then_some((other, pairs))
        })
    }
}

impl Device for Switch {
    fn interface(&self) -> &'static str {
        TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        let pairs = self.ports.values().flat_map(|port| &port.pairs);
        let queues = pairs.map(|pair| &pair.queues);
        let mut all = self.totals.attributes(self.ports.len(), queues);
        let share = self.lending.permitted;
        for (name, value) in [
            ("lossless", self.lossless),
            ("offload", self.offload),
            ("share", share),
        ] {
            all.push(Attribute::setting(name, u8::from(value).to_string()));
        }
        all.push(self.kick.attribute());
        let Dropped {
            no_buffer,
            unknown,
            source,
            malformed,
        } = self.dropped;
        all.extend(
            [
                ("dropped-no-buffer", no_buffer),
                ("dropped-unknown", unknown),
                ("dropped-source", source),
                ("dropped-malformed", malformed),
                ("made-checksums", self.finished.checksums),
                ("made-segments", self.finished.segments),
                ("copied", self.copied.frames),
                ("copied-bytes", self.copied.bytes),
                ("lent", self.lending.frames),
                ("lent-bytes", self.lending.bytes),
                ("sharing", self.lending.ports() as u64),
            ]
            .map(|(name, value)| Attribute::figure(name, value)),
        );
        all
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "lossless" => self.lossless = flag(name, value)?,
            "offload" => self.offload = flag(name, value)?,
            "share" => self.lending.permitted = flag(name, value)?,
            KICK => self.kick = Kick::read(value)?,
            _ => return Err(no_attribute(name)),
        }
        Ok(())
    }

    fn queues(&self) -> &'static [QueueKind] {
        OF_PAIRS
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        let mac = self.free_mac().filter(|_| self.ports.len() < PORTS);
        let mac = mac.ok_or_else(|| Error::limit("ports of a switch", PORTS))?;
        self.ports.insert(id, SwitchPort::new(mac));
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if let Some(port) = self.ports.remove(&id) {
            for pair in &port.pairs {
                self.totals.add(&pair.queues);
            }
        }
        self.lending.end(id);
    }

    fn lend(&mut self, id: ConnectionId, table: Table) -> Result<(), Error> {
        let mut pairs = self.port(id)?.pairs.iter();
        if pairs.any(|pair| pair.queues.is_shared()) {
            let text = "a port shares its memory before its queues";
            return Err(Error::new(Kind::Busy, text));
        }
        self.lending.begin(id, table)
    }

    fn left_loans(&self, id: ConnectionId) -> bool {
        self.lending.has_left(id)
    }

    fn released(&mut self, id: ConnectionId) {
        self.lending.released(id);
    }

    fn call(
        &mut self,
        id: ConnectionId,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        match call {
            call::MACSET => self.set_mac(id, argument),
            call::KICK => self.kick.answer(result),
            _ => {
                let has = if self.offload { cap::ALL } else { 0 };
                self.port(id)?.call(has, call, argument, result)
            }
        }
    }

    fn share(&mut self, id: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        self.port(id)?.share(queue, endpoint)
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        let Some(port) = self.ports.get(&id) else {
            return Work::Nothing;
        };
        if self.lending.shares(id) {
            self.lending.collect(&self.ports);
            self.lending.announce(round);
        }
        let mut ready = 0;
        for (number, pair) in port.pairs.iter().enumerate() {
            pair.queues.begin();
            // Looks now for packets that its owner has announced. They would not let this port
            // rest. The notifications stay: others may wait for the same queue.
            if let Some(awaited) = self.awaited(pair) {
                awaited.look();
            }
            let rx = pair.queues.rx.as_ref();
            ready |= u32::from(rx.is_some_and(Endpoint::ready)) << number;
        }
        // Frames of other ports may have waited for buffers that this one has posted now.
        let waiting = self.waiting(id).filter(|(_, pairs)| pairs & ready != 0);
        round.also.extend(waiting.map(|(other, _)| other));
        let (many, mut next) = (port.pairs.len(), port.next);
        // A bit for each pair.
        let mut waits = 0u32;
        let (mut done, mut more) = (false, true);
        let mut turn = Turn::new(budget);
        while turn.goes_on() {
            let mut pairs = (next..next + many).map(|number| number % many);
            let Some(number) = pairs.find(|number| waits >> number & 1 == 0) else {
                more = false;
                break;
            };
            match self.step((id, number), &mut turn, &mut round.broken) {
                Ok(Step::Done) => done = true,
                Ok(Step::Waits) => waits |= 1 << number,
                Err(error) => {
                    round.broken.push((id, error));
                    return Work::Nothing;
                }
            }
            next = number + 1;
        }
        if let Some(port) = self.ports.get_mut(&id) {
            port.next = next;
            port.pairs.iter_mut().for_each(|pair| pair.queues.signal());
        }
        Work::of(done, more)
    }

    fn rest(&mut self, id: ConnectionId) -> bool {
        let Some(port) = self.ports.get(&id).filter(|port| port.up) else {
            return false;
        };
        let rests = |queue: &Endpoint| queue.rest() || queue.ready();
        let awaited = self.waiting(id).fold(0, |all, (_, pairs)| all | pairs);
        let mut more = false;
        for (number, pair) in port.pairs.iter().enumerate() {
            let rx = pair.queues.rx.as_ref();
            more |= rx.filter(|_| awaited >> number & 1 != 0).is_some_and(rests);
            // The receiver notifies the switch when it posts buffers, and the sender need not.
            let next = match pair.waits_for {
                Some(_) => self.awaited(pair),
                None => pair.queues.tx.as_ref(),
            };
            more |= next.is_none_or(rests);
        }
        more
    }
}
