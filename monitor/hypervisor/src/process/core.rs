// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the monitor's threads for one virtual machine have in common.

use super::ids::Process;
use super::shared::{Shared, size};
use super::{device, kicks, sys};
use paravane_abi::process as ph;
use paravane_confine::Kept;
use paravane_devices::counters::{Counters, Figures};
use paravane_devices::{Ending, Reactor};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// One virtual machine.
#[derive(Debug)]
pub struct Core {
    pub shared: Shared,
    pub vcpus: usize,
    /// The machine's processes: the only ones that the monitor ever signals.
    made: Vec<OnceLock<Process>>,
    /// Processes 0 to `count - 1` exist.
    count: AtomicU32,
    /// The monitor wants the machine to be gone.
    pub ending: Ending,
    /// Why the machine cannot go on, if so.
    failure: Mutex<Option<String>>,
    /// Wakes the supervisor.
    bell: OwnedFd,
    /// Host CPU of each vCPU. The layer has a copy in the shared area, which a guest could change.
    placement: Vec<AtomicU32>,
    /// Placement was changed after the start.
    moved: AtomicBool,
    /// The files of all devices.
    pub reactor: Arc<Reactor>,
    /// Their names and what they count.
    devices: Mutex<Vec<(String, Arc<Counters>)>>,
    /// Thread id of the watch, which sleeps until a signal comes.
    watch: AtomicU32,
    /// Wakes the debugger's thread, if there is one.
    debugger: OnceLock<OwnedFd>,
    /// The exit code that a debugger is told, and one more; 0: none yet.
    exit_code: AtomicU32,
    /// The parent of all processes, once there is one: they end with it.
    zygote: OnceLock<Arc<Kept>>,
}

impl Core {
    pub fn new(shared: Shared, vcpus: usize) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let words = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        Ok(Core {
            shared,
            vcpus,
            made: (0..ph::PHV_MAX_PROCS).map(|_| OnceLock::new()).collect(),
            count: AtomicU32::new(0),
            ending: Ending::default(),
            failure: Mutex::new(None),
            bell,
            placement: words(vcpus),
            moved: AtomicBool::new(false),
            reactor: Reactor::new()?,
            devices: Mutex::default(),
            watch: AtomicU32::new(0),
            debugger: OnceLock::new(),
            exit_code: AtomicU32::new(0),
            zygote: OnceLock::new(),
        })
    }

    /// Takes note of a device.
    pub fn add_device(&self, name: &str, counters: &Arc<Counters>) {
        self.devices()
            .push((name.to_string(), Arc::clone(counters)));
    }

    /// The devices' names and what they have done, in the guest's order.
    pub fn device_figures(&self) -> Vec<(String, Figures)> {
        let devices = self.devices();
        devices
            .iter()
            .map(|(name, counters)| (name.clone(), counters.read()))
            .collect()
    }

    fn devices(&self) -> MutexGuard<'_, Vec<(String, Arc<Counters>)>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a process. The first one of an index counts.
    pub fn add_process(&self, index: usize, process: Process) {
        if let Some(entry) = self.made.get(index) {
            let _ = entry.set(process);
        }
    }

    /// Says how many there are, here and to the layer.
    pub fn publish_count(&self, count: u32) {
        self.count.store(count, Ordering::Release);
        self.shared
            .word(offset_of!(ph::PhvShared, proc_count))
            .store(count, Ordering::Release);
        self.nudge_watch();
    }

    /// Processes that exist: 0 to this - 1.
    pub fn process_count(&self) -> usize {
        size(self.count.load(Ordering::Acquire).into())
    }

    /// A process.
    pub fn process(&self, index: usize) -> Option<&Process> {
        self.made.get(index)?.get()
    }

    /// The host's id of a process.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.process(index).map(|process| process.pid)
    }

    /// All that exist, by their indices.
    pub fn processes(&self) -> impl Iterator<Item = (usize, &Process)> + '_ {
        (0..self.process_count()).filter_map(|index| Some((index, self.process(index)?)))
    }

    /// All that were ever made.
    pub fn all_processes(&self) -> impl Iterator<Item = &Process> + '_ {
        self.made.iter().filter_map(OnceLock::get)
    }

    /// All processes of the machine end with this one.
    pub fn set_zygote(&self, process: Arc<Kept>) {
        let _ = self.zygote.set(process);
    }

    /// The machine cannot go on. The first reason counts. None of its code runs any more when this returns, or very
    /// soon: it may be just that which must be stopped.
    pub fn fail(&self, why: String) {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(why);
        if let Some(zygote) = self.zygote.get() {
            zygote.kill();
        }
        self.wake_all();
    }

    pub fn failure(&self) -> Option<String> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Asks all threads to end.
    pub fn stop(&self) {
        self.ending.begin();
        self.wake_all();
    }

    /// Has all threads look whether there is something to do.
    pub fn wake_all(&self) {
        self.ring_bell();
        self.ring_doorbell();
        kicks::wake(self);
        let word = self.shared.word(offset_of!(ph::PhvShared, alarm_word));
        word.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(word);
        self.nudge_watch();
        self.reactor.stop();
        device::wake_all(self);
        self.ring_debugger();
    }

    pub fn stopping(&self) -> bool {
        self.ending.begun()
    }

    /// Wakes the supervisor.
    pub fn ring_bell(&self) {
        // Fails only when the counter is full: then it is ringing already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Says where the threads of a vCPU are to run.
    pub fn place(&self, vcpu: usize, cpu: u32) {
        if let Some(entry) = self.placement.get(vcpu) {
            entry.store(cpu, Ordering::SeqCst);
            let offset = offset_of!(ph::PhvShared, vcpu_cpu) + vcpu * size_of::<u32>();
            self.shared.word(offset).store(cpu, Ordering::SeqCst);
        }
    }

    /// Takes note that a vCPU was moved.
    pub fn set_moved(&self) {
        self.moved.store(true, Ordering::SeqCst);
    }

    pub fn moved(&self) -> bool {
        self.moved.load(Ordering::SeqCst)
    }

    /// The host CPU of each vCPU.
    pub fn placement(&self) -> Vec<u32> {
        self.placement
            .iter()
            .map(|cpu| cpu.load(Ordering::SeqCst))
            .collect()
    }

    /// The calling thread is the watch, and sleeps until it gets [`sys::watch_signal`]; 0: it is no more.
    pub fn set_watch(&self, tid: u32) {
        self.watch.store(tid, Ordering::SeqCst);
    }

    /// Wakes the watch.
    fn nudge_watch(&self) {
        let tid = self.watch.load(Ordering::SeqCst);
        if tid != 0 {
            sys::send_signal(std::process::id(), tid, sys::watch_signal());
        }
    }

    /// Has this counter ring whenever a vCPU may have stopped.
    pub fn set_debugger(&self, bell: OwnedFd) {
        let _ = self.debugger.set(bell);
    }

    /// Wakes the debugger's thread; says whether there is one.
    pub fn ring_debugger(&self) -> bool {
        let bell = self.debugger.get();
        if let Some(bell) = bell {
            // Fails only when the counter is full: then it is ringing already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
        bell.is_some()
    }

    /// What a debugger is told that the machine has ended with.
    pub fn set_exit_code(&self, code: u8) {
        self.exit_code.store(u32::from(code) + 1, Ordering::SeqCst);
    }

    pub fn exit_code(&self) -> Option<u8> {
        let code = self.exit_code.load(Ordering::SeqCst).checked_sub(1)?;
        u8::try_from(code).ok()
    }

    fn ring_doorbell(&self) {
        let word = self.shared.word(offset_of!(ph::PhvShared, doorbell));
        word.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(word);
    }
}
