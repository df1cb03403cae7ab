// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of a shared folder by the host and the guest at the same time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::worker::Worker;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// What the guest sees, in a line.
const LOOK: &str =
    "for n in a b c d; do printf '%s,' \"$(cat $n 2>/dev/null | tr '\\n' ' ')\"; done";
/// What it does meanwhile.
const WORK: &str = "i=0; while [ $i -lt 40 ]; do echo guest$i >a; echo guest$i >>b; mv b c; \
    cat a b c d >/dev/null; echo guest$i >>d; rm a; echo guest$i >c; mkdir e; rmdir e; \
    chmod 600 d; i=$((i + 1)); done 2>/dev/null";
/// The guest sees a change after some milliseconds, or a second where none are reported. One that
/// is not reported by mistake it would see after 30 s.
const BOUND: Duration = Duration::from_secs(2);

fn machine() -> Worker {
    let mut machine = Worker::in_volume("", |_| ());
    machine.does("ls");
    machine
}

/// One of the host's changes.
fn change(folder: &Path, turn: usize) -> std::io::Result<()> {
    let path = folder.join(NAMES[turn % NAMES.len()]);
    let text = format!("host{turn}\n");
    match turn % 7 {
        0 | 1 => fs::write(path, text),
        2 | 3 => {
            let mut options = fs::OpenOptions::new();
            let mut file = options.append(true).create(true).open(path)?;
            file.write_all(text.as_bytes())
        }
        4 => fs::rename(path, folder.join("a")),
        5 => fs::remove_file(path),
        _ => fs::rename(folder.join("d"), path),
    }
}

/// Both sides make, write, move and remove the same files. What the guest sees then is what the
/// host has: no change of the host was taken for one of the guest's.
#[test]
fn changes_of_both_sides_at_once_meet() {
    let mut machine = machine();
    let folder = machine.shared();
    for round in 0..20 {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // It stops with the guest, or a few changes later.
                let (mut turn, mut rest) = (round, round % 3);
                while rest > 0 || !over.load(Ordering::SeqCst) {
                    rest -= usize::from(rest > 0 && over.load(Ordering::SeqCst));
                    turn += 1;
                    // Names may be gone.
                    let _ = change(&folder, turn);
                    std::thread::sleep(Duration::from_micros((turn % 5 * 300) as u64));
                }
            });
            machine.tell(WORK);
            over.store(true, Ordering::SeqCst);
        });
        let has = |name| {
            let text = fs::read_to_string(folder.join(name));
            text.map_or(String::new(), |text| {
                text.replace('\n', " ").trim().to_string()
            })
        };
        let wanted: Vec<_> = NAMES.into_iter().map(has).collect();
        let begun = Instant::now();
        loop {
            let asked = begun.elapsed();
            let said = machine.tell(LOOK);
            let seen: Vec<_> = said.split(',').take(NAMES.len()).map(str::trim).collect();
            if seen == wanted {
                break;
            }
            assert!(asked < BOUND, "round {round}: {seen:?}, not {wanted:?}");
        }
    }
    machine.end();
}

/// A file that both write to all the time: no write of the host stays unseen.
#[test]
fn each_write_of_the_host_between_those_of_the_guest_is_seen() {
    let mut machine = machine();
    let file = machine.shared().join("f");
    fs::write(&file, "x\n").unwrap();
    for turn in 0..50 {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    // As long as before: only the time of the change tells.
                    let _ = fs::write(&file, format!("{turn:04}\n"));
                }
            });
            machine.tell(
                "i=0; while [ $i -lt 20 ]; do echo 1 1<>f; cat f >/dev/null; i=$((i + 1)); done",
            );
            over.store(true, Ordering::SeqCst);
        });
        let wanted = fs::read_to_string(&file).unwrap();
        let begun = Instant::now();
        loop {
            let asked = begun.elapsed();
            let said = machine.tell("cat f | tr '\\n' ' '");
            if said.trim() == wanted.replace('\n', " ").trim() {
                break;
            }
            assert!(asked < BOUND, "turn {turn}: {said:?}, not {wanted:?}");
        }
    }
    machine.end();
}

/// Files that the guest reads together while both sides write to them: what it sees at last is what
/// the host has, also of those that nobody has read since.
#[test]
fn files_that_are_read_together_are_the_hosts() {
    const FILES: usize = 24;
    /// Each turn reads all from the host, and changes some.
    const TURNS: usize = 30;
    let mut machine = machine();
    let folder = machine.shared();
    let path = |number: usize| folder.join(format!("f{number}"));
    for number in 0..FILES {
        fs::write(path(number), "first....\n").unwrap();
    }
    machine.does("find . -size +8k");
    for round in 0..4 {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0.. {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    // As long as before: only the time of the change tells.
                    let text = format!("host{:05}\n", turn % 100_000);
                    fs::write(path(turn * 7 % FILES), text).unwrap();
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            machine.tell(&format!(
                "i=0; while [ $i -lt {TURNS} ]; do cat f* >/dev/null & \
                 echo 'guest....' 1<>f$((i % {FILES})); echo 'guest....' >f{round}; wait; \
                 echo 1 >/proc/sys/vm/drop_caches; i=$((i + 1)); done"
            ));
            // Read together a last time, with changes meanwhile.
            machine.tell("cat f* >/dev/null");
            over.store(true, Ordering::SeqCst);
        });
        let wanted: String = (0..FILES)
            .map(|number| fs::read_to_string(path(number)).unwrap().replace('\n', " "))
            .collect();
        let look = format!("i=0; while [ $i -lt {FILES} ]; do cat f$i; i=$((i + 1)); done");
        let begun = Instant::now();
        loop {
            let asked = begun.elapsed();
            let said = machine.tell(&format!("({look}) | tr '\\n' ' '"));
            if said.trim() == wanted.trim() {
                break;
            }
            assert!(asked < BOUND, "round {round}: {said:?}, not {wanted:?}");
        }
    }
    machine.end();
}
