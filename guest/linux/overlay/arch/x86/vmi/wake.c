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
 * it. One that has run for long while a task waited beside it is not expected to sleep soon for a
 * multiple of that time, twice as large each time, so that little time is lost by such waits.
 *
 * /sys/kernel/debug/vmi/wakes has the number of tasks that were woken so, and of those that were
 * not although the scheduler found time for them here.
 */
#include <linux/debugfs.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
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

/* After this number of wakes without a long run, times waker.times, that is halved. */
#define GOOD 32

/* What is known of a task that wakes others. */
struct waker {
	const struct task_struct *task;
	/* at its last wake: its CPU time in ns, and how often it had slept */
	u64 ran;
	unsigned long slept;
	/* mean time from one sleep to the next, ns; U32_MAX: not known */
	u32 run_ns;
	/* until then it is not expected to sleep soon, ns */
	u64 pause;
	/* how often the last long run that kept a task waiting fits into the pause after it */
	u16 times;
	/* wakes since then, or since that number has become smaller */
	u16 good;
	/* wakes since it has last slept */
	u16 at_once;
	/* it is expected to sleep soon */
	bool soon;
	/* a task was woken beside it since its run time was last learned */
	bool beside;
};

/*
 * Only the CPU on which a task runs changes its entry, or one that has just woken it.
 * Two tasks may have the same entry: each then begins without a past again and again.
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

/* The first task that an interrupt has woken on this CPU while it was idle. */
struct first {
	const struct task_struct *task;	/* may be gone */
	pid_t pid;
	/* how often the idle task had been left */
	unsigned long left;
};

static DEFINE_PER_CPU(struct first, first);

bool vmi_wakes_here __read_mostly;
module_param_named(wake_here, vmi_wakes_here, bool, 0644);
MODULE_PARM_DESC(wake_here, "tasks are woken beside wakers that sleep soon, if their vCPU sleeps");

/* A task that has slept @times since its last wake has run for @ran ns in total. */
static void learn(struct waker *w, u64 ran, unsigned long times)
{
	u64 each = ran / times;

	if (each > VMI_WAKER_LONG_NS) {
		/* If no task waited for it, nothing was lost: a program begins with long runs. */
		if (w->beside) {
			w->times = min(w->times * 2, VMI_WAKER_PAUSE_MOST);
			w->pause = local_clock() + w->times * min(each, VMI_WAKER_LOSS_NS);
		}
		w->good = 0;
	} else if (++w->good == GOOD * w->times && w->times > VMI_WAKER_PAUSE / 2) {
		w->times /= 2;
		w->good = 0;
	}
	/* One run says little, however long it was. */
	each = min_t(u64, each, VMI_WAKER_LONG_NS);
	w->run_ns = w->run_ns == U32_MAX ? each : (w->run_ns * 7 + each) / 8;
	w->at_once = 0;
	w->beside = false;
}

/*
 * Decides by the past of the current task whether it will sleep soon. Its CPU time was accounted
 * @since ns ago.
 */
static enum decision judge_waker(s64 since)
{
	struct waker *w = &wakers[current->pid % WAKERS];
	/* Time that the host takes counts at first, and not later. */
	u64 ran = current->se.sum_exec_runtime + max(since, 0);
	u64 before = min(READ_ONCE(w->ran), ran);
	unsigned long slept = current->nvcsw, slept_before = READ_ONCE(w->slept);

	/* It does not return. */
	if (current->flags & PF_EXITING)
		return in_task() ? WAKE_HERE : WAKE_LONG;
	if (READ_ONCE(w->task) != current || slept < slept_before) {
		*w = (struct waker){
			.task = current,
			.ran = ran,
			.slept = slept,
			.run_ns = U32_MAX,
			.times = VMI_WAKER_PAUSE / 2,
		};
		return WAKE_UNKNOWN;
	}
	if (slept == slept_before) {
		if (++w->at_once >= VMI_WAKES_AT_ONCE)
			return WAKE_MANY;
		if (ran - before > VMI_WAKER_LONG_NS)
			return WAKE_LONG;
	} else {
		learn(w, ran - before, slept - slept_before);
		w->ran = ran;
		w->slept = slept;
	}
	if (w->pause) {
		if (local_clock() < w->pause)
			return WAKE_PAUSE;
		w->pause = 0;
	}
	if (w->run_ns == U32_MAX)
		return WAKE_UNKNOWN;
	/* A task that changes its vCPU takes what it waits for along: more than a wait costs. */
	w->soon = w->run_ns < VMI_WAKER_RUN_NS * (w->soon ? 2 : 1);
	if (!w->soon)
		return WAKE_LONG;
	w->beside = true;
	return WAKE_HERE;
}

/* Whether a vCPU waits in the layer without a processor. */
static bool vcpu_sleeps(int cpu)
{
	const struct vmi_run_state *state = vmi_run_state(cpu);

	return idle_cpu(cpu) && state && READ_ONCE(state->state) == VMI_RUN_HALTED;
}

/* How often this idle CPU has begun to run a task. */
static unsigned long idle_left(void)
{
	return current->nivcsw + current->nvcsw;
}

/*
 * An interrupt on this idle CPU wakes a second task. The first one runs before it, and is about to
 * sleep if it was expected to when it last woke another. If this CPU has run any task since it woke
 * the first one, then another task waits here now.
 */
static enum decision judge_first(void)
{
	const struct first *f = this_cpu_ptr(&first);
	struct waker *w = &wakers[f->pid % WAKERS];

	if (f->left != idle_left() || READ_ONCE(w->task) != f->task || !READ_ONCE(w->soon) ||
	    READ_ONCE(w->pause))
		return WAKE_CROWD;
	WRITE_ONCE(w->beside, true);
	return WAKE_HERE;
}

static enum decision decide(int cpu, int prev, unsigned int running, s64 since)
{
	if (prev != cpu && !vcpu_sleeps(prev))
		return WAKE_AWAKE;
	if (is_idle_task(current) && idle_cpu(cpu))
		return WAKE_IDLE;
	if (is_idle_task(current))
		return running == 1 ? judge_first() : WAKE_CROWD;
	/* Linux would wake a task that slept here on an idle CPU. Most likely, that one sleeps. */
	return running <= CROWD ? judge_waker(since) : WAKE_CROWD;
}

/* Runs with preemption off, mostly with interrupts off, too. */
bool vmi_wake_here(const struct task_struct *task, int prev, unsigned int running, s64 since)
{
	int cpu = smp_processor_id();
	enum decision decision;

	if (!cpumask_test_cpu(cpu, task->cpus_ptr))
		return false;
	decision = decide(cpu, prev, running, since);
	this_cpu_inc(decisions[decision]);
	if (decision == WAKE_IDLE)
		*this_cpu_ptr(&first) = (struct first){ task, task->pid, idle_left() };
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
