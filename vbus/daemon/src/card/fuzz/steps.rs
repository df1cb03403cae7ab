// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients, the administrator and the host do.

use super::client::{Conn, QUEUES};
use super::host::End;
use super::rings::{self, Shares};
use super::{CLIENTS, DEVICES, World, name};
use paravane_fuzz::Input;
use paravane_vbus::ethernet::call;
use paravane_vbus::ethernet::queues::of_pair;
use paravane_vbus::{ConnectionId, limits};
use paravane_vbus_protocol::{Request, Shared};
use std::sync::atomic::Ordering;

/// The most steps of an input.
const STEPS: usize = 250;

impl World<'_> {
    /// Plays an input.
    pub fn play(mut self) {
        let begin = self.input.u8();
        // Mostly cards do not look for work by themselves, so that inputs mean the same each time.
        if !begin.is_multiple_of(8) {
            for (device, _) in DEVICES {
                let device = name(device);
                self.vbus.set_attribute(&device, "poll-us", "0").unwrap();
            }
        }
        // Most inputs begin with something to play with.
        if begin & 0x30 != 0 {
            for _ in 0..1 + begin % 4 {
                self.bring_up();
            }
        }
        for _ in 0..STEPS {
            if self.input.is_empty() {
                break;
            }
            self.step();
        }
        self.end();
    }

    /// A connection whose link is up.
    fn bring_up(&mut self) {
        let at = usize::from(self.input.u8()) % CLIENTS;
        self.settle();
        let before = self.clients[at].conns.len();
        self.open(at, 0);
        self.settle();
        let conns = &self.clients[at].conns;
        let Some(conn) = conns.get(before) else {
            return;
        };
        let (connection, caps) = (conn.id, self.input.u8());
        let pairs = 1 + u32::from(caps >> 7);
        let ask = |number, argument: &[u8]| Request::Call {
            connection,
            call: number,
            argument: argument.to_vec(),
        };
        let mut all = vec![
            ask(call::NEGCAP, &[0, 0, 0, 0, caps, 0, 0, 0]),
            ask(call::NEGCAP, &[1, 0, 0, 0, 1, 0, 0, 0]),
            ask(call::PAIRS, &pairs.to_le_bytes()),
        ];
        let queues = (0..pairs).flat_map(of_pair).chain([2]);
        all.extend(queues.map(|queue| Request::Share {
            connection,
            shared: Conn::place(queue),
        }));
        all.push(ask(call::LINKUP, &[]));
        for request in all {
            self.request(at, request, &[], None);
            self.settle();
        }
        let up = |conn: &Conn| conn.id == connection && conn.up;
        assert!(self.clients[at].conns.iter().any(up), "it is not up");
    }

    fn step(&mut self) {
        let at = usize::from(self.input.u8()) % CLIENTS;
        match self.input.u8() % 32 {
            0 | 1 => {
                let kind = self.input.u8() % 32;
                self.open(at, kind);
            }
            2 | 3 => self.share(at),
            4..8 => self.call(at),
            8 => {
                let connection = self.connection(at);
                self.request(at, Request::Close { connection }, &[], None);
            }
            9 if self.input.u8().is_multiple_of(4) => {
                // A client goes, whatever it waits for.
                let member = self.clients[at].peer.member.unwrap();
                self.vbus.leave(member);
                self.tidy();
                self.clients[at] = self.join(at);
            }
            10 => self.administer(),
            11..16 => self.turn(at),
            16 | 17 => self.first(),
            18 => self.bring_up(),
            19..22 => self.on_the_host(at),
            _ => {
                if let Some(conn) = World::any(&mut self.clients[at].conns, &mut self.input) {
                    conn.step(&mut self.input);
                }
            }
        }
        for (worker, crew) in self
            .workers
            .iter()
            .zip([&self.cards.taps, &self.cards.networks])
        {
            // Those of open connections and those that end, of which another one is admitted only
            // while they are few.
            assert!(worker.connections().count() < 2 * crew.most(), "many cards");
        }
    }

    fn any<'b>(conns: &'b mut [Conn], input: &mut Input<'_>) -> Option<&'b mut Conn> {
        let which = usize::from(input.u8()) % conns.len().max(1);
        conns.get_mut(which)
    }

    /// A connection, mostly one of the client's.
    fn connection(&mut self, at: usize) -> ConnectionId {
        match World::any(&mut self.clients[at].conns, &mut self.input) {
            Some(conn) if !self.input.u8().is_multiple_of(16) => conn.id,
            _ => ConnectionId(u64::from(self.input.u8() % 16)),
        }
    }

    /// Opens a connection, with memory of this kind.
    fn open(&mut self, at: usize, kind: u8) {
        let interface = match self.input.u8() % 16 {
            0 => u32::from(self.input.u8()),
            number => self.interfaces[usize::from(number % 2)],
        };
        let file = rings::file(kind);
        let memory = rings::is_good(kind).then(|| Shares::new(&file));
        let request = Request::Open {
            interface,
            version: u32::from(kind != 5),
        };
        self.request(at, request, &[file], memory);
    }

    fn share(&mut self, at: usize) {
        let connection = self.connection(at);
        let input = &mut self.input;
        let queue = u32::from(input.u8() % 20);
        let known = Conn::place(queue % QUEUES);
        let mut shared = Shared { queue, ..known };
        if input.u8().is_multiple_of(8) {
            shared.offset = input.pick(&[known.offset, 0, 0x1001, rings::MEMORY as u64, u64::MAX]);
            shared.count = input.pick(&[known.count, 0, 7, 16, 4096, 4097, u32::MAX]);
        }
        let request = Request::Share { connection, shared };
        self.request(at, request, &[], None);
    }

    fn call(&mut self, at: usize) {
        let connection = self.connection(at);
        let input = &mut self.input;
        let number = input.pick(&[0, 0, 1, 2, 3, 3, 4, 6, 16, 17, 18, u32::MAX]);
        let argument = match input.u8() % 8 {
            0 => vec![7; limits::CALL + 1],
            1 => {
                let length = usize::from(input.u8() % 16);
                input.bytes(length).to_vec()
            }
            _ if number == call::PAIRS => vec![input.u8() % 16, 0, 0, 0],
            _ => vec![input.u8() % 3, 0, 0, 0, input.u8(), 0, 0, input.u8()],
        };
        let request = Request::Call {
            connection,
            call: number,
            argument,
        };
        self.request(at, request, &[], None);
    }

    fn administer(&mut self) {
        let which = usize::from(self.input.u8() % 2);
        let device = name(DEVICES[which].0);
        match self.input.u8() % 4 {
            0 => _ = self.vbus.reset(&device),
            1 => {
                self.vbus.unlink(&name("lan"), &device).unwrap();
                self.interfaces[which] = self.vbus.link(&name("lan"), &device).unwrap();
            }
            _ => {
                let poll = self.input.pick(&["0", "1", "20"]);
                self.vbus.set_attribute(&device, "poll-us", poll).unwrap();
            }
        }
        self.tidy();
    }

    fn on_the_host(&mut self, at: usize) {
        let input = &mut self.input;
        if input.u8().is_multiple_of(16) {
            self.host.refuses.fetch_xor(true, Ordering::Relaxed);
        }
        let conn = World::any(&mut self.clients[at].conns, input);
        let Some(conn) = conn.filter(|conn| conn.host.is_some()) else {
            return;
        };
        conn.check_host();
        let up = conn.up;
        let Some(host) = &mut conn.host else {
            return;
        };
        match input.u8() % 8 {
            0..4 => _ = host.write(usize::from(input.u16()) % 1400, up),
            4 if input.u8().is_multiple_of(4) => host.end(),
            4 | 5 => {}
            _ => host.write_any(input),
        }
    }

    /// All that was sent arrives, and nothing is left when the clients have gone.
    fn end(&mut self) {
        self.settle();
        let all = self.clients.iter().flat_map(|client| &client.conns);
        let served = all.filter(|conn| conn.is_served());
        let ids: Vec<_> = served.map(|conn| conn.id).collect();
        for id in ids {
            let mut done = false;
            for _ in 0..64 {
                let conn = self.conn(id);
                conn.check_host();
                conn.check();
                done = conn.is_done();
                conn.post(8);
                conn.notify();
                self.settle();
                if done {
                    break;
                }
            }
            assert!(done, "not all has arrived");
            let conn = self.conn(id);
            conn.sleep();
            let Some(host) = &mut conn.host else {
                continue;
            };
            assert!(host.write(40, true));
            self.settle();
            let conn = self.conn(id);
            assert_eq!(Conn::rung(&conn.bell), Some(true), "it was not woken");
            conn.check();
            assert!(
                conn.host.as_ref().is_some_and(End::is_silent),
                "a frame was lost"
            );
        }
        for client in &self.clients {
            self.vbus.leave(client.peer.member.unwrap());
        }
        self.settle();
        assert!(self.ended.is_empty(), "a client does not learn of the end");
        assert!(
            self.workers
                .iter()
                .all(|worker| worker.connections().next().is_none())
        );
        assert!(self.links.is_empty() && !self.cards.elsewhere().any_ends());
    }

    fn conn(&mut self, id: ConnectionId) -> &mut Conn {
        let mut all = self.clients.iter_mut().flat_map(|client| &mut client.conns);
        let conn = all.find(|conn| conn.id == id);
        conn.expect("a connection that keeps the rules")
    }
}
