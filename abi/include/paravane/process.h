/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What the monitor and the process layer share. Made by tools/abigen from
 * abi/process.toml: change that, not this.
 */
#ifndef PARAVANE_PROCESS_H
#define PARAVANE_PROCESS_H

#include "vmi.h"


/* Linear addresses in an address-space process */
#define PHV_HOLE_START 0x70000000 /* first address of the hole in the guest's user range, for what the kernel maps near its image */
#define PHV_IMAGE_START 0x7a000000 /* start of the kernel file's image and the layer, which the guest may not map */
#define PHV_LAYER_BASE 0x7f000000 /* the layer's program, linked for this address */
#define PHV_HOLE_END 0x7fe00000 /* end of the hole, exclusive */
#define PHV_USER_START 0x10000 /* first address of the guest's user range */
#define PHV_DIRECT_MAP 0x7b0000000000 /* guest-physical 0, and the end of the user range, for a kernel with VMI_NOTE_COMPACT: 123 TiB */
#define PHV_DIRECT_MAP_SIZE 0x10000000000 /* the most RAM there, bytes: 1 TiB */
#define PHV_DIRECT_MAP_WIDE 0x400000000000 /* the same address for other kernels, and for more RAM: 64 TiB */
#define PHV_KERNEL_END 0x7e0000000000 /* end of what the guest kernel may map, exclusive */
#define PHV_SHARED 0x7e8000000000 /* the shared area. The areas below lie near it, since a distant one costs host page tables in each process */
#define PHV_DEVICES 0x7e8000500000 /* the layer's own view of the register pages of all devices, writable */
#define PHV_ARENA 0x7e8000400000 /* a process's own memory for its shadow, which it always has */
#define PHV_ARENA_SIZE 0x100000 /* bytes of the arena */
#define PHV_POOL 0x7e9100000000 /* further memory for shadows, which all processes of the machine share. It is part of the shared area's file, so hostile code cannot make it larger */
#define PHV_STACKS 0x7e8000580000 /* a process's own stacks, PHV_STACK_SIZE for each vCPU */
#define PHV_STACK_SIZE 0x20000 /* bytes for a vCPU's thread, aligned to their size: thread record, host stack, signal stack */

/* Descriptors of the layer's program when it starts */
#define PHV_FD_CONTROL 0x3 /* socket (SOCK_SEQPACKET) to the monitor; only the zygote keeps it */
#define PHV_FD_SHARED 0x4 /* memfd of the shared area; closed before guest code runs */
#define PHV_FD_RAM 0x5 /* memfd of RAM region 0; region n has PHV_FD_RAM + n. If there are devices, the memfd of their register pages follows */

/* Limits */
#define PHV_MAX_VCPUS 0x40 /* vCPUs of a virtual machine */
#define PHV_MAX_PROCS 0x400 /* address-space processes of a virtual machine */
#define PHV_MAPS_SURE 0x1000 /* mappings that each process may have, however many the others have */
#define PHV_MAX_REGIONS 0x10 /* RAM regions */
#define PHV_MAX_DEVICES 0x20 /* devices of a virtual machine; each has the interrupt line of its own number */
#define PHV_MAX_QUEUES 0x1e /* queues of a device */
#define PHV_POOL_CHUNK 0x40000 /* bytes of the pool that a process takes at a time */
#define PHV_POOL_CHUNKS 0x4000 /* largest number of such pieces */
#define PHV_CONSOLE_SIZE 0x10000 /* bytes of the console ring, a power of two */
#define PHV_FILTER_MAX 0x200 /* instructions of the seccomp filter */
#define PHV_EVENTS 0x20 /* events kept for each vCPU, a power of two */

/* Shared area: offsets of its parts */
#define PHV_MAGIC 0x31485056 /* value of phv_shared.magic */
#define PHV_SHARED_CONSOLE 0x10000 /* console ring */
#define PHV_SHARED_FILTER 0x20000 /* seccomp filter: array of struct sock_filter; read by the zygote before guest code exists */
#define PHV_SHARED_VCPUS 0x30000 /* vCPUs, PHV_VCPU_STRIDE each */
#define PHV_VCPU_STRIDE 0x8000 /* bytes for a vCPU: struct phv_vcpu, then the layer's own state */
#define PHV_SHARED_PROCS 0x230000 /* processes, PHV_PROC_STRIDE each */
#define PHV_PROC_STRIDE 0x400 /* bytes for a process: struct phv_proc, then the layer's own state */
#define PHV_SHARED_THUNKS 0x330000 /* the layer's entry points. They are mapped over its section .thunks in every process, since core.init edits them */
#define PHV_THUNKS_MAX 0x10000 /* largest size of them, bytes */
#define PHV_SHARED_DEVICES 0x340000 /* devices: PHV_MAX_DEVICES of struct phv_device */
#define PHV_SHARED_REQUESTS 0x341000 /* register writes: PHV_MAX_VCPUS of struct phv_request */
#define PHV_SHARED_EVENTS 0x342000 /* last events: PHV_EVENTS of struct phv_event for each vCPU */
#define PHV_SHARED_DEBUG 0x352000 /* registers of stopped vCPUs: PHV_MAX_VCPUS of struct phv_debug */
#define PHV_SHARED_SIZE 0x400000 /* bytes of the shared area. The pool follows in its file */

/* States of a virtual machine: phv_shared.vm_state */
#define PHV_VM_RUNNING 0x0 /* runs, or has not started yet */
#define PHV_VM_SHUTDOWN 0x1 /* the guest has shut down; vm_status is the exit code */
#define PHV_VM_REBOOT 0x2 /* the guest has asked for a restart; vm_status is VMI_REBOOT_* */
#define PHV_VM_FATAL 0x3 /* the layer cannot go on; message says why */

/* States of a vCPU: phv_vcpu.state */
#define PHV_VCPU_OFF 0x0 /* waits for STARTUP */
#define PHV_VCPU_RUNNING 0x1 /* runs, or wants to */
#define PHV_VCPU_HALTED 0x2 /* waits on wait_word */

/* Values of phv_shared.clock_wanted */
#define PHV_CLOCK_RIGHT 0x0 /* no vCPU waits */
#define PHV_CLOCK_WRONG 0x1 /* the clock may only be put forward */
#define PHV_CLOCK_WRONG_UNREAD 0x2 /* no vCPU has read the clock for 20 ms, nor does before the answer: it may also be put back by less than that */
#define PHV_CLOCK_CLAIMED 0x3 /* by the monitor, which corrects the clock: the vCPU can no longer take it back */

/* States of an address-space process: phv_proc.state */
#define PHV_PROC_NONE 0x0 /* does not exist */
#define PHV_PROC_FREE 0x1 /* parked, without a space */
#define PHV_PROC_SPACE 0x2 /* has a space */

/* Bits of phv_shared.flags */
#define PHV_FLAG_DEBUGGABLE 0x1 /* processes stay dumpable */
#define PHV_FLAG_ASK 0x2 /* processes may not send signals: a sender of a kick asks the monitor (kick_wanted) */
#define PHV_FLAG_NO_COSTS 0x4 /* core.costs returns zeros */
#define PHV_FLAG_NO_POLLS 0x8 /* no halt polling */
#define PHV_FLAG_NO_AROUND 0x10 /* a fault maps a single page */
#define PHV_FLAG_NO_SHORT_RUNS 0x20 /* mmu.fill of many entries leaves short runs of clean pages to faults */
#define PHV_FLAG_NO_TEXT_MATCH 0x40 /* the text of a new space does not decide which process it gets */
#define PHV_FLAG_NO_SPARES 0x80 /* the layer wants another process only when none is free */
#define PHV_FLAG_NO_KEEPING 0x100 /* a process that gets a new space drops what it has mapped, unless the kernel expects that the new space has it too */
#define PHV_FLAG_NO_REPLACING 0x200 /* a process unmaps what its new space has other pages for, and maps none of these */
#define PHV_FLAG_NO_EARLY_DROP 0x400 /* a large space that is released stays mapped until its process gets another one */
#define PHV_FLAG_NO_TRIM 0x800 /* idle processes keep their memory */
#define PHV_FLAG_NO_SPINS 0x1000 /* a waiter for a lock sleeps at once */
#define PHV_FLAG_NO_AGING 0x2000 /* accessed bits that the guest clears are not set again until a flush */

/* Bits of phv_vcpu.pending */
#define PHV_PENDING_IRQ 0x1 /* irr may have a vector */
#define PHV_PENDING_ALARM 0x2 /* deadline_ns has passed: the layer checks its alarms */
#define PHV_PENDING_NMI 0x4 /* a non-maskable interrupt */
#define PHV_PENDING_STOP 0x8 /* INIT: the vCPU stops */
#define PHV_PENDING_FLUSH 0x10 /* another vCPU waits for a flush of the space that this one has loaded */
#define PHV_PENDING_DEBUG 0x20 /* the vCPU stops for a debugger, see struct phv_debug */

/* Kinds of events (phv_event.kind), with the meaning of their two words */
#define PHV_EVENT_NONE 0x0 /* no event yet */
#define PHV_EVENT_SWITCH 0x1 /* hand-over to another process: CR3, process */
#define PHV_EVENT_FILL 0x2 /* hidden fault, page mapped: address, instruction pointer */
#define PHV_EVENT_FLUSH 0x3 /* flush: start, end */
#define PHV_EVENT_FAULT 0x4 /* guest page fault: address, error code */
#define PHV_EVENT_EXCEPTION 0x5 /* exception delivered: vector, instruction pointer */
#define PHV_EVENT_INTERRUPT 0x6 /* interrupt delivered: vector, instruction pointer */
#define PHV_EVENT_HALT 0x7 /* wait for an interrupt: deadline (ns of the clock), interrupt flag */
#define PHV_EVENT_WAKE 0x8 /* end of the wait: PHV_PENDING_*, 0 */
#define PHV_EVENT_KICK 0x9 /* kick of another vCPU: its number, its PHV_PENDING_* */
#define PHV_EVENT_SYSCALL 0xa /* trapped system call: number, instruction pointer */
#define PHV_EVENT_STOP 0xb /* stop for a debugger: PHV_STOP_*, instruction pointer */

/* States of a vCPU to the debugger: phv_debug.state */
#define PHV_DEBUG_RUNS 0x0 /* runs: the registers here are old */
#define PHV_DEBUG_STOPPED 0x1 /* waits for a command */
#define PHV_DEBUG_CALL 0x2 /* has made a call that ends the machine. The registers are its caller's, as far as a function preserves them */

/* Why a vCPU has stopped: phv_debug.reason */
#define PHV_STOP_ASKED 0x0 /* the debugger asked for it (PHV_PENDING_DEBUG) */
#define PHV_STOP_BREAKPOINT 0x1 /* int3; rip is after it */
#define PHV_STOP_STEP 0x2 /* one instruction was executed */

/* Commands to a stopped vCPU: phv_debug.command */
#define PHV_COMMAND_NONE 0x0 /* no command: keep waiting */
#define PHV_COMMAND_CONTINUE 0x1 /* continue with the registers as they are here */
#define PHV_COMMAND_STEP 0x2 /* execute one instruction; no interrupt is delivered */
#define PHV_COMMAND_PASS 0x3 /* the breakpoint is the guest's: deliver its exception */

/* Bits of phv_device.notify above those of the queues */
#define PHV_NOTIFY_REGISTER 0x40000000 /* a vCPU waits for a register write */
#define PHV_NOTIFY_HOST 0x80000000 /* something happened on the monitor's side; only the monitor sets it */

/* Places of phv_device.route that are no APIC id */
#define PHV_ROUTE_NOTIFIER 0xfffffe /* the vCPU in phv_device.notifier; the signal's line is in phv_shared.lines */

/* What a vCPU asks a device's thread for: phv_request.kind */
#define PHV_ASK_STORE 0x0 /* a register write */
#define PHV_ASK_COMMAND 0x1 /* bus.command */

/* States of a request: phv_request.state */
#define PHV_REQUEST_NONE 0x0 /* no request */
#define PHV_REQUEST_ASKED 0x1 /* the vCPU waits */
#define PHV_REQUEST_DONE 0x2 /* the monitor has done it */

/* Control messages (phv_message.op) */
#define PHV_OP_FORK 0x1 /* monitor to zygote: make process index */
#define PHV_OP_READY 0x2 /* zygote to monitor: process index is made and parked; pid is its id. Index 0xffffffff comes first and means that the zygote itself is ready */
#define PHV_OP_DIED 0x3 /* zygote to monitor: process index has ended; value is the wait status */
#define PHV_OP_MADE 0x5 /* process index to monitor, before it enters its sandbox: pid is its id as the zygote sees it. The socket passes the host's id to the monitor */
#define PHV_OP_FAILED 0x4 /* zygote to monitor: a step of the set-up failed; index is PHV_STEP_*, value the errno */

/* Steps that may fail in the zygote or in a new process */
#define PHV_STEP_SHARED 0x1 /* map the shared area */
#define PHV_STEP_RAM 0x2 /* map the direct map */
#define PHV_STEP_IMAGE 0x3 /* map the kernel file's segments */
#define PHV_STEP_ARENA 0x4 /* map the arena and the stacks */
#define PHV_STEP_FORK 0x5 /* fork */
#define PHV_STEP_THREAD 0x6 /* make a vCPU's thread */
#define PHV_STEP_SIGNALS 0x7 /* signal stacks and handlers */
#define PHV_STEP_SANDBOX 0x8 /* no_new_privs, dumpable, parent-death signal, descriptors */
#define PHV_STEP_FILTER 0x9 /* seccomp filter */
#define PHV_STEP_CPUID 0xa /* room for what cpuid returns */

/* struct phv_region */
#define PHV_SIZE_REGION 16
#define PHV_OFF_REGION_GPA 0
#define PHV_OFF_REGION_SIZE 8

/* struct phv_segment */
#define PHV_SIZE_SEGMENT 24
#define PHV_OFF_SEGMENT_ADDR 0
#define PHV_OFF_SEGMENT_GPA 8
#define PHV_OFF_SEGMENT_SIZE 16

/* struct phv_device */
#define PHV_SIZE_DEVICE 64
#define PHV_OFF_DEVICE_NOTIFY 0
#define PHV_OFF_DEVICE_SLEEPING 4
#define PHV_OFF_DEVICE_ROUTE 8
#define PHV_OFF_DEVICE_RAISED 12
#define PHV_OFF_DEVICE_NOTIFIER 16
#define PHV_OFF_DEVICE_LOOKS 20
#define PHV_OFF_DEVICE_RESERVED 24

/* struct phv_request */
#define PHV_SIZE_REQUEST 64
#define PHV_OFF_REQUEST_STATE 0
#define PHV_OFF_REQUEST_DEVICE 4
#define PHV_OFF_REQUEST_OFFSET 8
#define PHV_OFF_REQUEST_WIDTH 12
#define PHV_OFF_REQUEST_VALUE 16
#define PHV_OFF_REQUEST_KIND 24
#define PHV_OFF_REQUEST_ANSWER 28
#define PHV_OFF_REQUEST_RESERVED 32

/* struct phv_event */
#define PHV_SIZE_EVENT 32
#define PHV_OFF_EVENT_TSC 0
#define PHV_OFF_EVENT_KIND 8
#define PHV_OFF_EVENT_A 16
#define PHV_OFF_EVENT_B 24

/* struct phv_debug */
#define PHV_SIZE_DEBUG 1024
#define PHV_OFF_DEBUG_STATE 0
#define PHV_OFF_DEBUG_REASON 4
#define PHV_OFF_DEBUG_COMMAND 8
#define PHV_OFF_DEBUG_PAD 12
#define PHV_OFF_DEBUG_GPR 16
#define PHV_OFF_DEBUG_RIP 144
#define PHV_OFF_DEBUG_RFLAGS 152
#define PHV_OFF_DEBUG_CS 160
#define PHV_OFF_DEBUG_SS 164
#define PHV_OFF_DEBUG_FS_BASE 168
#define PHV_OFF_DEBUG_GS_BASE 176
#define PHV_OFF_DEBUG_CR2 184
#define PHV_OFF_DEBUG_CR3 192
#define PHV_OFF_DEBUG_KERNEL_ROOT 200
#define PHV_OFF_DEBUG_RESERVED 208
#define PHV_OFF_DEBUG_FXSAVE 512

/* struct phv_message */
#define PHV_SIZE_MESSAGE 16
#define PHV_OFF_MESSAGE_OP 0
#define PHV_OFF_MESSAGE_INDEX 4
#define PHV_OFF_MESSAGE_PID 8
#define PHV_OFF_MESSAGE_VALUE 12

/* struct phv_clock */
#define PHV_SIZE_CLOCK 40
#define PHV_OFF_CLOCK_SEQUENCE 0
#define PHV_OFF_CLOCK_SHIFT 4
#define PHV_OFF_CLOCK_TSC 8
#define PHV_OFF_CLOCK_NS 16
#define PHV_OFF_CLOCK_MULT 24
#define PHV_OFF_CLOCK_TSC_HZ 32

/* struct phv_shared */
#define PHV_SIZE_SHARED 2048
#define PHV_OFF_SHARED_MAGIC 0
#define PHV_OFF_SHARED_VCPU_COUNT 4
#define PHV_OFF_SHARED_REGION_COUNT 8
#define PHV_OFF_SHARED_SEGMENT_COUNT 12
#define PHV_OFF_SHARED_FILTER_LENGTH 16
#define PHV_OFF_SHARED_PROC_LIMIT 20
#define PHV_OFF_SHARED_FLAGS 24
#define PHV_OFF_SHARED_MAX_MAPS 28
#define PHV_OFF_SHARED_DOORBELL 32
#define PHV_OFF_SHARED_VM_STATE 36
#define PHV_OFF_SHARED_VM_STATUS 40
#define PHV_OFF_SHARED_PROC_COUNT 44
#define PHV_OFF_SHARED_PROC_WANTED 48
#define PHV_OFF_SHARED_CONSOLE_HEAD 52
#define PHV_OFF_SHARED_CONSOLE_TAIL 56
#define PHV_OFF_SHARED_ALARM_WORD 60
#define PHV_OFF_SHARED_ALARM_NEXT_NS 64
#define PHV_OFF_SHARED_WALL_OFFSET_NS 72
#define PHV_OFF_SHARED_WALL_UPDATES 80
#define PHV_OFF_SHARED_CPUID_FAULTING 84
#define PHV_OFF_SHARED_BOOT_INFO 88
#define PHV_OFF_SHARED_KERNEL_ENTRY 96
#define PHV_OFF_SHARED_BOOT_STACK 104
#define PHV_OFF_SHARED_CLOCK 112
#define PHV_OFF_SHARED_REGIONS 152
#define PHV_OFF_SHARED_SEGMENTS 408
#define PHV_OFF_SHARED_VCPU_CPU 600
#define PHV_OFF_SHARED_MESSAGE 856
#define PHV_OFF_SHARED_DEVICE_GPA 1112
#define PHV_OFF_SHARED_DEVICE_COUNT 1120
#define PHV_OFF_SHARED_BRIDGES 1124
#define PHV_OFF_SHARED_POOL_CHUNKS 1128
#define PHV_OFF_SHARED_MAPS_ALL 1132
#define PHV_OFF_SHARED_DEBUG_ON 1136
#define PHV_OFF_SHARED_DEBUG_PAD 1140
#define PHV_OFF_SHARED_KICK_WANTED 1144
#define PHV_OFF_SHARED_KICK_SLEEPING 1152
#define PHV_OFF_SHARED_KICK_ROUNDS 1156
#define PHV_OFF_SHARED_LINES 1160
#define PHV_OFF_SHARED_AHEAD_NS 1168
#define PHV_OFF_SHARED_CLOCK_PAGE 1176
#define PHV_OFF_SHARED_CLOCK_WANTED 1180
#define PHV_OFF_SHARED_DIRECT_MAP 1184
#define PHV_OFF_SHARED_RESERVED 1192

/* struct phv_vcpu */
#define PHV_SIZE_VCPU 256
#define PHV_OFF_VCPU_PENDING 0
#define PHV_OFF_VCPU_IRQ_FLAG 4
#define PHV_OFF_VCPU_STATE 8
#define PHV_OFF_VCPU_WAIT_WORD 12
#define PHV_OFF_VCPU_OWNER 16
#define PHV_OFF_VCPU_DEADLINE_NS 24
#define PHV_OFF_VCPU_IRR 32
#define PHV_OFF_VCPU_KICK 64
#define PHV_OFF_VCPU_PROC 68
#define PHV_OFF_VCPU_STOLEN_NS 72
#define PHV_OFF_VCPU_FAULTS_HIDDEN 80
#define PHV_OFF_VCPU_FAULTS_INJECTED 88
#define PHV_OFF_VCPU_FILLS 96
#define PHV_OFF_VCPU_FLUSHES 104
#define PHV_OFF_VCPU_SWITCHES 112
#define PHV_OFF_VCPU_RESYNCS 120
#define PHV_OFF_VCPU_SYSCALLS_TRAPPED 128
#define PHV_OFF_VCPU_INTERRUPTS 136
#define PHV_OFF_VCPU_KICKS_SENT 144
#define PHV_OFF_VCPU_HALTS 152
#define PHV_OFF_VCPU_HOST_CALLS 160
#define PHV_OFF_VCPU_SIGNALS 168
#define PHV_OFF_VCPU_EVENTS 176
#define PHV_OFF_VCPU_EVENTS_PAD 180
#define PHV_OFF_VCPU_POLLS_WON 184
#define PHV_OFF_VCPU_POLLS_LOST 192
#define PHV_OFF_VCPU_POLLING 200
#define PHV_OFF_VCPU_POLLING_PAD 204
#define PHV_OFF_VCPU_TOLD 208
#define PHV_OFF_VCPU_PARKS 216
#define PHV_OFF_VCPU_RESERVED 224

/* struct phv_proc */
#define PHV_SIZE_PROC 576
#define PHV_OFF_PROC_STATE 0
#define PHV_OFF_PROC_PID 4
#define PHV_OFF_PROC_CR3 8
#define PHV_OFF_PROC_CONTEXT 16
#define PHV_OFF_PROC_GENERATION 24
#define PHV_OFF_PROC_MAPPINGS 32
#define PHV_OFF_PROC_RESERVED 36
#define PHV_OFF_PROC_WAKE 64
#define PHV_OFF_PROC_TID 320

#ifndef __ASSEMBLER__

/* RAM region: a guest-physical range and the memfd that backs it. Regions ascend without gaps */
struct phv_region {
	__u64 gpa; /* first address, a multiple of 2 MiB */
	__u64 size; /* bytes, a multiple of 2 MiB, from offset 0 of the region's memfd */
};
_Static_assert(sizeof(struct phv_region) == PHV_SIZE_REGION, "phv_region");
_Static_assert(offsetof(struct phv_region, gpa) == PHV_OFF_REGION_GPA, "phv_region.gpa");
_Static_assert(offsetof(struct phv_region, size) == PHV_OFF_REGION_SIZE, "phv_region.size");

/* Part of the kernel file: a linear range in the hole that maps guest-physical memory */
struct phv_segment {
	__u64 addr; /* linear address, page-aligned */
	__u64 gpa; /* guest-physical address, page-aligned */
	__u64 size; /* bytes, page-aligned */
};
_Static_assert(sizeof(struct phv_segment) == PHV_SIZE_SEGMENT, "phv_segment");
_Static_assert(offsetof(struct phv_segment, addr) == PHV_OFF_SEGMENT_ADDR, "phv_segment.addr");
_Static_assert(offsetof(struct phv_segment, gpa) == PHV_OFF_SEGMENT_GPA, "phv_segment.gpa");
_Static_assert(offsetof(struct phv_segment, size) == PHV_OFF_SEGMENT_SIZE, "phv_segment.size");

/* What the layer, the device's thread in the monitor and senders of its interrupts share about a device */
struct phv_device {
	__u32 notify; /* bit n: queue n was notified; PHV_NOTIFY_*. Set by an atomic or, taken by the device's thread */
	__u32 sleeping; /* futex; 1: the device's thread sleeps or is about to. A sender sets this to 0 and wakes it */
	__u32 route; /* (layer) where its line goes: APIC id or PHV_ROUTE_NOTIFIER << 8 | vector; vector 0: masked */
	__u32 raised; /* 1: the line was signalled while it was masked */
	__u32 notifier; /* (layer) the vCPU that notified the device last */
	__u32 looks; /* (monitor) 1 + the host CPU on which the device's thread looks for work without sleeping; 0: it does not */
	__u32 reserved[10]; /* zero */
};
_Static_assert(sizeof(struct phv_device) == PHV_SIZE_DEVICE, "phv_device");
_Static_assert(offsetof(struct phv_device, notify) == PHV_OFF_DEVICE_NOTIFY, "phv_device.notify");
_Static_assert(offsetof(struct phv_device, sleeping) == PHV_OFF_DEVICE_SLEEPING, "phv_device.sleeping");
_Static_assert(offsetof(struct phv_device, route) == PHV_OFF_DEVICE_ROUTE, "phv_device.route");
_Static_assert(offsetof(struct phv_device, raised) == PHV_OFF_DEVICE_RAISED, "phv_device.raised");
_Static_assert(offsetof(struct phv_device, notifier) == PHV_OFF_DEVICE_NOTIFIER, "phv_device.notifier");
_Static_assert(offsetof(struct phv_device, looks) == PHV_OFF_DEVICE_LOOKS, "phv_device.looks");
_Static_assert(offsetof(struct phv_device, reserved) == PHV_OFF_DEVICE_RESERVED, "phv_device.reserved");

/* A write to a device register that changes other registers, or a call in place of one. The vCPU waits until the device's thread has carried it out */
struct phv_request {
	__u32 state; /* PHV_REQUEST_*; futex of the vCPU */
	__u32 device; /* the device's number */
	__u32 offset; /* (PHV_ASK_STORE) offset in its register page */
	__u32 width; /* (PHV_ASK_STORE) bytes: 1, 2, 4 or 8 */
	__u64 value; /* the value written, or the address of the command */
	__u32 kind; /* PHV_ASK_* */
	__u32 answer; /* (monitor) what bus.command returns, a signed number; 0 for a store */
	__u32 reserved[8]; /* zero */
};
_Static_assert(sizeof(struct phv_request) == PHV_SIZE_REQUEST, "phv_request");
_Static_assert(offsetof(struct phv_request, state) == PHV_OFF_REQUEST_STATE, "phv_request.state");
_Static_assert(offsetof(struct phv_request, device) == PHV_OFF_REQUEST_DEVICE, "phv_request.device");
_Static_assert(offsetof(struct phv_request, offset) == PHV_OFF_REQUEST_OFFSET, "phv_request.offset");
_Static_assert(offsetof(struct phv_request, width) == PHV_OFF_REQUEST_WIDTH, "phv_request.width");
_Static_assert(offsetof(struct phv_request, value) == PHV_OFF_REQUEST_VALUE, "phv_request.value");
_Static_assert(offsetof(struct phv_request, kind) == PHV_OFF_REQUEST_KIND, "phv_request.kind");
_Static_assert(offsetof(struct phv_request, answer) == PHV_OFF_REQUEST_ANSWER, "phv_request.answer");
_Static_assert(offsetof(struct phv_request, reserved) == PHV_OFF_REQUEST_RESERVED, "phv_request.reserved");

/* An event of the layer, written by the vCPU's owner */
struct phv_event {
	__u64 tsc; /* time-stamp counter */
	__u64 kind; /* PHV_EVENT_* */
	__u64 a; /* first word */
	__u64 b; /* second word */
};
_Static_assert(sizeof(struct phv_event) == PHV_SIZE_EVENT, "phv_event");
_Static_assert(offsetof(struct phv_event, tsc) == PHV_OFF_EVENT_TSC, "phv_event.tsc");
_Static_assert(offsetof(struct phv_event, kind) == PHV_OFF_EVENT_KIND, "phv_event.kind");
_Static_assert(offsetof(struct phv_event, a) == PHV_OFF_EVENT_A, "phv_event.a");
_Static_assert(offsetof(struct phv_event, b) == PHV_OFF_EVENT_B, "phv_event.b");

/* A stopped vCPU, as the debugger in the monitor sees and changes it */
struct phv_debug {
	__u32 state; /* (layer) PHV_DEBUG_* */
	__u32 reason; /* (layer) PHV_STOP_* */
	__u32 command; /* PHV_COMMAND_*, taken by the layer. The monitor then counts the vCPU's wait_word up */
	__u32 pad; /* zero */
	__u64 gpr[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8 to r15 */
	__u64 rip; /* instruction pointer */
	__u64 rflags; /* flags; IF is the virtual interrupt flag */
	__u32 cs; /* (layer) the guest's selector */
	__u32 ss; /* (layer) the guest's selector */
	__u64 fs_base; /* (layer) */
	__u64 gs_base; /* (layer) */
	__u64 cr2; /* (layer) */
	__u64 cr3; /* (layer) root of the tables for user addresses */
	__u64 kernel_root; /* (layer) root of the tables for kernel addresses; 0: cr3 */
	__u64 reserved[38]; /* zero */
	__u8 fxsave[512]; /* (layer) x87 and SSE registers in the layout of fxsave */
};
_Static_assert(sizeof(struct phv_debug) == PHV_SIZE_DEBUG, "phv_debug");
_Static_assert(offsetof(struct phv_debug, state) == PHV_OFF_DEBUG_STATE, "phv_debug.state");
_Static_assert(offsetof(struct phv_debug, reason) == PHV_OFF_DEBUG_REASON, "phv_debug.reason");
_Static_assert(offsetof(struct phv_debug, command) == PHV_OFF_DEBUG_COMMAND, "phv_debug.command");
_Static_assert(offsetof(struct phv_debug, pad) == PHV_OFF_DEBUG_PAD, "phv_debug.pad");
_Static_assert(offsetof(struct phv_debug, gpr) == PHV_OFF_DEBUG_GPR, "phv_debug.gpr");
_Static_assert(offsetof(struct phv_debug, rip) == PHV_OFF_DEBUG_RIP, "phv_debug.rip");
_Static_assert(offsetof(struct phv_debug, rflags) == PHV_OFF_DEBUG_RFLAGS, "phv_debug.rflags");
_Static_assert(offsetof(struct phv_debug, cs) == PHV_OFF_DEBUG_CS, "phv_debug.cs");
_Static_assert(offsetof(struct phv_debug, ss) == PHV_OFF_DEBUG_SS, "phv_debug.ss");
_Static_assert(offsetof(struct phv_debug, fs_base) == PHV_OFF_DEBUG_FS_BASE, "phv_debug.fs_base");
_Static_assert(offsetof(struct phv_debug, gs_base) == PHV_OFF_DEBUG_GS_BASE, "phv_debug.gs_base");
_Static_assert(offsetof(struct phv_debug, cr2) == PHV_OFF_DEBUG_CR2, "phv_debug.cr2");
_Static_assert(offsetof(struct phv_debug, cr3) == PHV_OFF_DEBUG_CR3, "phv_debug.cr3");
_Static_assert(offsetof(struct phv_debug, kernel_root) == PHV_OFF_DEBUG_KERNEL_ROOT, "phv_debug.kernel_root");
_Static_assert(offsetof(struct phv_debug, reserved) == PHV_OFF_DEBUG_RESERVED, "phv_debug.reserved");
_Static_assert(offsetof(struct phv_debug, fxsave) == PHV_OFF_DEBUG_FXSAVE, "phv_debug.fxsave");

/* Control message */
struct phv_message {
	__u32 op; /* PHV_OP_* */
	__u32 index; /* process or step */
	__u32 pid; /* process id */
	__u32 value; /* wait status or errno */
};
_Static_assert(sizeof(struct phv_message) == PHV_SIZE_MESSAGE, "phv_message");
_Static_assert(offsetof(struct phv_message, op) == PHV_OFF_MESSAGE_OP, "phv_message.op");
_Static_assert(offsetof(struct phv_message, index) == PHV_OFF_MESSAGE_INDEX, "phv_message.index");
_Static_assert(offsetof(struct phv_message, pid) == PHV_OFF_MESSAGE_PID, "phv_message.pid");
_Static_assert(offsetof(struct phv_message, value) == PHV_OFF_MESSAGE_VALUE, "phv_message.value");

/* Factors that turn the time-stamp counter into the machine's clock: the host's CLOCK_MONOTONIC and ahead_ns; written by the monitor */
struct phv_clock {
	__u32 sequence; /* odd while being written */
	__u32 shift; /* 0 to 63 */
	__u64 tsc; /* counter value */
	__u64 ns; /* the clock at that value */
	__u64 mult; /* ns + ((counter - tsc) * mult >> shift), with a 128-bit product */
	__u64 tsc_hz; /* frequency */
};
_Static_assert(sizeof(struct phv_clock) == PHV_SIZE_CLOCK, "phv_clock");
_Static_assert(offsetof(struct phv_clock, sequence) == PHV_OFF_CLOCK_SEQUENCE, "phv_clock.sequence");
_Static_assert(offsetof(struct phv_clock, shift) == PHV_OFF_CLOCK_SHIFT, "phv_clock.shift");
_Static_assert(offsetof(struct phv_clock, tsc) == PHV_OFF_CLOCK_TSC, "phv_clock.tsc");
_Static_assert(offsetof(struct phv_clock, ns) == PHV_OFF_CLOCK_NS, "phv_clock.ns");
_Static_assert(offsetof(struct phv_clock, mult) == PHV_OFF_CLOCK_MULT, "phv_clock.mult");
_Static_assert(offsetof(struct phv_clock, tsc_hz) == PHV_OFF_CLOCK_TSC_HZ, "phv_clock.tsc_hz");

/* First page of the shared area. The monitor fills it before the layer starts. Later it writes the clock and reads the fields marked (layer) */
struct phv_shared {
	__u32 magic; /* PHV_MAGIC */
	__u32 vcpu_count; /* vCPUs */
	__u32 region_count; /* RAM regions */
	__u32 segment_count; /* segments of the kernel file, at most 8 */
	__u32 filter_length; /* instructions of the seccomp filter, at least 1. The zygote copies it before guest code exists, like everything that decides about a process */
	__u32 proc_limit; /* processes that may exist; at least vcpu_count + 1 */
	__u32 flags; /* PHV_FLAG_* */
	__u32 max_maps; /* largest number of mappings of one process, from vm.max_map_count */
	__u32 doorbell; /* (layer) futex of the monitor: counts the things to look at */
	__u32 vm_state; /* (layer) PHV_VM_* */
	__u32 vm_status; /* (layer) depends on vm_state */
	__u32 proc_count; /* processes 0 to proc_count - 1 have been made; only the monitor writes it */
	__u32 proc_wanted; /* (layer) number of processes that the layer wants; the monitor decides */
	__u32 console_head; /* (layer) bytes ever written to the console ring, modulo 2^32 */
	__u32 console_tail; /* bytes ever taken from the ring by the monitor; futex of a writer that finds it full */
	__u32 alarm_word; /* (layer) futex of the monitor's alarm thread: counts deadlines that are earlier than the last one */
	__u64 alarm_next_ns; /* time of the clock until which the alarm thread sleeps, written by it; all ones: none */
	__u64 wall_offset_ns; /* CLOCK_REALTIME less the clock; written by the monitor */
	__u32 wall_updates; /* counts its jumps */
	__u32 cpuid_faulting; /* 1: the host can make cpuid fault (arch_prctl) */
	__u64 boot_info; /* linear address of struct vmi_boot_info */
	__u64 kernel_entry; /* linear address of the kernel's VMI entry, relocated */
	__u64 boot_stack; /* linear address of the top of the boot stack */
	struct phv_clock clock; /* time */
	struct phv_region regions[16]; /* RAM regions */
	struct phv_segment segments[8]; /* segments of the kernel file */
	__u32 vcpu_cpu[64]; /* host CPU of a vCPU's threads; all ones: any */
	__u8 message[256]; /* (layer) text for PHV_VM_FATAL, ends with a zero byte */
	__u64 device_gpa; /* guest-physical address of device 0's register page. The others follow. After all RAM */
	__u32 device_count; /* devices */
	__u32 bridges; /* bit n: device n is a bridge to a virtual bus */
	__u32 pool_chunks; /* pieces of the shadow pool */
	__u32 maps_all; /* mappings that all processes together should not exceed; each may always have PHV_MAPS_SURE */
	__u32 debug_on; /* 1: a debugger is connected, and breakpoints stop the vCPU */
	__u32 debug_pad; /* zero */
	__u64 kick_wanted; /* (layer) bit n: vCPU n needs a kick (PHV_FLAG_ASK). Set by an atomic or, taken by the monitor */
	__u32 kick_sleeping; /* futex; 1: the monitor's kick thread sleeps or is about to. A sender sets this to 0 and wakes it */
	__u32 kick_rounds; /* counts the rounds of kicks that the monitor has sent; futex of senders that wait */
	__u64 lines; /* bit n: line n, which is routed to PHV_ROUTE_NOTIFIER, was signalled. Set by an atomic or, taken by line.pending */
	__u64 ahead_ns; /* what the clock is ahead of the host's CLOCK_MONOTONIC, on which futexes wait: suspends of the host for which the time-stamp counter went on; written by the monitor */
	__u32 clock_page; /* (layer) 1: the guest has a clock page, which a vCPU that runs must rewrite after each change of the clock */
	__u32 clock_wanted; /* (layer) PHV_CLOCK_*, a futex: a vCPU that woke up has found the clock wrong, and waits. The watch, which the alarm thread wakes for it, claims and ends it */
	__u64 direct_map; /* linear address of guest-physical 0, and the end of the user range: PHV_DIRECT_MAP or PHV_DIRECT_MAP_WIDE */
	__u8 reserved[856]; /* zero */
};
_Static_assert(sizeof(struct phv_shared) == PHV_SIZE_SHARED, "phv_shared");
_Static_assert(offsetof(struct phv_shared, magic) == PHV_OFF_SHARED_MAGIC, "phv_shared.magic");
_Static_assert(offsetof(struct phv_shared, vcpu_count) == PHV_OFF_SHARED_VCPU_COUNT, "phv_shared.vcpu_count");
_Static_assert(offsetof(struct phv_shared, region_count) == PHV_OFF_SHARED_REGION_COUNT, "phv_shared.region_count");
_Static_assert(offsetof(struct phv_shared, segment_count) == PHV_OFF_SHARED_SEGMENT_COUNT, "phv_shared.segment_count");
_Static_assert(offsetof(struct phv_shared, filter_length) == PHV_OFF_SHARED_FILTER_LENGTH, "phv_shared.filter_length");
_Static_assert(offsetof(struct phv_shared, proc_limit) == PHV_OFF_SHARED_PROC_LIMIT, "phv_shared.proc_limit");
_Static_assert(offsetof(struct phv_shared, flags) == PHV_OFF_SHARED_FLAGS, "phv_shared.flags");
_Static_assert(offsetof(struct phv_shared, max_maps) == PHV_OFF_SHARED_MAX_MAPS, "phv_shared.max_maps");
_Static_assert(offsetof(struct phv_shared, doorbell) == PHV_OFF_SHARED_DOORBELL, "phv_shared.doorbell");
_Static_assert(offsetof(struct phv_shared, vm_state) == PHV_OFF_SHARED_VM_STATE, "phv_shared.vm_state");
_Static_assert(offsetof(struct phv_shared, vm_status) == PHV_OFF_SHARED_VM_STATUS, "phv_shared.vm_status");
_Static_assert(offsetof(struct phv_shared, proc_count) == PHV_OFF_SHARED_PROC_COUNT, "phv_shared.proc_count");
_Static_assert(offsetof(struct phv_shared, proc_wanted) == PHV_OFF_SHARED_PROC_WANTED, "phv_shared.proc_wanted");
_Static_assert(offsetof(struct phv_shared, console_head) == PHV_OFF_SHARED_CONSOLE_HEAD, "phv_shared.console_head");
_Static_assert(offsetof(struct phv_shared, console_tail) == PHV_OFF_SHARED_CONSOLE_TAIL, "phv_shared.console_tail");
_Static_assert(offsetof(struct phv_shared, alarm_word) == PHV_OFF_SHARED_ALARM_WORD, "phv_shared.alarm_word");
_Static_assert(offsetof(struct phv_shared, alarm_next_ns) == PHV_OFF_SHARED_ALARM_NEXT_NS, "phv_shared.alarm_next_ns");
_Static_assert(offsetof(struct phv_shared, wall_offset_ns) == PHV_OFF_SHARED_WALL_OFFSET_NS, "phv_shared.wall_offset_ns");
_Static_assert(offsetof(struct phv_shared, wall_updates) == PHV_OFF_SHARED_WALL_UPDATES, "phv_shared.wall_updates");
_Static_assert(offsetof(struct phv_shared, cpuid_faulting) == PHV_OFF_SHARED_CPUID_FAULTING, "phv_shared.cpuid_faulting");
_Static_assert(offsetof(struct phv_shared, boot_info) == PHV_OFF_SHARED_BOOT_INFO, "phv_shared.boot_info");
_Static_assert(offsetof(struct phv_shared, kernel_entry) == PHV_OFF_SHARED_KERNEL_ENTRY, "phv_shared.kernel_entry");
_Static_assert(offsetof(struct phv_shared, boot_stack) == PHV_OFF_SHARED_BOOT_STACK, "phv_shared.boot_stack");
_Static_assert(offsetof(struct phv_shared, clock) == PHV_OFF_SHARED_CLOCK, "phv_shared.clock");
_Static_assert(offsetof(struct phv_shared, regions) == PHV_OFF_SHARED_REGIONS, "phv_shared.regions");
_Static_assert(offsetof(struct phv_shared, segments) == PHV_OFF_SHARED_SEGMENTS, "phv_shared.segments");
_Static_assert(offsetof(struct phv_shared, vcpu_cpu) == PHV_OFF_SHARED_VCPU_CPU, "phv_shared.vcpu_cpu");
_Static_assert(offsetof(struct phv_shared, message) == PHV_OFF_SHARED_MESSAGE, "phv_shared.message");
_Static_assert(offsetof(struct phv_shared, device_gpa) == PHV_OFF_SHARED_DEVICE_GPA, "phv_shared.device_gpa");
_Static_assert(offsetof(struct phv_shared, device_count) == PHV_OFF_SHARED_DEVICE_COUNT, "phv_shared.device_count");
_Static_assert(offsetof(struct phv_shared, bridges) == PHV_OFF_SHARED_BRIDGES, "phv_shared.bridges");
_Static_assert(offsetof(struct phv_shared, pool_chunks) == PHV_OFF_SHARED_POOL_CHUNKS, "phv_shared.pool_chunks");
_Static_assert(offsetof(struct phv_shared, maps_all) == PHV_OFF_SHARED_MAPS_ALL, "phv_shared.maps_all");
_Static_assert(offsetof(struct phv_shared, debug_on) == PHV_OFF_SHARED_DEBUG_ON, "phv_shared.debug_on");
_Static_assert(offsetof(struct phv_shared, debug_pad) == PHV_OFF_SHARED_DEBUG_PAD, "phv_shared.debug_pad");
_Static_assert(offsetof(struct phv_shared, kick_wanted) == PHV_OFF_SHARED_KICK_WANTED, "phv_shared.kick_wanted");
_Static_assert(offsetof(struct phv_shared, kick_sleeping) == PHV_OFF_SHARED_KICK_SLEEPING, "phv_shared.kick_sleeping");
_Static_assert(offsetof(struct phv_shared, kick_rounds) == PHV_OFF_SHARED_KICK_ROUNDS, "phv_shared.kick_rounds");
_Static_assert(offsetof(struct phv_shared, lines) == PHV_OFF_SHARED_LINES, "phv_shared.lines");
_Static_assert(offsetof(struct phv_shared, ahead_ns) == PHV_OFF_SHARED_AHEAD_NS, "phv_shared.ahead_ns");
_Static_assert(offsetof(struct phv_shared, clock_page) == PHV_OFF_SHARED_CLOCK_PAGE, "phv_shared.clock_page");
_Static_assert(offsetof(struct phv_shared, clock_wanted) == PHV_OFF_SHARED_CLOCK_WANTED, "phv_shared.clock_wanted");
_Static_assert(offsetof(struct phv_shared, direct_map) == PHV_OFF_SHARED_DIRECT_MAP, "phv_shared.direct_map");
_Static_assert(offsetof(struct phv_shared, reserved) == PHV_OFF_SHARED_RESERVED, "phv_shared.reserved");

/* A vCPU: the part that the monitor sees */
struct phv_vcpu {
	__u32 pending; /* PHV_PENDING_*; set by an atomic or */
	__u32 irq_flag; /* virtual interrupt flag, 0 or 1 */
	__u32 state; /* PHV_VCPU_* */
	__u32 wait_word; /* futex of a halted vCPU: counting it up wakes the vCPU */
	__u64 owner; /* pid << 32 | tid of the owner; 0: none, in a hand-over */
	__u64 deadline_ns; /* next alarm, by the clock; all ones: none */
	__u64 irr[4]; /* requested interrupt vectors */
	__u32 kick; /* pending bit of lock.kick */
	__u32 proc; /* process of the owner */
	__u64 stolen_ns; /* stolen time so far, ns */
	__u64 faults_hidden; /* hidden faults */
	__u64 faults_injected; /* guest page faults and other exceptions with an error code */
	__u64 fills; /* pages mapped */
	__u64 flushes; /* flushes */
	__u64 switches; /* hand-overs to another process */
	__u64 resyncs; /* loads of a space that had changed */
	__u64 syscalls_trapped; /* system calls that trapped */
	__u64 interrupts; /* interrupts delivered */
	__u64 kicks_sent; /* signals to other vCPUs */
	__u64 halts; /* waits for an interrupt or lock.kick */
	__u64 host_calls; /* host system calls */
	__u64 signals; /* host signals that the layer handled */
	__u32 events; /* events so far, modulo 2^32. The next event goes to this number modulo PHV_EVENTS */
	__u32 events_pad; /* zero */
	__u64 polls_won; /* halts that polling ended, without a sleep */
	__u64 polls_lost; /* halts that polled in vain */
	__u32 polling; /* (layer) 1: a halted vCPU looks for interrupts before it sleeps and needs no wake */
	__u32 polling_pad; /* zero */
	__u64 told; /* TSC when the monitor first told the vCPU that polls; 0: not yet */
	__u64 parks; /* hand-overs after which the thread that gave the vCPU away slept */
	__u8 reserved[32]; /* zero */
};
_Static_assert(sizeof(struct phv_vcpu) == PHV_SIZE_VCPU, "phv_vcpu");
_Static_assert(offsetof(struct phv_vcpu, pending) == PHV_OFF_VCPU_PENDING, "phv_vcpu.pending");
_Static_assert(offsetof(struct phv_vcpu, irq_flag) == PHV_OFF_VCPU_IRQ_FLAG, "phv_vcpu.irq_flag");
_Static_assert(offsetof(struct phv_vcpu, state) == PHV_OFF_VCPU_STATE, "phv_vcpu.state");
_Static_assert(offsetof(struct phv_vcpu, wait_word) == PHV_OFF_VCPU_WAIT_WORD, "phv_vcpu.wait_word");
_Static_assert(offsetof(struct phv_vcpu, owner) == PHV_OFF_VCPU_OWNER, "phv_vcpu.owner");
_Static_assert(offsetof(struct phv_vcpu, deadline_ns) == PHV_OFF_VCPU_DEADLINE_NS, "phv_vcpu.deadline_ns");
_Static_assert(offsetof(struct phv_vcpu, irr) == PHV_OFF_VCPU_IRR, "phv_vcpu.irr");
_Static_assert(offsetof(struct phv_vcpu, kick) == PHV_OFF_VCPU_KICK, "phv_vcpu.kick");
_Static_assert(offsetof(struct phv_vcpu, proc) == PHV_OFF_VCPU_PROC, "phv_vcpu.proc");
_Static_assert(offsetof(struct phv_vcpu, stolen_ns) == PHV_OFF_VCPU_STOLEN_NS, "phv_vcpu.stolen_ns");
_Static_assert(offsetof(struct phv_vcpu, faults_hidden) == PHV_OFF_VCPU_FAULTS_HIDDEN, "phv_vcpu.faults_hidden");
_Static_assert(offsetof(struct phv_vcpu, faults_injected) == PHV_OFF_VCPU_FAULTS_INJECTED, "phv_vcpu.faults_injected");
_Static_assert(offsetof(struct phv_vcpu, fills) == PHV_OFF_VCPU_FILLS, "phv_vcpu.fills");
_Static_assert(offsetof(struct phv_vcpu, flushes) == PHV_OFF_VCPU_FLUSHES, "phv_vcpu.flushes");
_Static_assert(offsetof(struct phv_vcpu, switches) == PHV_OFF_VCPU_SWITCHES, "phv_vcpu.switches");
_Static_assert(offsetof(struct phv_vcpu, resyncs) == PHV_OFF_VCPU_RESYNCS, "phv_vcpu.resyncs");
_Static_assert(offsetof(struct phv_vcpu, syscalls_trapped) == PHV_OFF_VCPU_SYSCALLS_TRAPPED, "phv_vcpu.syscalls_trapped");
_Static_assert(offsetof(struct phv_vcpu, interrupts) == PHV_OFF_VCPU_INTERRUPTS, "phv_vcpu.interrupts");
_Static_assert(offsetof(struct phv_vcpu, kicks_sent) == PHV_OFF_VCPU_KICKS_SENT, "phv_vcpu.kicks_sent");
_Static_assert(offsetof(struct phv_vcpu, halts) == PHV_OFF_VCPU_HALTS, "phv_vcpu.halts");
_Static_assert(offsetof(struct phv_vcpu, host_calls) == PHV_OFF_VCPU_HOST_CALLS, "phv_vcpu.host_calls");
_Static_assert(offsetof(struct phv_vcpu, signals) == PHV_OFF_VCPU_SIGNALS, "phv_vcpu.signals");
_Static_assert(offsetof(struct phv_vcpu, events) == PHV_OFF_VCPU_EVENTS, "phv_vcpu.events");
_Static_assert(offsetof(struct phv_vcpu, events_pad) == PHV_OFF_VCPU_EVENTS_PAD, "phv_vcpu.events_pad");
_Static_assert(offsetof(struct phv_vcpu, polls_won) == PHV_OFF_VCPU_POLLS_WON, "phv_vcpu.polls_won");
_Static_assert(offsetof(struct phv_vcpu, polls_lost) == PHV_OFF_VCPU_POLLS_LOST, "phv_vcpu.polls_lost");
_Static_assert(offsetof(struct phv_vcpu, polling) == PHV_OFF_VCPU_POLLING, "phv_vcpu.polling");
_Static_assert(offsetof(struct phv_vcpu, polling_pad) == PHV_OFF_VCPU_POLLING_PAD, "phv_vcpu.polling_pad");
_Static_assert(offsetof(struct phv_vcpu, told) == PHV_OFF_VCPU_TOLD, "phv_vcpu.told");
_Static_assert(offsetof(struct phv_vcpu, parks) == PHV_OFF_VCPU_PARKS, "phv_vcpu.parks");
_Static_assert(offsetof(struct phv_vcpu, reserved) == PHV_OFF_VCPU_RESERVED, "phv_vcpu.reserved");

/* An address-space process */
struct phv_proc {
	__u32 state; /* PHV_PROC_* */
	__u32 pid; /* process id */
	__u64 cr3; /* CR3 of its space */
	__u64 context; /* context of its space */
	__u64 generation; /* generation that its mappings agree with */
	__u32 mappings; /* estimate of its host mappings */
	__u32 reserved[7]; /* zero */
	__u32 wake[64]; /* futex of each vCPU's thread: 1 hands the vCPU over to it */
	__u32 tid[64]; /* thread ids */
};
_Static_assert(sizeof(struct phv_proc) == PHV_SIZE_PROC, "phv_proc");
_Static_assert(offsetof(struct phv_proc, state) == PHV_OFF_PROC_STATE, "phv_proc.state");
_Static_assert(offsetof(struct phv_proc, pid) == PHV_OFF_PROC_PID, "phv_proc.pid");
_Static_assert(offsetof(struct phv_proc, cr3) == PHV_OFF_PROC_CR3, "phv_proc.cr3");
_Static_assert(offsetof(struct phv_proc, context) == PHV_OFF_PROC_CONTEXT, "phv_proc.context");
_Static_assert(offsetof(struct phv_proc, generation) == PHV_OFF_PROC_GENERATION, "phv_proc.generation");
_Static_assert(offsetof(struct phv_proc, mappings) == PHV_OFF_PROC_MAPPINGS, "phv_proc.mappings");
_Static_assert(offsetof(struct phv_proc, reserved) == PHV_OFF_PROC_RESERVED, "phv_proc.reserved");
_Static_assert(offsetof(struct phv_proc, wake) == PHV_OFF_PROC_WAKE, "phv_proc.wake");
_Static_assert(offsetof(struct phv_proc, tid) == PHV_OFF_PROC_TID, "phv_proc.tid");

#endif /* __ASSEMBLER__ */
#endif /* PARAVANE_PROCESS_H */
