// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop: sockets, notifications of clients, and the devices' work, in turns.

mod events;

use crate::administer;
use crate::again::{Again, Postponed};
use crate::card::{Cards, Crew};
use crate::closer::{Closer, is_memory};
use crate::disk::Pool;
use crate::guard;
use crate::later::Later;
use crate::peer::Peer;
use crate::receive::receive;
use crate::serve::{self, Answer, Host, Links};
use crate::store::Store;
use anyhow::Context;
use events::watch;
use paravane_confine::pass_files;
use paravane_vbus::{ConnectionId, Error, Kind, Vbus};
use paravane_vbus_cards::give_way;
use paravane_vbus_protocol::{Error as PacketError, MAX, MAX_FILES, Reply, Request};
use paravane_vbus_protocol::{decode, encode};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most sockets; those that only the administrator can have; most of another user.
pub const PEERS: usize = 256;
const RESERVED: usize = 16;
const PEERS_OF_USER: usize = 64;
/// Files and sockets that wait to be closed before vbusd takes no further peer but the
/// administrator's; none at all if files may come with sockets that were not taken.
const UNCLOSED: usize = 1024;
/// How long it takes none then, or when it has no descriptor for one.
const PAUSE: Duration = Duration::from_millis(50);
/// Packets that a connection's device handles in a turn.
const BUDGET: u32 = 64;
/// Events of one wait.
const EVENTS: usize = 64;

/// Kinds of what epoll reports: the upper half of its number.
const LISTENER: u64 = 0;
/// The threads of cards, of the same kind.
const CARDS: u64 = 1;
const PEER: u64 = 1 << 62;
const KICK: u64 = 2 << 62;
const DISKS: u64 = 3 << 62;
const KINDS: u64 = 3 << 62;

fn kick_token(id: ConnectionId) -> u64 {
    KICK | id.0
}

/// Where peers connect.
#[derive(Debug)]
pub struct Listener {
    pub socket: OwnedFd,
    /// No files come with a socket before it was taken.
    pub no_files: bool,
}

/// Everything that vbusd has.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    poll: OwnedFd,
    vbus: Vbus,
    store: Store,
    peers: BTreeMap<u64, Peer>,
    links: Links,
    closer: Closer,
    pool: Arc<Pool>,
    cards: Cards,
    later: Later,
    again: Again,
    most_connections: usize,
    /// Since when it takes no peer.
    paused: Option<Instant>,
    /// When the log last said that the host has no memory.
    told_memory: Option<Instant>,
    last_peer: u64,
}

impl Server {
    /// Of a socket that listens.
    pub fn new(
        listener: Listener,
        vbus: Vbus,
        store: Store,
        closer: Closer,
        (pool, cards): (Arc<Pool>, Cards),
        most_connections: usize,
    ) -> anyhow::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        listen(&poll, &listener.socket).context("epoll")?;
        // Never read: it is watched for edges.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(DISKS);
        epoll::add(&poll, pool.bell(), data, edges).context("epoll")?;
        let data = epoll::EventData::new_u64(CARDS);
        epoll::add(&poll, cards.bell(), data, edges).context("epoll")?;
        Ok(Server {
            listener,
            poll,
            vbus,
            store,
            peers: BTreeMap::new(),
            links: Links::new(),
            closer,
            pool,
            cards,
            later: Later::default(),
            again: Again::default(),
            most_connections,
            paused: None,
            told_memory: None,
            last_peer: 0,
        })
    }

    /// Serves until the process ends.
    pub fn serve(mut self) -> anyhow::Result<Infallible> {
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut buffer = [none; EVENTS];
        let mut packet = vec![0; MAX];
        loop {
            // Sockets get their turn also while devices are busy.
            let patience = if self.vbus.has_work() {
                Some(Duration::ZERO)
            } else {
                let pause = self.paused.map(|_| PAUSE);
                pause.into_iter().chain(self.again.patience()).min()
            };
            let patience = patience.and_then(|time| Timespec::try_from(time).ok());
            let count = match epoll::wait(&self.poll, &mut buffer[..], patience.as_ref()) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(error) => return Err(error).context("epoll"),
            };
            let mut unsent = false;
            for event in &buffer[..count] {
                let token = event.data.u64();
                let number = token & !KINDS;
                match token & KINDS {
                    KICK => self.vbus.notified(ConnectionId(number)),
                    DISKS => {
                        for device in self.pool.ready() {
                            if !self.vbus.woken(&device) {
                                // It was removed since.
                                self.pool.done(&device);
                            }
                        }
                    }
                    PEER => {
                        let flags = event.flags;
                        unsent |= flags.contains(epoll::EventFlags::OUT);
                        let end = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                        if self.peers.get(&number).is_none_or(|peer| !peer.waits) {
                            self.peer(number, &mut packet);
                        } else if flags.intersects(end) {
                            // No peer waits for its answer.
                            self.end(number);
                        }
                    }
                    _ if number == CARDS => {
                        for device in self.cards.ready() {
                            if !self.vbus.woken(&device) {
                                self.cards.forget(&device);
                            }
                        }
                        self.told();
                        // Some may have waited for the end of a card.
                        unsent = true;
                    }
                    _ => self.accept(),
                }
            }
            if self.paused.is_some_and(|since| since.elapsed() >= PAUSE) {
                let again = listen(&self.poll, &self.listener.socket).is_ok();
                self.paused = (!again).then(Instant::now);
            }
            for postponed in self.again.due() {
                self.repeat(postponed);
            }
            self.vbus.work(BUDGET);
            if guard::take_failed() {
                self.end_failed();
            }
            give_way(&mut self.vbus);
            if self.vbus.take_news() || unsent {
                self.events();
            }
            if self.links.len() != self.vbus.connections() {
                let elsewhere = self.cards.elsewhere();
                serve::prune(&self.vbus, &mut self.links, &self.poll, elsewhere);
            }
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let many = self.closer.all() >= UNCLOSED;
        if many && !self.listener.no_files {
            return self.pause();
        }
        let socket = match accept_with(&self.listener.socket, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(_) => return self.pause(),
        };
        self.last_peer += 1;
        let mut peer = match Peer::new(socket, self.last_peer) {
            Ok(peer) => peer,
            Err(socket) => return self.closer.end(u32::MAX, socket),
        };
        let uid = peer.who.uid;
        let others = || self.peers.values().filter(|other| !other.administrator);
        let same = others().filter(|other| other.who.uid == uid).count();
        let full = if peer.administrator {
            self.peers.len() == PEERS
        } else {
            many || others().count() == PEERS - RESERVED || same == PEERS_OF_USER
        };
        if full || self.closer.has_many(uid) {
            let text = "vbusd has too many clients: end some";
            let error = Reply::Error(Error::new(Kind::Limit, text));
            let _ = reply(&mut peer, &error, &[]);
            return self.closer.end(uid, peer.socket);
        }
        let data = epoll::EventData::new_u64(PEER | self.last_peer);
        let may_send = !self.listener.no_files || pass_files(&peer.socket, true).is_ok();
        match epoll::add(&self.poll, &peer.socket, data, epoll::EventFlags::IN) {
            Ok(()) if may_send => drop(self.peers.insert(self.last_peer, peer)),
            _ => self.closer.end(uid, peer.socket),
        }
    }

    /// Takes no peer for a while. The listener would be reported without end.
    fn pause(&mut self) {
        let _ = epoll::delete(&self.poll, &self.listener.socket);
        self.paused = Some(Instant::now());
    }

    /// One request of a peer, or its end.
    fn peer(&mut self, number: u64, packet: &mut [u8]) {
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let uid = peer.who.uid;
        if self.closer.has_many(uid) {
            return self.end(number);
        }
        let received = match receive(&peer.socket, packet) {
            Ok(received) => received,
            // It can take an event again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => return self.end(number),
        };
        let (len, mut files) = (received.len, received.files);
        if !files.iter().all(is_memory) {
            // Nothing that is no memory may be closed here. A request without files says why.
            self.closer.close(uid, std::mem::take(&mut files));
        }
        if received.end || !received.whole || files.len() > MAX_FILES {
            return self.end(number);
        }
        let request = decode::<Request>(&packet[..len]);
        if matches!(request, Ok(Request::Open { .. })) {
            // Each answer that waits holds descriptors, also of connections that have ended.
            if self.peers.get(&number).is_some_and(Peer::leaves_files) {
                return self.end(number);
            }
        }
        match request {
            Ok(request) => self.request(number, request, files, Vec::new()),
            Err(error) => {
                let text = error.to_string();
                let error = Reply::Error(Error::new(Kind::Invalid, text));
                if let Some(peer) = self.peers.get_mut(&number) {
                    let _ = reply(peer, &error, &[]);
                }
                self.end(number);
            }
        }
    }

    /// Carries out a request, and answers it now or later. `tried`: values that were tried for it.
    fn request(&mut self, number: u64, request: Request, files: Vec<OwnedFd>, tried: Vec<String>) {
        // Orders that ends of clients have caused are not part of it.
        self.cards.given();
        self.cards.trials().begin(tried.clone());
        let answer = self.answer(number, &request, &files);
        if self.pool.predecessor().met() && answer.is_err() {
            return self.postpone(number, request, files);
        }
        if let (Some(trial), true) = (self.cards.trials().wanted(), is_tried(&request)) {
            let (crew, attempt) = (trial.crew, trial.attempt);
            if let Err(error) = crew.attempt(attempt) {
                return self.reply(number, Err(error));
            }
            let tried = tried.into_iter().chain([trial.value]).collect();
            let answer = Ok((Reply::Done, Vec::new()));
            return self.wait(number, &[crew], answer, Some((request, tried)));
        }
        match &self.cards.given()[..] {
            [] => self.reply(number, answer),
            crews => self.wait(number, crews, answer, None),
        }
    }

    /// Makes a request again a little later. Its peer waits, as for every answer.
    fn postpone(&mut self, number: u64, request: Request, files: Vec<OwnedFd>) {
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.waits = true;
            watch(&self.poll, number, peer);
            self.again.postpone(Postponed {
                peer: number,
                request,
                files,
            });
        }
    }

    /// Makes a postponed request again, unless its peer has gone.
    fn repeat(&mut self, postponed: Postponed) {
        let Postponed {
            peer: number,
            request,
            files,
        } = postponed;
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.waits = false;
            watch(&self.poll, number, peer);
            self.request(number, request, files, Vec::new());
        }
    }

    /// Lets the answer to a peer wait until these threads have done what was ordered.
    fn wait(
        &mut self,
        number: u64,
        crews: &[Arc<Crew>],
        answer: Answer,
        again: Option<(Request, Vec<String>)>,
    ) {
        if let Some(peer) = self.peers.get_mut(&number) {
            self.later.wait(crews, number, answer, again);
            peer.waits = true;
            watch(&self.poll, number, peer);
        }
    }

    /// Answers for which the threads of cards have done what was ordered.
    fn told(&mut self) {
        for (number, outcome) in self.cards.outcomes() {
            let Some(waiting) = self.later.told(number, outcome) else {
                continue;
            };
            let Some(peer) = self.peers.get_mut(&waiting.peer) else {
                continue;
            };
            peer.waits = false;
            if let (Some(id), Some(member)) = (waiting.failed, peer.member) {
                // It may have been ended since.
                let _ = self.vbus.close(member, id);
            }
            watch(&self.poll, waiting.peer, peer);
            match waiting.again {
                Some((request, tried)) => self.request(waiting.peer, request, Vec::new(), tried),
                None => self.reply(waiting.peer, waiting.answer),
            }
        }
    }

    /// Sends a peer its answer.
    fn reply(&mut self, number: u64, answer: Answer) {
        let (answer, files) = match answer {
            Ok((answer, files)) => (answer, files),
            Err(error) => (Reply::Error(error), Vec::new()),
        };
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        // A client that does not read its answers has no use for vbusd.
        let sent = match self.peers.get_mut(&number) {
            Some(peer) => reply(peer, &answer, &files),
            None => Ok(()),
        };
        if sent.is_err() {
            self.end(number);
        }
    }

    fn answer(&mut self, number: u64, request: &Request, files: &[OwnedFd]) -> Answer {
        let Some(peer) = self.peers.get_mut(&number) else {
            return Err(Error::new(Kind::NotFound, "the client has gone"));
        };
        if peer.administrator {
            if let Some(answer) = administer::answer(&mut self.vbus, &self.store, request) {
                return answer.map(|reply| (reply, Vec::new()));
            }
        }
        let (vbus, links) = (&mut self.vbus, &mut self.links);
        let host = Host {
            poll: &self.poll,
            token: kick_token,
            most: self.most_connections,
            cards: &self.cards,
        };
        serve::answer(vbus, links, peer, request, files, &host)
    }

    fn end(&mut self, number: u64) {
        if let Some(peer) = self.peers.remove(&number) {
            if let Some(member) = peer.member {
                self.vbus.leave(member);
            }
            // The closer may keep the socket open for a while.
            let _ = epoll::delete(&self.poll, &peer.socket);
            self.closer.end(peer.who.uid, peer.socket);
        }
    }
}

fn reply(peer: &mut Peer, reply: &Reply, files: &[BorrowedFd<'_>]) -> Result<(), PacketError> {
    let packet = encode(reply)?;
    peer.send(&packet, files)
}

/// Whether values of this request may have to be tried before.
fn is_tried(request: &Request) -> bool {
    matches!(
        request,
        Request::CreateDevice { .. } | Request::SetAttribute { .. }
    )
}

fn listen(poll: &OwnedFd, listener: &OwnedFd) -> Result<(), Errno> {
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(poll, listener, data, epoll::EventFlags::IN)
}
