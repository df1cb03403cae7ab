// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The bridge to a virtual bus: its commands, connections and notifications (docs/vbus.md). */
#include "test.h"
#include "vbus.h"

static u8 packet[BUS_PACKET];

TEST(bus_lists, "bus.interface.lists", 1, 0, LINE_ROUTE)
{
	u32 echo, null, console;
	struct bus bus;

	/* They are on one bus, in any order. */
	echo = bus_find(&bus, "echo");
	null = bus_next(&bus, 0, "null");
	CHECK_NE(null, 0);
	CHECK_NE(null, echo);
	console = bus_next(&bus, 0, "virtual-console");
	CHECK_NE(console, 0);
	CHECK_NE(bus_next(&bus, console, "virtual-console"), 0);
	CHECK_EQ(bus_next(&bus, echo, "echo"), 0);
	CHECK_EQ(bus_next(&bus, 0, "no such type"), 0);
	CHECK_EQ(bus_next(&bus, 0xffffffff, "echo"), 0);
	bus_end(&bus);
}

/* Invalid commands are refused, and change nothing. */
TEST(bus_refuses, "bus.command.refuses", 1, 0, LINE_ROUTE)
{
	struct vbus_command *command;
	struct bus_link link;
	struct bus bus;
	u32 echo = bus_find(&bus, "echo");

	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, 0), VBUS_ERROR_NOT_FOUND);
	CHECK_EQ(bus_command(&bus, 0xffff), VBUS_ERROR_NOT_FOUND);
	command = bus_prepare(&bus, 0xfffffff0, 0);
	command->number = 1;
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_OPEN), VBUS_ERROR_NOT_FOUND);
	command = bus_prepare(&bus, echo, 0);
	command->number = 77;
	CHECK_NE(bus_command(&bus, VBUS_COMMAND_OPEN), VBUS_DONE);
	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_CLOSE), VBUS_ERROR_NOT_FOUND);
	bus_prepare(&bus, 0, 0xffffffff);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_CLOSE), VBUS_ERROR_NOT_FOUND);

	bus_open(&bus, &link, echo);
	CHECK_EQ(bus_call(&link, 0, VBUS_BRIDGE_DATA + 1), VBUS_ERROR_LIMIT);
	CHECK_NE(bus_call(&link, 0, 0), VBUS_DONE);
	command = bus_prepare(&bus, 0, link.connection);
	command->number = BUS_COUNT;
	command->data = ~0ull << 20;
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_SHARE), VBUS_ERROR_INVALID);
	/* A page without an ioq in it. */
	command = bus_prepare(&bus, 0, link.connection);
	command->number = BUS_COUNT;
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_SHARE), VBUS_ERROR_BROKEN);
	CHECK_EQ(bus_share(&link, BUS_TX, 0), VBUS_DONE);
	/* A queue that is shared already, and a queue that no device has. */
	command = bus_prepare(&bus, 0, link.connection);
	command->queue = BUS_TX;
	command->number = BUS_COUNT;
	command->data = to_gpa(link.tx.ioq);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_SHARE), VBUS_ERROR_EXISTS);
	command->queue = 0xffff;
	CHECK_NE(bus_command(&bus, VBUS_COMMAND_SHARE), VBUS_DONE);
	/* A command that lies outside of memory: it is ignored. */
	WRITE_ONCE(bus.registers->command, ~0ull << 20);
	CHECK_EQ(bus_share(&link, BUS_RX, 0), VBUS_DONE);
	bus_exchange(&link, 100, 1);
	bus_close(&link);
	bus_end(&bus);
}

/* Packets of any length, and each comes back as it was, also where indices wrap around. */
TEST(bus_echo, "bus.echo.returns", 1, 0, LINE_NOTIFY)
{
	static const u32 starts[] = { 0, 0xfffffffc };
	struct bus_link link;
	struct bus bus;
	u32 echo = bus_find(&bus, "echo");
	u32 i, round;

	for (i = 0; i < ARRAY_SIZE(starts); i++) {
		bus_open(&bus, &link, echo);
		CHECK_EQ(bus_share(&link, BUS_RX, starts[i]), VBUS_DONE);
		CHECK_EQ(bus_share(&link, BUS_TX, starts[i]), VBUS_DONE);
		for (round = 0; round < 3 * BUS_COUNT; round++)
			bus_exchange(&link, round ? round * 157 % BUS_PACKET : BUS_PACKET, round);
		bus_close(&link);
	}
	bus_end(&bus);
}

/* The null device takes more packets than its queue has room for. */
TEST(bus_null, "bus.null.takes", 1, 0, LINE_NOTIFY)
{
	struct bus_link link;
	struct bus bus;
	u32 round;

	bus_connect(&bus, &link, bus_find(&bus, "null"));
	for (round = 0; round < 50 * BUS_COUNT; round++)
		bus_send(&link, packet, round % BUS_PACKET, 0);
	bus_drain(&link);
	bus_close(&link);
	bus_end(&bus);
}

/* Each connection has packets of its own, and is notified by its own number. */
TEST(bus_connections, "bus.open.connections", 1, 0, LINE_NOTIFY)
{
	static struct bus_link links[VBUS_BRIDGE_CONNECTIONS];
	struct vbus_command *command;
	struct bus bus;
	u32 echo = bus_find(&bus, "echo");
	u32 i, round, seen = 0;

	for (i = 0; i < VBUS_BRIDGE_CONNECTIONS; i++) {
		bus_connect(&bus, &links[i], echo);
		CHECK(!(seen >> links[i].connection & 1));
		seen |= 1u << links[i].connection;
	}
	command = bus_prepare(&bus, echo, 0);
	command->number = 1;
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_OPEN), VBUS_ERROR_LIMIT);
	for (round = 0; round < 3; round++)
		for (i = VBUS_BRIDGE_CONNECTIONS; i-- > 0;)
			bus_exchange(&links[i], 64 + i, round * 100 + i);
	/* A number that was closed is free again. */
	bus_close(&links[5]);
	bus_connect(&bus, &links[5], echo);
	for (i = 0; i < VBUS_BRIDGE_CONNECTIONS; i++) {
		bus_exchange(&links[i], 64 + i, 1000 + i);
		bus_close(&links[i]);
	}
	bus_end(&bus);
}

/* A guest that waits is interrupted, and one that looks by itself is not. */
TEST(bus_interrupts, "bus.signal.interrupts", 1, 0, LINE_ROUTE, LINE_NOTIFY)
{
	struct vbus_returned back;
	struct vbus_side *side;
	struct bus_link link;
	struct bus bus;
	u32 round;
	u64 before;

	bus_connect(&bus, &link, bus_find(&bus, "echo"));
	side = &link.rx.ioq->signal.sides[VBUS_NORTH];
	CHECK_RESULT(vmi.line_route(bus.line, machine.apic_ids[0], VECTOR_BUS), 0);
	/* What the device said when the queues were shared. */
	irq_enable();
	bus_exchange(&link, 64, 0);
	irq_disable();
	for (round = 1; round <= 20; round++) {
		before = irq_count(0, VECTOR_BUS);
		vbus_side_look(side);
		CHECK_EQ(vbus_side_rest(side), 0);
		bus_fill(packet, 64, round);
		bus_offer(&link, 64);
		bus_send(&link, packet, 64, 0);
		while (irq_count(0, VECTOR_BUS) == before) {
			if (round & 1)
				vmi.cpu_halt();
			else
				irq_enable();
			watch("the interrupt");
			irq_disable();
		}
		CHECK(READ_ONCE(side->pending));
		CHECK(bus_is_filled(bus_await(&link, &back), 64, round));
		bus_drain(&link);
	}
	vbus_side_disable(side);
	before = irq_count(0, VECTOR_BUS);
	irq_enable();
	for (round = 0; round < 200; round++)
		bus_exchange(&link, 64, round);
	irq_disable();
	CHECK_EQ(irq_count(0, VECTOR_BUS), before);
	bus_close(&link);
	bus_end(&bus);
}

/* A breach ends its connection and no other. */
TEST(bus_breach, "bus.event.closed", 1, 0, LINE_ROUTE)
{
	struct bus_link broken, sound;
	struct vbus_descriptor *first;
	struct bus bus;
	u32 echo = bus_find(&bus, "echo");
	u64 before = irq_count(0, VECTOR_BUS);
	u32 events;

	bus_connect(&bus, &broken, echo);
	bus_connect(&bus, &sound, echo);
	events = READ_ONCE(bus.registers->events);
	CHECK_RESULT(vmi.line_route(bus.line, machine.apic_ids[0], VECTOR_BUS), 0);
	bus_exchange(&broken, 64, 1);
	first = (struct vbus_descriptor *)(broken.tx.ioq + 1) + 1;
	bus_offer(&broken, 64);
	WRITE_ONCE(broken.tx.ioq->inuse_tail, 2);
	WRITE_ONCE(broken.tx.ioq->valid_tail, 2);
	atomic_store(&first->owner, 7);
	bus_kick(&broken, &broken.tx);
	irq_enable();
	WAIT_UNTIL(READ_ONCE(bus.registers->events) != events);
	WAIT_UNTIL(irq_count(0, VECTOR_BUS) != before);
	irq_disable();
	CHECK_EQ(bus_event(&bus), VBUS_EVENT_CLOSED);
	CHECK_EQ(bus.command->connection, broken.connection);
	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_EVENT), VBUS_DONE);
	CHECK_EQ(bus.command->number, VBUS_EVENT_NONE);
	bus_exchange(&sound, 64, 2);
	CHECK_NE(bus_call(&broken, 0, 0), VBUS_DONE);
	bus_close(&broken);
	bus_connect(&bus, &broken, echo);
	bus_exchange(&broken, 64, 3);
	bus_close(&broken);
	bus_close(&sound);
	bus_end(&bus);
}

/* A driver that begins ends all connections of the one before it. */
TEST(bus_begins, "bus.start.ends", 1, 0, LINE_NOTIFY)
{
	struct bus_link first, second;
	struct bus bus;
	u32 echo = bus_find(&bus, "echo");

	bus_connect(&bus, &first, echo);
	bus_exchange(&first, 64, 1);
	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_START), VBUS_DONE);
	bus_prepare(&bus, 0, first.connection);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_CLOSE), VBUS_ERROR_NOT_FOUND);
	bus_free(&first);
	bus_connect(&bus, &second, echo);
	CHECK_EQ(second.connection, first.connection);
	bus_exchange(&second, 64, 2);
	bus_close(&second);
	bus_end(&bus);
}

static void work_on_link(void *argument)
{
	struct bus_link *link = argument;
	struct vbus_returned back;
	u32 round;

	for (round = 0; round < 50; round++) {
		u8 own[64];

		bus_fill(own, sizeof(own), round + link->connection);
		bus_offer(link, sizeof(own));
		bus_send(link, own, sizeof(own), 0);
		CHECK(bus_is_filled(bus_await(link, &back), sizeof(own),
				    round + link->connection));
		bus_drain(link);
	}
}

/* Two vCPUs work on connections of their own at the same time. */
TEST(bus_vcpus, "bus.echo.two_vcpus", 2, 0, LINE_NOTIFY)
{
	static struct bus_link links[2];
	struct bus bus;
	u32 echo = bus_find(&bus, "echo");

	bus_connect(&bus, &links[0], echo);
	bus_connect(&bus, &links[1], echo);
	run_on(1, work_on_link, &links[1]);
	work_on_link(&links[0]);
	wait_for(1);
	bus_close(&links[0]);
	bus_close(&links[1]);
	bus_end(&bus);
}
