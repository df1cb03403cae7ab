// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on the bus of a vbusd. The monitor is the client. vbusd maps the monitor's memory, not
//! the guest's, and each frame is copied once between the two.
//!
//! The monitor agrees with the device on what may be unfinished in frames, and the guest with the
//! card. Where the two differ, the card finishes frames.
//!
//! A card may share with others of the device: then the card of a guest that gets a frame copies it
//! from this monitor's memory, and vbusd copies only the headers.
//!
//! Where vbusd ends, the guest's frames wait in its queue until the monitor has joined again. Where
//! an administrator takes the device from the bus, the card disappears from the guest.

use crate::card::{Port, Properties, QUEUES, TYPE};
use crate::host;
use crate::join::Joiner;
use crate::place::{Place, Trouble, outcome};
use crate::presence::Presence;
use paravane_devices::Waker;
use paravane_vbus::ethernet::{Frame, Kick, Unfinished, call, cap, flag};
use paravane_vbus::{
    Attribute, Broken, ConnectionId, Content, Culprit, Device, Endpoint, Error, Outside, QueueKind,
    Round, Sent, Work,
};
use paravane_vbus_cards::looks::FEW;
use paravane_vbus_client::{Client, Error as ClientError, Options, Put, Terms};
use std::path::Path;
use std::sync::Arc;
use tracing::info;

/// Descriptors of each of the monitor's queues.
const COUNT: u32 = 256;
/// Bytes of each of its buffers: a frame of the largest MTU. A long TCP segment takes several.
const BUFFER: usize = 9216;
/// The MTU at first, and the largest.
const MTU: u16 = 1500;
const MTU_MAX: u16 = 9000;

/// The card.
#[derive(Debug)]
pub struct Far {
    port: Port,
    properties: Properties,
    /// What the device says of rare notifications.
    kick: Kick,
    place: Place<Client>,
    /// The bus takes no more frames now.
    full: bool,
    /// A frame of the bus for which the guest has no buffer, in the client's memory.
    waiting: Frame,
    /// The last round that passed on frames passed on many.
    streams: bool,
}

impl From<Outside> for Trouble {
    fn from(outside: Outside) -> Self {
        // The client has looked for all of its frames in its own memory and those of others, which
        // stay while it has them. So the fault is the guest's.
        Trouble::Guest(Broken::Memory(outside))
    }
}

/// A frame that no wire takes: longer than those of the largest MTU, and no TCP segment that is cut
/// where it must be.
fn is_too_long(frame: &Content<'_>, flags: u32) -> bool {
    frame.len() > BUFFER && flags & flag::TSO4 == 0
}

/// Posts a frame of the guest.
fn post(client: &mut Client, frame: &Content<'_>, flags: u32) -> Result<Sent, Trouble> {
    if is_too_long(frame, flags) {
        return Ok(Sent::TooLong);
    }
    match client.put(frame, flags) {
        Ok(true) => Ok(Sent::Yes),
        Ok(false) => Ok(Sent::NoBuffer),
        Err(Put::Broken(culprit)) => Err(Trouble::Guest(culprit.broken())),
        Err(Put::Failed(why)) => Err(Trouble::Bus(why)),
    }
}

/// Gives the guest a frame of the bus.
fn give(port: &mut Port, frame: &Content<'_>, flags: u32) -> Result<Sent, Trouble> {
    if is_too_long(frame, flags) {
        return Ok(Sent::TooLong);
    }
    match port.put(frame, flags) {
        Ok(true) => Ok(Sent::Yes),
        Ok(false) => Ok(Sent::NoBuffer),
        Err(Culprit::Receiver(broken)) => Err(Trouble::Guest(broken)),
        Err(Culprit::Sender(broken)) => {
            let text = format!("a frame is not in the client's memory: {broken}");
            Err(Trouble::Bus(ClientError::Protocol(text)))
        }
    }
}

/// Asks the device which notifications are rare. That of an older vbusd does not know.
fn ask_kick(client: &mut Client) -> Result<Kick, ClientError> {
    let answered = match client.call(call::KICK, &[]) {
        Ok(result) => Kick::answered(&result),
        Err(ClientError::Refused(_)) => None,
        Err(error) => return Err(error),
    };
    Ok(answered.unwrap_or(Kick::FIRST))
}

impl Far {
    /// Joins a bus of the vbusd at `socket`, and connects to a device there.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses, or the device is no network.
    pub fn join(socket: &Path, bus: &str, device: &str) -> Result<Self, ClientError> {
        Far::join_on(socket, bus, device, false)
    }

    /// Joins and connects as [`Far::join`], and shares memory with other clients of the device, if
    /// the device allows it.
    ///
    /// # Errors
    /// As [`Far::join`].
    pub fn join_sharing(socket: &Path, bus: &str, device: &str) -> Result<Self, ClientError> {
        Far::join_on(socket, bus, device, true)
    }

    fn join_on(socket: &Path, bus: &str, device: &str, sharing: bool) -> Result<Self, ClientError> {
        let options = Options {
            socket: socket.to_path_buf(),
            bus: bus.to_string(),
            device: device.to_string(),
            count: COUNT,
            buffer: u32::try_from(BUFFER).unwrap_or(u32::MAX),
        };
        let terms = Terms {
            capabilities: cap::ALL,
            hearing: true,
            sharing,
            ..Terms::default()
        };
        let mut client = Client::connect_on(options, terms)?;
        if sharing && !client.shares() {
            info!("virtual bus: device {device} shares no memory now: frames are copied");
        }
        let found = &client.interface().interface;
        let Some(mac) = client.mac().filter(|_| found == TYPE) else {
            return Err(ClientError::Invalid(format!(
                "the device {device:.40} is no network: its type is {found:.40}"
            )));
        };
        let kick = ask_kick(&mut client)?;
        Ok(Far {
            port: Port::default(),
            properties: Properties {
                mac,
                mtu: MTU,
                mtu_max: MTU_MAX,
                caps: cap::CHAIN | client.capabilities(),
            },
            kick,
            place: Place::new(client),
            full: false,
            waiting: Frame::default(),
            streams: false,
        })
    }

    pub(crate) fn start(&mut self, waker: &Waker, joiner: &Joiner) {
        self.port.start(&host::waker(waker));
        self.place.start(waker, joiner);
    }

    pub(crate) fn presence(&self) -> Arc<Presence> {
        self.place.presence()
    }

    /// Which notifications are rare, as the device said when the card was made.
    pub(crate) fn kick(&self) -> Kick {
        self.kick
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
        self.waiting.clear();
        self.full = false;
        self.place.lose(why);
    }

    /// Moves frames in both directions. Returns whether it did something, and whether there may be
    /// more.
    fn pass(&mut self, budget: u32) -> Result<(bool, bool), Trouble> {
        self.place.take_reports()?;
        if let Some(client) = &mut self.place.client {
            // Without one, frames wait.
            self.port.set_link(client.link()?);
        }
        self.port.announce()?;
        let Some(client) = &mut self.place.client else {
            return Ok((false, false));
        };
        let sent = transmit(&mut self.port, client, budget, &mut self.full)?;
        let received = receive(&mut self.port, client, &mut self.waiting, budget)?;
        if sent + received > 0 {
            self.streams = sent.max(received) > FEW;
        }
        Ok((sent + received > 0, sent == budget || received == budget))
    }
}

/// Posts frames of the guest. Returns how many, and in `full` whether the bus takes no more now.
fn transmit(
    port: &mut Port,
    client: &mut Client,
    budget: u32,
    full: &mut bool,
) -> Result<u32, Trouble> {
    let agreed = client.capabilities();
    let mut takes = Unfinished::sent(agreed);
    // A long one takes several of the client's buffers.
    if agreed & cap::CHAIN == 0 {
        (takes.long4, takes.long6) = (false, false);
    }
    let (mut sent, mut result) = (0, Ok(()));
    *full = false;
    while sent < budget {
        let Some(mut lying) = port.take_lying()? else {
            break;
        };
        let memory = lying.memory.clone();
        let passed = lying
            .frame
            .pass(&*memory, takes, |frame, flags| post(client, frame, flags));
        match passed {
            Ok(passed) if passed.sent == Sent::NoBuffer => {
                *full = true;
                port.keep_lying(lying);
                break;
            }
            Ok(passed) if passed.more => port.keep_lying(lying),
            // One that is too long, or makes no sense, is dropped.
            Ok(_) => port.passed_lying(lying),
            Err(why) => {
                port.keep_lying(lying);
                result = Err(why);
                break;
            }
        }
        sent += 1;
    }
    if sent > 0 {
        client.flush();
    }
    result.map(|()| sent)
}

/// Gives the guest frames of the bus. Returns how many.
fn receive(
    port: &mut Port,
    client: &mut Client,
    waiting: &mut Frame,
    budget: u32,
) -> Result<u32, Trouble> {
    let takes = Unfinished::received(port.caps);
    let mut received = 0;
    while received < budget {
        if waiting.form().is_none() {
            if !client.collect()? {
                break;
            }
            waiting.parts.clone_from(client.parts());
            // A device's words about a frame are checked, as those of a client are.
            waiting.read(client.memory(), Unfinished::received(client.capabilities()))?;
        }
        let passed = waiting.pass(client.memory(), takes, |frame, flags| {
            give(port, frame, flags)
        })?;
        if passed.sent == Sent::NoBuffer {
            break;
        }
        if !passed.more {
            waiting.clear();
            client.release()?;
        }
        received += 1;
    }
    Ok(received)
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
        // The frame remains the client's next one, and is lost with those that follow.
        self.waiting.clear();
    }

    fn call(
        &mut self,
        _: ConnectionId,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        let called = self.port.call(&self.properties, call, argument, result)?;
        Ok(called.bytes)
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
        // Only memory is read.
        self.place.client.is_some() && self.port.is_up()
    }

    fn streams(&self) -> bool {
        self.streams
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        let Some(client) = &mut self.place.client else {
            // Nothing to do before it has joined again. The guest's frames wait.
            return false;
        };
        let rests = if self.waiting.form().is_some() {
            // Frames of the bus wait until the guest posts buffers. Its own frames do not.
            client.rest_without_packets(self.full)
        } else {
            client.rest(self.full)
        };
        if !rests | self.port.rest(self.full) {
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
