// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that a guest leaves out in a shared folder, because it knows the folder's names or does
//! not wait for the answer. Counts, as in `volume_counts.rs`.

use paravane_tests::volume::{
    FILES, FOLDERS, OTHERS, figure, machine, machine_with, own_changes_are_known, requests, switch,
};

/// The shell closes a file that it has made and written with the next request.
#[test]
fn a_close_takes_no_notification() {
    const NEW: u64 = 400;
    let mut machine = machine();
    machine.tell("mkdir new; ls new");
    let before = figure(&machine, "notifications");
    let work = format!("i=0; while [ $i -lt {NEW} ]; do echo $i >new/$i; i=$((i + 1)); done");
    let number = requests(&mut machine, &work);
    let notifications = figure(&machine, "notifications") - before;
    println!("{notifications} notifications");
    assert!(number >= 3 * NEW, "{number}");
    // Created and written; a close by itself is sent after 10 ms or more.
    assert!(notifications < 2 * NEW + NEW / 2, "{notifications}");
    machine.end();
}

/// A folder that the guest has just made has no names that it must ask for.
#[test]
fn what_is_copied_is_not_looked_up() {
    const ALL: u64 = FOLDERS * FILES;
    if !own_changes_are_known() {
        return;
    }
    let mut machine = machine();
    machine.does("find . -type f -size +8k");
    // All of it is read already, so each copy has the same to do.
    machine.does("grep -r no_such_word .");
    machine.does("mkdir to");
    let mut numbers = [false, true].map(|on| {
        switch(&mut machine, "whole_folders", on);
        requests(&mut machine, &format!("mkdir to/{on}; cp -r d* to/{on}"))
    });
    assert!(numbers[1] + ALL <= numbers[0], "{numbers:?}");
    // Made, written, closed.
    assert!(numbers[1] <= 3 * ALL + 4 * FOLDERS + OTHERS, "{numbers:?}");
    numbers = [false, true].map(|on| {
        switch(&mut machine, "whole_folders", on);
        let copy = format!("mkdir to/t{on}; tar c d* | (cd to/t{on}; tar x)");
        requests(&mut machine, &copy)
    });
    assert!(numbers[1] + ALL <= numbers[0], "{numbers:?}");
    // `tar` sets owner, mode and time. It looks at the folder above each file, and asks for no
    // capabilities of what it has just made.
    assert!(numbers[1] <= 7 * ALL + 6 * FOLDERS + OTHERS, "{numbers:?}");
    machine.end();
}

/// A listed folder has no such names either, until a name may have been added.
#[test]
fn names_that_a_listed_folder_lacks_are_not_looked_up() {
    const NAMES: u64 = 100;
    let mut machine = machine();
    machine.does("find . -type f -size +8k");
    let look = format!("i=0; while [ $i -lt {NAMES} ]; do [ -e d0/no$i ]; i=$((i + 1)); done");
    let known = requests(&mut machine, &look);
    assert!(known <= OTHERS, "{known}");
    // A name that goes from memory is not forgotten.
    machine.does("echo 2 >/proc/sys/vm/drop_caches");
    let asked = requests(&mut machine, &look);
    assert!(asked >= NAMES, "{asked}");
    machine.does("ls d0 >/dev/null");
    assert_eq!(machine.tell("[ -e d0/f3 ] && printf yes"), "yes\n");
    machine.end();
    let mut machine = machine_with(":cache=none");
    machine.does("find . -type f -size +8k");
    let asked = requests(&mut machine, &look);
    assert!(asked >= NAMES, "{asked}");
    machine.end();
}

/// A file that was read in vain, because its pages were dropped before a program read it, does not
/// count.
#[test]
fn files_whose_pages_are_gone_bring_few_others() {
    /// The largest credit, in files.
    const CREDIT: u64 = 32;
    const ALL: u64 = FOLDERS * FILES;
    let mut machine = machine();
    machine.does("find . -type f -size +8k");
    switch(&mut machine, "read_nearby", true);
    let each = "for f in d*/*; do cat $f >/dev/null; echo 1 >/proc/sys/vm/drop_caches; done";
    let number = requests(&mut machine, each);
    assert!(number >= ALL, "{number}");
    assert!(number <= ALL + CREDIT + ALL / 8 + OTHERS, "{number}");
    machine.end();
}
