// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How other commands use a machine's own command and its records: its environment for `exec`, its
//! signal and its data for `stop`, its records after a power failure for `ps` and `rm`.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program;
use paravane_tests::user::User;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// A command that goes on for ever.
const WAITS: &str = "while :; do sleep 0.1; done";

#[test]
fn exec_has_the_environment_folder_and_user_of_the_machine() {
    let user = User::new();
    let options = [
        "--name",
        "m",
        "-e",
        "A=machine",
        "-e",
        "B=both",
        "-w",
        "/etc",
        "-u",
        "1000:1000",
    ];
    user.detach(&options, WAITS);
    let say = ["--", "sh", "-c", "echo $A $B $PWD $(id -u):$(id -g)"];
    let exec = |options: &[&str]| user.ok(&[&["exec", "m"], options, &say].concat());
    assert_eq!(exec(&[]), "machine both /etc 1000:1000\n");
    // Copies are root's.
    let file = user.folder().join("file");
    fs::write(&file, "text").unwrap();
    user.ok(&["cp", file.to_str().unwrap(), "m:/root/file"]);
    let owner = [
        "exec",
        "m",
        "-u",
        "0",
        "--",
        "stat",
        "-c",
        "%u",
        "/root/file",
    ];
    assert_eq!(user.ok(&owner), "0\n");
    user.ok(&[
        "cp",
        "m:/root/file",
        user.folder().join("back").to_str().unwrap(),
    ]);
    let others = ["-e", "B=exec", "-w", "/tmp", "-u", "0"];
    assert_eq!(exec(&others), "machine exec /tmp 0:0\n");
}

#[test]
fn stop_asks_with_the_signal_of_the_machine() {
    let user = User::new();
    let script = format!("trap 'exit 3' INT; trap 'exit 4' TERM; echo ready; {WAITS}");
    user.detach(&["--name", "m", "--stop-signal", "int"], &script);
    let deadline = Instant::now() + program::PATIENCE;
    while user.ok(&["logs", "m"]) != "ready\n" {
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    user.ok(&["stop", "m"]);
    assert_eq!(user.inspect("m")["exit_code"], 3);
}

/// A command that does not end when it is asked to is killed. Its output stays.
#[test]
fn stop_loses_nothing_of_a_command_that_does_not_end() {
    let user = User::new();
    let disk = NamedTempFile::new().unwrap();
    disk.as_file().set_len(32 << 20).unwrap();
    let options = ["--name", "m", "--disk", disk.path().to_str().unwrap()];
    // Longer than the kernel keeps dirty pages at most is not what this test waits for.
    let script = "trap '' TERM; mke2fs -q /dev/vda && mount /dev/vda /mnt && \\
        echo 1500 > /proc/sys/vm/dirty_writeback_centisecs; echo kept > /mnt/file; echo ready; \\
        while :; do sleep 0.1; done";
    user.detach(&options, script);
    let deadline = Instant::now() + program::PATIENCE;
    while !user.ok(&["logs", "m"]).contains("ready\n") {
        assert!(Instant::now() < deadline, "{}", user.ok(&["logs", "m"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    user.ok(&["stop", "--time", "1", "m"]);
    assert_eq!(user.inspect("m")["exit_code"], 137);
    user.ok(&["rm", "m"]);
    let run = [
        "run",
        "--disk",
        disk.path().to_str().unwrap(),
        "--",
        "sh",
        "-c",
    ];
    let read = "mount /dev/vda /mnt && cat /mnt/file";
    assert_eq!(user.ok(&[&run[..], &[read]].concat()), "kept\n");
}

/// Records that were not on the disk when the power failed are empty, or have zeros.
#[test]
fn a_machine_whose_records_are_lost_is_listed_and_removed() {
    let user = User::new();
    for name in ["lost", "damaged"] {
        user.detach(&["--name", name], "exit 3");
        user.wait_for(name, "exited");
    }
    let machines = user.folder().join("paravane/machines");
    for record in ["ended.json", "lives.json"] {
        assert!(File::create(machines.join("lost").join(record)).is_ok());
    }
    assert_eq!(user.state("lost"), "died");
    fs::write(machines.join("lost/ended.json"), [0; 64]).unwrap();
    assert_eq!(user.state("lost"), "died");
    // A power failure does not do this. The list has the other machines even so.
    fs::write(machines.join("damaged/ended.json"), "}").unwrap();
    let list = user.run(&["ps", "--all"]);
    assert_eq!(list.code, 1);
    assert!(list.stdout.contains("lost"), "{list:?}");
    assert!(
        list.stderr.contains("damaged/ended.json is damaged"),
        "{list:?}"
    );
    for name in ["lost", "damaged"] {
        assert_eq!(user.ok(&["rm", name]), format!("{name}\n"));
    }
}

#[test]
fn a_command_that_cannot_be_started_is_no_success_in_the_background() {
    let user = User::new();
    let run = ["run", "--detach", "--name", "m", "--", "no-such-command"];
    user.refused(&run, "no-such-command: no such command");
    user.refused(&["inspect", "m"], "no machine m");
    // The first command of a client finds what the options promise.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "there").unwrap();
    let volume = format!("{}:/data", folder.path().display());
    user.ok(&[
        "run", "--detach", "--name", "v", "--volume", &volume, "--", "sleep", "1000",
    ]);
    assert_eq!(user.ok(&["exec", "v", "--", "cat", "/data/file"]), "there");
}

/// The monitor in the background keeps nothing of its caller open, and not its folder.
#[test]
fn a_machine_in_the_background_holds_nothing_of_its_caller() {
    let user = User::new();
    let folder = tempfile::tempdir().unwrap();
    let held = File::create(folder.path().join("lock")).unwrap();
    let mut command = user.command(&["run", "--detach", "--name", "m", "--", "sleep", "1000"]);
    command.current_dir(folder.path());
    let number = 9;
    // SAFETY: runs between fork and exec, and makes only one system call.
    unsafe {
        command.pre_exec(move || {
            let copied = rustix::io::fcntl_dupfd_cloexec(&held, number)?;
            rustix::io::fcntl_setfd(&copied, rustix::io::FdFlags::empty())?;
            std::mem::forget(copied);
            Ok(())
        });
    }
    assert!(command.output().unwrap().status.success());
    let monitor = format!("/proc/{}", user.monitor("m"));
    assert_eq!(
        fs::read_link(format!("{monitor}/cwd")).unwrap().to_str(),
        Some("/")
    );
    let lock = folder.path().join("lock");
    let files = fs::read_dir(format!("{monitor}/fd")).unwrap();
    for file in files.filter_map(|file| fs::read_link(file.unwrap().path()).ok()) {
        assert_ne!(file, lock);
    }
}

/// `kill` does not wait for the answer of a monitor that gives none.
#[test]
fn a_monitor_that_is_stopped_is_killed_soon() {
    let user = User::new();
    user.detach(&["--name", "m"], WAITS);
    let pid = Pid::from_raw(user.monitor("m").cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    user.ok(&["kill", "m"]);
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(user.state("m"), "died");
}
