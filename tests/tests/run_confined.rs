// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run` with few rights: by an ordinary user, and in a container.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::skip::skip;
use paravane_tests::{linux, program, vm};
use rustix::process::{getegid, geteuid};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65534;
/// Another number, as that of the group `users` is.
const GROUP: u32 = 65533;

/// Root tries both; other users can only be themselves.
fn users() -> Vec<u32> {
    if geteuid().is_root() {
        vec![0, NOBODY]
    } else {
        vec![geteuid().as_raw()]
    }
}

/// Program, kernel and a busybox where every user can read them.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let files = Files(folder);
        let kernel = vm::kernel().unwrap_or_else(linux::kernel);
        for (from, to) in [
            (program::path().to_path_buf(), "paravane"),
            (env!("CARGO_BIN_EXE_confine").into(), "confine"),
            (env!("CARGO_BIN_EXE_without").into(), "without"),
            (kernel, "vmlinux"),
        ] {
            fs::copy(from, files.path(to)).unwrap();
        }
        let own = PathBuf::from(std::env::var_os("HOME").unwrap_or_default())
            .join(".cache/paravane/tools/busybox");
        if own.is_file() {
            fs::create_dir_all(files.path("paravane-cache/paravane/tools")).unwrap();
            fs::copy(own, files.path("paravane-cache/paravane/tools/busybox")).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command in a guest with this command line and an empty environment.
    fn check(&self, command: &mut Command) {
        command
            .args(["run", "--cpus", "2", "--kernel"])
            .arg(self.path("vmlinux"));
        command.args(["--", "sh", "-c", "id -u; cat | tr a-z A-Z; exit 3"]);
        command
            .env_clear()
            .env("XDG_CACHE_HOME", self.path("paravane-cache"))
            .current_dir("/");
        command.stdin(fs::File::open("/etc/hostname").unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = program::finish_child(command.spawn().unwrap());
        let name = fs::read_to_string("/etc/hostname").unwrap().to_uppercase();
        assert_eq!(
            (run.code, run.stdout),
            (3, format!("0\n{name}")),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn by_an_ordinary_user() {
    for user in users() {
        let files = Files::new();
        files.check(Command::new(files.path("paravane")).uid(user).gid(user));
    }
}

#[test]
fn in_a_container() {
    for user in users() {
        let files = Files::new();
        let mut command = Command::new(files.path("confine"));
        command.arg(user.to_string()).arg(files.path("paravane"));
        files.check(&mut command);
    }
}

/// The user's group has another number than the user. In the guest both are root's, and may be
/// given to what root makes, as `tar -x` and `cp -a` do. Other users of the guest make files where
/// its kernel lets them. Inode numbers fit into a double, which is Node.js's type for them.
#[test]
fn the_folder_of_an_ordinary_user_is_roots_in_the_guest() {
    let (user, group) = if geteuid().is_root() {
        (NOBODY, GROUP)
    } else {
        (geteuid().as_raw(), getegid().as_raw())
    };
    let files = Files::new();
    let shared = files.path("shared");
    for folder in [shared.clone(), shared.join("open")] {
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(user), Some(group)).unwrap();
    }
    fs::set_permissions(shared.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let run = |by: &str, script: &str| {
        let mut command = Command::new(files.path("paravane"));
        command.uid(user).gid(group).args(["run", "--kernel"]);
        command.arg(files.path("vmlinux")).arg("--volume");
        command.arg(format!("{}:/x", shared.display()));
        command.args(["--user", by, "--", "sh", "-c", script]);
        command
            .env_clear()
            .env("XDG_CACHE_HOME", files.path("paravane-cache"))
            .current_dir("/");
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        program::finish_child(command.spawn().unwrap())
    };
    let script = "set -e; cd /x; touch f g; mkdir d; ln -s f l; chown 0:0 f; chown -h 0:0 l
        cp -a f h; tar -cf - f d | tar -xf - -C open; stat -c %u:%g . f d l h open/f | uniq
        stat -c %i f g; ls -i | sed 's/ *\\([0-9]*\\) [fg]$/\\1/;t;d'";
    let done = run("0", script);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let (owners, numbers) = done.stdout.split_once('\n').unwrap();
    assert_eq!(owners, "0:0", "{done:?}");
    let numbers: Vec<u64> = numbers.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!((numbers.len(), &numbers[..2]), (4, &numbers[2..]));
    assert!(numbers[0] != numbers[1], "{numbers:?}");
    assert!(
        numbers.iter().all(|number| *number < 1 << 53),
        "{numbers:?}"
    );
    let done = run(
        "33:33",
        "cd /x/open; id -u; : >a; mkdir b; ln -s a c; stat -c %u:%g a",
    );
    assert_eq!(
        (done.code, done.stdout.as_str(), done.stderr.as_str()),
        (0, "33\n0:0\n", "")
    );
    for name in ["f", "d", "h", "open/f", "open/a", "open/b"] {
        let host = fs::metadata(shared.join(name)).unwrap();
        assert_eq!((host.uid(), host.gid()), (user, group), "{name}");
    }
}

/// From this version on, a domain of Landlock's can be entered that has no effect on files.
fn landlock_scopes() -> bool {
    // SAFETY: with this flag the call reads no attributes and returns only a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1u32) >= 6 }
}

/// A monitor and what it starts cannot look at other processes of the user: passt stands for a
/// thread that was taken over.
#[test]
fn what_a_monitor_starts_sees_no_other_process() {
    if !landlock_scopes() {
        skip("this host's Landlock is too old, or there is none");
        return;
    }
    for user in users() {
        let files = Files::new();
        let (tools, log) = (files.path("tools"), files.path("log"));
        let mut victim = Command::new("sleep")
            .arg("600")
            .uid(user)
            .gid(user)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let look = format!(
            "#!/bin/sh\nreadlink /proc/{}/fd/0 >>{} || echo closed >>{1}\nexit 1\n",
            victim.id(),
            log.display()
        );
        fs::create_dir(&tools).unwrap();
        fs::write(tools.join("passt"), look).unwrap();
        fs::write(&log, "").unwrap();
        for (path, mode) in [
            (&tools, 0o755),
            (&tools.join("passt"), 0o755),
            (&log, 0o666),
        ] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let said = || fs::read_to_string(&log).unwrap();
        // Outside it sees the process.
        let mut alone = Command::new(tools.join("passt"));
        let ended = alone.uid(user).gid(user).current_dir("/").status().unwrap();
        assert_eq!((ended.code(), said().as_str()), (Some(1), "/dev/null\n"));
        fs::write(&log, "").unwrap();
        let mut command = Command::new(files.path("paravane"));
        command.uid(user).gid(user).args(["run", "--kernel"]);
        command.arg(files.path("vmlinux"));
        command.args(["--net", "passt", "--", "true"]);
        command
            .env_clear()
            .env("XDG_CACHE_HOME", files.path("paravane-cache"))
            .env("PATH", format!("{}:/usr/bin:/bin", tools.display()))
            .current_dir("/");
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = program::finish_child(command.spawn().unwrap());
        victim.kill().unwrap();
        victim.wait().unwrap();
        let said = said();
        assert!(!said.is_empty(), "{run:?}");
        assert!(said.lines().all(|line| line == "closed"), "{said}{run:?}");
    }
}

/// On a host without Landlock, an ordinary user's monitor is not dumpable, unless `--debuggable` is
/// given. Its files in /proc then belong to root.
#[test]
fn without_landlock_a_monitor_shows_nothing_to_its_user() {
    let user = users().pop().unwrap();
    let files = Files::new();
    let shared = files.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("f"), "text\n").unwrap();
    chown(&shared, Some(user), Some(user)).unwrap();
    for (option, owner) in [(None, 0), (Some("--debuggable"), user)] {
        let mut command = Command::new(files.path("without"));
        command.args(["landlock", &user.to_string()]);
        command
            .arg(files.path("paravane"))
            .args(["run", "--kernel"]);
        command.arg(files.path("vmlinux")).args(option);
        command.arg("--volume");
        command.arg(format!("{}:/x", shared.display()));
        // The folder's thread goes through /proc/self/fd.
        command.args(["--", "sh", "-c", "cat /x/f; echo y >/x/g; cat /x/g; read x"]);
        command
            .env_clear()
            .env("XDG_CACHE_HOME", files.path("paravane-cache"))
            .current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = Lines::of(child.stdout.take());
        assert_eq!(output.next_within(program::PATIENCE), "text\n");
        assert_eq!(output.next_within(program::PATIENCE), "y\n");
        let found = fs::metadata(format!("/proc/{}/mem", child.id())).unwrap();
        assert_eq!(found.uid(), owner, "{option:?}");
        drop(child.stdin.take());
        program::wait_within(&mut child, program::PATIENCE);
    }
}
