// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The boot vCPU's per-CPU data move: contents first, then the entry of vmi_init.percpu_table, then
 * the GS base, by the call or by its MSR.
 */
#include "test.h"

#define VECTOR_A	0x5e
#define MSR_GS_BASE	0xc0000101

static struct percpu elsewhere;
static u64 alarms;

static void alarm(struct regs *regs)
{
	(void)regs;
	alarms |= vmi.time_ack_alarm();
}

static int move(struct percpu *to, struct percpu *from, bool by_msr)
{
	memcpy(to, from, sizeof(*to));
	to->self = to;
	percpus[0] = to;
	vmi_percpus[0] = &to->vmi;
	return by_msr ? vmi.cpu_write_msr(MSR_GS_BASE, (u64)to) : vmi.cpu_set_gs_base((u64)to);
}

/* Tests the layer's data of this vCPU. Returns the name of what does not work, or NULL. */
static const char *find_fault(struct percpu *cpu)
{
	u64 before, end;

	if (vmi.cpu_get_gs_base() != (u64)cpu || this_cpu() != cpu)
		return "the GS base";
	before = cpu->irq_count[VECTOR_A];
	if (send_ipi(0, VECTOR_A))
		return "an interrupt cannot be sent";
	pause();
	if (cpu->irq_count[VECTOR_A] != before)
		return "an interrupt while masked";
	irq_enable();
	asm volatile("nop");
	irq_disable();
	if (cpu->irq_count[VECTOR_A] != before + 1)
		return "no interrupt after unmasking";
	if (layer_offers_section(VMI_SECTION_LOCK)) {
		if (vmi.lock_kick(0) || vmi.lock_pending(0) != 1)
			return "lock.kick";
		vmi.lock_wait(&(u8){ 0 }, 0);
		if (vmi.lock_pending(0))
			return "lock.wait";
	}
	alarms = 0;
	if (vmi.time_set_alarm(VMI_TIME_REAL, now() + NS_PER_MS, 0, VECTOR_A))
		return "time.set_alarm";
	irq_enable();
	for (end = now() + NS_PER_S; !READ_ONCE(alarms) && now() < end;)
		pause();
	irq_disable();
	return alarms ? NULL : "no alarm";
}

static void moves(u64 by_msr)
{
	struct percpu *home = percpus[0];
	const char *fault = NULL;
	int there, back, i;

	set_irq_handler(VECTOR_A, alarm);
	for (i = 0; i < 5 && !fault; i++) {
		irq_disable();
		there = move(&elsewhere, home, by_msr);
		/* A GS base that has not moved leads to this vCPU's old data, which still work. */
		if (!there)
			fault = find_fault(&elsewhere);
		back = move(home, &elsewhere, false);
		CHECK_RESULT(there, 0);
		CHECK_RESULT(back, 0);
		if (fault)
			FAIL("after the move: %s", fault);
		fault = find_fault(home);
		if (fault)
			FAIL("after the way back: %s", fault);
	}
}
TEST_OF(moves_call, "cpu.set_gs_base.moves", moves, 0, 1, 0, CPU_SET_GS_BASE);
TEST_OF(moves_msr, "cpu.write_msr.moves", moves, 1, 1, 0, CPU_WRITE_MSR);
