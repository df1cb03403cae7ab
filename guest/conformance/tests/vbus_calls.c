// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Section bus. The other tests of virtual buses also use it if the layer has it; these tests are
 * about its own behaviour. Errors need no bridge.
 */
#include "device.h"
#include "harness.h"
#include "test.h"
#include "vbus.h"

/* Bridges of a machine: a list has an end. */
#define BRIDGES		64
/* Where no memory is. */
#define NOWHERE		(0ull - 64 * 1024)

TEST(bus_finds, "bus.find.lists", 1, 0, BUS_FIND)
{
	struct bus bus;
	u64 last = 0;
	u32 count, i;

	for (count = 0; bus_show(&bus, count); count++) {
		CHECK_OP(count, <, BRIDGES);
		CHECK_EQ(bus.gpa % PAGE_SIZE, 0);
		CHECK_OP(bus.gpa, >, last);
		last = bus.gpa;
		CHECK_EQ(READ_ONCE(bus.registers->magic), VBUS_BRIDGE_MAGIC);
		CHECK_EQ(READ_ONCE(bus.registers->version), VBUS_BRIDGE_VERSION);
		/* They stay where they are. */
		CHECK_EQ(vmi.bus_find(count), last);
	}
	for (i = 0; i < 3; i++)
		CHECK_RESULT(vmi.bus_find(count + i), -VMI_ENOENT);
	CHECK_RESULT(vmi.bus_find(0x7fffffff), -VMI_ENOENT);
	CHECK_RESULT(vmi.bus_find(0xffffffff), -VMI_ENOENT);
	device_hide();
}

/* What is not the address of a bridge's registers. */
static void check_no_bridge(u64 gpa, u64 command)
{
	CHECK_RESULT(vmi.bus_command(gpa, command), -VMI_ENOENT);
	CHECK_RESULT(vmi.bus_command(gpa, NOWHERE), -VMI_ENOENT);
	CHECK_RESULT(vmi.bus_command(gpa, command + 4), -VMI_EINVAL);
	CHECK_RESULT(vmi.bus_notify(gpa, 0), -VMI_ENOENT);
}

TEST(bus_call_errors, "bus.command.errors", 1, 0, BUS_COMMAND, BUS_NOTIFY)
{
	static const u32 misplaced[] = { 1, 2, 4, 8, 32, 63 };
	u64 page = alloc_page();
	struct vbus_command *command = to_linear(page), before;
	struct bus bus;
	u32 i, k;

	command->command = VBUS_COMMAND_START;
	command->status = 0xffffffff;
	before = *command;
	check_no_bridge(0, page);
	check_no_bridge(page, page);
	check_no_bridge(~0ull, page);
	check_no_bridge(1ull << 63, page);
	for (i = 0; i < machine.info.device_count; i++)
		if (device_at(i)->kind != VMI_DEVICE_VBUS)
			check_no_bridge(device_at(i)->gpa, page);
	for (i = 0; bus_show(&bus, i); i++) {
		check_no_bridge(bus.gpa + 4, page);
		check_no_bridge(bus.gpa + VMI_BUS_COMMAND_ALIGN, page);
		check_no_bridge(bus.gpa | 1ull << 63, page);
		for (k = 0; k < ARRAY_SIZE(misplaced); k++)
			CHECK_RESULT(bus_command_at(&bus, page + misplaced[k]), -VMI_EINVAL);
		CHECK_RESULT(bus_command_at(&bus, NOWHERE), -VMI_EFAULT);
		CHECK_RESULT(bus_command_at(&bus, 0ull - VMI_BUS_COMMAND_ALIGN), -VMI_EFAULT);
		CHECK_RESULT(bus_command_at(&bus, 1ull << 63), -VMI_EFAULT);
		/* Registers are no memory for commands. */
		CHECK_RESULT(bus_command_at(&bus, bus.gpa), -VMI_EFAULT);
	}
	/* None of this was a command. */
	CHECK(!memcmp(command, &before, sizeof(before)));
	device_hide();
	free_page(page);
}

/* The result is the status that memory has, which bus_command() compares. */
TEST(bus_call_status, "bus.command.status", 1, 0, BUS_COMMAND)
{
	struct bus_link link;
	struct bus bus;
	u32 echo = bus_find(&bus, "echo");

	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, 0x77), VBUS_ERROR_NOT_FOUND);
	bus_prepare(&bus, echo, 0)->number = 1;
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_OPEN), VBUS_DONE);
	link = (struct bus_link){ .bus = &bus, .connection = bus.command->connection };
	CHECK_EQ(bus_call(&link, 0, VBUS_BRIDGE_DATA + 1), VBUS_ERROR_LIMIT);
	bus_prepare(&bus, 0, link.connection);
	bus.command->number = BUS_COUNT;
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_SHARE), VBUS_ERROR_BROKEN);
	bus_prepare(&bus, 0, link.connection);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_CLOSE), VBUS_DONE);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_CLOSE), VBUS_ERROR_NOT_FOUND);
	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_EVENT), VBUS_DONE);
	CHECK_EQ(bus.command->number, VBUS_EVENT_NONE);
	bus_end(&bus);
}

/* A driver without the calls, and one that changes from one way to the other with each command. */
static void either_way(u64 changing)
{
	struct bus_link first, second;
	struct bus bus;
	u32 round, echo = bus_find(&bus, "echo");

	bus.stores = true;
	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_START), VBUS_DONE);
	bus_open(&bus, &first, echo);
	bus.stores ^= changing;
	CHECK_EQ(bus_share(&first, BUS_RX, 0), VBUS_DONE);
	bus.stores ^= changing;
	CHECK_EQ(bus_share(&first, BUS_TX, 0), VBUS_DONE);
	bus.stores ^= changing;
	bus_connect(&bus, &second, echo);
	CHECK_NE(first.connection, second.connection);
	for (round = 0; round < 20; round++) {
		bus.stores ^= changing;
		bus_exchange(&first, 64 + round, round);
		bus_exchange(&second, 65 + round, 100 + round);
	}
	bus.stores ^= changing;
	bus_close(&first);
	bus.stores ^= changing;
	bus_close(&second);
	bus_end(&bus);
}

TEST_OF(bus_by_stores, "bus.command.by_stores", either_way, 0, 1, 0, BUS_COMMAND);
TEST_OF(bus_either_way, "bus.command.either_way", either_way, 1, 1, 0, BUS_COMMAND, BUS_NOTIFY);

TEST(bus_notify_errors, "bus.notify.errors", 1, 0, BUS_NOTIFY)
{
	u64 page = alloc_page();
	struct bus bus;
	u32 i;

	CHECK_RESULT(vmi.bus_notify(0, 0), -VMI_ENOENT);
	CHECK_RESULT(vmi.bus_notify(page, 0), -VMI_ENOENT);
	CHECK_RESULT(vmi.bus_notify(~0ull, 0), -VMI_ENOENT);
	for (i = 0; bus_show(&bus, i); i++) {
		CHECK_RESULT(vmi.bus_notify(bus.gpa + 8, 0), -VMI_ENOENT);
		/* No connection has such a number, or there is none. */
		CHECK_RESULT(vmi.bus_notify(bus.gpa, 0), 0);
		CHECK_RESULT(vmi.bus_notify(bus.gpa, VBUS_BRIDGE_CONNECTIONS), 0);
		CHECK_RESULT(vmi.bus_notify(bus.gpa, 31), 0);
		CHECK_RESULT(vmi.bus_notify(bus.gpa, 32), 0);
		CHECK_RESULT(vmi.bus_notify(bus.gpa, 0xffffffff), 0);
	}
	device_hide();
	free_page(page);
}

/* Each connection is notified by its own number. */
TEST(bus_notify_echo, "bus.notify.echo", 1, 0, BUS_NOTIFY)
{
	static struct bus_link links[3];
	struct bus bus;
	u32 i, round, echo = bus_find(&bus, "echo");

	for (i = 0; i < ARRAY_SIZE(links); i++)
		bus_connect(&bus, &links[i], echo);
	for (round = 0; round < 20; round++)
		for (i = ARRAY_SIZE(links); i-- > 0;)
			bus_exchange(&links[i], 64 + i, round * 100 + i);
	for (i = 0; i < ARRAY_SIZE(links); i++)
		bus_close(&links[i]);
	bus_end(&bus);
}

struct share {
	const struct bus *bus;
	struct vbus_command *command;	/* of its own */
	u32 interface;
};

/* Opens and closes connections by commands of this vCPU's own. */
static void open_and_close(void *argument)
{
	const struct share *share = argument;
	struct vbus_command *command = share->command;
	u64 gpa = to_gpa(command);
	u32 round;

	for (round = 0; round < 200; round++) {
		memset(command, 0, sizeof(*command));
		command->command = VBUS_COMMAND_OPEN;
		command->interface = share->interface;
		command->number = 1;
		CHECK_RESULT(vmi.bus_command(share->bus->gpa, gpa), VBUS_DONE);
		command->command = VBUS_COMMAND_CLOSE;
		CHECK_RESULT(vmi.bus_command(share->bus->gpa, gpa), VBUS_DONE);
	}
}

/* Both vCPUs have commands under way for the same bridge, with interrupts off and on. */
TEST(bus_call_vcpus, "bus.command.two_vcpus", 2, 0, BUS_COMMAND)
{
	static struct share shares[2];
	u64 page = alloc_page();
	struct bus bus;
	u32 i, echo = bus_find(&bus, "echo");

	for (i = 0; i < 2; i++)
		shares[i] = (struct share){
			.bus = &bus,
			.command = (struct vbus_command *)to_linear(page) + i,
			.interface = echo,
		};
	run_on(1, open_and_close, &shares[1]);
	irq_enable();
	open_and_close(&shares[0]);
	irq_disable();
	wait_for(1);
	bus_end(&bus);
	free_page(page);
}

/* Guest memory that commands may name, and memory that they never do. */
static u64 some_data(u64 *seed, const struct bus *bus)
{
	switch (random64(seed) >> 20 & 7) {
	case 0:
		return random64(seed) | 1ull << 62;
	case 1:
		return 0ull - (random64(seed) >> 40 & 0xffff);
	case 2:
		return bus->gpa + (random64(seed) >> 30 & 0xff8);
	default:
		return to_gpa(bus->data) + (random64(seed) >> 30 & 0x3f8);
	}
}

/* Any command at any address ends, with a result that is defined, and writes where it may. */
TEST(bus_call_random, "bus.command.random", 1, 0, BUS_COMMAND)
{
	static const u32 numbers[] = { 0, 1, 2, 7, 8, 15, 16, 31, 32, 64, 255, 0x8000, 0xffffffff };
	u64 seed = 0x9e3779b97f4a7c15ull, canary = alloc_page(), at;
	u8 *guard = to_linear(canary);
	struct bus_link link;
	struct bus bus;
	u32 i, round;
	int result;

	bus_find(&bus, "echo");
	for (i = 0; i < PAGE_SIZE; i++)
		guard[i] = (u8)(i * 5 + 1);
	for (round = 0; round < 500; round++) {
		u32 *words = (u32 *)bus.command;

		for (i = 0; i < sizeof(*bus.command) / sizeof(u32); i++)
			words[i] = random64(&seed) & 0x100000 ? (u32)(random64(&seed) >> 24) :
				   numbers[(random64(&seed) >> 24) % ARRAY_SIZE(numbers)];
		bus.command->command = (u32)(random64(&seed) >> 24) % 10;
		bus.command->data = some_data(&seed, &bus);
		at = to_gpa(bus.command);
		switch (random64(&seed) >> 24 & 15) {
		case 0:
			at = random64(&seed) | 1ull << 62;
			break;
		case 1:
			at += random64(&seed) >> 24 & 63;
			break;
		}
		result = bus_command_at(&bus, at);
		if (at % VMI_BUS_COMMAND_ALIGN)
			CHECK_RESULT(result, -VMI_EINVAL);
		else if (at != to_gpa(bus.command))
			CHECK_RESULT(result, -VMI_EFAULT);
		else
			CHECK_RESULT(result, READ_ONCE(bus.command->status));
		CHECK_OP((u32)(result < 0 ? 0 : result), <=, VBUS_ERROR_HOST);
		vmi.bus_notify(bus.gpa, (u32)(random64(&seed) >> 24));
	}
	for (i = 0; i < PAGE_SIZE; i++)
		CHECK_EQ(guard[i], (u8)(i * 5 + 1));
	/* Another driver can begin. */
	bus_prepare(&bus, 0, 0);
	CHECK_EQ(bus_command(&bus, VBUS_COMMAND_START), VBUS_DONE);
	bus_connect(&bus, &link, bus_next(&bus, 0, "echo"));
	bus_exchange(&link, 500, 1);
	bus_close(&link);
	bus_end(&bus);
	free_page(canary);
}
