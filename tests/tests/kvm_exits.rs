// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench exits` in an emulated host that has KVM: the exits that the layer `kvm` saves.
//!
//! The number of the host's ticks depends on the time that a row takes. So rows are compared by
//! kinds of exits without ticks, by the round with the fewest exits, or by the median with the
//! layer and the most without.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::kvm_host::{KvmHost, Parts};
use serde_json::Value;

/// Rows in which the layer makes nothing dearer.
const NO_MORE: [&str; 9] = [
    "boot",
    "idle",
    "ticks",
    "hackbench",
    "pipe",
    "pipe_across",
    "fork",
    "ipi",
    "flush",
];

/// Of these, rows with a round in which nothing else happens in the guest.
const STEADY: [&str; 5] = ["idle", "ticks", "pipe", "pipe_across", "fork"];

/// Seconds for all rows: a guard. How busy this host is when the emulated host boots says little of
/// the time after that.
const GUARD: u64 = 3600;
/// Seconds for a row, as the command has it, and the most that it takes.
const ROW: u64 = 300;
const LONGEST_ROW: u64 = 3600;

/// What was counted.
struct Exits(Vec<Value>);

impl Exits {
    fn count(host: &mut KvmHost, words: &str) -> Self {
        let row = host.limit(ROW).as_secs().min(LONGEST_ROW);
        let said = host.ok(
            &format!(
                "paravane bench exits --kernel /vmlinux --json --timeout {row} {words} \
                     >/tmp/json 2>/tmp/errors || {{ tail -n 3 /tmp/errors; exit 1; }}
                 cat /tmp/json"
            ),
            GUARD,
        );
        let report: Value = serde_json::from_str(&said).unwrap();
        let rows = report["rows"].as_array().unwrap().clone();
        for row in &rows {
            eprintln!(
                "{} {}: {} (least {}, guest {}) {}",
                row["row"], row["layer"], row["total"], row["least"], row["guest"], row["kinds"]
            );
        }
        Exits(rows)
    }

    fn row(&self, row: &str, layer: &str) -> &Value {
        let mut rows = self.0.iter();
        let found = rows.find(|value| value["row"] == row && value["layer"] == layer);
        found.unwrap()
    }

    fn kind(&self, row: &str, layer: &str, kind: &str) -> f64 {
        self.row(row, layer)["kinds"][kind].as_f64().unwrap()
    }

    fn total(&self, row: &str, layer: &str) -> f64 {
        self.row(row, layer)["total"].as_f64().unwrap()
    }

    fn least(&self, row: &str, layer: &str) -> f64 {
        self.row(row, layer)["least"].as_f64().unwrap()
    }

    /// Without those that the host causes: the fewest of a round, the median, the most.
    fn guest(&self, row: &str, layer: &str) -> [f64; 3] {
        let guest = &self.row(row, layer)["guest"];
        [0, 1, 2].map(|at| guest[at].as_f64().unwrap())
    }

    /// What does not depend on time.
    fn check(&self, others: &[&str]) {
        for other in others {
            let (with, without) = (
                self.kind("boot", "kvm", "eoi"),
                self.kind("boot", other, "eoi"),
            );
            assert!(with * 3.0 < without, "ends of interrupts, {other}");
            let (with, without) = (
                self.kind("ipi", "kvm", "ipi"),
                self.kind("ipi", other, "ipi"),
            );
            assert!(with > 0.5 && with * 2.0 < without, "interrupts, {other}");
            let (with, without) = (self.least("flush", "kvm"), self.least("flush", other));
            assert!(with * 4.0 < without, "flushes, {other}");
            let (with, without) = (self.total("contend", "kvm"), self.total("contend", other));
            assert!(with < without, "contended locks, {other}");
        }
        // A tick may come in between.
        for kind in ["kick", "yield", "pause"] {
            assert!(self.kind("lock", "kvm", kind) < 1e-9, "{kind}");
        }
    }
}

/// The layer saves exits for ends of interrupts, interrupts, flushes of a preempted vCPU and
/// contended locks. Locks without contention make no hypercall.
#[test]
#[ignore = "a minute on an idle host: make test-release"]
fn the_layer_saves_exits() {
    let mut host = Parts::new(2).with_linux().start();
    let words = "--quick --rounds 3 --layer native --layer kvm --row boot --row ipi --row lock \
                 --row contend --row flush";
    Exits::count(&mut host, words).check(&["native"]);
    // Nothing is left in the host's trace.
    assert_eq!(host.ok("ls /sys/kernel/tracing/instances", 10), "");
}

/// All rows: the layer also saves the exits of I/O delays, and no row has more exits with it.
#[test]
#[ignore = "long: make test-release"]
fn no_row_has_more_exits_with_the_layer() {
    let mut host = Parts::new(2).with_linux().start();
    let exits = Exits::count(&mut host, "--rounds 9");
    exits.check(&["none", "native"]);
    for layer in ["none", "native", "kvm"] {
        let delays = exits.kind("delay", layer, "io_delay");
        assert_eq!(
            delays < 1e-9,
            layer == "kvm",
            "{layer}: {delays} I/O delays"
        );
        // One of several rounds has no tick.
        assert!(exits.least("lock", layer) < 1e-9, "{layer}: locks");
    }
    for other in ["none", "native"] {
        for row in NO_MORE {
            let (with, without) = (exits.guest(row, "kvm"), exits.guest(row, other));
            let least = with[0] <= without[0] * 1.1 + 0.05;
            assert!(least || !STEADY.contains(&row), "{row}, {other}: fewest");
            let (with, without) = (with[1], without[2]);
            // A timer of the guest's kernel that falls into one of the rounds.
            let besides = if exits.row(row, other)["operations"].as_u64() <= Some(2) {
                4.0
            } else {
                0.05
            };
            assert!(
                with <= without * 1.1 + besides,
                "{row}: {with} in the median, and at most {without} with {other}"
            );
        }
    }
}
