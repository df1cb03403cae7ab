// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on the bus of a vbusd. The monitor is the client; its memory, not the guest's, is what
//! vbusd maps, and each frame is copied between the two.
//!
//! Where vbusd ends, the guest's frames wait in its queue until the monitor has joined again. Where
//! an administrator takes the device from the bus, the card disappears from the guest.

use crate::card::{Called, Port, Properties, QUEUES, TYPE, cap};
use crate::host;
use crate::join::Joiner;
use crate::place::{Place, Trouble, outcome};
use crate::presence::Presence;
use paravane_devices::Waker;
use paravane_vbus::{Attribute, ConnectionId, Device, Endpoint, Error, QueueKind, Round, Work};
use paravane_vbus_client::{Client, Error as ClientError, Options};
use std::path::Path;
use std::sync::Arc;

/// Descriptors of each of the monitor's queues.
const COUNT: u32 = 256;
/// Bytes of each of its buffers: a frame of the largest MTU.
const BUFFER: usize = 9216;
/// The MTU at first, and the largest.
const MTU: u16 = 1500;
const MTU_MAX: u16 = 9000;

/// The card.
#[derive(Debug)]
pub struct Far {
    port: Port,
    properties: Properties,
    place: Place<Client>,
    /// The bus takes no more frames now.
    full: bool,
    /// A frame of the bus for which the guest has no buffer: its length.
    waiting: Option<usize>,
    buffer: Vec<u8>,
}

impl Far {
    /// Joins a bus of the vbusd at `socket`, and connects to a device there.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses, or the device is no network.
    pub fn join(socket: &Path, bus: &str, device: &str) -> Result<Self, ClientError> {
        let client = Client::connect(Options {
            socket: socket.to_path_buf(),
            bus: bus.to_string(),
            device: device.to_string(),
            count: COUNT,
            buffer: u32::try_from(BUFFER).unwrap_or(u32::MAX),
        })?;
        let found = &client.interface().interface;
        let Some(mac) = client.mac().filter(|_| found == TYPE) else {
            return Err(ClientError::Invalid(format!(
                "the device {device:.40} is no network: its type is {found:.40}"
            )));
        };
        Ok(Far {
            port: Port::default(),
            properties: Properties {
                mac,
                mtu: MTU,
                mtu_max: MTU_MAX,
                caps: cap::CHAIN,
            },
            place: Place::new(client),
            full: false,
            waiting: None,
            buffer: vec![0; BUFFER],
        })
    }

    pub(crate) fn start(&mut self, waker: &Waker, joiner: &Joiner) {
        self.port.start(&host::waker(waker));
        self.place.start(waker, joiner);
    }

    pub(crate) fn presence(&self) -> Arc<Presence> {
        self.place.presence()
    }

    /// Takes what the thread that joins has found out. Another address is another card.
    fn look_for_client(&mut self) {
        let mac = &mut self.properties.mac;
        self.place.look(|client| {
            let found = client.mac().unwrap_or(*mac);
            std::mem::replace(mac, found) != found
        });
    }

    /// The connection has ended.
    fn lose(&mut self, why: &ClientError) {
        (self.waiting, self.full) = (None, false);
        self.place.lose(why);
    }

    /// Moves frames in both directions. Returns whether it did something, and whether there may be
    /// more.
    fn pass(&mut self, budget: u32) -> Result<(bool, bool), Trouble> {
        self.place.take_reports()?;
        self.port.announce()?;
        let Some(client) = &mut self.place.client else {
            return Ok((false, false));
        };
        let (mut sent, mut received) = (0, 0);
        self.full = false;
        while sent < budget {
            let Some(frame) = self.port.take()? else {
                break;
            };
            // One that is too long is dropped, as on a wire.
            if frame.len() <= BUFFER && !client.post(&frame)? {
                self.full = true;
                self.port.keep(frame);
                break;
            }
            self.port.passed(frame);
            sent += 1;
        }
        if sent > 0 {
            client.flush();
        }
        while received < budget {
            if self.waiting.is_none() {
                let length = client.receive(&mut self.buffer)?;
                self.waiting = length.filter(|&length| length <= BUFFER);
            }
            let Some(frame) = self.waiting.and_then(|length| self.buffer.get(..length)) else {
                break;
            };
            if !self.port.give(frame, 0)? {
                break;
            }
            self.waiting = None;
            received += 1;
        }
        Ok((sent + received > 0, sent == budget || received == budget))
    }
}

impl Device for Far {
    fn interface(&self) -> &'static str {
        TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        self.place.attributes()
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        self.port.connect(id)?;
        self.place.reported = true;
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        self.port.disconnect(id);
        self.waiting = None;
    }

    fn call(
        &mut self,
        _: ConnectionId,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        match self.port.call(&self.properties, call, argument, result)? {
            Called::Result(bytes) => Ok(bytes),
            Called::Up | Called::Down => Ok(0),
        }
    }

    fn share(&mut self, _: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        self.port.share(queue, endpoint)
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        self.look_for_client();
        self.port.begin();
        let passed = self.pass(budget);
        self.port.signal();
        let (work, lost) = outcome(passed, id, round);
        if let Some(why) = lost {
            self.lose(&why);
        }
        work
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        // Only memory is looked at.
        self.place.client.is_some() && self.port.is_up()
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        let Some(client) = &mut self.place.client else {
            // Nothing to do before it has joined again. The guest's frames wait.
            return false;
        };
        // Frames of the bus wait for buffers of the guest, which notifies when it has some.
        let more = self.waiting.is_none() && !client.rest(self.full);
        if more | self.port.rest(self.full) {
            return true;
        }
        self.place.arm();
        false
    }

    fn woken(&mut self) {
        self.place.woken();
        self.look_for_client();
        if !self.port.is_connected() {
            // No driver makes it work.
            if let Err(why) = self.place.take_reports() {
                self.lose(&why);
            }
            self.place.arm();
        }
    }
}
