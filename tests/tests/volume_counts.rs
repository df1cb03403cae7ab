// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of work in a shared folder, in requests: counts, since times depend on the host's other
//! work. The device also counts its messages, which report changes, but none by the guest.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::volume::{
    FILES, FOLDERS, OTHERS, figure, machine, machine_with, own_changes_are_known, requests, sent,
    switch, write,
};
use paravane_tests::worker::Worker;
use paravane_tests::{linux, source_root};
use std::fs;
use std::time::{Duration, Instant};

/// How often the workers of the guest's kernel gave up the processor.
fn switches(machine: &mut Worker) -> u64 {
    let count = "/^Name:/ { worker = $2 ~ /^kworker/ } \
        worker && /_switches:/ { n += $2 } END { printf n }";
    let said = machine.tell(&format!("awk '{count}' /proc/[0-9]*/status"));
    said.trim().parse().unwrap()
}

/// A list is one request, with all attributes. Contents are one request, and are kept.
#[test]
fn reading_a_tree_takes_a_request_for_each_part() {
    let mut machine = machine();
    let find = "find . -type f -size +8k";
    let grep = "grep -r no_such_word .";
    let number = requests(&mut machine, find);
    assert!(number <= FOLDERS + OTHERS, "{number}");
    let number = requests(&mut machine, grep);
    let files = FOLDERS * FILES;
    assert!((files..=files + OTHERS).contains(&number), "{number}");
    // The guest's cache expires after 30 s, which may be over on a very busy host.
    let again = [find, grep, find, grep].map(|command| requests(&mut machine, command));
    let fewest = again.iter().min().unwrap();
    assert!(*fewest <= OTHERS, "{again:?}");
    machine.end();
}

/// The task that reads a file ends the request. A worker of the guest's kernel would take two more
/// switches for each file.
#[test]
fn no_worker_ends_what_a_reader_waits_for() {
    let mut machine = machine();
    machine.tell("find . >/dev/null");
    let before = switches(&mut machine);
    let number = requests(&mut machine, "grep -r no_such_word .");
    assert!(number >= FOLDERS * FILES, "{number}");
    let switches = switches(&mut machine) - before;
    assert!(switches < FOLDERS * FILES / 4, "{switches}");
    machine.end();
}

/// Runs a command after the guest's cache was dropped, with or without reading nearby files
/// together. Returns the requests and the device's notifications and interrupts.
fn read_again(machine: &mut Worker, together: bool, command: &str) -> [u64; 3] {
    switch(machine, "read_nearby", together);
    machine.does("echo 1 >/proc/sys/vm/drop_caches");
    let names = ["requests", "notifications", "interrupts"];
    let before = names.map(|name| figure(machine, name));
    machine.does(command);
    let after = names.map(|name| figure(machine, name));
    let all = [0, 1, 2].map(|at| after[at] - before[at]);
    println!("{command}, together: {together}: {all:?}");
    all
}

/// A program that walks a folder does not wait for each small file.
#[test]
fn small_files_are_read_together() {
    const ALL: u64 = FOLDERS * FILES;
    let mut machine = machine();
    machine.does("find . -type f -size +8k");
    for (walk, part) in [
        ("grep -r no_such_word .", 3),
        ("tar c . | cat >/dev/null", 3),
        // In another order than that of the folder's list.
        ("cat d*/f* >/dev/null", 2),
    ] {
        let alone = read_again(&mut machine, false, walk);
        let together = read_again(&mut machine, true, walk);
        // A device that answers at once does not interrupt.
        assert!(alone[0] >= ALL && alone[1] >= ALL, "{walk}: {alone:?}");
        // None twice, and none for nothing.
        assert!(together[0] <= alone[0] + OTHERS, "{walk}: {together:?}");
        let [_, notifications, interrupts] = together;
        assert!(notifications < ALL / part, "{walk}: {together:?}");
        assert!(interrupts < ALL / part, "{walk}: {together:?}");
    }
    machine.end();
}

/// A read of a file changes its access time on the host. A program that looks at its files before
/// it reads them need not ask for that.
#[test]
fn files_that_are_read_together_keep_their_attributes() {
    let mut machine = Worker::in_volume("", write);
    machine.does("find . -type f -size +8k");
    let number = requests(&mut machine, "tar c . | cat >/dev/null");
    let files = FOLDERS * FILES;
    let folders = FOLDERS + 1;
    assert!(
        (files..=files + 2 * folders + OTHERS).contains(&number),
        "{number}"
    );
    machine.end();
}

/// The device forgets what it learnt from a walk when that does not help.
#[test]
fn a_file_of_each_folder_brings_few_others() {
    /// The largest credit, in files.
    const CREDIT: u64 = 32;
    let mut machine = machine();
    machine.does("find . -type f -size +8k");
    read_again(&mut machine, true, "grep -r no_such_word .");
    let one = "cat d*/f3 >/dev/null";
    let [first, ..] = read_again(&mut machine, true, one);
    let most = FOLDERS + CREDIT + FOLDERS / 8;
    assert!((FOLDERS..=most + OTHERS).contains(&first), "{first}");
    let [second, ..] = read_again(&mut machine, true, one);
    let most = FOLDERS + FOLDERS / 8;
    assert!((FOLDERS..=most + OTHERS).contains(&second), "{second}");
    machine.end();
}

/// No thread waits until the device has forgotten a file, so the device does not report that. With
/// these options there are no messages, which would take interrupts.
#[test]
fn what_is_forgotten_takes_no_interrupt() {
    const FORGOTTEN: u64 = FOLDERS * FILES;
    let mut machine = machine_with(":cache=always");
    machine.tell("find . >/dev/null");
    let before = figure(&machine, "interrupts");
    let number = requests(&mut machine, "rm -r d*");
    let interrupts = figure(&machine, "interrupts") - before;
    // Each is removed and forgotten.
    assert!(number >= 2 * FORGOTTEN, "{number}");
    assert!(
        interrupts <= number - FORGOTTEN + OTHERS,
        "{interrupts} of {number}"
    );
    machine.end();
}

/// A table of descriptors that grows in a process with several threads makes the device's thread
/// sleep, and workers then serve for a while. So the table has room beforehand.
#[test]
fn descriptors_of_many_files_take_no_time() {
    const MANY: u64 = 3000;
    let mut machine = Worker::in_volume("", |folder| {
        for number in 0..MANY {
            fs::write(folder.join(number.to_string()), "").unwrap();
        }
    });
    let size = |machine: &Worker| {
        let status = fs::read_to_string(format!("/proc/{}/status", machine.pid())).unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        size.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = size(&machine);
    machine.tell("find . -size +8k");
    assert_eq!(size(&machine), before);
    let open = fs::read_dir(format!("/proc/{}/fd", machine.pid())).unwrap();
    assert!(open.count() as u64 > MANY);
    machine.end();
}

/// Data are written and read by 1 MiB.
#[test]
fn a_request_carries_a_mebibyte() {
    const MIB: u64 = 16;
    if !own_changes_are_known() {
        return;
    }
    let mut machine = machine();
    let write = format!("dd if=/dev/zero of=data bs=1M count={MIB} status=none");
    let number = requests(&mut machine, &write);
    assert!((MIB..=MIB + OTHERS).contains(&number), "{number}");
    machine.tell("echo 1 >/proc/sys/vm/drop_caches");
    let read = "dd if=data of=/dev/null bs=1M status=none";
    let number = requests(&mut machine, read);
    assert!((MIB..=MIB + OTHERS).contains(&number), "{number}");
    machine.end();
}

/// Pages of what is written would be dropped before they are read.
#[test]
fn what_is_written_takes_no_memory() {
    const MIB: u64 = 64;
    let mut machine = machine();
    let cached = |machine: &mut Worker| {
        let said = machine.tell("awk '/^Cached:/ { printf $2 }' /proc/meminfo");
        said.trim().parse::<u64>().unwrap() >> 10
    };
    let before = cached(&mut machine);
    for (size, count) in [("1M", MIB), ("64k", MIB * 16), ("4k", MIB * 256)] {
        machine.does(&format!(
            "dd if=/dev/zero of=data{size} bs={size} count={count} status=none"
        ));
        let more = cached(&mut machine).saturating_sub(before);
        assert!(more < MIB / 4, "{size}: {more} MiB");
    }
    let said = machine.tell("for one in data*; do cmp -n 67108864 $one /dev/zero; done");
    assert_eq!(said, "\n");
    machine.end();
}

/// Memory that takes more requests than whole pages, or cannot be pinned, goes through the cache.
#[test]
fn what_is_written_takes_no_more_requests_than_by_pages() {
    const MIB: u64 = 8;
    if !own_changes_are_known() {
        return;
    }
    let mut machine = Worker::in_volume("", |folder| {
        linux::compile(
            &source_root().join("tests/guest/pieces"),
            &folder.join("pieces"),
        );
    });
    for how in ["unaligned", "small", "write-only"] {
        let number = requests(&mut machine, &format!("./pieces {how}"));
        assert!(
            (MIB..=MIB + OTHERS).contains(&number),
            "{how}: {number} requests"
        );
        let said = machine.tell(&format!(
            "printf '%d %d' $(wc -c <{how}) $(tr -d x <{how} | wc -c)"
        ));
        assert_eq!(said.trim(), format!("{} 0", MIB << 20), "{how}");
    }
    machine.end();
}

/// A file takes neighbouring pages, which share a buffer of a request.
#[test]
fn neighbouring_pages_are_one_buffer() {
    const MIB: u64 = 16;
    let mut machine = machine();
    // In pieces that go through the guest's page cache.
    let write = format!(
        "dd if=/dev/zero of=data bs=64k count={} status=none",
        16 * MIB
    );
    machine.tell(&write);
    machine.tell("echo 3 >/proc/sys/vm/drop_caches");
    let before = figure(&machine, "buffers");
    let number = requests(&mut machine, "dd if=data of=/dev/null bs=64k status=none");
    let buffers = figure(&machine, "buffers") - before;
    println!("{buffers} buffers");
    // 256 pages to a MiB, of which 16 and more are neighbours. Four frame a request.
    assert!(buffers < 4 * number + MIB * 256 / 8, "{buffers}");
    machine.end();
}

/// The guest asks once whether a program has capabilities, and not again while it knows the
/// program's attributes.
#[test]
fn a_program_that_is_known_starts_without_a_request() {
    const STARTS: u64 = 100;
    let start =
        format!("i=0; while [ $i -lt {STARTS} ]; do ./privs; i=$((i + 1)); done >/dev/null");
    let source = source_root().join("tests/guest/privs");
    let mut machine = Worker::in_volume("", |folder| {
        linux::compile(&source, &folder.join("privs"));
    });
    machine.tell("./privs");
    // The guest's cache expires after 30 s, which may be over on a very busy host.
    let numbers = [0; 2].map(|_| requests(&mut machine, &start));
    let fewest = numbers.iter().min().unwrap();
    assert!(*fewest <= OTHERS, "{numbers:?}");
    machine.end();
}

/// A file with a new name takes two requests: one makes it, and one closes it.
#[test]
fn making_a_file_takes_two_requests() {
    const NEW: u64 = 50;
    if !own_changes_are_known() {
        return;
    }
    let mut machine = machine();
    machine.tell("mkdir new; ls new");
    let make =
        format!("i=0; while [ $i -lt {NEW} ]; do mktemp new/XXXXXX >/dev/null; i=$((i + 1)); done");
    let number = requests(&mut machine, &make);
    assert!((2 * NEW..=2 * NEW + OTHERS).contains(&number), "{number}");
    let made = fs::read_dir(machine.shared().join("new")).unwrap();
    assert_eq!(made.count() as u64, NEW);
    machine.end();
}

/// The guest makes, writes, closes, removes and forgets each file. It gets messages about none of
/// that: a message for each would be more than the other requests. It gets messages about what the
/// host does.
#[test]
fn own_changes_cost_no_message() {
    const NEW: u64 = 200;
    if !own_changes_are_known() {
        return;
    }
    let mut machine = machine();
    machine.tell("mkdir new; ls new");
    let each = |work: &str| format!("i=0; while [ $i -lt {NEW} ]; do {work}; i=$((i + 1)); done");
    let number = requests(&mut machine, &each("echo $i >new/$i"));
    assert!((3 * NEW..=3 * NEW + OTHERS).contains(&number), "{number}");
    // After the write the attributes are asked for once.
    let number = requests(&mut machine, &each("chmod 600 new/$i"));
    assert!((2 * NEW..=2 * NEW + OTHERS).contains(&number), "{number}");
    let number = requests(&mut machine, "rm -r new");
    assert!((2 * NEW..=2 * NEW + OTHERS).contains(&number), "{number}");
    let before = sent(&machine);
    for new in 0..NEW {
        fs::write(machine.shared().join(format!("host{new}")), "x").unwrap();
    }
    let begun = Instant::now();
    while sent(&machine) < before + NEW {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    machine.end();
}

/// The request that would make a file finds that the name exists. After that, the guest looks names
/// up first for a while.
#[test]
fn names_that_exist_are_soon_looked_up_first() {
    const OLD: u64 = 60;
    let mut machine = machine();
    let old = machine.shared().join("old");
    fs::create_dir(&old).unwrap();
    for number in 0..OLD {
        fs::write(old.join(number.to_string()), "host\n").unwrap();
    }
    machine.tell("cd old");
    let append = format!("i=0; while [ $i -lt {OLD} ]; do echo guest >>$i; i=$((i + 1)); done");
    let number = requests(&mut machine, &append);
    // Looked up, opened, written, closed; the 1st, 10th and 27th were to be made.
    assert!((4 * OLD..=4 * OLD + OTHERS).contains(&number), "{number}");
    for number in 0..OLD {
        let text = fs::read_to_string(old.join(number.to_string())).unwrap();
        assert_eq!(text, "host\nguest\n");
    }
    machine.end();
}

/// The host has the name, and the guest has not asked: `gzip` makes its output with `O_EXCL`.
#[test]
fn a_file_of_the_host_is_not_made_again() {
    const HOST: &str = "of the host";
    let mut machine = machine();
    let shared = machine.shared();
    fs::write(shared.join("there"), "x").unwrap();
    fs::write(shared.join("there.gz"), HOST).unwrap();
    let said = machine.tell("printf '%s ' \"$(gzip there 2>&1)\"");
    assert!(said.contains("File exists"), "{said}");
    let kept = fs::read_to_string(shared.join("there.gz")).unwrap();
    assert_eq!(kept, HOST);
    machine.end();
}
