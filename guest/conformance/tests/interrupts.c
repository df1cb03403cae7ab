// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The interrupt flag, halting, and the task priority. */
#include "harness.h"
#include "test.h"

#define VECTOR_A	0x51
#define VECTOR_B	0x61
#define VECTOR_C	0x71
#define QUIET		(NS_PER_MS / 2)	/* long enough for what should not come */

/* The two ways to make a primitive call. */
enum path { SITE, ENTRY };

static void enable(u64 path)
{
	if (path == SITE)
		irq_enable();
	else
		vmi.cpu_irq_enable();
	/* The interrupt may arrive after the next instruction, and no later. */
	asm volatile("nop");
}

static void disable(u64 path)
{
	if (path == SITE)
		irq_disable();
	else
		vmi.cpu_irq_disable();
}

static u64 save(u64 path)
{
	return path == SITE ? irq_save() : vmi.cpu_irq_save();
}

static void restore(u64 path, u64 flags)
{
	if (path == SITE)
		irq_restore(flags);
	else
		vmi.cpu_irq_restore(flags);
	asm volatile("nop");
}

static u64 flag(u64 path)
{
	return (path == SITE ? irq_flag() : vmi.cpu_irq_flag()) & VMI_FLAGS_IF;
}

static void interrupt_self(u32 vector)
{
	CHECK_RESULT(send_ipi(0, vector), 0);
}

static void need_entries(u64 path)
{
	if (path == ENTRY && !(vmi.cpu_irq_enable && vmi.cpu_irq_disable &&
			       vmi.cpu_irq_flag && vmi.cpu_irq_save &&
			       vmi.cpu_irq_restore && vmi.cpu_halt))
		test_skip("the layer has no entries for these primitives");
}

/* Pending while masked: not delivered. After enabling: delivered once, and at once. */
static void masked(u64 path)
{
	u64 before = irq_count(0, VECTOR_A);
	u32 i;

	need_entries(path);
	for (i = 1; i <= 20; i++) {
		enable(path);
		disable(path);
		interrupt_self(VECTOR_A);
		delay_ns(QUIET / 10);
		CHECK_EQ(irq_count(0, VECTOR_A), before + i - 1);
		enable(path);
		CHECK_EQ(irq_count(0, VECTOR_A), before + i);
		delay_ns(QUIET / 10);
		disable(path);
		CHECK_EQ(irq_count(0, VECTOR_A), before + i);
	}
}
TEST_OF(masked_site, "cpu.irq_disable.masks_site", masked, SITE, 1, 0,
	CPU_IRQ_DISABLE, CPU_IRQ_ENABLE, APIC_SEND_IPI);
TEST_OF(masked_entry, "cpu.irq_disable.masks_entry", masked, ENTRY, 1, 0,
	CPU_IRQ_DISABLE, CPU_IRQ_ENABLE);

static void reads(u64 path)
{
	need_entries(path);
	disable(path);
	CHECK_EQ(flag(path), 0);
	disable(path);
	CHECK_EQ(flag(path), 0);
	enable(path);
	CHECK_EQ(flag(path), VMI_FLAGS_IF);
	enable(path);
	CHECK_EQ(flag(path), VMI_FLAGS_IF);
	disable(path);
	CHECK_EQ(flag(path), 0);
}
TEST_OF(reads_site, "cpu.irq_flag.reads_site", reads, SITE, 1, 0, CPU_IRQ_FLAG);
TEST_OF(reads_entry, "cpu.irq_flag.reads_entry", reads, ENTRY, 1, 0, CPU_IRQ_FLAG);

static void nests(u64 path)
{
	u64 outer, middle, inner, before = irq_count(0, VECTOR_A);

	need_entries(path);
	enable(path);
	outer = save(path);
	CHECK_EQ(flag(path), 0);
	middle = save(path);
	interrupt_self(VECTOR_A);
	enable(path);
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
	inner = save(path);
	CHECK(outer & VMI_FLAGS_IF);
	CHECK(!(middle & VMI_FLAGS_IF));
	CHECK(inner & VMI_FLAGS_IF);
	restore(path, inner);
	CHECK_EQ(flag(path), VMI_FLAGS_IF);
	restore(path, middle);
	CHECK_EQ(flag(path), 0);
	interrupt_self(VECTOR_A);
	restore(path, middle);
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
	restore(path, outer);
	CHECK_EQ(irq_count(0, VECTOR_A), before + 2);
	CHECK_EQ(flag(path), VMI_FLAGS_IF);
}
TEST_OF(nests_site, "cpu.irq_save.nests_site", nests, SITE, 1, 0,
	CPU_IRQ_SAVE, CPU_IRQ_RESTORE);
TEST_OF(nests_entry, "cpu.irq_save.nests_entry", nests, ENTRY, 1, 0,
	CPU_IRQ_SAVE, CPU_IRQ_RESTORE);

/* irq_save with an interrupt pending delivers it neither before nor after. */
TEST(save_holds, "cpu.irq_save.masks", 1, 0, CPU_IRQ_SAVE)
{
	u64 flags, before = irq_count(0, VECTOR_A);

	irq_enable();
	flags = irq_save();
	interrupt_self(VECTOR_A);
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_A), before);
	irq_restore(flags);
	asm volatile("nop");
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
}

static u8 order[8];
static u32 order_count;
static bool handler_irqs;

static void record_order(struct regs *regs)
{
	if (order_count < ARRAY_SIZE(order))
		order[order_count++] = regs->vector;
	handler_irqs |= irqs_enabled();
}

TEST(coalesces, "apic.send_ipi.coalesces", 1, 0, APIC_SEND_IPI)
{
	u64 before = irq_count(0, VECTOR_A);
	u32 i;

	for (i = 0; i < 10; i++)
		interrupt_self(VECTOR_A);
	irq_enable();
	asm volatile("nop");
	delay_ns(QUIET);
	/* One was pending when the others arrived, which merge with it. */
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
}

TEST(priority, "apic.send_ipi.priority", 1, 0, APIC_SEND_IPI, APIC_EOI)
{
	order_count = 0;
	handler_irqs = false;
	set_irq_handler(VECTOR_A, record_order);
	set_irq_handler(VECTOR_B, record_order);
	set_irq_handler(VECTOR_C, record_order);
	interrupt_self(VECTOR_B);
	interrupt_self(VECTOR_A);
	interrupt_self(VECTOR_C);
	irq_enable();
	delay_ns(QUIET);
	irq_disable();
	CHECK_EQ(order_count, 3);
	CHECK_EQ(order[0], VECTOR_C);
	CHECK_EQ(order[1], VECTOR_B);
	CHECK_EQ(order[2], VECTOR_A);
	CHECK(!handler_irqs);
}

static u64 nested_inside, nested_lower;

static void outer_handler(struct regs *regs)
{
	u64 higher = irq_count(0, VECTOR_C), lower = irq_count(0, VECTOR_A);

	(void)regs;
	interrupt_self(VECTOR_A);
	interrupt_self(VECTOR_C);
	irq_enable();
	delay_ns(QUIET);
	irq_disable();
	nested_inside = irq_count(0, VECTOR_C) - higher;
	nested_lower = irq_count(0, VECTOR_A) - lower;
}

/* In a handler with interrupts on: a higher vector is delivered, others wait for EOI. */
TEST(nested, "apic.eoi.nested", 1, 0, APIC_EOI)
{
	u64 lower = irq_count(0, VECTOR_A);

	set_irq_handler(VECTOR_B, outer_handler);
	interrupt_self(VECTOR_B);
	irq_enable();
	delay_ns(QUIET);
	irq_disable();
	CHECK_EQ(nested_inside, 1);
	CHECK_EQ(nested_lower, 0);
	CHECK_EQ(irq_count(0, VECTOR_A), lower + 1);
}

static u64 gate_irqs[2];

static void gate_handler(struct regs *regs)
{
	gate_irqs[regs->vector == VECTOR_TRAP_GATE] = irqs_enabled();
	irq_disable();
}

TEST(gates, "cpu.set_idt.gate_types", 1, 0, CPU_SET_IDT)
{
	set_irq_handler(VECTOR_TRAP_GATE, gate_handler);
	set_irq_handler(VECTOR_A, gate_handler);
	gate_irqs[0] = gate_irqs[1] = 2;
	interrupt_self(VECTOR_A);
	interrupt_self(VECTOR_TRAP_GATE);
	irq_enable();
	delay_ns(QUIET);
	/* iret has restored the flag of the interrupted code. */
	CHECK(irqs_enabled());
	irq_disable();
	CHECK_EQ(gate_irqs[0], false);
	CHECK_EQ(gate_irqs[1], true);
}

static struct regs frame;

static void record_frame(struct regs *regs)
{
	frame = *regs;
}

TEST(frame_content, "cpu.irq_enable.frame", 1, 0, CPU_IRQ_ENABLE, CPU_IRET)
{
	memset(&frame, 0, sizeof(frame));
	set_irq_handler(VECTOR_A, record_frame);
	interrupt_self(VECTOR_A);
	irq_enable();
	delay_ns(QUIET);
	irq_disable();
	CHECK_EQ(frame.vector, VECTOR_A);
	CHECK_EQ(frame.cs, KERNEL_CS);
	/* A processor leaves SS null after an interrupt in user mode, until the iret. */
	CHECK(frame.ss == 0 || frame.ss == KERNEL_SS);
	CHECK(frame.rflags & FLAGS_IF);
	CHECK_OP(frame.rip, >=, (u64)image_start);
}

/* --- halt --- */

static void halt_by(u64 path)
{
	if (path == SITE)
		halt();
	else
		vmi.cpu_halt();
}

static void halt_pending(u64 path)
{
	u64 before = irq_count(0, VECTOR_A);
	u32 i;

	need_entries(path);
	for (i = 1; i <= 50; i++) {
		irq_disable();
		interrupt_self(VECTOR_A);
		halt_by(path);
		CHECK_EQ(irq_count(0, VECTOR_A), before + i);
		CHECK(irqs_enabled());
	}
}
TEST_OF(halt_site, "cpu.halt.pending_site", halt_pending, SITE, 1, 0, CPU_HALT);
TEST_OF(halt_entry, "cpu.halt.pending_entry", halt_pending, ENTRY, 1, 0, CPU_HALT);

static u64 alarm_bits;

static void alarm_handler(struct regs *regs)
{
	(void)regs;
	alarm_bits |= vmi.time_ack_alarm();
}

/*
 * The alarm comes shortly before, at or after the halt. The other counter's alarm comes later, in
 * case the first is lost.
 */
static void halt_race(u64 path)
{
	u64 seed = 77, count = 0;
	u32 i;

	need_entries(path);
	set_irq_handler(VECTOR_A, alarm_handler);
	for (i = 0; i < 200; i++) {
		u64 wait = random64(&seed) % 30000;

		irq_disable();
		alarm_bits = 0;
		CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_AVAILABLE,
						now() + 2 * NS_PER_S, 0, VECTOR_A), 0);
		CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + wait, 0,
						VECTOR_A), 0);
		while (!READ_ONCE(alarm_bits)) {
			halt_by(path);
			irq_disable();
			CHECK(++count < 100000);
			watch("halt");
		}
		CHECK_EQ(alarm_bits, 1u << VMI_TIME_REAL);
	}
}
TEST_OF(race_site, "cpu.halt.race_site", halt_race, SITE, 1, 0, CPU_HALT);
TEST_OF(race_entry, "cpu.halt.race_entry", halt_race, ENTRY, 1, 0, CPU_HALT);

static u64 woken, wakes_sent;

static void halt_many(void *argument)
{
	u64 rounds = (u64)argument;

	while (READ_ONCE(woken) < rounds) {
		irq_disable();
		/*
		 * The flag is read with interrupts off: halt must see an interrupt that comes
		 * later.
		 */
		if (irq_count(1, VECTOR_B) == READ_ONCE(woken)) {
			halt();
			continue;
		}
		atomic_store(&woken, irq_count(1, VECTOR_B));
	}
	irq_disable();
}

/* The other vCPU goes to sleep again and again while interrupts arrive. */
TEST(halt_remote, "cpu.halt.remote", 2, 0, CPU_HALT, APIC_SEND_IPI)
{
	u64 rounds = 500, seed = 5, i;

	/* The count starts now: no interrupt of this vector has been sent to vCPU 1. */
	woken = irq_count(1, VECTOR_B);
	wakes_sent = woken;
	rounds += woken;
	run_on(1, halt_many, (void *)rounds);
	for (i = woken; i < rounds; i++) {
		CHECK_RESULT(send_ipi(1, VECTOR_B), 0);
		wakes_sent++;
		WAIT_UNTIL(READ_ONCE(woken) >= wakes_sent);
		delay_ns(random64(&seed) % 5000);
	}
	wait_for(1);
	CHECK_EQ(irq_count(1, VECTOR_B), rounds);
}

TEST(halt_masked_before, "cpu.halt.enables", 1, 0, CPU_HALT)
{
	set_irq_handler(VECTOR_A, alarm_handler);
	irq_disable();
	alarm_bits = 0;
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, now() + NS_PER_MS, 0,
					VECTOR_A), 0);
	while (!READ_ONCE(alarm_bits))
		halt();
	CHECK(irqs_enabled());
}

TEST(pause_returns, "cpu.pause.returns", 1, 0, CPU_PAUSE)
{
	u32 i;

	for (i = 0; i < 1000; i++)
		pause();
	for (i = 0; vmi.cpu_pause && i < 1000; i++)
		vmi.cpu_pause();
	CHECK(!irqs_enabled());
	irq_enable();
	pause();
	CHECK(irqs_enabled());
}

/* --- task priority --- */

TEST(cr8_value, "cpu.set_cr8.reads_back", 1, 0, CPU_SET_CR8, CPU_GET_CR8)
{
	u64 i;

	for (i = 0; i < 16; i++) {
		set_cr8(i);
		CHECK_EQ(get_cr8(), i);
		CHECK_EQ(vmi.apic_read(0x80) >> 4, i);
	}
	CHECK_RESULT(vmi.apic_write(0x80, 0x50), 0);
	CHECK_EQ(get_cr8(), 5);
	set_cr8(0);
}

static void cr8_masks(u64 path)
{
	u64 low = irq_count(0, 0x5f), high = irq_count(0, 0x60);

	if (path == ENTRY && !vmi.cpu_set_cr8)
		test_skip("the layer has no entry for it");
	if (path == SITE)
		set_cr8(5);
	else
		vmi.cpu_set_cr8(5);
	irq_enable();
	interrupt_self(0x5f);
	interrupt_self(0x60);
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, 0x5f), low);
	CHECK_EQ(irq_count(0, 0x60), high + 1);
	if (path == SITE)
		set_cr8(4);
	else
		vmi.cpu_set_cr8(4);
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, 0x5f), low + 1);
	/* Nothing passes the highest priority. After it is lowered, the flag still masks. */
	set_cr8(15);
	interrupt_self(0xef);
	delay_ns(QUIET);
	low = irq_count(0, 0xef);
	irq_disable();
	set_cr8(0);
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, 0xef), low);
	irq_enable();
	asm volatile("nop");
	CHECK_EQ(irq_count(0, 0xef), low + 1);
}
TEST_OF(cr8_site, "cpu.set_cr8.masks_site", cr8_masks, SITE, 1, 0, CPU_SET_CR8);
TEST_OF(cr8_entry, "cpu.set_cr8.masks_entry", cr8_masks, ENTRY, 1, 0, CPU_SET_CR8);
