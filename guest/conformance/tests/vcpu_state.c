// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* What must be carried of a vCPU that is stopped and continued elsewhere. */
#include "test.h"

#define VECTOR_ALARM	0x5c
#define VECTOR_A	0x71
#define VECTOR_B	0xc3
#define SOON		(20 * NS_PER_MS)
#define FAR		(3600 * NS_PER_S)

static struct vmi_vcpu_state saved, stopped;
static u32 ready, arrived[256];
static u64 fired, expired;

static void count(struct regs *regs)
{
	arrived[regs->vector & 0xff]++;
}

static void alarm(struct regs *regs)
{
	(void)regs;
	fired |= vmi.time_ack_alarm();
}

/* A vCPU that has some of everything, and reads it. An INIT ends it. */
static void have_all(void *argument)
{
	struct vmi_times times;

	(void)argument;
	irq_disable();
	vmi.time_read(&times);
	expired = times.real + SOON;
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, expired, 0, VECTOR_ALARM), 0);
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_AVAILABLE | VMI_ALARM_PERIODIC,
					times.available + FAR, FAR, VECTOR_ALARM), 0);
	CHECK_RESULT(send_ipi(1, VECTOR_A), 0);
	CHECK_RESULT(send_ipi(1, VECTOR_B), 0);
	CHECK_RESULT(vmi.lock_kick(1), 0);
	/* A request to itself may take a moment on a processor. */
	delay_ns(NS_PER_MS);
	CHECK_RESULT(vmi.smp_vcpu_state(1, &saved), 0);
	atomic_store(&ready, 1);
	for (;;)
		pause();
}

static bool requested(const struct vmi_vcpu_state *state, u32 vector)
{
	return state->requested[vector / 64] >> (vector % 64) & 1;
}

/* Another vCPU in its place: it has nothing of it. Then it gets what was saved. */
static void restore(void *argument)
{
	struct vmi_vcpu_state fresh;
	u8 byte = 0;
	u32 i;

	(void)argument;
	irq_disable();
	/* The bit is still there: the new vCPU is in the same machine. */
	while (vmi.lock_pending(1))
		vmi.lock_wait(&byte, 0);
	CHECK_RESULT(vmi.smp_vcpu_state(1, &fresh), 0);
	CHECK_EQ(fresh.kick, 0);
	CHECK_EQ(fresh.armed, 0);
	CHECK(!requested(&fresh, VECTOR_A) && !requested(&fresh, VECTOR_B));
	for (i = 0; i < 256; i++)
		if (i >= VMI_VECTOR_MIN && requested(&saved, i))
			CHECK_RESULT(send_ipi(1, i), 0);
	for (i = 0; i < 2; i++) {
		u64 repeats = saved.period[i] ? VMI_ALARM_PERIODIC : 0;

		if (saved.armed >> i & 1)
			CHECK_RESULT(vmi.time_set_alarm(i | repeats, saved.expiry[i],
							saved.period[i], saved.alarm_vector), 0);
	}
	if (saved.kick)
		CHECK_RESULT(vmi.lock_kick(1), 0);
	/* The wait takes the kick. Without it, it ends by an alarm or by itself. */
	CHECK_RESULT(vmi.lock_pending(1), 1);
	vmi.lock_wait(&byte, 0);
	CHECK_RESULT(vmi.lock_pending(1), 0);
	irq_enable();
	WAIT_UNTIL(READ_ONCE(fired) & 1u << VMI_TIME_REAL);
	irq_disable();
	CHECK_RESULT(vmi.time_cancel_alarm(VMI_TIME_AVAILABLE), 1);
}

TEST(vcpu_state_carried, "smp.vcpu_state.carried", 2, 0, SMP_VCPU_STATE, LOCK_KICK, LOCK_PENDING,
     TIME_SET_ALARM, TIME_CANCEL_ALARM)
{
	u32 i;

	if (!vmi.smp_vcpu_state)
		test_skip("the layer is older");
	memset(arrived, 0, sizeof(arrived));
	memset(&saved, 0xff, sizeof(saved));
	memset(&stopped, 0xff, sizeof(stopped));
	ready = 0;
	fired = 0;
	set_irq_handler(VECTOR_ALARM, alarm);
	set_irq_handler(VECTOR_A, count);
	set_irq_handler(VECTOR_B, count);
	run_on(1, have_all, NULL);
	WAIT_UNTIL(atomic_load(&ready));
	CHECK_RESULT(send_icr(1, ICR_INIT), 0);
	delay_ns(10 * NS_PER_MS);
	CHECK_RESULT(vmi.smp_vcpu_state(1, &stopped), 0);
	CHECK(smp_start(1));
	CHECK_EQ(saved.kick, 1);
	CHECK_EQ(saved.armed, 1u << VMI_TIME_REAL | 1u << VMI_TIME_AVAILABLE);
	CHECK_EQ(saved.alarm_vector, VECTOR_ALARM);
	CHECK_EQ(saved.expiry[VMI_TIME_REAL], expired);
	CHECK_EQ(saved.period[VMI_TIME_REAL], 0);
	CHECK_EQ(saved.period[VMI_TIME_AVAILABLE], FAR);
	CHECK(requested(&saved, VECTOR_A) && requested(&saved, VECTOR_B));
	CHECK_EQ(saved.zero, 0);
	for (i = 0; i < ARRAY_SIZE(saved.reserved); i++)
		CHECK_EQ(saved.reserved[i], 0);
	/* The INIT has taken all but the kick. */
	CHECK_EQ(stopped.kick, 1);
	CHECK_EQ(stopped.armed, 0);
	for (i = 0; i < ARRAY_SIZE(stopped.requested); i++)
		CHECK_EQ(stopped.requested[i], 0);
	CHECK_EQ(arrived[VECTOR_A] + arrived[VECTOR_B], 0);
	run_on(1, restore, NULL);
	wait_for(1);
	CHECK_EQ(fired, 1u << VMI_TIME_REAL);
	CHECK_EQ(arrived[VECTOR_A], 1);
	CHECK_EQ(arrived[VECTOR_B], 1);
}

static void stop(void *argument)
{
	(void)argument;
	atomic_store(&ready, 1);
	vmi.cpu_stop();
}

/* A vCPU that is off without an INIT: before its first start, and in cpu.stop. */
TEST(vcpu_state_without_init, "smp.vcpu_state.without_init", 2, 0, SMP_VCPU_STATE, CPU_STOP)
{
	struct vmi_vcpu_state state;

	if (!vmi.smp_vcpu_state)
		test_skip("the layer is older");
	CHECK_RESULT(smp_state_before[1], -VMI_EBUSY);
	ready = 0;
	run_on(1, stop, NULL);
	WAIT_UNTIL(atomic_load(&ready));
	/* On some layers it is off soon. */
	delay_ns(10 * NS_PER_MS);
	CHECK_RESULT(vmi.smp_vcpu_state(1, &state), -VMI_EBUSY);
	CHECK_RESULT(send_icr(1, ICR_INIT), 0);
	delay_ns(10 * NS_PER_MS);
	CHECK_RESULT(vmi.smp_vcpu_state(1, &state), 0);
	CHECK(smp_start(1));
}

TEST(vcpu_state_errors, "smp.vcpu_state.errors", 2, 0, SMP_VCPU_STATE)
{
	u32 bad[] = { 0x10000, 0xffffffff, VCPU_WITHOUT_DATA }, i;
	struct vmi_vcpu_state state;

	if (!vmi.smp_vcpu_state)
		test_skip("the layer is older");
	memset(&state, 0x55, sizeof(state));
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK_RESULT(vmi.smp_vcpu_state(bad[i], &state), -VMI_ENOENT);
	CHECK_RESULT(vmi.smp_vcpu_state(1, &state), -VMI_EBUSY);
	CHECK_EQ(state.armed, 0x55555555);
	CHECK_RESULT(vmi.smp_vcpu_state(this_vcpu(), &state), 0);
	CHECK_EQ(state.kick, 0);
}
