// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buses, devices, links, clients and what they may see.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, name, settle, system, who};
use paravane_vbus::ethernet::{KICK, call};
use paravane_vbus::{Access, ConnectionId, Event, Kind, Vbus, devices, limits};
use proptest::prelude::*;

#[test]
fn what_is_in_use_stays() {
    let mut vbus = system("null");
    let (lan, dev) = (name("lan"), name("dev"));
    let kind = |result: Result<(), paravane_vbus::Error>| {
        let error = result.unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
        error.kind()
    };
    assert_eq!(kind(vbus.create_bus(&lan)), Kind::Exists);
    assert_eq!(kind(vbus.create_device(&dev, "null", &[])), Kind::Exists);
    assert_eq!(
        kind(vbus.create_device(&name("x"), "tap", &[])),
        Kind::NotFound
    );
    assert_eq!(kind(vbus.link(&lan, &dev).map(|_| ())), Kind::Exists);
    assert_eq!(
        kind(vbus.link(&name("no"), &dev).map(|_| ())),
        Kind::NotFound
    );
    assert_eq!(
        kind(vbus.link(&lan, &name("no")).map(|_| ())),
        Kind::NotFound
    );
    assert_eq!(kind(vbus.remove_bus(&lan)), Kind::Busy);
    assert_eq!(kind(vbus.remove_device(&dev)), Kind::Busy);
    assert_eq!(kind(vbus.set_attribute(&dev, "x", "1")), Kind::NotFound);
    vbus.unlink(&lan, &dev).unwrap();
    assert_eq!(kind(vbus.unlink(&lan, &dev)), Kind::NotFound);
    vbus.remove_device(&dev).unwrap();
    vbus.remove_bus(&lan).unwrap();
    assert_eq!(kind(vbus.remove_bus(&lan)), Kind::NotFound);
    assert_eq!((vbus.bus_infos(), vbus.device_infos()), (vec![], vec![]));
}

#[test]
fn a_device_with_a_wrong_attribute_is_not_made() {
    let mut vbus = Vbus::new(devices::classes());
    let wrong = [("lossless".to_string(), "yes".to_string())];
    let error = vbus
        .create_device(&name("sw"), "venet-switch", &wrong)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(vbus.device_infos(), []);
    let right = [("lossless".to_string(), "1".to_string())];
    vbus.create_device(&name("sw"), "venet-switch", &right)
        .unwrap();
    for (value, good) in [
        ("0", true),
        ("10000", true),
        ("10001", false),
        ("-1", false),
    ] {
        let result = vbus.set_attribute(&name("sw"), "poll-us", value);
        assert_eq!(result.is_ok(), good, "{value}");
    }
    let long = "1".repeat(limits::VALUE + 1);
    let error = vbus
        .set_attribute(&name("sw"), "lossless", &long)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
}

/// Clients read it, so all of them know its value, and it survives a restart.
#[test]
fn what_is_rare_is_an_attribute_of_networks() {
    let (mut vbus, sw) = (Vbus::new(devices::classes()), name("sw"));
    vbus.create_device(&sw, "venet-switch", &[]).unwrap();
    vbus.create_bus(&name("lan")).unwrap();
    vbus.link(&name("lan"), &sw).unwrap();
    let member = vbus.join(&name("lan"), who(1, 7), true).unwrap();
    let id = vbus.open(member, 1, 1).unwrap();
    let asked = |vbus: &mut Vbus| vbus.call(member, id, call::KICK, &[]).unwrap();
    assert_eq!(asked(&mut vbus), 20_u32.to_le_bytes());
    for (value, good) in [("0", true), ("10000", true), ("10001", false), ("", false)] {
        let before = asked(&mut vbus);
        let set = vbus.set_attribute(&sw, KICK, value);
        assert_eq!(set.is_ok(), good, "{value}");
        if let Err(error) = set {
            let why = format!("{value:?} is no value of kick-us: 0 to 10000 are");
            assert_eq!((error.kind(), error.to_string()), (Kind::Invalid, why));
            assert_eq!(asked(&mut vbus), before);
        }
    }
    let mut again = Vbus::new(devices::classes());
    again.restore(&vbus.configuration()).unwrap();
    let infos = again.device_infos();
    let kept = infos[0].attributes.iter().find(|a| a.name == KICK).unwrap();
    assert_eq!((kept.value.as_str(), kept.writable), ("10000", true));
    // No other thread does the work of other devices.
    for class in ["null", "echo"] {
        vbus.create_device(&name(class), class, &[]).unwrap();
        let error = vbus.set_attribute(&name(class), KICK, "20").unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("kick-us is an attribute of networks"),
            "{text}"
        );
        assert_eq!(error.kind(), Kind::NotFound);
        let kick = [(KICK.to_string(), "20".to_string())];
        assert!(vbus.create_device(&name("other"), class, &kick).is_err());
    }
}

#[test]
fn only_admitted_users_join() {
    let mut vbus = system("null");
    let lan = name("lan");
    let denied = vbus.join(&lan, who(1, 9), false).unwrap_err();
    let missing = vbus.join(&name("no"), who(1, 9), false).unwrap_err();
    assert_eq!(
        (denied.kind(), missing.kind()),
        (Kind::Denied, Kind::Denied)
    );
    let same = |text: &str| text.replace("bus no,", "bus lan,");
    assert_eq!(
        denied.to_string(),
        same(&missing.to_string()),
        "it can tell which"
    );
    vbus.join(&lan, who(1, 8), false).unwrap();
    vbus.join(&lan, who(2, 9), true).unwrap();
    // By group.
    let access = Access {
        uids: [].into(),
        gids: [1009].into(),
    };
    vbus.set_access(&lan, access).unwrap();
    vbus.join(&lan, who(3, 9), false).unwrap();
    let many = Access {
        uids: (0..65).collect(),
        gids: [].into(),
    };
    assert_eq!(vbus.set_access(&lan, many).unwrap_err().kind(), Kind::Limit);
}

#[test]
fn a_process_is_on_one_bus() {
    let mut vbus = system("null");
    vbus.create_bus(&name("wan")).unwrap();
    let first = vbus.join(&name("lan"), who(5, 7), false).unwrap();
    // Once more on the same bus is no other bus.
    let second = vbus.join(&name("lan"), who(5, 7), false).unwrap();
    let error = vbus.join(&name("wan"), who(5, 7), true).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    vbus.join(&name("wan"), who(6, 7), true).unwrap();
    vbus.leave(first);
    assert!(vbus.join(&name("wan"), who(5, 7), true).is_err());
    vbus.leave(second);
    vbus.join(&name("wan"), who(5, 7), true).unwrap();
}

/// A client on another bus tries everything with the numbers of the first one.
#[test]
fn a_client_sees_its_bus_and_nothing_else() {
    let mut vbus = system("echo");
    let mut client = Client::open(&mut vbus, 1);
    vbus.create_bus(&name("wan")).unwrap();
    let spy = vbus.join(&name("wan"), who(2, 7), true).unwrap();
    assert_eq!(vbus.interfaces(spy), Ok(vec![]));
    let not_found = |kind: Result<Kind, ()>| assert_eq!(kind, Ok(Kind::NotFound));
    let kind = |error: Option<paravane_vbus::Error>| error.map(|e| e.kind()).ok_or(());
    not_found(kind(vbus.open(spy, 1, 1).err()));
    for id in [client.id, ConnectionId(99)] {
        not_found(kind(vbus.close(spy, id).err()));
        not_found(kind(vbus.call(spy, id, 0, &[]).err()));
        not_found(kind(vbus.role(spy, id, 0).err()));
        let shared = vbus.share(spy, id, 0, |_| unreachable!("opened"));
        not_found(kind(shared.err()));
    }
    // Events of the first bus do not reach it, and no client learns of the spy.
    vbus.unlink(&name("lan"), &name("dev")).unwrap();
    assert_eq!(vbus.event(spy), None);
    assert!(matches!(
        vbus.event(client.member),
        Some(Event::Closed { .. })
    ));
    assert_eq!(vbus.event(client.member), Some(Event::Dropped { id: 1 }));
    assert!(client.receive().is_none());
    // Another device under another number.
    assert_eq!(vbus.link(&name("lan"), &name("dev")), Ok(2));
    not_found(kind(vbus.open(client.member, 1, 1).err()));
    assert!(vbus.open(client.member, 2, 1).is_ok());
    let wrong = vbus.open(client.member, 2, 3).unwrap_err();
    assert_eq!(wrong.kind(), Kind::Invalid);
}

#[test]
fn a_client_that_may_no_longer_be_there_is_expelled() {
    let mut vbus = system("echo");
    let client = Client::open(&mut vbus, 1);
    let keeps = vbus.join(&name("lan"), who(2, 99), true).unwrap();
    vbus.set_access(&name("lan"), Access::default()).unwrap();
    assert!(matches!(
        vbus.event(client.member),
        Some(Event::Closed { .. })
    ));
    assert_eq!(vbus.event(client.member), Some(Event::Removed));
    let error = vbus.open(client.member, 1, 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(vbus.open(keeps, 1, 1).is_ok());
    // Its process may join again, elsewhere too.
    vbus.create_bus(&name("wan")).unwrap();
    vbus.join(&name("wan"), who(1, 7), true).unwrap();
    vbus.leave(client.member);
    settle(&mut vbus);
}

/// A client that was made to leave may keep its socket. It takes no place and gets no events.
#[test]
fn an_expelled_client_is_on_no_bus() {
    let mut vbus = system("null");
    let lan = name("lan");
    let join = |vbus: &mut Vbus, process| vbus.join(&lan, who(process, 7), false);
    let all: Vec<_> = (0..64).map(|n| join(&mut vbus, 1 + n).unwrap()).collect();
    assert_eq!(join(&mut vbus, 99).unwrap_err().kind(), Kind::Limit);
    vbus.set_access(&lan, Access::default()).unwrap();
    let access = Access {
        uids: [7].into(),
        gids: [].into(),
    };
    vbus.set_access(&lan, access).unwrap();
    assert_eq!(vbus.event(all[0]), Some(Event::Removed));
    // All places are free again, and the administrator sees that.
    let now = join(&mut vbus, 99).unwrap();
    assert_eq!(vbus.bus_infos()[0].members, [99]);
    vbus.create_device(&name("secret"), "null", &[]).unwrap();
    vbus.link(&lan, &name("secret")).unwrap();
    assert!(matches!(vbus.event(now), Some(Event::Added { .. })));
    assert_eq!(vbus.event(all[0]), None);
}

#[test]
fn events_are_bounded_and_their_loss_is_told() {
    let mut vbus = system("null");
    let member = vbus.join(&name("lan"), who(1, 7), false).unwrap();
    for _ in 0..100 {
        vbus.unlink(&name("lan"), &name("dev")).unwrap();
        vbus.link(&name("lan"), &name("dev")).unwrap();
    }
    assert!(vbus.has_event(member));
    let mut events = vec![];
    while let Some(event) = vbus.event(member) {
        events.push(event);
    }
    assert_eq!((events.len(), &events[0]), (limits::EVENTS, &Event::Lost));
    assert!(matches!(events.last(), Some(Event::Added { id: 101, .. })));
    assert_eq!(vbus.interfaces(member).unwrap()[0].id, 101);
}

#[test]
fn everything_has_a_limit() {
    let mut vbus = system("null");
    let member = vbus.join(&name("lan"), who(1, 7), false).unwrap();
    for _ in 0..limits::CONNECTIONS {
        vbus.open(member, 1, 1).unwrap();
    }
    assert_eq!(vbus.open(member, 1, 1).unwrap_err().kind(), Kind::Limit);
    let first = ConnectionId(1);
    let long = [0; limits::CALL + 1];
    assert_eq!(
        vbus.call(member, first, 0, &long).unwrap_err().kind(),
        Kind::Limit
    );
    let mut count = 1;
    let error = loop {
        match vbus.create_device(&name(&format!("d{count}")), "null", &[]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), count), (Kind::Limit, limits::DEVICES));
    let mut links = 1;
    let error = loop {
        match vbus.link(&name("lan"), &name(&format!("d{links}"))) {
            Ok(_) => links += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), links), (Kind::Limit, limits::INTERFACES));
    let mut buses = 1;
    while vbus.create_bus(&name(&format!("b{buses}"))).is_ok() {
        buses += 1;
    }
    assert_eq!(buses, limits::BUSES);
    let mut members = 1;
    while vbus.join(&name("lan"), who(members, 7), false).is_ok() {
        members += 1;
    }
    assert_eq!(members, limits::MEMBERS as u64);
}

/// A verb with small numbers for names.
#[derive(Clone, Debug)]
enum Verb {
    Bus(u8),
    NoBus(u8),
    Device(u8, u8),
    NoDevice(u8),
    Link(u8, u8),
    Unlink(u8, u8),
    Lossless(u8, bool),
    Allow(u8, u32),
    Join(u8, u64),
    Open(u8, u32),
    Leave(u8),
    Reset(u8),
}

fn verb() -> impl Strategy<Value = Verb> {
    let n = 0u8..4;
    prop_oneof![
        n.clone().prop_map(Verb::Bus),
        n.clone().prop_map(Verb::NoBus),
        (n.clone(), 0u8..3).prop_map(|(d, c)| Verb::Device(d, c)),
        n.clone().prop_map(Verb::NoDevice),
        (n.clone(), n.clone()).prop_map(|(b, d)| Verb::Link(b, d)),
        (n.clone(), n.clone()).prop_map(|(b, d)| Verb::Unlink(b, d)),
        (n.clone(), any::<bool>()).prop_map(|(d, on)| Verb::Lossless(d, on)),
        (n.clone(), 0u32..3).prop_map(|(b, uid)| Verb::Allow(b, uid)),
        (n.clone(), 0u64..4).prop_map(|(b, process)| Verb::Join(b, process)),
        (n.clone(), 0u32..6).prop_map(|(m, id)| Verb::Open(m, id)),
        n.clone().prop_map(Verb::Leave),
        n.prop_map(Verb::Reset),
    ]
}

proptest! {
    /// After any actions of an administrator and of clients, the lists are consistent, and a
    /// restart restores the same state.
    #[test]
    fn a_restart_makes_the_same(verbs in prop::collection::vec(verb(), 1..80)) {
        let mut vbus = Vbus::new(devices::classes());
        let (bus, dev) = (|n| name(&format!("b{n}")), |n| name(&format!("d{n}")));
        let mut members = vec![];
        for verb in verbs {
            // Many of these are refused.
            match verb {
                Verb::Bus(b) => drop(vbus.create_bus(&bus(b))),
                Verb::NoBus(b) => drop(vbus.remove_bus(&bus(b))),
                Verb::Device(d, c) => {
                    let class = ["null", "echo", "venet-switch"][usize::from(c)];
                    drop(vbus.create_device(&dev(d), class, &[]));
                }
                Verb::NoDevice(d) => drop(vbus.remove_device(&dev(d))),
                Verb::Link(b, d) => drop(vbus.link(&bus(b), &dev(d))),
                Verb::Unlink(b, d) => drop(vbus.unlink(&bus(b), &dev(d))),
                Verb::Lossless(d, on) => {
                    let value = u8::from(on).to_string();
                    drop(vbus.set_attribute(&dev(d), "lossless", &value));
                }
                Verb::Allow(b, uid) => {
                    let access = Access { uids: [uid].into(), gids: [].into() };
                    drop(vbus.set_access(&bus(b), access));
                }
                Verb::Join(b, process) => {
                    members.extend(vbus.join(&bus(b), who(process, 1), false));
                }
                Verb::Open(m, id) => {
                    if let Some(&member) = members.get(usize::from(m)) {
                        drop(vbus.open(member, id, 1));
                    }
                }
                Verb::Leave(m) if usize::from(m) < members.len() => {
                    vbus.leave(members.remove(usize::from(m)));
                }
                Verb::Leave(_) => {}
                Verb::Reset(d) => drop(vbus.reset(&dev(d))),
            }
            prop_assert!(vbus.work(4).is_empty());
        }
        let (buses, devices) = (vbus.bus_infos(), vbus.device_infos());
        for bus in &buses {
            for device in bus.interfaces.values() {
                let found = devices.iter().find(|info| info.name == *device);
                prop_assert!(found.is_some_and(|info| info.buses.contains(&bus.name)));
            }
        }
        let configuration = vbus.configuration();
        let mut again = Vbus::new(devices::classes());
        again.restore(&configuration).unwrap();
        prop_assert_eq!(again.configuration(), configuration);
        let links = |vbus: &Vbus| -> Vec<_> {
            vbus.bus_infos().into_iter().map(|b| (b.name, b.interfaces, b.access)).collect()
        };
        prop_assert_eq!(links(&again), links(&vbus));
    }
}
