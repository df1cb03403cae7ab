// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The program's first life: it maps what every process of the machine has, and then makes processes when the monitor asks. It
 * never runs guest code, and what decides about a new process it has copied from the shared area before any guest code
 * existed: later the guest can write there. A new process makes its threads, gives up what it does not need, installs the filter, and parks.
 */
#include "calls.h"
#include "cpuid.h"
#include "host.h"
#include "irq.h"
#include "mmu.h"
#include "signal.h"
#include "space.h"

extern u8 ph_thunks_start[], ph_thunks_end[];

#define PR_SET_PDEATHSIG 1
#define PR_SET_DUMPABLE 4
#define PR_SET_NO_NEW_PRIVS 38
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#define SECCOMP_SET_MODE_FILTER 1
#define SECCOMP_FILTER_FLAG_TSYNC 1
#define SECCOMP_FILTER_FLAG_SPEC_ALLOW 4
#define CLONE_THREAD_FLAGS 0x50f00	/* VM FS FILES SIGHAND THREAD SYSVSEM */
#define WNOHANG 1
#define MSG_DONTWAIT 0x40
#define POLLIN 1

struct self self;
extern struct vcpu *ph_vcpu_table[];
extern const u8 ph_host_call_end[];

noreturn void zygote_main(void);

/* The zygote's own copy of what a process is made by. */
static struct {
	u64 filter[VMI_PH_FILTER_MAX];
	u32 filter_length, flags, vcpu_count;
	u32 cpu[VMI_PH_MAX_VCPUS];
	bool descriptors;	/* threads can have descriptors */
} plan;

static void tell(u32 op, u32 index, u32 pid, u32 value)
{
	struct vmi_ph_message m = { op, index, pid, value };

	host6(sendto, VMI_PH_FD_CONTROL, &m, sizeof(m), 0x4000, 0, 0);
}

static noreturn void die(u32 step, s64 error)
{
	tell(VMI_PH_OP_FAILED, step, self.pid, (u32)-error);
	for (;;)
		host1(exit_group, 100 + step);
}

static void must(u32 step, s64 result)
{
	if (result < 0)
		die(step, result);
}

static s64 map(u64 addr, u64 size, u64 prot, u64 flags, s64 fd, u64 offset)
{
	return host6(mmap, addr, size, prot, flags | MAP_FIXED, fd, offset);
}

static void map_ram(void)
{
	u32 i, s;

	for (i = 0; i < shared->s.slot_count; i++) {
		const struct vmi_ph_slot *slot = &shared->s.slots[i];

		must(VMI_PH_STEP_RAM, map(VMI_PH_DIRECT_MAP + slot->gpa, slot->size, PROT_READ | PROT_WRITE | PROT_EXEC,
					  MAP_SHARED, VMI_PH_FD_RAM + i, 0));
		shared->ram_size = slot->gpa + slot->size;
	}
	shared->direct_map_end = VMI_PH_DIRECT_MAP + shared->ram_size;
	for (s = 0; s < shared->s.segment_count; s++) {
		const struct vmi_ph_segment *segment = &shared->s.segments[s];

		for (i = 0; i < shared->s.slot_count; i++) {
			const struct vmi_ph_slot *slot = &shared->s.slots[i];

			if (segment->gpa - slot->gpa < slot->size)
				must(VMI_PH_STEP_IMAGE,
				     map(segment->addr, segment->size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED,
					 VMI_PH_FD_RAM + i, segment->gpa - slot->gpa));
		}
	}
}

/* Register pages of devices: guests get them read-only, one by one (tlb.c). */
static void map_devices(void)
{
	if (shared->s.device_count)
		must(VMI_PH_STEP_RAM, map(VMI_PH_DEVICES, shared->s.device_count * PAGE_SIZE, PROT_READ | PROT_WRITE,
					  MAP_SHARED, VMI_PH_FD_RAM + shared->s.slot_count, 0));
}

/* The thunks move to shared memory, at the addresses they were linked for. */
static void share_thunks(void)
{
	u64 i, size = ((u64)(ph_thunks_end - ph_thunks_start) + PAGE_SIZE - 1) & PAGE_MASK;
	u8 *copy = to_pointer(VMI_PH_SHARED + VMI_PH_SHARED_THUNKS);

	for (i = 0; i < size; i++)
		copy[i] = ph_thunks_start[i];
	must(VMI_PH_STEP_SHARED, map((u64)ph_thunks_start, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED,
				     VMI_PH_FD_SHARED, VMI_PH_SHARED_THUNKS));
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
		t = to_pointer(VMI_PH_STACKS + i * VMI_PH_STACK_SIZE);
		t->number = i;
		t->vcpu = v;
		ph_vcpu_table[i] = v;
		v->host_stack = (u64)t + VMI_PH_STACK_SIZE / 2;
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

/* vCPU 0 starts where the kernel's VMI entry is. */
static void boot_vcpu_prepare(void)
{
	struct vcpu *v = vcpu_at(0);

	v->ap.rip = shared->s.kernel_entry;
	v->ap.rflags = 2;
	v->ap.gpr[4] = shared->s.boot_stack;
	v->ap.gpr[7] = shared->s.boot_info;
	v->resume = RESUME_FULL;
	v->s.proc = 0;
	proc_at(0)->loaded = 1;
}

/* How a system call from user code finds its vCPU. The filter does not admit this call later. */
static bool thread_descriptor(u32 number)
{
	/* Below 4 GiB, in the program itself; each thread has its own. */
	static struct {
		u32 entry, base, limit, flags;
	} all[VMI_PH_MAX_VCPUS];

	all[number].entry = THREAD_ENTRY;
	all[number].limit = number;
	all[number].flags = 0x41;	/* 32-bit data segment, byte limit, usable */
	return ph_set_thread_area(&all[number]) == 0;
}

/*
 * A container's filter may kill whoever makes a 32-bit call: somebody who is not needed tries first. Without descriptors a machine
 * of one vCPU goes on as it is, a larger one without rewritten system-call sites.
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
 * Guest system calls are caught by the filter, except two numbers that recent hosts let pass by every filter (335 and 336,
 * uretprobe and uprobe). System-call user dispatch comes before that. A host without it is no worse than its filter.
 */
static void dispatch_all(void)
{
	host6(prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, ph_host_call_end, 1, 0, 0);
}

static void thread_begin(struct thread *t)
{
	u64 mask[16];
	u32 cpu = plan.cpu[t->number], i;

	t->tid = (u32)host0(gettid);
	self.proc->s.tid[t->number] = t->tid;
	must(VMI_PH_STEP_SIGNALS, signals_stack(t));
	if (plan.descriptors)
		must(VMI_PH_STEP_THREAD, thread_descriptor(t->number) ? 0 : -38);
	dispatch_all();
	if (cpu >= 1024)
		return;
	for (i = 0; i < ARRAY_SIZE(mask); i++)
		mask[i] = 0;
	mask[cpu / 64] = 1ULL << (cpu & 63);
	/* A CPU that has just gone away is no reason to fail: the monitor places the thread again. */
	host3(sched_setaffinity, 0, sizeof(mask), mask);
}

static u32 threads_ready;

static noreturn void thread_main(void *argument)
{
	struct thread *t = argument;

	thread_begin(t);
	__atomic_fetch_add(&threads_ready, 1, __ATOMIC_RELEASE);
	futex_wake(&threads_ready, 1);
	/* Nothing that the guest can write is obeyed before the filter stands. */
	while (!__atomic_load_n(&self.sandboxed, __ATOMIC_ACQUIRE))
		futex_wait(&self.sandboxed, 0, U64_MAX);
	space_park(t);
}

static void make_threads(void)
{
	u32 i, count = plan.vcpu_count, seen;

	for (i = 1; i < count; i++) {
		struct thread *t = to_pointer(VMI_PH_STACKS + i * VMI_PH_STACK_SIZE);

		must(VMI_PH_STEP_THREAD, ph_clone(CLONE_THREAD_FLAGS, (u8 *)t + VMI_PH_STACK_SIZE / 2, thread_main, t));
	}
	while ((seen = __atomic_load_n(&threads_ready, __ATOMIC_ACQUIRE)) < count - 1)
		futex_wait(&threads_ready, seen, U64_MAX);
}

static void sandbox(u32 parent)
{
	struct {
		u16 length;
		u16 pad[3];
		u64 filter;
	} program = { (u16)plan.filter_length, { 0 }, (u64)plan.filter };

	must(VMI_PH_STEP_SANDBOX, host2(prctl, PR_SET_PDEATHSIG, SIGKILL));
	/* The parent may have died before that call. */
	if (host0(getppid) != parent)
		host1(exit_group, 1);
	must(VMI_PH_STEP_SANDBOX, host4(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0));
	if (!(plan.flags & 1))
		must(VMI_PH_STEP_SANDBOX, host2(prctl, PR_SET_DUMPABLE, 0));
	/* What fails from here on shows in the exit code alone. */
	host1(close, VMI_PH_FD_CONTROL);
	/* A positive result names a thread that could not be filtered. */
	if (host3(seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		  &program) != 0)
		host1(exit_group, 100 + VMI_PH_STEP_FILTER);
	__atomic_store_n(&self.sandboxed, 1, __ATOMIC_RELEASE);
	futex_wake(&self.sandboxed, VMI_PH_MAX_VCPUS);
}

/* A new process; its copy of the zygote's stack is left for vCPU 0's own. */
static noreturn void child_main(u32 index, u32 parent)
{
	struct thread *t = to_pointer(VMI_PH_STACKS);
	u64 none = 0;

	/* The zygote keeps SIGCHLD blocked. */
	host4(rt_sigprocmask, 2, &none, 0, 8);
	self.index = index;
	self.pid = (u32)host0(getpid);
	self.proc = proc_at(index);
	self.proc->s.pid = self.pid;
	thread_begin(t);
	make_threads();
	host1(close, VMI_PH_FD_SHARED);
	sandbox(parent);
	__atomic_store_n(&self.proc->s.state, VMI_PH_PROC_FREE, __ATOMIC_RELEASE);
	futex_wake(&self.proc->s.state, 1);
	ph_on_stack((u64)t + VMI_PH_STACK_SIZE / 2, space_park, t);
}

/* Which process had this pid: for the message only. */
static u32 index_of(u32 pid)
{
	u32 i;

	for (i = 0; i < VMI_PH_MAX_PROCS; i++)
		if (proc_at(i)->s.pid == pid)
			return i;
	return 0xffffffff;
}

static void reap(void)
{
	u32 status = 0;
	s64 pid;

	while ((pid = host4(wait4, -1, &status, WNOHANG, 0)) > 0)
		tell(VMI_PH_OP_DIED, index_of((u32)pid), (u32)pid, status);
}

static void plan_copy(void)
{
	const u64 *filter = to_pointer(VMI_PH_SHARED + VMI_PH_SHARED_FILTER);
	u32 i;

	plan.filter_length = shared->s.filter_length;
	plan.flags = shared->s.flags;
	plan.vcpu_count = shared->s.vcpu_count;
	if (!plan.filter_length || plan.filter_length > VMI_PH_FILTER_MAX || !plan.vcpu_count ||
	    plan.vcpu_count > VMI_PH_MAX_VCPUS)
		die(VMI_PH_STEP_SHARED, -22);
	for (i = 0; i < plan.filter_length; i++)
		plan.filter[i] = filter[i];
	for (i = 0; i < plan.vcpu_count; i++)
		plan.cpu[i] = shared->s.vcpu_cpu[i];
}

/* One at a time, so that the monitor hears of them in order, and only of those that are in their sandbox. */
static void make_process(u32 index, u32 pid)
{
	u32 *state = &proc_at(index)->s.state, status = 0;
	s64 child;

	child = host6(clone, SIGCHLD, 0, 0, 0, 0, 0);
	if (child == 0)
		child_main(index, pid);
	if (child < 0) {
		tell(VMI_PH_OP_FAILED, VMI_PH_STEP_FORK, index, (u32)-child);
		return;
	}
	while (__atomic_load_n(state, __ATOMIC_ACQUIRE) == VMI_PH_PROC_NONE) {
		if (host4(wait4, child, &status, WNOHANG, 0) == child) {
			tell(VMI_PH_OP_DIED, index, (u32)child, status);
			return;
		}
		futex_wait(state, VMI_PH_PROC_NONE, now_ns() + 10000000);
	}
	tell(VMI_PH_OP_READY, index, (u32)child, 0);
}

noreturn void zygote_main(void)
{
	const u64 child_signal = 1ULL << (SIGCHLD - 1), none = 0;
	struct vmi_ph_message m;
	u32 pid = (u32)host0(getpid);
	s64 r;

	self.pid = pid;
	must(VMI_PH_STEP_SHARED, map(VMI_PH_SHARED, VMI_PH_SHARED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
				     VMI_PH_FD_SHARED, 0));
	plan_copy();
	must(VMI_PH_STEP_ARENA, map(VMI_PH_ARENA, VMI_PH_ARENA_SIZE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	if (shared->s.pool_chunks)
		must(VMI_PH_STEP_ARENA, map(VMI_PH_POOL, (u64)shared->s.pool_chunks * VMI_PH_POOL_CHUNK, PROT_READ | PROT_WRITE,
					    MAP_SHARED, VMI_PH_FD_SHARED, VMI_PH_SHARED_SIZE));
	must(VMI_PH_STEP_ARENA, map(VMI_PH_STACKS, shared->s.vcpu_count * VMI_PH_STACK_SIZE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	share_thunks();
	map_ram();
	map_devices();
	must(VMI_PH_STEP_CPUID, cpuid_prepare() ? 0 : -HOST_E2BIG);
	vcpus_prepare();
	boot_vcpu_prepare();
	plan.descriptors = try_descriptors();
	shared->thread_descriptors = plan.descriptors;
	/* Here, since each process has its own copy of the table that says so. */
	patch_offer();
	must(VMI_PH_STEP_SIGNALS, signals_install());
	must(VMI_PH_STEP_SIGNALS, host4(rt_sigprocmask, 0, &child_signal, 0, 8));
	/* The host's stack, vdso and vvar: nothing here uses them, and the guest must not find them. */
	host2(munmap, 0x7f0000000000ULL, 0x7ffffffff000ULL - 0x7f0000000000ULL);
	tell(VMI_PH_OP_READY, 0xffffffff, pid, 0);
	for (;;) {
		struct {
			s32 fd;
			u16 events, revents;
		} poll = { VMI_PH_FD_CONTROL, POLLIN, 0 };

		reap();
		/* A message, or a child that has ended: SIGCHLD comes in nowhere else. */
		host6(ppoll, &poll, 1, 0, &none, 8, 0);
		r = host6(recvfrom, VMI_PH_FD_CONTROL, &m, sizeof(m), MSG_DONTWAIT, 0, 0);
		if (r == 0)
			host1(exit_group, 0);
		if (r != sizeof(m) || m.op != VMI_PH_OP_FORK || m.index >= VMI_PH_MAX_PROCS)
			continue;
		make_process(m.index, pid);
	}
}
