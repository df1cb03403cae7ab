// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The hand-over of a vCPU between the processes of address spaces. Which process is which space: pool.c.
 *
 * A hand-over costs two host calls at most (wake the other thread, wait on this one) and the context switch between
 * them. The vCPU's registers are in struct vcpu when it happens; XSAVE state, FS base go along. From the wake on this thread is
 * nothing any more: it touches neither the vCPU nor the guest's stack.
 */
#include "common/faults.h"
#include "calls/calls.h"
#include "host/cpuid.h"
#include "state/event.h"
#include "host/host.h"
#include "vcpu/irq.h"
#include "mm/mmu.h"
#include "vcpu/pool.h"
#include "mm/records.h"
#include "entry/signal.h"
#include "vcpu/space.h"

noreturn void ph_resume_call(struct vcpu *v);
noreturn void ph_resume_full(void);

/* State components that are not in their initial state; only where shared->xgetbv_in_use says that the processor tells. */
static u64 components_in_use(void)
{
	u32 low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
	return ((u64)high << 32 | low) & shared->components;
}

/*
 * The vector registers go along, unless the kernel says that it has saved what it needs of them (vectors is false). A kernel that
 * does not use them itself, and whose program does not either, has them in their initial state: then there is only MXCSR, which
 * belongs to no component. That is a tenth of a whole switch. Components of features that the kernel is not told of stay each
 * thread's own: the host keeps PKRU out of its initial state, for one.
 */
static void state_save(struct vcpu *v, bool vectors)
{
	v->ds_selector = read_ds_selector();
	v->es_selector = read_es_selector();
	v->fs_selector = read_fs_selector();
	v->gs_selector = read_gs_selector();
	v->fs_base = rdfsbase();
	v->vectors = vectors;
	if (!vectors)
		return;
	v->in_use = shared->xgetbv_in_use ? components_in_use() : 1;
	__asm__ volatile("stmxcsr %0" : "=m"(v->mxcsr));
	if (!v->in_use)
		return;
	/* Invariant: the area is 64-byte aligned and 16 KiB, more than any x86 has components for. */
	__asm__ volatile("xsavec64 %0" : "=m"(v->xsave) : "a"(shared->components), "d"(shared->components >> 32) : "memory");
}

static void state_load(struct vcpu *v)
{
	/* No component in XSTATE_BV: all become initial. MXCSR must be a legal value. */
	static const struct {
		u32 legacy[128];
		u64 header[8];
	} initial __attribute__((aligned(64))) = { .legacy = { [6] = 0x1f80 } };
	u64 components = shared->components;
	u32 mxcsr;

	if (!v->vectors)
		return;
	if (v->in_use)
		__asm__ volatile("xrstor64 %0" : : "m"(v->xsave), "a"(components), "d"(components >> 32) : "memory");
	else if (components_in_use())
		__asm__ volatile("xrstor64 %0" : : "m"(initial), "a"(components), "d"(components >> 32) : "memory");
	/* Its load counts as a use of the SSE component. */
	__asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
	if (mxcsr != v->mxcsr)
		__asm__ volatile("ldmxcsr %0" : : "m"(v->mxcsr));
}

/* A kernel reads the selectors of the program that it leaves when the space of the next one is loaded already. */
static void segments_load(struct vcpu *v)
{
	if (read_ds_selector() != v->ds_selector && !FAULT(SWITCH_KEEPS_SEGMENTS))
		load_ds_selector(v->ds_selector);
	if (read_es_selector() != v->es_selector && !FAULT(SWITCH_KEEPS_SEGMENTS))
		load_es_selector(v->es_selector);
	if (read_fs_selector() != v->fs_selector)
		load_fs_selector(v->fs_selector);
	if (read_gs_selector() != v->gs_selector)
		load_gs_selector(v->gs_selector);
	wrfsbase(v->fs_base);
	wrgsbase(v->kernel_gs);
}

/* Nothing to do, told by reads alone: this thread has the space loaded, so nobody gives the process to another one meanwhile. */
static bool synchronised(const struct vcpu *v)
{
	const struct proc *p = self.proc;

	return (!READ_ONCE(p->unsettled) || FAULT(EXPECTED_IS_SYNCHRONISED)) && v->context && v->generation &&
	       READ_ONCE(p->reset) == READ_ONCE(p->reset_done) && READ_ONCE(p->flush_done) == READ_ONCE(p->flush_wanted) &&
	       READ_ONCE(p->s.context) == v->context && READ_ONCE(p->s.generation) == v->generation &&
	       READ_ONCE(p->kernel_generation) == READ_ONCE(shared->kernel_generation);
}

/* Who waits for these flushes may be told: everything has been compared, or dropped, after they were asked for. */
static void flush_done(struct proc *p, u32 wanted)
{
	if (p->flush_done == wanted)
		return;
	__atomic_store_n(&p->flush_done, wanted, __ATOMIC_SEQ_CST);
	futex_wake(&p->flush_done, PHV_MAX_VCPUS);
}

/* Makes this process's mappings good for the vCPU's space at its generation. */
static void synchronise(struct vcpu *v)
{
	struct proc *p = self.proc;
	u32 wanted, reset;
	u64 kernel;

	if (synchronised(v))
		return;
	lock_take(&p->lock);
	/* Read before the tables are: what changes them later counts one more. */
	kernel = READ_ONCE(shared->kernel_generation);
	wanted = __atomic_load_n(&p->flush_wanted, __ATOMIC_SEQ_CST);
	reset = READ_ONCE(p->reset);
	if (reset != p->reset_done || !v->context || p->s.context != v->context) {
		tlb_take_over(v);
	} else if (p->unsettled || !v->generation || p->s.generation != v->generation || p->flush_done != wanted) {
		tlb_resync_user(v);
	}
	if (p->kernel_generation != kernel)
		tlb_resync_kernel(v);
	flush_done(p, wanted);
	p->reset_done = reset;
	p->s.context = v->context;
	p->s.generation = v->generation;
	p->kernel_generation = kernel;
	lock_release(&p->lock);
}

/* This thread is the vCPU from here on. */
static noreturn void become(struct vcpu *v)
{
	struct thread *t = thread_of(v);

	step();
	v->s.owner = (u64)self.pid << 32 | t->tid;
	step();
	/* A sender sets pending, then reads the owner; we write the owner, then read pending (in irq_refresh). */
	fence();
	synchronise(v);
	step();
	v->s.state = PHV_VCPU_RUNNING;
	stint_begin(v);
	clock_follow();
	if (!FAULT(CPUID_FAULTS_STAY_BEHIND))
		cpuid_faulting_follow(v, t);
	tlb_age(v, v->stint_start);
	segments_load(v);
	if (v->resume == RESUME_FULL) {
		if (v->percpu)
			irq_refresh(v);
		ph_resume_full();
	}
	state_load(v);
	irq_refresh(v);
	ph_resume_call(v);
}

/*
 * What a thread that is parked is told by its word: to go on as the vCPU; to drop the mappings of a space that was released, which
 * whoever takes the process next would have to do anyway; to give back all that the process can do without. By itself it says there that it
 * waits. One that was woken often runs at once, on the same CPU, in the middle of the waker's call; when it wakes that one, nobody waits yet.
 */
#define WAKE_RUN 1
#define WAKE_DROP 2
#define WAKE_REST 3
#define WAKE_WAITS 4

static void drop_released(void)
{
	struct proc *p = self.proc;

	lock_take(&p->lock);
	/* Unless somebody else was faster. */
	if (READ_ONCE(p->reset) != p->reset_done)
		tlb_drop_user();
	lock_release(&p->lock);
}

/*
 * Two thirds of what a process takes of the host's memory are page tables and records. A fault brings back what is needed: one of a few
 * microseconds, or of half a one in the direct map, where only the host's tables are new.
 */
static void rest(void)
{
	struct proc *p = self.proc;
	u32 i;

	lock_take(&p->lock);
	records_rest();
	for (i = 0; i < shared->s.slot_count && i < PHV_MAX_SLOTS; i++) {
		const struct phv_slot *slot = &shared->s.slots[i];
		u64 start = PHV_DIRECT_MAP + slot->gpa;

		/* In one host call, so that another thread here finds the old ones or the new one. */
		if (host6(mmap, start, slot->size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_FIXED,
			  PHV_FD_RAM + i, 0) != (s64)start)
			fatal("process: mmap failed at", start);
	}
	lock_release(&p->lock);
}

noreturn void space_park(void *thread)
{
	struct thread *t = thread;
	struct vcpu *v = t->vcpu;
	u32 *word = &self.proc->s.wake[v->number];

	for (;;) {
		u32 told = __atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE), nothing = 0;

		if (told == WAKE_RUN)
			become(v);
		if (told == WAKE_DROP)
			drop_released();
		else if (told == WAKE_REST)
			rest();
		else if (__atomic_compare_exchange_n(word, &nothing, WAKE_WAITS, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			futex_wait(word, WAKE_WAITS, U64_MAX);
	}
}

static void wake_thread(struct vcpu *v, u32 index, u32 what)
{
	u32 *word = &proc_at(index)->s.wake[v->number];

	step();
	if (__atomic_exchange_n(word, what, __ATOMIC_RELEASE) == WAKE_WAITS) {
		step();
		futex_wake(word, 1);
	}
	step();
}

void space_load(struct vcpu *v, u64 cr3, u64 context, u64 generation)
{
	u32 index = pool_get(v, cr3 & PTE_ADDR);

	step();
	v->cr3 = cr3 & ~(u64)VMI_CR3_NO_VECTORS;
	v->context = context;
	v->generation = generation;
	if (index == self.index) {
		synchronise(v);
		tlb_age(v, rdtsc_rough());
		return;
	}
	/*
	 * Only this thread would do it on its way to user mode. What the space was expected to have stays as it is: the tables to compare it with
	 * are loaded no more, and whoever loads them does (synchronise).
	 */
	tlb_drop_supervisor(v);
	v->s.switches++;
	event(v, PHV_EVENT_SWITCH, cr3, index);
	stint_end(v);
	self.proc->left = v->woken;
	state_save(v, !(cr3 & VMI_CR3_NO_VECTORS));
	v->resume = RESUME_CALL;
	v->s.proc = index;
	wake_thread(v, index, WAKE_RUN);
	ph_on_stack(v->host_stack, space_park, thread_of(v));
}

bool space_release(struct vcpu *v, u64 cr3)
{
	bool drop = false;
	s64 index;

	if ((v->cr3 & PTE_ADDR) == cr3)
		return false;
	lock_take(&shared->spaces);
	index = pool_find(cr3);
	if (index >= 0) {
		struct proc *p = proc_at((u32)index);

		p->reset++;
		if (!p->loaded) {
			p->s.state = PHV_PROC_FREE;
			p->s.cr3 = 0;
			drop = p->user_mappings > KEEP_MAPPINGS || p->user_tables > KEEP_TABLES;
		}
	}
	lock_release(&shared->spaces);
	/* This vCPU's thread there is parked, and only this vCPU can wake it. */
	if (drop)
		wake_thread(v, (u32)index, WAKE_DROP);
	return true;
}

/*
 * Processes that no vCPU has been in for so long rest while this one sleeps. A few at a time: an interrupt waits for the loop, and for the CPU.
 */
#define REST_AFTER_SECONDS 4
#define REST_AT_ONCE 16

u64 space_rest(struct vcpu *v)
{
	u64 now = rdtsc_rough(), long_ago = REST_AFTER_SECONDS * shared->s.clock.tsc_hz, next = U64_MAX;
	u32 i, count = READ_ONCE(shared->s.proc_count), more = REST_AT_ONCE;
	bool go;

	for (i = 0; i < count && i < PHV_MAX_PROCS; i++) {
		struct proc *p = proc_at(i);
		u64 ago = now - READ_ONCE(p->left);

		/* Never left: it has nothing. */
		if (READ_ONCE(p->resting) || READ_ONCE(p->loaded) || !READ_ONCE(p->left))
			continue;
		if ((s64)ago < (s64)long_ago || !more) {
			u64 wait = (s64)ago < (s64)long_ago ? long_ago - ago : 0;

			next = wait < next ? wait : next;
			continue;
		}
		lock_take(&shared->spaces);
		go = !p->resting && !p->loaded;
		if (go)
			p->resting = 1;
		lock_release(&shared->spaces);
		/* This vCPU's thread there is parked, and only this vCPU can wake it. */
		if (go) {
			wake_thread(v, i, WAKE_REST);
			more--;
		}
	}
	/* Another one may have been left a moment ago, by a counter that is ahead of this one. */
	return next == U64_MAX ? U64_MAX : now_ns() + cycles_ns(next < long_ago ? next : long_ago);
}

void space_flush_serve(struct vcpu *v)
{
	struct proc *p = self.proc;
	u32 wanted;

	if (READ_ONCE(p->flush_done) == READ_ONCE(p->flush_wanted))
		return;
	lock_take(&p->lock);
	wanted = __atomic_load_n(&p->flush_wanted, __ATOMIC_SEQ_CST);
	if (p->flush_done != wanted)
		tlb_resync_user(v);
	flush_done(p, wanted);
	lock_release(&p->lock);
}

/*
 * A process that has the space loaded on other vCPUs alone. Any of its threads can do it: each that is a vCPU is asked, and the first that looks
 * does it for all. One that leaves the process meanwhile need not, and one that comes in does it by itself: it marks the process as
 * loaded, then reads flush_wanted; this writes flush_wanted, then reads loaded.
 */
static void flush_elsewhere(struct vcpu *v, struct proc *p)
{
	u32 wanted = __atomic_add_fetch(&p->flush_wanted, 1, __ATOMIC_SEQ_CST), done, i;
	u64 asked = 0, loaded;

	for (;;) {
		step();
		done = __atomic_load_n(&p->flush_done, __ATOMIC_SEQ_CST);
		loaded = __atomic_load_n(&p->loaded, __ATOMIC_SEQ_CST);
		if ((s32)(done - wanted) >= 0 || !loaded)
			return;
		for (i = 0; i < PHV_MAX_VCPUS; i++)
			if (loaded & ~asked & 1ULL << i)
				irq_notify(vcpu_at(i), PHV_PENDING_FLUSH);
		asked |= loaded;
		/* Who is asked may itself be waiting here, for this process. */
		space_flush_serve(v);
		futex_wait(&p->flush_done, done, now_ns() + 1000000);
	}
}

void space_flush(struct vcpu *v, u64 cr3, u64 context, u64 generation, u64 start, u64 end)
{
	s64 index;

	if ((v->cr3 & PTE_ADDR) == cr3 && v->context == context && context) {
		tlb_flush_space(v, generation, start, end);
		return;
	}
	lock_take(&shared->spaces);
	index = pool_find(cr3);
	lock_release(&shared->spaces);
	if (index < 0)
		return;
	if ((u32)index == self.index)
		tlb_resync(v, start, end);
	else
		flush_elsewhere(v, proc_at((u32)index));
}

/* A vCPU that is off takes on what smp.set_ap_state said; the rest is as after a reset. Under the spaces lock. */
static void prepare_start(struct vcpu *v)
{
	const struct vmi_ap_state *state = &v->ap;

	/* Nothing of what was noted in its old per-CPU data counts. */
	percpu_update(v);
	*(u64 *)((u8 *)v->percpu + F_VCPU) = (u64)v;
	FAST(v, F_PENDING) = 0;
	FAST(v, F_FORCE) = 0;
	FAST(v, F_IRQ) = (state->rflags & FLAG_IF) != 0;
	v->cr0 = state->cr0;
	v->cr2 = 0;
	v->cr3 = state->cr3;
	v->context = state->context_id;
	v->generation = state->generation;
	v->cr4 = state->cr4;
	v->cr8 = 0;
	v->efer = state->efer | 0x400;
	v->gdt_base = state->gdt_base;
	v->gdt_limit = state->gdt_limit;
	v->idt_base = state->idt_base;
	v->idt_limit = state->idt_limit;
	v->tr = state->tr;
	v->ldt = state->ldtr;
	v->kernel_gs = state->gs_base;
	v->fs_base = state->fs_base;
	v->ds_selector = v->es_selector = v->fs_selector = v->gs_selector = 0;
	v->user_gs = 0;
	v->user_cpuid_faults = 0;
	v->lazy_mode = 0;
	v->queued = 0;
	v->expected_likeness = 0;
	v->alarm_fired = 0;
	v->nmi_on = 0;
	__builtin_memset(v->isr, 0, sizeof(v->isr));
	__builtin_memset(v->s.irr, 0, sizeof(v->s.irr));
	__atomic_store_n(&v->s.pending, 0, __ATOMIC_SEQ_CST);
	v->resume = RESUME_FULL;
	v->s.state = PHV_VCPU_RUNNING;
}

/* Under no lock, by who has prepared it. */
static void start(struct vcpu *v)
{
	u32 index = pool_get(v, v->cr3 & PTE_ADDR);

	v->woken = rdtsc_rough();
	v->s.proc = index;
	wake_thread(v, index, WAKE_RUN);
}

void space_startup(struct vcpu *v)
{
	bool off;

	lock_take(&shared->spaces);
	off = v->s.state == PHV_VCPU_OFF && v->have_ap_state;
	if (off)
		prepare_start(v);
	else if (READ_ONCE(v->s.pending) & PHV_PENDING_STOP)
		v->startup_pending = v->have_ap_state;
	lock_release(&shared->spaces);
	step();
	if (off)
		start(v);
}

noreturn void space_stop_vcpu(struct vcpu *v)
{
	bool again;

	stint_end(v);
	v->s.deadline_ns = U64_MAX;
	v->alarms[0].armed = v->alarms[1].armed = 0;
	/*
	 * Whether it is on, is to go off, and is to start again change together, under the lock (send_init, send_startup): an INIT
	 * that came meanwhile is this one, and only one of those who may start it does.
	 */
	lock_take(&shared->spaces);
	proc_at(v->s.proc)->loaded &= ~(1ULL << v->number);
	v->s.state = PHV_VCPU_OFF;
	__atomic_fetch_and(&v->s.pending, ~(u32)PHV_PENDING_STOP, __ATOMIC_SEQ_CST);
	again = v->startup_pending;
	v->startup_pending = 0;
	if (again)
		prepare_start(v);
	lock_release(&shared->spaces);
	step();
	if (again)
		start(v);
	/* This may be the handler of a notification, in which others are blocked. */
	signals_open(thread_of(v), space_park);
}
