// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The capabilities that threads of a monitor of root keep.

use super::thread_policies::{MONITOR, compile};
use rustix::thread::CapabilitySet;
use std::collections::BTreeMap;

fn kept() -> BTreeMap<String, CapabilitySet> {
    let policies = compile(MONITOR).unwrap().into_iter();
    policies
        .map(|(name, policy)| (name, policy.capabilities))
        .collect()
}

fn set(names: &[&str]) -> CapabilitySet {
    let known = |name: &&str| CapabilitySet::from_name(name).unwrap();
    names.iter().map(known).collect()
}

/// Without these capabilities neither a mistake in the device nor code that has taken over the
/// thread can use them.
#[test]
fn a_shared_folder_s_thread_gives_up_what_makes_rights() {
    let kept = kept();
    for variant in ["", "kvm-"] {
        let of = |thread| kept[&format!("{variant}{thread}")];
        // SYS_ADMIN would let a guest read and set `trusted.*`.
        for thread in ["fs", "fs-ro", "fs-suid"] {
            let rights = set(&["MKNOD", "SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN"]);
            assert!(!of(thread).intersects(rights), "{thread}");
        }
        for thread in ["fs", "fs-ro"] {
            assert!(!of(thread).intersects(set(&["FSETID", "SETFCAP"])));
        }
        assert!(!of("fs-ro").intersects(set(&["CHOWN", "DAC_OVERRIDE"])));
        assert_eq!(of("fs-suid"), of("fs") | set(&["FSETID", "SETFCAP"]));
    }
}

/// All others have almost no capabilities: they did all that needs one before.
#[test]
fn every_thread_gives_up_what_it_does_not_need() {
    let special = [
        ("main", &["DAC_OVERRIDE", "FOWNER"][..]),
        ("supervisor", &["SYS_PTRACE"]),
        ("watch", &["SYS_PTRACE"]),
        ("vbus-join", &["DAC_OVERRIDE"]),
        ("vbusd", &["DAC_OVERRIDE"]),
        ("vbusd-tap-keeper", &["NET_ADMIN"]),
        ("vbusd-networks", &["NET_BIND_SERVICE"]),
    ];
    for (name, kept) in kept() {
        if name.trim_start_matches("kvm-").starts_with("fs") {
            continue;
        }
        let more = special.iter().find(|(thread, _)| *thread == name);
        let more = more.map_or(CapabilitySet::empty(), |(_, more)| set(more));
        assert_eq!(kept, more | set(&["KILL"]), "{name}");
    }
}

#[test]
fn what_is_given_up_is_gone_for_the_thread_alone() {
    let kept_by_fs = kept()["fs"];
    let before = rustix::thread::capabilities(None).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            super::keep_capabilities(kept_by_fs).unwrap();
            rustix::thread::capabilities(None).unwrap()
        });
        let sets = thread.join().unwrap();
        assert_eq!(
            (sets.effective, sets.permitted),
            (before.effective & kept_by_fs, before.permitted & kept_by_fs)
        );
    });
    assert_eq!(
        rustix::thread::capabilities(None).unwrap().permitted,
        before.permitted
    );
}
