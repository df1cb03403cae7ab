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
//! a long TCP segment that it would not take is cut: there the sender pays the time.
//!
//! Calls are those of venet (seed 003): `LINKUP`, `LINKDOWN`, `MACQUERY`, `NEGCAP`, `FLUSHRX`; and
//! `MACSET`, by which a client that comes back asks for the address that it had.

mod port;

use self::port::{Dropped, Finished, SwitchPort};
use super::{BOTH, Totals, Turn};
use crate::content::Culprit;
use crate::device::{
    Attribute, Class, ConnectionId, Device, QueueKind, Round, Work, flag, no_attribute,
};
use crate::endpoint::{Broken, Endpoint, Sent};
use crate::error::{Error, Kind};
use crate::ethernet::{Form, Frame, TYPE, Unfinished, Way, call, cap, more};
use crate::limits;
use crate::memory::MemoryContext;
use crate::name::Name;
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
            dropped: Dropped::default(),
            finished: Finished::default(),
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
    dropped: Dropped,
    finished: Finished,
}

/// What became of one frame, or of a segment of it.
enum Step {
    Done,
    /// There is no frame, or no buffer for the one that is held.
    Waits,
}

/// Where a frame is now.
enum Next {
    /// It was delivered, or dropped.
    Gone,
    /// Further segments are to be cut off.
    More,
    /// It waits for buffers of this port.
    For(ConnectionId),
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

    /// Moves one frame of a port, or one segment of it.
    fn step(
        &mut self,
        id: ConnectionId,
        turn: &mut Turn,
        broken: &mut Vec<(ConnectionId, Broken)>,
    ) -> Result<Step, Broken> {
        let Some(from) = self.ports.get_mut(&id).filter(|port| port.up) else {
            return Ok(Step::Waits);
        };
        let Some(tx) = &mut from.port.tx else {
            return Ok(Step::Waits);
        };
        let memory = tx.memory();
        if from.frame.form().is_none() {
            let parts = &mut from.frame.parts;
            if !tx.collect(parts, limits::PACKET, more(from.caps))? {
                return Ok(Step::Waits);
            }
            let read = from.frame.read(&*memory, Unfinished::sent(from.caps));
            read.map_err(Broken::Memory)?;
        }
        let mac = from.mac;
        // The frame leaves the port while it is delivered to others.
        let mut frame = std::mem::take(&mut from.frame);
        let next = self.deliver((id, mac), &mut frame, &*memory, turn, broken);
        let Some(from) = self.ports.get_mut(&id) else {
            return Ok(Step::Waits);
        };
        from.frame = frame;
        from.waits_for = None;
        match next? {
            Next::Gone => from.forget_frame(),
            Next::More => {}
            Next::For(other) => {
                from.waits_for = Some(other);
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
        let mut known = to_all;
        for (&id, port) in &mut self.ports {
            if id == from || !port.up || !(to_all || to == port.mac) {
                continue;
            }
            known = true;
            let Some(rx) = &mut port.port.rx else {
                continue;
            };
            let takes = Unfinished::received(port.caps);
            let mut copied = 0;
            let passed = frame.pass(memory, takes, |content, flags| {
                copied = content.len();
                rx.put(content, flags, more(port.caps))
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
                // A frame for all waits for nobody.
                Sent::NoBuffer if self.lossless && !to_all => return Ok(Next::For(id)),
                // With it go the segments that it has left.
                Sent::NoBuffer | Sent::TooLong => self.dropped.no_buffer += 1,
            }
        }
        if !known {
            self.dropped.unknown += 1;
        }
        Ok(Next::Gone)
    }

    /// The queue whose buffers a port waits for.
    fn awaited(&self, port: &SwitchPort) -> Option<&Endpoint> {
        let receiver = self.ports.get(&port.waits_for?);
        receiver.and_then(|port| port.port.rx.as_ref())
    }

    /// Ports whose frames wait for buffers of this one.
    fn waiting(&self, id: ConnectionId) -> Vec<ConnectionId> {
        let waits = |(&other, port): (&ConnectionId, &SwitchPort)| {
            (port.waits_for == Some(id)).then_some(other)
        };
        self.ports.iter().filter_map(waits).collect()
    }
}

impl Device for Switch {
    fn interface(&self) -> &'static str {
        TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        let ports = self.ports.values().map(|port| &port.port);
        let mut all = self.totals.attributes(ports);
        for (name, value) in [("lossless", self.lossless), ("offload", self.offload)] {
            all.push(Attribute::setting(name, u8::from(value).to_string()));
        }
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
            ]
            .map(|(name, value)| Attribute::figure(name, value)),
        );
        all
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "lossless" => self.lossless = flag(name, value)?,
            "offload" => self.offload = flag(name, value)?,
            _ => return Err(no_attribute(name)),
        }
        Ok(())
    }

    fn queues(&self) -> &'static [QueueKind] {
        BOTH
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        let mac = self.free_mac().filter(|_| self.ports.len() < PORTS);
        let mac = mac.ok_or_else(|| Error::limit("ports of a switch", PORTS))?;
        self.ports.insert(id, SwitchPort::new(mac));
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if let Some(port) = self.ports.remove(&id) {
            self.totals.add(&port.port);
        }
    }

    fn call(
        &mut self,
        id: ConnectionId,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        if call == call::MACSET {
            return self.set_mac(id, argument);
        }
        let has = if self.offload { cap::ALL } else { 0 };
        let port = self.port(id)?;
        match call {
            call::LINKUP if port.up => Err(Error::new(Kind::Exists, "the link is up already")),
            call::LINKUP if port.port.rx.is_none() || port.port.tx.is_none() => Err(Error::new(
                Kind::Invalid,
                "the link cannot be up before both queues are shared",
            )),
            call::LINKUP => {
                (port.up, port.settled) = (true, true);
                Ok(0)
            }
            call::LINKDOWN => {
                port.up = false;
                // A frame that is held waits for the link now, not for a receiver.
                port.waits_for = None;
                Ok(0)
            }
            call::MACQUERY => {
                port.settled = true;
                put(result, &port.mac)
            }
            call::NEGCAP if port.up => Err(Error::new(
                Kind::Busy,
                "capabilities are negotiated while the link is down",
            )),
            call::NEGCAP if argument.len() == 8 => {
                let word = |at: usize| argument.get(at..).and_then(<[u8]>::first_chunk);
                let [group, wanted] =
                    [0, 4].map(|at| u32::from_le_bytes(*word(at).unwrap_or(&[0; 4])));
                let agreed = port.agree(group, wanted & has);
                put(result, &[group, agreed].map(u32::to_le_bytes).concat())
            }
            call::FLUSHRX => {
                let Some(rx) = &mut port.port.rx else {
                    return Ok(0);
                };
                let flushed = rx.flush_buffers(limits::DESCRIPTORS);
                let text = |error: Broken| Error::new(Kind::Broken, error.to_string());
                flushed.map(|_| 0).map_err(text)
            }
            _ => Err(Error::new(
                Kind::NotFound,
                format!("{TYPE} has no call {call} with {} bytes", argument.len()),
            )),
        }
    }

    fn share(&mut self, id: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        self.port(id)?.port.share(queue, endpoint)
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        let Some(port) = self.ports.get(&id) else {
            return Work::Nothing;
        };
        port.port.begin();
        // What its owner has announced is looked for now. It would not let this port rest. The
        // notifications stay: others may wait for the same queue.
        if let Some(awaited) = self.awaited(port) {
            awaited.look();
        }
        // Frames of other ports may have waited for buffers that this one has posted now.
        if port.port.rx.as_ref().is_some_and(Endpoint::ready) {
            round.also.extend(self.waiting(id));
        }
        let (mut done, mut more) = (false, true);
        let mut turn = Turn::new(budget);
        while turn.goes_on() {
            match self.step(id, &mut turn, &mut round.broken) {
                Ok(Step::Done) => done = true,
                Ok(Step::Waits) => {
                    more = false;
                    break;
                }
                Err(error) => {
                    round.broken.push((id, error));
                    return Work::Nothing;
                }
            }
        }
        if let Some(port) = self.ports.get_mut(&id) {
            port.port.signal();
        }
        Work::of(done, more)
    }

    fn rest(&mut self, id: ConnectionId) -> bool {
        let Some(port) = self.ports.get(&id).filter(|port| port.up) else {
            return false;
        };
        let rests = |queue: &Endpoint| queue.rest() || queue.ready();
        let awaited = !self.waiting(id).is_empty();
        let rx = port.port.rx.as_ref().filter(|_| awaited);
        let more = rx.is_some_and(rests);
        // The receiver notifies the switch when it posts buffers, and the sender need not.
        let next = match port.waits_for {
            Some(_) => self.awaited(port),
            None => port.port.tx.as_ref(),
        };
        more | next.is_none_or(rests)
    }
}

fn put(result: &mut [u8], bytes: &[u8]) -> Result<usize, Error> {
    let Some(place) = result.get_mut(..bytes.len()) else {
        let text = format!("the result has {} bytes", bytes.len());
        return Err(Error::new(Kind::Invalid, text));
    };
    place.copy_from_slice(bytes);
    Ok(bytes.len())
}
