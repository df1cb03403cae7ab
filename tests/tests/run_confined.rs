// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run` with few rights: by an ordinary user, and in a container.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, vm};
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65534;

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
