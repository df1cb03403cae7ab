// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* A vCPU's times and alarms. */
#include "vcpu/alarm.h"
#include "common/faults.h"
#include "host/clock.h"
#include "host/doorbell.h"
#include "mm/flush.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/guest_clock.h"
#include "vcpu/irq.h"
#include "vcpu/slice.h"

void times(struct vcpu *v, struct vmi_times *t)
{
	u64 real = now_ns() - shared->start_ns, stolen;

	clock_follow();
	if (v->running)
		slice_sample(v, rdtsc_rough());
	stolen = v->s.stolen_ns;
	/* A vCPU that wakes checks its alarms before it counts as running. */
	if (!v->running && !FAULT(WAIT_IS_UNSEEN))
		stolen += slice_waited(v);

	/*
	 * Available time never goes back either: stolen time grows by at most what real time did.
	 */
	if (real < v->last_real)
		real = v->last_real;
	if (stolen < v->last_stolen)
		stolen = v->last_stolen;
	if (stolen - v->last_stolen > real - v->last_real)
		stolen = v->last_stolen + (real - v->last_real);
	v->last_real = real;
	v->last_stolen = stolen;
	if (!FAULT(RUN_STATE_NOTHING_STOLEN) && !FAULT(RUN_STATE_AS_READ))
		WRITE_ONCE(v->run.stolen, stolen);
	t->real = real;
	t->stolen = stolen;
	t->available = real - stolen;
}

/* Sets when the alarm thread and irq_wait() check again. */
void deadline_set(struct vcpu *v, const struct vmi_times *t)
{
	u64 earliest = U64_MAX, at;
	u32 i;

	for (i = 0; i < 2; i++) {
		const struct alarm *a = &v->alarms[i];

		if (!a->armed || (v->alarm_fired & 1U << i))
			continue;
		at = a->expiry;
		if (i == VMI_TIME_AVAILABLE && at > t->available)
			at = at - t->available > U64_MAX / 2 ? U64_MAX / 2 :
				t->real + (at - t->available);
		at = at > U64_MAX / 2 ? U64_MAX : at + shared->start_ns;
		if (FAULT(ALARM_TAIL_LATE) && at % 32 == 0)
			at += 3000000;
		earliest = at < earliest ? at : earliest;
	}
	__atomic_store_n(&v->s.deadline_ns, earliest, __ATOMIC_SEQ_CST);
	if (earliest < __atomic_load_n(&shared->s.alarm_next_ns, __ATOMIC_SEQ_CST)) {
		ring(&shared->s.alarm_word);
	}
}

/*
 * The wall clock has jumped and no vCPU was interrupted for it yet. The interrupt is that of this
 * vCPU's alarms, which may come when time.ack_alarm has nothing to report.
 */
static bool wall_news(const struct vcpu *v)
{
	u32 updates = READ_ONCE(shared->s.wall_updates), told = READ_ONCE(shared->wall_told);

	return updates != told && v->alarm_vector && !FAULT(WALL_STEP_UNTOLD) &&
	       __atomic_compare_exchange_n(&shared->wall_told, &told, updates, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void alarm_check(struct vcpu *v)
{
	struct vmi_times t;
	bool fired = false;
	u32 i;

	times(v, &t);
	for (i = 0; i < 2; i++) {
		const struct alarm *a = &v->alarms[i];

		if (!a->armed || (v->alarm_fired & 1U << i))
			continue;
		if (a->expiry <= (i == VMI_TIME_REAL || FAULT(AVAILABLE_IS_REAL) ? t.real :
				  t.available)) {
			v->alarm_fired |= 1U << i;
			fired = true;
		}
	}
	if (wall_news(v) || fired)
		irq_request(v, v->alarm_vector);
	tlb_age(v, rdtsc_rough());
	deadline_set(v, &t);
}
