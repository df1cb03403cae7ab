// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/process.toml: change that, not this.
use crate::view::{Choice, Enumerated, View};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// States of a virtual machine: phv_shared.vm_state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum VmState {
    /// Runs, or has not started yet.
    Running = 0,
    /// The guest has shut down; vm_status is the exit code.
    Shutdown = 1,
    /// The guest has asked for a restart; vm_status is VMI_REBOOT_*.
    Reboot = 2,
    /// The layer cannot go on; message says why.
    Fatal = 3,
}

impl Enumerated for VmState {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Running),
            1 => Some(Self::Shutdown),
            2 => Some(Self::Reboot),
            3 => Some(Self::Fatal),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// States of a vCPU: phv_vcpu.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum VcpuState {
    /// Waits for STARTUP.
    Off = 0,
    /// Runs, or wants to.
    Running = 1,
    /// Waits on wait_word.
    Halted = 2,
}

impl Enumerated for VcpuState {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Off),
            1 => Some(Self::Running),
            2 => Some(Self::Halted),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// States of an address-space process: phv_proc.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProcState {
    /// Does not exist.
    None = 0,
    /// Parked, without a space.
    Free = 1,
    /// Has a space.
    Space = 2,
}

impl Enumerated for ProcState {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Free),
            2 => Some(Self::Space),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// States of a vCPU to the debugger: phv_debug.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DebugState {
    /// Runs: the registers here are old.
    Runs = 0,
    /// Waits for a command.
    Stopped = 1,
    /// Has made a call that ends the machine. The registers are its caller's, as far as a function preserves them.
    Call = 2,
}

impl Enumerated for DebugState {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Runs),
            1 => Some(Self::Stopped),
            2 => Some(Self::Call),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// Why a vCPU has stopped: phv_debug.reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StopReason {
    /// The debugger asked for it (PHV_PENDING_DEBUG).
    Asked = 0,
    /// Int3; rip is after it.
    Breakpoint = 1,
    /// One instruction was executed.
    Step = 2,
}

impl Enumerated for StopReason {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Asked),
            1 => Some(Self::Breakpoint),
            2 => Some(Self::Step),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// Commands to a stopped vCPU: phv_debug.command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DebugCommand {
    /// No command: keep waiting.
    None = 0,
    /// Continue with the registers as they are here.
    Continue = 1,
    /// Execute one instruction; no interrupt is delivered.
    Step = 2,
    /// The breakpoint is the guest's: deliver its exception.
    Pass = 3,
}

impl Enumerated for DebugCommand {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Continue),
            2 => Some(Self::Step),
            3 => Some(Self::Pass),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// What a vCPU asks a device's thread for: phv_request.kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RequestKind {
    /// A register write.
    Store = 0,
    /// Bus.command.
    Command = 1,
}

impl Enumerated for RequestKind {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Store),
            1 => Some(Self::Command),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// States of a request: phv_request.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RequestState {
    /// No request.
    None = 0,
    /// The vCPU waits.
    Asked = 1,
    /// The monitor has done it.
    Done = 2,
}

impl Enumerated for RequestState {
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Asked),
            2 => Some(Self::Done),
            _ => None,
        }
    }

    fn raw(self) -> u32 {
        self as u32
    }
}

/// RAM region: a guest-physical range and the memfd that backs it. Regions ascend without gaps.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// First address, a multiple of 2 MiB.
    pub gpa: AtomicU64,
    /// Bytes, a multiple of 2 MiB, from offset 0 of the region's memfd.
    pub size: AtomicU64,
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Region {}
const _: () = assert!(size_of::<Region>() == 16);
const _: () = assert!(offset_of!(Region, gpa) == 0);
const _: () = assert!(offset_of!(Region, size) == 8);

/// Part of the kernel file: a linear range in the hole that maps guest-physical memory.
#[repr(C)]
#[derive(Debug)]
pub struct Segment {
    /// Linear address, page-aligned.
    pub addr: AtomicU64,
    /// Guest-physical address, page-aligned.
    pub gpa: AtomicU64,
    /// Bytes, page-aligned.
    pub size: AtomicU64,
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Segment {}
const _: () = assert!(size_of::<Segment>() == 24);
const _: () = assert!(offset_of!(Segment, addr) == 0);
const _: () = assert!(offset_of!(Segment, gpa) == 8);
const _: () = assert!(offset_of!(Segment, size) == 16);

/// What the layer, the device's thread in the monitor and senders of its interrupts share about a device.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    /// Bit n: queue n was notified; PHV_NOTIFY_*. Set by an atomic or, taken by the device's thread.
    pub notify: AtomicU32,
    /// Futex; 1: the device's thread sleeps or is about to. A sender sets this to 0 and wakes it.
    pub sleeping: AtomicU32,
    /// (layer) where its line goes: APIC id or PHV_ROUTE_NOTIFIER << 8 | vector; vector 0: masked.
    pub route: AtomicU32,
    /// 1: the line was signalled while it was masked.
    pub raised: AtomicU32,
    /// (layer) the vCPU that notified the device last.
    pub notifier: AtomicU32,
    /// (monitor) 1 + the host CPU on which the device's thread looks for work without sleeping; 0: it does not.
    pub looks: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 10],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Device {}
const _: () = assert!(size_of::<Device>() == 64);
const _: () = assert!(offset_of!(Device, notify) == 0);
const _: () = assert!(offset_of!(Device, sleeping) == 4);
const _: () = assert!(offset_of!(Device, route) == 8);
const _: () = assert!(offset_of!(Device, raised) == 12);
const _: () = assert!(offset_of!(Device, notifier) == 16);
const _: () = assert!(offset_of!(Device, looks) == 20);
const _: () = assert!(offset_of!(Device, reserved) == 24);

/// A write to a device register that changes other registers, or a call in place of one. The vCPU waits until the device's thread has carried it out.
#[repr(C)]
#[derive(Debug)]
pub struct Request {
    /// PHV_REQUEST_*; futex of the vCPU.
    pub state: Choice<RequestState>,
    /// The device's number.
    pub device: AtomicU32,
    /// (PHV_ASK_STORE) offset in its register page.
    pub offset: AtomicU32,
    /// (PHV_ASK_STORE) bytes: 1, 2, 4 or 8.
    pub width: AtomicU32,
    /// The value written, or the address of the command.
    pub value: AtomicU64,
    /// PHV_ASK_*.
    pub kind: Choice<RequestKind>,
    /// (monitor) what bus.command returns, a signed number; 0 for a store.
    pub answer: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 8],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Request {}
const _: () = assert!(size_of::<Request>() == 64);
const _: () = assert!(offset_of!(Request, state) == 0);
const _: () = assert!(offset_of!(Request, device) == 4);
const _: () = assert!(offset_of!(Request, offset) == 8);
const _: () = assert!(offset_of!(Request, width) == 12);
const _: () = assert!(offset_of!(Request, value) == 16);
const _: () = assert!(offset_of!(Request, kind) == 24);
const _: () = assert!(offset_of!(Request, answer) == 28);
const _: () = assert!(offset_of!(Request, reserved) == 32);

/// An event of the layer, written by the vCPU's owner.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    /// Time-stamp counter.
    pub tsc: AtomicU64,
    /// PHV_EVENT_*.
    pub kind: AtomicU64,
    /// First word.
    pub a: AtomicU64,
    /// Second word.
    pub b: AtomicU64,
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Event {}
const _: () = assert!(size_of::<Event>() == 32);
const _: () = assert!(offset_of!(Event, tsc) == 0);
const _: () = assert!(offset_of!(Event, kind) == 8);
const _: () = assert!(offset_of!(Event, a) == 16);
const _: () = assert!(offset_of!(Event, b) == 24);

/// A stopped vCPU, as the debugger in the monitor sees and changes it.
#[repr(C)]
#[derive(Debug)]
pub struct Debug {
    /// (layer) PHV_DEBUG_*.
    pub state: Choice<DebugState>,
    /// (layer) PHV_STOP_*.
    pub reason: Choice<StopReason>,
    /// PHV_COMMAND_*, taken by the layer. The monitor then counts the vCPU's wait_word up.
    pub command: Choice<DebugCommand>,
    /// Zero.
    pub pad: AtomicU32,
    /// Rax rcx rdx rbx rsp rbp rsi rdi r8 to r15.
    pub gpr: [AtomicU64; 16],
    /// Instruction pointer.
    pub rip: AtomicU64,
    /// Flags; IF is the virtual interrupt flag.
    pub rflags: AtomicU64,
    /// (layer) the guest's selector.
    pub cs: AtomicU32,
    /// (layer) the guest's selector.
    pub ss: AtomicU32,
    /// (layer).
    pub fs_base: AtomicU64,
    /// (layer).
    pub gs_base: AtomicU64,
    /// (layer).
    pub cr2: AtomicU64,
    /// (layer) root of the tables for user addresses.
    pub cr3: AtomicU64,
    /// (layer) root of the tables for kernel addresses; 0: cr3.
    pub kernel_root: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU64; 38],
    /// (layer) x87 and SSE registers in the layout of fxsave.
    pub fxsave: [AtomicU8; 512],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Debug {}
const _: () = assert!(size_of::<Debug>() == 1024);
const _: () = assert!(offset_of!(Debug, state) == 0);
const _: () = assert!(offset_of!(Debug, reason) == 4);
const _: () = assert!(offset_of!(Debug, command) == 8);
const _: () = assert!(offset_of!(Debug, pad) == 12);
const _: () = assert!(offset_of!(Debug, gpr) == 16);
const _: () = assert!(offset_of!(Debug, rip) == 144);
const _: () = assert!(offset_of!(Debug, rflags) == 152);
const _: () = assert!(offset_of!(Debug, cs) == 160);
const _: () = assert!(offset_of!(Debug, ss) == 164);
const _: () = assert!(offset_of!(Debug, fs_base) == 168);
const _: () = assert!(offset_of!(Debug, gs_base) == 176);
const _: () = assert!(offset_of!(Debug, cr2) == 184);
const _: () = assert!(offset_of!(Debug, cr3) == 192);
const _: () = assert!(offset_of!(Debug, kernel_root) == 200);
const _: () = assert!(offset_of!(Debug, reserved) == 208);
const _: () = assert!(offset_of!(Debug, fxsave) == 512);

/// Factors that turn the time-stamp counter into the machine's clock: the host's CLOCK_MONOTONIC and ahead_ns; written by the monitor.
#[repr(C)]
#[derive(Debug)]
pub struct Clock {
    /// Odd while being written.
    pub sequence: AtomicU32,
    /// 0 to 63.
    pub shift: AtomicU32,
    /// Counter value.
    pub tsc: AtomicU64,
    /// The clock at that value.
    pub ns: AtomicU64,
    /// Ns + ((counter - tsc) * mult >> shift), with a 128-bit product.
    pub mult: AtomicU64,
    /// Frequency.
    pub tsc_hz: AtomicU64,
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Clock {}
const _: () = assert!(size_of::<Clock>() == 40);
const _: () = assert!(offset_of!(Clock, sequence) == 0);
const _: () = assert!(offset_of!(Clock, shift) == 4);
const _: () = assert!(offset_of!(Clock, tsc) == 8);
const _: () = assert!(offset_of!(Clock, ns) == 16);
const _: () = assert!(offset_of!(Clock, mult) == 24);
const _: () = assert!(offset_of!(Clock, tsc_hz) == 32);

/// First page of the shared area. The monitor fills it before the layer starts. Later it writes the clock and reads the fields marked (layer).
#[repr(C)]
#[derive(Debug)]
pub struct Shared {
    /// PHV_MAGIC.
    pub magic: AtomicU32,
    /// VCPUs.
    pub vcpu_count: AtomicU32,
    /// RAM regions.
    pub region_count: AtomicU32,
    /// Segments of the kernel file, at most 8.
    pub segment_count: AtomicU32,
    /// Instructions of the seccomp filter, at least 1. The zygote copies it before guest code exists, like everything that decides about a process.
    pub filter_length: AtomicU32,
    /// Processes that may exist; at least vcpu_count + 1.
    pub proc_limit: AtomicU32,
    /// PHV_FLAG_*.
    pub flags: AtomicU32,
    /// Largest number of mappings of one process, from vm.max_map_count.
    pub max_maps: AtomicU32,
    /// (layer) futex of the monitor: counts the things to look at.
    pub doorbell: AtomicU32,
    /// (layer) PHV_VM_*.
    pub vm_state: Choice<VmState>,
    /// (layer) depends on vm_state.
    pub vm_status: AtomicU32,
    /// Processes 0 to proc_count - 1 have been made; only the monitor writes it.
    pub proc_count: AtomicU32,
    /// (layer) number of processes that the layer wants; the monitor decides.
    pub proc_wanted: AtomicU32,
    /// (layer) bytes ever written to the console ring, modulo 2^32.
    pub console_head: AtomicU32,
    /// Bytes ever taken from the ring by the monitor; futex of a writer that finds it full.
    pub console_tail: AtomicU32,
    /// (layer) futex of the monitor's alarm thread: counts deadlines that are earlier than the last one.
    pub alarm_word: AtomicU32,
    /// Time of the clock until which the alarm thread sleeps, written by it; all ones: none.
    pub alarm_next_ns: AtomicU64,
    /// CLOCK_REALTIME less the clock; written by the monitor.
    pub wall_offset_ns: AtomicU64,
    /// Counts its jumps.
    pub wall_updates: AtomicU32,
    /// 1: the host can make cpuid fault (arch_prctl).
    pub cpuid_faulting: AtomicU32,
    /// Linear address of struct vmi_boot_info.
    pub boot_info: AtomicU64,
    /// Linear address of the kernel's VMI entry, relocated.
    pub kernel_entry: AtomicU64,
    /// Linear address of the top of the boot stack.
    pub boot_stack: AtomicU64,
    /// Time.
    pub clock: Clock,
    /// RAM regions.
    pub regions: [Region; 16],
    /// Segments of the kernel file.
    pub segments: [Segment; 8],
    /// Host CPU of a vCPU's threads; all ones: any.
    pub vcpu_cpu: [AtomicU32; 64],
    /// (layer) text for PHV_VM_FATAL, ends with a zero byte.
    pub message: [AtomicU8; 256],
    /// Guest-physical address of device 0's register page. The others follow. After all RAM.
    pub device_gpa: AtomicU64,
    /// Devices.
    pub device_count: AtomicU32,
    /// Bit n: device n is a bridge to a virtual bus.
    pub bridges: AtomicU32,
    /// Pieces of the shadow pool.
    pub pool_chunks: AtomicU32,
    /// Mappings that all processes together should not exceed; each may always have PHV_MAPS_SURE.
    pub maps_all: AtomicU32,
    /// 1: a debugger is connected, and breakpoints stop the vCPU.
    pub debug_on: AtomicU32,
    /// Zero.
    pub debug_pad: AtomicU32,
    /// (layer) bit n: vCPU n needs a kick (PHV_FLAG_ASK). Set by an atomic or, taken by the monitor.
    pub kick_wanted: AtomicU64,
    /// Futex; 1: the monitor's kick thread sleeps or is about to. A sender sets this to 0 and wakes it.
    pub kick_sleeping: AtomicU32,
    /// Counts the rounds of kicks that the monitor has sent; futex of senders that wait.
    pub kick_rounds: AtomicU32,
    /// Bit n: line n, which is routed to PHV_ROUTE_NOTIFIER, was signalled. Set by an atomic or, taken by line.pending.
    pub lines: AtomicU64,
    /// What the clock is ahead of the host's CLOCK_MONOTONIC, on which futexes wait: suspends of the host for which the time-stamp counter went on; written by the monitor.
    pub ahead_ns: AtomicU64,
    /// (layer) 1: the guest has a clock page, which a vCPU that runs must rewrite after each change of the clock.
    pub clock_page: AtomicU32,
    /// (layer) PHV_CLOCK_*, a futex: a vCPU that woke up has found the clock wrong, and waits. The watch, which the alarm thread wakes for it, claims and ends it.
    pub clock_wanted: AtomicU32,
    /// Linear address of guest-physical 0, and the end of the user range: PHV_DIRECT_MAP or PHV_DIRECT_MAP_WIDE.
    pub direct_map: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU8; 856],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Shared {}
const _: () = assert!(size_of::<Shared>() == 2048);
const _: () = assert!(offset_of!(Shared, magic) == 0);
const _: () = assert!(offset_of!(Shared, vcpu_count) == 4);
const _: () = assert!(offset_of!(Shared, region_count) == 8);
const _: () = assert!(offset_of!(Shared, segment_count) == 12);
const _: () = assert!(offset_of!(Shared, filter_length) == 16);
const _: () = assert!(offset_of!(Shared, proc_limit) == 20);
const _: () = assert!(offset_of!(Shared, flags) == 24);
const _: () = assert!(offset_of!(Shared, max_maps) == 28);
const _: () = assert!(offset_of!(Shared, doorbell) == 32);
const _: () = assert!(offset_of!(Shared, vm_state) == 36);
const _: () = assert!(offset_of!(Shared, vm_status) == 40);
const _: () = assert!(offset_of!(Shared, proc_count) == 44);
const _: () = assert!(offset_of!(Shared, proc_wanted) == 48);
const _: () = assert!(offset_of!(Shared, console_head) == 52);
const _: () = assert!(offset_of!(Shared, console_tail) == 56);
const _: () = assert!(offset_of!(Shared, alarm_word) == 60);
const _: () = assert!(offset_of!(Shared, alarm_next_ns) == 64);
const _: () = assert!(offset_of!(Shared, wall_offset_ns) == 72);
const _: () = assert!(offset_of!(Shared, wall_updates) == 80);
const _: () = assert!(offset_of!(Shared, cpuid_faulting) == 84);
const _: () = assert!(offset_of!(Shared, boot_info) == 88);
const _: () = assert!(offset_of!(Shared, kernel_entry) == 96);
const _: () = assert!(offset_of!(Shared, boot_stack) == 104);
const _: () = assert!(offset_of!(Shared, clock) == 112);
const _: () = assert!(offset_of!(Shared, regions) == 152);
const _: () = assert!(offset_of!(Shared, segments) == 408);
const _: () = assert!(offset_of!(Shared, vcpu_cpu) == 600);
const _: () = assert!(offset_of!(Shared, message) == 856);
const _: () = assert!(offset_of!(Shared, device_gpa) == 1112);
const _: () = assert!(offset_of!(Shared, device_count) == 1120);
const _: () = assert!(offset_of!(Shared, bridges) == 1124);
const _: () = assert!(offset_of!(Shared, pool_chunks) == 1128);
const _: () = assert!(offset_of!(Shared, maps_all) == 1132);
const _: () = assert!(offset_of!(Shared, debug_on) == 1136);
const _: () = assert!(offset_of!(Shared, debug_pad) == 1140);
const _: () = assert!(offset_of!(Shared, kick_wanted) == 1144);
const _: () = assert!(offset_of!(Shared, kick_sleeping) == 1152);
const _: () = assert!(offset_of!(Shared, kick_rounds) == 1156);
const _: () = assert!(offset_of!(Shared, lines) == 1160);
const _: () = assert!(offset_of!(Shared, ahead_ns) == 1168);
const _: () = assert!(offset_of!(Shared, clock_page) == 1176);
const _: () = assert!(offset_of!(Shared, clock_wanted) == 1180);
const _: () = assert!(offset_of!(Shared, direct_map) == 1184);
const _: () = assert!(offset_of!(Shared, reserved) == 1192);

/// A vCPU: the part that the monitor sees.
#[repr(C)]
#[derive(Debug)]
pub struct Vcpu {
    /// PHV_PENDING_*; set by an atomic or.
    pub pending: AtomicU32,
    /// Virtual interrupt flag, 0 or 1.
    pub irq_flag: AtomicU32,
    /// PHV_VCPU_*.
    pub state: Choice<VcpuState>,
    /// Futex of a halted vCPU: counting it up wakes the vCPU.
    pub wait_word: AtomicU32,
    /// Pid << 32 | tid of the owner; 0: none, in a hand-over.
    pub owner: AtomicU64,
    /// Next alarm, by the clock; all ones: none.
    pub deadline_ns: AtomicU64,
    /// Requested interrupt vectors.
    pub irr: [AtomicU64; 4],
    /// Pending bit of lock.kick.
    pub kick: AtomicU32,
    /// Process of the owner.
    pub proc: AtomicU32,
    /// Stolen time so far, ns.
    pub stolen_ns: AtomicU64,
    /// Hidden faults.
    pub faults_hidden: AtomicU64,
    /// Guest page faults and other exceptions with an error code.
    pub faults_injected: AtomicU64,
    /// Pages mapped.
    pub fills: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Hand-overs to another process.
    pub switches: AtomicU64,
    /// Loads of a space that had changed.
    pub resyncs: AtomicU64,
    /// System calls that trapped.
    pub syscalls_trapped: AtomicU64,
    /// Interrupts delivered.
    pub interrupts: AtomicU64,
    /// Signals to other vCPUs.
    pub kicks_sent: AtomicU64,
    /// Waits for an interrupt or lock.kick.
    pub halts: AtomicU64,
    /// Host system calls.
    pub host_calls: AtomicU64,
    /// Host signals that the layer handled.
    pub signals: AtomicU64,
    /// Events so far, modulo 2^32. The next event goes to this number modulo PHV_EVENTS.
    pub events: AtomicU32,
    /// Zero.
    pub events_pad: AtomicU32,
    /// Halts that polling ended, without a sleep.
    pub polls_won: AtomicU64,
    /// Halts that polled in vain.
    pub polls_lost: AtomicU64,
    /// (layer) 1: a halted vCPU looks for interrupts before it sleeps and needs no wake.
    pub polling: AtomicU32,
    /// Zero.
    pub polling_pad: AtomicU32,
    /// TSC when the monitor first told the vCPU that polls; 0: not yet.
    pub told: AtomicU64,
    /// Hand-overs after which the thread that gave the vCPU away slept.
    pub parks: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU8; 32],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Vcpu {}
const _: () = assert!(size_of::<Vcpu>() == 256);
const _: () = assert!(offset_of!(Vcpu, pending) == 0);
const _: () = assert!(offset_of!(Vcpu, irq_flag) == 4);
const _: () = assert!(offset_of!(Vcpu, state) == 8);
const _: () = assert!(offset_of!(Vcpu, wait_word) == 12);
const _: () = assert!(offset_of!(Vcpu, owner) == 16);
const _: () = assert!(offset_of!(Vcpu, deadline_ns) == 24);
const _: () = assert!(offset_of!(Vcpu, irr) == 32);
const _: () = assert!(offset_of!(Vcpu, kick) == 64);
const _: () = assert!(offset_of!(Vcpu, proc) == 68);
const _: () = assert!(offset_of!(Vcpu, stolen_ns) == 72);
const _: () = assert!(offset_of!(Vcpu, faults_hidden) == 80);
const _: () = assert!(offset_of!(Vcpu, faults_injected) == 88);
const _: () = assert!(offset_of!(Vcpu, fills) == 96);
const _: () = assert!(offset_of!(Vcpu, flushes) == 104);
const _: () = assert!(offset_of!(Vcpu, switches) == 112);
const _: () = assert!(offset_of!(Vcpu, resyncs) == 120);
const _: () = assert!(offset_of!(Vcpu, syscalls_trapped) == 128);
const _: () = assert!(offset_of!(Vcpu, interrupts) == 136);
const _: () = assert!(offset_of!(Vcpu, kicks_sent) == 144);
const _: () = assert!(offset_of!(Vcpu, halts) == 152);
const _: () = assert!(offset_of!(Vcpu, host_calls) == 160);
const _: () = assert!(offset_of!(Vcpu, signals) == 168);
const _: () = assert!(offset_of!(Vcpu, events) == 176);
const _: () = assert!(offset_of!(Vcpu, events_pad) == 180);
const _: () = assert!(offset_of!(Vcpu, polls_won) == 184);
const _: () = assert!(offset_of!(Vcpu, polls_lost) == 192);
const _: () = assert!(offset_of!(Vcpu, polling) == 200);
const _: () = assert!(offset_of!(Vcpu, polling_pad) == 204);
const _: () = assert!(offset_of!(Vcpu, told) == 208);
const _: () = assert!(offset_of!(Vcpu, parks) == 216);
const _: () = assert!(offset_of!(Vcpu, reserved) == 224);

/// An address-space process.
#[repr(C)]
#[derive(Debug)]
pub struct Proc {
    /// PHV_PROC_*.
    pub state: Choice<ProcState>,
    /// Process id.
    pub pid: AtomicU32,
    /// CR3 of its space.
    pub cr3: AtomicU64,
    /// Context of its space.
    pub context: AtomicU64,
    /// Generation that its mappings agree with.
    pub generation: AtomicU64,
    /// Estimate of its host mappings.
    pub mappings: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 7],
    /// Futex of each vCPU's thread: 1 hands the vCPU over to it.
    pub wake: [AtomicU32; 64],
    /// Thread ids.
    pub tid: [AtomicU32; 64],
}

// SAFETY: the assertions below leave no padding, and every field is an atomic or a view.
unsafe impl View for Proc {}
const _: () = assert!(size_of::<Proc>() == 576);
const _: () = assert!(offset_of!(Proc, state) == 0);
const _: () = assert!(offset_of!(Proc, pid) == 4);
const _: () = assert!(offset_of!(Proc, cr3) == 8);
const _: () = assert!(offset_of!(Proc, context) == 16);
const _: () = assert!(offset_of!(Proc, generation) == 24);
const _: () = assert!(offset_of!(Proc, mappings) == 32);
const _: () = assert!(offset_of!(Proc, reserved) == 36);
const _: () = assert!(offset_of!(Proc, wake) == 64);
const _: () = assert!(offset_of!(Proc, tid) == 320);
