// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports of a switch with several pairs of queues.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bell, Memory, buffer, name, settle, system, who};
use paravane_vbus::ethernet::{call, queues};
use paravane_vbus::{ConnectionId, Endpoint, Error, Kind, MemberId, MemoryContext, Region, Vbus};
use paravane_vbus_shm::layout::{Descriptor, Ioq};
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::north::{North, Posted};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::Arc;

/// Descriptors of a queue, bytes of its ring and of a buffer.
const COUNT: u32 = 8;
const RING: usize = 1024;
const BUFFER: usize = 256;

/// One queue of a client.
struct Lane {
    north: North<'static, Vec<Posted>>,
    buffers: u64,
    posted: u64,
}

/// A client with several pairs.
struct Client {
    member: MemberId,
    id: ConnectionId,
    mac: Vec<u8>,
    /// Receive and transmit.
    pairs: Vec<[Lane; 2]>,
    memory: Arc<Memory>,
}

impl Client {
    /// One whose link is up, and that has posted all buffers. `wanted`: pairs that it asks for.
    fn open(vbus: &mut Vbus, process: u64, wanted: Option<u32>) -> Self {
        let mut client = Client::connect(vbus, process, wanted);
        for number in 0..client.pairs.len() {
            for queue in queues::of_pair(u32::try_from(number).unwrap()) {
                client.share(vbus, queue).unwrap();
            }
        }
        client.call(vbus, call::LINKUP, &[]).unwrap();
        client.mac = client.call(vbus, call::MACQUERY, &[]).unwrap();
        for number in 0..client.pairs.len() {
            client.post(vbus, number);
        }
        client
    }

    /// One that has shared nothing yet.
    fn connect(vbus: &mut Vbus, process: u64, wanted: Option<u32>) -> Self {
        let member = vbus.join(&name("lan"), who(process, 7), false).unwrap();
        let id = vbus.open(member, 1, 1).unwrap();
        let agreed = wanted.map_or(1, |wanted| {
            let answer = vbus.call(member, id, call::PAIRS, &wanted.to_le_bytes());
            u32::from_le_bytes(answer.unwrap().try_into().unwrap())
        });
        let lanes = 2 * usize::try_from(agreed).unwrap();
        let memory = Memory::new(lanes * (RING + COUNT as usize * BUFFER));
        let lane = |number: usize| {
            let role = paravane_vbus::ethernet::queues::QUEUES[number % 2].role;
            let start = memory.range().0;
            // SAFETY: within the memory, which the client keeps longer than its rings.
            let queue = unsafe { Queue::make(start.add(number * RING), RING, COUNT, role) };
            let queue = queue.unwrap();
            let posted = vec![Posted::default(); COUNT as usize];
            Lane {
                north: North::begin(queue.ring, role, posted, 0).unwrap(),
                buffers: (lanes * RING + number * COUNT as usize * BUFFER) as u64,
                posted: 0,
            }
        };
        let pairs = (0..lanes)
            .step_by(2)
            .map(|first| [first, first + 1].map(lane));
        Client {
            member,
            id,
            mac: Vec::new(),
            pairs: pairs.collect(),
            memory,
        }
    }

    fn call(&self, vbus: &mut Vbus, call: u32, argument: &[u8]) -> Result<Vec<u8>, Error> {
        vbus.call(self.member, self.id, call, argument)
    }

    fn share(&self, vbus: &mut Vbus, queue: u32) -> Result<(), Error> {
        let pair = queues::pair(queue).unwrap_or(0);
        let lane = 2 * pair + usize::from(queues::transmits(queue));
        let offset = (lane * RING) as u64;
        vbus.share(self.member, self.id, queue, |role| {
            let range = offset..offset + size(COUNT) as u64;
            let (region, memory) = (self.memory.clone(), self.memory.clone());
            Endpoint::open(region, range, COUNT, role, memory, Arc::<Bell>::default())
                .map_err(|error| Error::new(Kind::Broken, error.to_string()))
        })
    }

    fn post(&mut self, vbus: &mut Vbus, pair: usize) {
        let [rx, _] = &mut self.pairs[pair];
        while rx.north.room() > 0 {
            let place = rx.buffers + rx.posted % u64::from(COUNT) * BUFFER as u64;
            rx.north.post(buffer(place, BUFFER)).unwrap();
            rx.posted += 1;
        }
        vbus.notified(self.id);
    }

    /// False: there is no room.
    fn send(&mut self, vbus: &mut Vbus, pair: usize, frame: &[u8]) -> bool {
        let [_, tx] = &mut self.pairs[pair];
        while tx.north.take().unwrap().is_some() {}
        if tx.north.room() == 0 {
            return false;
        }
        let place = tx.buffers + tx.posted % u64::from(COUNT) * BUFFER as u64;
        self.memory.write(place, frame).unwrap();
        tx.north.post(buffer(place, frame.len())).unwrap();
        tx.posted += 1;
        vbus.notified(self.id);
        true
    }

    /// Takes what has come by a pair, without posting new buffers.
    fn take(&mut self, pair: usize) -> Vec<Vec<u8>> {
        let [rx, _] = &mut self.pairs[pair];
        let mut all = Vec::new();
        while let Some(returned) = rx.north.take().unwrap() {
            let mut frame = vec![0; returned.used as usize];
            self.memory.read(returned.cookie, &mut frame).unwrap();
            all.push(frame);
        }
        all
    }

    /// A frame of a flow to this client, with a number.
    fn frame(&self, from: &Client, flow: u8, number: u32) -> Vec<u8> {
        let mut frame = [&self.mac[..], &from.mac, &[8, 0, 0x45]].concat();
        frame.resize(42, 0);
        // UDP, between two addresses, with a port for each flow.
        frame[23] = 17;
        frame[26..34].copy_from_slice(&[10, 8, 0, 1, 10, 8, 0, 2]);
        frame[34..38].copy_from_slice(&[0x40, flow, 0, 80]);
        frame.extend(number.to_le_bytes());
        frame
    }
}

/// The flow and the number of a frame.
fn parse(frame: &[u8]) -> (u8, u32) {
    (
        frame[35],
        u32::from_le_bytes(frame[42..46].try_into().unwrap()),
    )
}

const FLOWS: u8 = 32;

/// What a receiver has of the flows: the next number of each, and the pairs by which it came.
#[derive(Default)]
struct Seen {
    next: BTreeMap<u8, u32>,
    pairs: BTreeMap<u8, BTreeSet<usize>>,
}

impl Seen {
    fn look(&mut self, vbus: &mut Vbus, client: &mut Client) {
        for pair in 0..client.pairs.len() {
            for frame in client.take(pair) {
                let (flow, number) = parse(&frame);
                let next = self.next.entry(flow).or_default();
                assert_eq!(number, *next, "flow {flow} by pair {pair}");
                *next += 1;
                self.pairs.entry(flow).or_default().insert(pair);
            }
            client.post(vbus, pair);
        }
    }
}

/// Clients have four pairs, one, or all: a client's frames arrive by all of its pairs, and those of
/// a flow by one pair.
#[test]
fn frames_of_many_flows_use_all_pairs_and_keep_their_order() {
    let mut vbus = system("venet-switch");
    let mut from = Client::open(&mut vbus, 1, Some(4));
    assert_eq!(from.pairs.len(), 4);
    for (process, wanted, pairs) in [(2, Some(4), 4), (3, None, 1), (4, Some(100), 8)] {
        let mut to = Client::open(&mut vbus, process, wanted);
        assert_eq!(to.pairs.len(), pairs);
        let mut seen = Seen::default();
        for number in 0..20 {
            for flow in 0..FLOWS {
                let frame = to.frame(&from, flow, number);
                let pair = usize::from(flow) % 4;
                assert!(from.send(&mut vbus, pair, &frame));
                // Several pairs have frames at a time, and none more than its receiver's buffers.
                if flow % 4 == 3 {
                    settle(&mut vbus);
                    seen.look(&mut vbus, &mut to);
                }
            }
        }
        assert!(seen.next.values().eq([20; FLOWS as usize].iter()));
        assert!(seen.pairs.values().all(|pairs| pairs.len() == 1));
        let used: BTreeSet<_> = seen.pairs.values().flatten().collect();
        assert_eq!(used.len(), pairs, "{used:?}");
    }
}

/// A sender's pairs take turns, also where one is always full.
#[test]
fn a_pair_that_always_has_frames_leaves_the_others_their_turn() {
    let mut vbus = system("venet-switch");
    let mut from = Client::open(&mut vbus, 1, Some(2));
    let to = Client::open(&mut vbus, 2, None);
    for number in 0..COUNT {
        assert!(from.send(&mut vbus, 0, &to.frame(&from, 0, number)));
    }
    assert!(from.send(&mut vbus, 1, &to.frame(&from, 1, 0)));
    assert_eq!(vbus.work(4), []);
    let [_, tx] = &mut from.pairs[1];
    assert!(tx.north.take().unwrap().is_some(), "it waits");
}

/// With `lossless` a frame waits for buffers of its pair. Frames of other pairs do not wait for
/// that.
#[test]
fn a_pair_that_waits_stops_no_other() {
    let mut vbus = system("venet-switch");
    vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
    let mut from = Client::open(&mut vbus, 1, Some(2));
    let mut to = Client::open(&mut vbus, 2, Some(2));
    // Two flows by different pairs.
    let mut flows = [None; 2];
    for flow in 0..FLOWS {
        assert!(from.send(&mut vbus, 0, &to.frame(&from, flow, 0)));
        settle(&mut vbus);
        for (pair, place) in flows.iter_mut().enumerate() {
            if !to.take(pair).is_empty() {
                *place = Some(flow);
            }
            to.post(&mut vbus, pair);
        }
    }
    let [slow, quick] = flows.map(Option::unwrap);
    // More than the receiver has buffers in one pair: it takes none of them.
    for number in 0..COUNT + 2 {
        assert!(from.send(&mut vbus, 0, &to.frame(&from, slow, number)));
        settle(&mut vbus);
    }
    for number in 0..3 * COUNT {
        assert!(from.send(&mut vbus, 1, &to.frame(&from, quick, number)));
        settle(&mut vbus);
        let came = to.take(1);
        assert!(came.iter().map(|frame| parse(frame)).eq([(quick, number)]));
        to.post(&mut vbus, 1);
    }
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(to.take(0));
        to.post(&mut vbus, 0);
        settle(&mut vbus);
    }
    let all = all.iter().map(|frame| parse(frame));
    assert!(all.eq((0..COUNT + 2).map(|number| (slow, number))));
}

/// A broadcast arrives once, whatever number of pairs the ports have.
#[test]
fn a_broadcast_comes_once() {
    let mut vbus = system("venet-switch");
    let mut from = Client::open(&mut vbus, 1, Some(8));
    let mut others = [Some(8), None].map(|wanted| Client::open(&mut vbus, 2, wanted));
    let mut frame = others[0].frame(&from, 5, 0);
    frame[..6].fill(0xff);
    assert!(from.send(&mut vbus, 7, &frame));
    settle(&mut vbus);
    for other in &mut others {
        let came: usize = (0..other.pairs.len())
            .map(|pair| other.take(pair).len())
            .sum();
        assert_eq!(came, 1);
    }
}

#[test]
fn what_makes_no_sense_of_pairs_is_refused() {
    let mut vbus = system("venet-switch");
    let client = Client::connect(&mut vbus, 1, Some(2));
    let kind = |result: Result<Vec<u8>, Error>| result.unwrap_err().kind();
    for argument in [&[][..], &[0; 4], &[2, 0, 0], &[2, 0, 0, 0, 0]] {
        let refused = client.call(&mut vbus, call::PAIRS, argument);
        assert_eq!(kind(refused), Kind::Invalid, "{argument:?}");
    }
    for queue in [queues::EVENTS, 5, 6, 16, 17, u32::MAX] {
        let refused = vbus.share(client.member, client.id, queue, |_| {
            Err(Error::new(Kind::Broken, "opened"))
        });
        // There is such a queue, but not here.
        let expected = if (5..17).contains(&queue) {
            Kind::Broken
        } else {
            Kind::NotFound
        };
        assert_eq!(refused.unwrap_err().kind(), expected, "{queue}");
    }
    for queue in [0, 1, 4] {
        client.share(&mut vbus, queue).unwrap();
        let again = client.share(&mut vbus, queue).unwrap_err().kind();
        assert_eq!(again, Kind::Exists);
        let refused = client.call(&mut vbus, call::PAIRS, &[1, 0, 0, 0]);
        assert_eq!(kind(refused), Kind::Busy);
        let refused = client.call(&mut vbus, call::LINKUP, &[]);
        assert_eq!(kind(refused), Kind::Invalid);
    }
    client.share(&mut vbus, 3).unwrap();
    client.call(&mut vbus, call::LINKUP, &[]).unwrap();
    let refused = client.call(&mut vbus, call::PAIRS, &[1, 0, 0, 0]);
    assert_eq!(kind(refused), Kind::Busy);
    // A pair that was not agreed on, by a ring that is there.
    let one = Client::connect(&mut vbus, 2, Some(2));
    one.call(&mut vbus, call::PAIRS, &[1, 0, 0, 0]).unwrap();
    let refused = one.share(&mut vbus, 3).unwrap_err().kind();
    assert_eq!(refused, Kind::NotFound);
}

/// A breach in any queue of any pair ends that client's connection, and no other's.
#[test]
fn a_breach_in_one_pair_ends_its_connection_alone() {
    for lane in [0, 1, 6, 7] {
        let mut vbus = system("venet-switch");
        vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
        let mut good = Client::open(&mut vbus, 1, Some(4));
        let mut bad = Client::open(&mut vbus, 2, Some(4));
        let mut other = Client::open(&mut vbus, 3, Some(4));
        settle(&mut vbus);
        for slot in 0..COUNT as usize {
            let place = size_of::<Ioq>() + slot * size_of::<Descriptor>();
            let owner = lane * RING + place + offset_of!(Descriptor, owner);
            bad.memory.write(owner as u64, &7u32.to_le_bytes()).unwrap();
        }
        // Some of these go to the pair that is broken.
        for flow in 0..FLOWS {
            let pair = usize::from(flow) % 4;
            let frame = bad.frame(&good, flow, 0);
            good.send(&mut vbus, pair, &frame);
        }
        vbus.notified(bad.id);
        let mut reset = Vec::new();
        while vbus.has_work() {
            reset.extend(vbus.work(64));
        }
        assert_eq!(reset, [bad.id], "{lane}");
        bad.pairs.clear();
        let frame = other.frame(&good, 1, 9);
        assert!(good.send(&mut vbus, 2, &frame));
        settle(&mut vbus);
        let came: Vec<_> = (0..4).flat_map(|pair| other.take(pair)).collect();
        assert_eq!(came, [frame]);
    }
}
