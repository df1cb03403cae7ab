// SPDX-License-Identifier: GPL-2.0-only
/*
 * The clock source is the time-stamp counter, at the frequency that the layer reports. Clock events
 * are the layer's alarms.
 *
 * With a layer in a ROM clock events are its alarms if it says so by the record of time.set_alarm,
 * and its real time is a second clock source, for when the counter proves unstable, if it says so
 * by that of time.read.
 */
#include <linux/clockchips.h>
#include <linux/clocksource.h>
#include <linux/hardirq.h>
#include <linux/percpu.h>
#include <linux/static_call.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/hardirq.h>
#include <asm/irq_regs.h>
#include <asm/idtentry.h>
#include <asm/paravirt.h>
#include <asm/tsc.h>
#include <asm/x86_init.h>
#include "vmi.h"

#define MIN_DELTA_NS 2000
#define MAX_DELTA_NS (1ULL << 40)

static DEFINE_PER_CPU(struct clock_event_device, vmi_events);

static DEFINE_PER_CPU(u64, stolen);

u64 vmi_real_ns(void)
{
	struct vmi_times times;

	vmi.time_read(&times);
	raw_cpu_write(stolen, times.stolen);
	return times.real;
}

/*
 * Steal time as of the CPU's last sample by the layer, or else by its last clock event. Where it
 * matters that is not long ago, and reading it again would cost as much as the accounting.
 */
static u64 vmi_steal_clock(int cpu)
{
	const struct vmi_run_state *state = vmi_run_state(cpu);

	return state ? READ_ONCE(state->stolen) : READ_ONCE(per_cpu(stolen, cpu));
}

/* For where it matters most: a CPU that seems to have slept, or to have run, for long. */
void vmi_sample_stolen(void)
{
	if (vmi_low)
		vmi_real_ns();
}

/* The clock beside the kernel's own timers: the CPU itself may as well read it again. */
static u64 vmi_steal_clock_now(int cpu)
{
	if (cpu == raw_smp_processor_id())
		vmi_real_ns();
	return vmi_steal_clock(cpu);
}

static bool steal_accounting __ro_after_init = true;

static int __init parse_no_steal_acc(char *arg)
{
	steal_accounting = false;
	return 0;
}
early_param("no-steal-acc", parse_no_steal_acc);

static void account_steal(u64 (*clock)(int cpu))
{
	static_call_update(pv_steal_clock, clock);
	static_key_slow_inc(&paravirt_steal_enabled);
	if (steal_accounting)
		static_key_slow_inc(&paravirt_steal_rq_enabled);
}

static void steal_seen(struct work_struct *unused)
{
	account_steal(vmi_steal_clock_now);
}
static DECLARE_WORK(steal_work, steal_seen);

/* Where nothing is stolen, as on bare metal, accounting would be for nothing. */
void vmi_look_for_steal(void)
{
	static atomic_t seen;

	vmi_real_ns();
	if (raw_cpu_read(stolen) && !atomic_read(&seen) && !atomic_xchg(&seen, 1))
		schedule_work(&steal_work);
}

static int __init vmi_init_steal_clock(void)
{
	if (vmi_low)
		account_steal(vmi_steal_clock);
	return 0;
}
arch_initcall(vmi_init_steal_clock);

static int vmi_next_event(unsigned long delta, struct clock_event_device *evt)
{
	return vmi.time_set_alarm(VMI_TIME_REAL, vmi_real_ns() + delta, 0, VMI_ALARM_VECTOR) ?
	       -EINVAL : 0;
}

static int vmi_event_shutdown(struct clock_event_device *evt)
{
	vmi.time_cancel_alarm(VMI_TIME_REAL);
	return 0;
}

DEFINE_IDTENTRY_SYSVEC(sysvec_vmi_alarm)
{
	struct clock_event_device *evt = this_cpu_ptr(&vmi_events);
	struct pt_regs *old = set_irq_regs(regs);

	apic_eoi();
	inc_irq_stat(apic_timer_irqs);
	vmi_clock_check();
	if (vmi.time_ack_alarm() & 1 << VMI_TIME_REAL && evt->event_handler)
		evt->event_handler(evt);
	set_irq_regs(old);
}

/* On a processor's own local APIC an alarm is its timer. */
static unsigned int stops_when_idle(void)
{
	return vmi_low || this_cpu_has(X86_FEATURE_ARAT) ? 0 : CLOCK_EVT_FEAT_C3STOP;
}

void vmi_setup_clockevent(void)
{
	struct clock_event_device *evt = this_cpu_ptr(&vmi_events);

	*evt = (struct clock_event_device){
		.name = "vmi",
		.features = CLOCK_EVT_FEAT_ONESHOT | stops_when_idle(),
		.rating = 500,
		.irq = -1,
		.cpumask = cpumask_of(smp_processor_id()),
		.set_next_event = vmi_next_event,
		.set_state_shutdown = vmi_event_shutdown,
		.set_state_oneshot_stopped = vmi_event_shutdown,
	};
	clockevents_config_and_register(evt, NSEC_PER_SEC, MIN_DELTA_NS, MAX_DELTA_NS);
}

static unsigned long vmi_tsc_khz(void)
{
	return div_u64(vmi.time_frequency(), 1000);
}

static void vmi_get_wallclock(struct timespec64 *now)
{
	*now = ns_to_timespec64(vmi.time_wallclock());
}

static u64 vmi_clocksource_read(struct clocksource *unused)
{
	return vmi_real_ns();
}

static struct clocksource vmi_clocksource = {
	.name = "vmi",
	/* Less than the counter's, more than those of devices. */
	.rating = 299,
	.read = vmi_clocksource_read,
	.mask = CLOCKSOURCE_MASK(64),
	.flags = CLOCK_SOURCE_IS_CONTINUOUS,
};

static int __init vmi_init_clocksource(void)
{
	if (vmi_layer.present && !vmi_low && vmi.time_read &&
	    vmi_layer_record(VMI_CALL_TIME_READ) == VMI_RELOC_CALL)
		clocksource_register_hz(&vmi_clocksource, NSEC_PER_SEC);
	return 0;
}
arch_initcall(vmi_init_clocksource);

/* In a ROM. */
void __init vmi_init_alarms(void)
{
	if (vmi_layer_record(VMI_CALL_TIME_SET_ALARM) != VMI_RELOC_CALL || !vmi.time_set_alarm ||
	    !vmi.time_cancel_alarm || !vmi.time_ack_alarm || !vmi.time_read || !vmi_layer_apic())
		return;
	sysvec_install(VMI_ALARM_VECTOR, sysvec_vmi_alarm);
	x86_init.timers.setup_percpu_clockev = vmi_setup_clockevent;
	x86_cpuinit.setup_percpu_clockev = vmi_setup_clockevent;
}

/* In a ROM. The kernel's own clock of the machine, where it has one, still takes a new time. */
void __init vmi_init_wallclock(void)
{
	if (vmi.time_wallclock)
		x86_platform.get_wallclock = vmi_get_wallclock;
}

void __init vmi_init_time(void)
{
	setup_force_cpu_cap(X86_FEATURE_TSC_KNOWN_FREQ);
	setup_force_cpu_cap(X86_FEATURE_TSC_RELIABLE);
	setup_force_cpu_cap(X86_FEATURE_CONSTANT_TSC);
	setup_force_cpu_cap(X86_FEATURE_NONSTOP_TSC);
	x86_platform.calibrate_cpu = vmi_tsc_khz;
	x86_platform.calibrate_tsc = vmi_tsc_khz;
	x86_platform.get_wallclock = vmi_get_wallclock;
	x86_platform.set_wallclock = set_rtc_noop;
	x86_init.timers.timer_init = vmi_setup_clockevent;
	x86_init.timers.setup_percpu_clockev = x86_init_noop;
	x86_init.timers.wallclock_init = x86_init_noop;
	x86_cpuinit.setup_percpu_clockev = x86_init_noop;
}
