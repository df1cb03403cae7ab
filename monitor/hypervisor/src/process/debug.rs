// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine's vCPUs and memory, as a debugger or a crash report sees them.
//!
//! A pending bit asks a vCPU to stop, like an interrupt (`layers/process/entry/debug.c`). The vCPU
//! then waits, with its registers in the shared area. The guest can write all of that: values are
//! copied, and used only as the guest's own numbers. Memory is read and written through the guest's
//! page tables, in the monitor's mapping of RAM.

use super::core::Core;
use super::kick;
use super::shared::copy;
use super::sys;
use crate::size::size;
use paravane_abi::process as ph;
use paravane_abi::process::area::{self, DebugCommand, DebugState, StopReason, VcpuState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const PAGE: u64 = 4096;
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// The time between two requests to a vCPU that does not stop.
const AGAIN: Duration = Duration::from_millis(50);
/// The time between two checks whether vCPUs have stopped.
const PAUSE: Duration = Duration::from_micros(200);

pub use crate::debug::{Debugged, RBP, RSP, Reason, Registers, Resume, State};

/// Access to one machine.
#[derive(Clone, Debug)]
pub struct Debug {
    core: Arc<Core>,
    memory: Arc<GuestMemoryMmap>,
    /// The ranges of the kernel in the hole.
    windows: Arc<[ph::PhvSegment]>,
    /// Load address minus link address of the kernel, modulo 2^64.
    pub delta: u64,
    /// The linear address of guest-physical 0, at which the user range ends.
    pub direct_map: u64,
    /// Frequency of the time-stamp counter in Hz.
    pub tsc_hz: u64,
}

impl Debug {
    pub(super) fn new(
        core: Arc<Core>,
        memory: Arc<GuestMemoryMmap>,
        windows: &[ph::PhvSegment],
        delta: u64,
        direct_map: u64,
        tsc_hz: u64,
    ) -> Self {
        Debug {
            core,
            memory,
            windows: windows.into(),
            delta,
            direct_map,
            tsc_hz,
        }
    }

    /// The number of vCPUs.
    pub fn vcpus(&self) -> usize {
        self.core.vcpus
    }

    /// Whether the machine is being ended.
    pub fn ending(&self) -> bool {
        self.core.stopping()
    }

    /// The exit code that a debugger gets, once the machine has one.
    pub fn exit_code(&self) -> Option<u8> {
        self.core.end.exit_code()
    }

    /// Ends the machine and reports `why`.
    pub fn fail(&self, why: String) {
        self.core.fail(why);
    }

    /// Sets whether breakpoints stop a vCPU. Otherwise they are the guest's.
    pub fn attach(&self, on: bool) {
        let word = &self.core.shared.header().debug_on;
        word.store(on.into(), Ordering::SeqCst);
    }

    /// What a vCPU does now.
    pub fn state(&self, vcpu: usize) -> State {
        let debug = self.core.shared.debug(vcpu);
        match debug.state.load(Ordering::SeqCst) {
            Ok(DebugState::Stopped) => State::Stopped(match debug.reason.load(Ordering::SeqCst) {
                Ok(StopReason::Breakpoint) => Reason::Breakpoint,
                Ok(StopReason::Step) => Reason::Step,
                Ok(StopReason::Asked) | Err(_) => Reason::Asked,
            }),
            Ok(DebugState::Call) => State::Ending,
            Ok(DebugState::Runs) | Err(_) => {
                let area::Vcpu { state, owner, .. } = self.core.shared.vcpu(vcpu);
                // The boot vCPU is off until it is handed to a process.
                let off = state.is(VcpuState::Off, Ordering::SeqCst);
                if off && (vcpu > 0 || owner.load(Ordering::SeqCst) != 0) {
                    State::Off
                } else {
                    State::Runs
                }
            }
        }
    }

    /// Asks all running vCPUs to stop, and waits for at most `most`. Returns whether all have
    /// stopped.
    pub fn stop_all(&self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        let mut again = Instant::now();
        loop {
            let mut running = (0..self.vcpus())
                .filter(|&vcpu| self.state(vcpu) == State::Runs)
                .peekable();
            let now = Instant::now();
            if running.peek().is_none() {
                return true;
            }
            if now >= deadline || self.core.stopping() {
                return false;
            }
            // A vCPU that was being started, or handed over to a new process, may have missed the
            // request.
            if now >= again {
                for vcpu in running {
                    kick::tell(&self.core, vcpu, kick::DEBUG);
                }
                again = now + AGAIN;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Asks one vCPU to stop before its start.
    pub fn ask(&self, vcpu: usize) {
        kick::tell(&self.core, vcpu, kick::DEBUG);
    }

    /// Resumes a stopped vCPU.
    pub fn resume(&self, vcpu: usize, how: Resume) {
        if !matches!(self.state(vcpu), State::Stopped(_)) {
            return;
        }
        let shared = &self.core.shared;
        let command = match how {
            Resume::Continue => DebugCommand::Continue,
            Resume::Step => DebugCommand::Step,
            Resume::Pass => DebugCommand::Pass,
        };
        // A request that came just after the vCPU had stopped by itself is fulfilled.
        shared
            .vcpu(vcpu)
            .pending
            .fetch_and(!kick::DEBUG, Ordering::SeqCst);
        let debug = shared.debug(vcpu);
        debug.state.store(DebugState::Runs, Ordering::SeqCst);
        debug.command.store(command, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let word = &shared.vcpu(vcpu).wait_word;
        word.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(word);
    }

    /// The registers of a vCPU that has stopped or ends the machine.
    pub fn registers(&self, vcpu: usize) -> Option<Registers> {
        if !matches!(self.state(vcpu), State::Stopped(_) | State::Ending) {
            return None;
        }
        let debug = self.core.shared.debug(vcpu);
        let long = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let word = |field: &AtomicU32| field.load(Ordering::Relaxed);
        let mut gpr = [0; 16];
        for (field, register) in debug.gpr.iter().zip(&mut gpr) {
            *register = long(field);
        }
        let mut fxsave = Box::new([0; 512]);
        copy(&debug.fxsave, &mut *fxsave);
        Some(Registers {
            gpr,
            rip: long(&debug.rip),
            rflags: long(&debug.rflags),
            cs: word(&debug.cs),
            ss: word(&debug.ss),
            fs_base: long(&debug.fs_base),
            gs_base: long(&debug.gs_base),
            cr2: long(&debug.cr2),
            cr3: long(&debug.cr3),
            kernel_root: long(&debug.kernel_root),
            levels: 4,
            fxsave,
        })
    }

    /// Sets the general registers, the instruction pointer and the flags of a stopped vCPU.
    pub fn set_registers(&self, vcpu: usize, registers: &Registers) {
        if !matches!(self.state(vcpu), State::Stopped(_)) {
            return;
        }
        let debug = self.core.shared.debug(vcpu);
        for (field, value) in debug.gpr.iter().zip(registers.gpr) {
            field.store(value, Ordering::Relaxed);
        }
        debug.rip.store(registers.rip, Ordering::Relaxed);
        debug.rflags.store(registers.rflags, Ordering::Relaxed);
    }

    /// The guest-physical address of a linear address for a vCPU with these registers.
    pub fn translate(&self, registers: &Registers, address: u64) -> Option<u64> {
        if let Some(window) = self
            .windows
            .iter()
            .find(|w| address.checked_sub(w.addr).is_some_and(|at| at < w.size))
        {
            return Some(window.gpa + (address - window.addr));
        }
        if (self.direct_map..ph::PHV_KERNEL_END).contains(&address) {
            let gpa = address - self.direct_map;
            if self.readable(gpa) {
                return Some(gpa);
            }
        }
        let kernel =
            address >= self.direct_map || (ph::PHV_HOLE_START..ph::PHV_HOLE_END).contains(&address);
        let root = if kernel && registers.kernel_root != 0 {
            registers.kernel_root
        } else {
            registers.cr3
        };
        self.walk(root, address)
    }

    fn readable(&self, gpa: u64) -> bool {
        self.memory.read_obj::<u8>(GuestAddress(gpa)).is_ok()
    }

    /// Looks up an address in four levels of page tables.
    fn walk(&self, root: u64, address: u64) -> Option<u64> {
        let mut table = root & ADDRESS;
        for level in (1..=4u32).rev() {
            let shift = 12 + 9 * (level - 1);
            let entry: u64 = self
                .memory
                .read_obj(GuestAddress(table + (address >> shift & 511) * 8))
                .ok()?;
            if entry & PRESENT == 0 {
                return None;
            }
            if level == 1 || (level <= 3 && entry & LARGE != 0) {
                let inside = (1 << shift) - 1;
                return Some((entry & ADDRESS & !inside) | (address & inside));
            }
            table = entry & ADDRESS;
        }
        None
    }

    /// Copies memory out. Returns the number of bytes that could be read.
    pub fn read(&self, registers: &Registers, address: u64, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for part in pieces(address, bytes.len()) {
            let to = bytes.get_mut(done..done + part.1).unwrap_or_default();
            let Some(gpa) = self.translate(registers, part.0) else {
                break;
            };
            if self.memory.read_slice(to, GuestAddress(gpa)).is_err() {
                break;
            }
            done += part.1;
        }
        done
    }

    /// Writes memory, whatever access the tables allow. Returns whether all of it is mapped.
    pub fn write(&self, registers: &Registers, address: u64, bytes: &[u8]) -> bool {
        let mut done = 0;
        pieces(address, bytes.len()).all(|part| {
            let from = bytes.get(done..done + part.1).unwrap_or_default();
            done += part.1;
            self.translate(registers, part.0)
                .is_some_and(|gpa| self.write_physical(gpa, from))
        })
    }

    /// Writes guest-physical memory. Returns whether all of it exists.
    pub fn write_physical(&self, gpa: u64, bytes: &[u8]) -> bool {
        self.memory.write_slice(bytes, GuestAddress(gpa)).is_ok()
    }

    /// The last events of a vCPU, oldest first: time-stamp counter, kind, two words.
    pub fn events(&self, vcpu: usize, most: usize) -> Vec<ph::PhvEvent> {
        let shared = &self.core.shared;
        let kept = size(ph::PHV_EVENTS);
        let next = size(shared.vcpu(vcpu).events.load(Ordering::SeqCst).into());
        let mut events: Vec<ph::PhvEvent> = (0..kept)
            .map(|n| shared.copy_event(vcpu, (next + n) % kept))
            .filter(|event| event.kind != ph::PHV_EVENT_NONE)
            .collect();
        events.drain(..events.len().saturating_sub(most));
        events
    }
}

impl Debugged for Debug {
    fn vcpus(&self) -> usize {
        Debug::vcpus(self)
    }

    fn ending(&self) -> bool {
        Debug::ending(self)
    }

    fn exit_code(&self) -> Option<u8> {
        Debug::exit_code(self)
    }

    fn fail(&self, why: String) {
        Debug::fail(self, why);
    }

    fn attach(&self, on: bool) {
        Debug::attach(self, on);
    }

    fn state(&self, vcpu: usize) -> State {
        Debug::state(self, vcpu)
    }

    fn stop_all(&self, most: Duration) -> bool {
        Debug::stop_all(self, most)
    }

    fn resume(&self, vcpu: usize, how: Resume) {
        Debug::resume(self, vcpu, how);
    }

    fn registers(&self, vcpu: usize) -> Option<Registers> {
        Debug::registers(self, vcpu)
    }

    fn set_registers(&self, vcpu: usize, registers: &Registers) {
        Debug::set_registers(self, vcpu, registers);
    }

    fn translate(&self, registers: &Registers, address: u64) -> Option<u64> {
        Debug::translate(self, registers, address)
    }

    fn read(&self, registers: &Registers, address: u64, bytes: &mut [u8]) -> usize {
        Debug::read(self, registers, address, bytes)
    }

    fn write(&self, registers: &Registers, address: u64, bytes: &[u8]) -> bool {
        Debug::write(self, registers, address, bytes)
    }

    fn write_physical(&self, gpa: u64, bytes: &[u8]) -> bool {
        Debug::write_physical(self, gpa, bytes)
    }

    /// A process has none: the host's kernel gives them to its tracer alone.
    fn set_hardware_breakpoints(&self, addresses: &[u64]) -> bool {
        addresses.is_empty()
    }
}

/// The parts of a range, each within one page: address and size.
fn pieces(address: u64, length: usize) -> impl Iterator<Item = (u64, usize)> {
    let (mut at, mut left) = (address, length);
    std::iter::from_fn(move || {
        let part = left.min(size(PAGE - at % PAGE));
        let piece = (at, part);
        at = at.checked_add(part as u64)?;
        left -= part;
        (part > 0).then_some(piece)
    })
}

#[cfg(test)]
#[path = "debug_tests.rs"]
mod tests;
