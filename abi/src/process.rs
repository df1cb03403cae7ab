// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/process.toml: change that, not this.
use core::mem::{offset_of, size_of};

// Linear addresses in an address-space process
/// First address of the hole in the guest's user range: what the kernel maps near its image.
pub const PH_HOLE_START: u64 = 0x70000000;
/// Then the image and the layer: not the guest's to map.
pub const PH_IMAGE_START: u64 = 0x7a000000;
/// The layer's program, linked for this address.
pub const PH_LAYER_BASE: u64 = 0x7f000000;
/// Last address of the hole + 1.
pub const PH_HOLE_END: u64 = 0x7fe00000;
/// First address of the guest's user range.
pub const PH_USER_START: u64 = 0x10000;
/// Last + 1: 64 TiB.
pub const PH_USER_END: u64 = 0x400000000000;
/// Guest-physical 0.
pub const PH_DIRECT_MAP: u64 = 0x400000000000;
/// Last address + 1 that the guest's kernel may map.
pub const PH_KERNEL_END: u64 = 0x7e0000000000;
/// The shared area; what follows lies near, since each place of its own takes page tables of the host's in each process.
pub const PH_SHARED: u64 = 0x7e8000000000;
/// The layer's own view of the register pages of all devices, writable.
pub const PH_DEVICES: u64 = 0x7e8000500000;
/// A process's own records of its mappings: what each has for certain.
pub const PH_ARENA: u64 = 0x7e8000400000;
/// Bytes of it.
pub const PH_ARENA_SIZE: u64 = 0x100000;
/// Room for more records, which all processes of the machine share: a part of the shared area's file, so that hostile code cannot make it larger.
pub const PH_POOL: u64 = 0x7e9100000000;
/// A process's own stacks, VMI_PH_STACK_SIZE for each vCPU.
pub const PH_STACKS: u64 = 0x7e8000580000;
/// Bytes for a vCPU's thread, aligned to itself: thread record, host stack, signal stack.
pub const PH_STACK_SIZE: u64 = 0x20000;

// Descriptors of the layer's program when it starts
/// Socket (SOCK_SEQPACKET) to the monitor; only the zygote keeps it.
pub const PH_FD_CONTROL: u64 = 0x3;
/// Memfd of the shared area; closed before guest code runs.
pub const PH_FD_SHARED: u64 = 0x4;
/// Memfd of RAM slot 0; slot n has VMI_PH_FD_RAM + n. Behind them, if there are devices: the memfd of their register pages.
pub const PH_FD_RAM: u64 = 0x5;

// Limits
/// VCPUs of a virtual machine.
pub const PH_MAX_VCPUS: u64 = 0x40;
/// Address-space processes of a virtual machine.
pub const PH_MAX_PROCS: u64 = 0x400;
/// Mappings that each process may have, whatever the others have.
pub const PH_MAPS_SURE: u64 = 0x1000;
/// RAM slots.
pub const PH_MAX_SLOTS: u64 = 0x10;
/// Devices of a virtual machine; each has the interrupt line of its own number.
pub const PH_MAX_DEVICES: u64 = 0x20;
/// Queues of a device.
pub const PH_MAX_QUEUES: u64 = 0x1e;
/// Bytes of the pool that a process takes at once.
pub const PH_POOL_CHUNK: u64 = 0x40000;
/// Such pieces at most.
pub const PH_POOL_CHUNKS: u64 = 0x4000;
/// Bytes of the console ring, a power of two.
pub const PH_CONSOLE_SIZE: u64 = 0x10000;
/// Instructions of the seccomp filter.
pub const PH_FILTER_MAX: u64 = 0x200;
/// Events that are kept of each vCPU, a power of two.
pub const PH_EVENTS: u64 = 0x20;

// Shared area: offsets of its parts
/// Ph_shared.magic.
pub const PH_MAGIC: u64 = 0x31485056;
/// Console ring.
pub const PH_SHARED_CONSOLE: u64 = 0x10000;
/// Seccomp filter: array of struct sock_filter; read by the zygote before guest code exists.
pub const PH_SHARED_FILTER: u64 = 0x20000;
/// VCPUs, VMI_PH_VCPU_STRIDE each.
pub const PH_SHARED_VCPUS: u64 = 0x30000;
/// Bytes of a vCPU: struct vmi_ph_vcpu, the layer's own state behind it.
pub const PH_VCPU_STRIDE: u64 = 0x8000;
/// Processes, VMI_PH_PROC_STRIDE each.
pub const PH_SHARED_PROCS: u64 = 0x230000;
/// Bytes of a process: struct vmi_ph_proc, the layer's own state behind it.
pub const PH_PROC_STRIDE: u64 = 0x400;
/// The layer's entry points: mapped over its own section .thunks in every process, since core.init edits them.
pub const PH_SHARED_THUNKS: u64 = 0x330000;
/// Bytes of it at most.
pub const PH_THUNKS_MAX: u64 = 0x10000;
/// Devices: VMI_PH_MAX_DEVICES of struct vmi_ph_device.
pub const PH_SHARED_DEVICES: u64 = 0x340000;
/// Register writes: VMI_PH_MAX_VCPUS of struct vmi_ph_request.
pub const PH_SHARED_REQUESTS: u64 = 0x341000;
/// Last events: VMI_PH_EVENTS of struct vmi_ph_event for each vCPU.
pub const PH_SHARED_EVENTS: u64 = 0x342000;
/// Registers of stopped vCPUs: VMI_PH_MAX_VCPUS of struct vmi_ph_debug.
pub const PH_SHARED_DEBUG: u64 = 0x352000;
/// Bytes of the shared area; in its file the pool follows.
pub const PH_SHARED_SIZE: u64 = 0x400000;

// States of a virtual machine, a vCPU, a process
/// Vmi_ph_shared.vm_state.
pub const PH_VM_RUNNING: u64 = 0x0;
/// The guest asked for its end; vm_status has the exit code.
pub const PH_VM_SHUTDOWN: u64 = 0x1;
/// The guest asked for a restart; vm_status has VMI_REBOOT_*.
pub const PH_VM_REBOOT: u64 = 0x2;
/// The layer could not go on; message says why.
pub const PH_VM_FATAL: u64 = 0x3;
/// Vmi_ph_vcpu.state: waits for STARTUP.
pub const PH_VCPU_OFF: u64 = 0x0;
/// Runs, or wants to.
pub const PH_VCPU_RUNNING: u64 = 0x1;
/// Waits on wait_word.
pub const PH_VCPU_HALTED: u64 = 0x2;
/// Vmi_ph_proc.state: not there.
pub const PH_PROC_NONE: u64 = 0x0;
/// Parked, belongs to no space.
pub const PH_PROC_FREE: u64 = 0x1;
/// Belongs to a space.
pub const PH_PROC_SPACE: u64 = 0x2;

// Bits of vmi_ph_shared.flags
/// Processes stay dumpable.
pub const PH_FLAG_DEBUGGABLE: u64 = 0x1;
/// Processes may send no signals: who wants a running vCPU to look asks the monitor (kick_wanted).
pub const PH_FLAG_ASK: u64 = 0x2;

// Bits of vmi_ph_vcpu.pending
/// There may be something in irr.
pub const PH_PENDING_IRQ: u64 = 0x1;
/// Deadline_ns has passed: the layer looks at its alarms.
pub const PH_PENDING_ALARM: u64 = 0x2;
/// A non-maskable interrupt.
pub const PH_PENDING_NMI: u64 = 0x4;
/// INIT: the vCPU goes off.
pub const PH_PENDING_STOP: u64 = 0x8;
/// Another vCPU waits for a flush of the space that this one has loaded.
pub const PH_PENDING_FLUSH: u64 = 0x10;
/// The vCPU stops for a debugger, see struct vmi_ph_debug.
pub const PH_PENDING_DEBUG: u64 = 0x20;

// Kinds of events (vmi_ph_event.kind), and what their words are
/// There was none yet.
pub const PH_EVENT_NONE: u64 = 0x0;
/// Hand-over to another process: CR3, process.
pub const PH_EVENT_SWITCH: u64 = 0x1;
/// Page mapped at a fault that the guest does not see: address, instruction pointer.
pub const PH_EVENT_FILL: u64 = 0x2;
/// First address, first one behind.
pub const PH_EVENT_FLUSH: u64 = 0x3;
/// Page fault that the guest gets: address, error code.
pub const PH_EVENT_FAULT: u64 = 0x4;
/// Exception that the guest gets: vector, instruction pointer.
pub const PH_EVENT_EXCEPTION: u64 = 0x5;
/// Delivered: vector, instruction pointer.
pub const PH_EVENT_INTERRUPT: u64 = 0x6;
/// Wait for an interrupt: deadline (CLOCK_MONOTONIC, ns), interrupt flag.
pub const PH_EVENT_HALT: u64 = 0x7;
/// End of the wait: VMI_PH_PENDING_*, nothing.
pub const PH_EVENT_WAKE: u64 = 0x8;
/// Made another vCPU look: its number, VMI_PH_PENDING_*.
pub const PH_EVENT_KICK: u64 = 0x9;
/// System call that came as a signal: number, instruction pointer.
pub const PH_EVENT_SYSCALL: u64 = 0xa;
/// Stop for a debugger: VMI_PH_STOP_*, instruction pointer.
pub const PH_EVENT_STOP: u64 = 0xb;

// Debugger: states, reasons and commands of struct vmi_ph_debug
/// Vmi_ph_debug.state: the registers are old.
pub const PH_DEBUG_RUNS: u64 = 0x0;
/// Waits for a command.
pub const PH_DEBUG_STOPPED: u64 = 0x1;
/// Has made a call that ends the machine; registers of its caller, as far as a function keeps them.
pub const PH_DEBUG_CALL: u64 = 0x2;
/// Vmi_ph_debug.reason: VMI_PH_PENDING_DEBUG.
pub const PH_STOP_ASKED: u64 = 0x0;
/// Int3; rip is behind it.
pub const PH_STOP_BREAKPOINT: u64 = 0x1;
/// One instruction is done.
pub const PH_STOP_STEP: u64 = 0x2;
/// Vmi_ph_debug.command.
pub const PH_COMMAND_NONE: u64 = 0x0;
/// Go on with the registers as they stand here.
pub const PH_COMMAND_CONTINUE: u64 = 0x1;
/// The same for one instruction; no interrupt is delivered.
pub const PH_COMMAND_STEP: u64 = 0x2;
/// The breakpoint is the guest's: it gets its exception.
pub const PH_COMMAND_PASS: u64 = 0x3;

// Bits of vmi_ph_device.notify behind those of the queues, and states of a struct vmi_ph_request
/// A vCPU waits for a register write.
pub const PH_NOTIFY_REGISTER: u64 = 0x40000000;
/// Something happened on the monitor's side; set by the monitor.
pub const PH_NOTIFY_HOST: u64 = 0x80000000;
/// Vmi_ph_request.state.
pub const PH_REQUEST_NONE: u64 = 0x0;
/// The layer waits.
pub const PH_REQUEST_ASKED: u64 = 0x1;
/// The monitor has done it.
pub const PH_REQUEST_DONE: u64 = 0x2;

// Control messages (vmi_ph_message.op)
/// Monitor to zygote: make process index.
pub const PH_OP_FORK: u64 = 0x1;
/// Zygote to monitor: process index is made and parked, pid in pid; the first one, index 0xffffffff, means that the zygote itself is ready.
pub const PH_OP_READY: u64 = 0x2;
/// Zygote to monitor: process index has ended with the wait status in value.
pub const PH_OP_DIED: u64 = 0x3;
/// Process index to monitor, before it is in its sandbox: pid is its id as the zygote sees it. The socket tells the monitor what the host calls it.
pub const PH_OP_MADE: u64 = 0x5;
/// Zygote to monitor: a step of its set-up failed; index is the step (VMI_PH_STEP_*), value the errno.
pub const PH_OP_FAILED: u64 = 0x4;

// Steps that may fail in the zygote or in a new process
/// Map the shared area.
pub const PH_STEP_SHARED: u64 = 0x1;
/// Map the direct map.
pub const PH_STEP_RAM: u64 = 0x2;
/// Map the kernel image.
pub const PH_STEP_IMAGE: u64 = 0x3;
/// Map the arena and the stacks.
pub const PH_STEP_ARENA: u64 = 0x4;
/// Fork.
pub const PH_STEP_FORK: u64 = 0x5;
/// Make a vCPU's thread.
pub const PH_STEP_THREAD: u64 = 0x6;
/// Signal stacks and handlers.
pub const PH_STEP_SIGNALS: u64 = 0x7;
/// No_new_privs, dumpable, parent-death signal, descriptors.
pub const PH_STEP_SANDBOX: u64 = 0x8;
/// Seccomp filter.
pub const PH_STEP_FILTER: u64 = 0x9;
/// Room for what cpuid gives.
pub const PH_STEP_CPUID: u64 = 0xa;

/// RAM slot: guest-physical range and where it comes from; ascending, without gaps between slots.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhSlot {
    /// First address, a multiple of 2 MiB.
    pub gpa: u64,
    /// Bytes, a multiple of 2 MiB; offset 0 of the slot's memfd.
    pub size: u64,
}

const _: () = assert!(size_of::<PhSlot>() == 16);
const _: () = assert!(offset_of!(PhSlot, gpa) == 0);
const _: () = assert!(offset_of!(PhSlot, size) == 8);

/// Part of the kernel image: a linear range in the hole that shows guest-physical memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhSegment {
    /// Linear address, page-aligned.
    pub addr: u64,
    /// Guest-physical address, page-aligned.
    pub gpa: u64,
    /// Bytes, page-aligned.
    pub size: u64,
}

const _: () = assert!(size_of::<PhSegment>() == 24);
const _: () = assert!(offset_of!(PhSegment, addr) == 0);
const _: () = assert!(offset_of!(PhSegment, gpa) == 8);
const _: () = assert!(offset_of!(PhSegment, size) == 16);

/// A device: what passes between the layer, the device's thread in the monitor, and whoever interrupts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhDevice {
    /// Bit n: queue n was notified; VMI_PH_NOTIFY_*. Set with an atomic or, taken by the device's thread; futex that it sleeps on while it is 0.
    pub notify: u32,
    /// 1: the device's thread sleeps, or is about to: who sets a bit wakes it. Written by it before it looks at notify the last time.
    pub sleeping: u32,
    /// (layer) of its line: APIC id << 8 | vector; vector 0: masked.
    pub route: u32,
    /// 1: the line was signalled while masked.
    pub raised: u32,
    /// Zero.
    pub reserved: [u32; 12],
}

const _: () = assert!(size_of::<PhDevice>() == 64);
const _: () = assert!(offset_of!(PhDevice, notify) == 0);
const _: () = assert!(offset_of!(PhDevice, sleeping) == 4);
const _: () = assert!(offset_of!(PhDevice, route) == 8);
const _: () = assert!(offset_of!(PhDevice, raised) == 12);
const _: () = assert!(offset_of!(PhDevice, reserved) == 16);

/// A write to a device register that changes others: a vCPU waits until the device's thread has done it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhRequest {
    /// VMI_PH_REQUEST_*; futex that the vCPU waits on.
    pub state: u32,
    /// Number.
    pub device: u32,
    /// In its register page.
    pub offset: u32,
    /// Bytes: 1, 2, 4 or 8.
    pub width: u32,
    /// What is written.
    pub value: u64,
    /// Zero.
    pub reserved: [u32; 10],
}

const _: () = assert!(size_of::<PhRequest>() == 64);
const _: () = assert!(offset_of!(PhRequest, state) == 0);
const _: () = assert!(offset_of!(PhRequest, device) == 4);
const _: () = assert!(offset_of!(PhRequest, offset) == 8);
const _: () = assert!(offset_of!(PhRequest, width) == 12);
const _: () = assert!(offset_of!(PhRequest, value) == 16);
const _: () = assert!(offset_of!(PhRequest, reserved) == 24);

/// Something that the layer did; written by the thread that is the vCPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhEvent {
    /// Time-stamp counter.
    pub tsc: u64,
    /// VMI_PH_EVENT_*.
    pub kind: u64,
    /// First word.
    pub a: u64,
    /// Second word.
    pub b: u64,
}

const _: () = assert!(size_of::<PhEvent>() == 32);
const _: () = assert!(offset_of!(PhEvent, tsc) == 0);
const _: () = assert!(offset_of!(PhEvent, kind) == 8);
const _: () = assert!(offset_of!(PhEvent, a) == 16);
const _: () = assert!(offset_of!(PhEvent, b) == 24);

/// A vCPU that is stopped, as the debugger in the monitor sees and changes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhDebug {
    /// (layer) VMI_PH_DEBUG_*.
    pub state: u32,
    /// (layer) VMI_PH_STOP_*.
    pub reason: u32,
    /// VMI_PH_COMMAND_*, taken by the layer; then wait_word of the vCPU is counted up.
    pub command: u32,
    /// Zero.
    pub pad: u32,
    /// Rax rcx rdx rbx rsp rbp rsi rdi r8 to r15.
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub rip: u64,
    /// Flags, IF is the virtual interrupt flag.
    pub rflags: u64,
    /// (layer) the guest's selector.
    pub cs: u32,
    /// (layer) the guest's selector.
    pub ss: u32,
    /// (layer).
    pub fs_base: u64,
    /// (layer).
    pub gs_base: u64,
    /// (layer).
    pub cr2: u64,
    /// (layer) root of the tables that user addresses are looked up in.
    pub cr3: u64,
    /// (layer) the same for kernel addresses, 0: cr3.
    pub kernel_root: u64,
    /// Zero.
    pub reserved: [u64; 38],
    /// (layer) x87 and SSE registers, as fxsave has them.
    pub fxsave: [u8; 512],
}

const _: () = assert!(size_of::<PhDebug>() == 1024);
const _: () = assert!(offset_of!(PhDebug, state) == 0);
const _: () = assert!(offset_of!(PhDebug, reason) == 4);
const _: () = assert!(offset_of!(PhDebug, command) == 8);
const _: () = assert!(offset_of!(PhDebug, pad) == 12);
const _: () = assert!(offset_of!(PhDebug, gpr) == 16);
const _: () = assert!(offset_of!(PhDebug, rip) == 144);
const _: () = assert!(offset_of!(PhDebug, rflags) == 152);
const _: () = assert!(offset_of!(PhDebug, cs) == 160);
const _: () = assert!(offset_of!(PhDebug, ss) == 164);
const _: () = assert!(offset_of!(PhDebug, fs_base) == 168);
const _: () = assert!(offset_of!(PhDebug, gs_base) == 176);
const _: () = assert!(offset_of!(PhDebug, cr2) == 184);
const _: () = assert!(offset_of!(PhDebug, cr3) == 192);
const _: () = assert!(offset_of!(PhDebug, kernel_root) == 200);
const _: () = assert!(offset_of!(PhDebug, reserved) == 208);
const _: () = assert!(offset_of!(PhDebug, fxsave) == 512);

/// Control message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhMessage {
    /// VMI_PH_OP_*.
    pub op: u32,
    /// Process or step.
    pub index: u32,
    /// Process id.
    pub pid: u32,
    /// Wait status or errno.
    pub value: u32,
}

const _: () = assert!(size_of::<PhMessage>() == 16);
const _: () = assert!(offset_of!(PhMessage, op) == 0);
const _: () = assert!(offset_of!(PhMessage, index) == 4);
const _: () = assert!(offset_of!(PhMessage, pid) == 8);
const _: () = assert!(offset_of!(PhMessage, value) == 12);

/// Turns the time-stamp counter into the host's CLOCK_MONOTONIC; written by the monitor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhClock {
    /// Odd while being written.
    pub sequence: u32,
    /// 0 to 63.
    pub shift: u32,
    /// Counter value.
    pub tsc: u64,
    /// CLOCK_MONOTONIC at it.
    pub ns: u64,
    /// Ns + ((counter - tsc) * mult >> shift), 128-bit product.
    pub mult: u64,
    /// Frequency.
    pub tsc_hz: u64,
}

const _: () = assert!(size_of::<PhClock>() == 40);
const _: () = assert!(offset_of!(PhClock, sequence) == 0);
const _: () = assert!(offset_of!(PhClock, shift) == 4);
const _: () = assert!(offset_of!(PhClock, tsc) == 8);
const _: () = assert!(offset_of!(PhClock, ns) == 16);
const _: () = assert!(offset_of!(PhClock, mult) == 24);
const _: () = assert!(offset_of!(PhClock, tsc_hz) == 32);

/// First page of the shared area. The monitor fills it before the layer starts; later it writes the clock and reads what is marked (layer).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhShared {
    /// VMI_PH_MAGIC.
    pub magic: u32,
    /// VCPUs.
    pub vcpu_count: u32,
    /// RAM slots.
    pub slot_count: u32,
    /// Parts of the kernel image, at most 8.
    pub segment_count: u32,
    /// Instructions of the seccomp filter, at least 1; copied by the zygote before guest code exists, like everything that a process is made by.
    pub filter_length: u32,
    /// Processes that may exist; at least vcpu_count + 1.
    pub proc_limit: u32,
    /// VMI_PH_FLAG_*.
    pub flags: u32,
    /// Mappings that one process may have, from vm.max_map_count.
    pub max_maps: u32,
    /// (layer) futex that the monitor waits on: one more for each thing to look at.
    pub doorbell: u32,
    /// (layer) VMI_PH_VM_*.
    pub vm_state: u32,
    /// (layer) see vm_state.
    pub vm_status: u32,
    /// Processes 0 to proc_count - 1 have been made; only the monitor writes it.
    pub proc_count: u32,
    /// (layer) processes that the layer would like to have; the monitor decides.
    pub proc_wanted: u32,
    /// (layer) bytes ever written to the console ring, modulo 2^32.
    pub console_head: u32,
    /// Bytes ever taken from it by the monitor; futex that a full writer waits on.
    pub console_tail: u32,
    /// (layer) futex that the monitor's alarm thread waits on: one more when an earlier deadline appears.
    pub alarm_word: u32,
    /// CLOCK_MONOTONIC moment that the alarm thread sleeps to; written by it; all ones: none.
    pub alarm_next_ns: u64,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC; written by the monitor.
    pub wall_offset_ns: u64,
    /// One more for each jump of it.
    pub wall_updates: u32,
    /// 1: the host can make cpuid fault (arch_prctl).
    pub cpuid_faulting: u32,
    /// Linear address of struct vmi_boot_info.
    pub boot_info: u64,
    /// Linear address of the kernel's VMI entry, relocated.
    pub kernel_entry: u64,
    /// Linear address of the top of the boot stack.
    pub boot_stack: u64,
    /// Time.
    pub clock: PhClock,
    /// RAM.
    pub slots: [PhSlot; 16],
    /// Kernel image.
    pub segments: [PhSegment; 8],
    /// Host CPU on which the threads of a vCPU are to run; all ones: any.
    pub vcpu_cpu: [u32; 64],
    /// (layer) text for vm_state VMI_PH_VM_FATAL, ends with a zero byte.
    pub message: [u8; 256],
    /// Guest-physical address of device 0's register page; the others follow. Behind all RAM.
    pub device_gpa: u64,
    /// Devices.
    pub device_count: u32,
    /// Zero.
    pub device_pad: u32,
    /// Pieces that the pool has.
    pub pool_chunks: u32,
    /// Mappings that all processes together should not exceed; each may have VMI_PH_MAPS_SURE anyway.
    pub maps_all: u32,
    /// 1: a debugger is attached; breakpoints stop the vCPU.
    pub debug_on: u32,
    /// Zero.
    pub debug_pad: u32,
    /// (layer) bit n: vCPU n is to be made to look, see VMI_PH_FLAG_ASK. Set with an atomic or, taken by the monitor.
    pub kick_wanted: u64,
    /// 1: the monitor's thread for that sleeps, or is about to: who sets a bit makes this 0 and wakes it. Futex.
    pub kick_sleeping: u32,
    /// One more when the monitor has sent what it took; futex that who wants a kick waits on.
    pub kick_rounds: u32,
    /// Zero.
    pub reserved: [u8; 888],
}

const _: () = assert!(size_of::<PhShared>() == 2048);
const _: () = assert!(offset_of!(PhShared, magic) == 0);
const _: () = assert!(offset_of!(PhShared, vcpu_count) == 4);
const _: () = assert!(offset_of!(PhShared, slot_count) == 8);
const _: () = assert!(offset_of!(PhShared, segment_count) == 12);
const _: () = assert!(offset_of!(PhShared, filter_length) == 16);
const _: () = assert!(offset_of!(PhShared, proc_limit) == 20);
const _: () = assert!(offset_of!(PhShared, flags) == 24);
const _: () = assert!(offset_of!(PhShared, max_maps) == 28);
const _: () = assert!(offset_of!(PhShared, doorbell) == 32);
const _: () = assert!(offset_of!(PhShared, vm_state) == 36);
const _: () = assert!(offset_of!(PhShared, vm_status) == 40);
const _: () = assert!(offset_of!(PhShared, proc_count) == 44);
const _: () = assert!(offset_of!(PhShared, proc_wanted) == 48);
const _: () = assert!(offset_of!(PhShared, console_head) == 52);
const _: () = assert!(offset_of!(PhShared, console_tail) == 56);
const _: () = assert!(offset_of!(PhShared, alarm_word) == 60);
const _: () = assert!(offset_of!(PhShared, alarm_next_ns) == 64);
const _: () = assert!(offset_of!(PhShared, wall_offset_ns) == 72);
const _: () = assert!(offset_of!(PhShared, wall_updates) == 80);
const _: () = assert!(offset_of!(PhShared, cpuid_faulting) == 84);
const _: () = assert!(offset_of!(PhShared, boot_info) == 88);
const _: () = assert!(offset_of!(PhShared, kernel_entry) == 96);
const _: () = assert!(offset_of!(PhShared, boot_stack) == 104);
const _: () = assert!(offset_of!(PhShared, clock) == 112);
const _: () = assert!(offset_of!(PhShared, slots) == 152);
const _: () = assert!(offset_of!(PhShared, segments) == 408);
const _: () = assert!(offset_of!(PhShared, vcpu_cpu) == 600);
const _: () = assert!(offset_of!(PhShared, message) == 856);
const _: () = assert!(offset_of!(PhShared, device_gpa) == 1112);
const _: () = assert!(offset_of!(PhShared, device_count) == 1120);
const _: () = assert!(offset_of!(PhShared, device_pad) == 1124);
const _: () = assert!(offset_of!(PhShared, pool_chunks) == 1128);
const _: () = assert!(offset_of!(PhShared, maps_all) == 1132);
const _: () = assert!(offset_of!(PhShared, debug_on) == 1136);
const _: () = assert!(offset_of!(PhShared, debug_pad) == 1140);
const _: () = assert!(offset_of!(PhShared, kick_wanted) == 1144);
const _: () = assert!(offset_of!(PhShared, kick_sleeping) == 1152);
const _: () = assert!(offset_of!(PhShared, kick_rounds) == 1156);
const _: () = assert!(offset_of!(PhShared, reserved) == 1160);

/// A vCPU, as far as the monitor looks at it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhVcpu {
    /// VMI_PH_PENDING_*; set with an atomic or.
    pub pending: u32,
    /// Virtual interrupt flag, 0 or 1.
    pub irq_flag: u32,
    /// VMI_PH_VCPU_*.
    pub state: u32,
    /// Futex that a halted vCPU waits on: one more wakes it.
    pub wait_word: u32,
    /// Pid << 32 | tid of the thread that is the vCPU.
    pub owner: u64,
    /// CLOCK_MONOTONIC of the next alarm, all ones: none.
    pub deadline_ns: u64,
    /// Interrupt vectors that are requested.
    pub irr: [u64; 4],
    /// Pending bit of lock.kick.
    pub kick: u32,
    /// Process whose thread is the vCPU.
    pub proc: u32,
    /// Stolen time so far.
    pub stolen_ns: u64,
    /// Count.
    pub faults_hidden: u64,
    /// Count.
    pub faults_injected: u64,
    /// Pages mapped.
    pub fills: u64,
    /// Count.
    pub flushes: u64,
    /// Hand-overs to another process.
    pub switches: u64,
    /// Loads of a space that had changed.
    pub resyncs: u64,
    /// Count.
    pub syscalls_trapped: u64,
    /// Delivered.
    pub interrupts: u64,
    /// Signals to other vCPUs.
    pub kicks_sent: u64,
    /// Waits.
    pub halts: u64,
    /// Host system calls.
    pub host_calls: u64,
    /// Events so far, modulo 2^32: the next one goes to this modulo VMI_PH_EVENTS.
    pub events: u32,
    /// Zero.
    pub events_pad: u32,
    /// Zero.
    pub reserved: [u8; 80],
}

const _: () = assert!(size_of::<PhVcpu>() == 256);
const _: () = assert!(offset_of!(PhVcpu, pending) == 0);
const _: () = assert!(offset_of!(PhVcpu, irq_flag) == 4);
const _: () = assert!(offset_of!(PhVcpu, state) == 8);
const _: () = assert!(offset_of!(PhVcpu, wait_word) == 12);
const _: () = assert!(offset_of!(PhVcpu, owner) == 16);
const _: () = assert!(offset_of!(PhVcpu, deadline_ns) == 24);
const _: () = assert!(offset_of!(PhVcpu, irr) == 32);
const _: () = assert!(offset_of!(PhVcpu, kick) == 64);
const _: () = assert!(offset_of!(PhVcpu, proc) == 68);
const _: () = assert!(offset_of!(PhVcpu, stolen_ns) == 72);
const _: () = assert!(offset_of!(PhVcpu, faults_hidden) == 80);
const _: () = assert!(offset_of!(PhVcpu, faults_injected) == 88);
const _: () = assert!(offset_of!(PhVcpu, fills) == 96);
const _: () = assert!(offset_of!(PhVcpu, flushes) == 104);
const _: () = assert!(offset_of!(PhVcpu, switches) == 112);
const _: () = assert!(offset_of!(PhVcpu, resyncs) == 120);
const _: () = assert!(offset_of!(PhVcpu, syscalls_trapped) == 128);
const _: () = assert!(offset_of!(PhVcpu, interrupts) == 136);
const _: () = assert!(offset_of!(PhVcpu, kicks_sent) == 144);
const _: () = assert!(offset_of!(PhVcpu, halts) == 152);
const _: () = assert!(offset_of!(PhVcpu, host_calls) == 160);
const _: () = assert!(offset_of!(PhVcpu, events) == 168);
const _: () = assert!(offset_of!(PhVcpu, events_pad) == 172);
const _: () = assert!(offset_of!(PhVcpu, reserved) == 176);

/// An address-space process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhProc {
    /// VMI_PH_PROC_*.
    pub state: u32,
    /// Process id.
    pub pid: u32,
    /// Space that it belongs to.
    pub cr3: u64,
    /// Its context.
    pub context: u64,
    /// Generation that its mappings are good for.
    pub generation: u64,
    /// Estimate of its host mappings.
    pub mappings: u32,
    /// Zero.
    pub reserved: [u32; 7],
    /// Futex of each vCPU's thread: 1 hands the vCPU over to it.
    pub wake: [u32; 64],
    /// Thread ids.
    pub tid: [u32; 64],
}

const _: () = assert!(size_of::<PhProc>() == 576);
const _: () = assert!(offset_of!(PhProc, state) == 0);
const _: () = assert!(offset_of!(PhProc, pid) == 4);
const _: () = assert!(offset_of!(PhProc, cr3) == 8);
const _: () = assert!(offset_of!(PhProc, context) == 16);
const _: () = assert!(offset_of!(PhProc, generation) == 24);
const _: () = assert!(offset_of!(PhProc, mappings) == 32);
const _: () = assert!(offset_of!(PhProc, reserved) == 36);
const _: () = assert!(offset_of!(PhProc, wake) == 64);
const _: () = assert!(offset_of!(PhProc, tid) == 320);
