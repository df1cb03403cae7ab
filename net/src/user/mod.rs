// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network inside this process. It needs no privilege, no other program and no namespace.
//!
//! The guest sees an IPv4 network with a router that answers DHCP and DNS. The process turns the
//! guest's connections and datagrams into its own. So the guest reaches what this user reaches, and
//! other hosts see this host. smoltcp handles TCP towards the guest, the host's kernel handles TCP
//! towards the world. Data comes in only if it belongs to a connection, comes from an address to
//! which the guest has sent from the same port, or goes to a published port.
//!
//! This does not work here and works with passt: IPv6, ping beyond the router, and addresses that
//! other hosts see.
//!
//! It has no thread. Its owner, the network card, gives it the guest's frames and room for frames
//! to the guest, and calls it when the descriptor that stands for all of its sockets is readable.
//! So a byte from a socket of the host is in the guest's memory without a switch of threads on the
//! way.
//!
//! All that the guest sends is hostile input. smoltcp's checked readers parse the frames. The
//! memory that a guest can make this process use is bounded: [`Config::connections`] connections,
//! each with two buffers of [`TCP_BUFFER`] bytes, or [`SMALL_BUFFER`] bytes if there are many, and
//! [`Config::datagrams`] sockets.

mod datagram;
mod dhcp;
mod events;
mod flow;
mod frame;
mod guard;
mod host;
mod peers;
mod ports;
mod recent;
mod resolvers;
mod stack;
mod tcp;
mod udp;
mod wire;

pub use resolvers::host_resolvers;
pub(crate) use resolvers::passt_finds_ipv4;
pub use wire::Port;

use crate::{Error, Publish};
use rustix::fd::{AsFd, BorrowedFd};
use stack::Stack;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The most TCP connections at a time, unless [`Config::connections`] says otherwise.
pub const MAX_TCP: usize = 512;
/// The most UDP sockets at a time, unless [`Config::datagrams`] says otherwise. Those of published
/// ports do not count.
pub const MAX_UDP: usize = 256;
/// With fewer, there would be no room of each kind.
const MIN_UDP: usize = 4;
/// Size of the buffer for each direction of a TCP connection, in bytes.
pub const TCP_BUFFER: usize = 256 << 10;
/// Size of each buffer of a connection that begins while there are [`Config::large_buffers`]
/// others.
pub const SMALL_BUFFER: usize = 32 << 10;

/// The router's hardware address.
pub const ROUTER: [u8; 6] = frame::ROUTER.0;

/// The network as the guest sees it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address that DHCP gives to the guest.
    pub guest: Ipv4Addr,
    /// The router's address.
    pub gateway: Ipv4Addr,
    /// The address at which the host's name server answers.
    pub dns: Ipv4Addr,
    /// Prefix length of the network with these three addresses.
    pub prefix: u8,
    /// The servers for name queries. The first one is asked, and becomes the last one if it does
    /// not answer.
    pub resolvers: Vec<SocketAddr>,
    /// Whether the gateway's address leads to the host's loopback. Services there often trust every
    /// client.
    pub host_loopback: bool,
    /// Whether the guest reaches link-local addresses. In a cloud one of them is the metadata
    /// service, which gives this host's credentials to every client.
    pub link_local: bool,
    /// Ports of the host that lead into the guest.
    pub publish: Vec<Publish>,
    /// The largest IP packet in bytes, 576 to 65535.
    pub mtu: u16,
    /// Acknowledgements may wait a moment for data of the other direction.
    pub ack_delay: bool,
    /// The most TCP connections at a time, including those that are being made, 4 to 8192.
    /// Published ports have at most three quarters of them.
    pub connections: usize,
    /// The most UDP sockets at a time, without those of published ports, 4 to [`MAX_UDP`].
    pub datagrams: usize,
    /// The number of connections with large buffers. The others have small ones.
    pub large_buffers: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            guest: Ipv4Addr::new(10, 0, 2, 15),
            gateway: Ipv4Addr::new(10, 0, 2, 2),
            dns: Ipv4Addr::new(10, 0, 2, 3),
            prefix: 24,
            resolvers: Vec::new(),
            host_loopback: false,
            link_local: false,
            publish: Vec::new(),
            mtu: 65_520,
            ack_delay: true,
            connections: MAX_TCP,
            datagrams: MAX_UDP,
            large_buffers: 256,
        }
    }
}

impl Config {
    /// The bits of an address that are the same in all of the guest's network.
    fn mask(&self) -> u32 {
        u32::MAX
            .checked_shl(u32::from(32 - self.prefix.min(32)))
            .unwrap_or(0)
    }

    /// Whether the address is in the guest's network.
    fn inside(&self, address: Ipv4Addr) -> bool {
        (u32::from(address) ^ u32::from(self.gateway)) & self.mask() == 0
    }

    /// Whether the address is one of the guest's network and not the router's.
    fn is_others(&self, address: Ipv4Addr) -> bool {
        self.inside(address) && address != self.gateway && address != self.dns
    }

    /// Whether the guest means more than one by this address.
    fn for_many(&self, to: Ipv4Addr) -> bool {
        let last = u32::from(self.gateway) | !self.mask();
        !frame::unicast(to) || u32::from(to) == last
    }

    /// The host's address for a destination of the guest. `None` if a guest may not reach it.
    fn outside(&self, to: Ipv4Addr) -> Option<IpAddr> {
        if to == self.gateway {
            return self
                .host_loopback
                .then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let odd = to.is_loopback()
            || (to.is_link_local() && !self.link_local)
            || to.is_multicast()
            || to.is_broadcast()
            || to.octets()[0] == 0
            || to.octets()[0] >= 240;
        (!self.inside(to) && !odd).then_some(IpAddr::V4(to))
    }
}

/// A network. It listens on the published ports from the start, and does nothing by itself.
///
/// After each batch of calls of [`take`](Network::take) and [`look`](Network::look), call
/// [`serve`](Network::serve) until it returns false. Then wait until the descriptor is readable,
/// the guest has room for frames again, or the guest sends.
pub struct Network(Stack);

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("published", &self.published())
            .finish_non_exhaustive()
    }
}

impl AsFd for Network {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Network {
    /// Makes the network.
    ///
    /// # Errors
    /// A published port is taken, or the host gives no descriptor.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Network(Stack::new(config)?))
    }

    /// The largest IP packet, in bytes.
    pub fn mtu(&self) -> u16 {
        self.0.mtu()
    }

    /// The ports that are listened on, with the host's choice for port 0.
    pub fn published(&self) -> Vec<Publish> {
        self.0.published()
    }

    /// A driver is ready. With `partial` it takes frames whose TCP checksum is not complete
    /// (`VIRTIO_NET_F_GUEST_CSUM`).
    pub fn attach(&mut self, partial: bool) {
        self.0.attach(partial);
    }

    /// There is no driver now. Frames for it are lost, connections stay.
    pub fn detach(&mut self) {
        self.0.detach();
    }

    /// Whether frames of the guest are taken now. If not, [`serve`](Network::serve) changes that
    /// when the guest has room for its own frames.
    pub fn takes(&self) -> bool {
        self.0.takes()
    }

    /// Reads the clock, for all calls until the next one of this.
    pub fn look_at_clock(&mut self) {
        self.0.look_at_clock();
    }

    /// Takes a frame of the guest: an Ethernet frame of any content, whose checksums are not looked
    /// at, with an IP packet of at most 65535 bytes. A TCP segment may be longer than the MTU.
    pub fn take(&mut self, frame: &[u8], port: &mut dyn Port) {
        self.0.take(frame, port);
    }

    /// Takes what the host's sockets report. True: there may be more.
    pub fn look(&mut self) -> bool {
        self.0.look()
    }

    /// Moves data between the host's sockets and the guest. True: there is more to do at once.
    pub fn serve(&mut self, port: &mut dyn Port) -> bool {
        self.0.serve(port)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
