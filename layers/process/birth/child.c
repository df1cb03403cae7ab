// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * A new address-space process, from the zygote's clone to its place in the pool: parent-death
 * signal, handlers, threads, filter; then the threads park.
 *
 * Every signal is blocked until the filter is installed, so nothing nests and a fault kills the
 * process. A signal return, which the filter admits, opens the mask. A process with one RAM region
 * costs the clone, some 24 host calls, 6 for each vCPU, and up to 4 for each thread that is made
 * (its clone and three futex calls).
 */
#include "birth/child.h"
#include "birth/plan.h"
#include "birth/zygote.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "entry/signal.h"
#include "host/call.h"
#include "host/futex.h"
#include "host/signals.h"
#include "state/state.h"
#include "vcpu/handover.h"

extern const u8 ph_host_call_end[];

#define PR_SET_PDEATHSIG 1
#define PR_SET_DUMPABLE 4
#define PR_SET_NO_NEW_PRIVS 38
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#define SECCOMP_SET_MODE_FILTER 1
#define SECCOMP_FILTER_FLAG_TSYNC 1
#define SECCOMP_FILTER_FLAG_SPEC_ALLOW 4
#define CLONE_THREAD_FLAGS 0x50f00	/* VM FS FILES SIGHAND THREAD SYSVSEM */

/* Lets a system call from a stub find its vCPU. The filter does not admit this call later. */
bool thread_descriptor(u32 number)
{
	/* Below 4 GiB, in the program itself. Each thread has its own. */
	static struct {
		u32 entry, base, limit, flags;
	} all[PHV_MAX_VCPUS];

	all[number].entry = THREAD_ENTRY;
	all[number].limit = number;
	all[number].flags = 0x41;	/* 32-bit data segment, byte limit, usable */
	return ph_set_thread_area(&all[number]) == 0;
}

/*
 * The filter catches guest system calls, except two numbers that recent hosts let pass every filter
 * (335 and 336, uretprobe and uprobe). System-call user dispatch comes before the filter. A host
 * without it lacks those two numbers, too.
 */
static void dispatch_all(void)
{
	host6(prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, ph_host_call_end, 1, 0, 0);
}

static void thread_begin(struct thread *t)
{
	u64 mask[16];
	u32 cpu = plan->cpu[t->number], i;

	t->tid = (u32)host0(gettid);
	self.proc->s.tid[t->number] = t->tid;
	must(PHV_STEP_SIGNALS, signals_stack(t));
	if (plan->descriptors)
		must(PHV_STEP_THREAD, thread_descriptor(t->number) ? 0 : -38);
	dispatch_all();
	if (cpu >= 1024)
		return;
	for (i = 0; i < ARRAY_SIZE(mask); i++)
		mask[i] = 0;
	mask[cpu / 64] = 1ULL << (cpu & 63);
	/* No failure if the CPU has just gone away: the monitor places the thread again. */
	host3(sched_setaffinity, 0, sizeof(mask), mask);
}

static u32 threads_ready;

static noreturn void thread_main(void *argument)
{
	struct thread *t = argument;

	thread_begin(t);
	__atomic_fetch_add(&threads_ready, 1, __ATOMIC_RELEASE);
	futex_wake(&threads_ready, 1);
	/* Until the filter is installed, nothing that the guest can write has any effect here. */
	while (!__atomic_load_n(&self.sandboxed, __ATOMIC_ACQUIRE))
		futex_wait(&self.sandboxed, 0, U64_MAX);
	signals_open(t, vcpu_park);
}

static void make_threads(void)
{
	u32 i, count = plan->vcpu_count, seen;

	for (i = 1; i < count; i++) {
		struct thread *t = thread_at(i);

		must(PHV_STEP_THREAD,
		     ph_clone(CLONE_THREAD_FLAGS, (u8 *)host_stack_top(t), thread_main, t));
	}
	while ((seen = __atomic_load_n(&threads_ready, __ATOMIC_ACQUIRE)) < count - 1)
		futex_wait(&threads_ready, seen, U64_MAX);
}

static void install_filter(void)
{
	struct {
		u16 length;
		u16 pad[3];
		u64 filter;
	} program = { (u16)plan->filter_length, { 0 }, (u64)plan->filter };

	must(PHV_STEP_SANDBOX, host4(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0));
	if (!(plan->flags & PHV_FLAG_DEBUGGABLE))
		must(PHV_STEP_SANDBOX, host2(prctl, PR_SET_DUMPABLE, 0));
	must(PHV_STEP_SANDBOX, host1(close, plan->child_events));
	must(PHV_STEP_SANDBOX, host1(close, PHV_FD_SHARED));
	/* A failure after this shows only in the exit code. */
	host1(close, PHV_FD_CONTROL);
	/* A positive result names a thread that could not be filtered. */
	if (host3(seccomp, SECCOMP_SET_MODE_FILTER,
		  SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		  &program) != 0)
		host1(exit_group, 100 + PHV_STEP_FILTER);
}

static void make_accessible(u64 addr, u64 size)
{
	if (host3(mprotect, addr, size, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
		for (;;)
			host1(exit_group, 100 + PHV_STEP_IMAGE);
}

/*
 * Makes the guest's memory accessible, and makes executable what the guest can write. Before the
 * filter is installed a wild jump must not be able to execute it.
 */
static void open_guest_memory(void)
{
	u64 i;

	for (i = 0; i < plan->region_count; i++)
		make_accessible(plan->direct_map + plan->regions[i].gpa, plan->regions[i].size);
	for (i = 0; i < plan->segment_count; i++)
		make_accessible(plan->segments[i].addr, plan->segments[i].size);
	make_accessible((u64)ph_thunks_start,
			((u64)(ph_thunks_end - ph_thunks_start) + PAGE_SIZE - 1) & PAGE_MASK);
}

/* If the zygote has died before the call, nothing else would end this process. */
static void die_with_zygote(void)
{
	if (host2(prctl, PR_SET_PDEATHSIG, SIGKILL) != 0 || host0(getppid) != plan->zygote)
		for (;;)
			host1(exit_group, 100 + PHV_STEP_SANDBOX);
}

noreturn void child_main(u32 index)
{
	struct thread *t = thread_at(0);
	const u64 none = 0;

	/* First of all: a process that fails later must not outlive the machine. */
	if (!FAULT(DEATH_SIGNAL_LATE))
		die_with_zygote();
	self.index = index;
	self.pid = (u32)host0(getpid);
	self.proc = proc_at(index);
	self.proc->s.pid = self.pid;
	must(PHV_STEP_SIGNALS, signals_install());
	if (FAULT(CHILD_OPEN))
		host4(rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
	thread_begin(t);
	make_threads();
	/*
	 * The socket passes the host's id of this process to the monitor. The id here may be a
	 * namespace's.
	 */
	tell(PHV_OP_MADE, index, self.pid, 0);
	if (FAULT(DEATH_SIGNAL_LATE))
		die_with_zygote();
	install_filter();
	open_guest_memory();
	__atomic_store_n(&self.proc->s.state, PHV_PROC_FREE, __ATOMIC_RELEASE);
	__atomic_store_n(ph_ready, 1, __ATOMIC_RELEASE);
	futex_wake(ph_ready, 1);
	if (host2(munmap, ph_ready, PAGE_SIZE) != 0)
		for (;;)
			host1(exit_group, 100 + PHV_STEP_SHARED);
	__atomic_store_n(&self.sandboxed, 1, __ATOMIC_RELEASE);
	futex_wake(&self.sandboxed, PHV_MAX_VCPUS);
	/* Moves from the copy of the zygote's stack to vCPU 0's own stack. */
	signals_open(t, vcpu_park);
}
