/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The layer's state.
 *
 * There are three kinds of memory: the shared area (struct shared, vcpu, proc), which is the same
 * in all processes and visible to the monitor; the memory of a process (struct self, the arena);
 * and the memory of a thread (struct thread, at the bottom of its stacks). One thread at a time is
 * the owner of a vCPU. Only the owner touches struct vcpu, except for fields that say otherwise.
 */
#ifndef PROCESS_STATE_H
#define PROCESS_STATE_H

#include "common/types.h"
#include "state/offsets.h"

#define PAGE_SIZE 4096ULL
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define LARGE_SIZE 0x200000ULL
#define LARGE_MASK (~(LARGE_SIZE - 1))
#define noreturn __attribute__((noreturn))
#define noinline __attribute__((noinline))

/*
 * A mutex in memory that threads of several processes share. 0: free, 1: held, 2: held, with
 * waiters.
 */
struct lock {
	u32 word;
};

struct alarm {
	u32 armed;
	u32 periodic;
	u64 expiry;		/* ns of its counter */
	u64 period;
};

/* How many vCPUs one vCPU asks about in turn and learns of each (vcpu/look.c). */
#define ASKED_MOST 4

/* One of them. */
struct asked {
	u32 vcpu;
	u64 since, last;	/* TSC of the first question without a pause, and of the last */
};

enum resume_kind {
	RESUME_CALL,		/* return from a call: callee-saved registers, result 0 */
	RESUME_FULL,		/* all registers of struct vmi_ap_state */
};

struct vcpu {
	struct phv_vcpu s;

	u64 rsp, rbx, rbp, r12, r13, r14, r15;	/* V_RSP ... */
	u64 host_stack;
	u64 user_gs, kernel_gs;
	u64 user_rsp, user_rax, user_rip, user_flags;
	u32 user_cs, user_ss;			/* V_USER_CS */
	/* in memory that every process has mapped permanently */
	struct vmi_percpu *percpu;
	u64 scratch[16];			/* ends at V_SCRATCH */

	u32 number;
	u32 apic_id;
	enum resume_kind resume;
	u32 have_ap_state;
	u32 startup_pending;
	u32 had_init;				/* and it was not started since */
	u32 lazy_mode;
	u64 fs_base;
	u32 gs_selector, fs_selector, ds_selector, es_selector, mxcsr;
	bool vectors;				/* in_use, xsave and mxcsr are valid */
	u64 in_use;				/* state components that are in xsave */
	u64 cr0, cr2, cr3, cr4, cr8, context, generation;
	u64 queued_cr3, queued_context, queued_generation;
	u64 expected_cr3, expected_hint;	/* mmu.expect_space; hint 0: none */
	u32 queued;
	u64 stub_entry;				/* patch.set_entry; 0: lstar */
	u32 user_cpuid_faults;			/* bit 0 of MSR_MISC_FEATURES_ENABLES */
	u64 efer, star, lstar, cstar, sfmask, pat, apic_base, sysenter[3];
	u64 gdt_base, idt_base;
	u32 gdt_limit, idt_limit, ldt, tr;
	u64 rsp0;
	u64 dr[8];
	u64 xcr0;
	u64 isr[4];
	u32 apic[64];
	struct alarm alarms[2];
	u32 alarm_vector, alarm_fired;
	u64 last_vector_hint;
	u64 slice_start;			/* TSC when this thread became the owner */
	/* TSC since when the vCPU wants to run but does not; 0: it does not want to */
	u64 woken;
	/* TSC since when the vCPU sleeps and reads no clock; 0: it is awake */
	u64 asleep;
	u64 last_real, last_stolen;
	u32 wall_seen;
	u32 running;				/* in a run slice */
	/* an NMI was delivered and no iret followed yet: the next NMI waits */
	u32 nmi_on;
	u32 poll_ns;				/* how long the next look may take; 0: none */
	u32 poll_pause, poll_backoff;		/* halts without a look, and at the next gap */
	u32 poll_looks;
	bool poll_device;			/* it waits for a device, and for no vCPU */
	bool poll_lost;				/* others had the processor for too long */
	u64 poll_start, poll_last;		/* ns */
	u64 poll_away;				/* ns that others had the processor */
	u32 debug_step;				/* it executes one instruction for the debugger */
	u32 debug_flags;			/* FLAG_TF if the guest itself had set it */
	/* it was stopped, and what became pending during the stop is not handled yet */
	u32 debug_resumed;
	u64 debug_rip;				/* address of that instruction */
	struct vmi_ap_state ap;
	/* vcpu/look.c: the question that this vCPU's thread elsewhere answers, and the answer */
	u32 look_vcpu, look_proc, look_question;
	u32 look_answer;			/* question << 2 | enum look_answer; futex */
	struct asked asked[ASKED_MOST];
	u64 looked;				/* TSC of the last answer about this vCPU; any */

	/* what other vCPUs read without a call; each thread that changes the state writes it */
	struct vmi_run_state run __attribute__((aligned(64)));
	u8 xsave[0x4000] __attribute__((aligned(64)));
};
_Static_assert(offsetof(struct vcpu, rsp) == V_RSP, "V_RSP");
_Static_assert(offsetof(struct vcpu, rbx) == V_RBX, "V_RBX");
_Static_assert(offsetof(struct vcpu, r15) == V_R15, "V_R15");
_Static_assert(offsetof(struct vcpu, host_stack) == V_HOST_STACK, "V_HOST_STACK");
_Static_assert(offsetof(struct vcpu, kernel_gs) == V_KERNEL_GS, "V_KERNEL_GS");
_Static_assert(offsetof(struct vcpu, user_rsp) == V_USER_RSP, "V_USER_RSP");
_Static_assert(offsetof(struct vcpu, user_cs) == V_USER_CS, "V_USER_CS");
_Static_assert(offsetof(struct vcpu, percpu) == V_PERCPU, "V_PERCPU");
_Static_assert(offsetof(struct vcpu, s.host_calls) == V_HOST_CALLS, "V_HOST_CALLS");
_Static_assert(offsetof(struct vcpu, scratch) + 128 == V_SCRATCH, "V_SCRATCH");
_Static_assert(sizeof(struct vcpu) <= PHV_VCPU_STRIDE, "PHV_VCPU_STRIDE");

struct proc {
	struct phv_proc s;
	/* vCPUs that have it loaded, a bit for each; under the spaces lock */
	u64 loaded;
	u64 stamp;		/* order of the last load, for eviction */
	u64 left;		/* TSC when a vCPU last left it */
	u64 kernel_generation;	/* generation of the kernel mappings that its own agree with */
	u64 aged;		/* TSC when all user mappings were last compared with the tables */
	/* counts the spaces that it was given away from; under the spaces lock */
	u32 reset;
	u32 reset_done;		/* value of reset for which the mappings were last dropped */
	/* share of s.mappings, and of shadow and large pages, that goes with the space */
	u32 user_mappings;
	u32 user_tables;
	/*
	 * last long run that was mapped read-only, or 0: predicts whether it serves a new space too
	 */
	u64 text_va, text_gpa;
	/* exec hint of the space that it was last assigned to by one, or 0 */
	u64 exec_hint;
	/* read-only mappings stay at first, on the strength of the hint; under the spaces lock */
	u32 expected;
	/* they did stay, and were not compared with the tables yet */
	u32 needs_resync;
	u32 trimmed;		/* it was trimmed, or told to trim; under the spaces lock */
	u32 flush_wanted;	/* flushes that vCPUs of other processes have requested */
	u32 flush_done;		/* how many of them are done; futex */
	u32 user_wanted;	/* those of the user range, counted before flush_wanted */
	u32 user_done;		/* its value for which the user range was last compared */
	struct lock lock;	/* protects its mappings; only its own threads take it */
};
_Static_assert(sizeof(struct proc) <= PHV_PROC_STRIDE, "PHV_PROC_STRIDE");

/* After the first 2 KiB of the shared area: the layer's own data for the whole machine. */
struct shared {
	struct phv_shared s;

	struct lock spaces;	/* protects the assignment of processes to spaces, and AP start */
	struct lock console;
	u64 stamp;
	u64 kernel_root;	/* guest-physical; 0: none yet */
	u64 kernel_generation;
	u64 kernel_local;	/* some kernel translation was not global */
	u64 start_ns;		/* now_ns() at core.init */
	u64 init_done;
	u64 percpu_gs_offset;
	/* the kernel's table, linear address; it may move a vCPU's per-CPU data */
	u64 percpu_table;
	u64 ram_size;
	/* guest-physical 0, where the user range ends, and the end of RAM there; set once */
	u64 direct_map, direct_map_end;
	u32 thread_descriptors;	/* THREAD_SELECTOR works: system calls from stubs are possible */
	u32 xgetbv_in_use;	/* XGETBV with ECX = 1 works */
	u64 components;		/* xcr0_shown(), for hand-overs */
	u32 kernel_cs, kernel_ss, user_cs, user_ss;
	/* pages of host page tables in all processes that fills caused (fill.c) */
	u64 tables;
	u32 wall_told;		/* wall_updates when a vCPU was interrupted for it; any vCPU */
	struct lock clock_lock;	/* protects the guest's clock page */
	/* the monitor's clock and the wall clock's offset when the page was written */
	u32 guest_clock_sequence;
	u64 guest_clock_wall;
	u64 guest_clock;	/* its guest-physical address, 0: none */
	struct lock wake_lock;	/* of the vCPU that compares the clock with the host's */
	u64 wake_checked;	/* TSC when one did so last */
	u64 mappings;		/* mappings of all processes that fills caused */
	/* pieces of the shadow pool that are taken, a bit for each */
	u64 pool[PHV_POOL_CHUNKS / 64];
	u16 guesses[2048][2];	/* cr3 >> 12 -> process + 1, two guesses */
};
_Static_assert(sizeof(struct shared) <= PHV_SHARED_CONSOLE, "PHV_SHARED_CONSOLE");

struct thread {
	struct vcpu *vcpu;
	/* of the vCPU; no guest can write this copy before the thread is in the sandbox */
	u32 number;
	u32 tid;
	u64 sampled_cpu;	/* thread CPU time, ns, at the last sample */
	u64 unsampled;		/* TSC cycles for which it was the owner since then */
	/*
	 * whether cpuid faults in this thread: user_cpuid_faults of its vCPU when it was last the
	 * owner
	 */
	u32 cpuid_faults;
	u32 supervisor_count;	/* mapped user-range pages without the user bit */
	u64 supervisor[16];
};

_Static_assert(offsetof(struct thread, vcpu) == T_VCPU, "T_VCPU");

/* The data of a process. */
struct self {
	u32 index;
	u32 pid;
	u32 sandboxed;		/* the filter is installed; futex of the threads that wait for it */
	struct proc *proc;
};

extern struct self self;

/* vCPUs by number: a system call from a stub knows only the number. */
extern struct vcpu *ph_vcpu_table[];

/*
 * vCPUs of this process with an event that arrived during a call with any GS base
 * (crossing/call.S), a bit for each.
 */
extern u64 ph_any_pending;

#define shared ((struct shared *)PHV_SHARED)

/* Whether a heuristic is on. off: the PHV_FLAG_NO_* that turns it off. */
static inline bool heuristic(u32 off)
{
	return !(READ_ONCE(shared->s.flags) & off);
}

static inline struct vcpu *vcpu_at(u32 number)
{
	return to_pointer(PHV_SHARED + PHV_SHARED_VCPUS + number * PHV_VCPU_STRIDE);
}

/* Whether there is such a vCPU, and the kernel has given it layer data. */
static inline bool vcpu_known(u32 number)
{
	const struct vmi_percpu *percpu =
		number < shared->s.vcpu_count ? vcpu_at(number)->percpu : NULL;

	return percpu && percpu->data;
}

static inline struct phv_device *device_at(u32 number)
{
	struct phv_device *all = to_pointer(PHV_SHARED + PHV_SHARED_DEVICES);

	return &all[number];
}

static inline struct proc *proc_at(u32 index)
{
	return to_pointer(PHV_SHARED + PHV_SHARED_PROCS + index * PHV_PROC_STRIDE);
}

/*
 * A thread's PHV_STACK_SIZE bytes hold a page for its record, the host stack and the signal stack.
 * An unmapped page lies before and after each stack.
 */
#define HOST_STACK (2 * PAGE_SIZE)
#define HOST_STACK_SIZE (PHV_STACK_SIZE / 2 - HOST_STACK)
#define SIGNAL_STACK (PHV_STACK_SIZE / 2 + PAGE_SIZE)
#define SIGNAL_STACK_SIZE (PHV_STACK_SIZE / 2 - 2 * PAGE_SIZE)
_Static_assert(sizeof(struct thread) <= PAGE_SIZE, "HOST_STACK");

/* The record of a vCPU's thread in this process. */
static inline struct thread *thread_at(u32 number)
{
	return to_pointer(PHV_STACKS + number * PHV_STACK_SIZE);
}

static inline struct thread *thread_of(const struct vcpu *v)
{
	return thread_at(v->number);
}

static inline u64 host_stack_top(const struct thread *t)
{
	return (u64)t + HOST_STACK + HOST_STACK_SIZE;
}

/* The thread whose host or signal stack this code runs on. */
static inline struct thread *thread_here(void)
{
	u64 sp = (u64)__builtin_frame_address(0);

	return to_pointer(sp & ~(PHV_STACK_SIZE - 1));
}

/* The virtual interrupt flag and what belongs to it, in the kernel's per-CPU data. */
#define FAST(v, field) (*(volatile u8 *)((u8 *)(v)->percpu + (field)))

/* One instruction: a signal between two could set another bit. */
static inline void force(const struct vcpu *v, u8 why)
{
	__asm__ volatile("orb %1, %0" : "+m"(FAST(v, F_FORCE)) : "iq"(why));
}

/* The end of the guest's user range, exclusive: the direct map begins there. */
static inline u64 user_end(void)
{
	return shared->direct_map;
}

/* Addresses that only the kernel maps: the hole, and everything from the direct map up. */
static inline bool kernel_address(u64 va)
{
	return va >= user_end() || (va >= PHV_HOLE_START && va < PHV_HOLE_END);
}

/*
 * Per-CPU data must lie in the kernel file's range or in the direct map. The layer writes there at
 * any time, even in a signal while it holds the lock that a fill would need.
 */
static inline bool kernel_data(u64 start, u64 size)
{
	u64 end = start + size;

	return (start >= PHV_IMAGE_START && end <= PHV_LAYER_BASE) ||
	       (start >= shared->direct_map && end <= shared->direct_map_end);
}

static inline bool percpu_good(u64 pointer)
{
	return !(pointer & 63) && kernel_data(pointer, VMI_SIZE_PERCPU);
}

/*
 * A pointer to guest-physical memory, or NULL if it is no RAM. The bytes used must not cross a
 * page.
 */
static inline void *guest_ram(u64 gpa)
{
	return gpa < shared->ram_size ? to_pointer(shared->direct_map + gpa) : NULL;
}

#endif
