// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: an administrator, processes that join and leave, and clients that write anything
//! into their rings, all over one live system of buses. A model has the devices of each bus, the
//! clients that may see them, and the open connections. Frames carry their sender and its device.

#![allow(clippy::unwrap_used)] // A target fails by panicking.

mod common;
mod hostile;

use common::name;
use hostile::Conn;
use paravane_fuzz::{Input, fuzz};
use paravane_vbus::{
    Access, ConnectionId, Credentials, Error, Kind, MemberId, Name, Vbus, devices, limits,
};
use std::collections::{BTreeMap, BTreeSet};

/// The most steps of an input.
const STEPS: usize = 300;
/// Clients at a time. Neighbours are of one process.
const CLIENTS: usize = 4;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Rounds of work after which there must be none left.
const ROUNDS: u32 = 100_000;

#[test]
fn vbus_core() {
    fuzz("vbus_core", || |bytes| World::new().play(bytes));
}

/// The expected state of a bus.
#[derive(Default)]
struct Bus {
    access: Access,
    links: BTreeMap<u32, Name>,
    last: u32,
}

struct Client {
    member: MemberId,
    who: Credentials,
    administrator: bool,
    bus: Name,
    expelled: bool,
    conns: Vec<Conn>,
}

struct World {
    vbus: Vbus,
    buses: BTreeMap<Name, Bus>,
    /// With their classes.
    devices: BTreeMap<Name, String>,
    clients: [Option<Client>; CLIENTS],
}

fn any_name(input: &mut Input<'_>) -> Name {
    name(input.pick(&NAMES))
}

/// Words of attributes and values: some that exist, and anything.
fn word(input: &mut Input<'_>, known: &[&str]) -> String {
    match input.u8() % 8 {
        0 => String::from_utf8_lossy(input.bytes(40)).into_owned(),
        1 => "9".repeat(usize::from(input.u8())),
        _ => input.pick(known).to_string(),
    }
}

fn attribute(input: &mut Input<'_>) -> (String, String) {
    let names = [
        "poll-us",
        "lossless",
        "resets-broken",
        "rx-packets",
        "kick-us",
        "offload",
    ];
    let values = ["0", "1", "20", "-1", "10001", ""];
    (word(input, &names), word(input, &values))
}

impl World {
    fn new() -> Self {
        World {
            vbus: Vbus::new(devices::classes()),
            buses: BTreeMap::new(),
            devices: BTreeMap::new(),
            clients: [const { None }; CLIENTS],
        }
    }

    fn play(mut self, bytes: &[u8]) {
        let mut input = Input::new(bytes);
        let begin = input.u8();
        // Most inputs begin with something to play with.
        if begin & 7 != 0 {
            for (device, class) in NAMES.iter().zip(["venet-switch", "echo", "null"]) {
                self.create_device(&name(device), class, &[]);
                self.create_bus(&name(device));
                self.link(&name(device), &name(device));
            }
            self.link(&name("b"), &name("a"));
            if begin & 8 != 0 {
                self.populate();
            }
        }
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            match input.u8() % 32 {
                kind @ 0..8 => self.administer(kind, &mut input),
                kind @ 8..16 => self.client(kind, &mut input),
                16 | 17 => self.look(),
                18..22 => self.work(u32::from(input.u8() % 5)),
                22 => self.vbus.notified(ConnectionId(u64::from(input.u8()))),
                _ => self.traffic(&mut input),
            }
            self.connections();
        }
        self.end();
    }

    /// Each bus with a client that is on all of its devices.
    fn populate(&mut self) {
        // All bytes are 0.
        let mut plain = Input::new(&[]);
        for (slot, bus) in [(0, "a"), (2, "b")] {
            self.join_bus(slot, name(bus), &mut plain);
            let interfaces: Vec<u32> = self.buses[&name(bus)].links.keys().copied().collect();
            // On a switch it is twice.
            for interface in interfaces.iter().chain(&interfaces) {
                self.open(slot, *interface, 1, true);
            }
        }
    }

    fn create_bus(&mut self, bus: &Name) {
        let made = self.vbus.create_bus(bus).is_ok();
        assert_eq!(made, !self.buses.contains_key(bus));
        self.buses.entry(bus.clone()).or_default();
    }

    fn create_device(&mut self, device: &Name, class: &str, attributes: &[(String, String)]) {
        let made = self.vbus.create_device(device, class, attributes);
        assert!(made.is_err() || !self.devices.contains_key(device));
        if made.is_ok() {
            self.devices.insert(device.clone(), class.to_string());
        }
    }

    fn link(&mut self, bus: &Name, device: &Name) {
        let linked = self.vbus.link(bus, device);
        let known = self.devices.contains_key(device);
        let Some(found) = self.buses.get_mut(bus).filter(|_| known) else {
            assert_eq!(linked.unwrap_err().kind(), Kind::NotFound);
            return;
        };
        if found.links.values().any(|linked| linked == device) {
            assert_eq!(linked.unwrap_err().kind(), Kind::Exists);
            return;
        }
        found.last += 1;
        assert_eq!(linked, Ok(found.last), "a number is used twice");
        found.links.insert(found.last, device.clone());
    }

    /// Closes connections in the model.
    fn close(&mut self, which: impl Fn(&Client, &Conn) -> bool) {
        for client in self.clients.iter_mut().flatten() {
            let mut conns = std::mem::take(&mut client.conns);
            conns.retain(|conn| !which(client, conn));
            client.conns = conns;
        }
    }

    fn expel(&mut self, which: impl Fn(&Client) -> bool) {
        for client in self.clients.iter_mut().flatten() {
            if which(client) {
                client.expelled = true;
                client.conns.clear();
            }
        }
    }

    fn administer(&mut self, kind: u8, input: &mut Input<'_>) {
        let (bus, device) = (any_name(input), any_name(input));
        match kind {
            0 => self.create_bus(&bus),
            1 => {
                let empty = self.buses.get(&bus).is_some_and(|bus| bus.links.is_empty());
                assert_eq!(self.vbus.remove_bus(&bus).is_ok(), empty);
                if empty {
                    self.buses.remove(&bus);
                    self.expel(|client| client.bus == bus);
                }
            }
            2 => {
                let mut some = || {
                    let count = input.u8() % 40;
                    (0..count)
                        .map(|_| u32::from(input.u8() % 64))
                        .collect::<BTreeSet<u32>>()
                };
                let access = Access {
                    uids: some(),
                    gids: some(),
                };
                let fits = access.uids.len() + access.gids.len() <= limits::ALLOWED;
                let known = self.buses.contains_key(&bus);
                let set = self.vbus.set_access(&bus, access.clone());
                assert_eq!(set.is_ok(), fits && known);
                if set.is_ok() {
                    let admits =
                        |client: &Client| client.administrator || access.admits(&client.who);
                    self.expel(|client| client.bus == bus && !admits(client));
                    self.buses.get_mut(&bus).unwrap().access = access;
                }
            }
            3 => {
                let class = word(input, &["echo", "null", "venet-switch"]);
                let all: Vec<_> = (0..input.u8() % 3).map(|_| attribute(input)).collect();
                self.create_device(&device, &class, &all);
            }
            4 => {
                let linked = |bus: &Bus| bus.links.values().any(|linked| *linked == device);
                let linked = self.buses.values().any(linked);
                let removed = self.vbus.remove_device(&device).is_ok();
                assert_eq!(removed, self.devices.contains_key(&device) && !linked);
                if removed {
                    self.devices.remove(&device);
                }
            }
            5 => {
                let (attribute, value) = attribute(input);
                let set = self.vbus.set_attribute(&device, &attribute, &value);
                assert!(set.is_err() || self.devices.contains_key(&device));
            }
            6 if input.u8().is_multiple_of(3) => {
                let reset = self.vbus.reset(&device);
                let open = |client: &Client| {
                    let of_device = client.conns.iter().filter(|conn| conn.device == device);
                    of_device.count()
                };
                let open: usize = self.clients.iter().flatten().map(open).sum();
                let known = self.devices.contains_key(&device);
                assert_eq!(reset.ok(), known.then_some(open));
                self.close(|_, conn| conn.device == device);
            }
            6 => {
                let links = self.buses.get_mut(&bus).map(|bus| &mut bus.links);
                let linked = |(&id, name): (&u32, &Name)| (*name == device).then_some(id);
                let id = links
                    .as_ref()
                    .and_then(|links| links.iter().find_map(linked));
                assert_eq!(self.vbus.unlink(&bus, &device).is_ok(), id.is_some());
                if let (Some(links), Some(id)) = (links, id) {
                    links.remove(&id);
                    self.close(|client, conn| client.bus == bus && conn.interface == id);
                }
            }
            _ => self.link(&bus, &device),
        }
    }

    fn join_bus(&mut self, slot: usize, bus: Name, input: &mut Input<'_>) {
        let who = Credentials {
            process: slot as u64 / 2,
            uid: u32::from(input.u8() % 64),
            gids: input
                .bytes(3)
                .iter()
                .map(|gid| u32::from(gid % 64))
                .collect(),
        };
        let administrator = input.u8().is_multiple_of(2);
        let joined = self.vbus.join(&bus, who.clone(), administrator);
        let found = self.buses.get(&bus);
        let admits = |bus: &Bus| {
            let group = who.gids.iter().any(|gid| bus.access.gids.contains(gid));
            administrator || group || bus.access.uids.contains(&who.uid)
        };
        let mut others = self
            .clients
            .iter()
            .flatten()
            .filter(|other| !other.expelled);
        let elsewhere = others.any(|other| other.who.process == who.process && other.bus != bus);
        assert_eq!(
            joined.is_ok(),
            found.is_some_and(admits) && !elsewhere,
            "{joined:?}"
        );
        if let Ok(member) = joined {
            self.clients[slot] = Some(Client {
                member,
                who,
                administrator,
                bus,
                expelled: false,
                conns: Vec::new(),
            });
        }
    }

    fn client(&mut self, kind: u8, input: &mut Input<'_>) {
        let slot = usize::from(input.u8()) % CLIENTS;
        let Some(client) = &mut self.clients[slot] else {
            let bus = any_name(input);
            self.join_bus(slot, bus, input);
            return;
        };
        let (vbus, member) = (&mut self.vbus, client.member);
        match kind {
            8 => {
                vbus.leave(member);
                assert_eq!(vbus.event(member), None);
                self.clients[slot] = None;
            }
            9..12 => {
                let interface = u32::from(input.u8() % 6);
                let version = u32::from(!input.u8().is_multiple_of(8));
                let up = !input.u8().is_multiple_of(4);
                self.open(slot, interface, version, up);
            }
            12 => {
                for _ in 0..=limits::EVENTS {
                    if vbus.event(member).is_none() {
                        break;
                    }
                }
                assert!(!vbus.has_event(member), "events without end");
            }
            _ => self.of_any_connection(slot, input),
        }
    }

    fn open(&mut self, slot: usize, interface: u32, version: u32, up: bool) {
        let client = self.clients[slot].as_mut().unwrap();
        let (vbus, member) = (&mut self.vbus, client.member);
        let opened = vbus.open(member, interface, version);
        let links = self.buses.get(&client.bus).map(|bus| &bus.links);
        let device = links.and_then(|links| links.get(&interface));
        let may = !client.expelled && version == 1 && device.is_some();
        // All clients together have no more than a switch has ports.
        let fits = client.conns.len() < limits::CONNECTIONS;
        assert_eq!(opened.is_ok(), may && fits, "{opened:?}");
        if let (Ok(id), Some(device)) = (opened, device) {
            let switch = self.devices[device] == "venet-switch";
            let mut conn = Conn::new(id, device.clone(), interface, switch);
            if up {
                conn.bring_up(vbus, member);
                conn.post_some(vbus);
            }
            client.conns.push(conn);
        }
    }

    /// What only the owner of a connection may ask for.
    fn of_any_connection(&mut self, slot: usize, input: &mut Input<'_>) {
        let id = ConnectionId(u64::from(input.u8() % 64));
        let client = self.clients[slot].as_mut().unwrap();
        let (vbus, member) = (&mut self.vbus, client.member);
        let mine = client.conns.iter().position(|conn| conn.id == id);
        let done: Result<(), Error> = match input.u8() % 4 {
            0 => {
                let queue = u32::from(input.u8() % 6);
                let offset = input.pick(&[hostile::RX, hostile::TX, 0, u64::MAX]);
                let count = input.pick(&[hostile::COUNT, hostile::COUNT, 0, 7, 4096]);
                vbus.share(member, id, queue, |role| {
                    let nobody = Conn::new(id, name("none"), 0, false);
                    let conn = mine.map_or(&nobody, |at| &client.conns[at]);
                    conn.endpoint(offset, count, role)
                })
            }
            1 => {
                let call = input.pick(&[0, 1, 2, 3, 4, 16, 18, u32::MAX]);
                let length = usize::from(input.u8() % 16);
                let argument = input.bytes(length);
                let done = vbus.call(member, id, call, argument);
                if let (Some(at), Ok(result)) = (mine, &done) {
                    client.conns[at].called(call, argument, result);
                }
                done.map(drop)
            }
            2 => vbus.prioritize(member, id, input.u8() % 5),
            _ => {
                let closed = vbus.close(member, id);
                if let (Ok(()), Some(at)) = (&closed, mine) {
                    client.conns.remove(at);
                }
                closed
            }
        };
        assert!(done.is_err() || mine.is_some(), "another's connection");
    }

    fn traffic(&mut self, input: &mut Input<'_>) {
        let macs = self
            .clients
            .iter()
            .flatten()
            .flat_map(|client| &client.conns);
        let macs: Vec<_> = macs.filter_map(|conn| conn.mac).collect();
        let clients = self.clients.iter_mut().flatten();
        let mut all: Vec<&mut Conn> = clients.flat_map(|client| &mut client.conns).collect();
        let count = all.len();
        if count > 0 {
            all[usize::from(input.u8()) % count].step(&mut self.vbus, &macs, input);
        }
    }

    fn work(&mut self, budget: u32) {
        for id in self.vbus.work(budget) {
            let mut all = self
                .clients
                .iter()
                .flatten()
                .flat_map(|client| &client.conns);
            let conn = all.find(|conn| conn.id == id).unwrap();
            assert!(conn.has_broken_a_rule(), "a sound client was reset");
            self.close(|_, conn| conn.id == id);
        }
        for client in self.clients.iter_mut().flatten() {
            for conn in &mut client.conns {
                conn.check();
            }
        }
    }

    /// What administrators and clients see.
    fn look(&self) {
        let seen = self.vbus.bus_infos();
        assert_eq!(seen.len(), self.buses.len());
        for (info, (name, bus)) in seen.iter().zip(&self.buses) {
            let links = bus.links.iter().map(|(&id, name)| (id, name.as_str()));
            assert_eq!((&info.name[..], &info.access), (name.as_str(), &bus.access));
            let seen = info.interfaces.iter().map(|(&id, name)| (id, &name[..]));
            assert!(seen.eq(links));
        }
        assert!(
            self.vbus
                .device_infos()
                .iter()
                .map(|info| &info.name[..])
                .eq(self.devices.keys().map(Name::as_str))
        );
        for client in self.clients.iter().flatten() {
            let Ok(seen) = self.vbus.interfaces(client.member) else {
                assert!(client.expelled, "a member sees nothing");
                continue;
            };
            assert!(!client.expelled, "an expelled client sees a bus");
            let links = self.buses[&client.bus].links.iter();
            let links = links.map(|(&id, name)| (id, name.as_str()));
            assert!(seen.iter().map(|one| (one.id, &one.name[..])).eq(links));
        }
        let configuration = self.vbus.configuration();
        let mut again = Vbus::new(devices::classes());
        again.restore(&configuration).unwrap();
        assert_eq!(again.configuration(), configuration);
    }

    /// Those that should be open are, and no others.
    fn connections(&self) {
        let mut count = 0;
        for conn in self
            .clients
            .iter()
            .flatten()
            .flat_map(|client| &client.conns)
        {
            assert!(self.vbus.is_open(conn.id), "it was closed");
            count += 1;
        }
        assert_eq!(self.vbus.connections(), count, "connections are left");
    }

    fn end(mut self) {
        let rounds = (0..ROUNDS).take_while(|_| {
            self.work(64);
            self.vbus.has_work()
        });
        assert!(rounds.count() < ROUNDS as usize, "work without end");
        for client in self.clients.iter().flatten() {
            self.vbus.leave(client.member);
        }
        assert_eq!(self.vbus.connections(), 0);
        for (name, bus) in &self.buses {
            for device in bus.links.values() {
                self.vbus.unlink(name, device).unwrap();
            }
            self.vbus.remove_bus(name).unwrap();
        }
        for device in self.devices.keys() {
            self.vbus.remove_device(device).unwrap();
        }
    }
}
