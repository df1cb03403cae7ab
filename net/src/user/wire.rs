// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's side of the network: frames to it, and smoltcp's view of both directions.
//!
//! A frame is made in one buffer, directly before the guest takes it. A frame waits only if the
//! guest has no room. No further frames are made then, and the data stays in the sockets.

use super::frame;
use super::guard::{self, Header};
use crate::link::HEADER;
use smoltcp::iface::{Interface, PollIngressSingleResult, PollResult, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::collections::VecDeque;

/// The most frames that wait for the guest. Above that no frame of the guest is taken.
const WAITING: usize = 256;
/// The most bytes in frames that wait for the guest, plus one frame.
const WAITING_BYTES: usize = 1 << 20;

/// The guest's end of the network.
pub trait Port {
    /// Hands a frame to the guest, after a header of [`HEADER`] bytes (`struct virtio_net_hdr_v1`).
    /// False: there is no room now, and the frame was not taken.
    fn give(&mut self, frame: &mut [u8]) -> bool;
}

/// Frames to the guest.
#[derive(Debug)]
pub struct Out {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The frame that is being made, after its header.
    space: Vec<u8>,
    mtu: u16,
    /// The last segment of a connection.
    pub said: Option<Header>,
    /// The guest does without the checksum of TCP, or completes it.
    pub partial: bool,
}

impl Out {
    pub fn new(mtu: u16) -> Self {
        Out {
            waiting: VecDeque::new(),
            bytes: 0,
            space: Vec::new(),
            mtu,
            said: None,
            partial: false,
        }
    }

    /// The guest does not receive its frames. Until it does, none of its own is taken: each may
    /// need an answer.
    pub fn full(&self) -> bool {
        self.waiting.len() >= WAITING || self.bytes >= WAITING_BYTES
    }

    /// A frame waits for the guest. Until it is taken, nothing is done that would make another,
    /// except for answers.
    pub fn stuck(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Forgets the frames that wait: there is another driver.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Hands the waiting frames to the guest, as many as it takes. Returns whether it took any.
    pub fn flush(&mut self, port: &mut dyn Port) -> bool {
        let mut any = false;
        while let Some(frame) = self.waiting.front_mut() {
            if !port.give(frame) {
                break;
            }
            any = true;
            self.bytes -= frame.len();
            self.waiting.pop_front();
        }
        any
    }

    /// Makes a frame of `length` bytes and hands it to the guest.
    fn make<R>(
        &mut self,
        port: &mut dyn Port,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut space = std::mem::take(&mut self.space);
        if space.len() < HEADER + length {
            space.resize(HEADER + length, 0);
        }
        let all = space.get_mut(..HEADER + length).unwrap_or_default();
        let (header, frame) = all.split_at_mut(HEADER);
        let result = fill(frame);
        header.copy_from_slice(&frame::header(frame, self.partial));
        if self.stuck() || !port.give(all) {
            self.bytes += all.len();
            self.waiting.push_back(all.to_vec());
        }
        self.space = space;
        result
    }

    /// Hands a complete frame to the guest. It is lost if too many wait.
    pub fn push(&mut self, port: &mut dyn Port, frame: &[u8]) {
        if !self.full() {
            self.make(port, frame.len(), |space| space.copy_from_slice(frame));
        }
    }
}

/// What a connection needs to talk to the guest.
pub struct Wire<'a> {
    pub interface: &'a mut Interface,
    pub out: &'a mut Out,
    pub port: &'a mut dyn Port,
    pub now: Instant,
}

impl Wire<'_> {
    /// Gives a frame of the guest to these sockets.
    pub fn ingress(&mut self, sockets: &mut SocketSet<'_>, frame: &[u8]) {
        let mut frames = Frames {
            incoming: Some(frame),
            out: &mut *self.out,
            port: &mut *self.port,
        };
        let interface = &mut *self.interface;
        let _: PollIngressSingleResult =
            interface.poll_ingress_single(self.now, &mut frames, sockets);
    }

    /// Lets these sockets send what they can. Returns whether they sent anything.
    pub fn egress(&mut self, sockets: &mut SocketSet<'_>) -> bool {
        let mut frames = Frames {
            incoming: None,
            out: &mut *self.out,
            port: &mut *self.port,
        };
        let mut sent = false;
        // A segment for each poll. Sockets send no more than the guest's window and their buffers.
        while self.interface.poll_egress(self.now, &mut frames, sockets)
            == PollResult::SocketStateChanged
        {
            sent = true;
        }
        sent
    }

    /// When these sockets must be looked at again, if nothing comes before.
    pub fn deadline(&mut self, sockets: &SocketSet<'_>) -> Option<Instant> {
        self.interface.poll_at(self.now, sockets)
    }
}

/// smoltcp's view: at most one frame comes in, and frames go out while none waits.
struct Frames<'a> {
    incoming: Option<&'a [u8]>,
    out: &'a mut Out,
    port: &'a mut dyn Port,
}

struct Taken<'a>(&'a [u8]);
struct Given<'a> {
    out: &'a mut Out,
    port: &'a mut dyn Port,
}

impl RxToken for Taken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Given<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let said = &mut None;
        let result = self.out.make(self.port, length, |frame| {
            let result = f(frame);
            *said = guard::header(frame);
            result
        });
        if said.is_some() {
            self.out.said = *said;
        }
        result
    }
}

impl Device for Frames<'_> {
    type RxToken<'t>
        = Taken<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Given<'t>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Taken<'_>, Given<'_>)> {
        let frame = self.incoming.take()?;
        let given = Given {
            out: self.out,
            port: self.port,
        };
        Some((Taken(frame), given))
    }

    fn transmit(&mut self, _: Instant) -> Option<Given<'_>> {
        (!self.out.stuck()).then_some(Given {
            out: self.out,
            port: self.port,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.out.mtu, self.out.partial)
    }
}

fn capabilities(mtu: u16, partial: bool) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ethernet;
    capabilities.max_transmission_unit = usize::from(mtu) + frame::ETHERNET;
    // The guest may leave its checksums to the device, and this wire corrupts nothing. Sent
    // checksums are correct for guests that verify them, and otherwise left to the guest.
    capabilities.checksum.ipv4 = Checksum::Tx;
    capabilities.checksum.tcp = if partial {
        Checksum::None
    } else {
        Checksum::Tx
    };
    capabilities.checksum.icmpv4 = Checksum::Tx;
    capabilities
}

/// An interface for these frames. smoltcp asks for the properties of the wire only here.
pub fn interface(config: smoltcp::iface::Config, out: &mut Out) -> Interface {
    struct Nowhere;
    impl Port for Nowhere {
        fn give(&mut self, _: &mut [u8]) -> bool {
            true
        }
    }
    let mut frames = Frames {
        incoming: None,
        out,
        port: &mut Nowhere,
    };
    Interface::new(config, &mut frames, Instant::ZERO)
}
