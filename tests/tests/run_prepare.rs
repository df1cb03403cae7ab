// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine may take long to prepare: its kernel is built if there is none. The deadlines of the
//! machine count from its start, and a machine in preparation blocks no other command.
//!
//! The test uses a cache without a kernel, in which another process seems to build one: `run` waits
//! for that build as long as the test likes, and then finds its result.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::linux;
use paravane_tests::program::{self, Run};
use paravane_tests::user::User;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any machine here lives.
const TIMEOUT: Duration = Duration::from_secs(15);
/// For a command that waits for nothing.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A kernel that is being built.
struct Build {
    cache: TempDir,
    /// Locked as long as the build runs.
    lock: File,
}

impl Build {
    fn new() -> Self {
        let kernel = linux::kernel();
        // CACHE/paravane/kernel/KEY/vmlinux
        let (results, key) = (kernel.ancestors().nth(2).unwrap(), kernel.parent().unwrap());
        let cache = tempfile::tempdir().unwrap();
        let ours = cache.path().join("paravane/kernel");
        fs::create_dir_all(&ours).unwrap();
        for entry in fs::read_dir(results).unwrap() {
            let entry = entry.unwrap();
            let (from, to) = (entry.path(), ours.join(entry.file_name()));
            if from == key || entry.file_name() == "source" {
                symlink(from, to).unwrap();
            } else if entry.file_type().unwrap().is_file() {
                // Such as the hash of the source, which is cached.
                fs::copy(from, to).unwrap();
            }
        }
        let others = results.parent().unwrap();
        for entry in fs::read_dir(others).unwrap() {
            let entry = entry.unwrap();
            if entry.path() != results {
                symlink(
                    entry.path(),
                    cache.path().join("paravane").join(entry.file_name()),
                )
                .unwrap();
            }
        }
        let lock = File::create(ours.join("lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        Build { cache, lock }
    }

    fn cache(&self) -> &Path {
        self.cache.path()
    }

    /// Makes the build take a time while `child` waits for it. Returns the output of `child`.
    fn takes(self, time: Duration, mut child: Child) -> Run {
        std::thread::sleep(time);
        assert!(
            child.try_wait().unwrap().is_none(),
            "it did not wait for the build"
        );
        flock(&self.lock, FlockOperation::Unlock).unwrap();
        program::finish_child(child)
    }
}

fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A machine whose kernel takes a time to build.
fn machine(options: &[&str], time: Duration) {
    let build = Build::new();
    let mut command = program::command();
    command
        .arg("run")
        .args(options)
        .args(["--", "echo", "here"]);
    let child = start(command.env("XDG_CACHE_HOME", build.cache()));
    let run = build.takes(time, child);
    assert_eq!((run.code, run.stdout.as_str()), (0, "here\n"), "{run:?}");
    // A line soon, and one every ten seconds; the machine itself adds none.
    let lines = lines_of_progress(&run);
    let seconds = time.as_secs();
    assert!(
        (1 + seconds / 20..=3 + seconds / 10).contains(&lines),
        "{lines} lines in {seconds} s: {run:?}"
    );
}

/// The number of lines on stderr. Each must be one of the progress of what is made ready.
fn lines_of_progress(run: &Run) -> u64 {
    for line in run.stderr.lines() {
        let step = line.strip_prefix("paravane: ").unwrap_or_default();
        let known = [
            "waiting for another build of Linux before this program's, ",
            "reading ",
        ];
        assert!(
            known.iter().any(|k| step.starts_with(k)) && step.ends_with(" so far"),
            "{run:?}"
        );
    }
    run.stderr.lines().count() as u64
}

#[test]
fn a_machines_time_begins_with_the_machine() {
    let seconds = TIMEOUT.as_secs().to_string();
    machine(&["--timeout", &seconds], TIMEOUT + Duration::from_secs(1));
}

#[test]
#[ignore = "a minute: make test-release"]
fn the_time_to_boot_begins_with_the_machine() {
    machine(&[], Duration::from_secs(62));
}

#[test]
fn others_do_not_wait_for_what_is_made_ready() {
    for detached in [false, true] {
        let (build, user) = (Build::new(), User::new());
        let mut words = vec!["run", "--name", "one"];
        if detached {
            words.push("--detach");
        }
        words.extend(["--", "sh", "-c", "echo here; sleep 1"]);
        let child = start(user.command(&words).env("XDG_CACHE_HOME", build.cache()));
        let begun = Instant::now();
        while !user.ok(&["ps", "--all"]).contains("one") {
            assert!(begun.elapsed() < AT_ONCE, "there is no machine");
        }
        let begun = Instant::now();
        assert_eq!(user.state("one"), "created");
        user.refused(&["stop", "one"], "not running");
        user.refused(&["exec", "one", "--", "true"], "not running");
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        let run = build.takes(Duration::from_secs(1), child);
        assert_eq!(run.code, 0, "{run:?}");
        lines_of_progress(&run);
        let said = if detached { "one\n" } else { "here\n" };
        assert_eq!(run.stdout, said);
        if detached {
            user.wait_for("one", "exited");
            assert_eq!(user.ok(&["logs", "one"]), "here\n");
            user.ok(&["rm", "one"]);
        }
    }
}

/// A kernel's file is opened once, also by `auto`, which looks at it to choose a hypervisor.
#[test]
fn a_kernel_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    // No other process opens this one.
    let kernel = folder.path().join("vmlinux");
    fs::copy(linux::kernel(), &kernel).unwrap();
    let opens = Opens::of(&kernel);
    let mut command = program::command();
    command.args(["run", "--hypervisor", "auto", "--kernel"]);
    let run = program::finish(command.arg(&kernel).args(["--", "echo", "here"]));
    assert_eq!((run.code, run.stdout.trim_end()), (0, "here"), "{run:?}");
    assert_eq!(opens.count(), 1);
}

/// Counts how often a file is opened. A thread takes each event at once: two that are alike and
/// wait would be one.
struct Opens {
    inotify: Arc<OwnedFd>,
    watch: i32,
    count: JoinHandle<usize>,
}

impl Opens {
    fn of(file: &Path) -> Self {
        let inotify = Arc::new(inotify::init(CreateFlags::empty()).unwrap());
        let interest = WatchFlags::OPEN | WatchFlags::CLOSE;
        let watch = inotify::add_watch(&*inotify, file, interest).unwrap();
        let events = Arc::clone(&inotify);
        let count = std::thread::spawn(move || {
            let mut bytes = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(&*events, &mut bytes);
            let mut count = 0;
            loop {
                let event = events.next().unwrap().events();
                count += usize::from(event.contains(ReadFlags::OPEN));
                if event.contains(ReadFlags::IGNORED) {
                    return count;
                }
            }
        });
        Opens {
            inotify,
            watch,
            count,
        }
    }

    fn count(self) -> usize {
        inotify::remove_watch(&*self.inotify, self.watch).unwrap();
        self.count.join().unwrap()
    }
}
