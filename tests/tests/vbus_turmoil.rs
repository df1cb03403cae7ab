// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines on a virtual bus while its devices are added and dropped and reset, clients and a
//! machine are killed, and vbusd is killed and started again, all under load: for a few seconds,
//! ten minutes with `PARAVANE_TEST_LONG`, or as many seconds as `PARAVANE_TURMOIL_SECONDS` says.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_tests::program::Ends;
use paravane_tests::vbusd::Vbusd;
use paravane_tests::vm;
use paravane_vbus_client::bus::Name;
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Client, Control, Options};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Sectors of the disk in which records are kept, each with its number.
const RECORDS: u64 = 1024;
/// Private memory, in KiB, that a process may have more after the turmoil.
const MEMORY: u64 = 8192;
/// Memory, in KiB, that a guest's kernel may have more.
const GUEST_MEMORY: u64 = 4096;

/// Gives the card its address, whenever there is one.
const KEEP: &str = "keep() {
        while :; do
            if test -e /sys/class/net/eth0 && ! ip addr show dev eth0 | grep -q '10\\.8'; then
                ip addr add 10.8.0.$1/24 dev eth0; ip link set eth0 up
            fi 2>/dev/null
            usleep 20000
        done
    }
    ";

/// Serves a file, and says for each line of input how much memory its kernel has.
const SERVER: &str = "mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=64k count=4 2>/dev/null
    sha256sum < /tmp/w/file > /tmp/w/sum; httpd -p 80 -h /tmp/w
    keep 1 &
    while read x; do
        usleep 300000
        awk '/^Slab|^KernelStack|^PageTables|^Percpu/ { sum += $2 } END { print sum }' /proc/meminfo
    done";

/// Loads the file over and over, and writes records to the disk: a line for each that is flushed.
const WORKER: &str = "keep 2 &
    while :; do
        timeout 10 wget -q -O /tmp/got http://10.8.0.1/file || continue
        sha256sum < /tmp/got > /tmp/mine
        timeout 10 wget -q -O /tmp/theirs http://10.8.0.1/sum || continue
        cmp -s /tmp/mine /tmp/theirs && echo same || echo different
    done 2>/dev/null &
    n=$FIRST
    while :; do
        n=$((n + 1))
        printf '%-511s\\n' $n | dd of=/dev/vbd0 bs=512 seek=$((n % 1024)) conv=notrunc,fsync \\
            2>/dev/null || exit 8
        echo kept $n
    done";

/// What a process has.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    files: usize,
    threads: u64,
    /// Private memory, in KiB.
    memory: u64,
}

impl Holdings {
    fn of(process: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let value = line.unwrap().split_whitespace().next().unwrap();
            value.parse().unwrap()
        };
        Holdings {
            files: fs::read_dir(format!("/proc/{process}/fd")).unwrap().count(),
            threads: field("Threads:"),
            memory: field("RssAnon:"),
        }
    }

    /// Waits until a process has no more descriptors and threads, and compares its memory.
    fn are_all(self, what: &str, process: u32) {
        let begun = Instant::now();
        loop {
            let now = Holdings::of(process);
            if now.files <= self.files && now.threads <= self.threads {
                println!("{what}: {self:?}, then {now:?}");
                let more = now.memory.saturating_sub(self.memory);
                assert!(more <= MEMORY, "{what} has {more} KiB more");
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {self:?}, then {now:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn machine(vbusd: &Vbusd, words: &[&str], script: &str) -> (Ends, ChildStdin, ChildStdout) {
    let script = format!("{KEEP}{script}");
    let mut command = vm::command_with_hooks(words);
    command.args(["--net", "bus:lan/lan-switch", "--", "sh", "-c", &script]);
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
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(vbusd: &Vbusd) -> Self {
        // Interrupts of pairs' own come and go with the card.
        let words = ["--cpus", "2", "--append", "venet.pairs=2"];
        let (machine, input, output) = machine(vbusd, &words, SERVER);
        Server {
            machine,
            input,
            output: BufReader::new(output),
        }
    }

    /// How much memory the guest's kernel has, in KiB.
    fn memory(&mut self) -> u64 {
        self.input.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

/// A machine with a disk whose connection ends at each 500th request. It is killed and started
/// again.
struct Worker {
    machine: Ends,
    _input: ChildStdin,
    lines: Receiver<String>,
    /// The last record that was flushed.
    kept: u64,
}

/// The next line. `None` at the end: what a machine that was killed said of a line is not one.
fn next_line(output: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    output.read_line(&mut line).ok()?;
    line.strip_suffix('\n').map(ToString::to_string)
}

#[test]
fn a_part_of_a_line_is_not_taken_for_one() {
    let mut output = "kept 12\nkept 1".as_bytes();
    assert_eq!(next_line(&mut output).unwrap(), "kept 12");
    assert_eq!(next_line(&mut output), None);
}

impl Worker {
    /// Returns when it has written something.
    fn start(vbusd: &Vbusd, disk: &Path, first: u64, same: &mut u64) -> Self {
        let disk = format!("{}:vbus-breaks", disk.display());
        let script = WORKER.replace("$FIRST", &first.to_string());
        let (machine, input, output) = machine(vbusd, &["--disk", &disk], &script);
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(line) = next_line(&mut output) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut worker = Worker {
            machine,
            _input: input,
            lines,
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
        let file = File::open(disk).unwrap();
        for number in self.kept.saturating_sub(RECORDS) + 1..=self.kept {
            let mut sector = [0; 512];
            file.read_exact_at(&mut sector, number % RECORDS * 512)
                .unwrap();
            let found: u64 = String::from_utf8_lossy(&sector).trim().parse().unwrap_or(0);
            // A later one may have taken its place.
            assert!(
                found >= number && (found - number).is_multiple_of(RECORDS),
                "record {number} is lost: {found} of {}",
                self.kept
            );
        }
        self.kept
    }
}

/// A client that sends broadcasts and goes without a word.
fn client_comes_and_goes(vbusd: &Vbusd) {
    let client = Client::connect(Options {
        socket: vbusd.socket(),
        bus: "lan".to_string(),
        device: "lan-switch".to_string(),
        count: 64,
        buffer: 2048,
    });
    let mut client = client.unwrap();
    let mut frame = [0xff; 64];
    frame[6..12].copy_from_slice(&client.mac().unwrap());
    for _ in 0..100 {
        client.send(&frame).unwrap();
    }
}

/// One of the things that an administrator does.
fn change(vbusd: &Vbusd, round: u64) {
    let mut control = Control::connect(&vbusd.socket()).unwrap();
    let name = |text: &str| Name::new(text).unwrap();
    let mut ask = |request: Request| drop(control.ask(&request).unwrap());
    let link = |bus, device: &str| Request::Link {
        bus: name(bus),
        device: name(device),
    };
    let unlink = |bus, device: &str| Request::Unlink {
        bus: name(bus),
        device: name(device),
    };
    match round % 4 {
        0 => {
            ask(unlink("lan", "lan-switch"));
            // Long enough for a guest to lose its card, or not.
            thread::sleep(Duration::from_millis(round % 3 * 100));
            ask(link("lan", "lan-switch"));
        }
        1 => ask(Request::Reset {
            device: name("lan-switch"),
        }),
        2 => client_comes_and_goes(vbusd),
        _ => {
            let device = format!("extra-{round}");
            ask(Request::CreateDevice {
                device: name(&device),
                class: "echo".to_string(),
                attributes: vec![],
            });
            ask(link("lan", &device));
            ask(unlink("lan", &device));
            ask(Request::RemoveDevice {
                device: name(&device),
            });
        }
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
    let time = Duration::from_secs(seconds());
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let file = File::create(&disk).unwrap();
    file.set_len(RECORDS * 512).unwrap();
    let mut vbusd = Vbusd::start(&["lan"]);
    let mut server = Server::start(&vbusd);
    let mut guest_before = server.memory();
    let monitor = server.machine.0.id();
    let (mut monitor_before, mut vbusd_before) =
        (Holdings::of(monitor), Holdings::of(vbusd.child.id()));
    let (mut same, mut kills, mut ends, mut rounds) = (0, 0, 0, 0u64);
    let mut worker = Worker::start(&vbusd, &disk, 0, &mut same);
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
        if rounds % 60 == 0 {
            kills += 1;
            let first = worker.kill(&disk, &mut same);
            worker = Worker::start(&vbusd, &disk, first, &mut same);
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
        "{:?}: {rounds} rounds, {ends} ends of vbusd, {kills} machines killed under way, \
         {same} files, {kept} records",
        begun.elapsed()
    );
    assert!(kept > 20, "{kept}");
    vbusd_before.are_all("vbusd", vbusd.child.id());
    monitor_before.are_all("the monitor", monitor);
    let guest = server.memory();
    println!("the guest's kernel: {guest_before} KiB, then {guest} KiB");
    assert!(guest <= guest_before + GUEST_MEMORY);
}
