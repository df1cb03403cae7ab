// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's threads: each one is confined, and a thread that breaks its policy ends the
//! machine with a message.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::user::User;
use paravane_tests::{program, vm};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// All threads that a machine can have.
const THREADS: [&str; 12] = [
    "alarms",
    "balloon",
    "device-files",
    "disk",
    "doorbell",
    "fs",
    "net-open",
    "net-user",
    "rng",
    "starter",
    "supervisor",
    "watch",
];

/// Capabilities of root's that no thread of a machine keeps: SETPCAP, NET_ADMIN, NET_RAW,
/// SYS_MODULE, SYS_RAWIO, SYS_CHROOT, SYS_ADMIN, MKNOD, BPF.
const MIGHTY: u64 =
    1 << 8 | 1 << 12 | 1 << 13 | 1 << 16 | 1 << 17 | 1 << 18 | 1 << 21 | 1 << 27 | 1 << 39;

/// A machine with a device of each kind.
fn machine(folder: &tempfile::TempDir) -> Command {
    with_devices(vm::command([""; 0]), folder)
}

fn with_devices(mut command: Command, folder: &tempfile::TempDir) -> Command {
    let disk = folder.path().join("disk");
    File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let volume = format!("{}:/mnt", folder.path().display());
    command.args(["--net", "user", "--volume", &volume, "--disk"]);
    command.arg(format!("{}:snapshot", disk.display()));
    command
}

/// What /proc says of each thread of a process.
fn statuses(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = |task: std::io::Result<fs::DirEntry>| {
        // A thread may have ended meanwhile.
        fs::read_to_string(task.ok()?.path().join("status")).ok()
    };
    threads.filter_map(read).collect()
}

fn field(status: &str, name: &str) -> String {
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_string()
}

#[test]
fn every_thread_is_confined() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = machine(&folder);
    // So that the disk's own threads exist, too.
    command.args([
        "--",
        "sh",
        "-c",
        "dd if=/dev/vda of=/mnt/copy 2>/dev/null; echo; cat",
    ]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = Lines::of(child.stdout.take());
    let begun = Instant::now();
    // The thread that starts the network ends when the guest's first frame comes, which may be
    // before its command runs.
    let mut names = BTreeSet::new();
    while output.so_far().is_empty() {
        names.extend(statuses(child.id()).iter().map(|s| field(s, "Name")));
        assert!(
            begun.elapsed() < program::PATIENCE,
            "its command never runs"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    for status in statuses(child.id()) {
        assert_eq!(
            (field(&status, "Seccomp"), field(&status, "NoNewPrivs")),
            ("2".into(), "1".into()),
            "{status}"
        );
        let kept = u64::from_str_radix(&field(&status, "CapPrm"), 16).unwrap();
        assert_eq!(kept & MIGHTY, 0, "{status}");
        names.insert(field(&status, "Name"));
    }
    drop(child.stdin.take());
    assert!(program::wait_within(&mut child, program::PATIENCE).success());
    let missing: Vec<_> = THREADS
        .iter()
        .filter(|&&name| !names.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {names:?}");
    assert!(
        names.contains("vsock") && names.contains("paravane"),
        "{names:?}"
    );
}

#[test]
fn a_policy_violation_ends_the_machine_and_names_the_thread() {
    for thread in THREADS.iter().chain(&["vsock", "main"]) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = with_devices(vm::command_with_hooks([""; 0]), &folder);
        command.args([
            "--timeout",
            "60",
            "--plant-violation",
            thread,
            "--",
            "sleep",
            "1000",
        ]);
        let run = program::finish(&mut command);
        let expected = format!(
            "paravane: the monitor's thread {thread} made \
            the host call socket (41), or arguments of it, \
             that its policy does not admit; the virtual machine was ended\n"
        );
        assert_eq!((run.code, run.stderr), (1, expected), "{thread}");
    }
}

#[test]
fn there_is_no_such_thread() {
    let run = program::finish(
        vm::command_with_hooks(["--plant-violation", "nobody"]).args(["--", "true"]),
    );
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("no thread `nobody`"), "{run:?}");
}

/// The guest's root user may create anything in a shared folder, except a way to the host's
/// devices.
#[test]
fn no_device_is_made_in_a_shared_folder() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mkfifo /mnt/pipe; mknod /mnt/device b 8 0; echo $?";
    let run = program::finish(machine(&folder).args(["--", "sh", "-c", script]));
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");
    assert!(folder.path().join("pipe").exists() && !folder.path().join("device").exists());
}

/// Each file that the guest uses takes a descriptor. The soft limit does not apply, and the hard
/// limit only leads to errors: the guest drops what it does not use, and the machine goes on.
#[test]
fn many_files_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..600 {
        File::create(folder.path().join(format!("{n}"))).unwrap();
    }
    // Each shell holds one more file.
    let script = "ls -l /mnt | wc -l
        hold() {
            if [ $1 -eq 300 ]; then echo all; return; fi
            (hold $(($1 + 1))) </mnt/$1 || echo refused
        }
        hold 0; ls -l /mnt | wc -l; exit 4";
    let run = |limit: &str| {
        let machine = vm::command(["--volume", &format!("{}:/mnt", folder.path().display())]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"]);
        command.arg(machine.get_program()).args(machine.get_args());
        program::finish(command.args(["--", "sh", "-c", script]))
    };
    for (limit, held) in [("-Sn 200", "all"), ("-n 200", "refused")] {
        let run = run(limit);
        let lines = format!("601\n{held}\n601\n");
        assert_eq!(
            (run.code, run.stdout),
            (4, lines),
            "{limit}: {}",
            run.stderr
        );
    }
}

/// Files that the guest knows of one folder leave descriptors to the other.
#[test]
fn many_files_of_two_folders() {
    let many = tempfile::tempdir().unwrap();
    for n in 0..1500 {
        let path = many.path().join(format!("{}/{n}", n / 50));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    let few = tempfile::tempdir().unwrap();
    for n in 0..60 {
        std::fs::write(few.path().join(n.to_string()), n.to_string()).unwrap();
    }
    // The number of known files of one folder grows until it has all descriptors.
    let script = "k=0
        for file in /many/[0-4]/*; do
            cat $file >/dev/null || echo many $k
            n=$((k % 60)); [ \"$(cat /few/$n)\" = $n ] || echo few $k
            k=$((k + 1))
        done
        echo $k";
    let volumes = [
        format!("{}:/many:ro", many.path().display()),
        format!("{}:/few", few.path().display()),
    ];
    let machine = vm::command(["--volume", &volumes[0], "--volume", &volumes[1]]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 400 && exec \"$@\"", "sh"]);
    command.arg(machine.get_program()).args(machine.get_args());
    let run = program::finish(command.args(["--", "sh", "-c", script]));
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (0, "250\n", "")
    );
}

/// A machine whose guest keeps as many files of a folder open as it can still does what its user
/// wants.
#[test]
fn a_folder_leaves_descriptors_to_the_monitor() {
    const LIMIT: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    for n in 0..LIMIT {
        File::create(folder.path().join(format!("{n}"))).unwrap();
    }
    // Each shell holds one more file.
    let script = "hold() { (hold $(($1 + 1))) </mnt/$1 || { echo refused; sleep 1000; } }; hold 0";
    let user = User::new();
    let volume = format!("{}:/mnt", folder.path().display());
    let machine = vm::command(["--detach", "--name", "m", "--volume", &volume]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {LIMIT} && exec \"$@\""), "sh"]);
    command.arg(machine.get_program()).args(machine.get_args());
    command.args(["--", "sh", "-c", script]);
    let run = program::finish(command.env("XDG_STATE_HOME", user.folder()));
    assert_eq!(run.code, 0, "{run:?}");
    let until = Instant::now() + Duration::from_secs(30);
    while !user.ok(&["logs", "m"]).contains("refused") {
        assert!(Instant::now() < until, "no file was refused");
        std::thread::sleep(Duration::from_millis(20));
    }
    let open = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", user.monitor("m"))).unwrap();
        files.count()
    };
    assert!(open() > LIMIT / 4 && open() < LIMIT * 3 / 4, "{}", open());
    assert_eq!(user.ok(&["exec", "m", "--", "echo", "hello"]), "hello\n");
    let begun = Instant::now();
    user.ok(&["stop", "--time", "1", "m"]);
    assert!(begun.elapsed() < Duration::from_secs(20));
}
