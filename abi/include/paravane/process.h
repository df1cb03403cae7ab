/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What the monitor and the process layer share. Made by tools/abigen from
 * abi/process.toml: change that, not this.
 */
#ifndef PARAVANE_PROCESS_H
#define PARAVANE_PROCESS_H

#include "vmi.h"


/* Linear addresses in an address-space process */
#define VMI_PH_HOLE_START 0x70000000 /* first address of the hole in the guest's user range: what the kernel maps near its image */
#define VMI_PH_IMAGE_START 0x7a000000 /* then the image and the layer: not the guest's to map */
#define VMI_PH_LAYER_BASE 0x7f000000 /* the layer's program, linked for this address */
#define VMI_PH_HOLE_END 0x7fe00000 /* last address of the hole + 1 */
#define VMI_PH_USER_START 0x10000 /* first address of the guest's user range */
#define VMI_PH_USER_END 0x400000000000 /* last + 1: 64 TiB */
#define VMI_PH_DIRECT_MAP 0x400000000000 /* guest-physical 0 */
#define VMI_PH_KERNEL_END 0x7e0000000000 /* last address + 1 that the guest's kernel may map */
#define VMI_PH_SHARED 0x7e8000000000 /* the shared area; what follows lies near, since each place of its own takes page tables of the host's in each process */
#define VMI_PH_DEVICES 0x7e8000500000 /* the layer's own view of the register pages of all devices, writable */
#define VMI_PH_ARENA 0x7e8000400000 /* a process's own records of its mappings: what each has for certain */
#define VMI_PH_ARENA_SIZE 0x100000 /* bytes of it */
#define VMI_PH_POOL 0x7e9100000000 /* room for more records, which all processes of the machine share: a part of the shared area's file, so that hostile code cannot make it larger */
#define VMI_PH_STACKS 0x7e8000580000 /* a process's own stacks, VMI_PH_STACK_SIZE for each vCPU */
#define VMI_PH_STACK_SIZE 0x20000 /* bytes for a vCPU's thread, aligned to itself: thread record, host stack, signal stack */

/* Descriptors of the layer's program when it starts */
#define VMI_PH_FD_CONTROL 0x3 /* socket (SOCK_SEQPACKET) to the monitor; only the zygote keeps it */
#define VMI_PH_FD_SHARED 0x4 /* memfd of the shared area; closed before guest code runs */
#define VMI_PH_FD_RAM 0x5 /* memfd of RAM slot 0; slot n has VMI_PH_FD_RAM + n. Behind them, if there are devices: the memfd of their register pages */

/* Limits */
#define VMI_PH_MAX_VCPUS 0x40 /* vCPUs of a virtual machine */
#define VMI_PH_MAX_PROCS 0x400 /* address-space processes of a virtual machine */
#define VMI_PH_MAPS_SURE 0x1000 /* mappings that each process may have, whatever the others have */
#define VMI_PH_MAX_SLOTS 0x10 /* RAM slots */
#define VMI_PH_MAX_DEVICES 0x20 /* devices of a virtual machine; each has the interrupt line of its own number */
#define VMI_PH_MAX_QUEUES 0x1e /* queues of a device */
#define VMI_PH_POOL_CHUNK 0x40000 /* bytes of the pool that a process takes at once */
#define VMI_PH_POOL_CHUNKS 0x4000 /* such pieces at most */
#define VMI_PH_CONSOLE_SIZE 0x10000 /* bytes of the console ring, a power of two */
#define VMI_PH_FILTER_MAX 0x200 /* instructions of the seccomp filter */
#define VMI_PH_EVENTS 0x20 /* events that are kept of each vCPU, a power of two */

/* Shared area: offsets of its parts */
#define VMI_PH_MAGIC 0x31485056 /* ph_shared.magic */
#define VMI_PH_SHARED_CONSOLE 0x10000 /* console ring */
#define VMI_PH_SHARED_FILTER 0x20000 /* seccomp filter: array of struct sock_filter; read by the zygote before guest code exists */
#define VMI_PH_SHARED_VCPUS 0x30000 /* vCPUs, VMI_PH_VCPU_STRIDE each */
#define VMI_PH_VCPU_STRIDE 0x8000 /* bytes of a vCPU: struct vmi_ph_vcpu, the layer's own state behind it */
#define VMI_PH_SHARED_PROCS 0x230000 /* processes, VMI_PH_PROC_STRIDE each */
#define VMI_PH_PROC_STRIDE 0x400 /* bytes of a process: struct vmi_ph_proc, the layer's own state behind it */
#define VMI_PH_SHARED_THUNKS 0x330000 /* the layer's entry points: mapped over its own section .thunks in every process, since core.init edits them */
#define VMI_PH_THUNKS_MAX 0x10000 /* bytes of it at most */
#define VMI_PH_SHARED_DEVICES 0x340000 /* devices: VMI_PH_MAX_DEVICES of struct vmi_ph_device */
#define VMI_PH_SHARED_REQUESTS 0x341000 /* register writes: VMI_PH_MAX_VCPUS of struct vmi_ph_request */
#define VMI_PH_SHARED_EVENTS 0x342000 /* last events: VMI_PH_EVENTS of struct vmi_ph_event for each vCPU */
#define VMI_PH_SHARED_DEBUG 0x352000 /* registers of stopped vCPUs: VMI_PH_MAX_VCPUS of struct vmi_ph_debug */
#define VMI_PH_SHARED_SIZE 0x400000 /* bytes of the shared area; in its file the pool follows */

/* States of a virtual machine, a vCPU, a process */
#define VMI_PH_VM_RUNNING 0x0 /* vmi_ph_shared.vm_state */
#define VMI_PH_VM_SHUTDOWN 0x1 /* the guest asked for its end; vm_status has the exit code */
#define VMI_PH_VM_REBOOT 0x2 /* the guest asked for a restart; vm_status has VMI_REBOOT_* */
#define VMI_PH_VM_FATAL 0x3 /* the layer could not go on; message says why */
#define VMI_PH_VCPU_OFF 0x0 /* vmi_ph_vcpu.state: waits for STARTUP */
#define VMI_PH_VCPU_RUNNING 0x1 /* runs, or wants to */
#define VMI_PH_VCPU_HALTED 0x2 /* waits on wait_word */
#define VMI_PH_PROC_NONE 0x0 /* vmi_ph_proc.state: not there */
#define VMI_PH_PROC_FREE 0x1 /* parked, belongs to no space */
#define VMI_PH_PROC_SPACE 0x2 /* belongs to a space */

/* Bits of vmi_ph_shared.flags */
#define VMI_PH_FLAG_DEBUGGABLE 0x1 /* processes stay dumpable */
#define VMI_PH_FLAG_ASK 0x2 /* processes may send no signals: who wants a running vCPU to look asks the monitor (kick_wanted) */

/* Bits of vmi_ph_vcpu.pending */
#define VMI_PH_PENDING_IRQ 0x1 /* there may be something in irr */
#define VMI_PH_PENDING_ALARM 0x2 /* deadline_ns has passed: the layer looks at its alarms */
#define VMI_PH_PENDING_NMI 0x4 /* a non-maskable interrupt */
#define VMI_PH_PENDING_STOP 0x8 /* INIT: the vCPU goes off */
#define VMI_PH_PENDING_FLUSH 0x10 /* another vCPU waits for a flush of the space that this one has loaded */
#define VMI_PH_PENDING_DEBUG 0x20 /* the vCPU stops for a debugger, see struct vmi_ph_debug */

/* Kinds of events (vmi_ph_event.kind), and what their words are */
#define VMI_PH_EVENT_NONE 0x0 /* there was none yet */
#define VMI_PH_EVENT_SWITCH 0x1 /* hand-over to another process: CR3, process */
#define VMI_PH_EVENT_FILL 0x2 /* page mapped at a fault that the guest does not see: address, instruction pointer */
#define VMI_PH_EVENT_FLUSH 0x3 /* first address, first one behind */
#define VMI_PH_EVENT_FAULT 0x4 /* page fault that the guest gets: address, error code */
#define VMI_PH_EVENT_EXCEPTION 0x5 /* exception that the guest gets: vector, instruction pointer */
#define VMI_PH_EVENT_INTERRUPT 0x6 /* delivered: vector, instruction pointer */
#define VMI_PH_EVENT_HALT 0x7 /* wait for an interrupt: deadline (CLOCK_MONOTONIC, ns), interrupt flag */
#define VMI_PH_EVENT_WAKE 0x8 /* end of the wait: VMI_PH_PENDING_*, nothing */
#define VMI_PH_EVENT_KICK 0x9 /* made another vCPU look: its number, VMI_PH_PENDING_* */
#define VMI_PH_EVENT_SYSCALL 0xa /* system call that came as a signal: number, instruction pointer */
#define VMI_PH_EVENT_STOP 0xb /* stop for a debugger: VMI_PH_STOP_*, instruction pointer */

/* Debugger: states, reasons and commands of struct vmi_ph_debug */
#define VMI_PH_DEBUG_RUNS 0x0 /* vmi_ph_debug.state: the registers are old */
#define VMI_PH_DEBUG_STOPPED 0x1 /* waits for a command */
#define VMI_PH_DEBUG_CALL 0x2 /* has made a call that ends the machine; registers of its caller, as far as a function keeps them */
#define VMI_PH_STOP_ASKED 0x0 /* vmi_ph_debug.reason: VMI_PH_PENDING_DEBUG */
#define VMI_PH_STOP_BREAKPOINT 0x1 /* int3; rip is behind it */
#define VMI_PH_STOP_STEP 0x2 /* one instruction is done */
#define VMI_PH_COMMAND_NONE 0x0 /* vmi_ph_debug.command */
#define VMI_PH_COMMAND_CONTINUE 0x1 /* go on with the registers as they stand here */
#define VMI_PH_COMMAND_STEP 0x2 /* the same for one instruction; no interrupt is delivered */
#define VMI_PH_COMMAND_PASS 0x3 /* the breakpoint is the guest's: it gets its exception */

/* Bits of vmi_ph_device.notify behind those of the queues, and states of a struct vmi_ph_request */
#define VMI_PH_NOTIFY_REGISTER 0x40000000 /* a vCPU waits for a register write */
#define VMI_PH_NOTIFY_HOST 0x80000000 /* something happened on the monitor's side; set by the monitor */
#define VMI_PH_REQUEST_NONE 0x0 /* vmi_ph_request.state */
#define VMI_PH_REQUEST_ASKED 0x1 /* the layer waits */
#define VMI_PH_REQUEST_DONE 0x2 /* the monitor has done it */

/* Control messages (vmi_ph_message.op) */
#define VMI_PH_OP_FORK 0x1 /* monitor to zygote: make process index */
#define VMI_PH_OP_READY 0x2 /* zygote to monitor: process index is made and parked, pid in pid; the first one, index 0xffffffff, means that the zygote itself is ready */
#define VMI_PH_OP_DIED 0x3 /* zygote to monitor: process index has ended with the wait status in value */
#define VMI_PH_OP_MADE 0x5 /* process index to monitor, before it is in its sandbox: pid is its id as the zygote sees it. The socket tells the monitor what the host calls it */
#define VMI_PH_OP_FAILED 0x4 /* zygote to monitor: a step of its set-up failed; index is the step (VMI_PH_STEP_*), value the errno */

/* Steps that may fail in the zygote or in a new process */
#define VMI_PH_STEP_SHARED 0x1 /* map the shared area */
#define VMI_PH_STEP_RAM 0x2 /* map the direct map */
#define VMI_PH_STEP_IMAGE 0x3 /* map the kernel image */
#define VMI_PH_STEP_ARENA 0x4 /* map the arena and the stacks */
#define VMI_PH_STEP_FORK 0x5 /* fork */
#define VMI_PH_STEP_THREAD 0x6 /* make a vCPU's thread */
#define VMI_PH_STEP_SIGNALS 0x7 /* signal stacks and handlers */
#define VMI_PH_STEP_SANDBOX 0x8 /* no_new_privs, dumpable, parent-death signal, descriptors */
#define VMI_PH_STEP_FILTER 0x9 /* seccomp filter */
#define VMI_PH_STEP_CPUID 0xa /* room for what cpuid gives */

/* struct vmi_ph_slot */
#define VMI_SIZE_PH_SLOT 16
#define VMI_OFF_PH_SLOT_GPA 0
#define VMI_OFF_PH_SLOT_SIZE 8

/* struct vmi_ph_segment */
#define VMI_SIZE_PH_SEGMENT 24
#define VMI_OFF_PH_SEGMENT_ADDR 0
#define VMI_OFF_PH_SEGMENT_GPA 8
#define VMI_OFF_PH_SEGMENT_SIZE 16

/* struct vmi_ph_device */
#define VMI_SIZE_PH_DEVICE 64
#define VMI_OFF_PH_DEVICE_NOTIFY 0
#define VMI_OFF_PH_DEVICE_SLEEPING 4
#define VMI_OFF_PH_DEVICE_ROUTE 8
#define VMI_OFF_PH_DEVICE_RAISED 12
#define VMI_OFF_PH_DEVICE_RESERVED 16

/* struct vmi_ph_request */
#define VMI_SIZE_PH_REQUEST 64
#define VMI_OFF_PH_REQUEST_STATE 0
#define VMI_OFF_PH_REQUEST_DEVICE 4
#define VMI_OFF_PH_REQUEST_OFFSET 8
#define VMI_OFF_PH_REQUEST_WIDTH 12
#define VMI_OFF_PH_REQUEST_VALUE 16
#define VMI_OFF_PH_REQUEST_RESERVED 24

/* struct vmi_ph_event */
#define VMI_SIZE_PH_EVENT 32
#define VMI_OFF_PH_EVENT_TSC 0
#define VMI_OFF_PH_EVENT_KIND 8
#define VMI_OFF_PH_EVENT_A 16
#define VMI_OFF_PH_EVENT_B 24

/* struct vmi_ph_debug */
#define VMI_SIZE_PH_DEBUG 1024
#define VMI_OFF_PH_DEBUG_STATE 0
#define VMI_OFF_PH_DEBUG_REASON 4
#define VMI_OFF_PH_DEBUG_COMMAND 8
#define VMI_OFF_PH_DEBUG_PAD 12
#define VMI_OFF_PH_DEBUG_GPR 16
#define VMI_OFF_PH_DEBUG_RIP 144
#define VMI_OFF_PH_DEBUG_RFLAGS 152
#define VMI_OFF_PH_DEBUG_CS 160
#define VMI_OFF_PH_DEBUG_SS 164
#define VMI_OFF_PH_DEBUG_FS_BASE 168
#define VMI_OFF_PH_DEBUG_GS_BASE 176
#define VMI_OFF_PH_DEBUG_CR2 184
#define VMI_OFF_PH_DEBUG_CR3 192
#define VMI_OFF_PH_DEBUG_KERNEL_ROOT 200
#define VMI_OFF_PH_DEBUG_RESERVED 208
#define VMI_OFF_PH_DEBUG_FXSAVE 512

/* struct vmi_ph_message */
#define VMI_SIZE_PH_MESSAGE 16
#define VMI_OFF_PH_MESSAGE_OP 0
#define VMI_OFF_PH_MESSAGE_INDEX 4
#define VMI_OFF_PH_MESSAGE_PID 8
#define VMI_OFF_PH_MESSAGE_VALUE 12

/* struct vmi_ph_clock */
#define VMI_SIZE_PH_CLOCK 40
#define VMI_OFF_PH_CLOCK_SEQUENCE 0
#define VMI_OFF_PH_CLOCK_SHIFT 4
#define VMI_OFF_PH_CLOCK_TSC 8
#define VMI_OFF_PH_CLOCK_NS 16
#define VMI_OFF_PH_CLOCK_MULT 24
#define VMI_OFF_PH_CLOCK_TSC_HZ 32

/* struct vmi_ph_shared */
#define VMI_SIZE_PH_SHARED 2048
#define VMI_OFF_PH_SHARED_MAGIC 0
#define VMI_OFF_PH_SHARED_VCPU_COUNT 4
#define VMI_OFF_PH_SHARED_SLOT_COUNT 8
#define VMI_OFF_PH_SHARED_SEGMENT_COUNT 12
#define VMI_OFF_PH_SHARED_FILTER_LENGTH 16
#define VMI_OFF_PH_SHARED_PROC_LIMIT 20
#define VMI_OFF_PH_SHARED_FLAGS 24
#define VMI_OFF_PH_SHARED_MAX_MAPS 28
#define VMI_OFF_PH_SHARED_DOORBELL 32
#define VMI_OFF_PH_SHARED_VM_STATE 36
#define VMI_OFF_PH_SHARED_VM_STATUS 40
#define VMI_OFF_PH_SHARED_PROC_COUNT 44
#define VMI_OFF_PH_SHARED_PROC_WANTED 48
#define VMI_OFF_PH_SHARED_CONSOLE_HEAD 52
#define VMI_OFF_PH_SHARED_CONSOLE_TAIL 56
#define VMI_OFF_PH_SHARED_ALARM_WORD 60
#define VMI_OFF_PH_SHARED_ALARM_NEXT_NS 64
#define VMI_OFF_PH_SHARED_WALL_OFFSET_NS 72
#define VMI_OFF_PH_SHARED_WALL_UPDATES 80
#define VMI_OFF_PH_SHARED_CPUID_FAULTING 84
#define VMI_OFF_PH_SHARED_BOOT_INFO 88
#define VMI_OFF_PH_SHARED_KERNEL_ENTRY 96
#define VMI_OFF_PH_SHARED_BOOT_STACK 104
#define VMI_OFF_PH_SHARED_CLOCK 112
#define VMI_OFF_PH_SHARED_SLOTS 152
#define VMI_OFF_PH_SHARED_SEGMENTS 408
#define VMI_OFF_PH_SHARED_VCPU_CPU 600
#define VMI_OFF_PH_SHARED_MESSAGE 856
#define VMI_OFF_PH_SHARED_DEVICE_GPA 1112
#define VMI_OFF_PH_SHARED_DEVICE_COUNT 1120
#define VMI_OFF_PH_SHARED_DEVICE_PAD 1124
#define VMI_OFF_PH_SHARED_POOL_CHUNKS 1128
#define VMI_OFF_PH_SHARED_MAPS_ALL 1132
#define VMI_OFF_PH_SHARED_DEBUG_ON 1136
#define VMI_OFF_PH_SHARED_DEBUG_PAD 1140
#define VMI_OFF_PH_SHARED_KICK_WANTED 1144
#define VMI_OFF_PH_SHARED_KICK_SLEEPING 1152
#define VMI_OFF_PH_SHARED_KICK_ROUNDS 1156
#define VMI_OFF_PH_SHARED_RESERVED 1160

/* struct vmi_ph_vcpu */
#define VMI_SIZE_PH_VCPU 256
#define VMI_OFF_PH_VCPU_PENDING 0
#define VMI_OFF_PH_VCPU_IRQ_FLAG 4
#define VMI_OFF_PH_VCPU_STATE 8
#define VMI_OFF_PH_VCPU_WAIT_WORD 12
#define VMI_OFF_PH_VCPU_OWNER 16
#define VMI_OFF_PH_VCPU_DEADLINE_NS 24
#define VMI_OFF_PH_VCPU_IRR 32
#define VMI_OFF_PH_VCPU_KICK 64
#define VMI_OFF_PH_VCPU_PROC 68
#define VMI_OFF_PH_VCPU_STOLEN_NS 72
#define VMI_OFF_PH_VCPU_FAULTS_HIDDEN 80
#define VMI_OFF_PH_VCPU_FAULTS_INJECTED 88
#define VMI_OFF_PH_VCPU_FILLS 96
#define VMI_OFF_PH_VCPU_FLUSHES 104
#define VMI_OFF_PH_VCPU_SWITCHES 112
#define VMI_OFF_PH_VCPU_RESYNCS 120
#define VMI_OFF_PH_VCPU_SYSCALLS_TRAPPED 128
#define VMI_OFF_PH_VCPU_INTERRUPTS 136
#define VMI_OFF_PH_VCPU_KICKS_SENT 144
#define VMI_OFF_PH_VCPU_HALTS 152
#define VMI_OFF_PH_VCPU_HOST_CALLS 160
#define VMI_OFF_PH_VCPU_EVENTS 168
#define VMI_OFF_PH_VCPU_EVENTS_PAD 172
#define VMI_OFF_PH_VCPU_RESERVED 176

/* struct vmi_ph_proc */
#define VMI_SIZE_PH_PROC 576
#define VMI_OFF_PH_PROC_STATE 0
#define VMI_OFF_PH_PROC_PID 4
#define VMI_OFF_PH_PROC_CR3 8
#define VMI_OFF_PH_PROC_CONTEXT 16
#define VMI_OFF_PH_PROC_GENERATION 24
#define VMI_OFF_PH_PROC_MAPPINGS 32
#define VMI_OFF_PH_PROC_RESERVED 36
#define VMI_OFF_PH_PROC_WAKE 64
#define VMI_OFF_PH_PROC_TID 320

#ifndef __ASSEMBLER__

/* RAM slot: guest-physical range and where it comes from; ascending, without gaps between slots */
struct vmi_ph_slot {
	__u64 gpa; /* first address, a multiple of 2 MiB */
	__u64 size; /* bytes, a multiple of 2 MiB; offset 0 of the slot's memfd */
};
_Static_assert(sizeof(struct vmi_ph_slot) == VMI_SIZE_PH_SLOT, "vmi_ph_slot");
_Static_assert(offsetof(struct vmi_ph_slot, gpa) == VMI_OFF_PH_SLOT_GPA, "vmi_ph_slot.gpa");
_Static_assert(offsetof(struct vmi_ph_slot, size) == VMI_OFF_PH_SLOT_SIZE, "vmi_ph_slot.size");

/* Part of the kernel image: a linear range in the hole that shows guest-physical memory */
struct vmi_ph_segment {
	__u64 addr; /* linear address, page-aligned */
	__u64 gpa; /* guest-physical address, page-aligned */
	__u64 size; /* bytes, page-aligned */
};
_Static_assert(sizeof(struct vmi_ph_segment) == VMI_SIZE_PH_SEGMENT, "vmi_ph_segment");
_Static_assert(offsetof(struct vmi_ph_segment, addr) == VMI_OFF_PH_SEGMENT_ADDR, "vmi_ph_segment.addr");
_Static_assert(offsetof(struct vmi_ph_segment, gpa) == VMI_OFF_PH_SEGMENT_GPA, "vmi_ph_segment.gpa");
_Static_assert(offsetof(struct vmi_ph_segment, size) == VMI_OFF_PH_SEGMENT_SIZE, "vmi_ph_segment.size");

/* A device: what passes between the layer, the device's thread in the monitor, and whoever interrupts */
struct vmi_ph_device {
	__u32 notify; /* bit n: queue n was notified; VMI_PH_NOTIFY_*. Set with an atomic or, taken by the device's thread; futex that it sleeps on while it is 0 */
	__u32 sleeping; /* 1: the device's thread sleeps, or is about to: who sets a bit wakes it. Written by it before it looks at notify the last time */
	__u32 route; /* (layer) of its line: APIC id << 8 | vector; vector 0: masked */
	__u32 raised; /* 1: the line was signalled while masked */
	__u32 reserved[12]; /* zero */
};
_Static_assert(sizeof(struct vmi_ph_device) == VMI_SIZE_PH_DEVICE, "vmi_ph_device");
_Static_assert(offsetof(struct vmi_ph_device, notify) == VMI_OFF_PH_DEVICE_NOTIFY, "vmi_ph_device.notify");
_Static_assert(offsetof(struct vmi_ph_device, sleeping) == VMI_OFF_PH_DEVICE_SLEEPING, "vmi_ph_device.sleeping");
_Static_assert(offsetof(struct vmi_ph_device, route) == VMI_OFF_PH_DEVICE_ROUTE, "vmi_ph_device.route");
_Static_assert(offsetof(struct vmi_ph_device, raised) == VMI_OFF_PH_DEVICE_RAISED, "vmi_ph_device.raised");
_Static_assert(offsetof(struct vmi_ph_device, reserved) == VMI_OFF_PH_DEVICE_RESERVED, "vmi_ph_device.reserved");

/* A write to a device register that changes others: a vCPU waits until the device's thread has done it */
struct vmi_ph_request {
	__u32 state; /* VMI_PH_REQUEST_*; futex that the vCPU waits on */
	__u32 device; /* number */
	__u32 offset; /* in its register page */
	__u32 width; /* bytes: 1, 2, 4 or 8 */
	__u64 value; /* what is written */
	__u32 reserved[10]; /* zero */
};
_Static_assert(sizeof(struct vmi_ph_request) == VMI_SIZE_PH_REQUEST, "vmi_ph_request");
_Static_assert(offsetof(struct vmi_ph_request, state) == VMI_OFF_PH_REQUEST_STATE, "vmi_ph_request.state");
_Static_assert(offsetof(struct vmi_ph_request, device) == VMI_OFF_PH_REQUEST_DEVICE, "vmi_ph_request.device");
_Static_assert(offsetof(struct vmi_ph_request, offset) == VMI_OFF_PH_REQUEST_OFFSET, "vmi_ph_request.offset");
_Static_assert(offsetof(struct vmi_ph_request, width) == VMI_OFF_PH_REQUEST_WIDTH, "vmi_ph_request.width");
_Static_assert(offsetof(struct vmi_ph_request, value) == VMI_OFF_PH_REQUEST_VALUE, "vmi_ph_request.value");
_Static_assert(offsetof(struct vmi_ph_request, reserved) == VMI_OFF_PH_REQUEST_RESERVED, "vmi_ph_request.reserved");

/* Something that the layer did; written by the thread that is the vCPU */
struct vmi_ph_event {
	__u64 tsc; /* time-stamp counter */
	__u64 kind; /* VMI_PH_EVENT_* */
	__u64 a; /* first word */
	__u64 b; /* second word */
};
_Static_assert(sizeof(struct vmi_ph_event) == VMI_SIZE_PH_EVENT, "vmi_ph_event");
_Static_assert(offsetof(struct vmi_ph_event, tsc) == VMI_OFF_PH_EVENT_TSC, "vmi_ph_event.tsc");
_Static_assert(offsetof(struct vmi_ph_event, kind) == VMI_OFF_PH_EVENT_KIND, "vmi_ph_event.kind");
_Static_assert(offsetof(struct vmi_ph_event, a) == VMI_OFF_PH_EVENT_A, "vmi_ph_event.a");
_Static_assert(offsetof(struct vmi_ph_event, b) == VMI_OFF_PH_EVENT_B, "vmi_ph_event.b");

/* A vCPU that is stopped, as the debugger in the monitor sees and changes it */
struct vmi_ph_debug {
	__u32 state; /* (layer) VMI_PH_DEBUG_* */
	__u32 reason; /* (layer) VMI_PH_STOP_* */
	__u32 command; /* VMI_PH_COMMAND_*, taken by the layer; then wait_word of the vCPU is counted up */
	__u32 pad; /* zero */
	__u64 gpr[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8 to r15 */
	__u64 rip; /* instruction pointer */
	__u64 rflags; /* flags, IF is the virtual interrupt flag */
	__u32 cs; /* (layer) the guest's selector */
	__u32 ss; /* (layer) the guest's selector */
	__u64 fs_base; /* (layer) */
	__u64 gs_base; /* (layer) */
	__u64 cr2; /* (layer) */
	__u64 cr3; /* (layer) root of the tables that user addresses are looked up in */
	__u64 kernel_root; /* (layer) the same for kernel addresses, 0: cr3 */
	__u64 reserved[38]; /* zero */
	__u8 fxsave[512]; /* (layer) x87 and SSE registers, as fxsave has them */
};
_Static_assert(sizeof(struct vmi_ph_debug) == VMI_SIZE_PH_DEBUG, "vmi_ph_debug");
_Static_assert(offsetof(struct vmi_ph_debug, state) == VMI_OFF_PH_DEBUG_STATE, "vmi_ph_debug.state");
_Static_assert(offsetof(struct vmi_ph_debug, reason) == VMI_OFF_PH_DEBUG_REASON, "vmi_ph_debug.reason");
_Static_assert(offsetof(struct vmi_ph_debug, command) == VMI_OFF_PH_DEBUG_COMMAND, "vmi_ph_debug.command");
_Static_assert(offsetof(struct vmi_ph_debug, pad) == VMI_OFF_PH_DEBUG_PAD, "vmi_ph_debug.pad");
_Static_assert(offsetof(struct vmi_ph_debug, gpr) == VMI_OFF_PH_DEBUG_GPR, "vmi_ph_debug.gpr");
_Static_assert(offsetof(struct vmi_ph_debug, rip) == VMI_OFF_PH_DEBUG_RIP, "vmi_ph_debug.rip");
_Static_assert(offsetof(struct vmi_ph_debug, rflags) == VMI_OFF_PH_DEBUG_RFLAGS, "vmi_ph_debug.rflags");
_Static_assert(offsetof(struct vmi_ph_debug, cs) == VMI_OFF_PH_DEBUG_CS, "vmi_ph_debug.cs");
_Static_assert(offsetof(struct vmi_ph_debug, ss) == VMI_OFF_PH_DEBUG_SS, "vmi_ph_debug.ss");
_Static_assert(offsetof(struct vmi_ph_debug, fs_base) == VMI_OFF_PH_DEBUG_FS_BASE, "vmi_ph_debug.fs_base");
_Static_assert(offsetof(struct vmi_ph_debug, gs_base) == VMI_OFF_PH_DEBUG_GS_BASE, "vmi_ph_debug.gs_base");
_Static_assert(offsetof(struct vmi_ph_debug, cr2) == VMI_OFF_PH_DEBUG_CR2, "vmi_ph_debug.cr2");
_Static_assert(offsetof(struct vmi_ph_debug, cr3) == VMI_OFF_PH_DEBUG_CR3, "vmi_ph_debug.cr3");
_Static_assert(offsetof(struct vmi_ph_debug, kernel_root) == VMI_OFF_PH_DEBUG_KERNEL_ROOT, "vmi_ph_debug.kernel_root");
_Static_assert(offsetof(struct vmi_ph_debug, reserved) == VMI_OFF_PH_DEBUG_RESERVED, "vmi_ph_debug.reserved");
_Static_assert(offsetof(struct vmi_ph_debug, fxsave) == VMI_OFF_PH_DEBUG_FXSAVE, "vmi_ph_debug.fxsave");

/* Control message */
struct vmi_ph_message {
	__u32 op; /* VMI_PH_OP_* */
	__u32 index; /* process or step */
	__u32 pid; /* process id */
	__u32 value; /* wait status or errno */
};
_Static_assert(sizeof(struct vmi_ph_message) == VMI_SIZE_PH_MESSAGE, "vmi_ph_message");
_Static_assert(offsetof(struct vmi_ph_message, op) == VMI_OFF_PH_MESSAGE_OP, "vmi_ph_message.op");
_Static_assert(offsetof(struct vmi_ph_message, index) == VMI_OFF_PH_MESSAGE_INDEX, "vmi_ph_message.index");
_Static_assert(offsetof(struct vmi_ph_message, pid) == VMI_OFF_PH_MESSAGE_PID, "vmi_ph_message.pid");
_Static_assert(offsetof(struct vmi_ph_message, value) == VMI_OFF_PH_MESSAGE_VALUE, "vmi_ph_message.value");

/* Turns the time-stamp counter into the host's CLOCK_MONOTONIC; written by the monitor */
struct vmi_ph_clock {
	__u32 sequence; /* odd while being written */
	__u32 shift; /* 0 to 63 */
	__u64 tsc; /* counter value */
	__u64 ns; /* CLOCK_MONOTONIC at it */
	__u64 mult; /* ns + ((counter - tsc) * mult >> shift), 128-bit product */
	__u64 tsc_hz; /* frequency */
};
_Static_assert(sizeof(struct vmi_ph_clock) == VMI_SIZE_PH_CLOCK, "vmi_ph_clock");
_Static_assert(offsetof(struct vmi_ph_clock, sequence) == VMI_OFF_PH_CLOCK_SEQUENCE, "vmi_ph_clock.sequence");
_Static_assert(offsetof(struct vmi_ph_clock, shift) == VMI_OFF_PH_CLOCK_SHIFT, "vmi_ph_clock.shift");
_Static_assert(offsetof(struct vmi_ph_clock, tsc) == VMI_OFF_PH_CLOCK_TSC, "vmi_ph_clock.tsc");
_Static_assert(offsetof(struct vmi_ph_clock, ns) == VMI_OFF_PH_CLOCK_NS, "vmi_ph_clock.ns");
_Static_assert(offsetof(struct vmi_ph_clock, mult) == VMI_OFF_PH_CLOCK_MULT, "vmi_ph_clock.mult");
_Static_assert(offsetof(struct vmi_ph_clock, tsc_hz) == VMI_OFF_PH_CLOCK_TSC_HZ, "vmi_ph_clock.tsc_hz");

/* First page of the shared area. The monitor fills it before the layer starts; later it writes the clock and reads what is marked (layer) */
struct vmi_ph_shared {
	__u32 magic; /* VMI_PH_MAGIC */
	__u32 vcpu_count; /* vCPUs */
	__u32 slot_count; /* RAM slots */
	__u32 segment_count; /* parts of the kernel image, at most 8 */
	__u32 filter_length; /* instructions of the seccomp filter, at least 1; copied by the zygote before guest code exists, like everything that a process is made by */
	__u32 proc_limit; /* processes that may exist; at least vcpu_count + 1 */
	__u32 flags; /* VMI_PH_FLAG_* */
	__u32 max_maps; /* mappings that one process may have, from vm.max_map_count */
	__u32 doorbell; /* (layer) futex that the monitor waits on: one more for each thing to look at */
	__u32 vm_state; /* (layer) VMI_PH_VM_* */
	__u32 vm_status; /* (layer) see vm_state */
	__u32 proc_count; /* processes 0 to proc_count - 1 have been made; only the monitor writes it */
	__u32 proc_wanted; /* (layer) processes that the layer would like to have; the monitor decides */
	__u32 console_head; /* (layer) bytes ever written to the console ring, modulo 2^32 */
	__u32 console_tail; /* bytes ever taken from it by the monitor; futex that a full writer waits on */
	__u32 alarm_word; /* (layer) futex that the monitor's alarm thread waits on: one more when an earlier deadline appears */
	__u64 alarm_next_ns; /* CLOCK_MONOTONIC moment that the alarm thread sleeps to; written by it; all ones: none */
	__u64 wall_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC; written by the monitor */
	__u32 wall_updates; /* one more for each jump of it */
	__u32 cpuid_faulting; /* 1: the host can make cpuid fault (arch_prctl) */
	__u64 boot_info; /* linear address of struct vmi_boot_info */
	__u64 kernel_entry; /* linear address of the kernel's VMI entry, relocated */
	__u64 boot_stack; /* linear address of the top of the boot stack */
	struct vmi_ph_clock clock; /* time */
	struct vmi_ph_slot slots[16]; /* RAM */
	struct vmi_ph_segment segments[8]; /* kernel image */
	__u32 vcpu_cpu[64]; /* host CPU on which the threads of a vCPU are to run; all ones: any */
	__u8 message[256]; /* (layer) text for vm_state VMI_PH_VM_FATAL, ends with a zero byte */
	__u64 device_gpa; /* guest-physical address of device 0's register page; the others follow. Behind all RAM */
	__u32 device_count; /* devices */
	__u32 device_pad; /* zero */
	__u32 pool_chunks; /* pieces that the pool has */
	__u32 maps_all; /* mappings that all processes together should not exceed; each may have VMI_PH_MAPS_SURE anyway */
	__u32 debug_on; /* 1: a debugger is attached; breakpoints stop the vCPU */
	__u32 debug_pad; /* zero */
	__u64 kick_wanted; /* (layer) bit n: vCPU n is to be made to look, see VMI_PH_FLAG_ASK. Set with an atomic or, taken by the monitor */
	__u32 kick_sleeping; /* 1: the monitor's thread for that sleeps, or is about to: who sets a bit makes this 0 and wakes it. Futex */
	__u32 kick_rounds; /* one more when the monitor has sent what it took; futex that who wants a kick waits on */
	__u8 reserved[888]; /* zero */
};
_Static_assert(sizeof(struct vmi_ph_shared) == VMI_SIZE_PH_SHARED, "vmi_ph_shared");
_Static_assert(offsetof(struct vmi_ph_shared, magic) == VMI_OFF_PH_SHARED_MAGIC, "vmi_ph_shared.magic");
_Static_assert(offsetof(struct vmi_ph_shared, vcpu_count) == VMI_OFF_PH_SHARED_VCPU_COUNT, "vmi_ph_shared.vcpu_count");
_Static_assert(offsetof(struct vmi_ph_shared, slot_count) == VMI_OFF_PH_SHARED_SLOT_COUNT, "vmi_ph_shared.slot_count");
_Static_assert(offsetof(struct vmi_ph_shared, segment_count) == VMI_OFF_PH_SHARED_SEGMENT_COUNT, "vmi_ph_shared.segment_count");
_Static_assert(offsetof(struct vmi_ph_shared, filter_length) == VMI_OFF_PH_SHARED_FILTER_LENGTH, "vmi_ph_shared.filter_length");
_Static_assert(offsetof(struct vmi_ph_shared, proc_limit) == VMI_OFF_PH_SHARED_PROC_LIMIT, "vmi_ph_shared.proc_limit");
_Static_assert(offsetof(struct vmi_ph_shared, flags) == VMI_OFF_PH_SHARED_FLAGS, "vmi_ph_shared.flags");
_Static_assert(offsetof(struct vmi_ph_shared, max_maps) == VMI_OFF_PH_SHARED_MAX_MAPS, "vmi_ph_shared.max_maps");
_Static_assert(offsetof(struct vmi_ph_shared, doorbell) == VMI_OFF_PH_SHARED_DOORBELL, "vmi_ph_shared.doorbell");
_Static_assert(offsetof(struct vmi_ph_shared, vm_state) == VMI_OFF_PH_SHARED_VM_STATE, "vmi_ph_shared.vm_state");
_Static_assert(offsetof(struct vmi_ph_shared, vm_status) == VMI_OFF_PH_SHARED_VM_STATUS, "vmi_ph_shared.vm_status");
_Static_assert(offsetof(struct vmi_ph_shared, proc_count) == VMI_OFF_PH_SHARED_PROC_COUNT, "vmi_ph_shared.proc_count");
_Static_assert(offsetof(struct vmi_ph_shared, proc_wanted) == VMI_OFF_PH_SHARED_PROC_WANTED, "vmi_ph_shared.proc_wanted");
_Static_assert(offsetof(struct vmi_ph_shared, console_head) == VMI_OFF_PH_SHARED_CONSOLE_HEAD, "vmi_ph_shared.console_head");
_Static_assert(offsetof(struct vmi_ph_shared, console_tail) == VMI_OFF_PH_SHARED_CONSOLE_TAIL, "vmi_ph_shared.console_tail");
_Static_assert(offsetof(struct vmi_ph_shared, alarm_word) == VMI_OFF_PH_SHARED_ALARM_WORD, "vmi_ph_shared.alarm_word");
_Static_assert(offsetof(struct vmi_ph_shared, alarm_next_ns) == VMI_OFF_PH_SHARED_ALARM_NEXT_NS, "vmi_ph_shared.alarm_next_ns");
_Static_assert(offsetof(struct vmi_ph_shared, wall_offset_ns) == VMI_OFF_PH_SHARED_WALL_OFFSET_NS, "vmi_ph_shared.wall_offset_ns");
_Static_assert(offsetof(struct vmi_ph_shared, wall_updates) == VMI_OFF_PH_SHARED_WALL_UPDATES, "vmi_ph_shared.wall_updates");
_Static_assert(offsetof(struct vmi_ph_shared, cpuid_faulting) == VMI_OFF_PH_SHARED_CPUID_FAULTING, "vmi_ph_shared.cpuid_faulting");
_Static_assert(offsetof(struct vmi_ph_shared, boot_info) == VMI_OFF_PH_SHARED_BOOT_INFO, "vmi_ph_shared.boot_info");
_Static_assert(offsetof(struct vmi_ph_shared, kernel_entry) == VMI_OFF_PH_SHARED_KERNEL_ENTRY, "vmi_ph_shared.kernel_entry");
_Static_assert(offsetof(struct vmi_ph_shared, boot_stack) == VMI_OFF_PH_SHARED_BOOT_STACK, "vmi_ph_shared.boot_stack");
_Static_assert(offsetof(struct vmi_ph_shared, clock) == VMI_OFF_PH_SHARED_CLOCK, "vmi_ph_shared.clock");
_Static_assert(offsetof(struct vmi_ph_shared, slots) == VMI_OFF_PH_SHARED_SLOTS, "vmi_ph_shared.slots");
_Static_assert(offsetof(struct vmi_ph_shared, segments) == VMI_OFF_PH_SHARED_SEGMENTS, "vmi_ph_shared.segments");
_Static_assert(offsetof(struct vmi_ph_shared, vcpu_cpu) == VMI_OFF_PH_SHARED_VCPU_CPU, "vmi_ph_shared.vcpu_cpu");
_Static_assert(offsetof(struct vmi_ph_shared, message) == VMI_OFF_PH_SHARED_MESSAGE, "vmi_ph_shared.message");
_Static_assert(offsetof(struct vmi_ph_shared, device_gpa) == VMI_OFF_PH_SHARED_DEVICE_GPA, "vmi_ph_shared.device_gpa");
_Static_assert(offsetof(struct vmi_ph_shared, device_count) == VMI_OFF_PH_SHARED_DEVICE_COUNT, "vmi_ph_shared.device_count");
_Static_assert(offsetof(struct vmi_ph_shared, device_pad) == VMI_OFF_PH_SHARED_DEVICE_PAD, "vmi_ph_shared.device_pad");
_Static_assert(offsetof(struct vmi_ph_shared, pool_chunks) == VMI_OFF_PH_SHARED_POOL_CHUNKS, "vmi_ph_shared.pool_chunks");
_Static_assert(offsetof(struct vmi_ph_shared, maps_all) == VMI_OFF_PH_SHARED_MAPS_ALL, "vmi_ph_shared.maps_all");
_Static_assert(offsetof(struct vmi_ph_shared, debug_on) == VMI_OFF_PH_SHARED_DEBUG_ON, "vmi_ph_shared.debug_on");
_Static_assert(offsetof(struct vmi_ph_shared, debug_pad) == VMI_OFF_PH_SHARED_DEBUG_PAD, "vmi_ph_shared.debug_pad");
_Static_assert(offsetof(struct vmi_ph_shared, kick_wanted) == VMI_OFF_PH_SHARED_KICK_WANTED, "vmi_ph_shared.kick_wanted");
_Static_assert(offsetof(struct vmi_ph_shared, kick_sleeping) == VMI_OFF_PH_SHARED_KICK_SLEEPING, "vmi_ph_shared.kick_sleeping");
_Static_assert(offsetof(struct vmi_ph_shared, kick_rounds) == VMI_OFF_PH_SHARED_KICK_ROUNDS, "vmi_ph_shared.kick_rounds");
_Static_assert(offsetof(struct vmi_ph_shared, reserved) == VMI_OFF_PH_SHARED_RESERVED, "vmi_ph_shared.reserved");

/* A vCPU, as far as the monitor looks at it */
struct vmi_ph_vcpu {
	__u32 pending; /* VMI_PH_PENDING_*; set with an atomic or */
	__u32 irq_flag; /* virtual interrupt flag, 0 or 1 */
	__u32 state; /* VMI_PH_VCPU_* */
	__u32 wait_word; /* futex that a halted vCPU waits on: one more wakes it */
	__u64 owner; /* pid << 32 | tid of the thread that is the vCPU */
	__u64 deadline_ns; /* CLOCK_MONOTONIC of the next alarm, all ones: none */
	__u64 irr[4]; /* interrupt vectors that are requested */
	__u32 kick; /* pending bit of lock.kick */
	__u32 proc; /* process whose thread is the vCPU */
	__u64 stolen_ns; /* stolen time so far */
	__u64 faults_hidden; /* count */
	__u64 faults_injected; /* count */
	__u64 fills; /* pages mapped */
	__u64 flushes; /* count */
	__u64 switches; /* hand-overs to another process */
	__u64 resyncs; /* loads of a space that had changed */
	__u64 syscalls_trapped; /* count */
	__u64 interrupts; /* delivered */
	__u64 kicks_sent; /* signals to other vCPUs */
	__u64 halts; /* waits */
	__u64 host_calls; /* host system calls */
	__u32 events; /* events so far, modulo 2^32: the next one goes to this modulo VMI_PH_EVENTS */
	__u32 events_pad; /* zero */
	__u8 reserved[80]; /* zero */
};
_Static_assert(sizeof(struct vmi_ph_vcpu) == VMI_SIZE_PH_VCPU, "vmi_ph_vcpu");
_Static_assert(offsetof(struct vmi_ph_vcpu, pending) == VMI_OFF_PH_VCPU_PENDING, "vmi_ph_vcpu.pending");
_Static_assert(offsetof(struct vmi_ph_vcpu, irq_flag) == VMI_OFF_PH_VCPU_IRQ_FLAG, "vmi_ph_vcpu.irq_flag");
_Static_assert(offsetof(struct vmi_ph_vcpu, state) == VMI_OFF_PH_VCPU_STATE, "vmi_ph_vcpu.state");
_Static_assert(offsetof(struct vmi_ph_vcpu, wait_word) == VMI_OFF_PH_VCPU_WAIT_WORD, "vmi_ph_vcpu.wait_word");
_Static_assert(offsetof(struct vmi_ph_vcpu, owner) == VMI_OFF_PH_VCPU_OWNER, "vmi_ph_vcpu.owner");
_Static_assert(offsetof(struct vmi_ph_vcpu, deadline_ns) == VMI_OFF_PH_VCPU_DEADLINE_NS, "vmi_ph_vcpu.deadline_ns");
_Static_assert(offsetof(struct vmi_ph_vcpu, irr) == VMI_OFF_PH_VCPU_IRR, "vmi_ph_vcpu.irr");
_Static_assert(offsetof(struct vmi_ph_vcpu, kick) == VMI_OFF_PH_VCPU_KICK, "vmi_ph_vcpu.kick");
_Static_assert(offsetof(struct vmi_ph_vcpu, proc) == VMI_OFF_PH_VCPU_PROC, "vmi_ph_vcpu.proc");
_Static_assert(offsetof(struct vmi_ph_vcpu, stolen_ns) == VMI_OFF_PH_VCPU_STOLEN_NS, "vmi_ph_vcpu.stolen_ns");
_Static_assert(offsetof(struct vmi_ph_vcpu, faults_hidden) == VMI_OFF_PH_VCPU_FAULTS_HIDDEN, "vmi_ph_vcpu.faults_hidden");
_Static_assert(offsetof(struct vmi_ph_vcpu, faults_injected) == VMI_OFF_PH_VCPU_FAULTS_INJECTED, "vmi_ph_vcpu.faults_injected");
_Static_assert(offsetof(struct vmi_ph_vcpu, fills) == VMI_OFF_PH_VCPU_FILLS, "vmi_ph_vcpu.fills");
_Static_assert(offsetof(struct vmi_ph_vcpu, flushes) == VMI_OFF_PH_VCPU_FLUSHES, "vmi_ph_vcpu.flushes");
_Static_assert(offsetof(struct vmi_ph_vcpu, switches) == VMI_OFF_PH_VCPU_SWITCHES, "vmi_ph_vcpu.switches");
_Static_assert(offsetof(struct vmi_ph_vcpu, resyncs) == VMI_OFF_PH_VCPU_RESYNCS, "vmi_ph_vcpu.resyncs");
_Static_assert(offsetof(struct vmi_ph_vcpu, syscalls_trapped) == VMI_OFF_PH_VCPU_SYSCALLS_TRAPPED, "vmi_ph_vcpu.syscalls_trapped");
_Static_assert(offsetof(struct vmi_ph_vcpu, interrupts) == VMI_OFF_PH_VCPU_INTERRUPTS, "vmi_ph_vcpu.interrupts");
_Static_assert(offsetof(struct vmi_ph_vcpu, kicks_sent) == VMI_OFF_PH_VCPU_KICKS_SENT, "vmi_ph_vcpu.kicks_sent");
_Static_assert(offsetof(struct vmi_ph_vcpu, halts) == VMI_OFF_PH_VCPU_HALTS, "vmi_ph_vcpu.halts");
_Static_assert(offsetof(struct vmi_ph_vcpu, host_calls) == VMI_OFF_PH_VCPU_HOST_CALLS, "vmi_ph_vcpu.host_calls");
_Static_assert(offsetof(struct vmi_ph_vcpu, events) == VMI_OFF_PH_VCPU_EVENTS, "vmi_ph_vcpu.events");
_Static_assert(offsetof(struct vmi_ph_vcpu, events_pad) == VMI_OFF_PH_VCPU_EVENTS_PAD, "vmi_ph_vcpu.events_pad");
_Static_assert(offsetof(struct vmi_ph_vcpu, reserved) == VMI_OFF_PH_VCPU_RESERVED, "vmi_ph_vcpu.reserved");

/* An address-space process */
struct vmi_ph_proc {
	__u32 state; /* VMI_PH_PROC_* */
	__u32 pid; /* process id */
	__u64 cr3; /* space that it belongs to */
	__u64 context; /* its context */
	__u64 generation; /* generation that its mappings are good for */
	__u32 mappings; /* estimate of its host mappings */
	__u32 reserved[7]; /* zero */
	__u32 wake[64]; /* futex of each vCPU's thread: 1 hands the vCPU over to it */
	__u32 tid[64]; /* thread ids */
};
_Static_assert(sizeof(struct vmi_ph_proc) == VMI_SIZE_PH_PROC, "vmi_ph_proc");
_Static_assert(offsetof(struct vmi_ph_proc, state) == VMI_OFF_PH_PROC_STATE, "vmi_ph_proc.state");
_Static_assert(offsetof(struct vmi_ph_proc, pid) == VMI_OFF_PH_PROC_PID, "vmi_ph_proc.pid");
_Static_assert(offsetof(struct vmi_ph_proc, cr3) == VMI_OFF_PH_PROC_CR3, "vmi_ph_proc.cr3");
_Static_assert(offsetof(struct vmi_ph_proc, context) == VMI_OFF_PH_PROC_CONTEXT, "vmi_ph_proc.context");
_Static_assert(offsetof(struct vmi_ph_proc, generation) == VMI_OFF_PH_PROC_GENERATION, "vmi_ph_proc.generation");
_Static_assert(offsetof(struct vmi_ph_proc, mappings) == VMI_OFF_PH_PROC_MAPPINGS, "vmi_ph_proc.mappings");
_Static_assert(offsetof(struct vmi_ph_proc, reserved) == VMI_OFF_PH_PROC_RESERVED, "vmi_ph_proc.reserved");
_Static_assert(offsetof(struct vmi_ph_proc, wake) == VMI_OFF_PH_PROC_WAKE, "vmi_ph_proc.wake");
_Static_assert(offsetof(struct vmi_ph_proc, tid) == VMI_OFF_PH_PROC_TID, "vmi_ph_proc.tid");

#endif /* __ASSEMBLER__ */
#endif /* PARAVANE_PROCESS_H */
