// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Interrupts of a queue's own: a vector and a vCPU of the driver's choice (docs/vbus.md). */
#include "test.h"
#include "vbus.h"

#define VECTOR_OWN	0x5a
#define VECTOR_OTHER	0x6b
#define QUIET		(NS_PER_MS / 2)
#define VCPUS		2
#define LENGTH		64

static const u32 vectors[] = { VECTOR_BUS, VECTOR_OWN, VECTOR_OTHER };

/* Finds a bus that has the command. */
static u32 find(struct bus *bus)
{
	u32 echo = bus_find(bus, "echo");

	if (!(READ_ONCE(bus->registers->features) & VBUS_FEATURE_INTERRUPT)) {
		bus_end(bus);
		test_skip("the bus has one interrupt");
	}
	return echo;
}

/* Gives a queue a vector of a vCPU, or with vector 0 the line. Returns the status. */
static u32 choose(struct bus_link *link, u32 queue, u32 apic, u32 vector)
{
	struct vbus_command *command = bus_prepare(link->bus, 0, link->connection);

	command->queue = queue;
	command->number = vector;
	command->apic = apic;
	return bus_command(link->bus, VBUS_COMMAND_INTERRUPT);
}

static void must_choose(struct bus_link *link, u32 vcpu, u32 vector)
{
	CHECK_EQ(choose(link, BUS_RX, machine.apic_ids[vcpu], vector), VBUS_DONE);
}

/* Connects, and routes the line to the first vCPU. */
static void connect(struct bus *bus, struct bus_link *link, u32 echo)
{
	bus_connect(bus, link, echo);
	CHECK_RESULT(vmi.line_route(bus->line, machine.apic_ids[0], VECTOR_BUS), 0);
	/* What the device said when the queues were shared. */
	irq_enable();
	delay_ns(QUIET);
	irq_disable();
}

/* A packet comes back. The vCPU gets this vector for it, once, and nothing else comes. */
static void expect(struct bus_link *link, u32 vcpu, u32 vector)
{
	struct vbus_side *side = &link->rx.ioq->signal.sides[VBUS_NORTH];
	u64 before[VCPUS][ARRAY_SIZE(vectors)];
	struct vbus_returned back;
	u8 packet[LENGTH];
	u32 cpu, i;

	for (cpu = 0; cpu < VCPUS && cpu < machine.vcpus_online; cpu++)
		for (i = 0; i < ARRAY_SIZE(vectors); i++)
			before[cpu][i] = irq_count(cpu, vectors[i]);
	vbus_side_look(side);
	CHECK_EQ(vbus_side_rest(side), 0);
	bus_fill(packet, LENGTH, vector + vcpu);
	bus_offer(link, LENGTH);
	irq_enable();
	bus_send(link, packet, LENGTH, 0);
	CHECK(bus_is_filled(bus_await(link, &back), LENGTH, vector + vcpu));
	bus_drain(link);
	delay_ns(QUIET);
	for (i = 0; i < ARRAY_SIZE(vectors); i++)
		if (vectors[i] == vector)
			WAIT_UNTIL(irq_count(vcpu, vector) != before[vcpu][i]);
	irq_disable();
	for (cpu = 0; cpu < VCPUS && cpu < machine.vcpus_online; cpu++)
		for (i = 0; i < ARRAY_SIZE(vectors); i++)
			CHECK_EQ(irq_count(cpu, vectors[i]) - before[cpu][i],
				 cpu == vcpu && vectors[i] == vector);
}

TEST(bus_interrupt_arrives, "bus.interrupt.arrives", 2, 0, LINE_ROUTE, LINE_NOTIFY)
{
	struct bus_link link;
	struct bus bus;
	u32 round;

	connect(&bus, &link, find(&bus));
	expect(&link, 0, VECTOR_BUS);
	must_choose(&link, 1, VECTOR_OWN);
	for (round = 0; round < 10; round++)
		expect(&link, 1, VECTOR_OWN);
	/* The whole range of vectors is the driver's. */
	must_choose(&link, 1, VMI_VECTOR_MIN);
	must_choose(&link, 1, VMI_VECTOR_MAX);
	must_choose(&link, 0, VECTOR_OWN);
	expect(&link, 0, VECTOR_OWN);
	bus_close(&link);
	bus_end(&bus);
}

TEST(bus_interrupt_moves, "bus.interrupt.moves", 2, 0, LINE_ROUTE, LINE_NOTIFY)
{
	struct bus_link link;
	struct bus bus;
	u32 round;

	connect(&bus, &link, find(&bus));
	for (round = 0; round < 10; round++) {
		must_choose(&link, 1, VECTOR_OWN);
		expect(&link, 1, VECTOR_OWN);
		must_choose(&link, 0, VECTOR_OWN);
		expect(&link, 0, VECTOR_OWN);
		must_choose(&link, 0, VECTOR_OTHER);
		expect(&link, 0, VECTOR_OTHER);
	}
	bus_close(&link);
	bus_end(&bus);
}

/* A queue that has given its interrupt up has the line. */
TEST(bus_interrupt_returns, "bus.interrupt.returns", 1, 0, LINE_ROUTE, LINE_NOTIFY)
{
	struct bus_link link;
	struct bus bus;
	u32 round;

	connect(&bus, &link, find(&bus));
	for (round = 0; round < 3; round++) {
		must_choose(&link, 0, VECTOR_OWN);
		expect(&link, 0, VECTOR_OWN);
		/* Whichever APIC it names. */
		CHECK_EQ(choose(&link, BUS_RX, 0xffff, 0), VBUS_DONE);
		expect(&link, 0, VECTOR_BUS);
	}
	bus_close(&link);
	bus_end(&bus);
}

/* A refused command changes nothing. */
TEST(bus_interrupt_refuses, "bus.interrupt.refuses", 1, 0, LINE_ROUTE, LINE_NOTIFY)
{
	struct bus_link link, none;
	struct bus bus;
	u32 here = machine.apic_ids[0];

	connect(&bus, &link, find(&bus));
	must_choose(&link, 0, VECTOR_OWN);
	CHECK_EQ(choose(&link, BUS_RX, here, 1), VBUS_ERROR_INVALID);
	CHECK_EQ(choose(&link, BUS_RX, here, VMI_VECTOR_MIN - 1), VBUS_ERROR_INVALID);
	CHECK_EQ(choose(&link, BUS_RX, here, VMI_VECTOR_MAX + 1), VBUS_ERROR_INVALID);
	CHECK_EQ(choose(&link, BUS_RX, here, 0x100 | VECTOR_OTHER), VBUS_ERROR_INVALID);
	CHECK_EQ(choose(&link, BUS_RX, 0xffff, VECTOR_OTHER), VBUS_ERROR_INVALID);
	CHECK_EQ(choose(&link, BUS_RX, 0xffffffff, VECTOR_OTHER), VBUS_ERROR_INVALID);
	CHECK_EQ(choose(&link, 2, here, VECTOR_OTHER), VBUS_ERROR_NOT_FOUND);
	CHECK_EQ(choose(&link, 0xffffffff, here, VECTOR_OTHER), VBUS_ERROR_NOT_FOUND);
	none = link;
	none.connection = link.connection + 1;
	CHECK_EQ(choose(&none, BUS_RX, here, VECTOR_OTHER), VBUS_ERROR_NOT_FOUND);
	none.connection = 0xffffffff;
	CHECK_EQ(choose(&none, BUS_RX, here, VECTOR_OTHER), VBUS_ERROR_NOT_FOUND);
	expect(&link, 0, VECTOR_OWN);
	bus_close(&link);
	/* A queue that is not shared is not found. */
	bus_open(&bus, &link, bus_next(&bus, 0, "echo"));
	CHECK_EQ(choose(&link, BUS_RX, here, VECTOR_OWN), VBUS_ERROR_NOT_FOUND);
	bus_close(&link);
	CHECK_EQ(choose(&link, BUS_RX, here, VECTOR_OWN), VBUS_ERROR_NOT_FOUND);
	bus_end(&bus);
}

/* No connection gets another one's interrupts. */
TEST(bus_interrupt_apart, "bus.interrupt.apart", 1, 0, LINE_ROUTE, LINE_NOTIFY)
{
	struct bus_link first, second;
	struct bus bus;
	u32 round, echo = find(&bus);

	connect(&bus, &first, echo);
	connect(&bus, &second, echo);
	must_choose(&first, 0, VECTOR_OWN);
	expect(&second, 0, VECTOR_BUS);
	expect(&first, 0, VECTOR_OWN);
	must_choose(&second, 0, VECTOR_OTHER);
	for (round = 0; round < 5; round++) {
		expect(&first, 0, VECTOR_OWN);
		expect(&second, 0, VECTOR_OTHER);
	}
	/* The other queue of a connection has one of its own, too. */
	CHECK_EQ(choose(&first, BUS_TX, machine.apic_ids[0], VECTOR_OTHER), VBUS_DONE);
	expect(&first, 0, VECTOR_OWN);
	bus_close(&first);
	bus_close(&second);
	bus_end(&bus);
}

/* A connection begins with the line, whatever the one before it had. */
TEST(bus_interrupt_resets, "bus.interrupt.resets", 1, 0, LINE_ROUTE, LINE_NOTIFY)
{
	struct bus_link link;
	struct bus bus;
	u32 number, echo = find(&bus);

	connect(&bus, &link, echo);
	number = link.connection;
	must_choose(&link, 0, VECTOR_OWN);
	bus_close(&link);
	connect(&bus, &link, echo);
	CHECK_EQ(link.connection, number);
	expect(&link, 0, VECTOR_BUS);
	must_choose(&link, 0, VECTOR_OWN);
	expect(&link, 0, VECTOR_OWN);
	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_START), VBUS_DONE);
	bus_free(&link);
	connect(&bus, &link, echo);
	CHECK_EQ(link.connection, number);
	expect(&link, 0, VECTOR_BUS);
	bus_close(&link);
	bus_end(&bus);
}
