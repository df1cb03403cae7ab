// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs find a root whose own init does not run as after a boot.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::skip::skip;
use paravane_tests::{program, small_root, vm};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Path and content.
const FILES: [(&str, &str); 8] = [
    (
        "etc/passwd",
        "root:x:0:0::/:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n",
    ),
    ("etc/group", "root:x:0:\nweb:x:44:\n"),
    // Hides the file of the same name in /usr/lib.
    ("etc/tmpfiles.d/web.conf", "d /run/web 2750 web web -\n"),
    ("usr/lib/tmpfiles.d/web.conf", "d /run/not-this\n"),
    (
        "usr/lib/tmpfiles.d/other.conf",
        "d /run/systemd/system\nf /run/lock/file 0600 - web - text\nd /run/who - nobody -\n\
         d /var/lib/new/state 0711 - - -\n",
    ),
    ("run/kept/file", "from the root\n"),
    ("run/systemd/stale", ""),
    ("var/lib/file", ""),
];
const DIRECTORIES: [&str; 5] = ["bin", "dev", "proc", "sys", "tmp"];

/// A root of busybox and [`FILES`].
fn root(folder: &Path) {
    for (path, text) in FILES {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for path in DIRECTORIES {
        fs::create_dir(folder.join(path)).unwrap();
    }
    fs::set_permissions(folder.join("run/kept"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::copy(small_root::busybox(), folder.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "grep", "ls", "readlink", "stat", "sleep"] {
        symlink("busybox", folder.join("bin").join(name)).unwrap();
    }
}

#[test]
fn a_root_looks_booted() {
    let folder = tempfile::tempdir().unwrap();
    root(folder.path());
    let script = "stat -c '%n %a %u %g' /run/lock /run/user /run/web /run/lock/file /run/kept \
            /var/lib/new/state /dev/shm /dev/mqueue /tmp
        cat /run/lock/file /run/kept/file
        echo; ls /run; ls -d /run/systemd 2>&1
        readlink /var/run; readlink /var/lock; readlink /dev/fd
        grep paravane /etc/hosts; ulimit -Sn; ulimit -Hn";
    let mut command = vm::command(["--verbose", "--rootfs"]);
    command.arg(folder.path()).args(["--", "sh", "-c", script]);
    let run = program::finish(&mut command);
    assert_eq!(
        run.stdout,
        "/run/lock 1777 0 0\n/run/user 755 0 0\n/run/web 2750 33 44\n/run/lock/file 600 0 44\n\
         /run/kept 750 0 0\n/var/lib/new/state 711 0 0\n/dev/shm 1777 0 0\n/dev/mqueue 1777 0 0\n\
         /tmp 1777 0 0\ntextfrom the root\n\n\
         kept\nlock\nuser\nweb\nls: /run/systemd: No such file or directory\n\
         /run\n/run/lock\n/proc/self/fd\n127.0.1.1 paravane # paravane\n1024\n524288\n",
        "{run:?}"
    );
    let complaint = "other.conf:3: /run/who: there is no user nobody";
    assert!(run.stderr.contains(complaint), "{run:?}");
    // The folder of the host has not changed.
    assert!(!folder.path().join("var/lib/new").exists());
    assert!(!folder.path().join("etc/hosts").exists());
}

/// Files of an image in /tmp are found there.
#[test]
fn files_in_tmp_are_not_hidden() {
    let folder = tempfile::tempdir().unwrap();
    root(folder.path());
    fs::write(
        folder.path().join("tmp/script"),
        "echo from /tmp; : > /tmp/new\n",
    )
    .unwrap();
    let mut command = vm::command(["--rootfs"]);
    command.arg(folder.path()).args(["--", "sh", "/tmp/script"]);
    let run = program::finish(&mut command);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "from /tmp\n"),
        "{run:?}"
    );
    assert!(!folder.path().join("tmp/new").exists());
}

/// As after a boot with systemd. debugfs is the guest's to mount: a second mount would fail.
#[test]
fn the_kernel_s_files_for_tracing_and_bpf_are_mounted() {
    let run = vm::shell(
        "grep -E '^(tracefs|securityfs|bpf|debugfs) ' /proc/mounts | cut -d ' ' -f 1-4
        stat -c '%n %a' /sys/kernel/tracing /sys/fs/bpf
        cat /sys/kernel/tracing/events/sched/sched_switch/id | grep -c '^[0-9]*$'
        cat /sys/kernel/security/lsm | grep -c capability
        cat /proc/sys/kernel/modprobe
        mount -t debugfs none /sys/kernel/debug && ls -d /sys/kernel/debug/vmi",
    );
    let flags = "rw,nosuid,nodev,noexec,relatime";
    let expected = format!(
        "tracefs /sys/kernel/tracing tracefs {flags}\n\
         securityfs /sys/kernel/security securityfs {flags}\n\
         bpf /sys/fs/bpf bpf {flags},mode=700\n\
         /sys/kernel/tracing 700\n/sys/fs/bpf 1700\n1\n1\n/sbin/modprobe\n/sys/kernel/debug/vmi\n"
    );
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (0, expected.as_str(), "")
    );
}

/// Scripts begin with `modprobe` of what VMI-Linux has built in. A root with a folder for this
/// kernel keeps it as it is.
#[test]
fn modprobe_of_a_driver_that_is_built_in_succeeds() {
    if vm::kernel().is_some_and(|kernel| !kernel.with_file_name("modules.builtin").exists()) {
        skip("PARAVANE_TEST_KERNEL has no modules.builtin beside it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    root(folder.path());
    symlink("busybox", folder.path().join("bin/modprobe")).unwrap();
    let script = "for name in overlay br_netfilter nosuch; do
            modprobe $name 2>/dev/null; echo $name $?
        done
        cd /lib/modules/*-vmi && echo * && pwd";
    let run = || {
        let mut command = vm::command(["--rootfs"]);
        command.arg(folder.path()).args(["--", "sh", "-c", script]);
        program::finish(&mut command)
    };
    let first = run();
    let (answers, own) = first.stdout.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        answers,
        "overlay 0\nbr_netfilter 0\nnosuch 1\nmodules.builtin modules.builtin.bin modules.dep",
        "{first:?}"
    );
    // The folder of the host has not changed.
    assert!(!folder.path().join("lib").exists());
    let own = folder.path().join(own.trim_start_matches('/'));
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("modules.dep"), "").unwrap();
    let second = run();
    assert!(second.stdout.starts_with("overlay 1\n"), "{second:?}");
    assert!(second.stdout.contains("\nmodules.dep\n/lib"), "{second:?}");
}

/// The overlay of a root uses what it knows of the folder. The guest forgets that, too, if the
/// monitor has no descriptor left.
#[test]
fn a_root_may_have_more_files_than_the_monitor_may_open() {
    let folder = tempfile::tempdir().unwrap();
    root(folder.path());
    for name in ["find", "xargs", "wc"] {
        symlink("busybox", folder.path().join("bin").join(name)).unwrap();
    }
    for number in 0..1500 {
        let path = folder.path().join(format!("many/{}", number % 7));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(number.to_string()), "").unwrap();
    }
    let script = "find /many -type f | xargs ls -l | wc -l; cat /many/*/* | wc -c; ls /bin | wc -l";
    let mut whole = vm::command(["--rootfs"]);
    whole.arg(folder.path()).args(["--", "sh", "-c", script]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 500 && exec \"$@\"", "sh"]);
    command.arg(whole.get_program()).args(whole.get_args());
    for (name, value) in whole.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let run = program::finish(&mut command);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "1500\n0\n11\n"),
        "{}",
        run.stderr
    );
}
