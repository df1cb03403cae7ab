// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that moves frames in and out and runs the connections.

use super::frame::{self, Kind, ROUTER};
use super::tcp::Connections;
use super::udp::Datagrams;
use super::{Config, dhcp};
use crate::{Error, MAX_FRAME, Publish};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, Ipv4Cidr};
use std::collections::VecDeque;
use std::time::Duration;

/// Frames of the guest that are taken before the other side gets its turn.
const BURST: usize = 64;
/// The most frames that wait for the guest. Above that the stack makes no more frames, and
/// datagrams are lost.
const WAITING: usize = 256;
/// The longest time between two searches for idle sockets.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Frames between the link and smoltcp.
#[derive(Debug)]
pub struct Queues {
    to_stack: VecDeque<Vec<u8>>,
    to_guest: VecDeque<Vec<u8>>,
    mtu: u16,
}

impl Queues {
    /// A frame for smoltcp.
    pub fn push_stack(&mut self, frame: &[u8]) {
        self.to_stack.push_back(frame.to_vec());
    }

    fn push_guest(&mut self, frame: Vec<u8>) {
        if !self.full() {
            self.to_guest.push_back(frame);
        }
    }

    /// The guest does not receive its frames. Until it does, nothing is done that would make more
    /// of them.
    fn full(&self) -> bool {
        self.to_guest.len() >= WAITING
    }
}

#[derive(Debug)]
pub struct Taken(Vec<u8>);
#[derive(Debug)]
pub struct Given<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Taken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Given<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Taken;
    type TxToken<'a> = Given<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Taken, Given<'_>)> {
        // Each frame may need an answer.
        if self.full() {
            return None;
        }
        Some((Taken(self.to_stack.pop_front()?), Given(&mut self.to_guest)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Given<'_>> {
        (!self.full()).then_some(Given(&mut self.to_guest))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = usize::from(self.mtu) + 14;
        // The guest may leave its checksums to the device, and this wire corrupts nothing. Sent
        // checksums are correct, for guests that verify them.
        capabilities.checksum.ipv4 = Checksum::Tx;
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities.checksum.icmpv4 = Checksum::Tx;
        capabilities
    }
}

/// All that the thread owns.
pub struct Stack {
    config: Config,
    link: OwnedFd,
    started: std::time::Instant,
    interface: Interface,
    sockets: SocketSet<'static>,
    queues: Queues,
    connections: Connections,
    datagrams: Datagrams,
    /// The guest's end of the link.
    guest: EthernetAddress,
    gone: bool,
    /// Buffer for a frame of the guest.
    buffer: Vec<u8>,
}

impl Stack {
    /// `link` is non-blocking, with one frame in each message.
    pub fn new(config: Config, link: OwnedFd) -> Result<Self, Error> {
        let mut queues = Queues {
            to_stack: VecDeque::new(),
            to_guest: VecDeque::new(),
            mtu: config.mtu,
        };
        let mut own = smoltcp::iface::Config::new(HardwareAddress::Ethernet(ROUTER));
        // Predictable sequence numbers are safe here: the guest could only attack itself with them.
        own.random_seed = u64::from(std::process::id());
        let mut interface = Interface::new(own, &mut queues, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            for address in [config.gateway, config.dns] {
                // smoltcp has room for two by default.
                let _ = addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(address, config.prefix.min(32))));
            }
        });
        // Every address that the guest connects to is this router.
        interface.set_any_ip(true);
        let _ = interface
            .routes_mut()
            .add_default_ipv4_route(config.gateway);
        Ok(Stack {
            connections: Connections::new(&config)?,
            datagrams: Datagrams::new(&config)?,
            config,
            link,
            started: std::time::Instant::now(),
            interface,
            sockets: SocketSet::new(Vec::new()),
            queues,
            guest: EthernetAddress::BROADCAST,
            gone: false,
            buffer: vec![0; MAX_FRAME],
        })
    }

    /// The ports that are listened on.
    pub fn published(&self) -> Vec<Publish> {
        self.connections
            .published()
            .chain(self.datagrams.published())
            .collect()
    }

    /// Runs until the link is closed.
    pub fn run(&mut self) {
        while !self.gone {
            let busy = self.take() | self.serve();
            self.give();
            let now = instant(self.started);
            let delay = self
                .interface
                .poll_delay(now, &self.sockets)
                .map(Duration::from);
            if !busy {
                self.wait(delay.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP));
            }
        }
    }

    /// Receives frames of the guest. True: there may be more.
    fn take(&mut self) -> bool {
        // smoltcp takes what is here first.
        if self.queues.full() || self.queues.to_stack.len() >= WAITING {
            return false;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let more = self.take_some(&mut buffer);
        self.buffer = buffer;
        more
    }

    fn take_some(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..BURST {
            let length = match rustix::net::recv(&self.link, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => {
                    self.gone = true;
                    return false;
                }
                Ok((length, _)) => length,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return false,
                Err(_) => {
                    self.gone = true;
                    return false;
                }
            };
            let frame = buffer.get(..length).unwrap_or_default();
            self.dispatch(frame);
        }
        true
    }

    pub(super) fn dispatch(&mut self, frame: &[u8]) {
        let Some(source) = frame::source(frame).filter(EthernetAddress::is_unicast) else {
            return;
        };
        self.guest = source;
        match frame::kind(frame) {
            Kind::Bad => {}
            Kind::Other => self.queues.push_stack(frame),
            Kind::Syn { from, to } => {
                self.connections
                    .begin(&self.config, from, to, frame, &mut self.queues)
            }
            Kind::Datagram { to, data, .. } if to.port() == dhcp::SERVER_PORT => {
                if let Some(reply) = dhcp::answer(&self.config, source, data) {
                    self.queues.push_guest(reply);
                }
            }
            Kind::Datagram { from, to, data } => {
                self.datagrams.outgoing(&self.config, from, to, data)
            }
        }
    }

    /// Lets smoltcp and the host's sockets make progress. True: there is more to do at once.
    pub(super) fn serve(&mut self) -> bool {
        let Stack {
            config,
            interface,
            sockets,
            queues,
            connections,
            datagrams,
            guest,
            started,
            ..
        } = self;
        let started = *started;
        interface.poll(instant(started), queues, sockets);
        let busy = connections.serve(
            config,
            interface,
            sockets,
            queues,
            |interface, sockets, queues| {
                interface.poll(instant(started), queues, sockets);
            },
        );
        datagrams.incoming(config, |from, to, data| {
            if let Some(frame) = frame::datagram(*guest, from, to, data, config.mtu) {
                queues.push_guest(frame);
            }
        });
        interface.poll(instant(started), queues, sockets);
        busy && !queues.full()
    }

    /// Sends frames to the guest, as many as it accepts.
    pub(super) fn give(&mut self) {
        while let Some(frame) = self.queues.to_guest.front() {
            match rustix::net::send(&self.link, frame, SendFlags::NOSIGNAL) {
                Ok(_) | Err(Errno::MSGSIZE) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
            self.queues.to_guest.pop_front();
        }
    }

    /// The TCP connections now, including those that are being made.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    fn wait(&self, longest: Duration) {
        let mut polls = Vec::new();
        let mut events = PollFlags::empty();
        events.set(PollFlags::OUT, !self.queues.to_guest.is_empty());
        events.set(PollFlags::IN, !self.queues.full());
        polls.push(PollFd::new(&self.link, events));
        if !self.queues.full() {
            self.connections.interests(&self.sockets, &mut polls);
            self.datagrams.interests(&mut polls);
        }
        let _ = rustix::event::poll(&mut polls, Timespec::try_from(longest).ok().as_ref());
    }
}

fn instant(started: std::time::Instant) -> Instant {
    Instant::from_micros(i64::try_from(started.elapsed().as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, EthernetRepr,
    };

    /// A query to the router, which answers each.
    fn question(config: &Config) -> Vec<u8> {
        let source = EthernetAddress([2, 0, 0, 0, 0, 7]);
        let arp = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: source,
            source_protocol_addr: config.guest,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: config.gateway,
        };
        let ethernet = EthernetRepr {
            src_addr: source,
            dst_addr: EthernetAddress::BROADCAST,
            ethertype: EthernetProtocol::Arp,
        };
        let mut bytes = vec![0; ethernet.buffer_len() + arp.buffer_len()];
        let mut frame = EthernetFrame::new_unchecked(bytes.as_mut_slice());
        ethernet.emit(&mut frame);
        arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
        bytes
    }

    /// A guest that only sends queries cannot make the monitor use more memory than the bound.
    #[test]
    fn a_guest_that_takes_nothing_fills_no_memory() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, guest) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let config = Config::default();
        let frame = question(&config);
        let mut stack = Stack::new(config, ours).unwrap();
        for _ in 0..4000 {
            let _ = rustix::net::send(&guest, &frame, SendFlags::NOSIGNAL);
            stack.take();
            stack.serve();
            stack.give();
            assert!(
                stack.queues.to_guest.len() <= WAITING + 1,
                "{}",
                stack.queues.to_guest.len()
            );
            assert!(
                stack.queues.to_stack.len() < WAITING + BURST,
                "{}",
                stack.queues.to_stack.len()
            );
        }
        assert!(stack.queues.full());
    }
}
