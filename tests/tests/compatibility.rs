// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The test suites of popular programs, in a guest and on the host, in the same Debian. The
//! verdicts must be the same, except for the differences that compat/differences.txt explains. A
//! kernel's own tests have no host to compare with: all must pass, except those explained. Takes
//! hours, root, and a package mirror: `make test-release` runs it.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{compat, program, vm};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The verdict on each part of a suite.
type Verdicts = BTreeMap<String, String>;

/// Numbers of vCPUs in place of [`CPUS`], with commas between them.
const FEWER: &str = "PARAVANE_TEST_CPUS";
/// vCPUs of the guests, each of which runs each suite.
const CPUS: [u32; 3] = [1, 4, 16];

/// Variables that this test passes on to a suite if they are set: see docs/compatibility.md.
const SETTINGS: [&str; 2] = ["GIT_ALL", "STRESS_SECONDS"];

/// The longest that a suite may take, with all of its parts and on the slowest host.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

static ALONE: Mutex<()> = Mutex::new(());

fn verdicts(output: &str) -> Verdicts {
    output
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("verdict ")?.split(' ');
            Some((words.next()?.to_string(), words.next()?.to_string()))
        })
        .collect()
}

/// Runs a suite and keeps its output.
fn output(command: &mut Command, log: &Path) -> Verdicts {
    let done = program::finish_within(command, LONGEST);
    let ended = done.is_ok();
    let run = done.unwrap_or_else(|run| run);
    let text = format!("{}\n{}\n{}\n", run.stdout, run.stderr, run.code);
    fs::write(log, text).unwrap();
    assert!(ended, "not done in {LONGEST:?}: see {}", log.display());
    verdicts(&run.stdout)
}

/// The command that runs a suite, in the guest or on the host.
fn words(name: &str) -> Vec<String> {
    let set = |setting: &&str| Some(format!("{setting}={}", std::env::var(setting).ok()?));
    let mut words = vec!["env".to_string()];
    words.extend(SETTINGS.iter().filter_map(set));
    words.extend(["sh".to_string(), format!("/suites/{name}.sh")]);
    words
}

/// Part, host's verdict and guest's verdict of the explained differences.
fn explained(suite: &str) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(compat::source().join("differences.txt")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    // The reason follows on indented lines.
    let reason = |line: Option<&&str>| line.is_some_and(|l| l.starts_with(' '));
    let entries = lines.iter().enumerate().filter(|(_, l)| !reason(Some(l)));
    entries
        .filter_map(|(n, line)| {
            assert!(
                reason(lines.get(n + 1)),
                "a difference without a reason: {line}"
            );
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.len(), 4, "not SUITE PART HOST GUEST: {line}");
            (words[0] == suite).then(|| (words[1].into(), words[2].into(), words[3].into()))
        })
        .collect()
}

fn differences(host: &Verdicts, guest: &Verdicts) -> Vec<(String, String, String)> {
    let missing = "missing".to_string();
    let all: std::collections::BTreeSet<_> = host.keys().chain(guest.keys()).collect();
    // A part may need more processors than the host has.
    let more = |part| {
        host.get(part).is_some_and(|v| v == "skip") && guest.get(part).is_some_and(|v| v == "pass")
    };
    all.into_iter()
        .filter(|part| host.get(*part) != guest.get(*part) && !more(*part))
        .map(|part| {
            let of = |verdicts: &Verdicts| verdicts.get(part).unwrap_or(&missing).clone();
            (part.clone(), of(host), of(guest))
        })
        .collect()
}

/// What the guest's verdicts are compared with.
enum With {
    /// The verdicts of the same suite on the host.
    Host,
    /// Nothing: the suite tests the kernel itself, so all of it should pass.
    Passing,
}

fn cpus() -> Vec<u32> {
    match std::env::var(FEWER) {
        Ok(list) => list.split(',').map(|cpus| cpus.parse().unwrap()).collect(),
        Err(_) => CPUS.to_vec(),
    }
}

/// The verdicts of a guest.
fn in_guest(name: &str, memory: &str, cpus: u32, folder: &Path) -> Verdicts {
    let image = format!("{}:snapshot", folder.join("root.ext4").display());
    let volume = format!("{}:/suites:ro", compat::source().join("suites").display());
    let cpus = cpus.to_string();
    let options = [
        "--rootfs", &image, "--volume", &volume, "--cpus", &cpus, "--memory", memory,
    ];
    output(
        vm::command(options).arg("--").args(words(name)),
        &folder.join(format!("{name}.guest-{cpus}.log")),
    )
}

/// The verdicts of the host, or those that a guest should have without one.
fn wanted(name: &str, with: &With, folder: &Path, guest: &Verdicts) -> Verdicts {
    match with {
        With::Host => output(
            Command::new(compat::source().join("on-host.sh"))
                .arg(folder.join("root"))
                .arg(compat::source().join("suites"))
                .args(words(name)),
            &folder.join(format!("{name}.host.log")),
        ),
        With::Passing => guest
            .keys()
            .map(|part| (part.clone(), "pass".to_string()))
            .collect(),
    }
}

/// Runs a suite in guests with few and many vCPUs. At least this many parts must pass in each.
fn suite(name: &str, memory: &str, with: &With, least: usize) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = compat::prepared();
    let expected = explained(name);
    let mut host = None;
    let mut stale = expected.clone();
    for cpus in cpus() {
        let guest = in_guest(name, memory, cpus, &folder);
        let host = host.get_or_insert_with(|| wanted(name, with, &folder, &guest));
        let passed = guest.values().filter(|v| *v == "pass").count();
        let found = differences(host, &guest);
        println!(
            "{name}, {cpus} vCPUs: {} parts, {passed} pass in the guest, {} differ",
            guest.len(),
            found.len()
        );
        let unexpected: Vec<_> = found.iter().filter(|d| !expected.contains(d)).collect();
        assert!(
            unexpected.is_empty(),
            "{name}, {cpus} vCPUs (part, host, guest): {unexpected:?}; see {}",
            folder.display()
        );
        assert!(
            passed >= least,
            "{name}, {cpus} vCPUs: only {passed} passed, {least} is the least"
        );
        stale.retain(|d| !found.contains(d));
    }
    // A difference may need several vCPUs, or one alone.
    assert!(
        stale.is_empty(),
        "differences.txt explains what is not so: {stale:?}"
    );
}

#[test]
#[ignore = "an hour: make test-release"]
fn cpython() {
    suite("cpython", "3G", &With::Host, 350);
}

#[test]
#[ignore = "minutes: make test-release"]
fn zlib() {
    suite("zlib", "1G", &With::Host, 3);
}

#[test]
#[ignore = "an hour: make test-release"]
fn git() {
    suite("git", "2G", &With::Host, 200);
}

#[test]
#[ignore = "an hour: make test-release"]
fn perl() {
    suite("perl", "2G", &With::Host, 450);
}

#[test]
#[ignore = "an hour: make test-release"]
fn stress() {
    suite("stress", "2G", &With::Host, 170);
}

#[test]
#[ignore = "minutes: make test-release"]
fn languages() {
    suite("languages", "2G", &With::Host, 8);
}

#[test]
#[ignore = "half an hour: make test-release"]
fn go() {
    suite("go", "6G", &With::Host, 750);
}

#[test]
#[ignore = "minutes: make test-release"]
fn node() {
    suite("node", "6G", &With::Host, 800);
}

#[test]
#[ignore = "minutes: make test-release"]
fn jvm() {
    suite("jvm", "2G", &With::Host, 9);
}

#[test]
#[ignore = "minutes: make test-release"]
fn debuggers() {
    suite("debuggers", "1G", &With::Host, 8);
}

#[test]
#[ignore = "an hour: make test-release"]
fn kselftest() {
    suite("kselftest", "3G", &With::Passing, 105);
}
