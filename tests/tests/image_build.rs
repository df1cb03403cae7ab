// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane image build`. With tools that do nothing, the tests check the tools' arguments, and
//! the files that are left when the command is interrupted. With a package mirror, an ordinary user
//! makes whole images.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Ends};
use paravane_tests::system::System;
use paravane_tests::wait;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Like the real tool, its first process waits for the others, whatever signal it gets.
const TOOL: &str = "#!/bin/sh
    case $1 in --unshare-helper) exit 0 ;; esac
    trap : TERM INT HUP
    export folder=${0%/*}
    sh -c 'trap \"echo tidied > $folder/tidied; exit 1\" INT; echo begun > $folder/begun
        while :; do sleep 0.05; done'
    exit 1
";

/// Records its arguments. User namespaces exist if the file `namespaces` does.
const NOTED: &str = "#!/bin/sh
    folder=${0%/*}
    case $1 in --unshare-helper) [ -e $folder/namespaces ]; exit ;; esac
    echo \"$@\" > $folder/called
    echo 'E: no more than that' >&2
    exit 1
";

const NOBODY: u32 = 65534;

fn tool(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A folder of an ordinary user with the program in it, and that user if this test runs as root.
fn of_a_user() -> (tempfile::TempDir, Option<u32>) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(program::path(), folder.path().join("paravane")).unwrap();
    let user = geteuid().is_root().then_some(NOBODY);
    if let Some(user) = user {
        std::os::unix::fs::chown(folder.path(), Some(user), Some(user)).unwrap();
    }
    (folder, user)
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let (folder, user) = of_a_user();
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    for name in ["mke2fs", "fakeroot", "tar"] {
        tool(&tools, name, "#!/bin/sh\nexit 1\n");
    }
    tool(&tools, "mmdebstrap", NOTED);
    tool(&tools, "apt-get", "#!/bin/sh\nexit 1\n");
    let build = || {
        let mut command = Command::new(folder.path().join("paravane"));
        command
            .args(["image", "build"])
            .arg(folder.path().join("image.ext4"));
        // The tools' shell is found through PATH.
        command.env("PATH", &tools).current_dir("/");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let run = program::finish(&mut command);
        assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "files were left"
        );
        run.stderr
    };
    let told = build();
    assert!(
        told.contains("apt-get install fakechroot") && told.contains("/etc/subuid"),
        "{told}"
    );
    assert!(!tools.join("called").exists());

    fs::set_permissions(&tools, fs::Permissions::from_mode(0o777)).unwrap();
    tool(&tools, "fakechroot", "#!/bin/sh\nexit 1\n");
    let called = |mode: &str| {
        let told = build();
        assert!(told.contains("E: no more than that"), "{told}");
        let called = fs::read_to_string(tools.join("called")).unwrap();
        assert!(called.starts_with(&format!("--mode={mode} ")), "{called}");
    };
    called("fakechroot");
    fs::write(tools.join("namespaces"), "").unwrap();
    called("unshare");
}

/// Both ways in which an ordinary user makes a root. Its files have the right owners and modes, and
/// its systemd boots.
#[test]
#[ignore = "minutes, with images to be made: make test-release"]
fn an_ordinary_user_makes_whole_images() {
    let (folder, user) = of_a_user();
    let ids = folder.path().join("ids");
    fs::write(&ids, "nobody:100000:65536\n").unwrap();
    for namespaces in [false, true] {
        let image = folder.path().join("image.ext4");
        let mut command = match user {
            // Subordinate ids for that user, for the duration of the test.
            Some(_) if namespaces => {
                let mut command = Command::new("unshare");
                let script =
                    "for file in /etc/subuid /etc/subgid; do mount --bind $1 $file; done; shift
                    exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
                command
                    .args(["--mount", "sh", "-e", "-c", script, "sh"])
                    .arg(&ids);
                command.arg(folder.path().join("paravane"));
                command
            }
            Some(user) => {
                let mut command = Command::new(folder.path().join("paravane"));
                command.uid(user).gid(user);
                command
            }
            // However this user can do it.
            None => Command::new(folder.path().join("paravane")),
        };
        command.args(["image", "build", "--size", "2G"]).arg(&image);
        let run = program::finish(
            command
                .env("HOME", folder.path())
                .env("TMPDIR", folder.path()),
        );
        assert_eq!(run.code, 0, "{run:?}");
        let system = System::start(&image, &["--memory", "512M"]);
        system.is_up();
        let seen = system.inside(&[
            "stat",
            "--format=%U %G %a %n",
            "/",
            "/etc/shadow",
            "/usr/bin/passwd",
            "/usr/bin/chage",
            "/var/mail",
        ]);
        let expected = "root root 755 /\nroot shadow 640 /etc/shadow\n\
            root root 4755 /usr/bin/passwd\n\
                        root shadow 2755 /usr/bin/chage\nroot mail 2775 /var/mail\n";
        assert_eq!(seen, expected, "namespaces: {namespaces}");
        drop(system);
        fs::remove_file(image).unwrap();
    }
}

fn wait_for(what: &Path) {
    wait::until(&what.display().to_string(), PATIENCE, || what.exists());
}

#[test]
fn a_signal_ends_the_tools_and_leaves_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let folder = tempfile::tempdir().unwrap();
        let (tools, images) = (folder.path().join("tools"), folder.path().join("images"));
        fs::create_dir(&tools).unwrap();
        fs::create_dir(&images).unwrap();
        tool(&tools, "mmdebstrap", TOOL);
        let path = format!("{}:/usr/bin:/bin", tools.display());
        let mut build = program::command()
            .args(["image", "build", "--format", "tar"])
            .arg(images.join("image.tar"))
            .env("PATH", path)
            .stderr(Stdio::null())
            .spawn()
            .map(Ends)
            .unwrap();
        wait_for(&tools.join("begun"));
        assert_eq!(
            fs::read_dir(&images).unwrap().count(),
            1,
            "no folder to work in"
        );
        kill_process(Pid::from_child(&build.0), signal).unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = build.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "{signal:?}: it goes on");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(code));
        assert!(
            tools.join("tidied").exists(),
            "{signal:?}: the tool's processes were not asked to end"
        );
        let left: Vec<_> = fs::read_dir(&images).unwrap().collect();
        assert!(left.is_empty(), "{signal:?}: {left:?}");
    }
}
