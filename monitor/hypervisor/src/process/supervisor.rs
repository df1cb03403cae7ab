// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that owns a machine's processes: it starts the zygote, asks it for more, hears of every death, and leaves
//! nothing behind.
//!
//! The zygote dies when this thread does, by the host's kernel's hand, and the zygote's children with it. So this is
//! also what happens when the monitor is killed.

use super::core::Core;
use super::layer::Layer;
use super::placement;
use super::process_ids::Process;
use super::procfs;
use super::ram::Ram;
use super::shared::size;
use super::signal_scope::SignalScope;
use super::spawn::{self, Child};
use anyhow::{Context, bail};
use paravane_abi::process as ph;
use paravane_confine::{self as confine, Files};
use paravane_devices::Area;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The index of the zygote's own READY.
const ZYGOTE: u32 = u32::MAX;
/// For the zygote and the first processes to be made; one takes well under a millisecond.
const START_TIME: Duration = Duration::from_secs(20);
/// For killed processes to be gone.
const END_TIME: Duration = Duration::from_secs(10);
/// Processes asked for at once when the pool grows.
const AT_ONCE: u32 = 4;

/// What a machine starts with.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// Processes at the start.
    pub first: u32,
    /// Never more.
    pub limit: u32,
    /// Never more where the host does not let the mappings of one be counted.
    pub limit_uncounted: u32,
}

/// Whether the host lets us count the mappings of a machine's processes: they are not dumpable, so it takes their user
/// namespace, or privileges.
pub fn countable(core: &Core) -> bool {
    core.processes
        .pid(0)
        .is_some_and(|pid| procfs::mappings(pid).is_some())
}

/// Runs the thread: starts, says how that went, works until the machine is stopped or cannot go on.
pub fn run(
    core: &Arc<Core>,
    layer: &Layer<'_>,
    ram: &Ram,
    devices: Option<&Area>,
    pool: Pool,
    signal_scope: SignalScope,
    started: &Sender<anyhow::Result<()>>,
) {
    let mut files: Vec<_> = ram.slots().iter().map(super::ram::Slot::file).collect();
    files.extend(devices.map(Area::file));
    let child = match spawn::start(layer.program, core.shared.file(), &files, signal_scope) {
        Ok(child) => child,
        Err(error) => {
            // Fails only if nobody waits for the start any more.
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
    // Until now, the guest could undo what wakes the others.
    core.wake_all();
}

struct Supervisor<'a> {
    core: &'a Arc<Core>,
    child: Child,
    /// In a namespace: what the host and the layer call those that are not in their sandboxes yet.
    /// At most as many as are asked for at once.
    made: Vec<(u32, u32)>,
    /// Processes that the zygote was asked for.
    asked: u32,
    /// Processes that it made.
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

    /// The next message while starting.
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
                Err(error) => return Err(error).context("cannot hear from the layer"),
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

    /// Serves messages and wishes until the machine is stopped. An error ends the machine.
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
                    Err(error) => return Err(error).context("cannot hear from the layer"),
                }
            }
            if self.core.stopping() || self.core.end.failure().is_some() {
                return Ok(());
            }
            self.ask(
                self.core
                    .shared
                    .word(offset_of!(ph::PhvShared, proc_wanted))
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
                // The host gives no more. What there is suffices: the machine has been running with it.
                tracing::info!("no more address-space processes: {}", describe(message));
                self.no_more();
                Ok(())
            }
            // The index is the layer's guess from memory that a guest can write; the id is the host's word. One that is
            // not known was still being made.
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
            // In a machine that is ending anyway they end, too.
            ph::PHV_OP_DIED if self.has_ended() => Ok(()),
            ph::PHV_OP_DIED => bail!(
                "the process of an address space {}",
                how_it_ended(message.value)
            ),
            _ => bail!("the layer sent message {}", message.op),
        }
    }

    fn has_ended(&self) -> bool {
        let state = self
            .core
            .shared
            .word(offset_of!(ph::PhvShared, vm_state))
            .load(Ordering::Acquire);
        u64::from(state) != ph::PHV_VM_RUNNING || self.core.stopping()
    }

    fn no_more(&mut self) {
        self.asked = self.ready;
        self.limit_to(self.ready);
    }

    fn limit_to(&mut self, limit: u32) {
        self.limit = limit;
        self.core
            .shared
            .word(offset_of!(ph::PhvShared, proc_limit))
            .store(limit, Ordering::Release);
    }

    /// A process says that it is there. What the host calls it is the host's word, not its own.
    fn take_made(&mut self, message: &ph::PhvMessage, sender: Option<u32>) -> anyhow::Result<()> {
        // Without a namespace both call it the same, and nothing is to be kept.
        let Some(sender) = sender else {
            return Ok(());
        };
        if self.made.len() >= size(u64::from(AT_ONCE)) {
            bail!("the layer made more processes than it was asked for");
        }
        self.made.push((sender, message.pid));
        Ok(())
    }

    /// What the host calls a process of the machine.
    fn identify(&mut self, layer_pid: u32) -> anyhow::Result<Process> {
        if self.child.signal_scope != SignalScope::PidNamespace {
            return Ok(Process::of_host(layer_pid));
        }
        let Some(at) = self
            .made
            .iter()
            .position(|(_, inside)| *inside == layer_pid)
        else {
            bail!("process {layer_pid} of the virtual machine has not said that it is there");
        };
        let (pid, _) = self.made.swap_remove(at);
        Process::inside(pid, layer_pid)
    }

    fn take_ready(&mut self, message: &ph::PhvMessage) -> anyhow::Result<()> {
        let known = |index: u32| self.core.processes.pid(size(index.into())).is_some();
        if message.index >= self.asked || known(message.index) || message.pid == 0 {
            bail!(
                "the layer made process {} (id {}), which was not asked for",
                message.index,
                message.pid
            );
        }
        let process = self.identify(message.pid)?;
        self.core
            .processes
            .add(size(message.index.into()), process.clone());
        // Each says itself that it is ready, in any order; those without a gap before them count.
        while known(self.ready) {
            self.ready += 1;
        }
        self.core.publish_count(self.ready);
        // Its threads were placed as things stood when it was asked for.
        placement::apply_to_process(self.core, size(message.index.into()), &process);
        Ok(())
    }

    /// Asks for processes until there are `wanted`, a few at a time.
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
        // The caller looks at everything again, whatever came.
        let _ = rustix::event::poll(&mut files, timeout.as_ref());
    }

    fn clear_bell(&self) {
        let _ = rustix::io::read(self.core.wakeups.supervisor(), &mut [0u8; 8]);
    }

    /// How the zygote ended, which has closed its side.
    fn exit_status(&self) -> String {
        let mut status = 0;
        let deadline = Instant::now() + Duration::from_millis(200);
        loop {
            // WNOWAIT is not known to waitpid: the id stays ours only until it is waited for, so look first.
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

    /// Ends all processes. The zygote is killed, and the host's kernel kills its children with it:
    /// that is the first thing that each asks for. Then nobody but this thread can wait for them,
    /// so that none of their ids can come to mean something else.
    fn end(&mut self) {
        self.child.kill();
        let deadline = Instant::now() + END_TIME;
        // The others become children of ours when it has ended.
        let mut left = wait_gone(vec![self.child.pid], deadline);
        if left.is_empty() {
            // One that was being made is not known yet; it dies with its parent, as they all do.
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

/// Waits until then for the ends of these; says which have not ended.
fn wait_gone(mut left: Vec<libc::pid_t>, deadline: Instant) -> Vec<libc::pid_t> {
    loop {
        left.retain(|&pid| !gone(pid));
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Looks for the end of the zygote, or of one of its children; says whether it is gone.
fn gone(pid: libc::pid_t) -> bool {
    // SAFETY: a system call with plain numbers. The zygote is a child of ours, and its children are
    // since it ended and we are a sub-reaper. An error says that it is none: the zygote had waited
    // for it.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

fn is_made(message: &ph::PhvMessage) -> bool {
    u64::from(message.op) == ph::PHV_OP_MADE
}

/// A wait status in words.
pub fn how_it_ended(status: u32) -> String {
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, code) => format!("ended with exit code {code}"),
        (signal, _) => format!("was killed by signal {signal}"),
    }
}

/// A message that is not the one expected.
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
                ph::PHV_STEP_CPUID => "keep all that this processor's cpuid gives",
                _ => "do an unknown step",
            };
            let error = io::Error::from_raw_os_error(i32::try_from(message.value).unwrap_or(0));
            format!("it could not {step}: {error}")
        }
        ph::PHV_OP_DIED => format!("it {}", how_it_ended(message.value)),
        other => format!("message {other}"),
    }
}
