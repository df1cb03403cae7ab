// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: an administrator sets the attributes of taps' devices, which are tried as vbusd
//! tries them, while clients connect and leave. Pairs of sockets are in the place of the host's
//! taps, each of which has one user at a time. No tap is opened.
//!
//! An accepted value is read back, a refused one changes nothing, and a tap is open only as long as
//! a client is connected.

use super::super::kinds::{Kind, Mac, Tap, Try, on_link};
use super::super::worker::Open;
use super::*;
use crate::fuzz::{attributes, word};
use paravane_net::Link;
use paravane_vbus::{Attribute, Credentials, Error, Kind as ErrorKind, MemberId};
use paravane_vbus_cards::{Counts, Wire};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// The most steps of an input.
const STEPS: usize = 100;
/// Devices.
const NAMES: [&str; 2] = ["one", "two"];
/// Taps of the host.
const TAPS: [&str; 3] = ["tap0", "tap1", "9"];
const VALUES: [&str; 7] = ["tap0", "tap1", "9", "tap2", "tap0 ", "tap/0", ""];
const ATTRIBUTES: [&str; 7] = ["tap", "tap", "tap", "mac", "kick-us", "connections", "none"];
const MACS: [&str; 6] = [
    "02:00:00:00:00:01",
    "aA:bB:cC:dD:eE:fF",
    "ff:ff:ff:ff:ff:ff",
    "00:00:00:00:00:00",
    "+2:00:00:00:00:01",
    "02:00:00:00:00",
];
const GOOD_MACS: usize = 2;
const TIMES: [&str; 5] = ["0", "20", "10000", "10001", "-1"];
const MTU: u16 = 1500;

#[test]
fn vbusd_taps() {
    fuzz("vbusd_taps", || |bytes| World::new(bytes).play());
}

/// The taps that were opened, with their other ends.
#[derive(Clone, Default)]
struct Host(Arc<Mutex<Vec<(String, OwnedFd)>>>);

impl Host {
    /// Opens a tap.
    fn open(&self, name: &str) -> Result<OwnedFd, Error> {
        if !TAPS.contains(&name) {
            return Err(Error::new(ErrorKind::NotFound, "there is no such tap"));
        }
        if self.users().iter().any(|user| user == name) {
            return Err(Error::new(ErrorKind::Busy, "the tap is in use"));
        }
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, end) = socketpair(kind.0, kind.1, flags, None).unwrap();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((name.to_string(), end));
        Ok(ours)
    }

    /// The taps that are open.
    fn users(&self) -> Vec<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, end)| rustix::io::read(end, &mut [0; 1][..]) == Err(Errno::AGAIN));
        all.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// vbusd's own kind of device, except for the tap, which is a double.
#[derive(Clone)]
struct Double {
    tap: Tap,
    host: Host,
}

impl Kind for Double {
    fn most(&self) -> usize {
        self.tap.most()
    }

    fn attributes(&self) -> Vec<Attribute> {
        self.tap.attributes()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<Option<Try>, Error> {
        let attempt = self.tap.set(name, value)?;
        let (host, value) = (self.host.clone(), value.to_string());
        Ok(attempt.map(|_| Try::Kept(Box::new(move || host.open(&value).map(drop)))))
    }

    fn figures(&self, counts: &Counts) -> Vec<Attribute> {
        self.tap.figures(counts)
    }

    fn open(&self, mac: Mac, counts: &Arc<Counts>) -> Result<Open, Error> {
        // It is never called.
        drop(self.tap.open(mac, counts)?);
        let (host, counts) = (self.host.clone(), Arc::clone(counts));
        let name = self.tap.attributes()[0].value.clone();
        Ok(Box::new(move |_| {
            let link = Link::reads(host.open(&name)?, MTU).unwrap();
            let mut card = Wire::new(link, mac);
            card.base.count(counts);
            Ok(Box::new(move |waker| Ok(on_link(card, waker))))
        }))
    }

    fn copy(&self) -> Box<dyn Kind> {
        Box::new(self.clone())
    }
}

/// A device as the model has it.
#[derive(Default)]
struct Device {
    interface: u32,
    tap: String,
    client: Option<ConnectionId>,
}

struct World<'a> {
    input: Input<'a>,
    cards: Cards,
    worker: Worker,
    restores: Arc<AtomicBool>,
    host: Host,
    vbus: Vbus,
    member: MemberId,
    devices: [Device; 2],
    answers: u64,
}

impl<'a> World<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (cards, [worker, _]) = without_threads(MOST);
        let (restores, host) = (Arc::new(AtomicBool::new(false)), Host::default());
        let (site, theirs) = (cards.site(&cards.taps, &restores), host.clone());
        let class = CardClass {
            name: TAP,
            site,
            kind: Box::new(move || {
                let (tap, host) = (Tap::default(), theirs.clone());
                Box::new(Double { tap, host })
            }),
        };
        let mut vbus = Vbus::new(vec![Box::new(class)]);
        vbus.create_bus(&name("lan")).unwrap();
        let root = Credentials {
            process: 1,
            uid: 0,
            gids: Vec::new(),
        };
        let member = vbus.join(&name("lan"), root, true).unwrap();
        let devices = NAMES.map(|device| {
            vbus.create_device(&name(device), TAP, &[]).unwrap();
            Device {
                interface: vbus.link(&name("lan"), &name(device)).unwrap(),
                ..Device::default()
            }
        });
        World {
            input: Input::new(bytes),
            cards,
            worker,
            restores,
            host,
            vbus,
            member,
            devices,
            answers: 0,
        }
    }

    /// The thread of cards does what was ordered.
    fn turns(&mut self) {
        let orders = Arc::clone(self.cards.taps.orders());
        for _ in 0..ROUNDS {
            if !self.worker.has_work(&orders) {
                return;
            }
            assert!(self.worker.round(&orders, Some(&Timespec::default())));
        }
        unreachable!("the work has no end");
    }

    /// The outcomes of orders.
    fn outcome(&mut self) -> bool {
        self.answers += 1;
        let number = self.answers;
        self.cards.taps.must(move |worker| worker.answer(number));
        self.turns();
        let mut all = self.cards.outcomes();
        let (told, outcome) = all.pop().expect("an outcome");
        assert!(told == number && all.is_empty());
        outcome.expect("something was ordered").is_ok()
    }

    /// Whether the host has a tap without a user.
    fn is_free(&self, tap: &str) -> bool {
        let used = |device: &Device| device.client.is_some() && device.tap == tap;
        TAPS.contains(&tap) && !self.devices.iter().any(used)
    }

    /// An administrator sets an attribute.
    fn set(&mut self, at: usize) {
        let attribute = word(&mut self.input, &ATTRIBUTES);
        let value = match attribute.as_str() {
            "mac" => word(&mut self.input, &MACS),
            "kick-us" => word(&mut self.input, &TIMES),
            _ => word(&mut self.input, &VALUES),
        };
        let device = name(NAMES[at]);
        let restores = self.restores.load(Ordering::SeqCst);
        let short = value.len() <= limits::VALUE;
        let is_free = self.is_free(&value);
        let mut idle = self.devices[at].client.is_none();
        let before = attributes(&self.vbus, &device);
        self.cards.trials().begin(Vec::new());
        let mut set = self.vbus.set_attribute(&device, &attribute, &value);
        if let Some(trial) = self.cards.trials().wanted() {
            assert!(set.is_err() && trial.value == value && attribute == "tap");
            assert_eq!(attributes(&self.vbus, &device), before);
            trial.crew.attempt(trial.attempt).unwrap();
            let tried = self.outcome();
            assert_eq!(tried, is_free, "{value:?}");
            if tried {
                if self.input.u8().is_multiple_of(4) {
                    // Others continue.
                    self.step(false);
                    idle = self.devices[at].client.is_none();
                }
                self.cards.trials().begin(vec![value.clone()]);
                set = self.vbus.set_attribute(&device, &attribute, &value);
                assert!(self.cards.trials().wanted().is_none());
            }
        }
        let good = match attribute.as_str() {
            "tap" => short && idle && (restores || value.is_empty() || is_free),
            "mac" if MACS.contains(&value.as_str()) => {
                idle && MACS[..GOOD_MACS].contains(&value.as_str())
            }
            // The target has no rules for these.
            "mac" | "kick-us" | "poll-us" => set.is_ok(),
            _ => false,
        };
        assert_eq!(set.is_ok(), good, "{attribute} {value:?}: {set:?}");
        let after = attributes(&self.vbus, &device);
        if set.is_err() {
            let settings = |all: &[Attribute]| {
                let settings = all.iter().filter(|one| one.writable);
                settings.cloned().collect::<Vec<_>>()
            };
            assert_eq!(settings(&before), settings(&after));
            return;
        }
        let kept = after.iter().find(|one| one.name == attribute).unwrap();
        match attribute.as_str() {
            "mac" => assert!(kept.value.eq_ignore_ascii_case(&value)),
            "tap" => assert_eq!(kept.value, value),
            _ => assert_eq!(kept.value.parse::<u32>(), value.parse()),
        }
        if attribute == "tap" {
            self.devices[at].tap = value;
        }
    }

    fn connect(&mut self, at: usize) {
        let Device { tap, client, .. } = &self.devices[at];
        let (may, there) = (client.is_none() && !tap.is_empty(), self.is_free(tap));
        let opened = self.vbus.open(self.member, self.devices[at].interface, 1);
        assert_eq!(opened.is_ok(), may, "{opened:?}");
        let Ok(id) = opened else {
            return;
        };
        if self.outcome() {
            assert!(there, "a tap that is not there");
            self.devices[at].client = Some(id);
        } else {
            assert!(!there, "a tap that is there");
            self.vbus.close(self.member, id).unwrap();
        }
    }

    fn close(&mut self, at: usize) {
        if let Some(id) = self.devices[at].client.take() {
            self.vbus.close(self.member, id).unwrap();
        }
    }

    /// The attributes are those of the model, and taps are open for clients alone.
    fn check(&mut self) {
        for (device, known) in NAMES.iter().zip(&self.devices) {
            let all = attributes(&self.vbus, &name(device));
            let read = |name: &str| {
                let found = all.iter().find(|one| one.name == name).unwrap();
                found.value.clone()
            };
            assert_eq!(read("tap"), known.tap);
            let many = usize::from(known.client.is_some()).to_string();
            assert_eq!(read("connections"), many);
        }
        self.turns();
        let with_client = self.devices.iter().filter(|one| one.client.is_some());
        let mut wanted: Vec<_> = with_client.map(|device| device.tap.clone()).collect();
        let mut users = self.host.users();
        users.sort();
        wanted.sort();
        assert_eq!(users, wanted);
    }

    /// `sets`: it may set an attribute.
    fn step(&mut self, sets: bool) {
        let at = usize::from(self.input.u8() % 2);
        match self.input.u8() % 8 {
            0..4 if sets => self.set(at),
            0..6 => self.connect(at),
            6 => self.close(at),
            _ => {
                let restores = self.restores.load(Ordering::SeqCst);
                self.restores.store(!restores, Ordering::SeqCst);
            }
        }
    }

    fn play(mut self) {
        for _ in 0..STEPS {
            if self.input.is_empty() {
                break;
            }
            self.step(true);
            // Orders of several steps may wait.
            if self.input.u8().is_multiple_of(2) {
                self.check();
            }
        }
        (0..NAMES.len()).for_each(|at| self.close(at));
        self.check();
        assert!(!self.cards.elsewhere().any_ends(), "a card stays");
    }
}
