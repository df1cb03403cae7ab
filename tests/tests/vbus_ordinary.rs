// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ordinary user has a virtual bus with a switch, a disk and consoles, for machines and a
//! process of the host, without any privilege. Others join it only if they may.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::host_without::NOBODY;
use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends};
use paravane_tests::vbusd::{Other, Vbusd};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::chown;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Another ordinary user.
const OTHER: u32 = 65533;

/// Waits until a command succeeds.
const UNTIL: &str = "until_() { n=0; while ! eval \"$1\"; do
            n=$((n + 1)); test $n -lt 1200 || { echo \"never: $1\"; exit 9; }; usleep 50000
        done; }
    up() { until_ 'test -e /sys/class/net/eth0'
        ip addr add 10.8.0.$1/24 dev eth0; ip link set eth0 up; }
    ";

/// Serves a file that is on the disk, too, and answers on its console.
const SERVER: &str = "set -e
    up 1; until_ 'test -b /dev/vbd0'
    mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=64k count=16 2>/dev/null
    dd if=/tmp/w/file of=/dev/vbd0 bs=64k conv=notrunc,fsync 2>/dev/null
    sha256sum < /tmp/w/file | cut -d ' ' -f 1 > /tmp/w/sum; httpd -p 80 -h /tmp/w
    exec 3<>/dev/vbc0; stty raw -echo <&3; echo ready
    while read line <&3; do echo $line from $(cat /tmp/w/sum) >&3; done";

/// Gets the file by both ways, and pings the process of the host.
const CLIENT: &str = "set -e
    up $1; until_ 'test -b /dev/vbd0'
    ping -c 3 -W 5 10.8.0.9 >/dev/null && echo host
    wget -q -O /tmp/file http://10.8.0.1/file; wget -q -O - http://10.8.0.1/sum
    sha256sum < /tmp/file | cut -d ' ' -f 1
    dd if=/dev/vbd0 bs=64k count=16 2>/dev/null | sha256sum | cut -d ' ' -f 1";

/// A program that prints lines and reads some.
struct Talk {
    ends: Ends,
    input: ChildStdin,
    output: Lines,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child: Child = command.spawn().unwrap();
        Talk {
            input: child.stdin.take().unwrap(),
            output: Lines::of(child.stdout.take()),
            ends: Ends(child),
        }
    }

    fn line(&mut self) -> String {
        let line = self.output.next_within(program::PATIENCE);
        line.trim_end().to_string()
    }

    fn say(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.line()
    }
}

/// A field of `/proc/PID/status`.
fn status(process: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap().trim_start_matches(':').trim().to_string()
}

/// A process is this user's in all respects, and has no privilege on this host.
fn is_ordinary(process: u32, user: u32) {
    for field in ["Uid", "Gid"] {
        let ids = status(process, field);
        let ids: Vec<_> = ids.split_whitespace().collect();
        assert_eq!(ids, vec![user.to_string(); 4], "{field} of {process}");
    }
    assert_eq!(status(process, "Groups"), "");
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).unwrap();
    // In a namespace of its own a process has privileges over that.
    if namespace(&process.to_string()) == namespace("self") {
        for field in ["CapEff", "CapPrm", "CapAmb"] {
            assert_eq!(status(process, field), "0".repeat(16), "{field}");
        }
    }
}

fn words<'a>(options: &[&'a str], script: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    let end = ["--timeout", "120", "--", "sh", "-c", script, "sh"];
    options
        .iter()
        .chain(&end)
        .chain(arguments)
        .copied()
        .collect()
}

/// What a machine with the client's script says.
fn lines(mut command: Command) -> Vec<String> {
    let run = program::finish(&mut command);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    run.stdout.lines().map(ToString::to_string).collect()
}

/// The user has everything with the rights of a user.
#[test]
fn an_ordinary_user_has_a_bus_with_disks_and_consoles() {
    if !geteuid().is_root() {
        // The other tests of the bus run as this user.
        eprintln!("NOT TESTED: two ordinary users. Only root can become them.");
        return;
    }
    let tools = ["bus_host", "unix_client"];
    let vbusd = Vbusd::start_as_ordinary_user(&tools, &["lan"]);
    is_ordinary(vbusd.child.id(), NOBODY);
    let disk = vbusd.folder().join("disks/store");
    File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    chown(&disk, Some(NOBODY), Some(NOBODY)).unwrap();
    vbusd.done(&["create-device", "store", "vblk", "file=store"]);
    vbusd.done(&["link", "lan", "store"]);

    let script = [UNTIL, SERVER].concat();
    let console = vbusd.state.path().join("console");
    let console = console.to_str().unwrap();
    let options = ["--bus", "lan", "--net", "none", "--console", console];
    let mut server = Talk::start(vbusd.machine(&words(&options, &script, &[])));
    assert_eq!(server.line(), "ready");
    is_ordinary(server.ends.0.id(), NOBODY);
    let mut host = vbusd.tool("bus_host");
    host.arg(vbusd.socket())
        .args(["lan", "lan-switch", "0", ""]);
    let mut host = Talk::start(host);
    let mac = host.line();
    assert_eq!(mac.split(':').count(), 6, "{mac}");
    is_ordinary(host.ends.0.id(), NOBODY);
    let mut terminal = vbusd.tool("unix_client");
    terminal.arg(console);
    let mut terminal = Talk::start(terminal);
    let said = terminal.say("hello");
    is_ordinary(terminal.ends.0.id(), NOBODY);
    let sum = said.strip_prefix("hello from ").unwrap().to_string();
    assert_eq!(sum.len(), 64, "{said}");

    // A second machine has the same by either way.
    let script = [UNTIL, CLIENT].concat();
    let expected = ["host".to_string(), sum.clone(), sum.clone(), sum];
    let whole = ["--bus", "lan", "--net", "none"];
    let chosen = ["--net", "bus:lan/lan-switch", "--disk", "bus:lan/store"];
    for options in [&whole, &chosen] {
        let machine = vbusd.machine(&words(options, &script, &["2"]));
        assert_eq!(lines(machine), expected, "{options:?}");
    }
    assert_eq!(terminal.say("again"), said.replace("hello", "again"));

    // Another user can join it only while that is permitted.
    let other = vbusd.other(OTHER);
    nothing_is_for(&other);
    vbusd.done(&["allow", "lan", "--uid", &OTHER.to_string()]);
    for options in [&whole, &chosen] {
        let machine = other.machine(&words(options, &script, &["3"]));
        assert_eq!(lines(machine), expected, "{options:?}");
    }
    may_not_administer(&other);
    vbusd.done(&["allow", "lan"]);
    nothing_is_for(&other);

    // The others are still there.
    assert_eq!(terminal.say("at last"), said.replace("hello", "at last"));
    let counts = host.say("");
    let answered = counts.split(' ').next().unwrap();
    assert!(answered.parse::<u64>().unwrap() >= 12, "{counts}");
}

/// Neither a machine nor a process of this user joins.
fn nothing_is_for(other: &Other<'_>) {
    let refused = |command: &mut Command| {
        let run = program::finish(command.stdin(Stdio::null()));
        let part = format!("user {OTHER} may not join bus lan");
        assert!(run.code != 0 && run.stdout.is_empty(), "{run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(run.stderr.contains(&part), "{run:?}");
    };
    for options in [
        &["--bus", "lan", "--net", "none"][..],
        &["--net", "bus:lan/lan-switch"],
        &["--net", "none", "--disk", "bus:lan/store"],
    ] {
        refused(&mut other.machine(&words(options, "echo it runs", &[])));
    }
    let mut host = other.tool("bus_host");
    refused(
        host.arg(other.socket())
            .args(["lan", "lan-switch", "0", ""]),
    );
    may_not_administer(other);
}

fn may_not_administer(other: &Other<'_>) {
    let uid = OTHER.to_string();
    for words in [
        &["ls"][..],
        &["allow", "lan", "--uid", &uid],
        &["unlink", "lan", "store"],
        &["set", "store", "read-only=1"],
    ] {
        let run = other.administer(words);
        let lines = run.stderr.lines().count();
        assert!(run.code != 0 && lines == 1, "{words:?}: {run:?}");
        assert!(
            run.stderr.contains("only an administrator"),
            "{words:?}: {run:?}"
        );
    }
}
