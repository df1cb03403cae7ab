// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that takes packets and throws them away, for measuring.

use super::{BOTH, Port, Totals, Turn};
use crate::device::{Attribute, Class, ConnectionId, Device, QueueKind, Round, Work};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::limits;
use crate::name::Name;
use std::collections::BTreeMap;

/// Makes [`Null`].
#[derive(Debug)]
pub struct NullClass;

impl Class for NullClass {
    fn name(&self) -> &'static str {
        "null"
    }

    fn create(&self, _: &Name) -> Box<dyn Device> {
        Box::new(Null::default())
    }
}

/// The device.
#[derive(Debug, Default)]
pub struct Null {
    ports: BTreeMap<ConnectionId, Port>,
    totals: Totals,
}

impl Device for Null {
    fn interface(&self) -> &'static str {
        "null"
    }

    fn attributes(&self) -> Vec<Attribute> {
        self.totals
            .attributes(self.ports.len(), self.ports.values())
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
            match port.take(limits::PACKET) {
                Ok(true) => {
                    turn.copied(port.buffer.len());
                    port.done();
                    done = true;
                }
                Ok(false) => {
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
        self.ports.get(&id).is_some_and(Port::rest)
    }
}
