// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network card (virtio 1.2, section 5.1): one pair of queues between the driver and a [`Link`].
//! The link may be created when the guest first sends a frame that needs an answer.
//!
//! Each frame costs one host call in each direction. A link without headers of its own (a user-mode
//! network) is memory, so checksums are omitted in both directions. A link with headers (a tap)
//! passes the driver's header to the host kernel, which checks it.

mod wire;

pub use wire::Later;

use super::buffers::Buffers;
use super::{Broken, Chain, Device, Driver, EventFlags, Waker, kind};
use paravane_net::link::{HEADER, Link, Received};
use paravane_net::{MAX_FRAME, tap};
use std::io::Read;
use std::sync::Arc;
use tracing::{debug, warn};
use wire::{Wire, wants_answer};

const RX: usize = 0;
const TX: usize = 1;
const QUEUE_SIZE: u16 = 256;
/// The most frames in one direction before the other gets its turn.
const BURST: usize = 128;

/// Feature bits (virtio 1.2, section 5.1.3).
const F_CSUM: u64 = 1 << 0;
const F_GUEST_CSUM: u64 = 1 << 1;
const F_MTU: u64 = 1 << 3;
const F_MAC: u64 = 1 << 5;
const F_GUEST_TSO4: u64 = 1 << 7;
const F_GUEST_TSO6: u64 = 1 << 8;
const F_HOST_TSO4: u64 = 1 << 11;
const F_HOST_TSO6: u64 = 1 << 12;
const F_MRG_RXBUF: u64 = 1 << 15;
const F_STATUS: u64 = 1 << 16;

/// `virtio_net_hdr.flags`: the checksum has been verified.
const DATA_VALID: u8 = 2;
/// `virtio_net_config.status`.
const LINK_UP: u16 = 1;
/// Offset of `num_buffers` in the header.
const NUM_BUFFERS: usize = 10;

/// The device.
#[derive(Debug)]
pub struct Net {
    wire: Wire,
    /// Properties of the link.
    headers: bool,
    mtu: u16,
    mac: [u8; 6],
    waker: Option<Waker>,
    /// A frame from the network, after its header, for which the driver had no room yet.
    waiting: Vec<u8>,
    /// The driver's frame, after its header.
    outgoing: Vec<u8>,
}

impl Net {
    /// A card with a hardware address on a network.
    pub fn new(link: Link, mac: [u8; 6]) -> Self {
        let (headers, mtu) = (link.headers, link.mtu);
        Net::with(Wire::Up(link), headers, mtu, mac)
    }

    /// A card on a network without headers that does not run yet.
    pub fn later(later: Later, mac: [u8; 6]) -> Self {
        let mtu = later.mtu;
        Net::with(Wire::Later(later), false, mtu, mac)
    }

    fn with(wire: Wire, headers: bool, mtu: u16, mac: [u8; 6]) -> Self {
        Net {
            wire,
            headers,
            mtu,
            mac,
            waker: None,
            waiting: Vec::new(),
            outgoing: Vec::new(),
        }
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

    fn arm(&self, events: EventFlags) {
        let (Some(waker), Wire::Up(link)) = (&self.waker, &self.wire) else {
            return;
        };
        if let Err(error) = waker.arm(link, events) {
            warn!("network: cannot wait for the link: {error}");
        }
    }

    fn gone(&mut self, driver: &Driver, why: &str) {
        warn!("the network is down: {why}");
        if let (Some(waker), Wire::Up(link)) = (&self.waker, &self.wire) {
            waker.disarm(link);
        }
        self.wire = Wire::Down;
        driver.config_changed(&self.config());
    }

    /// Moves frames from the network to the driver, until there are no more frames or no more
    /// buffers.
    fn receive(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        let mut done = 0;
        while done < BURST {
            let Wire::Up(link) = &mut self.wire else {
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
                    Ok(Received::Empty) => {
                        self.arm(self.events());
                        break;
                    }
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
        if done > 0 { driver.signal(RX) } else { Ok(()) }
    }

    fn events(&self) -> EventFlags {
        if self.stuck() {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        }
    }

    fn stuck(&self) -> bool {
        matches!(&self.wire, Wire::Up(link) if link.stuck())
    }

    /// Moves frames from the driver to the network.
    fn transmit(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        let mut done = false;
        while let Some(chain) = driver.pop(TX)? {
            let head = chain.head_index();
            self.outgoing.clear();
            read(driver, chain, &mut self.outgoing);
            let skip = if self.headers { 0 } else { HEADER };
            let frame = self.outgoing.get(skip..).unwrap_or_default();
            let sent = match &mut self.wire {
                Wire::Up(link) => link.send(frame),
                Wire::Down => Ok(true),
                Wire::Later(_) | Wire::Asleep(..) | Wire::Opening(_) if !wants_answer(frame) => {
                    Ok(true)
                }
                Wire::Later(_) | Wire::Asleep(..) | Wire::Opening(_) => {
                    self.wire.open();
                    Ok(false)
                }
            };
            match sent {
                Ok(true) => {}
                Ok(false) => {
                    // Until there is room, or a network.
                    driver.put_back(TX);
                    self.arm(EventFlags::IN | EventFlags::OUT);
                    break;
                }
                Err(error) => self.gone(driver, &error.to_string()),
            }
            driver.push(TX, head, 0)?;
            done = true;
        }
        if self.stuck() {
            self.arm(EventFlags::IN | EventFlags::OUT);
        }
        if done { driver.signal(TX) } else { Ok(()) }
    }
}

/// Reads a driver's frame. An impossible frame is left empty.
fn read(driver: &Driver, chain: Chain, frame: &mut Vec<u8>) {
    let Ok(mut reader) = chain.reader(driver.memory()) else {
        return;
    };
    let length = reader.available_bytes();
    if !(HEADER..=HEADER + MAX_FRAME).contains(&length) {
        debug!("network: a frame of {length} bytes is dropped");
        return;
    }
    frame.resize(length, 0);
    if reader.read_exact(frame).is_err() {
        frame.clear();
    }
}

/// Writes a frame to as many of the driver's buffers as it takes. False: there are not enough yet.
fn give(driver: &mut Driver, frame: &mut [u8]) -> Result<bool, Broken> {
    let several = driver.features() & F_MRG_RXBUF != 0;
    let memory = Arc::clone(driver.memory());
    let mut chains = Vec::new();
    let (mut room, length) = (0, frame.len() as u64);
    while room < length {
        let Some(chain) = driver.pop(RX)? else {
            chains.iter().for_each(|_| driver.put_back(RX));
            return Ok(false);
        };
        let head = chain.head_index();
        // The descriptors are read only once: the guest may change them at any time.
        let buffers = Buffers::of(&memory, chain).map(|(_, writable)| writable);
        room += buffers.as_ref().map_or(0, Buffers::len);
        chains.push((head, buffers));
        if !several {
            break;
        }
    }
    // A driver that adds buffers without room gets them back as used, and the frame is lost.
    let count = u16::try_from(chains.len()).unwrap_or(u16::MAX);
    if let Some(field) = frame.get_mut(NUM_BUFFERS..HEADER) {
        field.copy_from_slice(&count.to_le_bytes());
    }
    let mut left: &[u8] = if room < length { &[] } else { frame };
    for (head, buffers) in chains {
        let done = buffers.map_or(0, |buffers| buffers.copy_in(left));
        left = left.get(done..).unwrap_or_default();
        driver.push(RX, head, u32::try_from(done).unwrap_or(0))?;
    }
    Ok(true)
}

impl Device for Net {
    fn kind(&self) -> u32 {
        kind::NET
    }

    fn name(&self) -> String {
        "net".to_string()
    }

    fn features(&self) -> u64 {
        let common = F_MAC | F_MTU | F_STATUS | F_MRG_RXBUF | F_CSUM | F_GUEST_CSUM;
        let segments = F_GUEST_TSO4 | F_GUEST_TSO6 | F_HOST_TSO4 | F_HOST_TSO6;
        if self.headers {
            common | segments
        } else {
            common
        }
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![QUEUE_SIZE; 2]
    }

    fn config(&self) -> Vec<u8> {
        let status = if matches!(self.wire, Wire::Down) {
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
        self.wire.prepare(waker)
    }

    fn activate(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        if let (true, Wire::Up(link)) = (self.headers, &self.wire) {
            let has = |bit| driver.features() & bit != 0;
            let offload = tap::Offload {
                checksum: has(F_GUEST_CSUM),
                tcp4: has(F_GUEST_TSO4),
                tcp6: has(F_GUEST_TSO6),
            };
            if let Err(error) = tap::set_offload(link, offload) {
                warn!("network: the tap does not take the driver's offloads: {error}");
            }
        }
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, queue: usize) -> Result<(), Broken> {
        match queue {
            RX => self.receive(driver),
            _ => self.transmit(driver),
        }
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        if let Err(why) = self.wire.look() {
            self.gone(driver, why);
        }
        if let Some(Err(error)) = self.wire.link().map(Link::resume) {
            self.gone(driver, &error.to_string());
        }
        self.transmit(driver)?;
        self.receive(driver)
    }

    fn reset(&mut self) {
        self.waiting.clear();
    }
}
