// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine on a bus of vbusd whose devices do not work, or do not work yet.

use crate::hostile_vbusd::{HostileVbusd, Script};
use crate::test_guest::waker;
use crate::watch::{Change, PAUSE, Watch};
use paravane_vbus::{Error, Kind};
use paravane_vbus_client::protocol::{Reply, encode};
use std::thread;
use std::time::{Duration, Instant};

/// A bus with a card, which vbusd may refuse to open.
fn card(refused: Option<Kind>) -> Script {
    let refusal = |kind| encode(&Reply::Error(Error::new(kind, "not yet"))).unwrap();
    Script {
        interface: "virtual-ethernet".to_string(),
        result: vec![2, 0, 0, 0, 0, 7],
        caps: 0,
        // A client joins, lists and opens.
        odd: refused.map(|kind| (3, refusal(kind))),
    }
}

/// Any answer of vbusd may be different a moment later. The machine asks again, but not too often.
#[test]
fn a_device_that_vbusd_refuses_is_tried_until_it_works() {
    let (_reactor, waker) = waker();
    for kind in [
        Kind::NotFound,
        Kind::Busy,
        Kind::Denied,
        Kind::Invalid,
        Kind::Limit,
        Kind::Host,
    ] {
        let vbusd = HostileVbusd::start();
        let join = || Watch::join(&vbusd.socket, "lan");
        let begun = Instant::now();
        let (joined, _) = vbusd.join(card(Some(kind)), join);
        let (mut watch, changes) = joined.unwrap();
        // On a slow host vbusd may take longer to see its clients.
        let slow = || vbusd.clients() <= 2 && begun.elapsed() < Duration::from_secs(10);
        while begun.elapsed() < 2 * PAUSE + PAUSE / 2 || slow() {
            assert!(!watch.look(&waker), "it gives up");
            thread::sleep(Duration::from_millis(2));
        }
        assert!(changes.try_recv().is_err(), "a device that does not work");
        // The first attempt, one after each pause, and the machine's own place on the bus.
        let clients = u128::from(vbusd.clients());
        let most = 2 + begun.elapsed().as_millis() / PAUSE.as_millis();
        assert!(clients > 2 && clients <= most, "{clients} of {most}");
        let ((), device) = vbusd.join(card(None), || {
            let begun = Instant::now();
            let added = |change: Change| matches!(change, Change::Added(1, ..));
            while !changes.try_recv().is_ok_and(added) {
                assert!(begun.elapsed() < Duration::from_secs(20), "it never comes");
                watch.look(&waker);
                thread::sleep(Duration::from_millis(2));
            }
        });
        assert!(device.is_some());
        assert!(watch.look(&waker), "there is nothing left to try");
    }
}

/// A card without an address is not added.
#[test]
fn a_device_that_makes_no_sense_is_left_out() {
    let (_reactor, waker) = waker();
    let vbusd = HostileVbusd::start();
    let mut script = card(None);
    script.result.pop();
    let (joined, _) = vbusd.join(script, || Watch::join(&vbusd.socket, "lan"));
    let (mut watch, changes) = joined.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < 2 * PAUSE {
        assert!(watch.look(&waker), "it is tried again");
        thread::sleep(Duration::from_millis(2));
    }
    assert!(changes.try_recv().is_err());
    assert_eq!(vbusd.clients(), 2);
}
