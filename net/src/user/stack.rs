// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames in, the host's reports in, frames out.

use super::datagram::{Incoming, Sent};
use super::events::{Events, Source};
use super::flow::TIMEOUT;
use super::frame::{self, Kind, ROUTER};
use super::tcp::Connections;
use super::udp::Datagrams;
use super::wire::{self, Out, Port, Wire};
use super::{Config, dhcp};
use crate::{Error, Publish};
use rustix::fd::{AsFd, BorrowedFd};
use smoltcp::iface::Interface;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, Ipv4Cidr};

/// The time between two searches for idle sockets.
const SEARCH: Duration = Duration::from_secs(10);

/// All of it.
pub struct Stack {
    config: Config,
    events: Events,
    started: std::time::Instant,
    now: Instant,
    interface: Interface,
    out: Out,
    connections: Connections,
    datagrams: Datagrams,
    /// The card that has the guest's address. It gets the data of published ports.
    guest: EthernetAddress,
    /// When to search for idle sockets.
    search: Option<Instant>,
    /// Datagrams come first, once.
    datagrams_first: bool,
    /// Since when frames wait and the guest takes none.
    stuck: Option<Instant>,
    /// Since when there is no driver.
    gone: Option<Instant>,
}

impl AsFd for Stack {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Stack {
    pub fn new(config: Config) -> Result<Self, Error> {
        let events = Events::new()?;
        let mut out = Out::new(config.mtu);
        Ok(Stack {
            connections: Connections::new(&config, &events)?,
            datagrams: Datagrams::new(&config, &events)?,
            interface: interface(&config, &mut out),
            config,
            events,
            started: std::time::Instant::now(),
            now: Instant::ZERO,
            out,
            guest: EthernetAddress::BROADCAST,
            search: None,
            datagrams_first: false,
            stuck: None,
            gone: None,
        })
    }

    /// The largest IP packet, in bytes.
    pub fn mtu(&self) -> u16 {
        self.config.mtu
    }

    /// The ports that are listened on.
    pub fn published(&self) -> Vec<Publish> {
        self.connections
            .published()
            .chain(self.datagrams.published())
            .collect()
    }

    /// There is a driver. With `partial` it does without checksums of TCP.
    pub fn attach(&mut self, partial: bool) {
        self.detach();
        if self.gone.take().is_some_and(|at| at + TIMEOUT <= self.now) {
            self.connections.give_up();
        }
        self.connections.doubt(self.now);
        if self.out.partial != partial {
            self.out.partial = partial;
            self.interface = interface(&self.config, &mut self.out);
        }
    }

    /// There is no driver: the frames that wait for it are lost.
    pub fn detach(&mut self) {
        self.out.clear();
        self.look_at_clock();
        self.gone.get_or_insert(self.now);
        self.stuck = None;
    }

    /// Whether the guest's frames are taken now. If not, [`serve`](Stack::serve) with room for the
    /// frames that wait changes that.
    pub fn takes(&self) -> bool {
        !self.out.full()
    }

    /// Reads the clock. Call it before the first of several frames.
    pub fn look_at_clock(&mut self) {
        let micros = self.started.elapsed().as_micros();
        self.now = Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX));
    }

    /// Takes a frame of the guest. [`serve`](Stack::serve) must follow.
    pub fn take(&mut self, frame: &[u8], port: &mut dyn Port) {
        let ends = frame::ends(frame).filter(|(source, _)| source.is_unicast());
        let Some((source, target)) = ends else {
            return;
        };
        // Of what is for all, the router wants queries for addresses and for leases. It ignores
        // frames for others, such as guests of the guest.
        let all = !target.is_unicast();
        if !all && target != ROUTER {
            return;
        }
        let kind = frame::kind(frame);
        // Guests of the guest have other addresses.
        if kind.sender() == Some(self.config.guest) {
            self.guest = source;
        }
        let mut wire = Wire {
            interface: &mut self.interface,
            out: &mut self.out,
            port,
            now: self.now,
        };
        match kind {
            Kind::Bad => {}
            // A guest that announces its own address, or searches for others that have it. Other
            // addresses of this network may be those of guests of the guest.
            Kind::Arp { from, to } if to == from || self.config.is_others(to) => {}
            Kind::Arp { .. } => {
                wire.ingress(self.connections.no_socket(), frame);
                self.connections.address_comes();
            }
            Kind::Datagram { to, data, .. } if dhcp::serves(&self.config, to) => {
                if let Some(reply) = dhcp::answer(&self.config, source, data) {
                    wire.out.push(wire.port, &reply);
                }
            }
            _ if all => {}
            Kind::Segment { from, to, syn } => self.connections.segment(
                &self.config,
                &self.events,
                &mut wire,
                (from, to),
                syn,
                frame,
            ),
            // The router cannot tell whether others answer.
            Kind::Icmp { to } if to != self.config.gateway && to != self.config.dns => {}
            Kind::Icmp { .. } | Kind::Other => wire.ingress(self.connections.no_socket(), frame),
            Kind::Datagram { from, to, data } => {
                let sent = Sent {
                    hardware: source,
                    from,
                    to,
                    data,
                };
                let refused = self
                    .datagrams
                    .outgoing(&mut self.config, &self.events, &sent);
                let answer =
                    refused.and_then(|why| frame::unreachable(self.config.gateway, why, frame));
                if let Some(answer) = answer {
                    wire.out.push(wire.port, &answer);
                }
                if self.search.is_none() {
                    self.search = Some(self.now + SEARCH);
                }
            }
        }
    }

    /// Takes the reports of the host's sockets. [`serve`](Stack::serve) must follow. True: there
    /// may be more.
    pub fn look(&mut self) -> bool {
        let Stack {
            events,
            connections,
            datagrams,
            ..
        } = self;
        let mut time = false;
        let more = events.take(|source, flags| match source {
            Source::Timer => time = true,
            Source::Listener(index) => connections.listener_reports(index),
            Source::Flow(id) => connections.flow_reports(id, flags),
            Source::Datagrams(id) => datagrams.reports(id),
        });
        if time {
            self.time_comes();
        }
        more
    }

    fn time_comes(&mut self) {
        if self.stuck.is_some_and(|at| at + TIMEOUT <= self.now) {
            self.stuck = Some(self.now);
            self.connections.give_up();
        }
        self.connections.time_comes(self.now);
        if self.search.is_some_and(|at| at <= self.now) {
            self.datagrams.close_idle();
            self.search = self.datagrams.may_idle().then_some(self.now + SEARCH);
        }
    }

    /// Lets the connections and the host's sockets make progress. True: there is more to do at
    /// once. If not, there is when the descriptor is readable or when the guest has room again.
    pub fn serve(&mut self, port: &mut dyn Port) -> bool {
        if self.out.flush(port) {
            self.stuck = None;
        }
        let mut more = false;
        if !self.out.stuck() {
            // Where one leaves no room for the other, they take turns.
            let first = self.datagrams_first;
            for datagrams in [first, !first] {
                more |= if datagrams {
                    self.serve_datagrams(port)
                } else {
                    self.serve_connections(port)
                };
            }
            self.datagrams_first = self.out.stuck() && !first;
        }
        let stuck = self.out.stuck();
        let since = self.stuck.unwrap_or(self.now);
        self.stuck = stuck.then_some(since);
        let stuck_at = self.stuck.map(|at| at + TIMEOUT);
        for at in [self.connections.deadline(), self.search, stuck_at]
            .into_iter()
            .flatten()
        {
            self.events.alarm(at, self.now);
        }
        more && !stuck
    }

    fn serve_connections(&mut self, port: &mut dyn Port) -> bool {
        let mut wire = Wire {
            interface: &mut self.interface,
            out: &mut self.out,
            port,
            now: self.now,
        };
        self.connections
            .serve(&self.config, &self.events, &mut wire)
    }

    fn serve_datagrams(&mut self, port: &mut dyn Port) -> bool {
        let (guest, out) = (self.guest, &mut self.out);
        let (gateway, mtu) = (self.config.gateway, self.config.mtu);
        !out.stuck()
            && self.datagrams.incoming(&mut self.config, |incoming| {
                let frame = match incoming {
                    Incoming::Datagram {
                        hardware,
                        from,
                        to,
                        data,
                    } => frame::datagram(hardware.unwrap_or(guest), from, to, data, mtu),
                    Incoming::Refused { hardware, from, to } => {
                        frame::refused(gateway, hardware, from, to)
                    }
                };
                if let Some(frame) = frame {
                    out.push(port, &frame);
                }
                !out.stuck()
            })
    }

    /// The TCP connections now, including those that are being made.
    #[cfg(test)]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Whether a connection has been made.
    #[cfg(test)]
    pub fn established(&mut self) -> bool {
        self.connections.established()
    }

    /// The acknowledgements of open connections that waited in vain.
    #[cfg(test)]
    pub fn late_acknowledgements(&self) -> u32 {
        self.connections.late()
    }

    /// Makes time pass.
    #[cfg(test)]
    pub fn pass(&mut self, time: std::time::Duration) {
        self.started -= time;
        self.look_at_clock();
        self.time_comes();
    }
}

fn interface(config: &Config, out: &mut Out) -> Interface {
    let mut own = smoltcp::iface::Config::new(HardwareAddress::Ethernet(ROUTER));
    // Predictable sequence numbers are safe here: the guest could only attack itself with them.
    own.random_seed = u64::from(std::process::id());
    let mut interface = wire::interface(own, out);
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
    interface
}
