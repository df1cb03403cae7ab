// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread of cards stands amid something, and the first thread goes on.

use super::worker::{Made, Make, Worker};
use super::*;
use paravane_net::passt::Starter;
use paravane_vbus::{
    Attribute, ConnectionId, Credentials, Device, Endpoint, Error, Kind as ErrorKind, MemberId,
    QueueKind, Round, Vbus, Work,
};
use paravane_vbus_cards::Waker;
use rustix::event::epoll::EventFlags;
use std::os::fd::AsFd;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// The number of an answer.
const ANSWER: u64 = 7;
const MACQUERY: u32 = 2;
const KICK: u32 = 32;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A bus with a device of this class, and a client of it.
fn bus(cards: &Cards, class: &str) -> (Vbus, MemberId) {
    let mut vbus = Vbus::new(cards.classes(&Arc::default()).into());
    vbus.create_bus(&name("lan")).unwrap();
    vbus.create_device(&name("dev"), class, &[]).unwrap();
    assert_eq!(vbus.link(&name("lan"), &name("dev")), Ok(1));
    let who = Credentials {
        process: 1,
        uid: 0,
        gids: Vec::new(),
    };
    let member = vbus.join(&name("lan"), who, true).unwrap();
    (vbus, member)
}

/// The thread stands until the value is dropped.
fn stand(crew: &Crew) -> Sender<()> {
    let (go, wait) = channel();
    crew.must(move |_| {
        // Ends when the sender is dropped.
        let _ = wait.recv();
    });
    go
}

/// What an answer waited for.
fn outcome(cards: &Cards) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some((number, outcome)) = cards.outcomes().pop() {
            assert_eq!(number, ANSWER);
            return outcome;
        }
        assert!(Instant::now() < deadline, "the thread tells nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Each of these calls returns while the thread stands still. Their effects come after it.
#[test]
fn no_call_waits_for_a_thread_that_stands() {
    let (tell, told) = channel();
    // If one waited, the test would not end by itself.
    std::thread::spawn(move || {
        let cards = Cards::start(10_000, Starter::on_thread().unwrap()).unwrap();
        let (mut vbus, member) = bus(&cards, "venet-user");
        let go = stand(&cards.networks);
        let id = vbus.open(member, 1, 1).unwrap();
        assert_eq!(vbus.call(member, id, MACQUERY, &[]), Ok(Vec::new()));
        vbus.set_attribute(&name("dev"), "poll-us", "5").unwrap();
        // Results that the first thread knows itself are known at once.
        vbus.set_attribute(&name("dev"), "kick-us", "7").unwrap();
        assert_eq!(vbus.call(member, id, KICK, &[]), Ok(vec![7, 0, 0, 0]));
        let infos = vbus.device_infos();
        let value = |name: &str| {
            let found = infos[0].attributes.iter().find(|a| a.name == name);
            found.unwrap().value.clone()
        };
        assert_eq!([value("connections"), value("looked")], ["1", "0"]);
        vbus.close(member, id).unwrap();
        assert!(cards.elsewhere().is_ending(id), "its card has not ended");
        assert_eq!(cards.given().len(), 1);
        cards.networks.must(|worker| worker.answer(ANSWER));
        assert!(cards.outcomes().is_empty(), "the thread does not stand");
        drop(go);
        let mac = outcome(&cards).unwrap().unwrap();
        let text: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text.join(":"), value("mac"));
        assert!(!cards.elsewhere().any_ends());
        tell.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(60)).unwrap();
}

/// The cards that a thread at a standstill must still end count towards the most that it may have.
#[test]
fn cards_that_still_end_are_bounded() {
    let cards = Cards::start(10_000, Starter::on_thread().unwrap()).unwrap();
    let (mut vbus, member) = bus(&cards, "venet-user");
    let go = stand(&cards.networks);
    let most = cards.networks.most();
    assert!((2..=NETWORKS).contains(&most));
    for _ in 0..most {
        let id = vbus.open(member, 1, 1).unwrap();
        vbus.close(member, id).unwrap();
    }
    let refused = vbus.open(member, 1, 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    // They are no matter of the other thread.
    assert_eq!(cards.elsewhere().ending_on(&cards.taps), 0);
    cards.taps.admit(cards.elsewhere()).unwrap();
    cards.taps.release();
    cards.networks.must(|worker| worker.answer(ANSWER));
    drop(go);
    outcome(&cards).unwrap().unwrap();
    vbus.open(member, 1, 1).unwrap();
}

/// The first thread does not try itself, and does not wait for the one that does.
#[test]
fn a_tap_counts_once_it_was_tried() {
    let cards = Cards::start(10_000, Starter::on_thread().unwrap()).unwrap();
    let (mut vbus, _) = bus(&cards, "venet-tap");
    let mut set = |tried: &[&str]| {
        let tried = tried.iter().map(ToString::to_string).collect();
        cards.trials().begin(tried);
        vbus.set_attribute(&name("dev"), "tap", "no such tap")
    };
    assert!(set(&[]).is_err());
    let trial = cards.trials().wanted().unwrap();
    assert_eq!(trial.value, "no such tap");
    let crew = trial.crew;
    crew.attempt(trial.attempt).unwrap();
    crew.must(|worker| worker.answer(ANSWER));
    assert!(outcome(&cards).unwrap().is_err());
    assert!(set(&["another"]).is_err() && cards.trials().wanted().is_some());
    assert_eq!(set(&["no such tap"]), Ok(()));
    assert!(cards.trials().wanted().is_none());
}

/// A tap that is taken from the cards' thread is closed before the next one is opened, and orders
/// do not overtake those that they depend on.
#[test]
fn a_tap_is_opened_after_the_last_one_was_closed() {
    let cards = Cards::start(10_000, Starter::on_thread().unwrap()).unwrap();
    let (tell, told) = channel();
    let say = |what: &'static str| {
        let tell = tell.clone();
        move || tell.send(what).unwrap()
    };
    let [taken, closed, opened, made, called] =
        ["taken", "closed", "opened", "made", "called"].map(say);
    let slowly = |done: &dyn Fn()| {
        std::thread::sleep(Duration::from_millis(50));
        done();
    };
    let crew = &cards.taps;
    crew.finish(move |_| taken(), move |()| slowly(&closed));
    crew.prepared(move |_| slowly(&opened), move |_, ()| made())
        .unwrap();
    crew.order(move |_| called()).unwrap();
    let order = [(); 5].map(|()| told.recv_timeout(Duration::from_secs(60)).unwrap());
    assert_eq!(order, ["taken", "closed", "opened", "made", "called"]);
    assert_eq!(cards.given().len(), 1);
}

/// A card that counts how often its file has woken it.
struct Woken {
    file: OwnedFd,
    waker: Waker,
    tell: Sender<()>,
}

impl Device for Woken {
    fn interface(&self) -> &'static str {
        "test"
    }

    fn attributes(&self) -> Vec<Attribute> {
        Vec::new()
    }

    fn queues(&self) -> &'static [QueueKind] {
        &[]
    }

    fn connect(&mut self, _: ConnectionId) -> Result<(), Error> {
        self.waker.arm(self.file.as_fd(), EventFlags::IN).unwrap();
        Ok(())
    }

    fn disconnect(&mut self, _: ConnectionId) {}

    fn share(&mut self, _: ConnectionId, _: u32, _: Endpoint) -> Result<(), Error> {
        Ok(())
    }

    fn work(&mut self, _: ConnectionId, _: u32, _: &mut Round) -> Work {
        Work::Nothing
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        false
    }

    fn woken(&mut self) {
        self.tell.send(()).unwrap();
    }
}

/// While the host opens or closes a tap, or sets its offloads, the cards of others go on.
#[test]
fn frames_pass_while_a_tap_is_opened() {
    let cards = Cards::start(10_000, Starter::on_thread().unwrap()).unwrap();
    let (file, other) = rustix::pipe::pipe().unwrap();
    let (tell, told) = channel();
    let make: Make = Box::new(move |waker| {
        let waker = waker.clone();
        let card = Box::new(Woken { file, waker, tell });
        Ok(Made {
            card,
            presence: None,
            passt: None,
        })
    });
    let (tell, made) = channel();
    let add = move |worker: &mut Worker| {
        let done = worker.add(name("dev"), ConnectionId(1), Arc::default(), make);
        tell.send(done).unwrap();
    };
    cards.taps.order(add).unwrap();
    made.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    let (go, wait) = channel::<()>();
    let (begun, stands) = channel();
    let opens = move |_: Option<&Keeper>| {
        begun.send(()).unwrap();
        // Ends when the sender is dropped.
        let _ = wait.recv();
    };
    cards.taps.prepared(opens, |_, ()| ()).unwrap();
    stands.recv_timeout(Duration::from_secs(60)).unwrap();
    rustix::io::write(&other, &[1]).unwrap();
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    drop(go);
}
