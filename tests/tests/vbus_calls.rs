// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of VMI-Linux's driver of bridges: by calls of the layer if it has section `bus`,
//! otherwise by stores to a register. The layer counts the calls, the monitor both.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program;
use paravane_tests::worker::{COMMANDS, Worker};
use serde_json::Value;

/// Times that the driver of the card leaves and returns.
const ROUNDS: u64 = 10;
/// The fewest commands of a round: it opens, calls, shares two queues and closes.
const FEWEST: u64 = 5;

/// A machine with a card, whose driver leaves and returns; and the words that its kernel gets.
fn machine(words: &[&str]) -> Worker {
    let mut machine = Worker::start(None, COMMANDS, |_| {
        let options = ["--count-calls", "--cpus", "2", "--net", "venet"];
        let append = words.iter().flat_map(|word| ["--append", *word]);
        options.into_iter().chain(append).collect::<Vec<_>>()
    });
    machine.does(
        "cd /sys/bus/vbus/drivers/venet; device=$(ls -d vbus*); i=0; while [ $i -lt 10 ]; do \
         echo $device >unbind; echo $device >bind; i=$((i+1)); done; ip link set eth0 up; \
         udhcpc -q -n -i eth0 >/dev/null 2>&1",
    );
    machine
}

/// How many commands the bridge has had, and how many of these were calls.
fn commands(machine: &Worker) -> (u64, u64) {
    let stat = machine.stat();
    let devices = stat["devices"].as_array().unwrap();
    let sum = |field: &str| {
        let counts = devices.iter().map(|device| device[field].as_u64().unwrap());
        counts.sum::<u64>()
    };
    (sum("commands"), sum("commands_called"))
}

/// How often the layer was called, by the name of the call.
fn called(machine: &Worker, name: &str) -> u64 {
    let run = program::finish(&mut machine.command(&["calls", "one", "--json"]));
    assert_eq!(run.code, 0, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let calls = json["calls"].as_array().unwrap();
    let found = calls.iter().find(|call| call["name"] == name);
    found.map_or(0, |call| call["calls"].as_u64().unwrap())
}

#[test]
fn a_driver_calls_the_layer_that_has_the_section() {
    let machine = machine(&[]);
    let (all, by_calls) = commands(&machine);
    let counted = called(&machine, "bus.command");
    let notified = called(&machine, "bus.notify");
    println!("{all} commands, {by_calls} by calls: {counted}; {notified} notifications");
    assert!(all >= ROUNDS * FEWEST, "{all}");
    assert_eq!(all, by_calls);
    assert_eq!(counted, by_calls);
    assert!(notified > 0);
    machine.end();
}

#[test]
fn a_driver_stores_where_the_layer_lacks_the_section() {
    let machine = machine(&["vbus.calls=0"]);
    let (all, by_calls) = commands(&machine);
    println!("{all} commands, {by_calls} by calls");
    assert!(all >= ROUNDS * FEWEST, "{all}");
    assert_eq!(by_calls, 0);
    assert_eq!(called(&machine, "bus.command"), 0);
    assert_eq!(called(&machine, "bus.notify"), 0);
    machine.end();
}
