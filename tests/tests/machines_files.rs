// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that goes into background machines and comes out: files, output.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::user::User;
use paravane_tests::{linux, program, source_root, wait};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tar::{Builder, EntryType, Header};

/// A user with one machine.
fn user(script: &str) -> User {
    let user = User::new();
    user.detach(&["--name", "m"], script);
    user
}

/// Waits until its command has said this.
fn wait_logged(user: &User, text: &str) {
    wait::until(text, program::PATIENCE, || {
        user.ok(&["logs", "m"]).contains(text)
    });
}

/// A file of that user.
fn path(user: &User, name: &str) -> String {
    user.folder().join(name).display().to_string()
}

#[test]
fn files_go_in_and_come_out() {
    let user = user("sleep 1000");
    let tree = user.folder().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    let big: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("a/big"), &big).unwrap();
    fs::write(tree.join("a/b/run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("a/b/run"), fs::Permissions::from_mode(0o4750)).unwrap();
    symlink("big", tree.join("a/link")).unwrap();

    // Into an existing folder, and under a new name.
    user.ok(&["cp", &path(&user, "tree"), "m:/tmp"]);
    user.ok(&["cp", &path(&user, "tree/a/b/run"), "m:/tmp/other"]);
    let seen = user.ok(&[
        "exec",
        "m",
        "--",
        "sh",
        "-c",
        "cd /tmp; readlink tree/a/link; wc -c < tree/a/big; stat -c '%a %u' other",
    ]);
    assert_eq!(seen, "big\n4000000\n4750 0\n");
    // And back.
    user.ok(&["cp", "m:/tmp/tree", &path(&user, "back")]);
    assert_eq!(fs::read(path(&user, "back/a/link")).unwrap(), big);
    let run = fs::metadata(path(&user, "back/a/b/run")).unwrap();
    let before = fs::metadata(tree.join("a/b/run")).unwrap();
    // The setuid bit is not copied: the owner here is another user.
    assert_eq!(
        (run.permissions().mode() & 0o7777, run.mtime()),
        (0o750, before.mtime())
    );
    user.ok(&["cp", "m:/etc/hosts", &path(&user, "back")]);
    assert!(
        fs::read_to_string(path(&user, "back/hosts"))
            .unwrap()
            .contains("localhost")
    );

    for (words, part) in [
        (["cp", "m:/nope", "."], "/nope: No such file"),
        (
            ["cp", "m:/", "."],
            "this path has no name: name a file or folder",
        ),
        (["cp", "m:etc", "."], "absolute"),
        (["cp", "/nope", "m:/tmp"], "/nope: No such file"),
        (["cp", "/etc/hostname", "m:/no/x"], "/no: No such file"),
        (["cp", "m:/etc/hosts", "/nonexistent/x"], "no such folder"),
        (["cp", "m:/etc/hosts", "/proc/x"], "/proc"),
        (["cp", "other:/etc/hosts", "."], "no machine other"),
        (["cp", "m:/a", "m:/b"], "both are in a machine"),
        (["cp", "/a", "/b"], "neither is in a machine"),
    ] {
        let run = user.run(&words);
        assert_eq!(
            (run.code, run.stderr.lines().count()),
            (2, 1),
            "{words:?}: {run:?}"
        );
        assert!(run.stderr.contains(part), "{words:?}: {run:?}");
    }
    // Nothing unfinished.
    let names = fs::read_dir(user.folder())
        .unwrap()
        .map(|e| e.unwrap().file_name());
    assert!(
        !names
            .into_iter()
            .any(|name| name.to_string_lossy().starts_with('.'))
    );
}

/// A copy to /dev/null must not replace the device by a file, on either side.
#[test]
fn devices_and_fifos_are_not_replaced() {
    let user = user("mkfifo /tmp/fifo; sleep 1000");
    let (fifo, folder) = (path(&user, "fifo"), path(&user, "folder/hosts"));
    fs::create_dir(path(&user, "folder")).unwrap();
    for path in [&fifo, &folder] {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    user.ok(&["exec", "m", "--", "mkdir", "/tmp/folder"]);
    user.ok(&["exec", "m", "--", "cp", "/etc/hosts", "/tmp/folder"]);
    for words in [
        ["cp", "m:/etc/hosts", &fifo],
        ["cp", "m:/tmp/folder", user.folder().to_str().unwrap()],
        ["cp", "/etc/hostname", "m:/dev/null"],
        ["cp", "/etc/hostname", "m:/tmp/fifo"],
    ] {
        user.refused(&words, "replaced");
    }
    for path in [&fifo, &folder] {
        let there = fs::symlink_metadata(path).unwrap().file_type();
        assert!(there.is_fifo(), "{path}");
    }
    let script = "test -c /dev/null && test -p /tmp/fifo && echo there";
    assert_eq!(user.ok(&["exec", "m", "--", "sh", "-c", script]), "there\n");
}

/// Interrupts `cp` by Ctrl-C, and by a signal to the program only.
#[test]
fn an_interrupted_copy_leaves_nothing() {
    let user = user("truncate -s 50G /tmp/big; echo made; sleep 1000");
    wait_logged(&user, "made\n");
    let target = user.folder().join("target");
    fs::create_dir(&target).unwrap();
    let target = target.to_str().unwrap();
    let there = || fs::read_dir(target).unwrap().count();
    for group in [true, false] {
        let mut command = user.command(&["cp", "m:/tmp/big", target]);
        let child = command.process_group(0).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let begun = Instant::now();
        while there() == 0 {
            assert!(begun.elapsed() < program::PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = Pid::from_child(&child);
        if group {
            kill_process_group(pid, Signal::INT).unwrap();
        } else {
            kill_process(pid, Signal::INT).unwrap();
        }
        let said = Lines::of(child.stderr.take()).rest_within(program::PATIENCE);
        let code = program::wait_within(&mut child, program::PATIENCE).code();
        assert_eq!((code, said.as_str()), (Some(130), ""), "{group}");
        assert_eq!(there(), 0, "{group}");
    }
    // The machine is as before.
    user.ok(&["cp", "m:/etc/hosts", target]);
    assert_eq!(there(), 1);
}

/// The guest may replace its folder while it is packed. A link in it leads nowhere on this host.
#[test]
fn links_of_a_guest_lead_nowhere_here() {
    let user = user("sleep 1000");
    let secret = user.folder().join("secret");
    fs::write(&secret, "secret").unwrap();
    let make = format!(
        "mkdir /tmp/d && ln -s {} /tmp/d/link && ln -s / /tmp/d/root",
        user.folder().display()
    );
    user.ok(&["exec", "m", "--", "sh", "-c", &make]);
    user.ok(&["cp", "m:/tmp/d", &path(&user, "got")]);
    // Again over the existing files, with a file in place of the link.
    user.ok(&[
        "exec",
        "m",
        "--",
        "sh",
        "-c",
        "rm /tmp/d/link; mkdir /tmp/d/link; echo bad > /tmp/d/link/secret",
    ]);
    user.ok(&["cp", "m:/tmp/d", &path(&user, "x")]);
    fs::rename(path(&user, "x/link"), path(&user, "x/other")).unwrap();
    symlink(user.folder(), path(&user, "x/link")).unwrap();
    fs::rename(path(&user, "x"), path(&user, "d")).unwrap();
    user.ok(&["cp", "m:/tmp/d", &user.folder().display().to_string()]);
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
}

/// An entry of an archive: name, kind, and contents or target.
type Member<'a> = (&'a str, EntryType, &'a str);

fn archive(members: &[Member<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for &(name, kind, content) in members {
        let mut header = Header::new_gnu();
        // The crate refuses to write such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o6777);
        let data = if kind == EntryType::Regular {
            content
        } else {
            ""
        };
        if kind != EntryType::Regular {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Replaces the agent's program, which the guest's root user may do.
const TAKE_OVER: &str = "mount -t tmpfs none /proc && mkdir /proc/self && \
    cp /shared/sender /proc/self/exe && echo taken && sleep 1000";

/// The sender may be a program of the guest's root user in place of the agent. Only the target is
/// written, and no link is followed.
#[test]
fn a_hostile_archive_stays_in_its_target() {
    use EntryType::{Directory, Fifo, Link, Regular, Symlink};
    let up = [
        ("data/", Directory, ""),
        ("data/l", Symlink, ".."),
        ("data/l/.bashrc", Regular, "evil"),
    ];
    let here: &[(&str, &[Member<'_>], &str)] = &[
        ("a folder that is there", &up, "not followed"),
        (
            "a file for the folder",
            &[("data", Regular, "evil")],
            "a folder on the host",
        ),
        (
            "a link for the folder",
            &[("data", Symlink, ".."), ("data/.bashrc", Regular, "evil")],
            "a folder on the host",
        ),
        (
            "a pipe for the folder",
            &[("data", Fifo, "")],
            "a folder on the host",
        ),
        (
            "a hard link",
            &[("data/h", Link, "../.bashrc"), ("data/h", Regular, "evil")],
            "hard link",
        ),
        (
            "another name",
            &[(".bashrc", Regular, "evil")],
            "does not begin with data",
        ),
        (
            "an absolute name",
            &[("/.bashrc", Regular, "evil")],
            "does not begin with data",
        ),
        (
            "a name that leads up",
            &[("data/../.bashrc", Regular, "evil")],
            "leads outside",
        ),
        (
            "a link that was there",
            &[("data/up/.bashrc", Regular, "evil")],
            "not followed",
        ),
    ];
    let user = User::new();
    // The archive is read from a shared folder, so that it can be another one each time.
    let shared = user.folder().join("shared");
    fs::create_dir(&shared).unwrap();
    linux::compile(
        &source_root().join("tests/guest/sender"),
        &shared.join("sender"),
    );
    let volume = format!("{}:/shared:ro", shared.display());
    user.detach(&["--name", "m", "--volume", &volume], TAKE_OVER);
    let deadline = Instant::now() + Duration::from_secs(60);
    while user.ok(&["logs", "m"]) != "taken\n" {
        assert!(
            Instant::now() < deadline,
            "the agent's program was not replaced"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let home = user.folder().join("home");
    let target = home.join("data");
    // Each archive is a new file: the guest may still cache pages of an old one. It is sent in
    // place of one with the expected name.
    let count = Cell::new(0);
    let fresh = || {
        count.set(count.get() + 1);
        let folder = shared.join(count.get().to_string());
        fs::create_dir(&folder).unwrap();
        (
            folder.join("data"),
            format!("m:/shared/{}/data", count.get()),
        )
    };
    let copy = |members: &[Member<'_>], to: &str| {
        let (file, from) = fresh();
        fs::write(file, archive(members)).unwrap();
        user.run(&["cp", &from, &home.join(to).display().to_string()])
    };
    for (what, members, part) in here {
        for to in ["", "data/.."] {
            drop(fs::remove_dir_all(&home));
            fs::create_dir_all(&target).unwrap();
            fs::write(home.join(".bashrc"), "mine").unwrap();
            fs::write(target.join("kept"), "kept").unwrap();
            symlink("..", target.join("up")).unwrap();
            let run = copy(members, to);
            assert_eq!(
                (run.code, run.stderr.lines().count()),
                (2, 1),
                "{what}: {run:?}"
            );
            assert!(run.stderr.contains(part), "{what}: {run:?}");
            assert_eq!(fs::read(home.join(".bashrc")).unwrap(), b"mine", "{what}");
            assert_eq!(
                fs::metadata(home.join(".bashrc")).unwrap().nlink(),
                1,
                "{what}"
            );
            assert_eq!(fs::read(target.join("kept")).unwrap(), b"kept", "{what}");
            assert_eq!(fs::read_dir(&home).unwrap().count(), 2, "{what}");
        }
    }
    // The target folder does not exist yet. The next copy does not follow a link that this one
    // received.
    fs::remove_dir_all(&target).unwrap();
    let run = copy(&up, "");
    assert!(
        run.code == 2 && run.stderr.contains("not followed"),
        "{run:?}"
    );
    assert!(!target.exists());
    let link = home.display().to_string();
    assert_eq!(copy(&[("data", Symlink, &link)], "got").code, 0);
    assert!(home.join("got").is_symlink());
    let run = copy(
        &[("data/", Directory, ""), ("data/.bashrc", Regular, "evil")],
        "got",
    );
    assert!(
        run.code == 2 && run.stderr.contains("a link to a folder: write"),
        "{run:?}"
    );
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2);
    // With a slash, the user asks to follow the link.
    assert_eq!(
        copy(
            &[("data/", Directory, ""), ("data/x", Regular, "x")],
            "got/"
        )
        .code,
        0
    );
    assert_eq!(fs::read(target.join("x")).unwrap(), b"x");
    assert_eq!(fs::read(home.join(".bashrc")).unwrap(), b"mine");

    // Endless names are not read.
    let mut header = Header::new_gnu();
    header.set_path("x").unwrap();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(4 << 30);
    header.set_cksum();
    let (file, from) = fresh();
    let evil = fs::File::create(file).unwrap();
    std::io::Write::write_all(&mut &evil, header.as_bytes()).unwrap();
    evil.set_len(4 << 30).unwrap();
    let run = user.run(&["cp", &from, &home.join("long").display().to_string()]);
    assert!(
        run.code == 2 && run.stderr.contains("more than 64 KiB"),
        "{run:?}"
    );
    assert!(!home.join("long").exists());
}

#[test]
fn what_is_printed_is_followed_to_the_end() {
    let user = user(
        "echo early; trap 'echo caught; exit 6' USR1 INT; while :; do sleep 0.05; echo tick; done",
    );
    wait_logged(&user, "early\n");
    let mut attach = user
        .command(&["attach", "m"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Lines::of(attach.stdout.take());
    let first = said.next_within(program::PATIENCE);
    kill_process(Pid::from_child(&attach), Signal::INT).unwrap();
    let code = program::wait_within(&mut attach, program::PATIENCE).code();
    let said = first + &said.rest_within(program::PATIENCE);
    assert_eq!(code, Some(6), "{said}");
    assert!(
        !said.contains("early") && said.contains("tick\n") && said.ends_with("caught\n"),
        "{said}"
    );
    assert!(user.run(&["attach", "m"]).stderr.contains("not running"));
}

/// A machine continues when the host refuses the monitor new files: its log is emptied when it has
/// twice its usual size.
#[test]
fn a_log_that_cannot_be_replaced_is_emptied() {
    let user = user(
        "until [ -e /go ]; do sleep 0.1; done
        i=0; while [ $i -lt 60 ]; do head -c 1000000 /dev/zero | tr '\\0' x; echo; i=$((i + 1)); \
        done; echo the end; sleep 1000",
    );
    let folder = user.folder().join("paravane/machines/m");
    // In place of the new file, so it cannot be made.
    fs::create_dir(folder.join("output.new")).unwrap();
    user.ok(&["exec", "m", "--", "touch", "/go"]);
    let begun = Instant::now();
    let mut largest = 0;
    let output = || fs::read(folder.join("output")).unwrap_or_default();
    loop {
        let now = output();
        largest = largest.max(now.len());
        if now.ends_with(b"the end\n") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((20 << 20..36 << 20).contains(&largest), "{largest}");
    assert!(!folder.join("output.1").exists());
    let said = String::from_utf8(output()).unwrap();
    assert!(said.contains("the machine's output was dropped"));
    // As soon as there can be one again, there is.
    fs::remove_dir(folder.join("output.new")).unwrap();
    user.ok(&["exec", "m", "--", "true"]);
    assert!(folder.join("output.1").exists());
    assert!(user.ok(&["logs", "m"]).ends_with("the end\n"));
}

#[test]
fn a_log_has_a_bound_and_its_end_is_kept() {
    let user = user(
        "i=0; while [ $i -lt 60 ]; do head -c 1000000 /dev/zero | tr '\\0' x; echo; i=$((i + 1)); \
        done; echo the end; sleep 1000",
    );
    let folder = user.folder().join("paravane/machines/m");
    let size = |name: &str| fs::metadata(folder.join(name)).map_or(0, |meta| meta.len());
    let begun = Instant::now();
    let mut largest = 0;
    while !fs::read(folder.join("output"))
        .unwrap_or_default()
        .ends_with(b"the end\n")
    {
        largest = largest.max(size("output") + size("output.1"));
        assert!(begun.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Twice sixteen MiB, and what comes immediately after.
    assert!(largest < 36 << 20, "{largest}");
    let log = user.ok(&["logs", "m"]);
    assert!(
        log.len() >= 16 << 20 && log.ends_with("the end\n"),
        "{}",
        log.len()
    );
}
