// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that owns a machine's processes: it starts the zygote, asks it for more processes,
//! learns of every death, and leaves no process.
//!
//! The host kernel kills the zygote when this thread ends, and the zygote's children with it. So
//! the same happens when the monitor is killed.

use super::core::Core;
use super::layer::Layer;
use super::placement;
use super::process_ids::Process;
use super::procfs;
use super::signal_scope::SignalScope;
use super::spawn::{self, Child};
use crate::ram::Ram;
use crate::size::size;
use anyhow::{Context, bail};
use paravane_abi::process as ph;
use paravane_confine::{self as confine, Files};
use paravane_devices::Area;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The index in the zygote's own READY message.
const ZYGOTE: u32 = u32::MAX;
/// How long the start of the zygote and the first processes may take. One takes well under a
/// millisecond.
const START_TIME: Duration = Duration::from_secs(20);
/// How long killed processes may take to be gone.
const END_TIME: Duration = Duration::from_secs(10);
/// Processes that are requested at once when the pool grows.
const AT_ONCE: u32 = 4;

/// The size of a machine's process pool.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// The number of processes at the start.
    pub first: u32,
    /// The largest number.
    pub limit: u32,
    /// The largest number where the host does not let the monitor count a process's mappings.
    pub limit_uncounted: u32,
}

/// Whether the host lets the monitor count the mappings of a machine's processes. They are not
/// dumpable, so that takes privileges or their user namespace.
pub fn countable(core: &Core) -> bool {
    core.processes
        .pid(0)
        .is_some_and(|pid| procfs::mappings(pid).is_ok_and(|count| count > 0))
}

/// Runs the thread: starts the processes, reports the result in `started`, and works until the
/// machine is stopped or cannot go on.
pub fn run(
    core: &Arc<Core>,
    layer: &Layer<'_>,
    ram: &Ram,
    devices: Option<&Area>,
    pool: Pool,
    signal_scope: SignalScope,
    started: &Sender<anyhow::Result<()>>,
) {
    let mut files: Vec<_> = ram.regions().iter().map(crate::ram::Region::file).collect();
    files.extend(devices.map(Area::file));
    let child = match spawn::start(layer.program, core.shared.file(), &files, signal_scope) {
        Ok(child) => child,
        Err(error) => {
            // Fails only if the caller no longer waits.
            let _ = started.send(Err(error).context("cannot start the process hypervisor's layer"));
            return;
        }
    };
    core.processes.set_zygote(child.process());
    let mut supervisor = Supervisor {
        core,
        child,
        made: Vec::new(),
        asked: 0,
        ready: 0,
        limit: pool.limit,
    };
    let start = supervisor
        .start(pool.first)
        .and_then(|()| confine::enter("supervisor", &Files::figures()));
    let running = start.is_ok();
    if running && !countable(core) {
        tracing::info!(limit = pool.limit_uncounted, "mappings cannot be counted");
        supervisor.limit_to(pool.limit_uncounted);
    }
    let _ = started.send(start);
    if running {
        if let Err(error) = supervisor.work() {
            core.fail(format!("{error:#}"));
        }
    }
    supervisor.end();
    // Until now the guest could undo what wakes the other threads.
    core.wake_all();
}

struct Supervisor<'a> {
    core: &'a Arc<Core>,
    child: Child,
    /// In a PID namespace: the ids, of the host and of the layer, of processes that are not in
    /// their sandboxes yet. At most as many as are requested at once.
    made: Vec<(u32, u32)>,
    /// The number of processes requested from the zygote.
    asked: u32,
    /// The number of processes that are ready.
    ready: u32,
    limit: u32,
}

impl Supervisor<'_> {
    fn start(&mut self, first: u32) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIME;
        while !self
            .child
            .executed()
            .context("cannot start the process hypervisor's layer")?
        {
            self.wait_to_start(self.child.report(), deadline)?;
        }
        let message = self.next_message(deadline)?;
        if u64::from(message.op) != ph::PHV_OP_READY || message.index != ZYGOTE {
            bail!("the layer did not start: {}", describe(&message));
        }
        while self.ready < first {
            self.ask(first)?;
            let message = self.next_message(deadline)?;
            if u64::from(message.op) != ph::PHV_OP_READY {
                bail!(
                    "cannot make process {} of {first} of the virtual machine: {}",
                    self.ready,
                    describe(&message)
                );
            }
            self.take_ready(&message)?;
        }
        Ok(())
    }

    /// The next message during the start.
    fn next_message(&mut self, deadline: Instant) -> anyhow::Result<ph::PhvMessage> {
        loop {
            match spawn::receive(self.child.control.as_fd()) {
                Ok(Some((message, sender))) if is_made(&message) => {
                    self.take_made(&message, sender)?;
                    continue;
                }
                Ok(Some((message, _))) => return Ok(message),
                Ok(None) => bail!("the layer ended while it started ({})", self.exit_status()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot receive from the layer"),
            }
            self.wait_to_start(self.child.control.as_fd(), deadline)?;
        }
    }

    /// Waits for the zygote while starting, until then or until the machine is stopped.
    fn wait_to_start(&self, file: BorrowedFd<'_>, deadline: Instant) -> anyhow::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the layer did not start in {} s", START_TIME.as_secs());
        }
        if self.core.stopping() {
            bail!("stopped");
        }
        self.wait(file, Some(left));
        self.clear_bell();
        Ok(())
    }

    /// Serves messages and requests until the machine is stopped.
    ///
    /// # Errors
    /// Why the machine must end.
    fn work(&mut self) -> anyhow::Result<()> {
        loop {
            loop {
                match spawn::receive(self.child.control.as_fd()) {
                    Ok(Some((message, sender))) if is_made(&message) => {
                        self.take_made(&message, sender)?
                    }
                    Ok(Some((message, _))) => self.take(&message)?,
                    Ok(None) => bail!("the parent of its processes ended ({})", self.exit_status()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("cannot receive from the layer"),
                }
            }
            if self.core.stopping() || self.core.end.failure().is_some() {
                return Ok(());
            }
            self.ask(
                self.core
                    .shared
                    .header()
                    .proc_wanted
                    .load(Ordering::Relaxed),
            )?;
            self.wait(self.child.control.as_fd(), None);
            self.clear_bell();
        }
    }

    fn take(&mut self, message: &ph::PhvMessage) -> anyhow::Result<()> {
        match u64::from(message.op) {
            ph::PHV_OP_READY => self.take_ready(message),
            ph::PHV_OP_FAILED => {
                // The host gives no more processes. The machine runs with those that it has.
                tracing::info!("no more address-space processes: {}", describe(message));
                self.no_more();
                Ok(())
            }
            // The index is the layer's guess from memory that a guest can write; the id is the
            // host's. A process with an unknown id was still being created.
            ph::PHV_OP_DIED
                if !self
                    .core
                    .processes
                    .created()
                    .any(|known| known.layer_pid == message.pid) =>
            {
                self.made.retain(|(_, inside)| *inside != message.pid);
                self.no_more();
                Ok(())
            }
            // The machine's state in the shared area does not count: a guest could hide the death
            // of a process, whose id another program may then get.
            ph::PHV_OP_DIED if self.core.stopping() => Ok(()),
            ph::PHV_OP_DIED => bail!(
                "the process of an address space {}",
                how_it_ended(message.value)
            ),
            _ => bail!("the layer sent message {}", message.op),
        }
    }

    fn no_more(&mut self) {
        self.asked = self.ready;
        self.limit_to(self.ready);
    }

    fn limit_to(&mut self, limit: u32) {
        self.limit = limit;
        self.core
            .shared
            .header()
            .proc_limit
            .store(limit, Ordering::Release);
    }

    /// Handles a new process's first message. The host, not the message, says which process sent
    /// it.
    fn take_made(&mut self, message: &ph::PhvMessage, sender: Option<u32>) -> anyhow::Result<()> {
        // Without a PID namespace both ids are the same, and nothing needs to be kept.
        let Some(sender) = sender else {
            return Ok(());
        };
        if self.made.len() >= size(u64::from(AT_ONCE)) {
            bail!("the layer created more processes than were requested");
        }
        self.made.push((sender, message.pid));
        Ok(())
    }

    /// The host's id of a process.
    fn identify(&mut self, layer_pid: u32) -> anyhow::Result<Process> {
        if self.child.signal_scope != SignalScope::PidNamespace {
            return Ok(Process::of_host(layer_pid));
        }
        let Some(at) = self
            .made
            .iter()
            .position(|(_, inside)| *inside == layer_pid)
        else {
            bail!("process {layer_pid} of the virtual machine has not reported itself");
        };
        let (pid, _) = self.made.swap_remove(at);
        Process::inside(pid, layer_pid)
    }

    fn take_ready(&mut self, message: &ph::PhvMessage) -> anyhow::Result<()> {
        let known = |index: u32| self.core.processes.pid(size(index.into())).is_some();
        if message.index >= self.asked || known(message.index) || message.pid == 0 {
            bail!(
                "the layer created process {} (id {}), which was not requested",
                message.index,
                message.pid
            );
        }
        let process = self.identify(message.pid)?;
        self.core.processes.add(size(message.index.into()), process);
        // Each process reports itself ready, in any order. Only those without a gap before them
        // count.
        while known(self.ready) {
            self.ready += 1;
        }
        self.core.publish_count(self.ready);
        // Its threads were placed as the vCPUs were when it was requested.
        placement::apply_to_process(self.core, size(message.index.into()));
        Ok(())
    }

    /// Requests processes until there are `wanted`, a few at a time.
    fn ask(&mut self, wanted: u32) -> anyhow::Result<()> {
        while self.asked < wanted.min(self.limit) && self.asked - self.ready < AT_ONCE {
            let op = u32::try_from(ph::PHV_OP_FORK)?;
            let message = ph::PhvMessage {
                op,
                index: self.asked,
                pid: 0,
                value: 0,
            };
            spawn::send(self.child.control.as_fd(), &message)
                .context("cannot ask the layer for a process")?;
            self.asked += 1;
        }
        Ok(())
    }

    /// Waits for the file, or the bell.
    fn wait(&self, file: BorrowedFd<'_>, timeout: Option<Duration>) {
        let mut files = [
            PollFd::from_borrowed_fd(file, PollFlags::IN),
            PollFd::from_borrowed_fd(self.core.wakeups.supervisor(), PollFlags::IN),
        ];
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        // The caller checks everything again, whatever ended the wait.
        let _ = rustix::event::poll(&mut files, timeout.as_ref());
    }

    fn clear_bell(&self) {
        let _ = rustix::io::read(self.core.wakeups.supervisor(), &mut [0u8; 8]);
    }

    /// How the zygote ended after it closed its socket.
    fn exit_status(&self) -> String {
        let mut status = 0;
        let deadline = Instant::now() + Duration::from_millis(200);
        loop {
            // waitpid does not know WNOWAIT. The id stays valid only until the process is waited
            // for, so this only looks.
            // SAFETY: waitid writes to the local value; the process is our child.
            let found = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let id = libc::id_t::try_from(self.child.pid).unwrap_or(0);
                let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
                let result = libc::waitid(libc::P_PID, id, &raw mut info, options);
                let found = result == 0 && info.si_pid() != 0;
                if found {
                    status = if info.si_code == libc::CLD_EXITED {
                        info.si_status() << 8
                    } else {
                        info.si_status()
                    };
                }
                found
            };
            if found {
                return how_it_ended(status.unsigned_abs());
            }
            if Instant::now() >= deadline {
                return "it closed its socket".to_string();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends all processes. The zygote is killed, and the host kernel kills its children, because
    /// each has asked for that first. After that only this thread can wait for them, so none of
    /// their ids can be reused until then.
    fn end(&mut self) {
        self.core.processes.kill();
        self.child.kill();
        let deadline = Instant::now() + END_TIME;
        // The others become our children when it has ended.
        let mut left = wait_gone(vec![self.child.pid], deadline);
        if left.is_empty() {
            // A process that was being created is not known yet. It dies with its parent, as all
            // do.
            let known = self.core.processes.created();
            left = wait_gone(
                known.filter_map(|p| p.pid.try_into().ok()).collect(),
                deadline,
            );
        }
        if !left.is_empty() {
            tracing::warn!(?left, "processes of the virtual machine have not ended");
        }
    }
}

/// Waits for the ends of these processes. Returns those that have not ended at the deadline.
fn wait_gone(mut left: Vec<libc::pid_t>, deadline: Instant) -> Vec<libc::pid_t> {
    loop {
        left.retain(|&pid| !gone(pid));
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Checks for the end of the zygote or of one of its children. Returns whether it has ended.
fn gone(pid: libc::pid_t) -> bool {
    // SAFETY: takes numbers only. The zygote is our child; its children are ours since it ended,
    // because we are a subreaper. An error means that the process is not: the zygote had waited for
    // it.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

fn is_made(message: &ph::PhvMessage) -> bool {
    u64::from(message.op) == ph::PHV_OP_MADE
}

/// Describes a wait status.
pub fn how_it_ended(status: u32) -> String {
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, code) => format!("ended with exit code {code}"),
        (signal, _) => format!("was killed by signal {signal}"),
    }
}

/// Describes an unexpected message.
fn describe(message: &ph::PhvMessage) -> String {
    match u64::from(message.op) {
        ph::PHV_OP_FAILED => {
            let step = match u64::from(message.index) {
                ph::PHV_STEP_SHARED => "map the shared area",
                ph::PHV_STEP_RAM => "map guest memory",
                ph::PHV_STEP_IMAGE => "map the kernel image",
                ph::PHV_STEP_ARENA => "map its own memory",
                ph::PHV_STEP_FORK => "fork",
                ph::PHV_STEP_THREAD => "make a thread",
                ph::PHV_STEP_SIGNALS => "set up signals",
                ph::PHV_STEP_SANDBOX => "enter the sandbox",
                ph::PHV_STEP_FILTER => "install the seccomp filter",
                ph::PHV_STEP_CPUID => "read all of this processor's cpuid",
                _ => "do an unknown step",
            };
            let error = io::Error::from_raw_os_error(i32::try_from(message.value).unwrap_or(0));
            format!("it could not {step}: {error}")
        }
        ph::PHV_OP_DIED => format!("it {}", how_it_ended(message.value)),
        other => format!("message {other}"),
    }
}
