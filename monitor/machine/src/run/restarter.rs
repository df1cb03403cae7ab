// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The restarter of a machine that may start again.
//!
//! A monitor cannot start its machine a second time: its threads have entered their seccomp
//! policies, which end with the process. So each life of such a machine has a monitor of its own,
//! a child of the restarter. The restarter is the process that the user or `start` has started.
//! It runs no guest code and reads nothing that a guest writes. It waits for signals and for its
//! child's end, of which it gets one byte and the exit status.
//!
//! The restarter keeps the machine's lock, its control socket, the standard streams and the
//! command's input. A request that comes between two lives waits in the socket's queue, or is
//! answered here. The next monitor acquires everything else (disks, ports, volumes, sockets) when
//! the last one has ended.
//!
//! Signals to the restarter are relayed as [`Relay`] says. A monitor ends with its restarter.

use super::background::Background;
use super::finish::TIMED_OUT;
use super::relay::Relay;
use crate::control::{Request, Server};
use crate::output_log;
use crate::restart::{LifeEnd, Next, Restart, Restarts};
use crate::store::{self, Ended, Hold};
use anyhow::{Context, bail};
use paravane_user_io::events::{PollFlags, Waits, is_ready};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::stderr::say;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, pidfd_open,
    set_parent_process_death_signal, waitpid,
};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Threads that have pulled an image end within this time.
const THREADS_END: Duration = Duration::from_secs(5);
/// Time between two looks at them.
const LOOK: Duration = Duration::from_millis(5);
const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

/// A monitor's report to its restarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The machine has ended by itself.
    Ended = 1,
    /// Its guest has rebooted.
    Rebooted,
    /// It has ended on request.
    Asked,
}

/// A monitor's connection to its restarter.
#[derive(Debug)]
pub struct Report(OwnedFd);

impl Report {
    /// Reports how the machine has ended.
    pub fn tell(&self, told: Told) {
        // Fails if the restarter has been killed. Then this process is about to be killed, too.
        let _ = rustix::io::write(&self.0, &[told as u8]);
    }
}

/// What a monitor with a restarter gets from it.
#[derive(Debug)]
pub struct Life {
    /// The control socket of a machine with a name.
    pub control: Option<Server>,
    pub report: Report,
    /// The end of `--timeout`, which counts from the first start.
    pub timeout: Option<Instant>,
}

/// What this process is.
#[derive(Debug)]
pub enum Role {
    /// A monitor, a child of the restarter.
    Monitor(Life),
    /// The restarter of a machine that has ended.
    Restarter(Outcome),
}

/// How a monitor has ended.
#[derive(Debug)]
struct MonitorEnd {
    told: Option<Told>,
    /// As a shell has it: 128 + n for the signal n.
    code: u8,
    killed: Option<u8>,
}

struct Restarter<'a> {
    named: Option<&'a store::Machine>,
    restarts: Restarts,
    hold: Option<Hold>,
    control: Option<Server>,
    relay: Relay,
    timeout: Option<Instant>,
    /// The signal that requested the end.
    asked: Option<u8>,
    background: &'a mut Option<Background>,
}

/// Runs the lives of a machine. Returns in the monitor of each life, and in the restarter after
/// the last one. The process must have one thread.
///
/// # Errors
/// The machine runs already, or the host makes no process.
pub fn run(
    policy: Restart,
    named: Option<&store::Machine>,
    background: &mut Option<Background>,
    timeout: Option<Duration>,
) -> anyhow::Result<Role> {
    let (hold, control) = match named {
        Some(machine) => (Some(machine.hold()?), Some(Server::start(machine)?)),
        None => (None, None),
    };
    Restarter {
        named,
        restarts: Restarts::new(policy),
        hold,
        control,
        relay: Relay::new().context("cannot handle signals")?,
        timeout: timeout.map(|time| Instant::now() + time),
        asked: None,
        background,
    }
    .run()
}

impl Restarter<'_> {
    fn run(mut self) -> anyhow::Result<Role> {
        loop {
            let begun = Instant::now();
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
            let Some(monitor) = fork()? else {
                self.relay.leave();
                drop(read);
                return Ok(Role::Monitor(Life {
                    control: self.control,
                    report: Report(write),
                    timeout: self.timeout,
                }));
            };
            drop(write);
            // The program that started this one waits until every copy is closed.
            if let Some(background) = self.background.as_mut() {
                background.forget_starter();
            }
            let end = self.attend(monitor, &read)?;
            if let (Some(machine), Some(_)) = (self.named, self.background.as_ref()) {
                output_log::follow(machine)?;
            }
            let life_end = self.life_end(&end);
            match self.restarts.next(life_end, begun.elapsed()) {
                Next::Start(wait) => {
                    if let Some(outcome) = self.pause(Instant::now() + wait)? {
                        return self.ended(outcome);
                    }
                }
                Next::Stop => return self.stopped(&end),
                Next::GiveUp(why) => {
                    say(&format!("paravane: {why}\n"));
                    let code = if end.code == 0 { 1 } else { end.code };
                    return self.ended(Outcome::Guest(code));
                }
            }
        }
    }

    /// Waits for the end of a monitor, and relays signals to it.
    fn attend(&mut self, monitor: Pid, report: &OwnedFd) -> anyhow::Result<MonitorEnd> {
        let handle = pidfd_open(monitor, PidfdFlags::empty()).context("cannot watch a process")?;
        self.record(monitor)?;
        loop {
            let mut waits = Waits::default();
            waits.to_read(self.relay.file());
            waits.to_read(handle.as_fd());
            waits.wait()?;
            while let Some(relayed) = self.relay.next() {
                self.asked = self.asked.or(relayed.asked);
                relayed.send(monitor);
            }
            if is_ready(handle.as_fd(), PollFlags::IN) {
                break;
            }
        }
        // From here on no process must take the monitor's process id for one of this machine.
        self.record(getpid())?;
        let status = loop {
            match waitpid(Some(monitor), WaitOptions::empty()) {
                Ok(Some((_, status))) => break status,
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot learn of the monitor's end"),
            }
        };
        let small = |number: i32| u8::try_from(number & 0xff).unwrap_or(0);
        let killed = status.terminating_signal().map(small);
        let code = match killed {
            Some(signal) => 128 | signal,
            None => status.exit_status().map_or(1, small),
        };
        // Processes of the machine may have the pipe for a moment longer: this must not wait.
        let mut byte = [0];
        let ready = is_ready(report.as_fd(), PollFlags::IN);
        let told = match byte {
            _ if !ready || rustix::io::read(report, &mut byte) != Ok(1) => None,
            _ => [Told::Ended, Told::Rebooted, Told::Asked]
                .into_iter()
                .find(|told| byte == [*told as u8]),
        };
        Ok(MonitorEnd { told, code, killed })
    }

    /// The last life has ended, and nothing is wrong with that.
    fn stopped(self, end: &MonitorEnd) -> anyhow::Result<Role> {
        let outcome = match (end.told, self.asked) {
            // The signal has come before the monitor could take it, or a second one, or when the
            // guest had rebooted.
            (None | Some(Told::Rebooted), Some(number)) => Outcome::Interrupted(number),
            _ => Outcome::Guest(end.code),
        };
        if let (None, Some(signal)) = (self.asked, end.killed) {
            // The machine is shown as one whose monitor was killed.
            say(&format!(
                "paravane: the machine's monitor was ended by signal {signal}\n"
            ));
            return Ok(Role::Restarter(outcome));
        }
        self.ended(outcome)
    }

    fn life_end(&self, end: &MonitorEnd) -> LifeEnd {
        match end.told {
            _ if self.asked.is_some() => LifeEnd::Asked,
            Some(Told::Asked) => LifeEnd::Asked,
            Some(Told::Rebooted) => LifeEnd::Reboot,
            Some(Told::Ended) => LifeEnd::Code(end.code),
            None if end.killed.is_some() => LifeEnd::Code(end.code),
            None => LifeEnd::NotStarted,
        }
    }

    /// The time between two lives. Returns the outcome if the end is requested in it.
    fn pause(&mut self, until: Instant) -> anyhow::Result<Option<Outcome>> {
        loop {
            while let Some(relayed) = self.relay.next() {
                if let Some(number) = relayed.asked {
                    return Ok(Some(Outcome::Interrupted(number)));
                }
            }
            let now = Instant::now();
            if self.timeout.is_some_and(|timeout| now >= timeout) {
                say("paravane: the time of --timeout is over; the machine is not started again\n");
                return Ok(Some(Outcome::Guest(TIMED_OUT)));
            }
            // Requests are left to the next monitor if it is about to come.
            if now >= until {
                return Ok(None);
            }
            let requests = self.control.as_mut().map(Server::requests);
            let mut wanted = None;
            for (request, client) in requests.unwrap_or_default() {
                let signal = match request {
                    Request::Stop { .. } => SIGTERM,
                    Request::Kill => SIGKILL,
                    _ => {
                        client.answer(Err("it is restarting".to_string()));
                        continue;
                    }
                };
                client.answer(Ok(()));
                wanted.get_or_insert(Outcome::Interrupted(signal));
            }
            if wanted.is_some() {
                return Ok(wanted);
            }
            let mut waits = Waits::default();
            waits.to_read(self.relay.file());
            if let Some(control) = &self.control {
                control.waits(&mut waits);
            }
            waits.until(self.timeout.map_or(until, |timeout| until.min(timeout)));
            waits.wait()?;
        }
    }

    /// Records which process is the monitor, and how often the machine has started again.
    fn record(&mut self, monitor: Pid) -> anyhow::Result<()> {
        let count = self.restarts.count();
        match &mut self.hold {
            Some(hold) => hold.set_monitor(monitor.as_raw_nonzero().get(), count),
            None => Ok(()),
        }
    }

    fn ended(mut self, outcome: Outcome) -> anyhow::Result<Role> {
        if let Some(hold) = &mut self.hold {
            hold.set_ended(&Ended {
                code: outcome.code(),
            })?;
        }
        Ok(Role::Restarter(outcome))
    }
}

/// Makes a child, which is killed when this process ends. Returns its process id, or none in the
/// child.
fn fork() -> anyhow::Result<Option<Pid>> {
    const WHAT: &str = "cannot make the machine's monitor";
    let until = Instant::now() + THREADS_END;
    loop {
        let threads = std::fs::read_dir("/proc/self/task").context(WHAT)?.count();
        if threads == 1 {
            break;
        }
        if Instant::now() >= until {
            bail!("{WHAT}: there are {threads} threads already");
        }
        std::thread::sleep(LOOK);
    }
    let parent = getpid();
    #[expect(unsafe_code, reason = "fork()")]
    // SAFETY: the process has one thread, so no lock is held by a thread that the child lacks, and
    // the child may do everything that its parent could.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(std::io::Error::last_os_error()).context(WHAT);
    }
    if pid > 0 {
        return Ok(Pid::from_raw(pid));
    }
    // Only the parent returns with an error. It may have been killed before this.
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() || getppid() != Some(parent) {
        std::process::exit(1);
    }
    Ok(None)
}
