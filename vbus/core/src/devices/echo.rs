// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that returns each packet to its sender, for measuring and for tests.
//!
//! It loses nothing: a packet is completed when its copy is in a buffer of the client.

use super::{BOTH, Port, Totals, Turn};
use crate::device::{Attribute, Class, ConnectionId, Device, QueueKind, Round, Work};
use crate::endpoint::{Broken, Endpoint, Sent};
use crate::error::Error;
use crate::limits;
use crate::name::Name;
use std::collections::BTreeMap;

/// Makes [`Echo`].
#[derive(Debug)]
pub struct EchoClass;

impl Class for EchoClass {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn create(&self, _: &Name) -> Box<dyn Device> {
        Box::new(Echo::default())
    }
}

/// The device.
#[derive(Debug, Default)]
pub struct Echo {
    ports: BTreeMap<ConnectionId, Port>,
    totals: Totals,
    too_long: u64,
}

/// The outcome of one packet.
enum Step {
    Done,
    TooLong,
    /// There is no packet, or no buffer for the one that is held.
    Waits,
}

fn step(port: &mut Port) -> Result<Step, Broken> {
    if port.rx.is_none() || !port.take(limits::PACKET)? {
        return Ok(Step::Waits);
    }
    let (Some(rx), Some(flags)) = (&mut port.rx, port.held) else {
        return Ok(Step::Waits);
    };
    let sent = rx.send(&port.buffer, flags)?;
    if sent == Sent::NoBuffer {
        return Ok(Step::Waits);
    }
    port.done();
    Ok(if sent == Sent::Yes {
        Step::Done
    } else {
        Step::TooLong
    })
}

impl Device for Echo {
    fn interface(&self) -> &'static str {
        "echo"
    }

    fn attributes(&self) -> Vec<Attribute> {
        let mut all = self
            .totals
            .attributes(self.ports.len(), self.ports.values());
        all.push(Attribute::figure("too-long", self.too_long));
        all
    }

    fn queues(&self) -> &'static [QueueKind] {
        BOTH
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        self.ports.insert(id, Port::default());
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if let Some(port) = self.ports.remove(&id) {
            self.totals.add(&port);
        }
    }

    fn share(&mut self, id: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        match self.ports.get_mut(&id) {
            Some(port) => port.share(queue, endpoint),
            None => Err(Error::not_found("connection", "of this number")),
        }
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        let Some(port) = self.ports.get_mut(&id) else {
            return Work::Nothing;
        };
        port.begin();
        let (mut done, mut more) = (false, true);
        let mut turn = Turn::new(budget);
        while turn.goes_on() {
            match step(port) {
                Ok(Step::Done) => {
                    done = true;
                    // In and out.
                    turn.copied(2 * port.buffer.len());
                }
                Ok(Step::TooLong) => {
                    done = true;
                    turn.copied(port.buffer.len());
                    self.too_long += 1;
                }
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
        port.signal();
        Work::of(done, more)
    }

    fn rest(&mut self, id: ConnectionId) -> bool {
        // If there is no queue for the answers, packets wait for that queue and not for a buffer.
        let port = self.ports.get(&id).filter(|port| port.rx.is_some());
        port.is_some_and(Port::rest)
    }
}
