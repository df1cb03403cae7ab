// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: clients of cards that open, share, call and close whenever they like, and write
//! anything into their rings. Requests go vbusd's way, from [`serve::answer`] to a thread of cards
//! and back; each turn of such a thread is a step of the target. The cards are vbusd's; only what
//! they lead to is a double.
//!
//! Nothing may panic or work without end. A request has one answer, and the one that the rules say.
//! A client that keeps the rules is not reset, and all frames that it sends or should get arrive,
//! in order and unchanged. Nothing is written where no buffer lies. A client learns of the end of a
//! connection when its card has ended, and not before.

mod client;
mod host;
#[expect(unsafe_code, reason = "rings in mapped memory")]
mod rings;
mod steps;
mod taps;

use super::worker::Worker;
use super::*;
use crate::later::Later;
use crate::peer::Peer;
use crate::serve::{self, Answer, Links};
use client::Conn;
use host::{End, Host};
use paravane_fuzz::{Input, fuzz};
use paravane_net::passt::Starter;
use paravane_vbus::{Access, ConnectionId, Vbus, limits};
use paravane_vbus_protocol::{Reply, Request};
use rings::Shares;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Clients at a time. The second is no administrator's.
const CLIENTS: usize = 2;
const OTHER: u32 = 1000;
/// Most cards of a thread, and rounds after which there must be nothing left to do.
const MOST: usize = 3;
const ROUNDS: usize = 20_000;
/// Devices with their classes.
const DEVICES: [(&str, &str); 2] = [("tap", TAP), ("net", USER)];

#[test]
fn vbusd_cards() {
    fuzz("vbusd_cards", || |bytes| World::new(bytes).play());
}

/// A request that was made, and what it needs when it is answered.
struct Asked {
    request: Request,
    memory: Option<Shares>,
    end: Option<End>,
}

struct Client {
    number: u64,
    peer: Peer,
    _socket: OwnedFd,
    waits: Option<Asked>,
    conns: Vec<Conn>,
}

struct World<'a> {
    input: Input<'a>,
    cards: Cards,
    workers: [Worker; 2],
    host: Host,
    vbus: Vbus,
    interfaces: [u32; 2],
    links: Links,
    later: Later,
    poll: OwnedFd,
    clients: Vec<Client>,
    last: u64,
    /// Connections that have ended, until their clients have learnt of it.
    ended: Vec<(ConnectionId, OwnedFd)>,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Cards without threads: each turn of theirs is a step of a target.
fn without_threads(most: usize) -> (Cards, [Worker; 2]) {
    let news = News::new().unwrap();
    let crew = || Crew::new(most, None).unwrap();
    let ((taps, first), (networks, second)) = (crew(), crew());
    let workers = [first, second].map(|poll| Worker::new(poll, Arc::clone(&news)));
    let cards = Cards {
        taps: Arc::new(taps),
        networks: Arc::new(networks),
        news,
        elsewhere: Elsewhere::default(),
        trials: Trials::default(),
        resolvers: Vec::new(),
        starter: Starter::on_thread().unwrap(),
        files: 0,
    };
    (cards, workers)
}

impl<'a> World<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (cards, workers) = without_threads(MOST);
        let host = Host::default();
        let classes = DEVICES.map(|(_, class)| {
            let host = host.clone();
            let kind = move || host.kind(class == TAP);
            let site = cards.site(cards.crew(class).unwrap(), &Arc::default());
            let (name, kind) = (class, Box::new(kind));
            Box::new(CardClass { name, site, kind }) as Box<dyn Class>
        });
        let mut vbus = Vbus::new(classes.into());
        vbus.create_bus(&name("lan")).unwrap();
        let access = Access {
            uids: [OTHER].into(),
            gids: [].into(),
        };
        vbus.set_access(&name("lan"), access).unwrap();
        let interfaces = DEVICES.map(|(device, class)| {
            vbus.create_device(&name(device), class, &[]).unwrap();
            vbus.link(&name("lan"), &name(device)).unwrap()
        });
        let mut world = World {
            input: Input::new(bytes),
            cards,
            workers,
            host,
            vbus,
            interfaces,
            links: Links::new(),
            later: Later::default(),
            poll: epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
            clients: Vec::new(),
            last: 0,
            ended: Vec::new(),
        };
        for at in 0..CLIENTS {
            let client = world.join(at);
            world.clients.push(client);
        }
        world
    }

    /// Another client, which has joined the bus.
    fn join(&mut self, at: usize) -> Client {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, other) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        self.last += 1;
        let mut peer = Peer::new(socket, self.last).unwrap();
        peer.administrator = at == 0;
        if at > 0 {
            peer.who.uid = OTHER;
        }
        let (who, administrator) = (peer.who.clone(), peer.administrator);
        let member = self.vbus.join(&name("lan"), who, administrator);
        peer.member = Some(member.unwrap());
        Client {
            number: self.last,
            peer,
            _socket: other,
            waits: None,
            conns: Vec::new(),
        }
    }

    /// A client makes a request, unless one of its is not answered.
    fn request(&mut self, at: usize, request: Request, files: &[OwnedFd], memory: Option<Shares>) {
        let client = &mut self.clients[at];
        if client.waits.is_some() {
            return;
        }
        let vbusd = serve::Host {
            poll: &self.poll,
            token: |id| id.0,
            most: 64,
            cards: &self.cards,
        };
        // Orders that ends of clients have caused are not part of it.
        self.cards.given();
        let (vbus, links) = (&mut self.vbus, &mut self.links);
        let answer = serve::answer(vbus, links, &mut client.peer, &request, files, &vbusd);
        let own = |id: &ConnectionId| client.conns.iter().any(|conn| conn.id == *id);
        let may = match &request {
            Request::Open { version, .. } => memory.is_some() && *version == 1,
            Request::Call { connection, .. } => own(connection),
            Request::Share { connection, .. } | Request::Close { connection } => own(connection),
            _ => true,
        };
        assert!(may || answer.is_err(), "{request:?} was not refused");
        let asked = Asked {
            request,
            memory,
            end: self.host.end(),
        };
        match &self.cards.given()[..] {
            [] => self.answered(at, asked, answer),
            crews => {
                self.later.wait(crews, client.number, answer, None);
                client.waits = Some(asked);
            }
        }
    }

    /// A request has its answer.
    fn answered(&mut self, at: usize, asked: Asked, answer: Answer) {
        let conns = &mut self.clients[at].conns;
        let find = |id| move |conn: &&mut Conn| conn.id == id;
        let Asked {
            request,
            memory,
            end,
        } = asked;
        match request {
            Request::Open { .. } => {
                let Ok((Reply::Opened(id), files)) = answer else {
                    assert!(answer.is_err());
                    return;
                };
                let files = <[OwnedFd; 2]>::try_from(files).unwrap();
                conns.push(Conn::new(id, memory.unwrap(), files, end));
            }
            Request::Share { connection, shared } => {
                if let Some(conn) = conns.iter_mut().find(find(connection)) {
                    conn.shares(shared, &answer.map(|_| ()));
                }
            }
            Request::Call {
                connection,
                call,
                argument,
            } => {
                let done = answer.map(|(reply, _)| match reply {
                    Reply::Bytes(bytes) => bytes,
                    other => unreachable!("{other:?}"),
                });
                let long = argument.len() > limits::CALL;
                assert!(!long || done.is_err());
                if let Some(conn) = conns.iter_mut().find(find(connection)).filter(|_| !long) {
                    conn.called(call, &argument, &done);
                }
            }
            _ => {}
        }
        // Some may have ended.
        self.tidy();
    }

    /// A round of a thread of cards.
    fn turn(&mut self, which: usize) {
        let crew = [&self.cards.taps, &self.cards.networks][which];
        let orders = Arc::clone(crew.orders());
        assert!(self.workers[which].round(&orders, Some(&Timespec::default())));
    }

    /// What the first thread does when something has happened.
    fn first(&mut self) {
        for device in self.cards.ready() {
            if !self.vbus.woken(&device) {
                self.cards.forget(&device);
            }
        }
        for (number, outcome) in self.cards.outcomes() {
            let Some(waiting) = self.later.told(number, outcome) else {
                continue;
            };
            let waits = |client: &Client| client.number == waiting.peer;
            let Some(at) = self.clients.iter().position(waits) else {
                continue;
            };
            let asked = self.clients[at].waits.take();
            if let (Some(id), Some(member)) = (waiting.failed, self.clients[at].peer.member) {
                // It may have been ended since.
                let _ = self.vbus.close(member, id);
            }
            let asked = asked.expect("an answer that nobody waits for");
            self.answered(at, asked, waiting.answer);
        }
        for id in self.vbus.work(64) {
            let mut all = self.clients.iter().flat_map(|client| &client.conns);
            let hostile = all.find(|conn| conn.id == id).map(|conn| conn.hostile);
            assert_eq!(hostile, Some(true), "one that keeps the rules was reset");
        }
        self.tidy();
    }

    /// Looks after connections that have ended.
    fn tidy(&mut self) {
        serve::prune(
            &self.vbus,
            &mut self.links,
            &self.poll,
            self.cards.elsewhere(),
        );
        for client in &mut self.clients {
            let conns = std::mem::take(&mut client.conns);
            for conn in conns {
                if self.vbus.is_open(conn.id) {
                    client.conns.push(conn);
                } else {
                    conn.memory.check();
                    self.ended.push((conn.id, conn.bell));
                }
            }
            while client
                .peer
                .member
                .and_then(|member| self.vbus.event(member))
                .is_some()
            {}
        }
        let workers = &self.workers;
        self.ended.retain(|(id, bell)| {
            let learns = Conn::rung(bell).is_none();
            let mut cards = workers.iter().flat_map(Worker::connections);
            assert!(
                !(learns && cards.any(|other| other == *id)),
                "its card is there"
            );
            !learns
        });
    }

    /// Both threads work until there is nothing to do.
    fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..ROUNDS {
            self.turn(0);
            self.turn(1);
            self.first();
            let crews = [&self.cards.taps, &self.cards.networks];
            let mut workers = self.workers.iter().zip(crews);
            let busy = workers.any(|(worker, crew)| worker.has_work(crew.orders()));
            let waits = self.clients.iter().any(|client| client.waits.is_some());
            idle = if busy || waits || self.vbus.has_work() {
                0
            } else {
                idle + 1
            };
            // A turn may make a file ready.
            if idle == 3 {
                return;
            }
        }
        unreachable!("the work has no end");
    }
}
