// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order in which connections are served, by their priorities.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, settle, system};
use paravane_vbus::{Kind, limits};

/// Many connections have work. One round serves the one that waits longest, then those of a higher
/// priority, and leaves the others for the next rounds.
#[test]
fn a_high_priority_is_served_before_others_that_wait() {
    const CLIENTS: usize = 40;
    let mut vbus = system("echo");
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|process| Client::open(&mut vbus, process as u64))
        .collect();
    for client in &mut clients {
        client.post(&mut vbus);
    }
    settle(&mut vbus);
    let (first, last) = (&clients[0], &clients[CLIENTS - 1]);
    vbus.prioritize(first.member, first.id, 0).unwrap();
    vbus.prioritize(last.member, last.id, 3).unwrap();
    for client in &mut clients {
        assert!(client.send(&mut vbus, b"packet"));
    }
    assert_eq!(vbus.work(3), []);
    let mut served = clients.iter_mut().map(|client| client.receive().is_some());
    let served: Vec<bool> = served.by_ref().collect();
    assert!(served[CLIENTS - 1], "the highest priority waits");
    assert!(served[0], "the one that waits longest waits");
    assert_eq!(served.iter().filter(|&&served| served).count(), 16);
    settle(&mut vbus);
    let late = clients.iter_mut().zip(served).filter(|(_, served)| !served);
    assert!(
        late.map(|(client, _)| client.receive())
            .all(|packet| packet.is_some())
    );
}

#[test]
fn a_priority_is_one_of_few_and_of_an_own_connection() {
    let mut vbus = system("echo");
    let (a, b) = (Client::open(&mut vbus, 1), Client::open(&mut vbus, 2));
    let most = u8::try_from(limits::PRIORITIES).unwrap();
    assert_eq!(vbus.prioritize(a.member, a.id, most - 1), Ok(()));
    let refused = vbus.prioritize(a.member, a.id, most).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid);
    let refused = vbus.prioritize(a.member, b.id, 0).unwrap_err();
    assert_eq!(refused.kind(), Kind::NotFound);
}
