// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/process.toml: change that, not this.
use core::mem::{offset_of, size_of};

/// Views of the memory that guests can write.
pub mod area;

// Linear addresses in an address-space process
/// First address of the hole in the guest's user range, for what the kernel maps near its image.
pub const PHV_HOLE_START: u64 = 0x70000000;
/// Start of the kernel file's image and the layer, which the guest may not map.
pub const PHV_IMAGE_START: u64 = 0x7a000000;
/// The layer's program, linked for this address.
pub const PHV_LAYER_BASE: u64 = 0x7f000000;
/// End of the hole, exclusive.
pub const PHV_HOLE_END: u64 = 0x7fe00000;
/// First address of the guest's user range.
pub const PHV_USER_START: u64 = 0x10000;
/// Guest-physical 0, and the end of the user range, for a kernel with VMI_NOTE_COMPACT: 123 TiB.
pub const PHV_DIRECT_MAP: u64 = 0x7b0000000000;
/// The most RAM there, bytes: 1 TiB.
pub const PHV_DIRECT_MAP_SIZE: u64 = 0x10000000000;
/// The same address for other kernels, and for more RAM: 64 TiB.
pub const PHV_DIRECT_MAP_WIDE: u64 = 0x400000000000;
/// End of what the guest kernel may map, exclusive.
pub const PHV_KERNEL_END: u64 = 0x7e0000000000;
/// The shared area. The areas below lie near it, since a distant one costs host page tables in each process.
pub const PHV_SHARED: u64 = 0x7e8000000000;
/// The layer's own view of the register pages of all devices, writable.
pub const PHV_DEVICES: u64 = 0x7e8000500000;
/// A process's own memory for its shadow, which it always has.
pub const PHV_ARENA: u64 = 0x7e8000400000;
/// Bytes of the arena.
pub const PHV_ARENA_SIZE: u64 = 0x100000;
/// Further memory for shadows, which all processes of the machine share. It is part of the shared area's file, so hostile code cannot make it larger.
pub const PHV_POOL: u64 = 0x7e9100000000;
/// A process's own stacks, PHV_STACK_SIZE for each vCPU.
pub const PHV_STACKS: u64 = 0x7e8000580000;
/// Bytes for a vCPU's thread, aligned to their size: thread record, host stack, signal stack.
pub const PHV_STACK_SIZE: u64 = 0x20000;

// Descriptors of the layer's program when it starts
/// Socket (SOCK_SEQPACKET) to the monitor; only the zygote keeps it.
pub const PHV_FD_CONTROL: u64 = 0x3;
/// Memfd of the shared area; closed before guest code runs.
pub const PHV_FD_SHARED: u64 = 0x4;
/// Memfd of RAM region 0; region n has PHV_FD_RAM + n. If there are devices, the memfd of their register pages follows.
pub const PHV_FD_RAM: u64 = 0x5;

// Limits
/// VCPUs of a virtual machine.
pub const PHV_MAX_VCPUS: u64 = 0x40;
/// Address-space processes of a virtual machine.
pub const PHV_MAX_PROCS: u64 = 0x400;
/// Mappings that each process may have, however many the others have.
pub const PHV_MAPS_SURE: u64 = 0x1000;
/// RAM regions.
pub const PHV_MAX_REGIONS: u64 = 0x10;
/// Devices of a virtual machine; each has the interrupt line of its own number.
pub const PHV_MAX_DEVICES: u64 = 0x20;
/// Queues of a device.
pub const PHV_MAX_QUEUES: u64 = 0x1e;
/// Bytes of the pool that a process takes at a time.
pub const PHV_POOL_CHUNK: u64 = 0x40000;
/// Largest number of such pieces.
pub const PHV_POOL_CHUNKS: u64 = 0x4000;
/// Bytes of the console ring, a power of two.
pub const PHV_CONSOLE_SIZE: u64 = 0x10000;
/// Instructions of the seccomp filter.
pub const PHV_FILTER_MAX: u64 = 0x200;
/// Events kept for each vCPU, a power of two.
pub const PHV_EVENTS: u64 = 0x20;

// Shared area: offsets of its parts
/// Value of phv_shared.magic.
pub const PHV_MAGIC: u64 = 0x31485056;
/// Console ring.
pub const PHV_SHARED_CONSOLE: u64 = 0x10000;
/// Seccomp filter: array of struct sock_filter; read by the zygote before guest code exists.
pub const PHV_SHARED_FILTER: u64 = 0x20000;
/// VCPUs, PHV_VCPU_STRIDE each.
pub const PHV_SHARED_VCPUS: u64 = 0x30000;
/// Bytes for a vCPU: struct phv_vcpu, then the layer's own state.
pub const PHV_VCPU_STRIDE: u64 = 0x8000;
/// Processes, PHV_PROC_STRIDE each.
pub const PHV_SHARED_PROCS: u64 = 0x230000;
/// Bytes for a process: struct phv_proc, then the layer's own state.
pub const PHV_PROC_STRIDE: u64 = 0x400;
/// The layer's entry points. They are mapped over its section .thunks in every process, since core.init edits them.
pub const PHV_SHARED_THUNKS: u64 = 0x330000;
/// Largest size of them, bytes.
pub const PHV_THUNKS_MAX: u64 = 0x10000;
/// Devices: PHV_MAX_DEVICES of struct phv_device.
pub const PHV_SHARED_DEVICES: u64 = 0x340000;
/// Register writes: PHV_MAX_VCPUS of struct phv_request.
pub const PHV_SHARED_REQUESTS: u64 = 0x341000;
/// Last events: PHV_EVENTS of struct phv_event for each vCPU.
pub const PHV_SHARED_EVENTS: u64 = 0x342000;
/// Registers of stopped vCPUs: PHV_MAX_VCPUS of struct phv_debug.
pub const PHV_SHARED_DEBUG: u64 = 0x352000;
/// Bytes of the shared area. The pool follows in its file.
pub const PHV_SHARED_SIZE: u64 = 0x400000;

// States of a virtual machine: phv_shared.vm_state
/// Runs, or has not started yet.
pub const PHV_VM_RUNNING: u64 = 0x0;
/// The guest has shut down; vm_status is the exit code.
pub const PHV_VM_SHUTDOWN: u64 = 0x1;
/// The guest has asked for a restart; vm_status is VMI_REBOOT_*.
pub const PHV_VM_REBOOT: u64 = 0x2;
/// The layer cannot go on; message says why.
pub const PHV_VM_FATAL: u64 = 0x3;

// States of a vCPU: phv_vcpu.state
/// Waits for STARTUP.
pub const PHV_VCPU_OFF: u64 = 0x0;
/// Runs, or wants to.
pub const PHV_VCPU_RUNNING: u64 = 0x1;
/// Waits on wait_word.
pub const PHV_VCPU_HALTED: u64 = 0x2;

// Values of phv_shared.clock_wanted
/// No vCPU waits.
pub const PHV_CLOCK_RIGHT: u64 = 0x0;
/// The clock may only be put forward.
pub const PHV_CLOCK_WRONG: u64 = 0x1;
/// No vCPU has read the clock for 20 ms, nor does before the answer: it may also be put back by less than that.
pub const PHV_CLOCK_WRONG_UNREAD: u64 = 0x2;
/// By the monitor, which corrects the clock: the vCPU can no longer take it back.
pub const PHV_CLOCK_CLAIMED: u64 = 0x3;

// States of an address-space process: phv_proc.state
/// Does not exist.
pub const PHV_PROC_NONE: u64 = 0x0;
/// Parked, without a space.
pub const PHV_PROC_FREE: u64 = 0x1;
/// Has a space.
pub const PHV_PROC_SPACE: u64 = 0x2;

// Bits of phv_shared.flags
/// Processes stay dumpable.
pub const PHV_FLAG_DEBUGGABLE: u64 = 0x1;
/// Processes may not send signals: a sender of a kick asks the monitor (kick_wanted).
pub const PHV_FLAG_ASK: u64 = 0x2;
/// Core.costs returns zeros.
pub const PHV_FLAG_NO_COSTS: u64 = 0x4;
/// No halt polling.
pub const PHV_FLAG_NO_POLLS: u64 = 0x8;
/// A fault maps a single page.
pub const PHV_FLAG_NO_AROUND: u64 = 0x10;
/// Mmu.fill of many entries leaves short runs of clean pages to faults.
pub const PHV_FLAG_NO_SHORT_RUNS: u64 = 0x20;
/// The text of a new space does not decide which process it gets.
pub const PHV_FLAG_NO_TEXT_MATCH: u64 = 0x40;
/// The layer wants another process only when none is free.
pub const PHV_FLAG_NO_SPARES: u64 = 0x80;
/// A process that gets a new space drops what it has mapped, unless the kernel expects that the new space has it too.
pub const PHV_FLAG_NO_KEEPING: u64 = 0x100;
/// A process unmaps what its new space has other pages for, and maps none of these.
pub const PHV_FLAG_NO_REPLACING: u64 = 0x200;
/// A large space that is released stays mapped until its process gets another one.
pub const PHV_FLAG_NO_EARLY_DROP: u64 = 0x400;
/// Idle processes keep their memory.
pub const PHV_FLAG_NO_TRIM: u64 = 0x800;
/// A waiter for a lock sleeps at once.
pub const PHV_FLAG_NO_SPINS: u64 = 0x1000;
/// Accessed bits that the guest clears are not set again until a flush.
pub const PHV_FLAG_NO_AGING: u64 = 0x2000;

// Bits of phv_vcpu.pending
/// Irr may have a vector.
pub const PHV_PENDING_IRQ: u64 = 0x1;
/// Deadline_ns has passed: the layer checks its alarms.
pub const PHV_PENDING_ALARM: u64 = 0x2;
/// A non-maskable interrupt.
pub const PHV_PENDING_NMI: u64 = 0x4;
/// INIT: the vCPU stops.
pub const PHV_PENDING_STOP: u64 = 0x8;
/// Another vCPU waits for a flush of the space that this one has loaded.
pub const PHV_PENDING_FLUSH: u64 = 0x10;
/// The vCPU stops for a debugger, see struct phv_debug.
pub const PHV_PENDING_DEBUG: u64 = 0x20;

// Kinds of events (phv_event.kind), with the meaning of their two words
/// No event yet.
pub const PHV_EVENT_NONE: u64 = 0x0;
/// Hand-over to another process: CR3, process.
pub const PHV_EVENT_SWITCH: u64 = 0x1;
/// Hidden fault, page mapped: address, instruction pointer.
pub const PHV_EVENT_FILL: u64 = 0x2;
/// Flush: start, end.
pub const PHV_EVENT_FLUSH: u64 = 0x3;
/// Guest page fault: address, error code.
pub const PHV_EVENT_FAULT: u64 = 0x4;
/// Exception delivered: vector, instruction pointer.
pub const PHV_EVENT_EXCEPTION: u64 = 0x5;
/// Interrupt delivered: vector, instruction pointer.
pub const PHV_EVENT_INTERRUPT: u64 = 0x6;
/// Wait for an interrupt: deadline (ns of the clock), interrupt flag.
pub const PHV_EVENT_HALT: u64 = 0x7;
/// End of the wait: PHV_PENDING_*, 0.
pub const PHV_EVENT_WAKE: u64 = 0x8;
/// Kick of another vCPU: its number, its PHV_PENDING_*.
pub const PHV_EVENT_KICK: u64 = 0x9;
/// Trapped system call: number, instruction pointer.
pub const PHV_EVENT_SYSCALL: u64 = 0xa;
/// Stop for a debugger: PHV_STOP_*, instruction pointer.
pub const PHV_EVENT_STOP: u64 = 0xb;

// States of a vCPU to the debugger: phv_debug.state
/// Runs: the registers here are old.
pub const PHV_DEBUG_RUNS: u64 = 0x0;
/// Waits for a command.
pub const PHV_DEBUG_STOPPED: u64 = 0x1;
/// Has made a call that ends the machine. The registers are its caller's, as far as a function preserves them.
pub const PHV_DEBUG_CALL: u64 = 0x2;

// Why a vCPU has stopped: phv_debug.reason
/// The debugger asked for it (PHV_PENDING_DEBUG).
pub const PHV_STOP_ASKED: u64 = 0x0;
/// Int3; rip is after it.
pub const PHV_STOP_BREAKPOINT: u64 = 0x1;
/// One instruction was executed.
pub const PHV_STOP_STEP: u64 = 0x2;

// Commands to a stopped vCPU: phv_debug.command
/// No command: keep waiting.
pub const PHV_COMMAND_NONE: u64 = 0x0;
/// Continue with the registers as they are here.
pub const PHV_COMMAND_CONTINUE: u64 = 0x1;
/// Execute one instruction; no interrupt is delivered.
pub const PHV_COMMAND_STEP: u64 = 0x2;
/// The breakpoint is the guest's: deliver its exception.
pub const PHV_COMMAND_PASS: u64 = 0x3;

// Bits of phv_device.notify above those of the queues
/// A vCPU waits for a register write.
pub const PHV_NOTIFY_REGISTER: u64 = 0x40000000;
/// Something happened on the monitor's side; only the monitor sets it.
pub const PHV_NOTIFY_HOST: u64 = 0x80000000;

// Places of phv_device.route that are no APIC id
/// The vCPU in phv_device.notifier; the signal's line is in phv_shared.lines.
pub const PHV_ROUTE_NOTIFIER: u64 = 0xfffffe;

// What a vCPU asks a device's thread for: phv_request.kind
/// A register write.
pub const PHV_ASK_STORE: u64 = 0x0;
/// Bus.command.
pub const PHV_ASK_COMMAND: u64 = 0x1;

// States of a request: phv_request.state
/// No request.
pub const PHV_REQUEST_NONE: u64 = 0x0;
/// The vCPU waits.
pub const PHV_REQUEST_ASKED: u64 = 0x1;
/// The monitor has done it.
pub const PHV_REQUEST_DONE: u64 = 0x2;

// Control messages (phv_message.op)
/// Monitor to zygote: make process index.
pub const PHV_OP_FORK: u64 = 0x1;
/// Zygote to monitor: process index is made and parked; pid is its id. Index 0xffffffff comes first and means that the zygote itself is ready.
pub const PHV_OP_READY: u64 = 0x2;
/// Zygote to monitor: process index has ended; value is the wait status.
pub const PHV_OP_DIED: u64 = 0x3;
/// Process index to monitor, before it enters its sandbox: pid is its id as the zygote sees it. The socket passes the host's id to the monitor.
pub const PHV_OP_MADE: u64 = 0x5;
/// Zygote to monitor: a step of the set-up failed; index is PHV_STEP_*, value the errno.
pub const PHV_OP_FAILED: u64 = 0x4;

// Steps that may fail in the zygote or in a new process
/// Map the shared area.
pub const PHV_STEP_SHARED: u64 = 0x1;
/// Map the direct map.
pub const PHV_STEP_RAM: u64 = 0x2;
/// Map the kernel file's segments.
pub const PHV_STEP_IMAGE: u64 = 0x3;
/// Map the arena and the stacks.
pub const PHV_STEP_ARENA: u64 = 0x4;
/// Fork.
pub const PHV_STEP_FORK: u64 = 0x5;
/// Make a vCPU's thread.
pub const PHV_STEP_THREAD: u64 = 0x6;
/// Signal stacks and handlers.
pub const PHV_STEP_SIGNALS: u64 = 0x7;
/// No_new_privs, dumpable, parent-death signal, descriptors.
pub const PHV_STEP_SANDBOX: u64 = 0x8;
/// Seccomp filter.
pub const PHV_STEP_FILTER: u64 = 0x9;
/// Room for what cpuid returns.
pub const PHV_STEP_CPUID: u64 = 0xa;

/// Part of the kernel file: a linear range in the hole that maps guest-physical memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvSegment {
    /// Linear address, page-aligned.
    pub addr: u64,
    /// Guest-physical address, page-aligned.
    pub gpa: u64,
    /// Bytes, page-aligned.
    pub size: u64,
}

const _: () = assert!(size_of::<PhvSegment>() == 24);
const _: () = assert!(offset_of!(PhvSegment, addr) == 0);
const _: () = assert!(offset_of!(PhvSegment, gpa) == 8);
const _: () = assert!(offset_of!(PhvSegment, size) == 16);

/// An event of the layer, written by the vCPU's owner.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvEvent {
    /// Time-stamp counter.
    pub tsc: u64,
    /// PHV_EVENT_*.
    pub kind: u64,
    /// First word.
    pub a: u64,
    /// Second word.
    pub b: u64,
}

const _: () = assert!(size_of::<PhvEvent>() == 32);
const _: () = assert!(offset_of!(PhvEvent, tsc) == 0);
const _: () = assert!(offset_of!(PhvEvent, kind) == 8);
const _: () = assert!(offset_of!(PhvEvent, a) == 16);
const _: () = assert!(offset_of!(PhvEvent, b) == 24);

/// Control message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvMessage {
    /// PHV_OP_*.
    pub op: u32,
    /// Process or step.
    pub index: u32,
    /// Process id.
    pub pid: u32,
    /// Wait status or errno.
    pub value: u32,
}

const _: () = assert!(size_of::<PhvMessage>() == 16);
const _: () = assert!(offset_of!(PhvMessage, op) == 0);
const _: () = assert!(offset_of!(PhvMessage, index) == 4);
const _: () = assert!(offset_of!(PhvMessage, pid) == 8);
const _: () = assert!(offset_of!(PhvMessage, value) == 12);
