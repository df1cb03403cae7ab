// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stops of vCPUs for a debugger. Only a vCPU's own thread uses KVM's virtual CPU: it stores the
//! registers when it stops, and loads the changed ones when it continues.

use crate::debug::{Reason, Registers, Resume, State};
use kvm_bindings::{
    KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_INJECT_BP, KVM_GUESTDBG_SINGLESTEP, KVM_GUESTDBG_USE_HW_BP,
    KVM_GUESTDBG_USE_SW_BP, KVM_MP_STATE_INIT_RECEIVED, KVM_MP_STATE_UNINITIALIZED,
    kvm_debug_exit_arch, kvm_fpu, kvm_guest_debug, kvm_regs,
};
use kvm_ioctls::VcpuFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Breakpoints of a processor.
pub const HARDWARE_BREAKPOINTS: usize = 4;
/// Exceptions: a step or a breakpoint of the processor; an int3.
const DEBUG_EXCEPTION: u32 = 1;
const BREAKPOINT_EXCEPTION: u32 = 3;
/// DR6: a step. The lowest four bits are the processor's breakpoints.
const DR6_STEP: u64 = 1 << 14;
/// DR7: enabled. Four bits of each breakpoint are 0: at the execution of an instruction.
const DR7_FIXED: u64 = 0x400;
/// Interrupts wait during a step (Linux 5.15; linux/kvm.h).
const BLOCK_INTERRUPTS: u32 = 0x10_0000;
/// How long a stopped vCPU waits before it looks whether the machine ends.
const PATIENCE: Duration = Duration::from_millis(50);

/// What the debugger and all vCPUs share.
#[derive(Debug, Default)]
pub struct Stops {
    /// A debugger has connected.
    attached: AtomicBool,
    hardware: Mutex<Vec<u64>>,
    /// Counts what a vCPU that is off has to look for; see [`Stops::look`].
    looks: AtomicU64,
    vcpus: Vec<Stop>,
    /// Rings when a vCPU has stopped; unset without a debugger.
    bell: OnceLock<OwnedFd>,
    /// The host's kernel can let interrupts wait during a step.
    block_interrupts: bool,
}

#[derive(Debug, Default)]
struct Stop {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// It shall stop.
    asked: bool,
    /// It had not got its STARTUP interrupt when its thread looked last.
    off: bool,
    /// [`Stops::looks`] at that time.
    looked: u64,
    stopped: Option<Reason>,
    /// As they were at the stop, or as the debugger has set them.
    registers: Option<Registers>,
    /// The debugger has set them.
    changed: bool,
    resume: Option<Resume>,
}

impl Stop {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stops {
    /// For `vcpus` vCPUs, of which all but the first are off.
    pub fn new(vcpus: usize, block_interrupts: bool) -> Self {
        let stop = |number| {
            let stop = Stop::default();
            stop.lock().off = number > 0;
            stop
        };
        Stops {
            vcpus: (0..vcpus).map(stop).collect(),
            block_interrupts,
            ..Stops::default()
        }
    }

    /// Prepares for debuggers: vCPU 0 stops before its first instruction. `bell` rings when a vCPU
    /// has stopped.
    pub fn enable(&self, bell: OwnedFd) {
        if self.bell.set(bell).is_ok() {
            self.ask(0);
        }
    }

    /// Whether debuggers may come.
    fn enabled(&self) -> bool {
        self.bell.get().is_some()
    }

    /// Wakes the debugger's thread.
    pub fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            // Fails only if the counter is full: then the thread has not looked yet.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Sets whether breakpoints stop a vCPU.
    pub fn attach(&self, on: bool) {
        self.attached.store(on, Ordering::SeqCst);
        self.look();
    }

    /// Makes the thread of each vCPU that is off check whether the vCPU has started, which KVM does
    /// not report, and take the breakpoints. The caller also interrupts the threads.
    pub fn look(&self) {
        self.looks.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a vCPU is off, and its thread has not looked yet.
    pub fn looks(&self, vcpu: usize) -> bool {
        let looks = self.looks.load(Ordering::SeqCst);
        let late = |inner: &Inner| inner.off && inner.stopped.is_none() && inner.looked != looks;
        self.vcpus.get(vcpu).is_some_and(|stop| late(&stop.lock()))
    }

    /// Sets the processor's breakpoints. Returns whether there are enough of them.
    pub fn set_hardware(&self, addresses: &[u64]) -> bool {
        if addresses.len() > HARDWARE_BREAKPOINTS {
            return false;
        }
        *self.hardware() = addresses.to_vec();
        self.look();
        true
    }

    fn hardware(&self) -> MutexGuard<'_, Vec<u64>> {
        self.hardware.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a vCPU does.
    pub fn state(&self, vcpu: usize) -> State {
        let Some(stop) = self.vcpus.get(vcpu) else {
            return State::Off;
        };
        let inner = stop.lock();
        match &inner.stopped {
            Some(reason) => State::Stopped(*reason),
            None if inner.off => State::Off,
            None => State::Runs,
        }
    }

    /// Asks a vCPU to stop. The caller also interrupts its thread.
    pub fn ask(&self, vcpu: usize) {
        if let Some(stop) = self.vcpus.get(vcpu) {
            stop.lock().asked = true;
        }
    }

    /// The registers of a stopped vCPU.
    pub fn registers(&self, vcpu: usize) -> Option<Registers> {
        let inner = self.vcpus.get(vcpu)?.lock();
        inner.stopped.and(inner.registers.clone())
    }

    /// Changes the registers of a stopped vCPU.
    pub fn set_registers(&self, vcpu: usize, registers: &Registers) {
        let Some(stop) = self.vcpus.get(vcpu) else {
            return;
        };
        let mut inner = stop.lock();
        if inner.stopped.is_some() {
            inner.registers = Some(registers.clone());
            inner.changed = true;
        }
    }

    /// Resumes a stopped vCPU.
    pub fn resume(&self, vcpu: usize, how: Resume) {
        let Some(stop) = self.vcpus.get(vcpu) else {
            return;
        };
        let mut inner = stop.lock();
        // A request that came just before is fulfilled.
        inner.asked = false;
        if inner.stopped.take().is_some() {
            inner.resume = Some(how);
            stop.changed.notify_all();
        }
    }

    /// For a vCPU's thread, before it enters the guest: stops if the vCPU was asked to. `over`: the
    /// machine ends.
    ///
    /// # Errors
    /// KVM's.
    pub fn pause(
        &self,
        number: usize,
        vcpu: &mut VcpuFd,
        over: impl Fn() -> bool,
    ) -> Result<(), kvm_ioctls::Error> {
        let Some(stop) = self.vcpus.get(number).filter(|_| self.enabled()) else {
            return Ok(());
        };
        // Before the breakpoints, so that a later change is seen the next time.
        let looks = self.looks.load(Ordering::SeqCst);
        let (asked, was_off, looked) = {
            let inner = stop.lock();
            (inner.asked, inner.off, inner.looked)
        };
        if !asked && !was_off {
            return Ok(());
        }
        if was_off && looked != looks {
            vcpu.set_guest_debug(&self.control(Resume::Continue))?;
        }
        let off = matches!(
            vcpu.get_mp_state()?.mp_state,
            KVM_MP_STATE_UNINITIALIZED | KVM_MP_STATE_INIT_RECEIVED
        );
        let set = |inner: &mut Inner| (inner.off, inner.looked) = (off, looks);
        set(&mut stop.lock());
        if off || !asked {
            return Ok(());
        }
        // KVM completes the last exit, of which registers may be a part, when it is entered again.
        vcpu.set_kvm_immediate_exit(1);
        let _ = vcpu.run();
        vcpu.set_kvm_immediate_exit(0);
        self.wait(stop, vcpu, Reason::Asked, over)
    }

    /// For a vCPU's thread: the vCPU has left the guest for the debugger.
    ///
    /// # Errors
    /// KVM's.
    pub fn trap(
        &self,
        number: usize,
        vcpu: &mut VcpuFd,
        exit: kvm_debug_exit_arch,
        over: impl Fn() -> bool,
    ) -> Result<(), kvm_ioctls::Error> {
        let Some(stop) = self.vcpus.get(number) else {
            return Ok(());
        };
        let reason = match exit.exception {
            BREAKPOINT_EXCEPTION => Reason::Breakpoint,
            DEBUG_EXCEPTION if exit.dr6 & DR6_STEP == 0 && exit.dr6 & 0xf != 0 => Reason::Hardware,
            _ => Reason::Step,
        };
        self.wait(stop, vcpu, reason, over)
    }

    fn wait(
        &self,
        stop: &Stop,
        vcpu: &mut VcpuFd,
        reason: Reason,
        over: impl Fn() -> bool,
    ) -> Result<(), kvm_ioctls::Error> {
        let mut before = read(vcpu)?;
        if reason == Reason::Breakpoint {
            // KVM stops at it.
            before.rip = before.rip.wrapping_add(1);
        }
        let mut inner = stop.lock();
        // It has run, perhaps since its start, which was not noticed.
        inner.off = false;
        inner.asked = false;
        inner.changed = false;
        inner.resume = None;
        inner.stopped = Some(reason);
        inner.registers = Some(before);
        self.ring();
        while inner.resume.is_none() && !over() {
            let woken = stop.changed.wait_timeout(inner, PATIENCE);
            inner = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (how, changed, after) = (inner.resume.take(), inner.changed, inner.registers.take());
        inner.stopped = None;
        drop(inner);
        if let (true, Some(registers)) = (changed, after) {
            write(vcpu, &registers)?;
        }
        vcpu.set_guest_debug(&self.control(how.unwrap_or(Resume::Continue)))
    }

    /// What KVM does while the vCPU runs.
    fn control(&self, how: Resume) -> kvm_guest_debug {
        let mut debug = kvm_guest_debug::default();
        if self.attached.load(Ordering::SeqCst) {
            debug.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP;
            let hardware = self.hardware();
            if !hardware.is_empty() {
                debug.control |= KVM_GUESTDBG_USE_HW_BP;
                debug.arch.debugreg[7] = DR7_FIXED;
            }
            for (number, address) in hardware.iter().enumerate().take(HARDWARE_BREAKPOINTS) {
                debug.arch.debugreg[number] = *address;
                debug.arch.debugreg[7] |= 2 << (2 * number);
            }
        }
        match how {
            Resume::Continue => {}
            Resume::Step => {
                debug.control |= KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP;
                if self.block_interrupts {
                    debug.control |= BLOCK_INTERRUPTS;
                }
            }
            Resume::Pass => debug.control |= KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_INJECT_BP,
        }
        debug
    }
}

fn read(vcpu: &VcpuFd) -> Result<Registers, kvm_ioctls::Error> {
    let (general, special, floating) = (vcpu.get_regs()?, vcpu.get_sregs()?, vcpu.get_fpu()?);
    let kvm_regs {
        rax,
        rcx,
        rdx,
        rbx,
        rsp,
        rbp,
        rsi,
        rdi,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rip,
        rflags,
    } = general;
    Ok(Registers {
        gpr: [
            rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
        ],
        rip,
        rflags,
        cs: special.cs.selector.into(),
        ss: special.ss.selector.into(),
        fs_base: special.fs.base,
        gs_base: special.gs.base,
        cr2: special.cr2,
        cr3: special.cr3,
        kernel_root: 0,
        levels: levels(special.cr0, special.cr4),
        fxsave: fxsave(&floating),
    })
}

/// Levels of page tables of a processor in 64-bit mode, or without paging.
const fn levels(cr0: u64, cr4: u64) -> u32 {
    const PAGING: u64 = 1 << 31;
    const LA57: u64 = 1 << 12;
    match (cr0 & PAGING != 0, cr4 & LA57 != 0) {
        (false, _) => 0,
        (true, false) => 4,
        (true, true) => 5,
    }
}

fn write(vcpu: &VcpuFd, registers: &Registers) -> Result<(), kvm_ioctls::Error> {
    let [
        rax,
        rcx,
        rdx,
        rbx,
        rsp,
        rbp,
        rsi,
        rdi,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
    ] = registers.gpr;
    vcpu.set_regs(&kvm_regs {
        rax,
        rcx,
        rdx,
        rbx,
        rsp,
        rbp,
        rsi,
        rdi,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rip: registers.rip,
        rflags: registers.rflags,
    })
}

/// The floating-point registers in the format of fxsave.
fn fxsave(from: &kvm_fpu) -> Box<[u8; 512]> {
    let mut area = Box::new([0; 512]);
    let mut put = |at: usize, bytes: &[u8]| {
        let room = area.get_mut(at..).unwrap_or_default().iter_mut();
        room.zip(bytes).for_each(|(to, from)| *to = *from);
    };
    put(0, &from.fcw.to_le_bytes());
    put(2, &from.fsw.to_le_bytes());
    put(4, &[from.ftwx]);
    put(6, &from.last_opcode.to_le_bytes());
    put(8, &from.last_ip.to_le_bytes());
    put(16, &from.last_dp.to_le_bytes());
    put(24, &from.mxcsr.to_le_bytes());
    for (register, at) in from.fpr.iter().zip((32..).step_by(16)) {
        put(at, register);
    }
    for (register, at) in from.xmm.iter().zip((160..).step_by(16)) {
        put(at, register);
    }
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops() -> Stops {
        let stops = Stops::new(2, true);
        stops.attach(true);
        stops
    }

    #[test]
    fn the_processor_is_told_what_to_stop_for() {
        let stops = stops();
        let sw = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP;
        assert_eq!(stops.control(Resume::Continue).control, sw);
        let step = stops.control(Resume::Step).control;
        assert_eq!(step, sw | KVM_GUESTDBG_SINGLESTEP | BLOCK_INTERRUPTS);
        assert_eq!(
            stops.control(Resume::Pass).control,
            sw | KVM_GUESTDBG_INJECT_BP
        );
        assert!(stops.set_hardware(&[0x1000, 0x2000]));
        let both = stops.control(Resume::Continue);
        assert_eq!(both.control, sw | KVM_GUESTDBG_USE_HW_BP);
        assert_eq!(both.arch.debugreg[..2], [0x1000, 0x2000]);
        assert_eq!(both.arch.debugreg[7], 0x40a);
        assert!(!stops.set_hardware(&[0; 5]));
        stops.attach(false);
        assert_eq!(stops.control(Resume::Continue).control, 0);
    }

    #[test]
    fn a_vcpu_without_a_startup_is_off() {
        let stops = stops();
        assert_eq!((stops.state(0), stops.state(1)), (State::Runs, State::Off));
        assert_eq!(stops.state(2), State::Off);
        assert_eq!(stops.registers(0), None);
        // Neither waits nor fails.
        stops.resume(0, Resume::Step);
        // The thread of the one that is off takes what has changed.
        assert!(stops.looks(1) && !stops.looks(0));
        stops.vcpus[1].lock().looked = 1;
        assert!(!stops.looks(1));
        assert!(stops.set_hardware(&[1]) && stops.looks(1));
    }

    #[test]
    fn the_floating_point_state_has_the_layout_of_fxsave() {
        let mut state = kvm_fpu {
            fcw: 0x37f,
            mxcsr: 0x1f80,
            ..Default::default()
        };
        state.fpr[7][0] = 7;
        state.xmm[15][15] = 15;
        let area = fxsave(&state);
        assert_eq!(
            (area[0], area[1], area[24], area[25]),
            (0x7f, 3, 0x80, 0x1f)
        );
        assert_eq!((area[32 + 7 * 16], area[160 + 15 * 16 + 15]), (7, 15));
    }
}
