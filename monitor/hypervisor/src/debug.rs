// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine's vCPUs and memory, as a debugger sees them, whatever runs the machine.

use std::fmt;
use std::time::Duration;

/// Why a vCPU has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was asked to.
    Asked,
    /// An int3; the instruction pointer is after it.
    Breakpoint,
    /// It is about to execute an instruction at which the debugger has set a breakpoint of the
    /// processor.
    Hardware,
    /// It has executed one instruction.
    Step,
}

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not started.
    Off,
    /// It executes guest code or waits.
    Runs,
    /// It has stopped, for this reason.
    Stopped(Reason),
    /// It has made the call that ends the machine.
    Ending,
}

/// How a stopped vCPU goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until it stops again.
    Continue,
    /// For one instruction.
    Step,
    /// The breakpoint is the guest's own, so the guest gets its exception.
    Pass,
}

/// A vCPU's registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// rax rcx rdx rbx rsp rbp rsi rdi r8 to r15.
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub rip: u64,
    /// Flags.
    pub rflags: u64,
    /// Code segment selector.
    pub cs: u32,
    /// Stack segment selector.
    pub ss: u32,
    /// FS base.
    pub fs_base: u64,
    /// GS base.
    pub gs_base: u64,
    /// Address of the last page fault.
    pub cr2: u64,
    /// Root of the page tables.
    pub cr3: u64,
    /// Root of the page tables for kernel addresses; 0: cr3 is.
    pub kernel_root: u64,
    /// Levels of the page tables; 0: there are none, and addresses are guest-physical.
    pub levels: u32,
    /// x87 and SSE state in the format of fxsave.
    pub fxsave: Box<[u8; 512]>,
}

/// Index of rsp in [`Registers::gpr`].
pub const RSP: usize = 4;
/// Index of rbp in [`Registers::gpr`].
pub const RBP: usize = 5;

/// Access to one machine.
pub trait Debugged: fmt::Debug + Send {
    /// The number of vCPUs.
    fn vcpus(&self) -> usize;

    /// Whether the machine is being ended.
    fn ending(&self) -> bool;

    /// The exit code that a debugger gets, once the machine has one.
    fn exit_code(&self) -> Option<u8>;

    /// Ends the machine and reports `why`.
    fn fail(&self, why: String);

    /// Sets whether breakpoints stop a vCPU. Otherwise they are the guest's.
    fn attach(&self, on: bool);

    /// What a vCPU does now.
    fn state(&self, vcpu: usize) -> State;

    /// Asks all running vCPUs to stop, and waits for at most `most`. Returns whether all have
    /// stopped.
    fn stop_all(&self, most: Duration) -> bool;

    /// Resumes a stopped vCPU.
    fn resume(&self, vcpu: usize, how: Resume);

    /// The registers of a vCPU that has stopped or ends the machine.
    fn registers(&self, vcpu: usize) -> Option<Registers>;

    /// Sets the general registers, the instruction pointer and the flags of a stopped vCPU.
    fn set_registers(&self, vcpu: usize, registers: &Registers);

    /// The guest-physical address of a linear address for a vCPU with these registers.
    fn translate(&self, registers: &Registers, address: u64) -> Option<u64>;

    /// Copies memory out. Returns the number of bytes that could be read.
    fn read(&self, registers: &Registers, address: u64, bytes: &mut [u8]) -> usize;

    /// Writes memory, whatever access the tables allow. Returns whether all of it is mapped.
    fn write(&self, registers: &Registers, address: u64, bytes: &[u8]) -> bool;

    /// Writes guest-physical memory. Returns whether all of it exists.
    fn write_physical(&self, gpa: u64, bytes: &[u8]) -> bool;

    /// Sets the breakpoints of the processor, for all vCPUs, from their next resume on. Returns
    /// whether there are enough of them.
    fn set_hardware_breakpoints(&self, addresses: &[u64]) -> bool;
}
