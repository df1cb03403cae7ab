// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use proptest::prelude::*;

fn read(lines: &str) -> Summary {
    let mut reader = Reader::new();
    for line in lines.lines() {
        reader.line(line);
    }
    reader.finish()
}

fn counts(s: &Summary) -> (usize, usize, usize, usize) {
    (s.passed, s.failed, s.skipped, s.problems.len())
}

#[test]
fn a_run_in_good_order_has_no_problems() {
    let s = read(
        "SeaBIOS\nTAP version 14\n1..3\nok 1 - a.b\n# why\nnot ok 2 - a.c\n\
         ok 3 - d.e # SKIP one vCPU",
    );
    assert_eq!(counts(&s), (1, 1, 1, 0));
    assert_eq!(s.planned, Some(3));
}

#[test]
fn the_version_may_follow_firmware_on_its_line() {
    let s = read("Booting from ROM..TAP version 14\n1..1\nok 1 - a\n");
    assert_eq!(counts(&s), (1, 0, 0, 0));
}

#[test]
fn comments_are_told_from_noise() {
    let mut reader = Reader::new();
    assert_eq!(reader.line("SeaBIOS (version 1.16)"), Event::Preamble);
    assert_eq!(
        reader.line("# layer: native 1.0"),
        Event::Comment("layer: native 1.0".into())
    );
    for line in ["TAP version 14", "1..1", "not ok 1 - one"] {
        reader.line(line);
    }
    assert_eq!(
        reader.line("# expected 1, got 2"),
        Event::Comment("expected 1, got 2".into())
    );
    assert_eq!(
        reader.line("  at: x.c:12"),
        Event::Comment("at: x.c:12".into())
    );
    assert_eq!(counts(&reader.finish()), (0, 1, 0, 0));
}

#[test]
fn tests_that_did_not_come_have_failed() {
    let s = read("TAP version 14\n1..5\nok 1 - a\nok 2 - b\n");
    assert_eq!(counts(&s), (2, 3, 0, 1));
    assert!(s.problems[0].contains("3 of 5"), "{:?}", s.problems);
}

#[test]
fn everything_out_of_order_is_a_problem() {
    for (what, lines) in [
        ("nothing at all", ""),
        ("no version", "1..1\nok 1 - a"),
        ("another version", "TAP version 13\n1..1\nok 1 - a"),
        ("no plan", "TAP version 14\nok 1 - a"),
        ("a late plan", "TAP version 14\nok 1 - a\n1..1"),
        ("two plans", "TAP version 14\n1..1\n1..1\nok 1 - a"),
        ("a bad plan", "TAP version 14\n1..+1\nok 1 - a"),
        (
            "an endless plan",
            "TAP version 14\n1..99999999999\nok 1 - a",
        ),
        ("a wrong number", "TAP version 14\n1..2\nok 1 - a\nok 3 - b"),
        ("a number again", "TAP version 14\n1..2\nok 1 - a\nok 1 - b"),
        ("a name again", "TAP version 14\n1..2\nok 1 - a\nok 2 - a"),
        ("too many", "TAP version 14\n1..1\nok 1 - a\nok 2 - b"),
        ("no number", "TAP version 14\n1..1\nok - a"),
        ("no name", "TAP version 14\n1..1\nok 1"),
        ("TODO", "TAP version 14\n1..1\nnot ok 1 - a # TODO later"),
        (
            "a skipped failure",
            "TAP version 14\n1..1\nnot ok 1 - a # SKIP x",
        ),
        ("noise", "TAP version 14\n1..1\nhello\nok 1 - a"),
        (
            "a glued line",
            "TAP version 14\n1..1\nok 1 - aok 2 - b\nokay",
        ),
        (
            "giving up",
            "TAP version 14\n1..1\nok 1 - a\nBail out! no memory",
        ),
        (
            "talk after giving up",
            "TAP version 14\n1..1\nBail out! x\nok 1 - a",
        ),
    ] {
        let s = read(lines);
        assert!(!s.problems.is_empty(), "{what}: {s:?}");
    }
}

#[test]
fn the_first_to_give_up_says_why() {
    for begin in ["", "TAP version 14\n1..0\n"] {
        let s = read(&format!(
            "{begin}Bail out! the reason\nBail out! what came of it\n"
        ));
        assert_eq!(s.problems, ["the guest gave up: the reason"]);
    }
}

#[test]
fn an_empty_plan_is_said() {
    let s = read("TAP version 14\n1..0 # SKIP nothing matches\n");
    assert_eq!(s.planned, Some(0));
    assert_eq!(counts(&s), (0, 0, 0, 0));
}

fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("TAP version 14".to_string()),
        (0usize..6).prop_map(|n| format!("1..{n}")),
        (0usize..6, "[a-c]", any::<bool>()).prop_map(|(n, name, ok)| {
            format!("{}ok {n} - {name}", if ok { "" } else { "not " })
        }),
        "(not )?ok [0-9 #-]*[a-zSKIP #.]*",
        "\\PC*",
    ]
}

proptest! {
    /// Any text can be read, and a run without problems had every planned test once, in order.
    #[test]
    fn any_text_is_read(lines in prop::collection::vec(any_line(), 0..12)) {
        let mut reader = Reader::new();
        let mut names = Vec::new();
        for line in &lines {
            if let Event::Test(test) = reader.line(line) {
                names.push(test.name);
            }
        }
        let s = reader.finish();
        if s.problems.is_empty() {
            prop_assert_eq!(s.planned, Some(names.len()));
            prop_assert_eq!(s.passed + s.failed + s.skipped, names.len());
            let distinct: HashSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
        } else {
            // Missing tests count as failed, so that an empty output cannot pass.
            prop_assert!(s.passed + s.failed + s.skipped >= s.planned.unwrap_or(0));
        }
    }
}
