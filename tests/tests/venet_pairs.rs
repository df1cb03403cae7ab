// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pairs of queues of a card of the virtual bus, in a machine with two vCPUs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::worker::Worker;
use paravane_tests::{echo, linux, source_root};
use std::collections::BTreeMap;

/// Runs each line that it reads as a command.
const SCRIPT: &str = "while read -r line; do eval \"$line\"; echo; done";

fn machine() -> Worker {
    Worker::start(None, SCRIPT, |folder| {
        let nic = source_root().join("tests/guest/nic");
        linux::compile(&nic, &folder.join("nic"));
        let datagrams = source_root().join("tests/guest/datagrams");
        linux::compile(&datagrams, &folder.join("datagrams"));
        let volume = format!("{}:/x:ro", folder.display());
        let words = [
            "--cpus",
            "2",
            "--net",
            "venet,loopback",
            "--volume",
            &volume,
        ];
        words.map(String::from).to_vec()
    })
}

/// The counters of the card. The output of a command is in one line.
fn counters(machine: &mut Worker) -> BTreeMap<String, u64> {
    let line = machine.tell("printf '%s ' $(/x/nic eth0)");
    let words: Vec<&str> = line.split_whitespace().collect();
    let pairs = words.chunks(2);
    pairs
        .map(|pair| (pair[0].to_string(), pair[1].parse().unwrap()))
        .collect()
}

/// What a program on a CPU of the guest exchanges with the host.
fn exchange(machine: &mut Worker, cpu: u32, port: u16) -> BTreeMap<String, u64> {
    let before = counters(machine);
    let mask = 1 << cpu;
    let line = format!(
        "printf %s $(taskset {mask} sh -c 'seq 3000 | nc -w 5 10.0.2.2 {port} | tail -n 1')"
    );
    assert_eq!(machine.tell(&line).trim(), "3000");
    let after = counters(machine);
    let grown = |(name, value): (&String, &u64)| {
        let before = before.get(name).copied().unwrap_or(0);
        (name.clone(), value - before)
    };
    after.iter().map(grown).collect()
}

/// Programs fill their sockets' buffers, wait until the card has sent the data, and receive
/// nothing: two on two vCPUs by one pair of queues, and one with a small buffer.
#[test]
fn senders_of_datagrams_do_not_wait_for_a_timer() {
    let mut machine = machine();
    machine.tell("/x/nic eth0 1");
    let both = "/x/datagrams 10.0.2.2 9 100000 & /x/datagrams 10.0.2.2 9 100000; \
        first=$?; wait $!; echo $first $? | tr '\\n' ' '";
    assert_eq!(machine.tell(both).trim(), "0 0");
    let small = "/x/datagrams 10.0.2.2 9 20000 8192; echo $? | tr '\\n' ' '";
    assert_eq!(machine.tell(small).trim(), "0");
}

#[test]
fn each_vcpu_has_a_pair_of_queues() {
    let mut machine = machine();
    let port = echo::start();
    machine.tell("/x/nic eth0 2");
    for cpu in [0, 1, 0, 1] {
        let grown = exchange(&mut machine, cpu, port);
        println!("CPU {cpu}: {grown:?}");
        let of = |what: &str, pair: u32| grown[&format!("pair{pair}_{what}")];
        // Code on another CPU, such as a timer of TCP's, may send a frame.
        for what in ["sent", "received"] {
            let (own, other) = (of(what, cpu), of(what, 1 - cpu));
            assert!(own >= 2 && own > 2 * other, "{what}: {own} and {other}");
        }
    }
    // With one pair, as at first, everything goes there.
    machine.tell("/x/nic eth0 1");
    let grown = exchange(&mut machine, 1, port);
    assert!(
        !grown.contains_key("pair1_sent") && grown["pair0_sent"] >= 2,
        "{grown:?}"
    );
    // With more than vCPUs some are not used, and all of it still works.
    machine.tell("/x/nic eth0 8");
    let grown = exchange(&mut machine, 1, port);
    assert!(
        grown["pair1_sent"] >= 2 && grown["pair7_sent"] == 0,
        "{grown:?}"
    );
    // More than there are is refused.
    let said = machine.tell("/x/nic eth0 9 2>/dev/null || printf refused");
    assert_eq!(said.trim(), "refused");
    exchange(&mut machine, 0, port);
    machine.end();
}
