// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of their own for the pairs of queues of a card of the virtual bus, in a machine with
//! two vCPUs: where they arrive, and that nothing is lost while they move.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::worker::{COMMANDS, Worker};
use paravane_tests::{echo, linux, source_root};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the load, which needs the vCPUs, too.
const PAUSE: Duration = Duration::from_millis(30);
/// Lines of an exchange of the load.
const LINES: &str = "300";

/// A machine whose card has two pairs, and a server of the host.
struct Machine {
    worker: Worker,
    port: u16,
}

/// A pair's interrupt.
#[derive(Debug)]
struct Own {
    number: u32,
    /// How often it came, by the vCPUs that are online.
    counts: Vec<u64>,
}

impl Machine {
    fn start() -> Self {
        let mut worker = Worker::start(None, COMMANDS, |folder| {
            let nic = source_root().join("tests/guest/nic");
            linux::compile(&nic, &folder.join("nic"));
            let volume = format!("{}:/x:ro", folder.display());
            let words = ["--cpus", "2", "--net", "venet,loopback", "--volume"];
            let words = words.into_iter().map(String::from);
            words.chain([volume]).collect::<Vec<_>>()
        });
        worker.does("/x/nic eth0 2");
        Machine {
            worker,
            port: echo::start(),
        }
    }

    /// What a script prints, which is in one line.
    fn tell(&mut self, script: &str) -> String {
        self.worker.tell(script).trim().to_string()
    }

    /// The interrupts of the pairs, in their order.
    fn own(&mut self) -> Vec<Own> {
        let said = self.tell("grep -e '-pair[0-9]$' /proc/interrupts | sort -k 6 | tr '\\n' ';'");
        let lines = said.split_terminator(';').enumerate();
        let own = lines.map(|(pair, line)| {
            assert!(line.ends_with(&format!("-pair{pair}")), "{said}");
            let mut words = line.split_whitespace();
            let number = words.next().unwrap().trim_end_matches(':');
            Own {
                number: number.parse().unwrap(),
                counts: words.map_while(|word| word.parse().ok()).collect(),
            }
        });
        own.collect()
    }

    /// The mask of the vCPU that gets an interrupt.
    fn place(&mut self, number: u32) -> u32 {
        let mask = self.tell(&format!(
            "printf %s $(cat /proc/irq/{number}/effective_affinity)"
        ));
        u32::from_str_radix(&mask, 16).unwrap()
    }

    /// A program on a vCPU exchanges bytes with the host.
    fn exchange(&mut self, cpu: usize) {
        let (mask, port) = (1 << cpu, self.port);
        let said = self.tell(&format!(
            "printf %s $(taskset {mask} sh -c 'seq 3000 | nc -w 9 10.0.2.2 {port} | tail -n 1')"
        ));
        assert_eq!(said, "3000");
    }

    /// Programs on both vCPUs exchange bytes from now on, and note how each exchange ends.
    fn load(&mut self) {
        let port = self.port;
        for cpu in [0, 1] {
            let mask = 1 << cpu;
            self.worker.does(&format!(
                ": >/tmp/done{cpu}; while :; do taskset {mask} sh -c 'x=$(seq {LINES} | \
                 nc -w 9 10.0.2.2 {port} | tail -n 1); echo \"$x\" >>/tmp/done{cpu}' \
                 2>/dev/null || usleep 10000; done &"
            ));
        }
        self.progress(&[0, 1]);
    }

    /// Waits until the load of these vCPUs has ended an exchange that began after now.
    fn progress(&mut self, cpus: &[usize]) {
        let (begun, before) = (Instant::now(), self.exchanges());
        loop {
            let now = self.exchanges();
            if cpus.iter().all(|&cpu| now[cpu] >= before[cpu] + 2) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the load stands still");
            thread::sleep(PAUSE);
        }
    }

    /// How many exchanges of each vCPU have ended. None has failed.
    fn exchanges(&mut self) -> [u64; 2] {
        let said = self.tell(&format!(
            "printf '%s ' $(wc -l </tmp/done0) $(wc -l </tmp/done1) \
             $(cat /tmp/done0 /tmp/done1 | grep -vc '^{LINES}$')"
        ));
        let words: Vec<u64> = said
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(words[2], 0, "exchanges have failed");
        [words[0], words[1]]
    }

    /// Waits until an interrupt has come to this vCPU again, and checks that no other one gets it.
    fn comes_to(&mut self, pair: usize, cpu: usize) {
        let begun = Instant::now();
        let before = self.own();
        loop {
            let now = self.own();
            let grown = |cpu: usize| now[pair].counts[cpu] - before[pair].counts[cpu];
            assert_eq!(grown(1 - cpu), 0, "{before:?} {now:?}");
            if grown(cpu) > 5 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{before:?} {now:?}");
            thread::sleep(PAUSE);
        }
    }
}

#[test]
fn each_pair_interrupts_its_own_vcpu() {
    let mut machine = Machine::start();
    for cpu in [0, 1, 0, 1] {
        let before = machine.own();
        assert_eq!(before.len(), 2, "{before:?}");
        machine.exchange(cpu);
        let after = machine.own();
        println!("vCPU {cpu}: {before:?} {after:?}");
        assert!(after[cpu].counts[cpu] > before[cpu].counts[cpu]);
        // The other vCPU gets nothing of this pair.
        assert_eq!(after[cpu].counts[1 - cpu], 0);
    }
    for (pair, mask) in [(0, 1), (1, 2)] {
        let number = machine.own()[pair].number;
        assert_eq!(machine.place(number), mask, "{pair}");
    }
    // One pair has the bus's. So have all where interrupts of their own are not wanted.
    machine.worker.does("/x/nic eth0 1");
    assert!(machine.own().is_empty());
    machine.exchange(1);
    let switch = "/sys/module/venet/parameters/interrupts";
    machine
        .worker
        .does(&format!("echo 0 >{switch}; /x/nic eth0 2"));
    assert!(machine.own().is_empty());
    machine.exchange(0);
    machine.exchange(1);
    machine
        .worker
        .does(&format!("echo 2 >{switch}; /x/nic eth0 1"));
    assert_eq!(machine.own().len(), 1);
    machine.exchange(1);
    // More pairs than vCPUs, and back.
    machine
        .worker
        .does(&format!("echo 1 >{switch}; /x/nic eth0 8"));
    assert_eq!(machine.own().len(), 8);
    machine.exchange(0);
    machine.exchange(1);
    machine.worker.end();
}

#[test]
fn an_interrupt_moves_under_load() {
    let mut machine = Machine::start();
    machine.load();
    let numbers: Vec<u32> = machine.own().iter().map(|own| own.number).collect();
    for round in 0..20 {
        for (pair, number) in numbers.iter().enumerate() {
            let mask = 1 + (round + pair) % 2;
            machine
                .worker
                .does(&format!("echo {mask} >/proc/irq/{number}/smp_affinity"));
        }
        if round % 10 == 0 {
            machine.progress(&[0, 1]);
        }
    }
    // Both pairs on either vCPU, and crosswise.
    for places in [[0, 0], [1, 1], [1, 0], [0, 1]] {
        for (number, cpu) in numbers.iter().zip(places) {
            let mask = 1 << cpu;
            machine
                .worker
                .does(&format!("echo {mask} >/proc/irq/{number}/smp_affinity"));
        }
        machine.progress(&[0, 1]);
        for (pair, cpu) in places.into_iter().enumerate() {
            machine.comes_to(pair, cpu);
        }
    }
    machine.worker.end();
}

#[test]
fn an_interrupt_leaves_a_vcpu_that_goes_offline_and_returns() {
    let mut machine = Machine::start();
    machine.load();
    let number = machine.own()[1].number;
    let online = "/sys/devices/system/cpu/cpu1/online";
    for _ in 0..4 {
        machine.worker.does(&format!("echo 0 >{online}"));
        assert_eq!(machine.place(number), 1);
        machine.progress(&[0]);
        machine.worker.does(&format!("echo 1 >{online}"));
        assert_eq!(machine.place(number), 2);
        machine.progress(&[0, 1]);
        machine.comes_to(1, 1);
    }
    // A card that is set up again while the vCPU is offline uses only the others.
    machine
        .worker
        .does(&format!("echo 0 >{online}; /x/nic eth0 1; /x/nic eth0 2"));
    for own in machine.own() {
        assert_eq!(machine.place(own.number), 1);
    }
    machine.progress(&[0]);
    machine.worker.does(&format!("echo 1 >{online}"));
    machine.progress(&[0, 1]);
    machine.worker.end();
}
