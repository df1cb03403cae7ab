// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest sees the host's changes of a shared folder, and the host sees the guest's.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::volume_shell::Shell;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// After this time the guest sees a change of the host, whether that is reported or not.
const BOUND: Duration = Duration::from_secs(1);
/// On busy processors.
const SLACK: Duration = Duration::from_secs(1);

/// Half of the changes that are reported are seen within this time.
const PROMPT: Duration = Duration::from_millis(100);

/// What the host changes after the guest has looked, and how the guest sees it.
type Change = (&'static str, fn(&Path), &'static str, &'static str);

const CHANGES: [Change; 9] = [
    (
        "cat f",
        |f| fs::write(f.join("f"), "longer").unwrap(),
        "cat f",
        "longer",
    ),
    (
        "cat f",
        |f| fs::write(f.join("f"), "LONGER").unwrap(),
        "cat f",
        "LONGER",
    ),
    (
        "cat f",
        |f| fs::write(f.join("f"), "").unwrap(),
        "wc -c <f",
        "0",
    ),
    (
        "ls; cat new",
        |f| fs::write(f.join("new"), "n").unwrap(),
        "cat new; ls new",
        "nnew",
    ),
    (
        "cat new",
        |f| fs::rename(f.join("new"), f.join("f")).unwrap(),
        "cat f; ls",
        "nd\nf",
    ),
    (
        "ls -l f",
        |f| fs::set_permissions(f.join("f"), Permissions::from_mode(0o600)).unwrap(),
        "stat -c %a f",
        "600",
    ),
    (
        "ls d/e",
        |f| fs::write(f.join("d/e/deep"), "x").unwrap(),
        "ls d/e",
        "deep",
    ),
    (
        "ls -R",
        |f| fs::rename(f.join("d"), f.join("g")).unwrap(),
        "ls; ls g/e",
        "f\ng\ndeep",
    ),
    (
        "cat g/e/deep",
        |f| fs::remove_dir_all(f.join("g")).unwrap(),
        "ls",
        "f",
    ),
];

/// Names, attributes and contents that the guest keeps are those of the host a moment later.
#[test]
fn changes_of_the_host_are_seen_in_time() {
    for cache in ["auto", "none"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "short").unwrap();
        fs::create_dir_all(folder.path().join("d/e")).unwrap();
        let mut shell = Shell::new(&format!("{}:/x:cache={cache}", folder.path().display()));
        shell.says("cd /x; find . -type f -exec cat {} +; ls -lR");
        for (before, change, command, wanted) in CHANGES {
            shell.says(before);
            change(folder.path());
            let in_vain = shell.until(command, wanted);
            let late = in_vain.is_some_and(|time| time > BOUND + SLACK);
            assert!(!late, "{cache}: {command}: {in_vain:?}");
            // The guest asks each time for data that it does not keep.
            let asked = cache != "none" || in_vain.is_none();
            assert!(asked, "{cache}: {command}: {in_vain:?}");
        }
    }
}

/// The host has what the guest has written as soon as the guest's call returns, or has closed the
/// file; and neither side's changes undo the other's.
#[test]
fn changes_of_both_sides_meet() {
    for cache in ["auto", "none", "always"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        fs::write(&file, "host\n").unwrap();
        let mut shell = Shell::new(&format!("{}:/x:cache={cache}", folder.path().display()));
        shell.says("cd /x; cat f; ls");
        for turn in 0..20 {
            shell.says(&format!(
                "echo guest{turn} >>f; mkdir d{turn}; echo x >d{turn}/y"
            ));
            let seen = fs::read_to_string(&file).unwrap();
            assert!(seen.ends_with(&format!("guest{turn}\n")), "{cache}: {seen}");
            assert_eq!(
                fs::read(folder.path().join(format!("d{turn}/y"))).unwrap(),
                b"x\n"
            );
            if cache == "always" {
                continue;
            }
            let mut host = fs::OpenOptions::new().append(true).open(&file).unwrap();
            writeln!(host, "host{turn}").unwrap();
            shell.until("tail -n1 f", &format!("host{turn}"));
            fs::remove_dir_all(folder.path().join(format!("d{turn}"))).unwrap();
            shell.until(&format!("ls | grep -c d{turn}"), "0");
        }
        let all = fs::read_to_string(&file).unwrap();
        let expected = if cache == "always" { 21 } else { 41 };
        assert_eq!(all.lines().count(), expected, "{cache}: {all}");
    }
}

/// With `always` the guest asks only once, so it does not see what the host changes.
#[test]
fn a_folder_that_is_the_guests_alone_is_asked_for_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "first").unwrap();
    let mut shell = Shell::new(&format!("{}:/x:ro:cache=always", folder.path().display()));
    assert_eq!(shell.says("cd /x; ls; cat f"), "f\nfirst");
    fs::write(folder.path().join("f"), "other").unwrap();
    std::thread::sleep(BOUND);
    assert_eq!(shell.says("ls; cat f"), "f\nfirst");
}

/// Changes are reported at once, not only after the time for which the guest keeps what it knows.
#[test]
fn most_changes_of_the_host_are_seen_within_a_tenth_of_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    fs::write(&file, "first").unwrap();
    let mut shell = Shell::new(&format!("{}:/x", folder.path().display()));
    shell.says("cd /x");
    let mut times: Vec<Duration> = (0..21)
        .map(|turn| {
            shell.says("cat f; stat f; ls");
            let text = format!("turn {turn}");
            fs::write(&file, &text).unwrap();
            let begun = Instant::now();
            shell.until("cat f", &text);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{times:?}");
    assert!(times[times.len() / 2] < PROMPT, "{times:?}");
}
