// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The local APIC and interprocessor interrupts. */
#include "harness.h"
#include "test.h"

#define VECTOR_A	0x52
#define QUIET		(NS_PER_MS / 2)

TEST(apic_id, "apic.read.id", 1, 0, APIC_READ)
{
	s64 id = vmi.apic_read(0x20);

	/* In bits 31:24 of the page, in all 32 bits in x2APIC mode. */
	CHECK_OP(id, >=, 0);
	CHECK(id == machine.apic_ids[0] || id >> 24 == machine.apic_ids[0]);
	CHECK_OP(vmi.apic_read(0x30) & 0xff, >, 0);
}

TEST(apic_read_errors, "apic.read.errors", 1, 0, APIC_READ)
{
	CHECK_RESULT(vmi.apic_read(0x400), -VMI_EINVAL);
	CHECK_RESULT(vmi.apic_read(0x3f1), -VMI_EINVAL);
	CHECK_RESULT(vmi.apic_read(0x24), -VMI_EINVAL);
	CHECK_RESULT(vmi.apic_read(0xfffffff0), -VMI_EINVAL);
}

TEST(apic_write_errors, "apic.write.errors", 1, 0, APIC_WRITE)
{
	u64 before = irq_count(0, VECTOR_A);

	CHECK_RESULT(vmi.apic_write(0x400, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.apic_write(0x81, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.apic_write(0x310, 0), -VMI_EINVAL);
	/* Nothing was sent: a self interrupt would have arrived here. */
	CHECK_RESULT(vmi.apic_write(0x300, ICR_SELF | VECTOR_A), -VMI_EINVAL);
	irq_enable();
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_A), before);
}

TEST(apic_write_value, "apic.write.reads_back", 1, 0, APIC_WRITE, APIC_READ)
{
	s64 old = vmi.apic_read(0xf0);

	CHECK_RESULT(vmi.apic_write(0xf0, 0x100 | 0xef), 0);
	CHECK_EQ(vmi.apic_read(0xf0) & 0x1ff, 0x1ef);
	CHECK_RESULT(vmi.apic_write(0xf0, old), 0);
	CHECK_EQ(vmi.apic_read(0xf0), old);
}

static void leave_in_service(struct regs *regs)
{
	(void)regs;
}

TEST(apic_eoi, "apic.eoi.ends_one", 1, 0, APIC_EOI)
{
	u64 before = irq_count(0, VECTOR_A);

	set_raw_handler(VECTOR_A, leave_in_service);
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	irq_enable();
	asm volatile("nop");
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
	/* It is in service: the next one stays pending although interrupts are on. */
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
	vmi.apic_eoi();
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_A), before + 2);
	vmi.apic_eoi();
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_A), before + 2);
	irq_disable();
}

TEST(ipi_errors, "apic.send_ipi.errors", 1, 0, APIC_SEND_IPI)
{
	static const u32 modes[] = { 1, 2, 3, 7 };
	u64 to = (u64)machine.apic_ids[0] << 32, before = irq_count(0, VECTOR_A);
	u32 i;
	int result;

	for (i = 0; i < ARRAY_SIZE(modes); i++)
		CHECK_RESULT(vmi.apic_send_ipi(to | modes[i] << 8 | VECTOR_A),
			     -VMI_EINVAL);
	CHECK_RESULT(vmi.apic_send_ipi(to | 1u << 11 | VECTOR_A), -VMI_EINVAL);
	for (i = 0; i < 16; i++)
		CHECK_RESULT(vmi.apic_send_ipi(to | i), -VMI_EINVAL);
	/* The call may know that there is no such vCPU, or send to it without an answer. */
	result = vmi.apic_send_ipi(0xeeull << 32 | VECTOR_A);
	CHECK(result == 0 || result == -VMI_ENOENT);
	result = vmi.apic_send_ipi(0x12345ull << 32 | VECTOR_A);
	CHECK(result == 0 || result == -VMI_ENOENT);
	irq_enable();
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_A), before);
}

static void send_all_vectors(u32 vcpu)
{
	u32 vector;

	for (vector = VMI_VECTOR_MIN; vector < VECTOR_SPURIOUS; vector++) {
		u64 before = irq_count(vcpu, vector);

		if (vector == VECTOR_USER_GATE || vector == VECTOR_WORK)
			continue;
		CHECK_RESULT(send_ipi(vcpu, vector), 0);
		WAIT_UNTIL(irq_count(vcpu, vector) == before + 1);
	}
}

TEST(ipi_self_vectors, "apic.send_ipi.every_vector", 1, 0, APIC_SEND_IPI)
{
	irq_enable();
	send_all_vectors(0);
}

TEST(ipi_other_vectors, "apic.send_ipi.every_vector_remote", 2, 0, APIC_SEND_IPI)
{
	u32 i;

	for (i = 1; i < MIN(machine.vcpus_online, 4); i++)
		send_all_vectors(i);
}

TEST(ipi_shorthands, "apic.send_ipi.shorthands", 1, 0, APIC_SEND_IPI)
{
	static const struct {
		u64 icr;
		bool self, others;
	} shorthands[] = {
		{ ICR_SELF, true, false },
		{ ICR_ALL, true, true },
		{ ICR_OTHERS, false, true },
	};
	u64 before[MAX_VCPUS];
	u32 i, n;

	irq_enable();
	for (n = 0; n < ARRAY_SIZE(shorthands); n++) {
		for (i = 0; i < machine.vcpus_online; i++)
			before[i] = irq_count(i, VECTOR_A);
		CHECK_RESULT(vmi.apic_send_ipi(shorthands[n].icr | VECTOR_A), 0);
		for (i = 0; i < machine.vcpus_online; i++)
			if (i ? shorthands[n].others : shorthands[n].self)
				WAIT_UNTIL(irq_count(i, VECTOR_A) > before[i]);
		delay_ns(QUIET);
		for (i = 0; i < machine.vcpus_online; i++) {
			bool wanted = i ? shorthands[n].others : shorthands[n].self;

			CHECK_EQ(irq_count(i, VECTOR_A), before[i] + wanted);
		}
	}
}

static void nmi(struct regs *regs)
{
	(void)regs;
}

/* An NMI arrives whatever the interrupt flag and the priority are. */
TEST(ipi_nmi, "apic.send_ipi.nmi", 1, 0, APIC_SEND_IPI)
{
	u64 before = irq_count(0, VECTOR_NMI);

	set_irq_handler(VECTOR_NMI, nmi);
	irq_disable();
	set_cr8(15);
	CHECK_RESULT(send_icr(0, ICR_NMI), 0);
	WAIT_UNTIL(irq_count(0, VECTOR_NMI) == before + 1);
	CHECK(!irqs_enabled());
	set_cr8(0);
	CHECK_RESULT(send_icr(0, ICR_NMI), 0);
	WAIT_UNTIL(irq_count(0, VECTOR_NMI) == before + 2);
}

static u32 spin_ready, spin_end;

static void spin_masked(void *argument)
{
	(void)argument;
	irq_disable();
	atomic_store(&spin_ready, 1);
	WAIT_UNTIL(READ_ONCE(spin_end));
}

TEST(ipi_nmi_remote, "apic.send_ipi.nmi_remote", 2, 0, APIC_SEND_IPI)
{
	u64 before = irq_count(1, VECTOR_NMI), fixed = irq_count(1, VECTOR_A);

	set_irq_handler(VECTOR_NMI, nmi);
	spin_ready = spin_end = 0;
	run_on(1, spin_masked, NULL);
	WAIT_UNTIL(READ_ONCE(spin_ready));
	CHECK_RESULT(send_ipi(1, VECTOR_A), 0);
	CHECK_RESULT(send_icr(1, ICR_NMI), 0);
	WAIT_UNTIL(irq_count(1, VECTOR_NMI) == before + 1);
	/* The ordinary interrupt was sent first and still waits for the flag. */
	CHECK_EQ(irq_count(1, VECTOR_A), fixed);
	atomic_store(&spin_end, 1);
	wait_for(1);
	WAIT_UNTIL(irq_count(1, VECTOR_A) == fixed + 1);
}

static u64 message, last_seen, wrong;

static void read_message(struct regs *regs)
{
	u64 seen = READ_ONCE(message);

	(void)regs;
	if (seen <= last_seen)
		wrong++;
	WRITE_ONCE(last_seen, seen);
}

/* A store before the IPI is visible when the IPI arrives. */
TEST(ipi_order, "apic.send_ipi.order", 2, 0, APIC_SEND_IPI)
{
	u64 i;

	message = last_seen = wrong = 0;
	set_irq_handler(VECTOR_A, read_message);
	for (i = 1; i <= 2000; i++) {
		WRITE_ONCE(message, i);
		CHECK_RESULT(send_ipi(1, VECTOR_A), 0);
		WAIT_UNTIL(READ_ONCE(last_seen) == i);
	}
	CHECK_EQ(wrong, 0);
}

static u64 storm_received, storm_sent, storm_end;

static void storm_handler(struct regs *regs)
{
	(void)regs;
	atomic_add(&storm_received, 1);
}

static void storm(void *argument)
{
	u64 rounds = (u64)argument, i;

	irq_enable();
	/* Each round waits until the first vCPU is scheduled. */
	for (i = 0; i < rounds && (i < 10 || now() < storm_end); i++) {
		u64 before = irq_count(0, 0x80 + this_vcpu());

		atomic_add(&storm_sent, 1);
		CHECK_RESULT(send_ipi(0, 0x80 + this_vcpu()), 0);
		WAIT_UNTIL(irq_count(0, 0x80 + this_vcpu()) != before);
	}
	irq_disable();
}

/* All vCPUs interrupt the first, each with a vector of its own: none is lost. */
TEST(ipi_storm, "apic.send_ipi.storm", 2, 0, APIC_SEND_IPI)
{
	u64 rounds = 300;
	u32 i;

	storm_received = storm_sent = 0;
	storm_end = now() + NS_PER_S;
	for (i = 1; i < machine.vcpus_online; i++)
		set_irq_handler(0x80 + i, storm_handler);
	irq_enable();
	run_on_others(machine.vcpus_online, storm, (void *)rounds);
	CHECK_EQ(storm_received, storm_sent);
}
