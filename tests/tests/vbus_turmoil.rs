// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines on a virtual bus while its devices are added and dropped and reset, clients and a
//! machine are killed, and vbusd is killed and started again, all under load: for a few seconds,
//! ten minutes with `PARAVANE_TEST_LONG`, or as many seconds as `PARAVANE_TURMOIL_SECONDS` says.
//! Devices are switches, cards that lead out of a bus, disks and consoles.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

#[path = "vbus_turmoil/admin.rs"]
mod admin;
#[path = "vbus_turmoil/consoles.rs"]
mod consoles;
#[path = "vbus_turmoil/guest_memory.rs"]
mod guest_memory;
#[path = "../../vbus/daemon/tests/turmoil/holdings.rs"]
mod holdings;
#[path = "../../vbus/daemon/tests/turmoil/namespace.rs"]
mod namespace;
#[path = "vbus_turmoil/outside.rs"]
mod outside;
#[path = "vbus_turmoil/records.rs"]
mod records;
#[path = "vbus_turmoil/streams.rs"]
mod streams;

use admin::{Admin, client_comes_and_goes};
use guest_memory::{GuestMemory, TELL_MEMORY};
use holdings::Holdings;
use paravane_tests::lines::Lines;
use paravane_tests::program::Ends;
use paravane_tests::vbusd::Vbusd;
use paravane_tests::vm;
use paravane_vbus_client::Disk;
use records::{KEEP, RECORDS, lines_of, lost_record};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Private memory, in KiB, that a process may have more after the turmoil.
const MEMORY: u64 = 8192;
/// Host processes that a machine may have more: it keeps as many as programs have run at a time.
const PROGRAMS: usize = 24;

/// Serves a file, and says for each line of input how much memory its kernel has. A client that was
/// killed says no more, and TCP sends to it for a quarter of an hour at first: the server of each
/// would still be there at the end.
const SERVER: &str = "echo 5 > /proc/sys/net/ipv4/tcp_retries2
    mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=64k count=4 2>/dev/null
    sha256sum < /tmp/w/file > /tmp/w/sum; httpd -p 80 -h /tmp/w
    keep '*=10.8.0.1' &
    while read x; do
        memory
    done";

/// Loads the file over and over, and writes records to the disk: a line for each that is flushed.
const WORKER: &str = "keep '*=10.8.0.2' &
    while :; do
        timeout 10 wget -q -O /tmp/got http://10.8.0.1/file || continue
        sha256sum < /tmp/got > /tmp/mine
        timeout 10 wget -q -O /tmp/theirs http://10.8.0.1/sum || continue
        cmp -s /tmp/mine /tmp/theirs && echo same || echo different
    done 2>/dev/null &
    n=$FIRST
    while :; do
        n=$((n + 1))
        until printf '%-511s\\n' $n | put bs=512 seek=$((n % 1024)) conv=notrunc,fsync; do
            $FAILED; usleep 20000
        done
        echo kept $n
    done";

/// Where the machines' devices are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Devices {
    /// The card is on the bus. The disk is the machine's own, and its connection ends at each 500th
    /// request.
    Card,
    /// The card and the disk are on the bus. A write waits while there is no vbusd.
    Chosen,
    /// The machine follows the bus. Its disk goes with vbusd, and what is under way fails.
    Whole,
}

impl Devices {
    fn options(self) -> &'static [&'static str] {
        match self {
            Devices::Whole => &["--bus", "lan", "--net", "none"],
            Devices::Card | Devices::Chosen => &["--net", "bus:lan/lan-switch"],
        }
    }

    /// The file of the disk. The worker's records are in it.
    fn disk(self, vbusd: &Vbusd) -> PathBuf {
        match self {
            Devices::Card => vbusd.state.path().join("store"),
            Devices::Chosen | Devices::Whole => vbusd.folder().join("disks/store"),
        }
    }

    fn make_disk(self, vbusd: &Vbusd) {
        let file = File::create(self.disk(vbusd)).unwrap();
        file.set_len(RECORDS * 512).unwrap();
        if self != Devices::Card {
            vbusd.done(&["create-device", "store", "vblk", "file=store"]);
            vbusd.done(&["link", "lan", "store"]);
            // vbusd has a thread for disks since the first is used.
            drop(Disk::connect(&vbusd.socket(), "lan", "store", Duration::ZERO).unwrap());
        }
    }
}

fn machine(
    vbusd: &Vbusd,
    devices: Devices,
    words: &[&str],
    script: &str,
) -> (Ends, ChildStdin, ChildStdout) {
    let script = format!("{KEEP}{TELL_MEMORY}{script}");
    let mut command = vm::command_with_hooks(words);
    command.args(devices.options());
    command.args(["--", "sh", "-c", &script]);
    command.env("XDG_STATE_HOME", vbusd.state.path());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (Ends(child), input, output)
}

/// The machine that serves, until the end.
struct Server {
    machine: Ends,
    input: ChildStdin,
    output: Lines,
}

impl Server {
    fn start(vbusd: &Vbusd, devices: Devices) -> Self {
        // Interrupts of pairs' own come and go with the card.
        let words = ["--cpus", "2", "--append", "venet.pairs=2"];
        let (machine, input, output) = machine(vbusd, devices, &words, SERVER);
        Server {
            machine,
            input,
            output: Lines::of(Some(output)),
        }
    }

    fn memory(&mut self) -> GuestMemory {
        self.input.write_all(b"\n").unwrap();
        GuestMemory::parse(&self.output.next_within(PATIENCE))
    }
}

/// A machine with a disk. It is killed and started again.
struct Worker {
    machine: Ends,
    _input: ChildStdin,
    lines: Receiver<String>,
    /// The last record that was flushed.
    kept: u64,
}

impl Worker {
    /// Returns when it has written something.
    fn start(vbusd: &Vbusd, devices: Devices, first: u64, same: &mut u64) -> Self {
        let own = format!("{}:vbus-breaks", devices.disk(vbusd).display());
        // A machine that follows its bus loses its disk at times. The others never do.
        let (words, failed): (&[&str], _) = match devices {
            Devices::Card => (&["--disk", &own], "exit 8"),
            Devices::Chosen => (&["--disk", "bus:lan/store"], "exit 8"),
            Devices::Whole => (&[], ":"),
        };
        let script = WORKER
            .replace("$FIRST", &first.to_string())
            .replace("$FAILED", failed);
        let (machine, input, output) = machine(vbusd, devices, words, &script);
        let mut worker = Worker {
            machine,
            _input: input,
            lines: lines_of(output),
            kept: first,
        };
        let line = worker.lines.recv_timeout(PATIENCE).unwrap();
        worker.took(&line, same);
        worker
    }

    fn took(&mut self, line: &str, same: &mut u64) {
        match line.strip_prefix("kept ") {
            Some(number) => self.kept = number.parse().unwrap(),
            None if line == "same" => *same += 1,
            None => panic!("{line}"),
        }
    }

    fn look(&mut self, same: &mut u64) {
        while let Ok(line) = self.lines.try_recv() {
            self.took(&line, same);
        }
    }

    /// Kills it. All records that were flushed are on the disk. Returns the last one.
    fn kill(mut self, disk: &Path, same: &mut u64) -> u64 {
        self.machine.0.kill().unwrap();
        self.machine.0.wait().unwrap();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.took(&line, same);
        }
        if let Some(lost) = lost_record(&File::open(disk).unwrap(), self.kept) {
            panic!("record {lost} of {} is lost", self.kept);
        }
        self.kept
    }
}

/// One of the things that an administrator does.
fn change(vbusd: &Vbusd, round: u64) {
    let mut admin = Admin::of(vbusd);
    match round % 4 {
        0 => {
            admin.unlink("lan", "lan-switch");
            // Long enough for a guest to lose its card, or not.
            thread::sleep(Duration::from_millis(round % 3 * 100));
            admin.link("lan", "lan-switch");
        }
        1 => admin.reset("lan-switch"),
        2 => client_comes_and_goes(vbusd, "lan", "lan-switch"),
        _ => admin.extra("lan", &format!("extra-{round}")),
    }
}

fn seconds() -> u64 {
    if let Some(seconds) = std::env::var_os("PARAVANE_TURMOIL_SECONDS") {
        return seconds.to_str().unwrap().parse().unwrap();
    }
    if std::env::var_os("PARAVANE_TEST_LONG").is_some() {
        600
    } else {
        3
    }
}

#[test]
fn machines_lose_nothing_and_leak_nothing_in_turmoil() {
    turmoil(Devices::Card);
}

#[test]
fn disks_of_a_bus_lose_nothing_in_turmoil() {
    turmoil(Devices::Chosen);
}

#[test]
fn machines_follow_their_bus_in_turmoil() {
    turmoil(Devices::Whole);
}

fn turmoil(devices: Devices) {
    let time = Duration::from_secs(seconds());
    let mut vbusd = Vbusd::start(&["lan"]);
    devices.make_disk(&vbusd);
    let disk = devices.disk(&vbusd);
    let mut server = Server::start(&vbusd, devices);
    let mut guest_before = server.memory();
    let monitor = server.machine.0.id();
    // Programs of the guest come and go.
    let before = |process| Holdings::over(process, Duration::from_millis(500));
    let (mut monitor_before, mut vbusd_before) = (before(monitor), before(vbusd.child.id()));
    monitor_before.processes += PROGRAMS;
    let (mut same, mut kills, mut ends, mut rounds) = (0, 0, 0, 0u64);
    let mut worker = Worker::start(&vbusd, devices, 0, &mut same);
    // The machine is killed after this many rounds, so at least once in a short test.
    let killed_each = if time < Duration::from_secs(60) {
        9
    } else {
        60
    };
    let begun = Instant::now();
    while begun.elapsed() < time || rounds < 13 || same < 3 {
        assert!(begun.elapsed() < time + PATIENCE, "{same} files came");
        rounds += 1;
        // Some time to do something in between.
        thread::sleep(Duration::from_millis(50 + rounds % 8 * 40));
        change(&vbusd, rounds);
        if rounds % 6 == 0 {
            ends += 1;
            vbusd.kill();
            thread::sleep(Duration::from_millis(rounds % 4 * 50));
            vbusd.again();
        }
        worker.look(&mut same);
        if rounds % killed_each == 0 {
            kills += 1;
            let first = worker.kill(&disk, &mut same);
            worker = Worker::start(&vbusd, devices, first, &mut same);
        }
        if rounds == 5 {
            // Both have warmed up.
            monitor_before.memory = Holdings::of(monitor).memory;
            guest_before = server.memory();
        }
        if rounds % 6 == 3 {
            vbusd_before.memory = Holdings::of(vbusd.child.id()).memory;
        }
    }
    let kept = worker.kill(&disk, &mut same);
    println!(
        "{devices:?}, {:?}: {rounds} rounds, {ends} ends of vbusd, \
         {kills} machines killed under way, {same} files, {kept} records",
        begun.elapsed()
    );
    assert!(kept > 20 && kills > 0, "{kept} records, {kills} kills");
    vbusd_before.are_all("vbusd", vbusd.child.id(), MEMORY);
    monitor_before.are_all("the monitor", monitor, MEMORY);
    GuestMemory::settled(&guest_before, || server.memory()).may_follow(&guest_before);
}
