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
/// Its end, exclusive: 64 TiB.
pub const PHV_USER_END: u64 = 0x400000000000;
/// Guest-physical 0.
pub const PHV_DIRECT_MAP: u64 = 0x400000000000;
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
/// Wait for an interrupt: deadline (CLOCK_MONOTONIC, ns), interrupt flag.
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

// States of a register write: phv_request.state
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
/// Process index to monitor, before it enters its sandbox: pid is its id as the zygote sees it. The socket tells the monitor the host's id.
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

/// RAM region: a guest-physical range and the memfd that backs it. Regions ascend without gaps.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvRegion {
    /// First address, a multiple of 2 MiB.
    pub gpa: u64,
    /// Bytes, a multiple of 2 MiB, from offset 0 of the region's memfd.
    pub size: u64,
}

const _: () = assert!(size_of::<PhvRegion>() == 16);
const _: () = assert!(offset_of!(PhvRegion, gpa) == 0);
const _: () = assert!(offset_of!(PhvRegion, size) == 8);

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

/// What the layer, the device's thread in the monitor and senders of its interrupts share about a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvDevice {
    /// Bit n: queue n was notified; PHV_NOTIFY_*. Set by an atomic or, taken by the device's thread.
    pub notify: u32,
    /// Futex; 1: the device's thread sleeps or is about to. A sender sets this to 0 and wakes it.
    pub sleeping: u32,
    /// (layer) where its line goes: APIC id << 8 | vector; vector 0: masked.
    pub route: u32,
    /// 1: the line was signalled while it was masked.
    pub raised: u32,
    /// Zero.
    pub reserved: [u32; 12],
}

const _: () = assert!(size_of::<PhvDevice>() == 64);
const _: () = assert!(offset_of!(PhvDevice, notify) == 0);
const _: () = assert!(offset_of!(PhvDevice, sleeping) == 4);
const _: () = assert!(offset_of!(PhvDevice, route) == 8);
const _: () = assert!(offset_of!(PhvDevice, raised) == 12);
const _: () = assert!(offset_of!(PhvDevice, reserved) == 16);

/// A write to a device register that changes other registers. The vCPU waits until the device's thread has carried it out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvRequest {
    /// PHV_REQUEST_*; futex of the vCPU.
    pub state: u32,
    /// The device's number.
    pub device: u32,
    /// Offset in its register page.
    pub offset: u32,
    /// Bytes: 1, 2, 4 or 8.
    pub width: u32,
    /// The value written.
    pub value: u64,
    /// Zero.
    pub reserved: [u32; 10],
}

const _: () = assert!(size_of::<PhvRequest>() == 64);
const _: () = assert!(offset_of!(PhvRequest, state) == 0);
const _: () = assert!(offset_of!(PhvRequest, device) == 4);
const _: () = assert!(offset_of!(PhvRequest, offset) == 8);
const _: () = assert!(offset_of!(PhvRequest, width) == 12);
const _: () = assert!(offset_of!(PhvRequest, value) == 16);
const _: () = assert!(offset_of!(PhvRequest, reserved) == 24);

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

/// A stopped vCPU, as the debugger in the monitor sees and changes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvDebug {
    /// (layer) PHV_DEBUG_*.
    pub state: u32,
    /// (layer) PHV_STOP_*.
    pub reason: u32,
    /// PHV_COMMAND_*, taken by the layer. The monitor then counts the vCPU's wait_word up.
    pub command: u32,
    /// Zero.
    pub pad: u32,
    /// Rax rcx rdx rbx rsp rbp rsi rdi r8 to r15.
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub rip: u64,
    /// Flags; IF is the virtual interrupt flag.
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
    /// (layer) root of the tables for user addresses.
    pub cr3: u64,
    /// (layer) root of the tables for kernel addresses; 0: cr3.
    pub kernel_root: u64,
    /// Zero.
    pub reserved: [u64; 38],
    /// (layer) x87 and SSE registers in the layout of fxsave.
    pub fxsave: [u8; 512],
}

const _: () = assert!(size_of::<PhvDebug>() == 1024);
const _: () = assert!(offset_of!(PhvDebug, state) == 0);
const _: () = assert!(offset_of!(PhvDebug, reason) == 4);
const _: () = assert!(offset_of!(PhvDebug, command) == 8);
const _: () = assert!(offset_of!(PhvDebug, pad) == 12);
const _: () = assert!(offset_of!(PhvDebug, gpr) == 16);
const _: () = assert!(offset_of!(PhvDebug, rip) == 144);
const _: () = assert!(offset_of!(PhvDebug, rflags) == 152);
const _: () = assert!(offset_of!(PhvDebug, cs) == 160);
const _: () = assert!(offset_of!(PhvDebug, ss) == 164);
const _: () = assert!(offset_of!(PhvDebug, fs_base) == 168);
const _: () = assert!(offset_of!(PhvDebug, gs_base) == 176);
const _: () = assert!(offset_of!(PhvDebug, cr2) == 184);
const _: () = assert!(offset_of!(PhvDebug, cr3) == 192);
const _: () = assert!(offset_of!(PhvDebug, kernel_root) == 200);
const _: () = assert!(offset_of!(PhvDebug, reserved) == 208);
const _: () = assert!(offset_of!(PhvDebug, fxsave) == 512);

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

/// Factors that turn the time-stamp counter into the host's CLOCK_MONOTONIC; written by the monitor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvClock {
    /// Odd while being written.
    pub sequence: u32,
    /// 0 to 63.
    pub shift: u32,
    /// Counter value.
    pub tsc: u64,
    /// CLOCK_MONOTONIC at that value.
    pub ns: u64,
    /// Ns + ((counter - tsc) * mult >> shift), with a 128-bit product.
    pub mult: u64,
    /// Frequency.
    pub tsc_hz: u64,
}

const _: () = assert!(size_of::<PhvClock>() == 40);
const _: () = assert!(offset_of!(PhvClock, sequence) == 0);
const _: () = assert!(offset_of!(PhvClock, shift) == 4);
const _: () = assert!(offset_of!(PhvClock, tsc) == 8);
const _: () = assert!(offset_of!(PhvClock, ns) == 16);
const _: () = assert!(offset_of!(PhvClock, mult) == 24);
const _: () = assert!(offset_of!(PhvClock, tsc_hz) == 32);

/// First page of the shared area. The monitor fills it before the layer starts. Later it writes the clock and reads the fields marked (layer).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvShared {
    /// PHV_MAGIC.
    pub magic: u32,
    /// VCPUs.
    pub vcpu_count: u32,
    /// RAM regions.
    pub region_count: u32,
    /// Segments of the kernel file, at most 8.
    pub segment_count: u32,
    /// Instructions of the seccomp filter, at least 1. The zygote copies it before guest code exists, like everything that decides about a process.
    pub filter_length: u32,
    /// Processes that may exist; at least vcpu_count + 1.
    pub proc_limit: u32,
    /// PHV_FLAG_*.
    pub flags: u32,
    /// Largest number of mappings of one process, from vm.max_map_count.
    pub max_maps: u32,
    /// (layer) futex of the monitor: counts the things to look at.
    pub doorbell: u32,
    /// (layer) PHV_VM_*.
    pub vm_state: u32,
    /// (layer) depends on vm_state.
    pub vm_status: u32,
    /// Processes 0 to proc_count - 1 have been made; only the monitor writes it.
    pub proc_count: u32,
    /// (layer) number of processes that the layer wants; the monitor decides.
    pub proc_wanted: u32,
    /// (layer) bytes ever written to the console ring, modulo 2^32.
    pub console_head: u32,
    /// Bytes ever taken from the ring by the monitor; futex of a writer that finds it full.
    pub console_tail: u32,
    /// (layer) futex of the monitor's alarm thread: counts deadlines that are earlier than the last one.
    pub alarm_word: u32,
    /// CLOCK_MONOTONIC until which the alarm thread sleeps, written by it; all ones: none.
    pub alarm_next_ns: u64,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC; written by the monitor.
    pub wall_offset_ns: u64,
    /// Counts its jumps.
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
    pub clock: PhvClock,
    /// RAM regions.
    pub regions: [PhvRegion; 16],
    /// Segments of the kernel file.
    pub segments: [PhvSegment; 8],
    /// Host CPU of a vCPU's threads; all ones: any.
    pub vcpu_cpu: [u32; 64],
    /// (layer) text for PHV_VM_FATAL, ends with a zero byte.
    pub message: [u8; 256],
    /// Guest-physical address of device 0's register page. The others follow. After all RAM.
    pub device_gpa: u64,
    /// Devices.
    pub device_count: u32,
    /// Zero.
    pub device_pad: u32,
    /// Pieces of the shadow pool.
    pub pool_chunks: u32,
    /// Mappings that all processes together should not exceed; each may always have PHV_MAPS_SURE.
    pub maps_all: u32,
    /// 1: a debugger is connected, and breakpoints stop the vCPU.
    pub debug_on: u32,
    /// Zero.
    pub debug_pad: u32,
    /// (layer) bit n: vCPU n needs a kick (PHV_FLAG_ASK). Set by an atomic or, taken by the monitor.
    pub kick_wanted: u64,
    /// Futex; 1: the monitor's kick thread sleeps or is about to. A sender sets this to 0 and wakes it.
    pub kick_sleeping: u32,
    /// Counts the rounds of kicks that the monitor has sent; futex of senders that wait.
    pub kick_rounds: u32,
    /// Zero.
    pub reserved: [u8; 888],
}

const _: () = assert!(size_of::<PhvShared>() == 2048);
const _: () = assert!(offset_of!(PhvShared, magic) == 0);
const _: () = assert!(offset_of!(PhvShared, vcpu_count) == 4);
const _: () = assert!(offset_of!(PhvShared, region_count) == 8);
const _: () = assert!(offset_of!(PhvShared, segment_count) == 12);
const _: () = assert!(offset_of!(PhvShared, filter_length) == 16);
const _: () = assert!(offset_of!(PhvShared, proc_limit) == 20);
const _: () = assert!(offset_of!(PhvShared, flags) == 24);
const _: () = assert!(offset_of!(PhvShared, max_maps) == 28);
const _: () = assert!(offset_of!(PhvShared, doorbell) == 32);
const _: () = assert!(offset_of!(PhvShared, vm_state) == 36);
const _: () = assert!(offset_of!(PhvShared, vm_status) == 40);
const _: () = assert!(offset_of!(PhvShared, proc_count) == 44);
const _: () = assert!(offset_of!(PhvShared, proc_wanted) == 48);
const _: () = assert!(offset_of!(PhvShared, console_head) == 52);
const _: () = assert!(offset_of!(PhvShared, console_tail) == 56);
const _: () = assert!(offset_of!(PhvShared, alarm_word) == 60);
const _: () = assert!(offset_of!(PhvShared, alarm_next_ns) == 64);
const _: () = assert!(offset_of!(PhvShared, wall_offset_ns) == 72);
const _: () = assert!(offset_of!(PhvShared, wall_updates) == 80);
const _: () = assert!(offset_of!(PhvShared, cpuid_faulting) == 84);
const _: () = assert!(offset_of!(PhvShared, boot_info) == 88);
const _: () = assert!(offset_of!(PhvShared, kernel_entry) == 96);
const _: () = assert!(offset_of!(PhvShared, boot_stack) == 104);
const _: () = assert!(offset_of!(PhvShared, clock) == 112);
const _: () = assert!(offset_of!(PhvShared, regions) == 152);
const _: () = assert!(offset_of!(PhvShared, segments) == 408);
const _: () = assert!(offset_of!(PhvShared, vcpu_cpu) == 600);
const _: () = assert!(offset_of!(PhvShared, message) == 856);
const _: () = assert!(offset_of!(PhvShared, device_gpa) == 1112);
const _: () = assert!(offset_of!(PhvShared, device_count) == 1120);
const _: () = assert!(offset_of!(PhvShared, device_pad) == 1124);
const _: () = assert!(offset_of!(PhvShared, pool_chunks) == 1128);
const _: () = assert!(offset_of!(PhvShared, maps_all) == 1132);
const _: () = assert!(offset_of!(PhvShared, debug_on) == 1136);
const _: () = assert!(offset_of!(PhvShared, debug_pad) == 1140);
const _: () = assert!(offset_of!(PhvShared, kick_wanted) == 1144);
const _: () = assert!(offset_of!(PhvShared, kick_sleeping) == 1152);
const _: () = assert!(offset_of!(PhvShared, kick_rounds) == 1156);
const _: () = assert!(offset_of!(PhvShared, reserved) == 1160);

/// A vCPU: the part that the monitor sees.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvVcpu {
    /// PHV_PENDING_*; set by an atomic or.
    pub pending: u32,
    /// Virtual interrupt flag, 0 or 1.
    pub irq_flag: u32,
    /// PHV_VCPU_*.
    pub state: u32,
    /// Futex of a halted vCPU: counting it up wakes the vCPU.
    pub wait_word: u32,
    /// Pid << 32 | tid of the owner.
    pub owner: u64,
    /// CLOCK_MONOTONIC of the next alarm; all ones: none.
    pub deadline_ns: u64,
    /// Requested interrupt vectors.
    pub irr: [u64; 4],
    /// Pending bit of lock.kick.
    pub kick: u32,
    /// Process of the owner.
    pub proc: u32,
    /// Stolen time so far, ns.
    pub stolen_ns: u64,
    /// Hidden faults.
    pub faults_hidden: u64,
    /// Guest page faults and other exceptions with an error code.
    pub faults_injected: u64,
    /// Pages mapped.
    pub fills: u64,
    /// Flushes.
    pub flushes: u64,
    /// Hand-overs to another process.
    pub switches: u64,
    /// Loads of a space that had changed.
    pub resyncs: u64,
    /// System calls that trapped.
    pub syscalls_trapped: u64,
    /// Interrupts delivered.
    pub interrupts: u64,
    /// Signals to other vCPUs.
    pub kicks_sent: u64,
    /// Waits for an interrupt or lock.kick.
    pub halts: u64,
    /// Host system calls.
    pub host_calls: u64,
    /// Events so far, modulo 2^32. The next event goes to this number modulo PHV_EVENTS.
    pub events: u32,
    /// Zero.
    pub events_pad: u32,
    /// Zero.
    pub reserved: [u8; 80],
}

const _: () = assert!(size_of::<PhvVcpu>() == 256);
const _: () = assert!(offset_of!(PhvVcpu, pending) == 0);
const _: () = assert!(offset_of!(PhvVcpu, irq_flag) == 4);
const _: () = assert!(offset_of!(PhvVcpu, state) == 8);
const _: () = assert!(offset_of!(PhvVcpu, wait_word) == 12);
const _: () = assert!(offset_of!(PhvVcpu, owner) == 16);
const _: () = assert!(offset_of!(PhvVcpu, deadline_ns) == 24);
const _: () = assert!(offset_of!(PhvVcpu, irr) == 32);
const _: () = assert!(offset_of!(PhvVcpu, kick) == 64);
const _: () = assert!(offset_of!(PhvVcpu, proc) == 68);
const _: () = assert!(offset_of!(PhvVcpu, stolen_ns) == 72);
const _: () = assert!(offset_of!(PhvVcpu, faults_hidden) == 80);
const _: () = assert!(offset_of!(PhvVcpu, faults_injected) == 88);
const _: () = assert!(offset_of!(PhvVcpu, fills) == 96);
const _: () = assert!(offset_of!(PhvVcpu, flushes) == 104);
const _: () = assert!(offset_of!(PhvVcpu, switches) == 112);
const _: () = assert!(offset_of!(PhvVcpu, resyncs) == 120);
const _: () = assert!(offset_of!(PhvVcpu, syscalls_trapped) == 128);
const _: () = assert!(offset_of!(PhvVcpu, interrupts) == 136);
const _: () = assert!(offset_of!(PhvVcpu, kicks_sent) == 144);
const _: () = assert!(offset_of!(PhvVcpu, halts) == 152);
const _: () = assert!(offset_of!(PhvVcpu, host_calls) == 160);
const _: () = assert!(offset_of!(PhvVcpu, events) == 168);
const _: () = assert!(offset_of!(PhvVcpu, events_pad) == 172);
const _: () = assert!(offset_of!(PhvVcpu, reserved) == 176);

/// An address-space process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PhvProc {
    /// PHV_PROC_*.
    pub state: u32,
    /// Process id.
    pub pid: u32,
    /// CR3 of its space.
    pub cr3: u64,
    /// Context of its space.
    pub context: u64,
    /// Generation that its mappings agree with.
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

const _: () = assert!(size_of::<PhvProc>() == 576);
const _: () = assert!(offset_of!(PhvProc, state) == 0);
const _: () = assert!(offset_of!(PhvProc, pid) == 4);
const _: () = assert!(offset_of!(PhvProc, cr3) == 8);
const _: () = assert!(offset_of!(PhvProc, context) == 16);
const _: () = assert!(offset_of!(PhvProc, generation) == 24);
const _: () = assert!(offset_of!(PhvProc, mappings) == 32);
const _: () = assert!(offset_of!(PhvProc, reserved) == 36);
const _: () = assert!(offset_of!(PhvProc, wake) == 64);
const _: () = assert!(offset_of!(PhvProc, tid) == 320);
