// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images from a registry: pulled, run, refused with a reason.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Run};
use paravane_tests::registry::{BASIC, Fault, LARGE, Registry, layer};
use paravane_tests::{small_root, vm};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A user with a cache and settings of its own.
struct User(TempDir);

impl User {
    fn new() -> Self {
        let user = User(tempfile::tempdir().unwrap());
        // The kernel stays in the real cache.
        let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let own =
            own.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
        fs::create_dir_all(user.0.path().join("paravane")).unwrap();
        for name in ["kernel", "tools"] {
            let from = own.join("paravane").join(name);
            std::os::unix::fs::symlink(from, user.0.path().join("paravane").join(name)).unwrap();
        }
        user
    }

    fn images(&self) -> PathBuf {
        self.0.path().join("paravane/images")
    }

    fn with<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("XDG_CACHE_HOME", self.0.path())
            .env("DOCKER_CONFIG", self.0.path())
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env_remove("REGISTRY_AUTH_FILE")
            .env_remove("HTTP_PROXY")
            .env_remove("http_proxy")
            .env_remove("ALL_PROXY")
            .env_remove("all_proxy")
    }

    fn pull(&self, name: &str) -> Run {
        program::finish(self.with(program::command().args(["image", "pull", name])))
    }

    fn run(&self, options: &[&str]) -> Run {
        program::finish(self.with(&mut vm::command(options)))
    }

    /// Names in the folder of images, without the layers of registries.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.images()).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names
            .filter(|name| name != "blobs" && name != "names")
            .collect()
    }

    fn layers(&self) -> usize {
        fs::read_dir(self.images().join("blobs/sha256")).map_or(0, Iterator::count)
    }

    /// Checks that a pull fails with one line that contains this, and leaves nothing unfinished.
    fn refused(&self, name: &str, part: &str) {
        let run = self.pull(name);
        let said = complaints(&run);
        assert_eq!((run.code, said.len()), (2, 1), "{run:?}");
        assert!(said[0].starts_with("paravane: "), "{run:?}");
        assert!(
            said[0].contains(name) && said[0].contains(part),
            "{part}: {run:?}"
        );
        assert_eq!(self.left(), [""; 0]);
    }
}

/// The lines on standard error but those of progress, which a slow host gets.
fn complaints(run: &Run) -> Vec<&str> {
    let lines = run.stderr.lines();
    lines.filter(|line| !line.ends_with(" so far")).collect()
}

fn busybox() -> (Vec<u8>, String) {
    layer(&format!(
        "mkdir bin; cp '{}' bin/busybox; for name in sh cat; do ln -s busybox bin/$name; done",
        small_root::busybox().display()
    ))
}

fn small() -> Registry {
    let registry = Registry::new();
    registry.add("a/small", "1", &[layer("echo one > one")], &json!({}));
    registry
}

#[test]
fn what_is_pulled_runs_and_is_not_pulled_again() {
    let (registry, user) = (Registry::new(), User::new());
    let base = busybox();
    let command =
        |word: &str| json!({ "Cmd": ["/bin/cat", "/word"], "Env": [format!("X={word}")] });
    registry.add(
        "some/app",
        "1.0",
        &[base.clone(), layer("echo first > word")],
        &command("a"),
    );
    let name = registry.name("some/app:1.0");
    let done = user.run(&["--image", &name]);
    assert_eq!(
        (done.code, done.stdout.as_str(), complaints(&done).len()),
        (0, "first\n", 0),
        "{done:?}"
    );
    assert_eq!((registry.asked("/blobs/"), user.layers()), (3, 2));

    // The name means another image now. Without --pull always the old one is used, and the registry
    // is not asked.
    registry.add(
        "some/app",
        "1.0",
        &[base, layer("echo second > word")],
        &command("b"),
    );
    let done = user.run(&["--image", &name, "--pull", "never"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "first\n"),
        "{done:?}"
    );
    let done = user.run(&["--image", &name]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "first\n"),
        "{done:?}"
    );
    assert_eq!(registry.asked(""), 0);

    // With it the new one is pulled, without the layer that is cached.
    let done = user.run(&["--image", &name, "--pull", "always"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "second\n"),
        "{done:?}"
    );
    assert_eq!((registry.asked("/blobs/"), user.layers()), (2, 3));
    let done = user.run(&["--image", &registry.name("some/other"), "--pull", "never"]);
    assert_eq!((done.code, complaints(&done).len()), (2, 1), "{done:?}");
    assert!(done.stderr.contains("has not been pulled"), "{done:?}");
}

#[test]
fn by_digest() {
    let (registry, user) = (Registry::new(), User::new());
    let digest = registry.add("a/small", "1", &[layer("echo one > one")], &json!({}));
    let run = user.pull(&registry.name(&format!("a/small@{digest}")));
    assert_eq!((run.code, complaints(&run).len()), (0, 0), "{run:?}");
    assert!(run.stdout.starts_with("sha256:"), "{run:?}");
    assert_eq!(user.pull(&registry.name("a/small:1")).stdout, run.stdout);
    let other = format!("a/small@sha256:{}", "1".repeat(64));
    let run = user.pull(&registry.name(&other));
    assert!(
        run.code == 2 && run.stderr.contains("has no such image"),
        "{run:?}"
    );
}

#[test]
fn why_there_is_none_is_told() {
    let (registry, user) = (small(), User::new());
    let name = registry.name("a/small:1");
    user.refused(&registry.name("a/small:2"), "has no such image");
    user.refused(&registry.name("b/small:1"), "has no such image");
    for (fault, part) in [
        (Fault::Damaged, "digest does not match"),
        (Fault::Truncated, "broke"),
        (Fault::Status(500), "500"),
        (Fault::Status(403), "docker login"),
        (Fault::Status(429), "no more requests"),
    ] {
        registry.fault(Some(fault));
        user.refused(&name, part);
        assert_eq!(user.layers(), 0);
    }
    let large = format!("head -c {} /dev/urandom > one", 10 * LARGE);
    registry.add("a/large", "1", &[layer(&large)], &json!({}));
    registry.fault(Some(Fault::Longer));
    user.refused(
        &registry.name("a/large:1"),
        "more bytes than the manifest states",
    );
    registry.fault(None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("{}/a:1", listener.local_addr().unwrap());
    drop(listener);
    user.refused(&nobody, "cannot reach");
    let run = user.pull("Not A Name");
    assert_eq!((run.code, complaints(&run).len()), (2, 1), "{run:?}");
    let run = user.run(&["--image", "Not A Name"]);
    assert_eq!((run.code, complaints(&run).len()), (2, 1), "{run:?}");
    assert!(run.stderr.contains("no such file"), "{run:?}");
    // It was available all the while.
    assert_eq!(user.pull(&name).code, 0);
}

#[test]
fn a_registry_checks_credentials() {
    let (registry, user) = (small(), User::new());
    registry.wants_login();
    let name = registry.name("a/small:1");
    user.refused(&name, "docker login");
    let settings = |auth: &str| {
        let host = name.split('/').next().unwrap();
        let settings = json!({ "auths": { host: { "auth": auth } } });
        fs::write(user.0.path().join("config.json"), settings.to_string()).unwrap();
    };
    // user:wrong
    settings("dXNlcjp3cm9uZw==");
    user.refused(&name, "docker login");
    settings(BASIC);
    let run = user.pull(&name);
    assert_eq!((run.code, complaints(&run).len()), (0, 0), "{run:?}");
}

/// Data of a registry is kept only if it is known to be small enough.
#[test]
fn answers_without_end_are_not_read() {
    let (registry, user) = (small(), User::new());
    let name = registry.name("a/small:1");
    for (part, status, words) in [
        ("/manifests/", 200, "more than 4 MiB"),
        ("/manifests/", 500, "500"),
        ("/manifests/", 404, "no such image"),
        ("/blobs/", 200, "more bytes than"),
        ("/blobs/", 500, "500"),
    ] {
        registry.fault(Some(Fault::Endless(part, status)));
        user.refused(&name, words);
        // Add what the sockets in between can hold.
        let sent = registry.sent();
        assert!(sent < 64 << 20, "{part} {status}: {sent} bytes were taken");
    }
    registry.fault(None);
    registry.wants_login();
    for (status, words) in [
        (200, "more than 64 KiB"),
        (401, "docker login"),
        (500, "docker login"),
    ] {
        registry.fault(Some(Fault::Endless("/token", status)));
        user.refused(&name, words);
        let sent = registry.sent();
        assert!(
            sent < 64 << 20,
            "a token, {status}: {sent} bytes were taken"
        );
    }
}

/// A pull that is in the middle of a layer.
fn in_the_middle(registry: &Registry, user: &User, name: &str) -> std::process::Child {
    registry.fault(Some(Fault::Stuck));
    let mut command = program::command();
    user.with(command.args(["image", "pull", name]))
        .stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let begun = Instant::now();
    while !user
        .left()
        .iter()
        .any(|name| user.images().join(name).join("layer").exists())
    {
        assert!(begun.elapsed() < PATIENCE, "{:?}", user.left());
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn a_killed_pull_leaves_nothing() {
    let (registry, user) = (Registry::new(), User::new());
    let large = format!("head -c {} /dev/urandom > one", 10 * LARGE);
    registry.add("a/small", "1", &[layer(&large)], &json!({}));
    let name = registry.name("a/small:1");
    let mut child = in_the_middle(&registry, &user, &name);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(program::wait_within(&mut child, PATIENCE).code(), Some(143));
    assert_eq!((user.left(), user.layers()), (Vec::new(), 0));

    // A killed pull cannot tidy up. The next one does.
    let mut child = in_the_middle(&registry, &user, &name);
    child.kill().unwrap();
    program::wait_within(&mut child, PATIENCE);
    assert_eq!(user.left().len(), 1);
    registry.fault(None);
    let run = user.pull(&name);
    assert_eq!((run.code, complaints(&run).len()), (0, 0), "{run:?}");
    assert_eq!((user.left().len(), user.layers()), (1, 1));
    assert!(!user.left()[0].starts_with('.'), "{:?}", user.left());
}
