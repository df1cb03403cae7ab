// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* smp.set_ap_state for a vCPU that runs. */
#include "test.h"

#define VECTOR_A 0x59

static u32 armed, given, started;
static u64 alarms;

static void alarm(struct regs *regs)
{
	(void)regs;
	alarms |= vmi.time_ack_alarm();
}

static void run_on_meanwhile(void *argument)
{
	(void)argument;
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), 0);
	if (layer_offers_section(VMI_SECTION_LOCK))
		CHECK_RESULT(vmi.lock_kick(1), 0);
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + 5 * NS_PER_MS, 0, VECTOR_A), 0);
	atomic_store(&armed, 1);
	WAIT_UNTIL(atomic_load(&given));
	/* All that the vCPU has is still there. */
	irq_enable();
	WAIT_UNTIL(READ_ONCE(alarms) == 1u << VMI_TIME_REAL);
	irq_disable();
	if (layer_offers_section(VMI_SECTION_LOCK))
		CHECK_RESULT(vmi.lock_pending(1), 1);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), -VMI_EPERM);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
}

static noreturn void start_here(void)
{
	atomic_store(&started, 1);
	vmi.cpu_stop();
	for (;;)
		;
}

/* It takes effect at the next INIT and STARTUP, and changes nothing before. */
TEST(ap_running, "smp.set_ap_state.running", 2, 0, SMP_SET_AP_STATE, SMP_STARTUP_VECTOR)
{
	struct vmi_ap_state state = smp_work_state(1);
	s64 vector;
	u64 end;

	if (layer_older_than(3))
		test_skip("older layers disarmed its alarms");
	armed = given = started = 0;
	alarms = 0;
	set_irq_handler(VECTOR_A, alarm);
	state.rip = (u64)start_here;
	state.tr = 0;
	run_on(1, run_on_meanwhile, NULL);
	WAIT_UNTIL(atomic_load(&armed));
	CHECK_RESULT(vmi.smp_set_ap_state(1, &state), 0);
	atomic_store(&given, 1);
	wait_for(1);
	CHECK_EQ(started, 0);
	CHECK_RESULT(send_icr(1, ICR_INIT), 0);
	delay_ns(NS_PER_MS);
	/* Off: alarms and modes are reset, the pending bit is not. */
	if (layer_offers_section(VMI_SECTION_LOCK))
		CHECK_RESULT(vmi.lock_pending(1), 1);
	vector = vmi.smp_startup_vector();
	CHECK_RESULT(send_icr(1, ICR_STARTUP | vector), 0);
	for (end = now() + 5 * NS_PER_S; !atomic_load(&started) && now() < end;)
		pause();
	CHECK(smp_start(1));
	CHECK_EQ(started, 1);
}

static void leave_on(void *argument)
{
	(void)argument;
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), 0);
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + 20 * NS_PER_MS, 0, VECTOR_A), 0);
	atomic_store(&armed, 1);
	for (;;)
		pause();
}

static void find_off(void *argument)
{
	(void)argument;
	CHECK_RESULT(vmi.time_cancel_alarm(VMI_TIME_REAL), 0);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_MMU), 0);
	CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
}

/* An INIT ends the lazy mode and disarms the alarms. */
TEST(ap_forgets, "apic.send_ipi.init_disarms", 2, 0, APIC_SEND_IPI)
{
	armed = 0;
	alarms = 0;
	set_irq_handler(VECTOR_A, alarm);
	run_on(1, leave_on, NULL);
	WAIT_UNTIL(atomic_load(&armed));
	CHECK(smp_start(1));
	run_on(1, find_off, NULL);
	wait_for(1);
	CHECK_EQ(alarms, 0);
}
