// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of a shared folder by the host and the guest at the same time.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::over::Over;
use paravane_tests::volume::open_files;
use paravane_tests::worker::Worker;
use paravane_tests::{program, wait};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// What the guest sees, in a line.
const LOOK: &str =
    "for n in a b c d; do printf '%s,' \"$(cat $n 2>/dev/null | tr '\\n' ' ')\"; done";
/// What it does at the same time.
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

/// Both sides make, write, move and remove the same files. The guest then sees the host's files: no
/// change by the host was taken for one by the guest.
#[test]
fn changes_of_both_sides_at_once_meet() {
    let mut machine = machine();
    let folder = machine.shared();
    for round in 0..20 {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&over);
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

/// Both sides write to a file all the time: the guest sees every write of the host in the end.
#[test]
fn each_write_of_the_host_between_those_of_the_guest_is_seen() {
    let mut machine = machine();
    let file = machine.shared().join("f");
    fs::write(&file, "x\n").unwrap();
    for turn in 0..50 {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    // As long as before: only the time of the change tells.
                    let _ = fs::write(&file, format!("{turn:04}\n"));
                    // The guest must get to its own writes.
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            machine.tell(
                "i=0; while [ $i -lt 20 ]; do echo 1 1<>f; cat f >/dev/null; i=$((i + 1)); done",
            );
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

/// The guest reads several files together while both sides write to them. At the end it sees the
/// host's contents, also of files that it has not read since.
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
            let _over = Over(&over);
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

/// The guest does not ask for a name that a folder lacks if it has listed or made the folder. It
/// still sees files that the host makes there, and finds those that have left its memory.
#[test]
fn names_that_come_up_in_known_folders_are_seen() {
    const FILES: usize = 20;
    let mut machine = machine();
    let folder = machine.shared();
    fs::create_dir(folder.join("listed")).unwrap();
    for number in 0..FILES {
        fs::write(folder.join(format!("listed/f{number}")), "").unwrap();
    }
    machine.does("find . -size +8k");
    let all = format!(
        "i=0; while [ $i -lt {FILES} ]; do [ -e listed/f$i ] && printf x; i=$((i + 1)); done"
    );
    for round in 0..20 {
        machine.does(&format!(
            "mkdir made{round}; [ -e made{round}/x -o -e listed/y{round} ]"
        ));
        fs::write(folder.join(format!("made{round}/x")), "").unwrap();
        fs::write(folder.join(format!("listed/y{round}")), "").unwrap();
        let both = format!("[ -e made{round}/x -a -e listed/y{round} ] && printf yes");
        machine.until(BOUND, &both, "yes");
        // Renamed by each side, to a name that the other has not seen.
        machine.does(&format!("mv listed/y{round} listed/z{round}"));
        let (from, to) = (format!("listed/z{round}"), format!("made{round}/y"));
        fs::rename(folder.join(from), folder.join(to)).unwrap();
        let moved = format!("[ -e made{round}/y -a ! -e listed/z{round} ] && printf yes");
        machine.until(BOUND, &moved, "yes");
        machine.does(&format!("ls listed made{round} >/dev/null"));
        if round % 4 == 0 {
            machine.does("echo 2 >/proc/sys/vm/drop_caches");
        }
        assert_eq!(
            machine.tell(&all).trim(),
            "x".repeat(FILES),
            "round {round}"
        );
    }
    machine.end();
}

/// The host puts files into folders at the moment in which the guest makes them.
#[test]
fn names_in_folders_that_are_just_made_are_seen() {
    const FOLDERS: usize = 200;
    let mut machine = machine();
    let folder = machine.shared();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        let maker = scope.spawn(|| {
            for number in 0..FOLDERS {
                let path = folder.join(format!("d{number}/x"));
                while fs::write(&path, "").is_err() {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                }
            }
        });
        machine.tell(&format!(
            "i=0; while [ $i -lt {FOLDERS} ]; do mkdir d$i; [ -e d$i/x ]; i=$((i + 1)); done"
        ));
        let all = "the host has made its files";
        wait::until(all, program::PATIENCE, || maker.is_finished());
    });
    let made = (0..FOLDERS).filter(|number| folder.join(format!("d{number}/x")).exists());
    let wanted = made.count().to_string();
    assert_eq!(wanted, FOLDERS.to_string());
    let count = format!(
        "n=0; i=0; while [ $i -lt {FOLDERS} ]; do [ -e d$i/x ] && n=$((n + 1)); \
         i=$((i + 1)); done; printf $n"
    );
    machine.until(BOUND, &count, &wanted);
    machine.end();
}

/// A file that the guest has closed is closed on the host soon, before anything that the guest does
/// later, and at the end of the machine.
#[test]
fn what_is_closed_is_closed_on_the_host() {
    let mut machine = machine();
    machine.does("for i in 1 2 3; do echo $i >f$i; done");
    wait::equal(BOUND, &0, || open_files(&machine));
    machine.does("exec 9>>f1");
    assert_eq!(open_files(&machine), 1);
    machine.does("exec 9>&-; for i in 1 2 3; do echo $i >>f$i; done");
    wait::equal(BOUND, &0, || open_files(&machine));
    // Many at once, with removals and new files of the same name in between.
    machine.does(
        "i=0; while [ $i -lt 300 ]; do echo $i >t; rm t; echo $i >t; echo $i >u$((i % 40)); \
         mv t v; i=$((i + 1)); done; rm v u*",
    );
    wait::equal(BOUND, &0, || {
        machine.does("");
        open_files(&machine)
    });
    machine.does("echo last >f1");
    machine.end();
}

/// While a program is open for writing, it cannot be executed.
#[test]
fn a_program_that_the_guest_has_copied_runs_on_the_host() {
    let mut machine = machine();
    let folder = machine.shared();
    fs::copy("/bin/true", folder.join("program")).unwrap();
    for round in 0..20 {
        let name = format!("copy{round}");
        machine.does(&format!("cp program {name}"));
        let run = Command::new(folder.join(name)).status();
        assert!(run.unwrap().success(), "round {round}");
    }
    machine.end();
}

/// A program that has a file open learns that its last name has gone, or names another file.
#[test]
fn an_open_file_loses_its_names_on_the_host() {
    let mut machine = machine();
    let file = machine.shared().join("f");
    let names = "printf %s $(stat -L -c %h /proc/self/fd/9)";
    for replaced in [false, true] {
        fs::write(&file, "x\n").unwrap();
        machine.until(BOUND, "printf %s $(cat f)", "x");
        machine.does("exec 9<f");
        assert_eq!(machine.tell(names).trim(), "1");
        if replaced {
            let other = machine.shared().join("other");
            fs::write(&other, "y\n").unwrap();
            fs::rename(&other, &file).unwrap();
        } else {
            fs::remove_file(&file).unwrap();
        }
        machine.until(BOUND, names, "0");
    }
    machine.end();
}
