// SPDX-License-Identifier: GPL-2.0-only
/*
 * Paravirtual spinlocks: a queued spinlock whose holder or predecessor does not run lets the vCPU
 * wait in the layer, and its predecessor kicks it. The first in the queue looks for itself. So an
 * uncontended lock is the same instructions as without this file. A layer that does not know which
 * vCPUs run, or does not run them itself, makes each unlock look for waiters.
 *
 * /sys/kernel/debug/vmi/locks has statistics, in the manner of those of KVM's and Xen's ticket
 * locks. A write to it resets them.
 */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/seq_file.h>
#include <linux/stop_machine.h>
#include <asm/paravirt.h>
#include <asm/qspinlock.h>
#include <asm/smp.h>
#include <asm/vmi.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

#define BUCKETS 32
/* _Q_SLOW_VAL of qspinlock_paravirt.h: the head of a queue waits. */
#define SLOW 3

/*
 * How often a vCPU looks at a lock before it queues. A look takes some 40 to 150 cycles, so all of
 * them take less than a wake-up, and a holder without a processor is noticed that much later.
 */
#define LOOKS 64

/* Of one CPU. Times in nanoseconds. Bucket i counts times from 2^i up to, but not, 2^(i+1). */
struct lock_stats {
	u64 taken_slow;			/* locks that had to be waited for */
	u64 taken_slow_pickup;		/* those that came while the vCPU was spinning */
	u64 waits;			/* waits in the layer */
	u64 waits_early;		/* those that spared spinning for one that did not run */
	u64 waits_spurious;		/* those that ended before what they waited for */
	u64 released_kicked;		/* kicks of a waiter for a lock */
	u64 ipi_yields;			/* IPIs that were sent to a CPU without a processor */
	u64 csd_yields;			/* yields to a CPU that was interrupted, while waiting */
	u64 time_spinning, time_blocked;
	u32 histo_spinning[BUCKETS], histo_blocked[BUCKETS];
};

static DEFINE_PER_CPU(struct lock_stats, lock_stats);
/* Whether a CPU was said to be preempted since this one began to wait for a lock. */
static DEFINE_PER_CPU(bool, found_preempted);

/* Whether the release of a lock kicks the head of its queue. */
static bool unlock_kicks __ro_after_init;

/* Whether vCPUs wait in the layer. Without, locks are as with "nopvspin". See locks_param_set(). */
static bool pv_locks __read_mostly = true;
static bool in_use __ro_after_init;

static unsigned int bucket(u64 ns)
{
	return ns ? min_t(unsigned int, ilog2(ns), BUCKETS - 1) : 0;
}

/*
 * A lock that is held for a short time mostly comes before this vCPU could join the queue. The
 * vCPUs in the queue go first.
 */
static bool lock_comes_soon(struct qspinlock *lock)
{
	int looks, val;

	for (looks = 0; looks < LOOKS; looks++) {
		val = atomic_read(&lock->val);
		if (val & ~_Q_LOCKED_MASK)
			return false;
		if (!val && atomic_try_cmpxchg_acquire(&lock->val, &val, _Q_LOCKED_VAL))
			return true;
		cpu_relax();
	}
	return false;
}

/*
 * Preemption is off, so the CPU stays the same. An interrupt that waits for a lock itself counts
 * its time for both. The time of the first looks is not counted: clocks cost more than those.
 */
static void lock_slowpath(struct qspinlock *lock, u32 val)
{
	u64 waits, blocked, start, spun;

	if (!READ_ONCE(pv_locks)) {
		native_queued_spin_lock_slowpath(lock, val);
		return;
	}
	if (lock_comes_soon(lock)) {
		this_cpu_inc(lock_stats.taken_slow);
		this_cpu_inc(lock_stats.taken_slow_pickup);
		this_cpu_inc(lock_stats.histo_spinning[0]);
		return;
	}
	this_cpu_write(found_preempted, false);
	waits = raw_cpu_read(lock_stats.waits);
	blocked = raw_cpu_read(lock_stats.time_blocked);
	start = sched_clock();
	__pv_queued_spin_lock_slowpath(lock, val);
	spun = sched_clock() - start;
	spun -= min(spun, raw_cpu_read(lock_stats.time_blocked) - blocked);
	this_cpu_inc(lock_stats.taken_slow);
	if (raw_cpu_read(lock_stats.waits) == waits)
		this_cpu_inc(lock_stats.taken_slow_pickup);
	this_cpu_add(lock_stats.time_spinning, spun);
	this_cpu_inc(lock_stats.histo_spinning[bucket(spun)]);
}

/*
 * The head of a queue waits for a lock, and no CPU will kick it. While the holder runs, the
 * lock comes soon. Else it is one of the CPUs without a processor: one of those gets this one's.
 */
static void lock_give_way(void)
{
	int me = raw_smp_processor_id(), cpu;

	for_each_cpu_wrap(cpu, cpu_online_mask, me) {
		if (cpu != me && vcpu_is_preempted(cpu)) {
			vmi.lock_yield(cpu);
			return;
		}
	}
}

/* The layer waits only while *location is value, and does not lose an earlier kick. */
static void lock_wait(u8 *location, u8 value)
{
	u64 start, blocked;

	if (in_nmi())
		return;
	/* The spinning just before ended at once where it was said of the one that it was for. */
	if (this_cpu_read(found_preempted))
		this_cpu_inc(lock_stats.waits_early);
	start = sched_clock();
	if (value == SLOW && !unlock_kicks)
		lock_give_way();
	else
		vmi.lock_wait(location, value);
	blocked = sched_clock() - start;
	this_cpu_write(found_preempted, false);
	this_cpu_inc(lock_stats.waits);
	if (READ_ONCE(*location) == value)
		this_cpu_inc(lock_stats.waits_spurious);
	this_cpu_add(lock_stats.time_blocked, blocked);
	this_cpu_inc(lock_stats.histo_blocked[bucket(blocked)]);
}

static void lock_kick(int cpu)
{
	this_cpu_inc(lock_stats.released_kicked);
	vmi.lock_kick(cpu);
}

bool __vmi_vcpu_is_preempted(long cpu);
__visible bool __vmi_vcpu_is_preempted(long cpu)
{
	const struct vmi_run_state *state = vmi_run_state(cpu);
	u32 run;

	if (!READ_ONCE(pv_locks))
		return false;
	if (state) {
		/* The scheduler asks about idle CPUs. */
		run = READ_ONCE(state->state);
		if (run == VMI_RUN_HALTED || run == VMI_RUN_OFF)
			return false;
	}
	/* The answer may take host calls. */
	if (in_nmi())
		return state && READ_ONCE(state->preempted);
	if (vmi.lock_preempted(cpu) <= 0)
		return false;
	this_cpu_write(found_preempted, true);
	return true;
}
PV_CALLEE_SAVE_REGS_THUNK(__vmi_vcpu_is_preempted);

static void (*send_call_func_ipi)(const struct cpumask *mask) __ro_after_init;

/*
 * The sender waits for all of the mask. If one of them has lost its processor, which may be this
 * one, spinning only keeps it from it.
 */
static void lock_send_call_func_ipi(const struct cpumask *mask)
{
	int cpu;

	send_call_func_ipi(mask);
	for_each_cpu(cpu, mask) {
		if (!idle_cpu(cpu) && vcpu_is_preempted(cpu)) {
			this_cpu_inc(lock_stats.ipi_yields);
			vmi.lock_yield(cpu);
			break;
		}
	}
}

/* How long a CPU that has a processor may take for an interrupt, in looks of some 40 cycles. */
#define CSD_LOOKS 256
/* A CPU that gave way so often waits for one that the host does not want to run. */
#define CSD_YIELDS 1000

/*
 * Waits for an interrupted CPU. While that one has no processor, this one gives it its own. With
 * interrupts off, too: the layer takes none in a yield, and none is lost.
 */
void vmi_csd_wait(int cpu, const unsigned int *flags, unsigned int mask)
{
	unsigned int looks, yields;

	if (!in_use || !READ_ONCE(pv_locks) || !vmi.lock_yield || in_nmi())
		return;
	for (yields = 0; yields < CSD_YIELDS; yields++) {
		for (looks = 0; looks < CSD_LOOKS; looks++) {
			if (!(READ_ONCE(*flags) & mask))
				return;
			cpu_relax();
		}
		/* An idle CPU is about to run, or is the host's to wake. */
		if (vcpu_is_preempted(cpu)) {
			this_cpu_inc(lock_stats.csd_yields);
			vmi.lock_yield(cpu);
		}
	}
}

static int set_pv_locks(void *value)
{
	pv_locks = *(bool *)value;
	return 0;
}

/*
 * The two slow paths do not know each other's waiters. A vCPU in one of them has preemption off, so
 * there is none while all CPUs are stopped.
 */
static int locks_param_set(const char *text, const struct kernel_param *param)
{
	bool value;
	int error = kstrtobool(text, &value);

	if (error)
		return error;
	if (system_state < SYSTEM_SCHEDULING)
		return set_pv_locks(&value);
	return stop_machine(set_pv_locks, &value, NULL);
}

static int locks_param_get(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%c\n", in_use && pv_locks ? 'Y' : 'N');
}

static const struct kernel_param_ops locks_param_ops = {
	.set = locks_param_set,
	.get = locks_param_get,
};
module_param_cb(pv_locks, &locks_param_ops, NULL, 0644);
MODULE_PARM_DESC(pv_locks, "let vCPUs wait in the layer for spinlocks");

void __init vmi_init_locks(void)
{
	/* A single vCPU never waits for a lock. */
	if (vmi_boot.vcpu_count < 2 || vmi_layer_record(VMI_CALL_LOCK_WAIT) == VMI_RELOC_NONE)
		return;
	/* Each is an answer to a question that the others leave open. */
	if (!vmi.lock_wait || !vmi.lock_kick || !vmi.lock_preempted)
		return;
	/* Linux takes unfair locks where cpuid shows a hypervisor. Here all are queued. */
	static_branch_disable(&virt_spin_lock_key);
	if (nopvspin) {
		pr_info("VMI: locks spin: \"nopvspin\"\n");
		return;
	}
	pv_ops.lock.queued_spin_lock_slowpath = lock_slowpath;
	/*
	 * A layer that leaves the kernel its privilege does not run the vCPUs. A yield is advice to
	 * its host, which may not take it, and an exit. A vCPU that sleeps lets the holder run.
	 */
	unlock_kicks = !vmi.lock_yield ||
		       !(vmi_layer_features(VMI_SECTION_LOCK) & VMI_LOCK_RUN_STATES) ||
		       !(vmi_layer.rom.header.flags & VMI_HEADER_PARAVIRT);
	if (unlock_kicks) {
		__pv_init_lock_hash();
		pv_ops.lock.queued_spin_unlock = PV_CALLEE_SAVE(__pv_queued_spin_unlock);
	}
	pv_ops.lock.wait = lock_wait;
	pv_ops.lock.kick = lock_kick;
	pv_ops.lock.vcpu_is_preempted = PV_CALLEE_SAVE(__vmi_vcpu_is_preempted);
	if (vmi.lock_yield) {
		send_call_func_ipi = smp_ops.send_call_func_ipi;
		smp_ops.send_call_func_ipi = lock_send_call_func_ipi;
	}
	in_use = true;
}

static void histogram_show(struct seq_file *file, const char *name, const u32 *buckets)
{
	unsigned int i;

	for (i = 0; i < BUCKETS; i++)
		if (buckets[i])
			seq_printf(file, "%s[%llu] %u\n", name, 1ULL << i, buckets[i]);
}

static int locks_show(struct seq_file *file, void *unused)
{
	struct lock_stats *all = kzalloc(sizeof(*all), GFP_KERNEL);
	unsigned int i;
	int cpu;

	if (!all)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		const struct lock_stats *one = per_cpu_ptr(&lock_stats, cpu);

		all->taken_slow += one->taken_slow;
		all->taken_slow_pickup += one->taken_slow_pickup;
		all->waits += one->waits;
		all->waits_early += one->waits_early;
		all->waits_spurious += one->waits_spurious;
		all->released_kicked += one->released_kicked;
		all->ipi_yields += one->ipi_yields;
		all->csd_yields += one->csd_yields;
		all->time_spinning += one->time_spinning;
		all->time_blocked += one->time_blocked;
		for (i = 0; i < BUCKETS; i++) {
			all->histo_spinning[i] += one->histo_spinning[i];
			all->histo_blocked[i] += one->histo_blocked[i];
		}
	}
	seq_printf(file, "taken_slow %llu\n", all->taken_slow);
	seq_printf(file, "taken_slow_pickup %llu\n", all->taken_slow_pickup);
	seq_printf(file, "waits %llu\n", all->waits);
	seq_printf(file, "waits_early %llu\n", all->waits_early);
	seq_printf(file, "waits_spurious %llu\n", all->waits_spurious);
	seq_printf(file, "released_kicked %llu\n", all->released_kicked);
	seq_printf(file, "ipi_yields %llu\n", all->ipi_yields);
	seq_printf(file, "csd_yields %llu\n", all->csd_yields);
	seq_printf(file, "time_spinning_ns %llu\n", all->time_spinning);
	seq_printf(file, "time_blocked_ns %llu\n", all->time_blocked);
	histogram_show(file, "histo_spinning_ns", all->histo_spinning);
	histogram_show(file, "histo_blocked_ns", all->histo_blocked);
	kfree(all);
	return 0;
}

/* Resets the statistics. Counts of locks that are taken at the same time may be lost. */
static ssize_t locks_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	int cpu;

	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(&lock_stats, cpu), 0, sizeof(lock_stats));
	return size;
}

DEFINE_SHOW_STORE_ATTRIBUTE(locks);

static int __init locks_stats_init(void)
{
	if (in_use)
		debugfs_create_file("locks", 0644, vmi_debugfs(), NULL, &locks_fops);
	return 0;
}
late_initcall(locks_stats_init);
