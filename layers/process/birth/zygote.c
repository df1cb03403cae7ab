// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The zygote: maps what every process of the machine has, then makes processes when the monitor
 * asks. It never runs guest code. The data that decides about a new process is its own copy. It
 * made this copy from the shared area before any guest code existed, because the guest can write
 * there later. child.c has the code of a new process.
 *
 * The zygote has no filter, so nothing may disturb it. It blocks every signal from its first host
 * call on and has no handlers. A signalfd reports when its children end. Unmapped pages surround
 * its stack.
 */
#include "birth/zygote.h"
#include "birth/child.h"
#include "birth/plan.h"
#include "calls/patch.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "entry/fpstate.h"
#include "host/call.h"
#include "host/costs.h"
#include "host/cpuid.h"
#include "host/futex.h"
#include "host/signals.h"
#include "host/step.h"
#include "state/state.h"

#define WNOHANG 1
#define WEXITED 4
#define WNOWAIT 0x1000000
#define P_PID 1
#define CLD_EXITED 1
#define MSG_DONTWAIT 0x40
#define POLLIN 1
#define SFD_NONBLOCK 0x800

/* The end of what a program can map, and where the host usually puts its own mappings. */
#define HOST_USER_END 0x7ffffffff000ULL
#define HOST_STACKS 0x7f0000000000ULL

/* How long, ns, the zygote waits for a new process before it checks whether that has ended. */
#define LOOK_AGAIN 10000000

union plan_pages plan_pages __attribute__((aligned(PAGE_SIZE)));
extern u8 ph_load_end[], ph_boot_stack[], ph_boot_stack_top[];

u64 zygote_stack(void);
noreturn void zygote_main(void);

/* Process ids of the children by index. Private, unlike phv_proc.pid. */
static u32 children[PHV_MAX_PROCS];
/* More than the index of each of them. */
static u32 children_end;

void tell(u32 op, u32 index, u32 pid, u32 value)
{
	struct phv_message m = { op, index, pid, value };

	host6(sendto, PHV_FD_CONTROL, &m, sizeof(m), 0x4000, 0, 0);
}

noreturn void die(u32 step, s64 error)
{
	tell(PHV_OP_FAILED, step, self.pid, (u32)-error);
	for (;;)
		host1(exit_group, 100 + step);
}

static s64 map(u64 addr, u64 size, u64 prot, u64 flags, s64 fd, u64 offset)
{
	return host6(mmap, addr, size, prot, flags | MAP_FIXED, fd, offset);
}

/*
 * The zygote needs no access to the guest's memory. A new process gives itself access when its
 * filter is installed (child.c).
 */
static void map_ram(void)
{
	const u64 prot =
		FAULT(GUEST_MEMORY_EXECUTABLE) ? PROT_READ | PROT_WRITE | PROT_EXEC : PROT_NONE;
	u32 i, s;

	for (i = 0; i < plan->region_count; i++) {
		const struct phv_region *r = &plan->regions[i];

		must(PHV_STEP_RAM,
		     map(plan->direct_map + r->gpa, r->size, prot, MAP_SHARED, PHV_FD_RAM + i, 0));
		shared->ram_size = r->gpa + r->size;
	}
	shared->direct_map = plan->direct_map;
	shared->direct_map_end = plan->direct_map + shared->ram_size;
	for (s = 0; s < plan->segment_count; s++) {
		const struct phv_segment *segment = &plan->segments[s];

		for (i = 0; i < plan->region_count; i++) {
			const struct phv_region *r = &plan->regions[i];

			if (segment->gpa - r->gpa < r->size)
				must(PHV_STEP_IMAGE,
				     map(segment->addr, segment->size, prot, MAP_SHARED,
							    PHV_FD_RAM + i, segment->gpa - r->gpa));
		}
	}
}

/* Register pages of devices. Guests get them read-only, one by one (mm/fill.c). */
static void map_devices(void)
{
	if (shared->s.device_count)
		must(PHV_STEP_RAM,
		     map(PHV_DEVICES, shared->s.device_count * PAGE_SIZE, PROT_READ | PROT_WRITE,
					  MAP_SHARED, PHV_FD_RAM + shared->s.region_count, 0));
}

/*
 * Moves the thunks to shared memory, at the addresses that they were linked for. A new process
 * makes them executable.
 */
static void share_thunks(void)
{
	u64 i, size = ((u64)(ph_thunks_end - ph_thunks_start) + PAGE_SIZE - 1) & PAGE_MASK;
	u8 *copy = to_pointer(PHV_SHARED + PHV_SHARED_THUNKS);

	for (i = 0; i < size; i++)
		copy[i] = ph_thunks_start[i];
	must(PHV_STEP_SHARED, map((u64)ph_thunks_start, size,
				     PROT_READ | PROT_WRITE |
				     (FAULT(GUEST_MEMORY_EXECUTABLE) ? PROT_EXEC : 0),
				     MAP_SHARED, PHV_FD_SHARED, PHV_SHARED_THUNKS));
}

static void vcpus_prepare(void)
{
	struct vmi_cpuid regs;
	u32 i;

	cpuid_host(0xd, 1, &regs);
	shared->xgetbv_in_use = regs.eax >> 2 & 1;
	shared->components = xcr0_shown();
	fpstate_prepare();

	for (i = 0; i < shared->s.vcpu_count; i++) {
		struct vcpu *v = vcpu_at(i);
		struct thread *t;

		v->number = i;
		v->apic_id = i;
		t = thread_at(i);
		t->number = i;
		t->vcpu = v;
		ph_vcpu_table[i] = v;
		v->host_stack = host_stack_top(t);
		v->s.deadline_ns = U64_MAX;
		v->cr0 = 0x80050033;
		v->cr4 = 0x20;
		v->efer = 0xd01;
		v->pat = 0x0007040600070406;
		v->apic_base = 0xfee00800 | (i == 0 ? 0x100 : 0);
		v->dr[6] = 0xffff0ff0;
		v->dr[7] = 0x400;
		v->apic[0xf] = 0xff;
	}
}

/* vCPU 0 starts at the kernel's VMI entry. */
static void boot_vcpu_prepare(void)
{
	struct vcpu *v = vcpu_at(0);

	v->ap.rip = shared->s.kernel_entry;
	v->ap.rflags = FAULT(ENTRY_WITH_NT) ? 2 | 1U << 14 : 2;
	v->ap.gpr[4] = shared->s.boot_stack;
	v->ap.gpr[7] = shared->s.boot_info;
	v->resume = RESUME_FULL;
	v->s.proc = 0;
	proc_at(0)->loaded = 1;
}

/*
 * A container's filter may kill a process that makes a 32-bit call, so a child tries first. Without
 * descriptors a machine of one vCPU works as it is, and a larger one does without stubs.
 */
static bool try_descriptors(void)
{
	u32 status = 0;
	s64 child = host6(clone, SIGCHLD, 0, 0, 0, 0, 0);

	if (child == 0)
		for (;;)
			host1(exit_group, thread_descriptor(0) ? 0 : 1);
	return child > 0 && host4(wait4, child, &status, 0, 0) == child && status == 0;
}

/*
 * Reports each child that has ended, once. It stays a zombie until the zygote ends, because the
 * monitor signals and pins processes by id: no other program may get the id before that.
 */
static void report_ended(void)
{
	struct host_siginfo info;
	u32 i, status;

	for (i = 0; i < children_end; i++) {
		info.kill.pid = 0;
		if (!children[i] || host6(waitid, P_PID, children[i], &info,
					  WEXITED | WNOHANG | (FAULT(REAPED_AT_ONCE) ? 0 : WNOWAIT),
					  0, 0) != 0 || !info.kill.pid)
			continue;
		/* As wait4 has it. */
		status = info.code == CLD_EXITED ? (info.kill.status & 0xff) << 8 :
						   info.kill.status & 0x7f;
		tell(PHV_OP_DIED, i, children[i], status);
		children[i] = 0;
	}
}

/* Fixes what decides about every process from here on. No guest code exists yet. */
static void plan_make(u32 pid)
{
	const u64 *filter = to_pointer(PHV_SHARED + PHV_SHARED_FILTER);
	struct process_plan *p = &plan_pages.p;
	u32 i;

	p->zygote = pid;
	p->filter_length = shared->s.filter_length;
	p->flags = shared->s.flags;
	p->vcpu_count = shared->s.vcpu_count;
	p->region_count = shared->s.region_count;
	p->segment_count = shared->s.segment_count;
	p->direct_map = shared->s.direct_map;
	if (!p->filter_length || p->filter_length > PHV_FILTER_MAX || !p->vcpu_count ||
	    p->vcpu_count > PHV_MAX_VCPUS || p->region_count > PHV_MAX_REGIONS ||
	    p->segment_count > ARRAY_SIZE(p->segments))
		die(PHV_STEP_SHARED, -22);
	for (i = 0; i < p->filter_length; i++)
		p->filter[i] = filter[i];
	for (i = 0; i < p->vcpu_count; i++)
		p->cpu[i] = shared->s.vcpu_cpu[i];
	for (i = 0; i < p->region_count; i++)
		p->regions[i] = shared->s.regions[i];
	for (i = 0; i < p->segment_count; i++)
		p->segments[i] = shared->s.segments[i];
}

/* SIGCHLD arrives as data to read, since the zygote keeps every signal blocked. */
static void hear_of_children(void)
{
	const u64 child_signal = 1ULL << (SIGCHLD - 1);
	s64 fd = host4(signalfd4, -1, &child_signal, 8, SFD_NONBLOCK);

	must(PHV_STEP_SIGNALS, fd);
	plan_pages.p.child_events = (s32)fd;
}

/*
 * Maps the record, host stack and signal stack of each vCPU, with an unmapped page before and after
 * each stack.
 */
static void map_stacks(void)
{
	u32 i;

	for (i = 0; i < plan->vcpu_count; i++) {
		u64 t = (u64)thread_at(i);

		if (FAULT(STACKS_ADJOIN))
			must(PHV_STEP_ARENA, map(t, PHV_STACK_SIZE, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
						 -1, 0));
		must(PHV_STEP_ARENA, map(t, PAGE_SIZE, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
		must(PHV_STEP_ARENA, map(t + HOST_STACK, HOST_STACK_SIZE, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
		must(PHV_STEP_ARENA,
		     map(t + SIGNAL_STACK, SIGNAL_STACK_SIZE, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	}
}

/* Uses the host's clock, since the guest can write to the page of the layer's. */
static u64 host_ns(void)
{
	struct host_timespec t = { 0, 0 };

	host2(clock_gettime, CLOCK_MONOTONIC, &t);
	return (u64)t.sec * 1000000000 + (u64)t.nsec;
}

/*
 * One process at a time, so that the monitor learns of them in order, and only of those that are in
 * their sandbox. Nothing that the guest can write reports this.
 */
static void make_process(u32 index)
{
	u32 *ready = FAULT(READY_IN_SHARED) ? &proc_at(index)->s.state : ph_ready;
	u32 status = 0;
	s64 child;

	__atomic_store_n(ready, 0, __ATOMIC_RELEASE);
	child = host6(clone, SIGCHLD, 0, 0, 0, 0, 0);
	if (child == 0)
		child_main(index);
	if (child < 0) {
		tell(PHV_OP_FAILED, PHV_STEP_FORK, index, (u32)-child);
		return;
	}
	while (!__atomic_load_n(ready, __ATOMIC_ACQUIRE)) {
		if (host4(wait4, child, &status, WNOHANG, 0) == child) {
			tell(PHV_OP_DIED, index, (u32)child, status);
			return;
		}
		futex_wait_host(ready, 0, host_ns() + LOOK_AGAIN);
	}
	children[index] = (u32)child;
	if (children_end <= index)
		children_end = index + 1;
	tell(PHV_OP_READY, index, (u32)child, 0);
}

/* Blocks all signals and maps the zygote's stack. Returns its top. Runs on the host's stack. */
u64 zygote_stack(void)
{
	const u64 all = FAULT(ZYGOTE_OPEN) ? 0 : U64_MAX;
	s64 size = ph_boot_stack_top - ph_boot_stack;

	if (host4(rt_sigprocmask, SIG_SETMASK, &all, 0, 8) != 0 ||
	    map((u64)ph_boot_stack, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0) < 0)
		for (;;)
			host1(exit_group, 100 + PHV_STEP_SIGNALS);
	return (u64)ph_boot_stack_top;
}

/*
 * Unmaps what the host has mapped: its stack, vdso, vvar. Nothing here uses them, and the guest
 * must not find them. Their place depends on the host and on the user's limits: without a stack
 * limit they lie in the guest's range. So this unmaps everything except the program and the stack
 * in use, before anything else is mapped.
 */
static void leave_host(void)
{
	const u64 end = ((u64)ph_load_end + PAGE_SIZE - 1) & PAGE_MASK;
	const u64 stack = (u64)ph_boot_stack, top = (u64)ph_boot_stack_top;

	if (FAULT(HOST_PAGES_STAY)) {
		must(PHV_STEP_SHARED, host2(munmap, HOST_STACKS, HOST_USER_END - HOST_STACKS));
		return;
	}
	must(PHV_STEP_SHARED, host2(munmap, 0, PHV_LAYER_BASE));
	must(PHV_STEP_SHARED, host2(munmap, end, stack - end));
	must(PHV_STEP_SHARED, host2(munmap, top, HOST_USER_END - top));
}

static void serve(void)
{
	struct {
		s32 fd;
		u16 events, revents;
	} poll[] = { { PHV_FD_CONTROL, POLLIN, 0 }, { plan->child_events, POLLIN, 0 } };
	struct phv_message m;
	u8 info[128];
	s64 r;

	host6(ppoll, poll, ARRAY_SIZE(poll), 0, 0, 0, 0);
	/* One signal may stand for several ended children. */
	if (host3(read, plan->child_events, info, sizeof(info)) > 0)
		report_ended();
	r = host6(recvfrom, PHV_FD_CONTROL, &m, sizeof(m), MSG_DONTWAIT, 0, 0);
	if (r == 0)
		host1(exit_group, 0);
	if (r == sizeof(m) && m.op == PHV_OP_FORK && m.index < PHV_MAX_PROCS)
		make_process(m.index);
}

noreturn void zygote_main(void)
{
	u32 pid = (u32)host0(getpid);

	self.pid = pid;
	leave_host();
	must(PHV_STEP_SHARED, map(PHV_SHARED, PHV_SHARED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
				     PHV_FD_SHARED, 0));
	plan_make(pid);
	must(PHV_STEP_ARENA, map(PHV_ARENA, PHV_ARENA_SIZE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	if (shared->s.pool_chunks)
		must(PHV_STEP_ARENA,
		     map(PHV_POOL, (u64)shared->s.pool_chunks * PHV_POOL_CHUNK,
			 PROT_READ | PROT_WRITE,
					    MAP_SHARED, PHV_FD_SHARED, PHV_SHARED_SIZE));
	map_stacks();
	must(PHV_STEP_SHARED,
	     map((u64)ph_ready, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		 0));
	share_thunks();
	map_ram();
	map_devices();
	must(PHV_STEP_CPUID, cpuid_prepare() ? 0 : -HOST_E2BIG);
	costs_prepare();
	vcpus_prepare();
	boot_vcpu_prepare();
	plan_pages.p.descriptors = try_descriptors();
	shared->thread_descriptors = plan->descriptors;
	/* Before any fork, since each process has its own copy of the table that says so. */
	patch_offer();
	hear_of_children();
	if (!FAULT(PLAN_WRITABLE))
		must(PHV_STEP_SHARED, host3(mprotect, &plan_pages, sizeof(plan_pages), PROT_READ));
	tell(PHV_OP_READY, 0xffffffff, pid, 0);
	for (;;)
		serve();
}
