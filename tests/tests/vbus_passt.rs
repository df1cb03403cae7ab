// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices `venet-user` of a vbusd by which passt leads its clients, guests here, out of a bus.
//! Tests of passt's end use a program of the tests in place of passt. The others use the host's own
//! if it is new enough.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends};
use paravane_tests::vbusd::Vbusd;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const CREATE: [&str; 4] = ["create-device", "net", "venet-user", "by=passt"];

/// Processes whose ancestor is this one and that run the program, by the words of their command.
fn passts(vbusd: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let rest = stat.rsplit_once(')')?.1;
        rest.split_whitespace().nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let below = |pid: u32| {
        let mut line = std::iter::successors(parent(pid), |&pid| parent(pid)).take(8);
        line.any(|pid| pid == vbusd)
    };
    all.filter(|&pid| below(pid) && is_passt(pid)).collect()
}

fn is_passt(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.windows(19).any(|part| part == b"--map-host-loopback")
}

fn until(what: &str, mut attempt: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !attempt() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A vbusd that finds this program as passt, or none.
fn vbusd_with(passt: Option<&str>) -> (Vbusd, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    if let Some(text) = passt {
        let file = folder.path().join("passt");
        if text == "like_passt" {
            symlink(program::tool(text), &file).unwrap();
        } else {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    (Vbusd::start_with_path(folder.path(), &["lan"]), folder)
}

/// A guest on the device that runs this, and has said `up`.
fn guest(vbusd: &Vbusd, script: &str) -> Ends {
    talking_guest(vbusd, script).0
}

/// The same, and what it says next.
fn talking_guest(vbusd: &Vbusd, script: &str) -> (Ends, Lines) {
    let words = ["--net", "bus:lan/net", "--timeout", "120", "--", "sh", "-c"];
    let script = format!(
        "ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0
        ip route add default via 10.0.2.2; {script}"
    );
    let mut command = vbusd.machine(&[&words[..], &[&script]].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take());
    assert_eq!(lines.next_within(PATIENCE), "up\n");
    (Ends(child), lines)
}

/// passt ends with its client, and when vbusd is killed. A client that comes back gets another
/// passt. A passt that ends by itself is counted, and the next client gets another one, too.
#[test]
fn a_passt_lives_as_long_as_its_client_and_vbusd() {
    let (mut vbusd, _folder) = vbusd_with(Some("like_passt"));
    vbusd.done(&CREATE);
    vbusd.done(&["link", "lan", "net"]);
    assert_eq!(vbusd.done(&["show", "net", "by"]), "passt\n");
    let count = |vbusd: &Vbusd| passts(vbusd.child.id()).len();
    until("the one that was tried stays", || count(&vbusd) == 0);
    let ping = "ping -c 1 -W 20 10.0.2.2 >/dev/null";
    let again = format!("while :; do {ping} && echo ping; sleep 0.1; done");
    let machine = guest(&vbusd, &format!("{ping} && echo up; {again} >/dev/null"));
    assert_eq!(count(&vbusd), 1);
    // Each client has its own.
    let other = guest(&vbusd, &format!("{ping} && echo up; sleep 100"));
    assert_eq!(count(&vbusd), 2);
    drop(other);
    until("it outlives its client", || count(&vbusd) == 1);
    // Its end is the client's, which comes back and gets another one.
    let [first] = passts(vbusd.child.id())[..] else {
        panic!("not one passt");
    };
    assert_eq!(vbusd.figure("net", "passt-ended"), 0);
    end(first);
    until("its end is not counted", || {
        vbusd.figure("net", "passt-ended") == 1
    });
    until("there is no other one", || {
        let now = passts(vbusd.child.id());
        now.len() == 1 && now != [first]
    });
    // However vbusd ends.
    let last = passts(vbusd.child.id());
    vbusd.kill();
    until("it outlives vbusd", || {
        !last.iter().any(|&pid| is_passt(pid))
    });
    vbusd.again();
    until("the client did not come back", || count(&vbusd) == 1);
    drop(machine);
    until("it outlives the last client", || count(&vbusd) == 0);
    // The device goes with no passt, either.
    vbusd.done(&["set", "net", "by=stack"]);
    assert_eq!(vbusd.done(&["show", "net", "by"]), "stack\n");
}

/// The monitor tries to connect a card again until there is a passt.
#[test]
fn a_card_comes_back_when_there_is_a_passt_again() {
    let (vbusd, folder) = vbusd_with(Some("like_passt"));
    vbusd.done(&CREATE);
    vbusd.done(&["link", "lan", "net"]);
    let now = || passts(vbusd.child.id());
    until("the one that was tried stays", || now().is_empty());
    let ping = "ping -c 1 -W 20 10.0.2.2 >/dev/null";
    let script = format!(
        "{ping} && echo up; while ping -c 1 -W 1 10.0.2.2 >/dev/null; do sleep .1; done
        echo away; until {ping}; do sleep .1; done; echo again; sleep 100"
    );
    let (_machine, mut lines) = talking_guest(&vbusd, &script);
    let [first] = now()[..] else {
        panic!("not one passt");
    };
    let (there, away) = (folder.path().join("passt"), folder.path().join("away"));
    fs::rename(&there, &away).unwrap();
    end(first);
    until("its end is not counted", || {
        vbusd.figure("net", "passt-ended") == 1
    });
    until("it stays", || now().is_empty());
    // An answer takes longer than all first attempts.
    assert_eq!(lines.next_within(PATIENCE), "away\n");
    fs::rename(&away, &there).unwrap();
    assert_eq!(lines.next_within(PATIENCE), "again\n");
    assert_eq!(now().len(), 1);
}

/// A passt that does not end with its link is killed.
#[test]
fn a_passt_that_does_not_end_by_itself_is_ended() {
    let tool = program::tool("like_passt");
    let stays = format!("#!/bin/sh\n{}\nwhile :; do :; done\n", tool.display());
    let (mut vbusd, _folder) = vbusd_with(Some(&stays));
    vbusd.done(&CREATE);
    vbusd.done(&["link", "lan", "net"]);
    let count = |vbusd: &Vbusd| passts(vbusd.child.id()).len();
    until("the one that was tried stays", || count(&vbusd) == 0);
    let client = guest(&vbusd, "echo up; sleep 100");
    assert_eq!(count(&vbusd), 1);
    drop(client);
    until("it outlives its client", || count(&vbusd) == 0);
    let _client = guest(&vbusd, "echo up; sleep 100");
    let last = passts(vbusd.child.id());
    assert_eq!(last.len(), 1);
    vbusd.kill();
    until("it outlives vbusd", || {
        !last.iter().any(|&pid| is_passt(pid))
    });
}

fn end(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A passt that is missing or too old is refused when the attribute is set, in one line, and
/// nothing changes.
#[test]
fn what_cannot_be_passt_is_refused_when_it_is_set() {
    let old = "#!/bin/sh\necho \"passt: unrecognized option '--map-host-loopback'\" >&2; exit 1\n";
    let bad = "#!/bin/sh\necho 'Failed to do this' >&2; exit 1\n";
    for (passt, part) in [
        (None, "passt: it is not installed"),
        (Some(old), "one of August 2024 or later is needed"),
        (Some(bad), "passt: it ended at once: Failed to do this"),
    ] {
        let (vbusd, _folder) = vbusd_with(passt);
        let refused = |words: &[&str]| {
            let run = vbusd.administer(words);
            let lines = run.stderr.lines().count();
            assert!(run.code != 0 && lines == 1, "{words:?}: {run:?}");
            assert!(run.stderr.contains(part), "{words:?}: {run:?}");
        };
        refused(&CREATE);
        vbusd.done(&CREATE[..3]);
        refused(&["set", "net", "by=passt"]);
        assert_eq!(vbusd.done(&["show", "net", "by"]), "stack\n");
        for bad in ["by=", "by=Passt", "by=--fd", "by=passt,stack"] {
            let run = vbusd.administer(&["set", "net", bad]);
            let clear = run.stderr.contains("stack and passt are");
            assert!(run.code != 0 && clear, "{run:?}");
        }
    }
}

/// A guest reaches a server on the host's loopback, where that is allowed, and programs of the host
/// reach the guest by a published port, also by long frames.
#[test]
fn a_guest_reaches_and_is_reached_by_passt() {
    let vbusd = Vbusd::start(&["lan"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().port();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let publish = format!("publish={port}:80");
    let words = ["create-device", "net", "venet-user", "loopback=1"];
    let words = [&words[..], &["by=passt", "mtu=9000", &publish]].concat();
    let run = vbusd.administer(&words);
    if run.code != 0 {
        assert!(run.stderr.contains("passt: "), "{run:?}");
        eprintln!("without passt: {}", run.stderr);
        return;
    }
    vbusd.done(&["link", "lan", "net"]);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            let _ = stream.write_all(text.to_uppercase().as_bytes());
        }
    });
    let script = format!(
        "until test \"$(echo hello | nc -w 20 10.0.2.2 {server})\" = HELLO; do usleep 50000; done
        ip link set eth0 mtu 9000; seq 1 300000 > /tmp/file
        httpd -p 80 -h /tmp; echo up; sleep 100"
    );
    let machine = guest(&vbusd, &script);
    let fetch = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let body = text.split_once("\r\n\r\n")?.1;
        Some(body.lines().count() == 300_000 && body.ends_with("\n300000\n"))
    };
    until("no file", || fetch() == Some(true));
    // The port is the client's.
    drop(machine);
    until("the port stays", || {
        TcpListener::bind(("127.0.0.1", port)).is_ok()
    });
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let words = ["--net", "bus:lan/net", "--timeout", "60", "--", "true"];
    let run = program::finish(&mut vbusd.machine(&words));
    assert!(run.code != 0 && run.stderr.contains("passt: "), "{run:?}");
    eprintln!("a port that is taken: {}", run.stderr);
    drop(taken);
    until("the client stays", || {
        vbusd.figure("net", "connections") == 0
    });
    vbusd.done(&["set", "net", "publish="]);
    vbusd.done(&["set", "net", "loopback=0"]);
    let script = format!(
        "test -z \"$(echo hello | nc -w 3 10.0.2.2 {server})\" &&
        test -z \"$(echo hello | nc -w 3 127.0.0.1 {server})\" && echo up; sleep 100"
    );
    drop(guest(&vbusd, &script));
}
