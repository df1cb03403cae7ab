// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine whose devices lead out of the bus in turmoil: a card on a tap, one on the user-mode
//! network, a disk whose file loses its name while it is written, and consoles. The tap is in a
//! network namespace of the test.

use crate::admin::{Admin, client_comes_and_goes};
use crate::consoles::{self, Seen};
use crate::guest_memory::{GuestMemory, TELL_MEMORY};
use crate::holdings::Holdings;
use crate::namespace::{self, Place, TAP, ip, make_tap};
use crate::records::{KEEP, RECORDS, lines_of, lost_record};
use crate::streams::Server;
use crate::{MEMORY, PATIENCE, PROGRAMS, seconds};
use paravane_tests::over::Over;
use paravane_tests::program::Ends;
use paravane_tests::vbusd::Vbusd;
use paravane_tests::vm;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Kinds of changes.
const CHANGES: u64 = 9;
/// Addresses by which the guest knows its cards.
const OUT: &str = "02:00:00:00:09:01";
const NET: &str = "02:00:00:00:09:02";

/// The longest that TCP waits before it sends again what was lost, in milliseconds. At first it is
/// 120 s, and that is much of a turmoil. Linux before 6.15 has no such setting.
const RESENDS: &str = "/proc/sys/net/ipv4/tcp_rto_max_ms";
const RESENDS_AFTER: &str = "1000";
/// How often TCP sends again before it ends a connection: for longer than the tests are patient.
/// With 15, and a second between two, a tap may be gone for a quarter of a minute only, and a busy
/// host needs as long to make one.
const ATTEMPTS: &str = "/proc/sys/net/ipv4/tcp_retries2";
const MOST_ATTEMPTS: &str = "240";

/// `$1` and `$2` are the ports of the servers.
const GUEST: &str = "again() { while :; do \"$@\"; usleep 50000; done; }
    again nc 10.9.0.1 $1 -e cat 2>/dev/null &
    again timeout 3 nc 10.0.2.2 $2 -e cat 2>/dev/null &
    write() {
        n=0
        while :; do
            n=$((n + 1))
            until printf '%-511s\\n' $n | put bs=512 seek=$((n % 1024)) conv=notrunc,fsync; do
                usleep 20000
            done
            echo kept $n
        done
    }
    echo ready; write &
    while read x; do
        if test \"$x\" = tell; then
            { ls -l /dev/vbd*; cat /proc/[0-9]*/stack; dmesg | tail -n 60; } >&2
            continue
        fi
        echo memory $(memory)
    done";

/// The machine.
struct Guest {
    machine: Ends,
    input: ChildStdin,
    lines: Receiver<String>,
    /// The last record that was flushed.
    kept: u64,
    memory: Option<GuestMemory>,
}

impl Guest {
    /// Returns when it is ready.
    fn start(vbusd: &Vbusd, consoles: &[PathBuf; 2], ports: [u16; 2]) -> Self {
        let mut command = vm::command(["--cpus", "2", "--bus", "out", "--net", "none"]);
        for console in consoles {
            command.arg("--console").arg(console);
        }
        let script = format!("{KEEP}{TELL_MEMORY}keep {OUT}=10.9.0.2 {NET}=10.0.2.15 &\n");
        let resend = format!(
            "test ! -e {RESENDS} || echo {RESENDS_AFTER} > {RESENDS}
            echo {MOST_ATTEMPTS} > {ATTEMPTS}\n"
        );
        let script = script + &resend + consoles::GUEST + GUEST;
        command.args(["--", "sh", "-c", &script, "sh"]);
        command.args(ports.map(|port| port.to_string()));
        command.env("XDG_STATE_HOME", vbusd.state.path());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let machine = Ends(child);
        assert_eq!(lines.recv_timeout(PATIENCE).unwrap(), "ready");
        Guest {
            machine,
            input,
            lines,
            kept: 0,
            memory: None,
        }
    }

    fn took(&mut self, line: &str) {
        let (what, number) = line.split_once(' ').unwrap_or_default();
        match what {
            "kept" => self.kept = number.parse().unwrap(),
            "memory" => self.memory = Some(GuestMemory::parse(number)),
            _ => unreachable!("the guest says {line:?}"),
        }
    }

    fn look(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.took(&line);
        }
    }

    fn memory(&mut self) -> GuestMemory {
        self.input.write_all(b"\n").unwrap();
        self.memory = None;
        let begun = Instant::now();
        loop {
            assert!(
                begun.elapsed() < PATIENCE,
                "the guest does not tell its memory"
            );
            if let Some(memory) = self.memory.take() {
                return memory;
            }
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            self.took(&line);
        }
    }

    fn kill(&mut self) {
        self.machine.0.kill().unwrap();
        self.machine.0.wait().unwrap();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.took(&line);
        }
    }

    /// Waits until it has flushed some more records.
    fn is_writing(&mut self) {
        self.look();
        let (begun, before) = (Instant::now(), self.kept);
        while self.kept < before + 3 {
            self.look();
            if begun.elapsed() >= PATIENCE {
                self.input.write_all(b"tell\n").unwrap();
                thread::sleep(hold());
                unreachable!("nothing is written");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The host: vbusd, and the disk's file, which another name keeps.
struct Host {
    vbusd: Vbusd,
    file: File,
    name: PathBuf,
    kept: PathBuf,
    taps: bool,
}

impl Host {
    fn start(taps: bool) -> Self {
        let vbusd = Vbusd::start(&[]);
        let (name, kept) = (
            vbusd.folder().join("disks/loose"),
            vbusd.folder().join("kept"),
        );
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&name);
        let file = file.unwrap();
        file.set_len(RECORDS * 512).unwrap();
        fs::hard_link(&name, &kept).unwrap();
        vbusd.done(&["create-bus", "out"]);
        let (out, net) = (format!("mac={OUT}"), format!("mac={NET}"));
        vbusd.done(&["create-device", "net", "venet-user", "loopback=1", &net]);
        vbusd.done(&["create-device", "loose", "vblk", "file=loose"]);
        if taps {
            let tap = format!("tap={TAP}");
            vbusd.done(&["create-device", "tap", "venet-tap", &tap, &out]);
            vbusd.done(&["link", "out", "tap"]);
        }
        vbusd.done(&["link", "out", "net"]);
        vbusd.done(&["link", "out", "loose"]);
        Host {
            vbusd,
            file,
            name,
            kept,
            taps,
        }
    }

    fn check(&self, kept: u64) {
        if let Some(lost) = lost_record(&self.file, kept) {
            unreachable!("record {lost} of {kept} is lost");
        }
    }

    /// vbusd ends, and another one starts.
    fn end_vbusd(&mut self, pause: u64) {
        self.vbusd.kill();
        thread::sleep(Duration::from_millis(pause));
        self.vbusd.again();
    }

    /// One of the things that an administrator does.
    fn change(&mut self, round: u64, guest: &mut Guest) {
        let mut admin = Admin::of(&self.vbusd);
        let pause = || thread::sleep(Duration::from_millis(round % 3 * 100));
        let mut again = |device: &str| {
            admin.unlink("out", device);
            // Long enough for a guest to lose it, or not.
            pause();
            admin.link("out", device);
        };
        match round % CHANGES {
            0 => again("net"),
            1 => admin.reset("net"),
            2 => again("loose"),
            3 => admin.reset("loose"),
            4 => self.drop_file(round, guest),
            5 => {
                admin.extra("out", &format!("extra-{round}"));
                client_comes_and_goes(&self.vbusd, "out", "net");
            }
            _ if !self.taps => {}
            6 => again("tap"),
            7 => admin.reset("tap"),
            _ => {
                ip(&format!("link del {TAP}"));
                pause();
                make_tap();
            }
        }
    }

    /// Waits until the machine has a connection to a device.
    fn is_used(&self, device: &str) {
        let begun = Instant::now();
        while self.vbusd.figure(device, "connections") == 0 {
            assert!(begun.elapsed() < PATIENCE, "nobody uses {device}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The file of the disk loses its name while the guest writes it. It goes on to write, until
    /// another vbusd does not find the file.
    fn drop_file(&mut self, round: u64, guest: &mut Guest) {
        // A vbusd that has just started opens the file when the machine has joined again.
        self.is_used("loose");
        fs::remove_file(&self.name).unwrap();
        guest.is_writing();
        self.end_vbusd(0);
        thread::sleep(Duration::from_millis(round % 4 * 100));
        guest.look();
        self.check(guest.kept);
        fs::hard_link(&self.kept, &self.name).unwrap();
        guest.is_writing();
    }
}

#[test]
fn machines_reach_outside_in_turmoil() {
    // It is built where the network is, should that be needed.
    drop(vm::command([""; 0]));
    match namespace::enter("outside::machines_reach_outside_in_turmoil") {
        Place::Inside => turmoil(true),
        Place::NoTaps => turmoil(false),
        Place::Done => {}
    }
}

/// How long a failed test leaves its machine and vbusd to be looked at: as many seconds as
/// `PARAVANE_TURMOIL_HOLD` says, or until the guest has told its state.
fn hold() -> Duration {
    let seconds = std::env::var("PARAVANE_TURMOIL_HOLD").map_or(3, |all| all.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Waits until a figure is larger than it was.
fn more(what: &str, figure: impl Fn() -> u64) {
    let (begun, before) = (Instant::now(), figure());
    while figure() <= before {
        assert!(
            begun.elapsed() < PATIENCE,
            "{what} stands still at {before}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn turmoil(taps: bool) {
    let time = Duration::from_secs(seconds());
    if taps {
        // Of the namespace alone.
        fs::write(ATTEMPTS, MOST_ATTEMPTS).unwrap();
        if Path::new(RESENDS).exists() {
            fs::write(RESENDS, RESENDS_AFTER).unwrap();
        }
    }
    let mut host = Host::start(taps);
    let (wire, net) = (Server::new(true), Server::new(false));
    let folder = tempfile::tempdir().unwrap();
    let paths = ["text", "echo"].map(|name| folder.path().join(name));
    let mut guest = Guest::start(&host.vbusd, &paths, [wire.port(), net.port()]);
    let (end, left) = (AtomicBool::new(false), AtomicBool::new(false));
    let (text, echo) = (Seen::default(), Seen::default());
    let monitor = guest.machine.0.id();
    let (mut rounds, mut kills) = (0, 0);
    let guest_before = thread::scope(|scope| {
        let ends = &end;
        let _over = [Over(&end), Over(&left)];
        let served = [&wire, &net].map(|server| scope.spawn(move || server.serve(ends)));
        let clients = [
            scope.spawn(|| consoles::read_text(&paths[0], &text, &left)),
            scope.spawn(|| consoles::read_echo(&paths[1], &echo, &left)),
        ];
        let all_goes_on = |guest: &mut Guest| {
            guest.is_writing();
            more("the user-mode network", || net.blocks());
            if taps {
                more("the wire", || wire.blocks());
            }
            for (what, figure) in [("text", &text.lines), ("echo", &echo.echoed)] {
                more(what, || figure.load(Ordering::SeqCst));
            }
        };
        all_goes_on(&mut guest);
        // Programs of the guest come and go.
        let before = |process| Holdings::over(process, Duration::from_secs(1));
        let mut monitor_before = before(monitor);
        monitor_before.processes += PROGRAMS;
        let mut vbusd_before = before(host.vbusd.child.id());
        let mut guest_before = guest.memory();
        let begun = Instant::now();
        while begun.elapsed() < time || rounds < 2 * CHANGES {
            rounds += 1;
            thread::sleep(Duration::from_millis(50 + rounds % 8 * 40));
            host.change(rounds, &mut guest);
            if rounds % 7 == 0 {
                kills += 1;
                host.end_vbusd(rounds % 4 * 50);
            }
            guest.look();
            let ended = served.iter().any(ScopedJoinHandle::is_finished);
            assert!(!ended && !clients.iter().any(ScopedJoinHandle::is_finished));
            if rounds == CHANGES {
                // All have warmed up.
                monitor_before.memory = Holdings::of(monitor).memory;
                guest_before = guest.memory();
            }
            if rounds % 7 == 3 {
                vbusd_before.memory = Holdings::of(host.vbusd.child.id()).memory;
            }
        }
        // After the turmoil everything works.
        all_goes_on(&mut guest);
        left.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().unwrap();
        }
        vbusd_before.are_all("vbusd", host.vbusd.child.id(), MEMORY);
        monitor_before.are_all("the monitor", monitor, MEMORY);
        end.store(true, Ordering::SeqCst);
        for server in served {
            server.join().unwrap();
        }
        guest_before
    });
    GuestMemory::settled(&guest_before, || guest.memory()).may_follow(&guest_before);
    guest.kill();
    host.check(guest.kept);
    let figure = |of: &AtomicU64| of.load(Ordering::SeqCst);
    println!(
        "{rounds} rounds, {kills} ends of vbusd, {} records; wire: {} blocks; network: {} blocks, \
         {} connections; text: {} lines, {} clients; echo: {} bytes, {} clients",
        guest.kept,
        wire.blocks(),
        net.blocks(),
        figure(&net.connections),
        figure(&text.lines),
        figure(&text.clients),
        figure(&echo.echoed),
        figure(&echo.clients)
    );
    assert!(guest.kept > 20, "{}", guest.kept);
    assert!(figure(&net.connections) > 3 && figure(&text.clients) > 3);
}
