// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network card (virtio 1.2, section 5.1): one pair of queues between the driver and a network. The
//! network may be created when the guest first sends a frame that needs an answer.
//!
//! The stack in this process runs on the card's thread: a frame of the guest goes straight to a
//! socket of the host, and data of a socket to the guest's buffers. It and the other user-mode
//! networks are memory, so checksums are omitted in both directions. A tap passes the driver's
//! header to the host kernel, which checks it.

mod completions;
mod frames;
mod wire;

pub use wire::{Later, Wire};

use super::{Broken, Device, Driver, EventFlags, Interfaces, Waker, kind};
use completions::{Completions, Next};
use frames::{RX, Room, TX, give, read};
use paravane_net::link::{DATA_VALID, GSO_NONE, GSO_TCPV4, HEADER, Received};
use paravane_net::{Interface, tap};
use std::os::fd::AsFd;
use tracing::warn;
use virtio_bindings::virtio_net;
use wire::{Stage, wants_answer};

const QUEUE_SIZE: u16 = 256;
/// The most frames in one direction before the other gets its turn.
const BURST: usize = 128;

/// Feature bits (virtio 1.2, section 5.1.3).
const F_CSUM: u64 = 1 << virtio_net::VIRTIO_NET_F_CSUM;
const F_GUEST_CSUM: u64 = 1 << virtio_net::VIRTIO_NET_F_GUEST_CSUM;
const F_MTU: u64 = 1 << virtio_net::VIRTIO_NET_F_MTU;
const F_MAC: u64 = 1 << virtio_net::VIRTIO_NET_F_MAC;
const F_GUEST_TSO4: u64 = 1 << virtio_net::VIRTIO_NET_F_GUEST_TSO4;
const F_GUEST_TSO6: u64 = 1 << virtio_net::VIRTIO_NET_F_GUEST_TSO6;
const F_HOST_TSO4: u64 = 1 << virtio_net::VIRTIO_NET_F_HOST_TSO4;
const F_HOST_TSO6: u64 = 1 << virtio_net::VIRTIO_NET_F_HOST_TSO6;
const F_MRG_RXBUF: u64 = 1 << virtio_net::VIRTIO_NET_F_MRG_RXBUF;
const F_STATUS: u64 = 1 << virtio_net::VIRTIO_NET_F_STATUS;

/// `virtio_net_config.status`.
const LINK_UP: u16 = 1;

/// The device.
#[derive(Debug)]
pub struct Net {
    stage: Stage,
    /// The network may be the stack.
    stack: bool,
    /// Properties of the link.
    headers: bool,
    mtu: u16,
    mac: [u8; 6],
    waker: Option<Waker>,
    /// A frame of a link, after its header, for which the driver had no room yet.
    waiting: Vec<u8>,
    /// Space for the driver's frame, after its header.
    outgoing: Vec<u8>,
    completions: Completions,
    /// `completions` may wait.
    tx_delay: bool,
    /// The link has not taken a frame that is still in the driver's queue.
    full: bool,
    /// Reports whether the link's interface is up.
    interfaces: Option<Interfaces>,
    /// It is not.
    down: bool,
}

impl Net {
    /// A card with a hardware address on a network.
    pub fn new(wire: Wire, mac: [u8; 6]) -> Self {
        let (stack, headers, mtu) = match &wire {
            Wire::Link(link) => (false, link.headers, link.mtu),
            Wire::Stack(network) => (true, false, network.mtu()),
        };
        Net::with(Stage::Up(wire), stack, headers, mtu, mac)
    }

    /// A card on a user-mode network that does not run yet.
    pub fn later(later: Later, mac: [u8; 6]) -> Self {
        let mtu = later.mtu;
        Net::with(Stage::Later(later), true, false, mtu, mac)
    }

    fn with(stage: Stage, stack: bool, headers: bool, mtu: u16, mac: [u8; 6]) -> Self {
        Net {
            stage,
            stack,
            headers,
            mtu,
            mac,
            waker: None,
            waiting: Vec::new(),
            outgoing: Vec::new(),
            completions: Completions::default(),
            tx_delay: true,
            full: false,
            interfaces: None,
            down: false,
        }
    }

    /// The card reports each frame that it has sent at once.
    #[must_use]
    pub fn without_tx_delay(mut self) -> Self {
        self.tx_delay = false;
        self
    }

    /// A locally administered address, always the same for the same name.
    pub fn mac_of(name: &str) -> [u8; 6] {
        // FNV-1a: spreads the names, without secrecy.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
        [0x02, a, b, c, d, e]
    }

    fn gone(&mut self, driver: &Driver, why: &str) {
        warn!("the network is down: {why}");
        if let (Some(waker), Stage::Up(Wire::Link(link))) = (&self.waker, &self.stage) {
            waker.disarm(link);
        }
        self.stage = Stage::Down;
        driver.config_changed(&self.config());
    }

    /// Looks whether the interface of a tap is up. Returns whether that has changed.
    fn look_at_interface(&mut self) -> bool {
        let (Some(interfaces), Stage::Up(Wire::Link(link))) = (&self.interfaces, &self.stage)
        else {
            return false;
        };
        let Some(state) = link.index.and_then(|index| interfaces.news(index)) else {
            return false;
        };
        // Of one in another namespace nothing is known, and its frames may pass.
        let down = state == Interface::Down;
        std::mem::replace(&mut self.down, down) != down
    }

    /// Does all that can be done now. `woken`: something may have happened on the host.
    fn work(&mut self, driver: &mut Driver, woken: bool) -> Result<(), Broken> {
        if woken && self.completions.expired() {
            driver.signal(TX)?;
        }
        let given = if let Stage::Up(Wire::Stack(_)) = self.stage {
            self.work_stack(driver, woken)?
        } else {
            self.transmit(driver)?;
            // The reactor reports when the link has something to read.
            let read = woken || !self.waiting.is_empty();
            let given = if read { self.receive(driver)? } else { 0 };
            self.arm_link(read && given < BURST);
            given
        };
        if given > 0 {
            driver.signal(RX)?;
        }
        match self.completions.end_round(given > 0) {
            Next::Nothing => Ok(()),
            Next::Tell => driver.signal(TX),
            Next::Wait(timer) => {
                arm(self.waker.as_ref(), timer, EventFlags::IN);
                Ok(())
            }
        }
    }

    /// Runs the stack. Returns the number of frames to the driver.
    fn work_stack(&mut self, driver: &mut Driver, woken: bool) -> Result<usize, Broken> {
        let Stage::Up(Wire::Stack(network)) = &mut self.stage else {
            return Ok(0);
        };
        network.look_at_clock();
        let reports = woken && network.look();
        let segments = driver.features() & F_HOST_TSO4 != 0;
        let mut room = Room::of(driver);
        while network.takes() {
            let Some(chain) = room.driver.pop(TX)? else {
                break;
            };
            let head = chain.head_index();
            let frame = read(room.driver, chain, &mut self.outgoing);
            // One that is no frame is reported, too.
            self.completions
                .add(frame.as_ref().map_or(0, |frame| frame.len()));
            if let Some(frame) = frame.and_then(|frame| acceptable(frame, segments)) {
                network.take(frame, &mut room);
            }
            room.driver.push(TX, head, 0)?;
        }
        // Where the stack took no more, it does when the driver has room for what waits.
        let full = !network.takes();
        let more = network.serve(&mut room) || (full && network.takes());
        let given = room.end()?;
        if more || reports {
            if let Some(waker) = &self.waker {
                waker.wake();
            }
        } else if woken {
            let Stage::Up(Wire::Stack(network)) = &self.stage else {
                return Ok(given);
            };
            arm(self.waker.as_ref(), &**network, EventFlags::IN);
        }
        Ok(given)
    }

    /// Moves frames from a link to the driver, until there are no more frames or no more buffers.
    /// Returns their number.
    fn receive(&mut self, driver: &mut Driver) -> Result<usize, Broken> {
        let mut done = 0;
        while done < BURST {
            let Stage::Up(Wire::Link(link)) = &mut self.stage else {
                break;
            };
            if self.waiting.is_empty() {
                let offered = driver.features() & F_GUEST_CSUM != 0;
                match link.receive() {
                    Ok(Received::Frame(frame)) => {
                        if !self.headers {
                            let mut header = [0; HEADER];
                            header[0] = if offered { DATA_VALID } else { 0 };
                            self.waiting.extend(header);
                        }
                        self.waiting.extend(frame);
                    }
                    Ok(Received::Empty) => return Ok(done),
                    Ok(Received::Gone) => self.gone(driver, "its other end has closed it"),
                    Err(error) => self.gone(driver, &error.to_string()),
                }
                continue;
            }
            if !give(driver, &mut self.waiting)? {
                // The driver notifies when there are buffers again.
                break;
            }
            self.waiting.clear();
            done += 1;
        }
        if done == BURST {
            if let Some(waker) = &self.waker {
                waker.wake();
            }
        }
        Ok(done)
    }

    /// Waits for a link: for frames unless the driver has no room for one, and for room where it is
    /// full. `read`: it has no frame now, and is not waited for.
    fn arm_link(&self, read: bool) {
        let Stage::Up(Wire::Link(link)) = &self.stage else {
            return;
        };
        let full = self.full || link.stuck();
        let mut events = EventFlags::empty();
        events.set(EventFlags::IN, self.waiting.is_empty());
        events.set(EventFlags::OUT, full);
        if !events.is_empty() && (read || full) {
            arm(self.waker.as_ref(), link, events);
        }
    }

    /// Moves frames from the driver to a link, or to the network that they start.
    fn transmit(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        self.full = false;
        while let Some(chain) = driver.pop(TX)? {
            let head = chain.head_index();
            let frame = read(driver, chain, &mut self.outgoing);
            let skip = if self.headers { 0 } else { HEADER };
            let frame = frame
                .and_then(|frame| frame.get(skip..))
                .unwrap_or_default();
            let sent = match &mut self.stage {
                Stage::Up(Wire::Link(link)) => link.send(frame),
                Stage::Up(Wire::Stack(_)) | Stage::Down => Ok(true),
                Stage::Later(_) | Stage::Asleep(..) | Stage::Opening(_) if !wants_answer(frame) => {
                    Ok(true)
                }
                Stage::Later(_) | Stage::Asleep(..) | Stage::Opening(_) => {
                    self.stage.open();
                    Ok(false)
                }
            };
            match sent {
                Ok(true) => self.completions.add(frame.len()),
                Ok(false) => {
                    // Until there is room, or a network.
                    driver.put_back(TX);
                    self.full = true;
                    break;
                }
                Err(error) => self.gone(driver, &error.to_string()),
            }
            driver.push(TX, head, 0)?;
        }
        if let Stage::Up(Wire::Link(link)) = &mut self.stage {
            if let Err(error) = link.flush() {
                self.gone(driver, &error.to_string());
            }
        }
        Ok(())
    }

    /// The driver that is there now, for the network.
    fn attach(&mut self, driver: &Driver) {
        let has = |bit| driver.features() & bit != 0;
        match &mut self.stage {
            Stage::Up(Wire::Stack(network)) => network.attach(has(F_GUEST_CSUM)),
            Stage::Up(Wire::Link(link)) if self.headers => {
                let offload = tap::Offload {
                    checksum: has(F_GUEST_CSUM),
                    tcp4: has(F_GUEST_TSO4),
                    tcp6: has(F_GUEST_TSO6),
                };
                if let Err(error) = tap::set_offload(link, offload) {
                    warn!("network: the tap does not take the driver's offloads: {error}");
                }
            }
            _ => {}
        }
    }
}

/// Waits for a file of the host.
fn arm(waker: Option<&Waker>, file: impl AsFd, events: EventFlags) {
    if let Some(Err(error)) = waker.map(|waker| waker.arm(file, events)) {
        warn!("network: cannot wait for the host: {error}");
    }
}

/// The frame after a header, if it is one that the driver may send to the stack: a packet, or with
/// `segments` a TCP segment that may be longer than the MTU. The stack neither cuts segments nor
/// looks at checksums, so it uses no number of the header.
fn acceptable(frame: &[u8], segments: bool) -> Option<&[u8]> {
    let (header, frame) = frame.split_first_chunk::<HEADER>()?;
    match header[1] {
        GSO_NONE => Some(frame),
        GSO_TCPV4 if segments => Some(frame),
        _ => None,
    }
}

impl Device for Net {
    fn kind(&self) -> u32 {
        kind::NET
    }

    fn name(&self) -> String {
        // The policy with the host's sockets is for the stack alone.
        if self.stack { "net-user" } else { "net" }.to_string()
    }

    fn features(&self) -> u64 {
        let common = F_MAC | F_MTU | F_STATUS | F_MRG_RXBUF | F_CSUM | F_GUEST_CSUM;
        let segments = F_GUEST_TSO4 | F_GUEST_TSO6 | F_HOST_TSO4 | F_HOST_TSO6;
        match (self.headers, self.stack) {
            (true, _) => common | segments,
            // passt takes no segments longer than the MTU, and the network may be passt.
            (false, true) if matches!(self.stage, Stage::Up(_)) => common | F_HOST_TSO4,
            _ => common,
        }
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![QUEUE_SIZE; 2]
    }

    fn config(&self) -> Vec<u8> {
        let status = if self.down || matches!(self.stage, Stage::Down) {
            0
        } else {
            LINK_UP
        };
        let pairs = 1u16;
        let mut bytes = self.mac.to_vec();
        for word in [status, pairs, self.mtu] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        self.waker = Some(waker.clone());
        if self.tx_delay {
            self.completions.prepare()?;
        }
        if matches!(&self.stage, Stage::Up(Wire::Link(link)) if link.index.is_some()) {
            self.interfaces = Interfaces::open(waker);
            self.look_at_interface();
        }
        self.stage.prepare(waker)
    }

    fn activate(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        self.attach(driver);
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, _: usize) -> Result<(), Broken> {
        self.work(driver, false)
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        match self.stage.look() {
            Ok(true) => self.attach(driver),
            Ok(false) => {}
            Err(why) => self.gone(driver, why),
        }
        if self.look_at_interface() {
            driver.config_changed(&self.config());
        }
        self.work(driver, true)
    }

    fn reset(&mut self) {
        self.waiting.clear();
        self.completions.clear();
        if let Stage::Up(Wire::Stack(network)) = &mut self.stage {
            network.detach();
        }
    }
}

#[cfg(test)]
mod tests;
