// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All TCP connections, by their two ends.
//!
//! When the guest opens a connection, the host's socket connects first. The guest's SYN is answered
//! only when that has succeeded. So the guest sees a refusal as a refusal.

mod accept;

use super::events::{EventFlags, Events, Source};
use super::flow::{Ends, Flow, Next, Socket, State};
use super::wire::Wire;
use super::{Config, frame, host};
use crate::{Error, Publish};
use accept::{EPHEMERAL, Listener};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use smoltcp::iface::SocketSet;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::Icmpv4DstUnreachable;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// The number of connections after which memory is given back to the host.
const MANY: usize = 16;
/// Sockets that wait for another connection: their buffers are there.
const SPARE: usize = 4;
/// The most connections that are served before the guest's next frames.
const ROUND: usize = 64;
/// A deadline that has passed without effect is looked at again after this time.
const AGAIN: Duration = Duration::from_millis(1);
const DNS_PORT: u16 = 53;
/// Sockets that wait for another connection. A flow has a box, which moves here and back.
type Spare = Vec<Box<Socket>>;

/// All connections.
#[derive(Debug)]
pub struct Connections {
    flows: HashMap<u64, Flow>,
    /// The flows by their ends.
    known: HashMap<Ends, u64>,
    next_id: u64,
    /// The flows that have something to do.
    queue: VecDeque<u64>,
    /// No flow has an earlier deadline.
    earliest: Option<Instant>,
    listeners: Vec<Listener>,
    next_port: u16,
    /// No socket: for frames that belong to no connection.
    none: SocketSet<'static>,
    spare: Spare,
    /// The most flows at a time.
    limit: usize,
    /// How many of them have large buffers.
    large_buffers: usize,
    /// The most flows at a time since memory was last given back.
    most: usize,
    /// Some of those that were many are still there, and no others have come.
    ebbing: bool,
    /// Acknowledgements may wait.
    ack_delay: bool,
}

impl Connections {
    /// Listens on the published ports.
    pub fn new(config: &Config, events: &Events) -> Result<Self, Error> {
        let listeners = accept::listen(config, events)?;
        Ok(Connections {
            flows: HashMap::new(),
            known: HashMap::new(),
            next_id: 0,
            queue: VecDeque::new(),
            earliest: None,
            listeners,
            next_port: *EPHEMERAL.start(),
            none: SocketSet::new(Vec::new()),
            spare: Vec::new(),
            limit: config.connections,
            large_buffers: config.large_buffers,
            most: 0,
            ebbing: false,
            ack_delay: config.ack_delay,
        })
    }

    /// The number of flows now.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether a flow's handshake is complete.
    #[cfg(test)]
    pub fn established(&mut self) -> bool {
        self.flows.values_mut().any(|flow| match &mut flow.state {
            State::Open(socket) => socket.tcp().state() == smoltcp::socket::tcp::State::Established,
            State::Connecting { .. } => false,
        })
    }

    /// The acknowledgements of all flows that waited in vain.
    #[cfg(test)]
    pub fn late(&self) -> u32 {
        self.flows.values().map(|flow| flow.late_count).sum()
    }

    /// The published ports, as bound.
    pub fn published(&self) -> impl Iterator<Item = Publish> + '_ {
        self.listeners.iter().map(|listener| listener.publish)
    }

    /// A set without sockets: for frames that belong to no connection.
    pub fn no_socket(&mut self) -> &mut SocketSet<'static> {
        &mut self.none
    }

    /// The host's socket of a flow has reported.
    pub fn flow_reports(&mut self, id: u64, flags: EventFlags) {
        if self
            .flows
            .get_mut(&id)
            .is_some_and(|flow| flow.report(flags))
        {
            self.enqueue(id);
        }
    }

    /// Serves all flows soon whose deadline has come.
    pub fn time_comes(&mut self, now: Instant) {
        self.earliest = None;
        let mut late = Vec::new();
        for (&id, flow) in &mut self.flows {
            match flow.deadline {
                Some(at) if at <= now => {
                    flow.late = true;
                    late.push(id);
                }
                Some(at) => note(&mut self.earliest, at),
                None => {}
            }
        }
        late.into_iter().for_each(|id| self.enqueue(id));
    }

    /// Serves all flows soon that wait for something: the guest has answered a query for its
    /// address.
    pub fn address_comes(&mut self) {
        let waiting = |(&id, flow): (&u64, &Flow)| flow.deadline.map(|_| id);
        let waiting: Vec<u64> = self.flows.iter().filter_map(waiting).collect();
        waiting.into_iter().for_each(|id| self.enqueue(id));
    }

    /// When [`time_comes`](Connections::time_comes) must be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.earliest
    }

    fn enqueue(&mut self, id: u64) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.queued) {
            flow.queued = true;
            self.queue.push_back(id);
        }
    }

    /// Gives a segment of the guest to its connection. The first one starts it: it is kept until
    /// the host has connected. The stack refuses what is not allowed.
    pub fn segment(
        &mut self,
        config: &Config,
        events: &Events,
        wire: &mut Wire<'_>,
        ends: Ends,
        syn: bool,
        frame: &[u8],
    ) {
        if let Some(&id) = self.known.get(&ends) {
            let Some(flow) = self.flows.get_mut(&id) else {
                return;
            };
            let forgotten = syn && flow.forgotten(frame);
            match &mut flow.state {
                // The guest uses its port again, and knows nothing of the last connection. If it
                // has not ended that, it has lost it.
                State::Open(_) if forgotten => {
                    if !flow.guest_ended() {
                        flow.give_up();
                    }
                    self.remove(id);
                }
                State::Open(_) => {
                    flow.segment(wire, frame);
                    self.enqueue(id);
                    return;
                }
                // The guest repeats its SYN because the host is slow, or has another one by now.
                State::Connecting { syn: last } if syn => {
                    frame.clone_into(last);
                    return;
                }
                State::Connecting { .. } => {
                    wire.ingress(&mut self.none, frame);
                    return;
                }
            }
        }
        let (from, to) = ends;
        if syn && (!frame::unicast(*from.ip()) || !self.make_room(wire, self.limit)) {
            return;
        }
        let outside = if (*to.ip(), to.port()) == (config.dns, DNS_PORT) {
            config.resolvers.first().copied()
        } else {
            let ip = config.outside(*to.ip());
            ip.map(|ip| SocketAddr::new(ip, to.port()))
        };
        let host = match outside.filter(|_| syn).map(host::connect) {
            Some(Ok(host)) => Some(host),
            Some(Err(error)) => return self.refuse(config, wire, frame, error),
            None => None,
        };
        let added = host.and_then(|host| {
            let syn = frame.to_vec();
            self.add(events, ends, host, State::Connecting { syn }, wire.now)
        });
        if added.is_none() {
            wire.ingress(&mut self.none, frame);
        }
    }

    /// Answers the guest's SYN, for which the host has this error.
    fn refuse(&mut self, config: &Config, wire: &mut Wire<'_>, syn: &[u8], error: Errno) {
        match refusal(error) {
            Refusal::Reset => wire.ingress(&mut self.none, syn),
            Refusal::Unreachable(code) => {
                if let Some(answer) = frame::unreachable(config.gateway, code, syn) {
                    wire.out.push(wire.port, &answer);
                }
            }
            Refusal::Silence => {}
        }
    }

    /// Adds a flow. `None`: the host does not report on its socket, which is closed.
    fn add(
        &mut self,
        events: &Events,
        ends: Ends,
        host: OwnedFd,
        state: State,
        now: Instant,
    ) -> Option<u64> {
        let id = self.next_id;
        events.add(&host, Source::Flow(id), host::REPORTS).ok()?;
        self.next_id += 1;
        self.known.insert(ends, id);
        self.flows
            .insert(id, Flow::new(ends, host, state, self.ack_delay, now));
        if self.flows.len() > self.most {
            (self.most, self.ebbing) = (self.flows.len(), false);
        }
        Some(id)
    }

    /// Does what can be done without waiting. True: there is more to do at once.
    pub fn serve(&mut self, config: &Config, events: &Events, wire: &mut Wire<'_>) -> bool {
        let mut more = self.accept(config, events, wire);
        let before = self.flows.len();
        for _ in 0..self.queue.len().min(ROUND) {
            if wire.out.stuck() {
                break;
            }
            let Some(id) = self.queue.pop_front() else {
                break;
            };
            self.serve_one(config, id, wire);
        }
        // Where one has ended, another may be accepted.
        more |= self.flows.len() < before && self.listeners.iter().any(|l| l.ready);
        (more || !self.queue.is_empty()) && !wire.out.stuck()
    }

    fn serve_one(&mut self, config: &Config, id: u64, wire: &mut Wire<'_>) {
        let large = self.flows.len() <= self.large_buffers;
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        flow.queued = false;
        if let State::Connecting { syn } = &mut flow.state {
            let syn = std::mem::take(syn);
            match flow.connected() {
                None => {
                    flow.state = State::Connecting { syn };
                    return;
                }
                Some(Ok(())) => {
                    let mut socket = new_socket(&mut self.spare, large);
                    let listens = socket.tcp().listen(flow.ends.1).is_ok();
                    flow.state = State::Open(socket);
                    if listens {
                        flow.segment(wire, &syn);
                    }
                }
                Some(Err(error)) => {
                    self.refuse(config, wire, &syn, error);
                    self.remove(id);
                    return;
                }
            }
        }
        match flow.serve(wire) {
            Next::Ended => self.remove(id),
            Next::Stuck => self.enqueue(id),
            Next::Wait => {
                if let Some(at) = flow.deadline {
                    let at = at.max(wire.now + AGAIN);
                    flow.deadline = Some(at);
                    note(&mut self.earliest, at);
                }
            }
        }
    }

    /// Makes room for another connection. Where the guest has left too many unanswered, or there
    /// are too many through published ports (`most`) or in all, the one of these that was idle
    /// longest ends. False: there is no room.
    fn make_room(&mut self, wire: &mut Wire<'_>, most: usize) -> bool {
        let full = self.flows.len() >= self.limit;
        let most_half = self.limit / 4;
        if !full && self.flows.len() < most_half {
            return true;
        }
        let (mut all, mut half) = (0, 0);
        let (mut oldest, mut oldest_half) = (None, None);
        for (&id, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.published) {
            let this = Some((flow.used, id));
            all += 1;
            oldest = oldest.min(this).or(this);
            if flow.half_open() {
                half += 1;
                oldest_half = oldest_half.min(this).or(this);
            }
        }
        let victim = if half >= most_half && most < self.limit {
            oldest_half
        } else if full || all >= most {
            oldest
        } else {
            None
        };
        if let Some((_, id)) = victim {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.abort(wire);
            }
            self.remove(id);
        }
        self.flows.len() < self.limit
    }

    /// Ends all that waits for the guest, which has taken nothing for long.
    pub fn give_up(&mut self) {
        let waiting = self.flows.iter_mut().filter(|(_, flow)| flow.waits());
        let waiting = waiting.map(|(&id, flow)| {
            flow.give_up();
            id
        });
        let waiting: Vec<u64> = waiting.collect();
        waiting.into_iter().for_each(|id| self.remove(id));
    }

    /// There is another driver, and maybe another guest: each flow asks whether it is known there.
    pub fn doubt(&mut self, now: Instant) {
        let ids: Vec<u64> = self.flows.keys().copied().collect();
        for id in ids {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.doubt(now);
            }
            self.enqueue(id);
        }
    }

    /// Removes a flow that has ended at both ends.
    fn remove(&mut self, id: u64) {
        let Some(flow) = self.flows.remove(&id) else {
            return;
        };
        self.known.remove(&flow.ends);
        let ended = flow.end().filter(|_| self.spare.len() < SPARE);
        self.spare.extend(ended.filter(|socket| socket.is_large()));
        // Again and again for those that were many, or what the last ones took would stay.
        if (self.most >= MANY || self.ebbing) && self.flows.len() <= self.most / 4 {
            self.most = self.flows.len();
            self.ebbing = self.most > SPARE;
            give_back();
        }
    }
}

/// How a guest learns that there is no connection.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Reset,
    /// By ICMP, with this code.
    Unreachable(Icmpv4DstUnreachable),
    /// Not at all: it waits as long as the host has waited, and may try again.
    Silence,
}

/// The guest's `connect` fails as the host's does, as far as ICMP and TCP can express that.
fn refusal(error: Errno) -> Refusal {
    match error {
        Errno::NETUNREACH => Refusal::Unreachable(Icmpv4DstUnreachable::NetUnreachable),
        Errno::HOSTUNREACH => Refusal::Unreachable(Icmpv4DstUnreachable::HostUnreachable),
        // No answer has come.
        Errno::TIMEDOUT => Refusal::Silence,
        _ => Refusal::Reset,
    }
}

/// A socket for a connection. One with large buffers may be one that waits for that.
fn new_socket(spare: &mut Spare, large: bool) -> Box<Socket> {
    let waiting = spare.pop_if(|_| large);
    waiting.unwrap_or_else(|| Box::new(Socket::new(large)))
}

/// Lowers a bound.
fn note(earliest: &mut Option<Instant>, at: Instant) {
    *earliest = Some(earliest.map_or(at, |known| known.min(at)));
}

/// Returns the allocator's memory of closed buffers to the host. The allocator would keep that of
/// many connections for ever.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function frees no memory that is in use, and any thread may call it.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_learns_of_the_host_s_error() {
        use Icmpv4DstUnreachable::{HostUnreachable, NetUnreachable};
        for (error, expected) in [
            (Errno::CONNREFUSED, Refusal::Reset),
            (Errno::CONNRESET, Refusal::Reset),
            (Errno::NETUNREACH, Refusal::Unreachable(NetUnreachable)),
            (Errno::HOSTUNREACH, Refusal::Unreachable(HostUnreachable)),
            (Errno::TIMEDOUT, Refusal::Silence),
            (Errno::MFILE, Refusal::Reset),
        ] {
            assert_eq!(refusal(error), expected, "{error}");
        }
    }
}
