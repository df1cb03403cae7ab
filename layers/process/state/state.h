/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The layer's state.
 *
 * Three kinds of memory: the shared area (struct shared, vcpu, proc: the same in all processes, and
 * the monitor's to see), a process's own (struct self, the arena), and a thread's own (struct
 * thread, at the bottom of its stacks). A vCPU is one thread at a time; whoever is it owns struct vcpu
 * but for the fields that say otherwise.
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

/* A mutex in memory that threads of several processes share: 0 free, 1 held, 2 held and waited for. */
struct lock {
	u32 word;
};

struct alarm {
	u32 armed;
	u32 periodic;
	u64 expiry;		/* ns of its counter */
	u64 period;
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
	struct vmi_percpu *percpu;		/* in memory that every process has mapped for good */
	u64 scratch[16];			/* ends at V_SCRATCH */

	u32 number;
	u32 apic_id;
	enum resume_kind resume;
	u32 have_ap_state;
	u32 startup_pending;
	u32 lazy_mode;
	u64 fs_base;
	u32 gs_selector, fs_selector, ds_selector, es_selector, mxcsr;
	bool vectors;				/* in_use, xsave and mxcsr say something */
	u64 in_use;				/* state components that are in xsave */
	u64 cr0, cr2, cr3, cr4, cr8, context, generation;
	u64 queued_cr3, queued_context, queued_generation;
	u64 expected_cr3, expected_hint;	/* mmu.expect_space; exec_hint 0: nothing is expected */
	u32 queued;
	u64 stub_entry;				/* patch.set_entry, 0 for lstar */
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
	u64 slice_start;			/* TSC when this thread became the vCPU */
	u64 woken;				/* TSC from when on it wants to run and does not, 0: not yet */
	u64 last_real, last_stolen;
	u32 wall_seen;
	u32 running;				/* a stint is on */
	u32 nmi_on;				/* an NMI was delivered, and no iret came since: the next one waits */
	u32 debug_step;				/* it executes one instruction for a debugger */
	u32 debug_flags;			/* FLAG_TF if the guest itself has it */
	u32 debug_resumed;			/* it was stopped, and has not looked at what came meanwhile */
	u64 debug_rip;				/* of that instruction */
	struct vmi_ap_state ap;

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
	u64 loaded;		/* vCPUs that have it loaded; under the spaces lock */
	u64 stamp;		/* last load, for eviction */
	u64 left;		/* TSC when a vCPU last left it */
	u64 kernel_generation;	/* that its kernel mappings are good for */
	u64 aged;		/* TSC of the last time that all user mappings were compared with the tables */
	u32 reset;		/* one more when its mappings belong to an older space; under the spaces lock */
	u32 reset_done;		/* the last one that they were dropped for */
	u32 user_mappings;	/* share of s.mappings, and pages of records and large pages, that go with the space */
	u32 user_tables;
	u64 text_va, text_gpa;	/* the last long piece that was mapped to be only read, or zero: for a guess whether it serves a new space, too */
	u64 exec_hint;		/* of the space that it was chosen for by that last, or zero */
	u32 expected;		/* what it has mapped to be only read is to stay at first; under the spaces lock */
	u32 needs_resync;		/* that is so now: it was not compared with the tables yet */
	u32 trimmed;		/* it gave back what it could, or was told to; under the spaces lock */
	u32 flush_wanted;	/* flushes that vCPUs of other processes have asked for */
	u32 flush_done;		/* of these; futex */
	struct lock lock;	/* over its mappings; taken by its own threads only */
};
_Static_assert(sizeof(struct proc) <= PHV_PROC_STRIDE, "PHV_PROC_STRIDE");

/* Behind the first 2 KiB of the shared area: the layer's own, for the whole machine. */
struct shared {
	struct phv_shared s;

	struct lock spaces;	/* over the assignment of processes to spaces, and AP start */
	struct lock console;
	u64 stamp;
	u64 kernel_root;	/* guest-physical; 0: none yet */
	u64 kernel_generation;
	u64 kernel_local;	/* some kernel translation was not global */
	u64 start_ns;		/* CLOCK_MONOTONIC of core.init */
	u64 init_done;
	u64 percpu_gs_offset;
	u64 percpu_table;	/* the kernel's, linear; it may move a vCPU's per-CPU data */
	u64 ram_size;
	u64 direct_map_end;
	u32 thread_descriptors;	/* THREAD_SELECTOR works: system calls can be injected */
	u32 xgetbv_in_use;	/* XGETBV with ECX = 1 works */
	u64 components;		/* xcr0_shown(), for hand-overs */
	u32 kernel_cs, kernel_ss, user_cs, user_ss;
	u64 tables;		/* pages of the host's tables in all processes, as far as they come from fills (fill.c) */
	struct lock clock_lock;	/* over the guest's clock page */
	u32 guest_clock_sequence;	/* of the monitor's clock when it was written, and the wall clock's offset */
	u64 guest_clock_wall;
	u64 guest_clock;	/* guest-physical address of it, 0 for none */
	u64 mappings;		/* of all processes, as far as they come from fills */
	u64 pool[PHV_POOL_CHUNKS / 64];	/* pieces of the pool that some process has */
	u16 guesses[4096];	/* cr3 >> 12 -> process + 1 */
};
_Static_assert(sizeof(struct shared) <= PHV_SHARED_CONSOLE, "PHV_SHARED_CONSOLE");

struct thread {
	struct vcpu *vcpu;
	u32 number;		/* of the vCPU; this copy no guest can write before its thread is in the sandbox */
	u32 tid;
	u64 sampled_cpu;	/* thread CPU time, ns, at the last sample */
	u64 unsampled;		/* TSC cycles that it was the vCPU since then */
	u32 cpuid_faults;	/* the host makes cpuid fault in this thread: user_cpuid_faults of its vCPU when it last was that */
	u32 supervisor_count;	/* user-range pages without the user bit that are mapped now */
	u64 supervisor[16];
};

_Static_assert(offsetof(struct thread, vcpu) == T_VCPU, "T_VCPU");

/* A process's own. */
struct self {
	u32 index;
	u32 pid;
	u32 sandboxed;		/* the filter stands; futex of the threads that wait for it */
	struct proc *proc;
};

extern struct self self;

/* By number, for the way of a system call from a stub, which knows no more than that. */
extern struct vcpu *ph_vcpu_table[];

/* vCPUs with an event that came while a call with any GS base was on (thunks.S). This process's own. */
extern u64 ph_any_pending;

#define shared ((struct shared *)PHV_SHARED)

static inline struct vcpu *vcpu_at(u32 number)
{
	return to_pointer(PHV_SHARED + PHV_SHARED_VCPUS + number * PHV_VCPU_STRIDE);
}

static inline struct proc *proc_at(u32 index)
{
	return to_pointer(PHV_SHARED + PHV_SHARED_PROCS + index * PHV_PROC_STRIDE);
}

/*
 * The layout of a thread's PHV_STACK_SIZE bytes: a page for its record, the host stack, the signal
 * stack. An unmapped page lies before and after each stack.
 */
#define HOST_STACK (2 * PAGE_SIZE)
#define HOST_STACK_SIZE (PHV_STACK_SIZE / 2 - HOST_STACK)
#define SIGNAL_STACK (PHV_STACK_SIZE / 2 + PAGE_SIZE)
#define SIGNAL_STACK_SIZE (PHV_STACK_SIZE / 2 - 2 * PAGE_SIZE)
_Static_assert(sizeof(struct thread) <= PAGE_SIZE, "HOST_STACK");

/* The record of a vCPU's thread in this process, by the vCPU's number. */
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

/* The virtual interrupt flag and its companions, in the kernel's per-CPU data. */
#define FAST(v, field) (*(volatile u8 *)((u8 *)(v)->percpu + (field)))

/* One instruction, since a signal may come between two and do the same. */
static inline void force(const struct vcpu *v, u8 why)
{
	__asm__ volatile("orb %1, %0" : "+m"(FAST(v, F_FORCE)) : "iq"(why));
}

/* An address that only the kernel maps: the hole, and everything from the direct map up. */
static inline bool kernel_address(u64 va)
{
	return va >= PHV_USER_END || (va >= PHV_HOLE_START && va < PHV_HOLE_END);
}

/*
 * Per-CPU data must lie in the image or in the direct map: the layer writes there at any time, also in a signal while it holds the
 * lock that a fill would need.
 */
static inline bool percpu_good(u64 pointer)
{
	u64 end = pointer + VMI_SIZE_PERCPU;

	return !(pointer & 63) && ((pointer >= PHV_IMAGE_START && end <= PHV_LAYER_BASE) ||
				   (pointer >= PHV_DIRECT_MAP && end <= shared->direct_map_end));
}

/* Guest-physical memory, or NULL if this is not RAM; bytes must not cross a page. */
static inline void *guest_ram(u64 gpa)
{
	return gpa < shared->ram_size ? to_pointer(PHV_DIRECT_MAP + gpa) : NULL;
}

#endif
