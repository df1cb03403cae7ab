// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps the kernel's clocks with those of the hypervisor.
 *
 * The clock source is the time-stamp counter, which the vDSO reads at native speed. Its frequency
 * is fixed, but the host's clock, which is the layer's real time, follows NTP. So about once a
 * second the length of a tick is corrected: by the difference of the rates, and by what brings
 * CLOCK_MONOTONIC back to real time within a second. A look at the clocks between two corrections
 * finds a rate that has changed. The clocks never jump back, except for the wall clock after that
 * of the host has jumped. They jump ahead if they are so late that they would stay wrong for long:
 * the host's rate has changed while the machine was idle.
 *
 * The check runs in interrupts and mostly costs a comparison. So an idle machine is not woken for
 * it, and a machine that was idle is right again before its programs run for long. A clock that is
 * far off has a timer. When the host's wall clock jumps, the layer sends the interrupt of its
 * alarms.
 *
 * A suspend of the host may have the counter begin again at a lower value. The clocks then stand
 * until the check finds that, and go on with real time, as after a suspend of the kernel's own.
 */
#include <linux/clocksource.h>
#include <linux/counter_fell.h>
#include <linux/debugfs.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/tick_correction.h>
#include <linux/timekeeping.h>
#include <linux/timer.h>
#include <linux/timex.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <asm/tsc.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

static bool enabled __read_mostly = true;
module_param_named(clock, enabled, bool, 0644);
MODULE_PARM_DESC(clock, "keep the clocks with those of the hypervisor");

#define PERIOD_NS NSEC_PER_SEC
/* The time between two looks. */
#define LOOK_NS (20 * NSEC_PER_MSEC)
/* An offset that has grown by more shows that the host's rate has changed. */
#define GROWN_NS 15000
/* A look that took longer says too little about a rate. */
#define LOOK_WIDTH_NS 1000
/* The interval between two tries while the host disturbs the measurement. */
#define RETRY_NS (10 * NSEC_PER_MSEC)
#define TRIES 5
/* A measurement that took longer says too little. */
#define WIDTH_NS 5000
/* An offset that is as small as the error of a measurement is none. */
#define NO_OFFSET_NS 500
/* A clock that is late by more is put forward at once. While a machine works, none is. */
#define STEP_NS 50000
/* The largest correction, in parts per billion. A timekeeper can do no more than a tenth. */
#define MOST_PPB 50000000LL
/* The part of it for the offset alone. */
#define MOST_SLEW_PPB 10000000LL
/* A rate that differs by more is taken at once, a smaller difference is smoothed. */
#define SMOOTH_PPB 1000
#define SMOOTH 4
/* A counter that is lower by less is that of another CPU. */
#define FELL_NS NSEC_PER_MSEC
/* The longest command in debugfs. */
#define COMMAND_MAX 32

/* The three clocks at one moment, and how long it took to read them, in nanoseconds. */
struct sample {
	s64 real, mono, raw, width;
};

static DEFINE_RAW_SPINLOCK(clock_lock);
static struct sample last;
/* Real time less CLOCK_MONOTONIC, as it should be. */
static s64 difference;
static s64 rate_ppb, offset_ns, worst_ns;
static u64 corrections, steps, skipped, wall_jumps, counter_falls;
static u64 wall_offset;
/* The counter at the last check, and by how much it grows until the next one is due. */
static u64 checked_tsc __read_mostly, due_counts __read_mostly = U64_MAX;

static bool take(struct sample *best)
{
	s64 least = S64_MAX, before, after, real, raw;
	unsigned int i;

	for (i = 0; i < TRIES && least > NO_OFFSET_NS; i++) {
		before = ktime_get_ns();
		raw = ktime_get_raw_ns();
		real = vmi_real_ns();
		after = ktime_get_ns();
		if (after - before >= least)
			continue;
		least = after - before;
		*best = (struct sample){ real, before + least / 2, raw + least / 2, least };
	}
	return least <= WIDTH_NS;
}

static void correct(s64 ppb)
{
	const s64 unit = div_s64((s64)TICK_NSEC << NTP_SCALE_SHIFT, NSEC_PER_SEC);

	/* Nanoseconds per tick, with NTP_SCALE_SHIFT binary places. */
	ntp_correct_tick(clamp(ppb, -MOST_PPB, MOST_PPB) * unit);
}

static void check_again(struct timer_list *unused);
static DEFINE_TIMER(check_timer, check_again);

static u64 counts_of(u64 ns)
{
	return mul_u64_u64_div_u64(ns, tsc_khz, USEC_PER_SEC);
}

static void due_in(u64 ns)
{
	WRITE_ONCE(due_counts, counts_of(ns));
	WRITE_ONCE(checked_tsc, rdtsc());
}

/* Whether a look shows that the next correction must not wait. */
static bool grown(const struct sample *now, s64 passed)
{
	return passed >= LOOK_NS / 2 && now->width <= LOOK_WIDTH_NS &&
	       abs(now->real - now->mono - difference) > abs(offset_ns) + GROWN_NS;
}

/*
 * One step of the control. Programs of the guest may adjust the clock themselves. They then find it
 * as the counter runs, and leave it with the offset that they want.
 */
static void step(void)
{
	s64 passed, ppb, slew = 0;
	bool theirs = ntp_is_used(), stepped = false;
	struct sample now;

	passed = ktime_get_raw_ns() - last.raw;
	if (!take(&now)) {
		/* A slew must not go on without a measurement. */
		if (passed >= PERIOD_NS) {
			correct(theirs ? 0 : rate_ppb);
			skipped++;
		}
		due_in(RETRY_NS);
		return;
	}
	passed = now.raw - last.raw;
	if (passed < PERIOD_NS && !grown(&now, passed)) {
		due_in(clamp(PERIOD_NS - passed, NSEC_PER_MSEC, LOOK_NS));
		return;
	}
	ppb = div64_s64((now.real - now.raw - last.real + last.raw) * USEC_PER_SEC,
			div_s64(passed, 1000));
	rate_ppb += abs(ppb - rate_ppb) > SMOOTH_PPB ? ppb - rate_ppb :
						       (ppb - rate_ppb) / SMOOTH;
	offset_ns = now.real - now.mono - difference;
	if (abs(offset_ns) > worst_ns)
		worst_ns = abs(offset_ns);
	if (theirs) {
		difference = now.real - now.mono;
	} else if (offset_ns > STEP_NS) {
		timekeeping_step_ahead(offset_ns);
		offset_ns = 0;
		stepped = true;
		steps++;
	} else if (abs(offset_ns) > NO_OFFSET_NS) {
		slew = clamp(offset_ns, -MOST_SLEW_PPB, MOST_SLEW_PPB);
	}
	correct(theirs ? 0 : rate_ppb + slew);
	corrections++;
	last = now;
	due_in(LOOK_NS);
	/*
	 * The slew must end when the offset is 0, even if the machine is idle then. After a step
	 * the rate is the average of the old one and the new one. The timer counts whole ticks, and
	 * must not expire before the check is due.
	 */
	if (slew || stepped)
		mod_timer(&check_timer, jiffies + HZ + 2);
}

/*
 * Whether the counter is lower than at the last check. If it has begun again, the clocks go on: at
 * real time, and no earlier than any program may have read, as they may be ahead of it a little.
 */
static bool fell(void)
{
	s64 by = checked_tsc - rdtsc();
	u64 real;

	if (by <= 0)
		return false;
	if (by < counts_of(FELL_NS) || !READ_ONCE(enabled))
		return true;
	/* Real time stands, too, until the hypervisor has noticed. */
	real = vmi_real_ns();
	if (vmi_real_ns() == real)
		return true;
	sched_clock_counter_fell(timekeeping_counter_fell(real - difference + abs(offset_ns) +
							  GROWN_NS));
	/* Rates are not measured across that. */
	take(&last);
	counter_falls++;
	due_in(LOOK_NS);
	return true;
}

/* The wall clock at real time 0, without what may pass between readings of the two. */
static u64 wall_now(void)
{
	u64 before, wall, width, least = U64_MAX, found = 0;
	unsigned int i;

	for (i = 0; i < TRIES && least > NO_OFFSET_NS; i++) {
		before = vmi_real_ns();
		wall = vmi.time_wallclock();
		width = vmi_real_ns() - before;
		if (width >= least)
			continue;
		least = width;
		found = wall - before - width / 2;
	}
	return found;
}

/* The host's wall clock has jumped: so does the guest's, from wherever it was. */
static void wall_follow(struct work_struct *unused)
{
	u64 now = wall_now();
	s64 jump = now - wall_offset;
	struct __kernel_timex change = { .modes = ADJ_SETOFFSET | ADJ_NANO };
	struct timespec64 by = ns_to_timespec64(jump);

	wall_offset = now;
	change.time.tv_sec = by.tv_sec;
	change.time.tv_usec = by.tv_nsec;
	if (!do_adjtimex(&change))
		wall_jumps++;
}
static DECLARE_WORK(wall_work, wall_follow);

void vmi_clock_check(void)
{
	unsigned long flags;

	/* A layer in a ROM asks its host, which costs more: look() does it. */
	if (vmi_low && READ_ONCE(wall_offset) && vmi.time_wallclock_updated())
		schedule_work(&wall_work);
	if (likely(rdtsc() - READ_ONCE(checked_tsc) < READ_ONCE(due_counts)) ||
	    !raw_spin_trylock_irqsave(&clock_lock, flags))
		return;
	if (!fell()) {
		if (READ_ONCE(enabled)) {
			step();
		} else {
			correct(0);
			due_in(PERIOD_NS);
		}
	}
	raw_spin_unlock_irqrestore(&clock_lock, flags);
}

static void check_again(struct timer_list *unused)
{
	vmi_clock_check();
}

/*
 * Beside the kernel's own timers: each CPU that is awake looks once a second whether the hypervisor
 * has something to say.
 */
static DEFINE_PER_CPU(struct timer_list, look_timers);

static void look(struct timer_list *timer)
{
	if (vmi.time_read)
		vmi_look_for_steal();
	if (vmi.time_wallclock_updated && vmi.time_wallclock_updated())
		schedule_work(&wall_work);
	mod_timer(timer, jiffies + HZ);
}

static void __init look_for_news(void)
{
	int cpu;

	if (!vmi_layer.present || !vmi.time_read)
		return;
	if (vmi.time_wallclock && vmi.time_wallclock_updated) {
		vmi.time_wallclock_updated();
		wall_offset = wall_now();
	}
	for_each_online_cpu(cpu) {
		struct timer_list *timer = per_cpu_ptr(&look_timers, cpu);

		timer_setup(timer, look, TIMER_DEFERRABLE | TIMER_PINNED);
		timer->expires = jiffies + HZ;
		add_timer_on(timer, cpu);
	}
}

/* For tests: whatever keeps the counter finds it lower by this. */
static void fall(u64 counts)
{
	checked_tsc += counts;
	timekeeping_move_counter(counts);
	sched_clock_counter_fell(-counts);
}

/*
 * "fell SECONDS" has the counter begin again. Otherwise what is written does not matter: the worst
 * offset is from now on.
 */
static ssize_t clock_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	char command[COMMAND_MAX] = "";
	unsigned int seconds = 0;
	unsigned long flags;

	if (copy_from_user(command, text, min(size, sizeof(command) - 1)))
		return -EFAULT;
	if (!strncmp(command, "fell ", 5) && kstrtouint(strim(command + 5), 10, &seconds))
		return -EINVAL;
	raw_spin_lock_irqsave(&clock_lock, flags);
	if (seconds)
		fall((u64)seconds * tsc_khz * 1000);
	else
		worst_ns = 0;
	raw_spin_unlock_irqrestore(&clock_lock, flags);
	return size;
}

static int clock_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "offset_ns %lld\nworst_offset_ns %lld\nrate_ppb %lld\n", offset_ns,
		   worst_ns, rate_ppb);
	seq_printf(file, "corrections %llu\nsteps %llu\nskipped %llu\nwall_jumps %llu\n",
		   corrections, steps, skipped, wall_jumps);
	seq_printf(file, "counter_falls %llu\nlayer_keeps_page %d\n", counter_falls,
		   !!(vmi_layer_features(VMI_SECTION_TIME) & VMI_TIME_PAGE_KEPT));
	return 0;
}

static int clock_open(struct inode *inode, struct file *file)
{
	return single_open(file, clock_show, NULL);
}

static const struct file_operations clock_fops = {
	.owner = THIS_MODULE,
	.open = clock_open,
	.read = seq_read,
	.write = clock_write,
	.llseek = seq_lseek,
	.release = single_release,
};

/*
 * The clock source is in use now. Before, time stood still between two ticks, so the wall clock is
 * late.
 */
static int __init vmi_init_clock(void)
{
	struct timespec64 wall;
	unsigned int i;

	if (!vmi_low) {
		look_for_news();
		return 0;
	}
	wall = ns_to_timespec64(vmi.time_wallclock());
	do_settimeofday64(&wall);
	vmi.time_wallclock_updated();
	wall_offset = wall_now();
	/* On a busy host the last try has to do. */
	for (i = 0; i < 100 && !take(&last); i++)
		cpu_relax();
	difference = last.real - last.mono;
	debugfs_create_file("clock", 0644, vmi_debugfs(), NULL, &clock_fops);
	due_in(PERIOD_NS);
	return 0;
}
late_initcall(vmi_init_clock);
