// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fuzzer of the sandboxed side: runs machines whose guests attack at random, and checks their
//! surroundings.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::host_without::{Host, Programs};
use crate::lines::Lines;
use crate::over::Over;
use crate::program;
use crate::sandbox::{END, Seen, adopt_orphans};
use crate::tree;
use crate::victims::Victims;
use crate::witness;
use rustix::process::Signal;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// One machine in this many is traced.
const TRACED: u64 = 3;
/// A machine that reports no progress for this time probably hangs, and is ended.
const SILENCE: Duration = Duration::from_millis(300);
/// The time-out of a machine counts from here if its guest has said nothing by then.
const SPEAKS: Duration = Duration::from_secs(10);
/// More calls than any guest can make. The guest reports the number, so do not trust it.
const MOST_CALLS: u64 = 1 << 32;

/// How a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Signal(Signal),
    /// By its own time-out of one second.
    Timeout,
}

/// A machine that a seed describes.
#[derive(Debug)]
pub struct Machine {
    seed: u64,
    host: Host,
    traced: bool,
    vcpus: u64,
    /// The time from its start until it is asked to end.
    life: Duration,
    ending: Ending,
}

impl Machine {
    /// The machine of a seed.
    ///
    /// # Panics
    /// When there is no host to run it on.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let hosts = Host::all();
        // splitmix64: adjacent seeds have nothing in common.
        let mut state = seed;
        let mut any = move |limit: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % limit
        };
        let endings = [
            Signal::TERM,
            Signal::TERM,
            Signal::INT,
            Signal::HUP,
            Signal::KILL,
        ]
        .map(Ending::Signal);
        let ending = usize::try_from(any(6))
            .ok()
            .and_then(|n| endings.get(n).copied());
        Machine {
            seed,
            host: hosts[usize::try_from(any(hosts.len() as u64)).unwrap()],
            traced: any(TRACED) == 0,
            vcpus: 1 + any(4),
            life: Duration::from_millis(100 + any(1400)),
            ending: ending.unwrap_or(Ending::Timeout),
        }
    }
}

/// Results of machines.
#[derive(Debug, Default)]
pub struct Findings {
    forks: u64,
    calls: u64,
    traced: u64,
    traced_calls: u64,
    refused: u64,
    /// Forbidden things that happened.
    pub wrong: Vec<String>,
}

impl Findings {
    /// Adds the results of another machine.
    pub fn add(&mut self, more: Findings) {
        self.forks += more.forks;
        self.calls += more.calls;
        self.traced += more.traced;
        self.traced_calls += more.traced_calls;
        self.refused += more.refused;
        self.wrong.extend(more.wrong);
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} processes forked, {} calls by the guests' count; {} machines traced, {} calls \\
                 seen, {} refused; {} findings",
            self.forks,
            self.calls,
            self.traced,
            self.traced_calls,
            self.refused,
            self.wrong.len()
        )
    }
}

/// What no guest may change or reach.
#[derive(Debug)]
pub struct Surroundings {
    programs: Programs,
    folder: TempDir,
    listeners: (TcpListener, UnixListener),
    victims: Vec<Victims>,
    children: Vec<u32>,
}

impl Surroundings {
    /// Sets it up.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    #[allow(clippy::new_without_default)] // It starts machines.
    pub fn new() -> Self {
        adopt_orphans();
        let programs = Programs::new(&["victim"]);
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        fs::write(folder.path().join("file"), "as it was").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        unix.set_nonblocking(true).unwrap();
        let mut victims = vec![Victims::start(&programs, Host::User)];
        if Host::all().contains(&Host::Root) {
            victims.push(Victims::start(&programs, Host::Root));
        }
        let children = victims.iter().flat_map(Victims::children).collect();
        Surroundings {
            programs,
            folder,
            listeners: (tcp, unix),
            victims,
            children,
        }
    }

    /// Runs a machine to its end.
    #[must_use]
    pub fn run(&self, machine: &Machine) -> Findings {
        let mut command = self.programs.on(machine.host, "paravane");
        command.args(["conformance", "--hypervisor", "process", "--spaces", "60"]);
        command.args(["--cpus", &machine.vcpus.to_string()]);
        command.args([
            "--append",
            "hostile=random",
            "--append",
            "ms=60000",
            "--append",
        ]);
        command.arg(format!("seed={}", machine.seed));
        // There a signal is a call that the filter does not admit, and the machine ends at once.
        if matches!(machine.host, Host::NoLandlock | Host::Neither) {
            command.args(["--append", "quiet"]);
        }
        command.args([
            "--timeout",
            if machine.ending == Ending::Timeout {
                "1"
            } else {
                "60"
            },
        ]);
        command
            .current_dir(self.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut findings = Findings::default();
        let mut seen = if machine.traced {
            // A thread of its own: it waits for all tasks that it traces.
            let tracer = std::thread::scope(|scope| {
                scope
                    .spawn(|| traced(machine, &mut command, &mut findings))
                    .join()
            });
            tracer.unwrap()
        } else {
            let child = command.spawn().unwrap();
            let seen = live(machine, child, &mut findings, |mut child| child.wait().ok());
            findings.forks += seen.spaces.len() as u64;
            seen
        };
        seen.nothing_is_left(&self.children);
        findings.wrong.append(&mut seen.wrong);
        findings.wrong.extend(self.changed());
        for wrong in &mut findings.wrong {
            *wrong = format!("{machine:?}: {wrong}");
        }
        findings
    }

    fn changed(&self) -> Option<String> {
        let mut names: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        let text = fs::read_to_string(self.folder.path().join("file")).unwrap_or_default();
        if names != ["file", "socket"] || text != "as it was" {
            return Some(format!("the folder has changed: {names:?}, {text:?}"));
        }
        let quiet = |kind: Option<ErrorKind>| kind == Some(ErrorKind::WouldBlock);
        let tcp = self.listeners.0.accept().err().map(|e| e.kind());
        let unix = self.listeners.1.accept().err().map(|e| e.kind());
        (!quiet(tcp) || !quiet(unix)).then(|| "a listener of the host got a connection".to_string())
    }

    /// What the victims have noticed.
    #[must_use]
    pub fn end(self) -> Vec<String> {
        self.victims.into_iter().flat_map(Victims::end).collect()
    }
}

fn open_to_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
}

/// The thread that starts the machine also traces it, as ptrace requires.
fn traced(machine: &Machine, command: &mut Command, findings: &mut Findings) -> Seen {
    witness::prepare(command);
    let child = command.spawn().unwrap();
    let trace = Mutex::new(witness::Trace::default());
    let seen = live(machine, child, findings, |child| {
        let (found, status) = witness::trace(child.id());
        *trace.lock().unwrap() = found;
        status
    });
    let trace = trace.into_inner().unwrap();
    findings.traced += 1;
    findings.traced_calls += trace.calls;
    findings.refused += trace.refused;
    findings.forks += trace.forks;
    findings.wrong.extend(trace.wrong);
    seen
}

/// From start to end. This thread waits; others read the guest's output, sample the processes, and
/// tell the machine to end.
fn live(
    machine: &Machine,
    mut child: Child,
    findings: &mut Findings,
    wait: impl FnOnce(Child) -> Option<ExitStatus>,
) -> Seen {
    let monitor = child.id();
    let mut output = Lines::of(child.stdout.take());
    let mut errors = Lines::of(child.stderr.take());
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let (heard, first) = (Mutex::new(Instant::now()), OnceLock::new());
    std::thread::scope(|scope| {
        let guard = Over(&over);
        let reader = scope.spawn(|| {
            loop {
                let line = output.next_within(program::PATIENCE);
                if line.is_empty() {
                    return;
                }
                first.get_or_init(Instant::now);
                let number = line
                    .trim()
                    .strip_prefix("calls ")
                    .and_then(|n| n.parse::<u64>().ok());
                if let Some(number) = number.filter(|&n| n < MOST_CALLS) {
                    calls.fetch_max(number, Ordering::Relaxed);
                    *heard.lock().unwrap() = Instant::now();
                }
            }
        });
        let watcher = scope.spawn(|| {
            let _ends = EndsIfLost(monitor);
            watch(machine, monitor, &over, &heard, &first)
        });
        let status = wait(child);
        drop(guard);
        reader.join().unwrap();
        let (mut seen, asked) = watcher.join().unwrap();
        let complaints = errors.rest_within(program::PATIENCE);
        if complaints.contains("panicked") {
            seen.wrong
                .push(format!("the monitor panicked: {complaints}"));
        }
        if let Some(took) = asked.map(|at| at.elapsed()).filter(|&took| took > END) {
            seen.wrong
                .push(format!("it ended {took:?} after it was asked to"));
        }
        let killed = status.and_then(|s| s.signal());
        // The signal that it was sent kills a monitor that the host has not let start yet.
        let sent = |number| matches!(machine.ending, Ending::Signal(s) if s.as_raw() == number);
        if killed.is_some_and(|number| !sent(number)) {
            seen.wrong
                .push(format!("the monitor was killed by signal {killed:?}"));
        }
        findings.calls += calls.load(Ordering::Relaxed);
        seen
    })
}

/// Kills a machine when the thread that would tell it to end has failed.
struct EndsIfLost(u32);

impl Drop for EndsIfLost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tree::signal(self.0, Signal::KILL);
        }
    }
}

/// Samples the machine until it has ended. Returns when it was asked to end. `heard` is when the
/// guest has last reported progress, `first` when it has first said anything.
fn watch(
    machine: &Machine,
    monitor: u32,
    over: &AtomicBool,
    heard: &Mutex<Instant>,
    first: &OnceLock<Instant>,
) -> (Seen, Option<Instant>) {
    let (mut seen, mut asked, start) = (Seen::default(), None, Instant::now());
    // The tracer checks the processes itself, and slows everything down.
    let life = if machine.traced {
        machine.life * 4
    } else {
        machine.life
    };
    while !over.load(Ordering::Relaxed) {
        if !machine.traced {
            seen.look(monitor);
        }
        let silent = heard.lock().unwrap().elapsed() > SILENCE && start.elapsed() > life / 2;
        match machine.ending {
            Ending::Signal(signal) if asked.is_none() && (start.elapsed() > life || silent) => {
                tree::signal(monitor, signal);
                asked = Some(Instant::now());
            }
            Ending::Timeout if asked.is_none() => {
                // One second, and as much for a host that is busy.
                let begun = first.get().copied().unwrap_or(start + SPEAKS);
                asked = (begun.elapsed() > Duration::from_secs(2)).then(Instant::now);
            }
            _ => {}
        }
        // The machine does not end by itself.
        if asked.is_some_and(|at| at.elapsed() > END * 2) {
            tree::signal(monitor, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (seen, asked)
}
