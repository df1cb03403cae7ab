// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine as a target of gdb's remote protocol.

use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason as Stop;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, SwBreakpoint, SwBreakpointOps,
};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{TargetError, TargetResult};
use gdbstub_arch::x86::X86_64_SSE;
use gdbstub_arch::x86::reg::X86_64CoreRegs;
use paravane_hypervisor::debug::{Debugged, Reason, Registers, Resume, State};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::iter;
use std::time::Duration;

const INT3: u8 = 0xcc;
/// Maps gdb's order of the general registers to indexes of [`Registers::gpr`]: rbx is gdb's second.
const ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// The time in which all vCPUs must stop. A vCPU that takes longer waits inside the layer.
const STOP_TIME: Duration = Duration::from_secs(5);

/// A breakpoint in memory.
#[derive(Clone, Copy, Debug)]
struct Planted {
    physical: u64,
    before: u8,
}

/// The machine that is debugged.
#[derive(Debug)]
pub struct Target {
    debug: Box<dyn Debugged>,
    breakpoints: BTreeMap<u64, Planted>,
    /// Breakpoints of the processor.
    hardware: BTreeSet<u64>,
    /// The next action of each vCPU. vCPUs without an entry continue.
    actions: BTreeMap<usize, Resume>,
    /// vCPUs without an action stay stopped.
    locked: bool,
    /// For each vCPU that has stopped at an int3: whether the int3 is the guest's own, once known.
    own_trap: Vec<Option<bool>>,
    /// The vCPU whose stop the debugger has heard of last.
    reported: usize,
}

impl Target {
    pub fn new(debug: Box<dyn Debugged>) -> Self {
        let own_trap = vec![None; debug.vcpus()];
        Target {
            debug,
            breakpoints: BTreeMap::new(),
            hardware: BTreeSet::new(),
            actions: BTreeMap::new(),
            locked: false,
            own_trap,
            reported: 0,
        }
    }

    /// A debugger has connected.
    pub fn attach(&mut self) {
        self.debug.attach(true);
        self.stop_all();
    }

    /// The debugger has disconnected: removes its breakpoints and continues the machine.
    pub fn detach(&mut self) {
        if !self.ending() {
            // No vCPU runs while breakpoints are removed.
            self.stop_all();
        }
        for planted in std::mem::take(&mut self.breakpoints).into_values() {
            self.debug
                .write_physical(planted.physical, &[planted.before]);
        }
        self.hardware.clear();
        self.debug.set_hardware_breakpoints(&[]);
        self.debug.attach(false);
        self.actions.clear();
        self.locked = false;
        self.go_on();
    }

    /// Reports whether the machine has ended or must end.
    pub fn ending(&self) -> bool {
        self.debug.ending()
    }

    /// Ends the machine on the debugger's request.
    pub fn kill(&self) {
        self.debug.fail("the debugger has ended it".to_string());
    }

    /// Stops every vCPU. Moves each that has just stopped at a debugger's breakpoint back to it.
    pub fn stop_all(&mut self) {
        if !self.debug.stop_all(STOP_TIME) {
            tracing::warn!("gdb: not all vCPUs have stopped");
        }
        for vcpu in 0..self.debug.vcpus() {
            if self.debug.state(vcpu) == State::Stopped(Reason::Breakpoint) {
                self.settle(vcpu);
            }
        }
    }

    /// A vCPU has stopped at an int3. If the debugger planted it, sets the instruction pointer back
    /// to it. Returns whether the int3 is the guest's own.
    fn settle(&mut self, vcpu: usize) -> bool {
        if let Some(Some(own)) = self.own_trap.get(vcpu) {
            return !own;
        }
        let Some(mut registers) = self.debug.registers(vcpu) else {
            return false;
        };
        let at = registers.rip.wrapping_sub(1);
        let ours = self.breakpoints.contains_key(&at);
        if ours {
            registers.rip = at;
            self.debug.set_registers(vcpu, &registers);
        }
        if let Some(own) = self.own_trap.get_mut(vcpu) {
            *own = Some(!ours);
        }
        ours
    }

    /// The reason of a stop that the debugger has not seen yet.
    pub fn stopped(&mut self) -> Option<Stop<u64>> {
        if self.ending() {
            return Some(Stop::Exited(self.debug.exit_code().unwrap_or(0)));
        }
        for vcpu in 0..self.debug.vcpus() {
            let State::Stopped(reason) = self.debug.state(vcpu) else {
                continue;
            };
            // The debugger left this vCPU stopped.
            if self.locked && !self.actions.contains_key(&vcpu) {
                continue;
            }
            match reason {
                Reason::Breakpoint if self.settle(vcpu) => {
                    self.stop_all();
                    self.reported = vcpu;
                    return Some(Stop::SwBreak(tid(vcpu)));
                }
                Reason::Breakpoint if self.actions.get(&vcpu) != Some(&Resume::Step) => {
                    self.resume_one(vcpu, Resume::Continue);
                }
                Reason::Hardware => {
                    self.stop_all();
                    self.reported = vcpu;
                    return Some(Stop::HwBreak(tid(vcpu)));
                }
                // A step that hits an int3 of the guest is complete, too.
                Reason::Step | Reason::Breakpoint => {
                    self.stop_all();
                    self.reported = vcpu;
                    return Some(Stop::SignalWithThread {
                        tid: tid(vcpu),
                        signal: Signal::SIGTRAP,
                    });
                }
                // A stop for an earlier request, after which the vCPU was continued.
                Reason::Asked => {
                    let how = self.actions.get(&vcpu).copied().unwrap_or(Resume::Continue);
                    self.resume_one(vcpu, how);
                }
            }
        }
        None
    }

    fn resume_one(&mut self, vcpu: usize, how: Resume) {
        let own = self.own_trap.get_mut(vcpu).and_then(Option::take);
        self.debug
            .resume(vcpu, if own == Some(true) { Resume::Pass } else { how });
    }

    fn go_on(&mut self) {
        for vcpu in 0..self.debug.vcpus() {
            match self.actions.get(&vcpu) {
                Some(&how) => self.resume_one(vcpu, how),
                None if self.locked => {}
                None => self.resume_one(vcpu, Resume::Continue),
            }
        }
    }

    /// The first vCPU that is online.
    pub fn any_thread(&self) -> Tid {
        tid((0..self.debug.vcpus())
            .find(|&vcpu| self.debug.state(vcpu) != State::Off)
            .unwrap_or(0))
    }

    /// Returns whether the machine has enough of them.
    fn set_hardware(&mut self, wanted: BTreeSet<u64>) -> bool {
        let all: Vec<u64> = wanted.iter().copied().collect();
        let done = self.debug.set_hardware_breakpoints(&all);
        if done {
            self.hardware = wanted;
        }
        done
    }

    fn registers(&self, tid: Tid) -> TargetResult<Registers, Self> {
        self.debug.registers(vcpu(tid)).ok_or(TargetError::NonFatal)
    }
}

/// gdb counts threads from 1.
fn tid(vcpu: usize) -> Tid {
    Tid::new(vcpu + 1).unwrap_or(Tid::MIN)
}

fn vcpu(tid: Tid) -> usize {
    tid.get() - 1
}

fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl gdbstub::target::Target for Target {
    type Arch = X86_64_SSE;
    type Error = std::convert::Infallible;

    fn base_ops(&mut self) -> BaseOps<'_, Self::Arch, Self::Error> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Target {
    fn read_registers(&mut self, regs: &mut X86_64CoreRegs, tid: Tid) -> TargetResult<(), Self> {
        let from = self.registers(tid)?;
        for (to, place) in regs.regs.iter_mut().zip(ORDER) {
            *to = from.gpr.get(place).copied().unwrap_or_default();
        }
        regs.rip = from.rip;
        regs.eflags = low(from.rflags);
        regs.segments.cs = from.cs;
        regs.segments.ss = from.ss;
        let area = &from.fxsave;
        for (number, st) in regs.st.iter_mut().enumerate() {
            if let Some(bytes) = area.get(32 + 16 * number..).and_then(|b| b.first_chunk()) {
                *st = *bytes;
            }
        }
        for (number, xmm) in regs.xmm.iter_mut().enumerate() {
            if let Some(bytes) = area.get(160 + 16 * number..).and_then(|b| b.first_chunk()) {
                *xmm = u128::from_le_bytes(*bytes);
            }
        }
        if let Some(bytes) = area.get(24..).and_then(|b| b.first_chunk()) {
            regs.mxcsr = u32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    fn write_registers(&mut self, regs: &X86_64CoreRegs, tid: Tid) -> TargetResult<(), Self> {
        let mut to = self.registers(tid)?;
        for (from, place) in regs.regs.iter().zip(ORDER) {
            if let Some(register) = to.gpr.get_mut(place) {
                *register = *from;
            }
        }
        to.rip = regs.rip;
        to.rflags = regs.eflags.into();
        self.debug.set_registers(vcpu(tid), &to);
        Ok(())
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        let registers = self.registers(tid)?;
        let count = self.debug.read(&registers, start, data);
        if count == 0 && !data.is_empty() {
            return Err(TargetError::NonFatal);
        }
        // Show the bytes that breakpoints replaced.
        for (address, planted) in self.breakpoints.range(start..) {
            match usize::try_from(address - start)
                .ok()
                .and_then(|at| data.get_mut(at))
            {
                Some(byte) => *byte = planted.before,
                None => break,
            }
        }
        Ok(count)
    }

    fn write_addrs(&mut self, start: u64, data: &[u8], tid: Tid) -> TargetResult<(), Self> {
        let registers = self.registers(tid)?;
        if self.debug.write(&registers, start, data) {
            Ok(())
        } else {
            Err(TargetError::NonFatal)
        }
    }

    fn list_active_threads(&mut self, each: &mut dyn FnMut(Tid)) -> Result<(), Self::Error> {
        let mut any = false;
        for vcpu in 0..self.debug.vcpus() {
            if self.debug.state(vcpu) != State::Off {
                each(tid(vcpu));
                any = true;
            }
        }
        if !any {
            // gdb expects at least one thread.
            each(tid(0));
        }
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadResume for Target {
    fn resume(&mut self) -> Result<(), Self::Error> {
        self.go_on();
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), Self::Error> {
        self.actions.clear();
        self.locked = false;
        Ok(())
    }

    /// Continues a vCPU. A machine cannot receive the signal that the debugger names.
    fn set_resume_action_continue(
        &mut self,
        tid: Tid,
        _signal: Option<Signal>,
    ) -> Result<(), Self::Error> {
        self.actions.insert(vcpu(tid), Resume::Continue);
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Target {
    fn set_resume_action_step(
        &mut self,
        tid: Tid,
        _signal: Option<Signal>,
    ) -> Result<(), Self::Error> {
        self.actions.insert(vcpu(tid), Resume::Step);
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for Target {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), Self::Error> {
        self.locked = true;
        Ok(())
    }
}

impl Breakpoints for Target {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }
}

impl HwBreakpoint for Target {
    fn add_hw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        let mut wanted = self.hardware.clone();
        wanted.insert(address);
        Ok(self.set_hardware(wanted))
    }

    fn remove_hw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        let mut wanted = self.hardware.clone();
        Ok(wanted.remove(&address) && self.set_hardware(wanted))
    }
}

impl SwBreakpoint for Target {
    /// Writes an int3 to the memory that the address means now on the vCPU that has reported the
    /// stop, or else on another one: the others may have loaded programs with something else there.
    /// Every program that shares the page sees it.
    fn add_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        if self.breakpoints.contains_key(&address) {
            return Ok(true);
        }
        let others = (0..self.debug.vcpus()).filter(|&vcpu| vcpu != self.reported);
        let found = iter::once(self.reported).chain(others).find_map(|vcpu| {
            let registers = self.debug.registers(vcpu)?;
            let mut before = [0];
            let physical = self.debug.translate(&registers, address)?;
            (self.debug.read(&registers, address, &mut before) == 1).then_some((physical, before))
        });
        let Some((physical, [before])) = found else {
            return Ok(false);
        };
        if !self.debug.write_physical(physical, &[INT3]) {
            return Ok(false);
        }
        self.breakpoints
            .insert(address, Planted { physical, before });
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        let Some(planted) = self.breakpoints.remove(&address) else {
            return Ok(false);
        };
        Ok(self
            .debug
            .write_physical(planted.physical, &[planted.before]))
    }
}

impl ThreadExtraInfo for Target {
    fn thread_extra_info(&self, tid: Tid, mut buffer: &mut [u8]) -> Result<usize, Self::Error> {
        let vcpu = vcpu(tid);
        let mode = match self.debug.registers(vcpu) {
            Some(registers) if registers.cs & 3 != 0 => "user",
            Some(_) => "kernel",
            None => "running",
        };
        let room = buffer.len();
        // Text that does not fit is cut off.
        let _ = write!(buffer, "vCPU {vcpu}, {mode}");
        Ok(room - buffer.len())
    }
}
