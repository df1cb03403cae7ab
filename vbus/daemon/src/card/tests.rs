// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread of cards stands amid something, and the first thread goes on.

use super::*;
use paravane_vbus::{Credentials, Kind as ErrorKind, MemberId, Vbus};
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
        // Ends when the sender is gone.
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

/// Each of these calls returns while the thread stands. What they lead to comes after.
#[test]
fn no_call_waits_for_a_thread_that_stands() {
    let (tell, told) = channel();
    // If one waited, the test would not end by itself.
    std::thread::spawn(move || {
        let cards = Cards::start(10_000).unwrap();
        let (mut vbus, member) = bus(&cards, "venet-user");
        let go = stand(&cards.networks);
        let id = vbus.open(member, 1, 1).unwrap();
        assert_eq!(vbus.call(member, id, MACQUERY, &[]), Ok(Vec::new()));
        vbus.set_attribute(&name("dev"), "poll-us", "5").unwrap();
        // What the first thread knows itself is known at once.
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

/// A thread that stands has no more cards that are to end than it may have at all.
#[test]
fn cards_that_still_end_are_bounded() {
    let cards = Cards::start(10_000).unwrap();
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
    let cards = Cards::start(10_000).unwrap();
    let (mut vbus, _) = bus(&cards, "venet-tap");
    let mut set = |tried: &[&str]| {
        let tried = tried.iter().map(ToString::to_string).collect();
        cards.trials().begin(tried);
        vbus.set_attribute(&name("dev"), "tap", "no such tap")
    };
    assert!(set(&[]).is_err());
    let trial = cards.trials().wanted().unwrap();
    assert_eq!(trial.value, "no such tap");
    let (crew, attempt) = (trial.crew, trial.attempt);
    crew.order(move |worker| {
        let done = attempt();
        worker.note(done.map(|()| Vec::new()));
    })
    .unwrap();
    crew.must(|worker| worker.answer(ANSWER));
    assert!(outcome(&cards).unwrap().is_err());
    assert!(set(&["another"]).is_err() && cards.trials().wanted().is_some());
    assert_eq!(set(&["no such tap"]), Ok(()));
    assert!(cards.trials().wanted().is_none());
}
