// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that returns each packet to its sender, for measuring and for tests.
//!
//! It loses nothing: a packet is completed when its copy is in a buffer of the client.

use super::{BOTH, Port, Totals};
use crate::device::{Attribute, Class, ConnectionId, Device, QueueKind, Work};
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

/// What became of one packet.
enum Step {
    Done,
    TooLong,
    NoPacket,
    NoBuffer,
}

fn step(port: &mut Port) -> Result<Step, Broken> {
    if port.rx.is_none() || !port.take(limits::PACKET)? {
        return Ok(Step::NoPacket);
    }
    let (Some(rx), Some(flags)) = (&mut port.rx, port.held) else {
        return Ok(Step::NoPacket);
    };
    let sent = rx.send(&port.buffer, flags)?;
    if sent == Sent::NoBuffer {
        return Ok(Step::NoBuffer);
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
        let mut all = self.totals.attributes(self.ports.values());
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

    fn work(
        &mut self,
        id: ConnectionId,
        budget: u32,
        broken: &mut Vec<(ConnectionId, Broken)>,
    ) -> Work {
        let Some(port) = self.ports.get_mut(&id) else {
            return Work::Idle;
        };
        port.begin();
        let mut end = None;
        for _ in 0..budget {
            match step(port) {
                Ok(Step::Done) => {}
                Ok(Step::TooLong) => self.too_long += 1,
                Ok(Step::NoPacket) => {
                    end = Some(false);
                    break;
                }
                Ok(Step::NoBuffer) => {
                    end = Some(true);
                    break;
                }
                Err(error) => {
                    broken.push((id, error));
                    return Work::Idle;
                }
            }
        }
        if port.end(end.is_some(), end == Some(true)) {
            Work::More
        } else {
            Work::Idle
        }
    }
}
