// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tasks that are woken on the CPU of their waker.
 *
 * Linux wakes a task on the CPU on which it slept, if that is idle. On a processor this costs about
 * a microsecond. A vCPU that sleeps in the layer costs its waker a system call of the host, and the
 * start of an idle processor, which on a host that is a virtual machine takes as long as a read of
 * a disk. A program that waits for a kernel thread, which waits for a disk, pays that twice.
 *
 * So the task is woken here if this CPU has been idle, or if the task that runs here will sleep
 * soon: it has slept after short runs of late. The scheduler does so only while this CPU has time
 * for both. A vCPU that polls is awake, and a task that slept there is woken there.
 *
 * How long a task runs is its CPU time divided by the times that it has slept, between two wakes by
 * it. One that has run for long is not expected to sleep soon for some wakes, and for twice as many
 * each time, so that little of the time is lost by waits for one that does not.
 *
 * /sys/kernel/debug/vmi/wakes has the number of tasks that were woken so, as far as the scheduler
 * found time for them here, and of those that were not.
 */
#include <linux/debugfs.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/idle.h>
#include <linux/seq_file.h>
#include <asm/vmi.h>
#include <asm/vmi_cost.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

/* Tasks of one program have numbers that are close to each other. */
#define WAKERS 1024

/*
 * The most tasks that want to run here. This CPU is mostly idle, so one beside the waker is a task
 * that it has just woken, or one that was about to sleep when the waker was woken.
 */
#define CROWD 2

/* After this number times the last pause, in wakes without a long run, the next pause is halved. */
#define GOOD 32

/* What is known of a task that wakes others. */
struct waker {
	const struct task_struct *task;
	/* at its last wake: its CPU time in ns, and how often it had slept */
	u64 ran;
	unsigned long slept;
	/* mean time from one sleep to the next, ns; U32_MAX: not known */
	u32 run_ns;
	/* wakes since it has last slept */
	u16 at_once;
	/* wakes for which it is not expected to sleep soon */
	u16 pause;
	/* their number after the last long run */
	u16 last_pause;
	/* wakes since then, or since that number has become smaller */
	u16 good;
};

/*
 * Only the CPU on which a task runs changes its entry. Two tasks may have the same entry: each then
 * begins without a past again and again.
 */
static struct waker wakers[WAKERS];

/* Where a task was woken that might be woken here, or why it was not. */
enum decision {
	WAKE_HERE,		/* beside a waker that will sleep soon */
	WAKE_IDLE,		/* on this CPU, which was idle */
	WAKE_AWAKE,		/* its own vCPU is awake */
	WAKE_CROWD,		/* several tasks want to run here */
	WAKE_UNKNOWN,		/* the waker has no past */
	WAKE_LONG,		/* the waker runs for long */
	WAKE_PAUSE,		/* the waker has run for very long of late */
	WAKE_MANY,		/* the waker wakes many */
	DECISIONS
};

static DEFINE_PER_CPU(u64 [DECISIONS], decisions);

bool vmi_wakes_here __read_mostly;
module_param_named(wake_here, vmi_wakes_here, bool, 0644);
MODULE_PARM_DESC(wake_here, "tasks are woken beside wakers that sleep soon, if their vCPU sleeps");

/* A task that has slept some times since its last wake has run for so long each time, ns. */
static void learn(struct waker *w, u64 each)
{
	if (each > VMI_WAKER_LONG_NS) {
		w->last_pause = min(w->last_pause * 2, VMI_WAKER_PAUSE_MOST);
		w->pause = w->last_pause;
		w->good = 0;
	} else if (++w->good == GOOD * w->last_pause && w->last_pause > VMI_WAKER_PAUSE / 2) {
		w->last_pause /= 2;
		w->good = 0;
	}
	/* One run says little, however long it was. */
	each = min_t(u64, each, 2 * VMI_WAKER_RUN_NS);
	w->run_ns = w->run_ns == U32_MAX ? each : (w->run_ns * 7 + each) / 8;
	w->at_once = 0;
}

/* Decides by the past of the current task whether it will sleep soon. */
static enum decision judge_waker(void)
{
	struct waker *w = &wakers[current->pid % WAKERS];
	/* Up to the last tick, if it has not slept since. */
	u64 ran = current->se.sum_exec_runtime, before = READ_ONCE(w->ran);
	unsigned long slept = current->nvcsw, slept_before = READ_ONCE(w->slept);

	/* It does not return. */
	if (current->flags & PF_EXITING)
		return in_task() ? WAKE_HERE : WAKE_LONG;
	if (READ_ONCE(w->task) != current || slept < slept_before || ran < before) {
		*w = (struct waker){
			.task = current,
			.ran = ran,
			.slept = slept,
			.run_ns = U32_MAX,
			.last_pause = VMI_WAKER_PAUSE / 2,
		};
		return WAKE_UNKNOWN;
	}
	if (slept == slept_before) {
		if (++w->at_once >= VMI_WAKES_AT_ONCE)
			return WAKE_MANY;
		if (ran - before > VMI_WAKER_LONG_NS)
			return WAKE_LONG;
	} else {
		learn(w, (ran - before) / (slept - slept_before));
		w->ran = ran;
		w->slept = slept;
	}
	if (w->pause) {
		w->pause--;
		return WAKE_PAUSE;
	}
	if (w->run_ns == U32_MAX)
		return WAKE_UNKNOWN;
	return w->run_ns < VMI_WAKER_RUN_NS ? WAKE_HERE : WAKE_LONG;
}

/* Whether a vCPU waits in the layer without a processor. */
static bool vcpu_sleeps(int cpu)
{
	const struct vmi_run_state *state = vmi_run_state(cpu);

	return idle_cpu(cpu) && state && READ_ONCE(state->state) == VMI_RUN_HALTED;
}

static enum decision decide(int cpu, int prev, unsigned int running)
{
	if (prev != cpu && !vcpu_sleeps(prev))
		return WAKE_AWAKE;
	if (is_idle_task(current))
		return idle_cpu(cpu) ? WAKE_IDLE : WAKE_CROWD;
	/* Linux would wake a task that slept here on an idle CPU. Most likely, that one sleeps. */
	return running <= CROWD ? judge_waker() : WAKE_CROWD;
}

/* Runs with preemption off, mostly with interrupts off, too. */
bool vmi_wake_here(const struct task_struct *task, int prev, unsigned int running)
{
	int cpu = smp_processor_id();
	enum decision decision;

	if (!READ_ONCE(vmi_wakes_here) || !cpumask_test_cpu(cpu, task->cpus_ptr))
		return false;
	decision = decide(cpu, prev, running);
	this_cpu_inc(decisions[decision]);
	return decision == WAKE_HERE || decision == WAKE_IDLE;
}

static int wakes_show(struct seq_file *file, void *unused)
{
	static const char *const names[DECISIONS] = {
		[WAKE_HERE] = "here",
		[WAKE_IDLE] = "idle",
		[WAKE_AWAKE] = "awake",
		[WAKE_CROWD] = "crowd",
		[WAKE_UNKNOWN] = "unknown",
		[WAKE_LONG] = "long",
		[WAKE_PAUSE] = "pause",
		[WAKE_MANY] = "many",
	};
	unsigned int i, cpu;

	for (i = 0; i < DECISIONS; i++) {
		u64 count = 0;

		for_each_possible_cpu(cpu)
			count += READ_ONCE(per_cpu(decisions[i], cpu));
		seq_printf(file, "%s %llu\n", names[i], count);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(wakes);

static int __init wake_init(void)
{
	if (!vmi_run_state(0))
		return 0;
	debugfs_create_file("wakes", 0444, vmi_debugfs(), NULL, &wakes_fops);
	return 0;
}
late_initcall(wake_init);
