// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network inside this process: no privilege, no other program, no namespace.
//!
//! The guest sees an IPv4 network with a router that answers DHCP and DNS. What it sends there becomes the host's own
//! connections and datagrams, made by this process as any program makes them: so the guest reaches what this user reaches, and the
//! outside sees this host. Towards the guest, TCP is smoltcp's; towards the host, the host's. Only what belongs to a connection or was asked for comes in.
//!
//! What does not work here and does with passt: IPv6, ping beyond the router, and addresses that the host sees.
//!
//! All that the guest sends is hostile input: frames are parsed by smoltcp's checked readers, and what a guest can make this process hold is bounded
//! ([`MAX_TCP`] connections of two buffers of [`TCP_BUFFER`] bytes, [`MAX_UDP`] sockets).

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

/// TCP connections at once, those on their way included.
pub const MAX_TCP: usize = 512;
/// UDP sockets at once.
pub const MAX_UDP: usize = 256;
/// Bytes of each direction's buffer of a TCP connection.
pub const TCP_BUFFER: usize = 256 << 10;

/// The guest's view of the network.
#[derive(Clone, Debug)]
pub struct Config {
    /// What DHCP gives the guest.
    pub guest: Ipv4Addr,
    /// The router's address.
    pub gateway: Ipv4Addr,
    /// The address at which the host's name server answers.
    pub dns: Ipv4Addr,
    /// Bits of the network that all three are in.
    pub prefix: u8,
    /// Where name queries go; `None`: nowhere.
    pub resolver: Option<SocketAddr>,
    /// Whether the gateway's address leads to the host's own loopback: what listens there often trusts whoever connects.
    pub host_loopback: bool,
    /// Ports of the host that lead into the guest.
    pub publish: Vec<Publish>,
    /// The largest IP packet, 576 to 65535 bytes.
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
    /// Where a destination that the guest names lies for the host; `None`: nowhere that a guest may reach.
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

    /// The address under which the guest sees a host's.
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

/// A running network. It ends when the link's last half is dropped.
#[derive(Debug)]
pub struct Network {
    /// The ports that are listened on, with what the host chose for port 0.
    pub published: Vec<Publish>,
    thread: JoinHandle<()>,
}

impl Network {
    /// Waits for the thread, after the link has gone.
    pub fn join(self) {
        // A panic there has been printed by then.
        let _ = self.thread.join();
    }
}

/// Makes the network and the guest's end of it. Fails where a published port is taken.
pub fn start(config: Config) -> Result<(Link, Network), Error> {
    start_in(config, || Ok(()))
}

/// The same with a network whose thread calls `prepare` before it reads anything of the guest's: the place to confine it. If that fails,
/// there is no network.
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
        // Some frames of the largest size; a host that allows less gives less.
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
            // Fails only if nobody waits for the start any more.
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
