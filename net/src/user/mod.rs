// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network inside this process. It needs no privilege, no other program and no namespace.
//!
//! The guest sees an IPv4 network with a router that answers DHCP and DNS. The process turns the
//! guest's connections and datagrams into its own. So the guest reaches what this user reaches, and
//! other hosts see this host. smoltcp handles TCP towards the guest, the host's kernel handles TCP
//! towards the world. Data comes in only if it belongs to a connection or answers a request.
//!
//! This does not work here and works with passt: IPv6, ping beyond the router, and addresses that
//! other hosts see.
//!
//! All that the guest sends is hostile input. smoltcp's checked readers parse the frames. The
//! memory that a guest can make this process use is bounded: [`MAX_TCP`] connections with two
//! buffers of [`TCP_BUFFER`] bytes, and [`MAX_UDP`] sockets.

mod dhcp;
mod frame;
mod peers;
mod stack;
mod tcp;
mod udp;

use crate::{Error, Link, Publish};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

/// The most TCP connections at a time, including those that are being made.
pub const MAX_TCP: usize = 512;
/// The most UDP sockets at a time.
pub const MAX_UDP: usize = 256;
/// Size of the buffer for each direction of a TCP connection, in bytes.
pub const TCP_BUFFER: usize = 256 << 10;

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
    /// The server for name queries, `None` if there is none.
    pub resolver: Option<SocketAddr>,
    /// Whether the gateway's address leads to the host's loopback. Services there often trust every
    /// client.
    pub host_loopback: bool,
    /// Ports of the host that lead into the guest.
    pub publish: Vec<Publish>,
    /// The largest IP packet in bytes, 576 to 65535.
    pub mtu: u16,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            guest: Ipv4Addr::new(10, 0, 2, 15),
            gateway: Ipv4Addr::new(10, 0, 2, 2),
            dns: Ipv4Addr::new(10, 0, 2, 3),
            prefix: 24,
            resolver: None,
            host_loopback: false,
            publish: Vec::new(),
            mtu: 65_520,
        }
    }
}

impl Config {
    /// The host's address for a destination of the guest. `None` if a guest may not reach it.
    fn outside(&self, to: Ipv4Addr) -> Option<IpAddr> {
        if to == self.gateway {
            return self
                .host_loopback
                .then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let bits = u32::MAX
            .checked_shl(u32::from(32 - self.prefix.min(32)))
            .unwrap_or(0);
        let inside = (u32::from(to) ^ u32::from(self.gateway)) & bits == 0;
        let odd = to.is_loopback()
            || to.is_multicast()
            || to.is_broadcast()
            || to.octets()[0] == 0
            || to.octets()[0] >= 240;
        (!inside && !odd).then_some(IpAddr::V4(to))
    }

    /// The address under which the guest sees an address of the host.
    fn inside(&self, from: IpAddr) -> Option<Ipv4Addr> {
        match from {
            IpAddr::V4(from) if from.is_loopback() => Some(self.gateway),
            IpAddr::V4(from) => Some(from),
            IpAddr::V6(from) => from
                .to_ipv4_mapped()
                .map_or(Some(self.gateway), |v4| self.inside(IpAddr::V4(v4))),
        }
    }
}

/// The first name server that this host uses (`/etc/resolv.conf`).
pub fn host_resolver() -> Option<SocketAddr> {
    resolver_of(&std::fs::read_to_string("/etc/resolv.conf").ok()?)
}

fn resolver_of(text: &str) -> Option<SocketAddr> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then_some(())?;
        Some(SocketAddr::new(words.next()?.parse().ok()?, 53))
    })
}

/// A running network. It ends when the guest's end of the link is dropped.
#[derive(Debug)]
pub struct Network {
    /// The ports that are listened on, with the host's choice for port 0.
    pub published: Vec<Publish>,
    thread: JoinHandle<()>,
}

impl Network {
    /// Waits until the thread ends, which it does when the link is closed.
    pub fn join(self) {
        // A panic of the thread has been printed already.
        let _ = self.thread.join();
    }
}

/// Makes the network and the guest's end of it. Fails if a published port is taken.
pub fn start(config: Config) -> Result<(Link, Network), Error> {
    start_in(config, || Ok(()))
}

/// As [`start`], but the thread of the network calls `prepare` before it reads any data of the
/// guest, to confine itself. If `prepare` fails, there is no network.
pub fn start_in(
    config: Config,
    prepare: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> Result<(Link, Network), Error> {
    let (ours, guest) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| Error::Host {
        what: "cannot make a pair of sockets",
        error: e.into(),
    })?;
    for end in [&ours, &guest] {
        // Room for a few frames of the largest size. A host that allows less gives less.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(end, 1 << 20);
    }
    rustix::io::ioctl_fionbio(&ours, true).map_err(|e| Error::host(crate::BLOCKING)(e.into()))?;
    let mtu = config.mtu;
    let mut stack = stack::Stack::new(config, ours)?;
    let published = stack.published();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("net-user".to_string())
        .spawn(move || {
            let prepared = prepare();
            let go = prepared.is_ok();
            // This fails only if the caller no longer waits.
            let _ = tell.send(prepared);
            if go {
                stack.run();
            }
        })
        .map_err(Error::host("cannot start a thread"))?;
    let prepared = told
        .recv()
        .unwrap_or_else(|gone| Err(std::io::Error::other(gone)));
    prepared.map_err(Error::host("cannot prepare the network's thread"))?;
    Ok((
        Link::messages(guest, mtu).map_err(Error::host(crate::BLOCKING))?,
        Network { published, thread },
    ))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
