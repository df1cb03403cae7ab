/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section time: alarms. The alarms of a vCPU share its APIC timer, which is always programmed for
 * the nearest expiry that is not acknowledged.
 *
 * Nothing is lost between reading the clock and programming the timer: one-shot mode counts at
 * least one tick from then on, and deadline mode fires at once for a deadline in the past. An alarm
 * stays armed until ack_alarm reports it, so every programming in between includes it. The timer
 * may fire early, because a long expiry takes several rounds, the calibration is not perfect, and
 * time may be stolen from an alarm on available time. ack_alarm then reports nothing and programs
 * the remaining time.
 *
 * Each register of the timer is an exit under a hypervisor. So what it holds is remembered, until
 * an INIT or the kernel resets it, and nothing is written twice.
 */
#include "counter.h"
#include "native.h"

#define APIC_LVT_TIMER 0x320
#define APIC_TIMER_INITIAL 0x380
#define APIC_TIMER_DIVIDE 0x3e0
#define LVT_MASKED (1u << 16)
#define LVT_TSC_DEADLINE (2u << 17)
#define DIVIDE_BY_1 0xb

#define COUNT_MAX 0xffffffffULL
#define ALARM_FLAGS (0xffu | VMI_ALARM_PERIODIC)

/* Added to each expiry, so that an imperfect rate seldom causes a second interrupt. */
#define SLACK_SHIFT 12
#define SLACK_MAX_NS 20000

#define LATE_NS 20000000 /* with a planted fault */

static bool fires(u32 counter)
{
	return counter == VMI_TIME_REAL || counter == VMI_TIME_AVAILABLE;
}

static void timer_entry(struct native_percpu *self, u32 entry)
{
	if (self->timer_lvt == entry)
		return;
	native_apic_store(APIC_LVT_TIMER, entry);
	self->timer_lvt = entry;
	/* The mode must be set before the deadline, which is written to a different register. */
	__asm__ volatile("mfence; lfence" : : : "memory");
}

static void timer_stop(struct native_percpu *self)
{
	/* A deadline that has passed has stopped the timer. */
	if (self->timer_deadline && native.tsc_deadline && self->timer_deadline > cpu_tsc())
		cpu_wrmsr(MSR_TSC_DEADLINE, 0);
	else if (self->timer_deadline && !native.tsc_deadline)
		native_apic_store(APIC_TIMER_INITIAL, 0);
	self->timer_deadline = 0;
}

static void timer_start(struct native_percpu *self, u64 expiry)
{
	u64 now, delta, count, deadline;

	if (FAULT(ALARM_LATE) && expiry < U64_MAX - LATE_NS)
		expiry += LATE_NS;
	deadline = native_tsc_at(expiry);
	if (native.tsc_deadline) {
		timer_entry(self, self->alarm_vector | LVT_TSC_DEADLINE);
		if (deadline == self->timer_deadline && deadline > cpu_tsc())
			return;
		self->timer_deadline = deadline;
		cpu_wrmsr(MSR_TSC_DEADLINE, deadline);
		return;
	}
	timer_entry(self, self->alarm_vector);
	self->timer_deadline = deadline;
	native_apic_store(APIC_TIMER_DIVIDE, DIVIDE_BY_1);
	now = native_real_time();
	delta = expiry > now ? expiry - now : 0;
	delta += delta >> SLACK_SHIFT < SLACK_MAX_NS ? delta >> SLACK_SHIFT : SLACK_MAX_NS;
	count = mul_div(delta, native.apic_hz, NSEC_PER_SEC);
	native_apic_store(APIC_TIMER_INITIAL, count < COUNT_MAX ? (u32)count + 1 : (u32)COUNT_MAX);
}

static u64 counter_of(const struct vmi_times *times, u32 counter)
{
	return counter == VMI_TIME_REAL ? times->real : times->available;
}

/* Programs the timer for the armed alarms. Interrupts are off. */
static void alarms_program(struct native_percpu *self)
{
	u64 nearest = U64_MAX;
	struct vmi_times times;
	bool any = false;

	native_times(&times);
	for (u32 i = 0; i < NATIVE_ALARMS; i++) {
		const struct native_alarm *alarm = &self->alarms[i];
		u64 now = counter_of(&times, i), left, expiry;

		if (!fires(i) || !alarm->armed)
			continue;
		if (FAULT(ALARM_PAST_LOST) && alarm->expiry <= now)
			continue;
		any = true;
		/* The moment if nothing is stolen until then. */
		left = alarm->expiry > now ? alarm->expiry - now : 0;
		expiry = i == VMI_TIME_REAL ? alarm->expiry :
			 left < U64_MAX - times.real ? times.real + left : U64_MAX;
		if (expiry < nearest)
			nearest = expiry;
	}
	if (any)
		timer_start(self, nearest);
	else
		timer_stop(self);
}

static bool have_timer(void)
{
	return native.ready && native.apic && (native.tsc_deadline || native.apic_hz);
}

int native_time_set_alarm(u32 flags, u64 expiry, u64 period, u32 vector)
{
	u32 counter = flags & 0xff;
	bool periodic = flags & VMI_ALARM_PERIODIC;
	struct native_percpu *self;
	u64 interrupts;

	if (flags & ~ALARM_FLAGS || counter >= NATIVE_ALARMS)
		return -VMI_EINVAL;
	if (vector < VMI_VECTOR_MIN || vector > VMI_VECTOR_MAX)
		return -VMI_EINVAL;
	if (periodic ? period < VMI_ALARM_MIN_PERIOD_NS : period != 0)
		return -VMI_EINVAL;
	if (!native.ready || (fires(counter) && !have_timer()))
		return -VMI_ENOSYS;

	interrupts = cpu_irq_save();
	self = native_self();
	self->alarms[counter].expiry = expiry;
	self->alarms[counter].period = FAULT(ALARM_ONE_PERIOD) ? 0 : period;
	self->alarms[counter].armed = true;
	if (fires(counter)) {
		self->alarm_vector = vector;
		alarms_program(self);
	}
	cpu_irq_restore(interrupts);
	return 0;
}

int native_time_cancel_alarm(u32 counter)
{
	struct native_percpu *self;
	u64 interrupts;
	bool armed;

	if (counter >= NATIVE_ALARMS)
		return -VMI_EINVAL;
	if (!native.ready)
		return 0;
	interrupts = cpu_irq_save();
	self = native_self();
	armed = self->alarms[counter].armed;
	self->alarms[counter].armed = FAULT(CANCEL_NOTHING) ? armed : false;
	if (armed && fires(counter))
		alarms_program(self);
	cpu_irq_restore(interrupts);
	return armed;
}

/* The first moment of the series after now. */
static void alarm_advance(struct native_alarm *alarm, u64 now)
{
	u64 missed = (now - alarm->expiry) / alarm->period;
	u64 step = (missed + 1) * alarm->period;

	if (alarm->expiry > U64_MAX - step)
		alarm->armed = false; /* after the end of time */
	else
		alarm->expiry += step;
}

u64 native_time_ack_alarm(void)
{
	struct native_percpu *self;
	u64 interrupts, expired = 0;
	struct vmi_times times;

	if (!have_timer())
		return 0;
	interrupts = cpu_irq_save();
	self = native_self();
	native_times(&times);
	for (u32 i = 0; i < NATIVE_ALARMS; i++) {
		struct native_alarm *alarm = &self->alarms[i];
		u64 now = counter_of(&times, i);

		if (!fires(i) || !alarm->armed || (alarm->expiry > now && !FAULT(ALARM_EARLY)))
			continue;
		expired |= 1ULL << (FAULT(ALARM_WRONG_COUNTER) ? i ^ 1 : i);
		if (alarm->period && alarm->expiry <= now)
			alarm_advance(alarm, now);
		else
			alarm->armed = false;
	}
	/* It has fired, early perhaps. */
	self->timer_deadline = 0;
	alarms_program(self);
	cpu_irq_restore(interrupts);
	return expired;
}
