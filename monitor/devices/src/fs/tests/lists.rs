// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of folders, and their ends.

use super::notices::Told;
use super::*;
use std::collections::BTreeSet;

const READDIR: u32 = 28;
const READDIRPLUS: u32 = 44;
/// `struct fuse_entry_out`, before an entry that has attributes.
const ATTRIBUTES: usize = 128;
/// `struct fuse_dirent` without the name.
const ENTRY: usize = 24;

/// `struct fuse_read_in`.
fn read(offset: u64, size: u32) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend(offset.to_le_bytes());
    body.extend(bytes(&[size, 0, 0, 0, 0, 0]));
    body
}

/// The entries of an answer, the position after them, and what comes then.
fn entries(answer: &[u8], plus: bool) -> (Vec<String>, u64, &[u8]) {
    let before = if plus { ATTRIBUTES } else { 0 };
    let (mut names, mut position, mut rest) = (Vec::new(), 0, answer);
    while rest.len() >= before + ENTRY {
        let entry = &rest[before..];
        let length = u32::from_le_bytes(entry[16..20].try_into().unwrap()) as usize;
        names.push(String::from_utf8(entry[ENTRY..ENTRY + length].to_vec()).unwrap());
        position = long(entry, 8);
        rest = &rest[before + (ENTRY + length).next_multiple_of(8)..];
    }
    (names, position, rest)
}

/// The parts of a list: the number of entries in each, and what came after them.
fn parts(
    mut ask: impl FnMut(u32, &[u8]) -> Vec<u8>,
    plus: bool,
    size: u32,
) -> (BTreeSet<String>, Vec<(usize, Vec<u8>)>) {
    let operation = if plus { READDIRPLUS } else { READDIR };
    let (mut all, mut parts, mut position) = (BTreeSet::new(), Vec::new(), 0);
    loop {
        let answer = ask(operation, &read(position, size));
        let (names, next, rest) = entries(&answer, plus);
        parts.push((names.len(), rest.to_vec()));
        if names.is_empty() || !rest.is_empty() {
            return (all, parts);
        }
        for name in names {
            assert!(all.insert(name.clone()), "{name} twice");
        }
        position = next;
    }
}

/// A folder, and what its list has.
fn folder(files: usize, word: &str) -> (tempfile::TempDir, BTreeSet<String>) {
    let folder = tempfile::tempdir().unwrap();
    let mut names: BTreeSet<_> = (0..files).map(|number| format!("{word}{number}")).collect();
    for name in &names {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    names.extend([".", ".."].map(String::from));
    (folder, names)
}

/// The marks after the last part of a list: that it is the last, and that names which come up will
/// be reported, too.
const END: &[u8] = b"laxesend";
const WHOLE: &[u8] = b"alswhole";

/// The last part of a list has the mark of the end for the project's kernel, which takes messages,
/// and no other part has it. Only a list with attributes is marked as complete.
#[test]
fn the_last_part_of_a_list_says_so() {
    // Short names take no more of the host's list than `.` does.
    for (files, word, plus, size) in [
        (5, "file", true, 4096),
        (5, "f", false, 4096),
        (200, "file", true, 4096),
        (200, "f", true, 4096),
        (200, "file", false, 2048),
        (200, "f", false, 1024),
    ] {
        let what = format!("{files} files, {word}, {plus}, {size}");
        let (folder, names) = folder(files, word);
        let mut told = Told::new(folder.path());
        let mut last = BTreeSet::new();
        let (seen, all) = parts(
            |operation, body| {
                let answer = told.answer(operation, ROOT, body);
                last.extend(entries(&answer, plus).0);
                answer
            },
            plus,
            size,
        );
        assert!(all.len() > files / 100, "{what}: {all:?}");
        let (end, before) = all.split_last().unwrap();
        let mark = if plus { WHOLE } else { END };
        assert!(end.0 > 0 && end.1 == mark, "{what}: {all:?}");
        let unmarked = before
            .iter()
            .all(|(number, rest)| *number > 0 && rest.is_empty());
        assert!(unmarked, "{what}: {all:?}");
        assert!(seen.is_subset(&last) && last == names, "{what}");
    }
}

/// Other kernels ask until they get an empty answer.
#[test]
fn a_list_ends_without_a_mark_for_other_kernels() {
    let (folder, names) = folder(50, "file");
    let (seen, all) = confined(folder.path(), Access::Write, |sender| {
        parts(
            |operation, body| sender.ok(operation, ROOT, body),
            true,
            4096,
        )
    });
    assert_eq!(seen, names);
    assert_eq!(all.last(), Some(&(0, vec![])), "{all:?}");
    assert!(all.iter().all(|(_, rest)| rest.is_empty()), "{all:?}");
}

/// Both come first, whatever the size of the buffer, and have the offsets at which the list
/// continues.
#[test]
fn an_empty_folder_has_two_entries() {
    let empty = tempfile::tempdir().unwrap();
    for plus in [true, false] {
        let operation = if plus { READDIRPLUS } else { READDIR };
        let mut told = Told::new(empty.path());
        let answer = told.answer(operation, ROOT, &read(0, 4096));
        let (names, after, rest) = entries(&answer, plus);
        assert_eq!((names.join(" ").as_str(), rest), (". ..", END));
        assert!(told.answer(operation, ROOT, &read(after, 4096)).is_empty());
        // Room for one of them.
        let room = if plus {
            ATTRIBUTES + 2 * ENTRY
        } else {
            2 * ENTRY
        };
        let (_, all) = parts(
            |operation, body| told.answer(operation, ROOT, body),
            plus,
            u32::try_from(room).unwrap(),
        );
        let expected = [(1, vec![]), (1, END.to_vec())];
        assert_eq!(all, expected, "{plus}");
        let (seen, all) = confined(empty.path(), Access::Write, |sender| {
            parts(
                |operation, body| sender.ok(operation, ROOT, body),
                plus,
                4096,
            )
        });
        assert_eq!(seen.len(), 2);
        assert_eq!(all, [(2, vec![]), (0, vec![])], "{plus}");
    }
}

/// A folder with names without letters, or in both cases, does not show whether the file system
/// distinguishes case.
#[test]
fn names_without_a_case_do_not_say_that_all_are_known() {
    for names in [["1", "2."], ["a", "A"]] {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let mut told = Told::new(folder.path());
        let (_, all) = parts(
            |operation, body| told.answer(operation, ROOT, body),
            true,
            4096,
        );
        assert_eq!(all.last().unwrap().1, END, "{names:?}");
    }
}

/// A list whose beginning the guest did not get is not marked as complete.
#[test]
fn a_list_from_the_middle_is_not_whole() {
    let (folder, _) = folder(20, "file");
    let mut told = Told::new(folder.path());
    let first = told.answer(READDIRPLUS, ROOT, &read(0, 1024));
    let (_, position, rest) = entries(&first, true);
    assert!(rest.is_empty());
    // The list continues, and is then read a second time.
    for mark in [WHOLE, END] {
        let answer = told.answer(READDIRPLUS, ROOT, &read(position, 8000));
        assert_eq!(entries(&answer, true).2, mark);
    }
}

/// The answer to the project's kernel says that a folder which it has made is empty.
#[test]
fn a_new_folder_is_known_to_be_empty() {
    /// `FUSE_ATTR_EMPTY`, and the place of the flags in `struct fuse_entry_out`.
    const EMPTY: u32 = 1 << 30;
    const FLAGS: usize = 40 + 84;
    let make = |name: &str| [&bytes(&[0o755, 0]), name.as_bytes(), b"\0"].concat();
    let flags = |answer: &[u8]| u32::from_le_bytes(answer[FLAGS..FLAGS + 4].try_into().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut told = Told::new(folder.path());
    for (name, known) in [("new", EMPTY), ("12", 0)] {
        let answer = told.answer(MKDIR, ROOT, &make(name));
        assert_eq!(flags(&answer) & EMPTY, known, "{name}");
    }
    // The answer to a lookup does not have the flag.
    let answer = told.answer(LOOKUP, ROOT, b"new\0");
    assert_eq!(flags(&answer) & EMPTY, 0);
    let other = tempfile::tempdir().unwrap();
    let seen = confined(other.path(), Access::Write, |sender| {
        flags(&sender.ok(MKDIR, ROOT, &make("new")))
    });
    assert_eq!(seen & EMPTY, 0, "another kernel");
}
