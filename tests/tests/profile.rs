// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane profile`: where the time of a machine's vCPUs goes.
//!
//! A busy host leaves a machine less than its time. So shares are compared with the time that the
//! host gave, not with the whole.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::host_without::{Host, Programs};
use paravane_tests::skip::{skip, skip_part};
use paravane_tests::user::User;
use paravane_tests::{linux, program, vm};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A program in user mode, without system calls.
const PROGRAM: &str = "while :; do :; done";
/// System calls that clear memory, on the last vCPU.
const KERNEL: &str = "exec taskset $((1 << ($(nproc) - 1))) dd if=/dev/zero of=/dev/null bs=1M";
/// Nothing.
const IDLE: &str = "sleep 100000";

/// The profile of a machine.
#[derive(Debug)]
struct Profile(Value);

impl Profile {
    /// `None` if this host allows no perf and it was asked for.
    fn of(user: &User, name: &str, source: &str) -> Option<Self> {
        let words = [
            "profile",
            "--seconds",
            "2",
            "--json",
            "--source",
            source,
            name,
        ];
        let run = user.run(&words);
        if source == "perf" && run.code == 2 && run.stderr.contains("perf may not be used") {
            assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
            skip_part(&format!("this host allows no perf: {}", run.stderr));
            return None;
        }
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        let profile = Profile(serde_json::from_str(&run.stdout).unwrap());
        assert_eq!(profile.0["source"], source);
        profile.check();
        Some(profile)
    }

    /// What is true of every profile.
    fn check(&self) {
        assert!(self.0["seconds"].as_f64() >= Some(2.0), "{self:?}");
        let vcpus = self.0["vcpus"].as_array().unwrap();
        for shares in vcpus.iter().chain([&self.0["all"]]) {
            let parts = ["guest_and_layer", "host_kernel", "ready", "waiting"];
            let sum: f64 = parts
                .map(|part| shares[part].as_f64().unwrap())
                .iter()
                .sum();
            assert!((sum - 100.0).abs() < 0.01, "{self:?}");
        }
        for (list, share) in [
            ("guest_kernel", "guest_kernel"),
            ("layer", "layer"),
            ("host_kernel", "host_kernel"),
        ] {
            let rows: f64 = self.rows(list).map(|(_, percent)| percent).sum();
            let share = self.0["all"][share].as_f64().unwrap_or(0.0);
            assert!(rows <= share + 0.01, "{list}: {self:?}");
        }
        let counted = self.0["counters"].as_array().unwrap();
        let calls = counted.iter().find(|row| row["name"] == "host_calls");
        let calls = calls.unwrap();
        assert_eq!(calls["vcpus"].as_array().unwrap().len(), vcpus.len());
        let threads: Vec<_> = self.rows("monitor").map(|(name, _)| name).collect();
        for name in ["watch", "supervisor", "(zygote)"] {
            assert!(threads.contains(&name), "{threads:?}");
        }
    }

    /// A share of the time that the host gave, in percent.
    fn share(&self, name: &str) -> f64 {
        Self::share_of(&self.0["all"], name)
    }

    /// A share of the time that the host gave to one vCPU, in percent.
    fn share_on(&self, vcpu: usize, name: &str) -> f64 {
        Self::share_of(&self.0["vcpus"][vcpu], name)
    }

    fn share_of(shares: &Value, name: &str) -> f64 {
        let given = 100.0 - shares["ready"].as_f64().unwrap();
        100.0 * shares[name].as_f64().unwrap() / given
    }

    fn rows(&self, list: &str) -> impl Iterator<Item = (&str, f64)> {
        let rows = self.0[list].as_array().unwrap().iter();
        rows.map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["percent"].as_f64().unwrap(),
            )
        })
    }

    fn notes(&self) -> String {
        self.0["notes"].to_string()
    }
}

#[test]
fn a_busy_program() {
    let user = User::new();
    user.detach(&["--name", "one"], PROGRAM);
    if let Some(profile) = Profile::of(&user, "one", "perf") {
        assert!(profile.share("programs") >= 70.0, "{profile:?}");
        assert!(profile.0["samples"].as_u64() > Some(50), "{profile:?}");
        assert_eq!(profile.0["lost"], 0, "{profile:?}");
        // Its kernel's clock ticks.
        let counted = profile.0["counters"].as_array().unwrap().iter();
        let mut ticks = counted.filter(|row| row["name"] == "interrupt");
        assert!(
            ticks.any(|row| row["total"].as_u64() > Some(0)),
            "{profile:?}"
        );
    }
    let profile = Profile::of(&user, "one", "counters").unwrap();
    assert!(profile.share("guest_and_layer") >= 70.0, "{profile:?}");
    assert!(profile.0["all"]["programs"].is_null() && profile.0["samples"] == 0);
    assert!(profile.notes().contains("not told apart"), "{profile:?}");
}

#[test]
fn a_busy_kernel() {
    let user = User::new();
    user.detach(&["--name", "one", "--cpus", "2"], KERNEL);
    if let Some(profile) = Profile::of(&user, "one", "perf") {
        assert!(profile.share_on(1, "guest_kernel") >= 70.0, "{profile:?}");
        assert!(profile.share_on(1, "programs") < 10.0, "{profile:?}");
        // Which function clears memory depends on the processor.
        let clears = |name: &str| ["zero", "clear", "stos"].iter().any(|w| name.contains(w));
        let mut top = profile.rows("guest_kernel").take(3);
        assert!(top.any(|(name, _)| clears(name)), "{profile:?}");
        assert!(profile.share_on(0, "waiting") >= 70.0, "{profile:?}");
    }
    let profile = Profile::of(&user, "one", "counters").unwrap();
    assert!(
        profile.share_on(1, "guest_and_layer") >= 70.0,
        "{profile:?}"
    );
    assert!(profile.share_on(0, "waiting") >= 70.0, "{profile:?}");
}

#[test]
fn an_idle_machine() {
    let user = User::new();
    user.detach(&["--name", "one", "--cpus", "2"], IDLE);
    // The guest's kernel has things to do after its start.
    std::thread::sleep(Duration::from_secs(2));
    for source in ["perf", "counters"] {
        if let Some(profile) = Profile::of(&user, "one", source) {
            assert!(profile.share("waiting") >= 90.0, "{profile:?}");
        }
    }
    let text = user.ok(&["profile", "--seconds", "1", "one"]);
    assert!(
        text.starts_with("one: ") && text.contains("2 vCPUs"),
        "{text}"
    );
    for word in ["waiting", "vCPU 1", "monitor: threads", "counted"] {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
}

/// The monitor has the kernel's file open, so the file may be removed. If its contents have
/// changed, the symbols would be wrong.
#[test]
fn only_the_kernel_that_was_started_has_symbols() {
    let user = User::new();
    let kernel = user.folder().join("vmlinux");
    fs::copy(vm::kernel().unwrap_or_else(linux::kernel), &kernel).unwrap();
    let path = kernel.display().to_string();
    let mut command = program::command();
    command.args(["run", "--detach", "--name", "one", "--kernel", &path]);
    command
        .args(["--", "sh", "-c", KERNEL])
        .env("XDG_STATE_HOME", user.folder());
    let run = program::finish(&mut command);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&kernel)
        .unwrap();
    fs::remove_file(&kernel).unwrap();
    let Some(profile) = Profile::of(&user, "one", "perf") else {
        skip("this host allows no perf");
        return;
    };
    assert!(profile.rows("guest_kernel").count() > 0, "{profile:?}");
    assert!(!profile.notes().contains("guest's kernel"), "{profile:?}");

    change_build_id(&file);
    let profile = Profile::of(&user, "one", "perf").unwrap();
    assert_eq!(profile.rows("guest_kernel").count(), 0, "{profile:?}");
    assert!(profile.share("guest_kernel") >= 50.0, "{profile:?}");
    let notes = profile.notes();
    assert!(notes.contains("has been overwritten since"), "{notes}");
    file.set_len(100).unwrap();
    let profile = Profile::of(&user, "one", "perf").unwrap();
    let notes = profile.notes();
    assert!(
        notes.contains("no functions of the guest's kernel"),
        "{notes}"
    );
}

/// Changes the first byte of the build ID in a kernel's file.
fn change_build_id(file: &fs::File) {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // Lengths of the name and of the ID, the type, the name.
    let mut note = Vec::new();
    for word in [4u32, 20, 3] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"GNU\0");
    let found = bytes
        .windows(note.len())
        .enumerate()
        .filter(|(_, w)| *w == note);
    for (at, _) in found {
        let at = at + note.len();
        file.write_all_at(&[bytes[at] ^ 1], at.try_into().unwrap())
            .unwrap();
    }
}

#[test]
fn machines_that_cannot_be_watched() {
    let user = User::new();
    user.refused(&["profile", "nobody"], "no machine nobody");
    user.detach(&["--name", "one"], "sleep 20");
    let begun = Instant::now();
    user.refused(
        &["profile", "--seconds", "600", "one"],
        "machine one ended while it was watched",
    );
    assert!(begun.elapsed() < Duration::from_secs(60));
    user.refused(&["profile", "one"], "machine one is not running");
    for (option, value, part) in [
        ("--seconds", "0", "1 to 600 are"),
        ("--seconds", "601", "1 to 600 are"),
        ("--frequency", "0", "1 to 10000 are"),
        ("--frequency", "10001", "1 to 10000 are"),
        ("--top", "0", "1 to 10000 are"),
        ("--source", "guess", "auto, perf, counters"),
    ] {
        user.refused(&["profile", option, value, "one"], part);
    }
}

/// The machine of an ordinary user: for that user, with and without the right to use perf, for root
/// and for another user.
#[test]
fn a_machine_of_an_ordinary_user() {
    let programs = Programs::new(&[]);
    let folder = programs.folder();
    fs::copy(
        vm::kernel().unwrap_or_else(linux::kernel),
        folder.join("vmlinux"),
    )
    .unwrap();
    for host in [Host::User, Host::NoNamespaces] {
        let state = folder.join(format!("{host:?}"));
        fs::create_dir(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(host.user()), None).unwrap();
        let on = |command: &mut Command, words: &[&str]| {
            program::finish(
                command
                    .args(words)
                    .env("XDG_STATE_HOME", &state)
                    .env("HOME", &state),
            )
        };
        let words = ["run", "--detach", "--name", "one", "--kernel"];
        let mut command = programs.on(host, "paravane");
        command.args(words).arg(folder.join("vmlinux"));
        let run = on(&mut command, &["--", "sh", "-c", KERNEL]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        let words = ["profile", "--seconds", "2", "--json", "one"];
        let run = on(&mut programs.on(host, "paravane"), &words);
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (0, ""),
            "{host:?}: {run:?}"
        );
        let profile = Profile(serde_json::from_str(&run.stdout).unwrap());
        profile.check();
        assert!(profile.share("guest_and_layer") >= 50.0, "{profile:?}");
        if profile.0["source"] == "counters" {
            assert!(
                profile.notes().contains("perf may not be used"),
                "{profile:?}"
            );
        }
        if host == Host::NoNamespaces && !may_watch_all() {
            assert_eq!(profile.0["source"], "counters", "{profile:?}");
        }
        if is_root() {
            let run = on(&mut Command::new(programs.path("paravane")), &words);
            assert_eq!(
                (run.code, run.stderr.as_str()),
                (0, ""),
                "{host:?}: {run:?}"
            );
            another_user(&programs, &state);
        }
        let run = on(&mut programs.on(host, "paravane"), &["kill", "one"]);
        assert_eq!(run.code, 0, "{run:?}");
    }
}

/// A third user gets one line.
fn another_user(programs: &Programs, state: &Path) {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(programs.path("paravane"));
    command
        .args(["profile", "one"])
        .env("XDG_STATE_HOME", state)
        .uid(65_533)
        .gid(65_533);
    let run = program::finish(&mut command);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(run.stderr.contains("no machine one"), "{run:?}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// On this host any user may watch whole CPUs.
fn may_watch_all() -> bool {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    level.trim().parse::<i32>().is_ok_and(|level| level <= 0)
}
