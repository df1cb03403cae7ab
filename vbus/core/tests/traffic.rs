// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets between clients and devices, and clients that break the rules.
#![allow(clippy::unwrap_used)]

mod common;

use common::{COUNT, Client, attribute, buffer, large, name, settle, system};
use paravane_vbus::{Event, Kind, MemoryContext, Vbus, devices, limits};
use std::sync::atomic::Ordering;

type Mac = [u8; 6];

fn mac(vbus: &mut Vbus, client: &Client) -> Mac {
    let mac = vbus.call(client.member, client.id, 2, &[]).unwrap();
    mac.try_into().unwrap()
}

fn frame(to: Mac, from: Mac, text: &str) -> Vec<u8> {
    [&to[..], &from, &[8, 0], text.as_bytes()].concat()
}

/// Two clients of a switch whose links are up, with their addresses.
fn pair(vbus: &mut Vbus) -> (Client, Client, Mac, Mac) {
    let (a, b) = (Client::open(vbus, 1), Client::open(vbus, 2));
    for client in [&a, &b] {
        vbus.call(client.member, client.id, 0, &[]).unwrap();
    }
    let (mac_a, mac_b) = (mac(vbus, &a), mac(vbus, &b));
    assert_ne!(mac_a, mac_b);
    settle(vbus);
    (a, b, mac_a, mac_b)
}

/// After vbusd was started again, its clients come back at the same moment, in any order.
#[test]
fn clients_that_come_back_together_get_the_addresses_that_they_had() {
    let mut vbus = system("venet-switch");
    let (a, b, mac_a, mac_b) = pair(&mut vbus);
    for client in [&a, &b] {
        vbus.close(client.member, client.id).unwrap();
    }
    // The second one comes first, and both have a port before one of them asks.
    let [first, second] = [&b, &a].map(|client| vbus.open(client.member, 1, 1).unwrap());
    assert_eq!(vbus.call(a.member, second, 16, &mac_a), Ok(vec![]));
    assert_eq!(vbus.call(b.member, first, 16, &mac_b), Ok(vec![]));
    assert_eq!(vbus.call(b.member, first, 2, &[]), Ok(mac_b.to_vec()));
    assert_eq!(vbus.call(a.member, second, 2, &[]), Ok(mac_a.to_vec()));
}

/// A buffer of no bytes takes no packet, not even one of a byte, and its owner is not reset.
#[test]
fn an_empty_buffer_takes_nothing() {
    let mut vbus = system("echo");
    let mut client = Client::open(&mut vbus, 1);
    settle(&mut vbus);
    client.rx.post(buffer(large(0), 0)).unwrap();
    client.post_one(&mut vbus);
    for byte in [1, 2] {
        assert!(client.send(&mut vbus, &[byte]));
    }
    settle(&mut vbus);
    assert_eq!(client.receive(), Some(vec![]));
    assert_eq!(client.receive(), Some(vec![2]));
}

#[test]
fn echo_returns_everything_in_order_and_waits_for_buffers() {
    let mut vbus = system("echo");
    let mut client = Client::open(&mut vbus, 1);
    settle(&mut vbus);
    let (mut sent, mut back, mut reclaimed) = (0u32, 0u32, 0);
    for round in 0..200 {
        while sent < 500 && client.send(&mut vbus, &sent.to_le_bytes()) {
            sent += 1;
        }
        settle(&mut vbus);
        let done = client.reclaim();
        reclaimed += done;
        // Nothing is acknowledged that has not arrived.
        assert!(reclaimed - back <= COUNT);
        while let Some(packet) = client.receive() {
            assert_eq!(packet, back.to_le_bytes());
            back += 1;
        }
        if round % 3 == 0 {
            client.post(&mut vbus);
        } else if client.rx.room() > 0 {
            client.post_one(&mut vbus);
        }
    }
    assert_eq!((sent, back, reclaimed), (500, 500, 500));
    assert_eq!(attribute(&vbus, "rx-packets"), 500);
    assert_eq!(attribute(&vbus, "tx-bytes"), 2000);
}

#[test]
fn null_takes_everything() {
    let mut vbus = system("null");
    let mut client = Client::open(&mut vbus, 1);
    settle(&mut vbus);
    for _ in 0..50 {
        assert!(client.send(&mut vbus, b"abc"));
        settle(&mut vbus);
        assert_eq!(client.reclaim(), 1);
    }
    // Totals stay when the connection ends.
    vbus.close(client.member, client.id).unwrap();
    assert_eq!(attribute(&vbus, "tx-packets"), 50);
    assert_eq!(attribute(&vbus, "connections"), 0);
}

#[test]
fn a_device_that_is_busy_is_not_notified() {
    let mut vbus = system("null");
    let mut client = Client::open(&mut vbus, 1);
    settle(&mut vbus);
    assert!(!vbus.has_work());
    // The first packet notifies it, those that come until it rests do not.
    assert!(client.send(&mut vbus, b"x") && vbus.has_work());
    for _ in 0..7 {
        assert!(client.send(&mut vbus, b"x"));
        assert!(!client.to_tx.inject(), "a second notification");
    }
    assert_eq!(vbus.work(3), []);
    client.reclaim();
    assert!(client.send(&mut vbus, b"x"));
    assert!(!client.to_tx.inject(), "notified while it works");
    settle(&mut vbus);
    assert!(client.to_tx.inject(), "it rests now");
    // The client has not asked for notifications of completions.
    assert_eq!(attribute(&vbus, "tx-notified"), 0);
    assert!(attribute(&vbus, "tx-quiet") > 0);
}

/// A device that polls is not notified between two packets, and rests when it has polled enough.
#[test]
fn a_device_that_polls_is_not_notified() {
    let mut vbus = system("null");
    vbus.set_attribute(&name("dev"), "poll-us", "10000")
        .unwrap();
    let mut client = Client::open(&mut vbus, 1);
    assert!(client.send(&mut vbus, b"x"));
    assert_eq!(vbus.work(8), []);
    assert_eq!((client.reclaim(), vbus.has_work()), (1, true));
    assert!(!client.to_tx.inject(), "notified while it polls");
    let begun = std::time::Instant::now();
    while vbus.has_work() {
        assert_eq!(vbus.work(8), []);
    }
    assert!(begun.elapsed() > std::time::Duration::from_millis(5));
    assert!(client.to_tx.inject(), "it rests now");
}

#[test]
fn frames_reach_their_address_and_no_other() {
    let mut vbus = system("venet-switch");
    let (mut a, mut b, mac_a, mac_b) = pair(&mut vbus);
    let mut c = Client::open(&mut vbus, 3);
    vbus.call(c.member, c.id, 0, &[]).unwrap();
    for client in [&mut a, &mut b, &mut c] {
        client.post(&mut vbus);
    }
    let to_b = frame(mac_b, mac_a, "hello");
    assert!(a.send(&mut vbus, &to_b));
    settle(&mut vbus);
    assert_eq!((b.receive(), c.receive()), (Some(to_b.clone()), None));
    let to_all = frame([0xff; 6], mac_b, "who is there");
    assert!(b.send(&mut vbus, &to_all));
    settle(&mut vbus);
    assert_eq!(a.receive().as_ref(), Some(&to_all));
    assert_eq!((b.receive(), c.receive()), (None, Some(to_all)));
    // Not its own source; no port's address; no frame at all.
    assert!(a.send(&mut vbus, &frame(mac_b, mac_b, "I am b")));
    assert!(a.send(&mut vbus, &frame([2; 6], mac_a, "nobody")));
    assert!(a.send(&mut vbus, b"short"));
    settle(&mut vbus);
    assert_eq!((b.receive(), c.receive()), (None, None));
    for reason in ["source", "unknown", "malformed"] {
        assert_eq!(
            attribute(&vbus, &format!("dropped-{reason}")),
            1,
            "{reason}"
        );
    }
    assert_eq!(a.reclaim(), 4);
    // A link that is down gets nothing.
    vbus.call(b.member, b.id, 1, &[]).unwrap();
    assert!(a.send(&mut vbus, &to_b));
    settle(&mut vbus);
    assert_eq!(
        (b.receive(), attribute(&vbus, "dropped-unknown")),
        (None, 2)
    );
}

/// A packet to many receivers is copied for each, so the number of packets alone does not bound a
/// turn.
#[test]
fn a_turn_ends_after_so_many_bytes() {
    let mut vbus = system("venet-switch");
    let mut clients: Vec<Client> = (10..17).map(|n| Client::open(&mut vbus, n)).collect();
    for client in &mut clients {
        vbus.call(client.member, client.id, 0, &[]).unwrap();
        while client.rx.room() > 0 {
            client.rx.post(buffer(large(0), limits::PACKET)).unwrap();
        }
    }
    let copies = clients.len();
    let sender = &mut clients[0];
    let from = mac(&mut vbus, sender);
    settle(&mut vbus);
    let mut packet = vec![0xff; limits::PACKET];
    packet[6..12].copy_from_slice(&from);
    sender.memory.write(large(1), &packet).unwrap();
    for _ in 0..COUNT {
        sender.tx.post(buffer(large(1), packet.len())).unwrap();
    }
    vbus.notified(sender.id);
    let mut turns = 0;
    while sender.tx.outstanding() > 0 {
        assert_eq!(vbus.work(64), []);
        let packets = usize::try_from(sender.reclaim()).unwrap();
        let before_the_last = packets.saturating_sub(1) * copies * limits::PACKET;
        assert!(before_the_last < limits::TURN, "{packets} packets");
        turns += 1;
    }
    assert!(turns > 2, "{turns}");
    let received = std::iter::from_fn(|| clients[1].rx.take().unwrap()).count();
    assert_eq!(
        u32::try_from(received),
        Ok(COUNT),
        "the bound loses nothing"
    );
}

#[test]
fn without_a_buffer_a_frame_is_dropped_or_waits() {
    let mut vbus = system("venet-switch");
    let (mut a, mut b, mac_a, mac_b) = pair(&mut vbus);
    let wanted = |n: u32| frame(mac_b, mac_a, &n.to_string());
    assert!(a.send(&mut vbus, &wanted(0)));
    settle(&mut vbus);
    assert_eq!((a.reclaim(), attribute(&vbus, "dropped-no-buffer")), (1, 1));
    vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
    for n in 1..=8 {
        assert!(a.send(&mut vbus, &wanted(n)));
    }
    settle(&mut vbus);
    assert_eq!(a.reclaim(), 0, "acknowledged and not delivered");
    for n in 1..=8 {
        b.post_one(&mut vbus);
        settle(&mut vbus);
        assert_eq!((b.receive(), a.reclaim()), (Some(wanted(n)), 1));
    }
    assert_eq!(attribute(&vbus, "dropped-no-buffer"), 1);
    // The sender that had waited is heard again.
    b.post_one(&mut vbus);
    settle(&mut vbus);
    assert!(a.send(&mut vbus, &wanted(9)));
    settle(&mut vbus);
    assert_eq!((b.receive(), a.reclaim()), (Some(wanted(9)), 1));
}

/// Each waits for the other one's buffers.
#[test]
fn two_senders_that_wait_for_each_other_continue() {
    let mut vbus = system("venet-switch");
    vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
    let (mut a, mut b, mac_a, mac_b) = pair(&mut vbus);
    let (to_b, to_a) = (frame(mac_b, mac_a, "to b"), frame(mac_a, mac_b, "to a"));
    for round in 0..5 {
        assert!(a.send(&mut vbus, &to_b) && b.send(&mut vbus, &to_a));
        settle(&mut vbus);
        assert_eq!((a.reclaim(), b.reclaim()), (0, 0), "round {round}");
        a.post_one(&mut vbus);
        settle(&mut vbus);
        assert_eq!(
            (a.receive(), b.reclaim()),
            (Some(to_a.clone()), 1),
            "round {round}"
        );
        b.post_one(&mut vbus);
        settle(&mut vbus);
        assert_eq!(
            (b.receive(), a.reclaim()),
            (Some(to_b.clone()), 1),
            "round {round}"
        );
    }
}

/// A receiver has buffers, and the sender that waited for one has taken its link down.
#[test]
fn a_sender_whose_link_is_down_keeps_nobody_busy() {
    let mut vbus = system("venet-switch");
    vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
    let (mut a, mut b, mac_a, mac_b) = pair(&mut vbus);
    assert!(a.send(&mut vbus, &frame(mac_b, mac_a, "x")));
    settle(&mut vbus);
    vbus.call(a.member, a.id, 1, &[]).unwrap();
    b.post(&mut vbus);
    settle(&mut vbus);
    assert_eq!(b.receive(), None);
    // The frame is still under way.
    vbus.call(a.member, a.id, 0, &[]).unwrap();
    settle(&mut vbus);
    assert_eq!(b.receive(), Some(frame(mac_b, mac_a, "x")));
}

/// A sender waits for a receiver, which notifies the device and posts no buffer.
#[test]
fn a_receiver_that_says_without_end_that_it_works_keeps_nobody_busy() {
    let mut vbus = system("venet-switch");
    vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
    let (mut a, mut b, mac_a, mac_b) = pair(&mut vbus);
    let mut c = Client::open(&mut vbus, 3);
    vbus.call(c.member, c.id, 0, &[]).unwrap();
    let mac_c = mac(&mut vbus, &c);
    let (first, second) = (frame(mac_b, mac_a, "a"), frame(mac_b, mac_c, "c"));
    assert!(a.send(&mut vbus, &first) && c.send(&mut vbus, &second));
    settle(&mut vbus);
    // Without a notification of its own.
    b.to_rx.dirty.store(1, Ordering::SeqCst);
    vbus.notified(a.id);
    settle(&mut vbus);
    assert_eq!((a.reclaim(), c.reclaim()), (0, 0));
    // Both senders continue when there are buffers.
    b.post_one(&mut vbus);
    settle(&mut vbus);
    b.post_one(&mut vbus);
    settle(&mut vbus);
    assert_eq!((a.reclaim(), c.reclaim()), (1, 1));
    let mut all = [b.receive().unwrap(), b.receive().unwrap()];
    all.sort();
    assert!(all.contains(&first) && all.contains(&second), "{all:?}");
}

/// A client sends, and has no queue to receive.
#[test]
fn half_a_connection_keeps_an_echo_not_busy() {
    let mut vbus = system("echo");
    let mut client = Client::open(&mut vbus, 1);
    client.reopen(&mut vbus, &[1]);
    assert!(client.send(&mut vbus, b"x"));
    settle(&mut vbus);
    client.share(&mut vbus, 0).unwrap();
    client.post(&mut vbus);
    settle(&mut vbus);
    assert_eq!(client.receive(), Some(b"x".to_vec()));
}

#[test]
fn a_receiver_that_ends_keeps_no_sender() {
    for end in 0..3 {
        let mut vbus = system("venet-switch");
        vbus.set_attribute(&name("dev"), "lossless", "1").unwrap();
        let (mut a, b, mac_a, mac_b) = pair(&mut vbus);
        assert!(a.send(&mut vbus, &frame(mac_b, mac_a, "x")));
        settle(&mut vbus);
        assert_eq!(a.reclaim(), 0);
        match end {
            0 => vbus.leave(b.member),
            1 => drop(vbus.call(b.member, b.id, 1, &[]).unwrap()),
            _ => vbus.set_attribute(&name("dev"), "lossless", "0").unwrap(),
        }
        settle(&mut vbus);
        assert_eq!(a.reclaim(), 1, "{end}: the sender waits for ever");
    }
}

#[test]
fn calls_of_venet_have_an_order() {
    let mut vbus = system("venet-switch");
    let mut client = Client::open(&mut vbus, 1);
    let (member, id) = (client.member, client.id);
    let kind = |result: Result<Vec<u8>, paravane_vbus::Error>| result.unwrap_err().kind();
    assert_eq!(
        vbus.call(member, id, 3, &[9, 0, 0, 0, 255, 0, 0, 0]),
        Ok(vec![9, 0, 0, 0, 0, 0, 0, 0])
    );
    assert_eq!(vbus.call(member, id, 0, &[]), Ok(vec![]));
    assert_eq!(kind(vbus.call(member, id, 0, &[])), Kind::Exists);
    assert_eq!(kind(vbus.call(member, id, 3, &[0; 8])), Kind::Busy);
    assert_eq!(kind(vbus.call(member, id, 77, &[])), Kind::NotFound);
    // The address is chosen while the link is down, among the switch's own.
    let own = mac(&mut vbus, &client);
    assert_eq!(kind(vbus.call(member, id, 16, &own)), Kind::Busy);
    let other = vbus.open(member, 1, 1).unwrap();
    let mut wanted = own;
    assert_eq!(kind(vbus.call(member, other, 16, &own)), Kind::Busy);
    wanted[5] = 200;
    assert_eq!(vbus.call(member, other, 16, &wanted), Ok(vec![]));
    assert_eq!(vbus.call(member, other, 2, &[]), Ok(wanted.to_vec()));
    wanted[0] |= 1;
    assert_eq!(kind(vbus.call(member, other, 16, &wanted)), Kind::Invalid);
    client.post(&mut vbus);
    assert_eq!(vbus.call(member, id, 4, &[]), Ok(vec![]));
    for _ in 0..COUNT {
        assert_eq!(client.receive(), Some(vec![]));
    }
    assert_eq!(client.receive(), None);
    // A second connection has shared nothing.
    let second = vbus.open(member, 1, 1).unwrap();
    assert_eq!(kind(vbus.call(member, second, 0, &[])), Kind::Invalid);
    assert_eq!(client.share(&mut vbus, 0).unwrap_err().kind(), Kind::Exists);
    assert_eq!(
        client.share(&mut vbus, 2).unwrap_err().kind(),
        Kind::NotFound
    );
}

/// A client that breaks the rules loses its connection; the others keep theirs.
#[test]
fn a_client_that_breaks_the_rules_is_reset_alone() {
    for breach in 0..4 {
        let mut vbus = system("venet-switch");
        let (mut a, mut b, mac_a, mac_b) = pair(&mut vbus);
        match breach {
            // A packet outside of its memory, also one that would wrap.
            0 => a.tx.post(buffer(u64::MAX - 3, 64)).unwrap(),
            1 => a.tx.post(buffer(1 << 30, 64)).unwrap(),
            // A packet without end.
            2 => a.tx.post(buffer(0, u32::MAX as usize)).unwrap(),
            // A receive buffer outside of its memory.
            _ => {
                a.rx.post(buffer(1 << 40, 2048)).unwrap();
                assert!(b.send(&mut vbus, &frame(mac_a, mac_b, "x")));
            }
        }
        vbus.notified(a.id);
        let mut reset = vec![];
        while vbus.has_work() {
            reset.extend(vbus.work(8));
        }
        assert_eq!(reset, [a.id], "{breach}");
        let Some(Event::Closed { connection, why }) = vbus.event(a.member) else {
            unreachable!("{breach}: the client does not learn of it");
        };
        assert!(
            connection == a.id && why.contains("broke the protocol"),
            "{why}"
        );
        assert_eq!(attribute(&vbus, "resets-broken"), 1);
        // The other one can still work, with a new client.
        let mut c = Client::open(&mut vbus, 3);
        vbus.call(c.member, c.id, 0, &[]).unwrap();
        let mac_c = mac(&mut vbus, &c);
        c.post(&mut vbus);
        settle(&mut vbus);
        b.reclaim();
        assert!(b.send(&mut vbus, &frame(mac_c, mac_b, "still here")));
        settle(&mut vbus);
        assert_eq!(c.receive(), Some(frame(mac_c, mac_b, "still here")));
    }
}

/// The device side dies with packets taken and not completed, and another one takes its place over
/// the same memory.
#[test]
fn another_device_side_continues_where_the_first_one_died() {
    let mut vbus = system("echo");
    let mut client = Client::open(&mut vbus, 1);
    settle(&mut vbus);
    // Three packets, one buffer: the second is taken and waits.
    client.post_one(&mut vbus);
    for text in ["one", "two", "three"] {
        assert!(client.send(&mut vbus, text.as_bytes()));
    }
    settle(&mut vbus);
    assert_eq!(client.receive().unwrap(), b"one");
    let configuration = vbus.configuration();
    drop(vbus);
    let mut vbus = Vbus::new(devices::classes());
    vbus.restore(&configuration).unwrap();
    client.member = vbus.join(&name("lan"), common::who(1, 7), false).unwrap();
    client.id = vbus.open(client.member, 1, 1).unwrap();
    let before = client.bell.count();
    for queue in 0..2 {
        client.share(&mut vbus, queue).unwrap();
    }
    assert_eq!(
        client.bell.count(),
        before + 2,
        "it may have missed a notification"
    );
    client.post(&mut vbus);
    settle(&mut vbus);
    assert_eq!(client.receive().unwrap(), b"two");
    assert_eq!(client.receive().unwrap(), b"three");
    assert_eq!((client.receive(), client.reclaim()), (None, 3));
}
