// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "vbus.h"
#include "device.h"
#include "test.h"

/* A list of interfaces has an end. */
#define INTERFACES	64
/* Where a command's data lies in its page. */
#define DATA		2048

_Static_assert(sizeof(struct vbus_command) <= DATA, "command");
_Static_assert(DATA + VBUS_BRIDGE_DATA <= PAGE_SIZE, "data");
_Static_assert(sizeof(struct vbus_ioq) + BUS_COUNT * sizeof(struct vbus_descriptor) <= PAGE_SIZE,
	       "queue");

struct vbus_command *bus_prepare(struct bus *bus, u32 interface, u32 connection)
{
	struct vbus_command *command = bus->command;

	memset(command, 0, sizeof(*command));
	command->interface = interface;
	command->connection = connection;
	command->data = to_gpa(bus->data);
	return command;
}

static bool have_calls(const struct bus *bus)
{
	return layer_offers_section(VMI_SECTION_BUS) && !bus->stores;
}

int bus_command_at(struct bus *bus, u64 gpa)
{
	return vmi.bus_command(bus->gpa, gpa);
}

u32 bus_command(struct bus *bus, u32 command)
{
	bus->command->command = command;
	bus->command->status = 0xffffffff;
	barrier();
	if (have_calls(bus)) {
		int status = bus_command_at(bus, to_gpa(bus->command));

		CHECK_RESULT(status, READ_ONCE(bus->command->status));
	} else {
		WRITE_ONCE(bus->registers->command, to_gpa(bus->command));
	}
	return READ_ONCE(bus->command->status);
}

u32 bus_next(struct bus *bus, u32 after, const char *type)
{
	struct vbus_command *command;
	u32 i, length = (u32)strlen(type);

	for (i = 0; i < INTERFACES; i++) {
		command = bus_prepare(bus, after, 0);
		if (bus_command(bus, VBUS_COMMAND_INTERFACE) == VBUS_ERROR_NOT_FOUND)
			return 0;
		CHECK_EQ(command->status, VBUS_DONE);
		CHECK_OP(command->interface, >, after);
		CHECK_OP(command->length, <=, VBUS_BRIDGE_DATA);
		after = command->interface;
		if (command->length == length && !memcmp(bus->data, type, length))
			return after;
	}
	FAIL("a list of interfaces has no end");
}

/* The bridge with this number in the table of devices; NULL: there is none. */
static const struct vmi_device *listed(u32 number)
{
	u32 i;

	for (i = 0; i < machine.info.device_count; i++)
		if (device_at(i)->kind == VMI_DEVICE_VBUS && !number--)
			return device_at(i);
	return NULL;
}

/* A machine with calls need not have the table. */
bool bus_show(struct bus *bus, u32 number)
{
	const struct vmi_device *device = listed(number);
	struct vmi_device found = { .line = BUS_NO_LINE };

	if (device)
		found = *device;
	if (layer_offers_section(VMI_SECTION_BUS)) {
		s64 gpa = vmi.bus_find(number);

		if (gpa == -VMI_ENOENT && !device)
			return false;
		CHECK(gpa > 0);
		if (device)
			CHECK_EQ(gpa, device->gpa);
		found.gpa = (u64)gpa;
	} else if (!device) {
		return false;
	}
	bus->line = found.line;
	bus->gpa = found.gpa;
	bus->registers = (void *)device_registers();
	device_show(&found);
	return true;
}

u32 bus_find(struct bus *bus, const char *type)
{
	u32 number = 0;

	return bus_find_from(bus, &number, type);
}

u32 bus_find_from(struct bus *bus, u32 *number, const char *type)
{
	u32 interface;

	bus->stores = false;
	bus->command = to_linear(alloc_page());
	bus->data = (u8 *)bus->command + DATA;
	for (; bus_show(bus, *number); ++*number) {
		CHECK_EQ(READ_ONCE(bus->registers->magic), VBUS_BRIDGE_MAGIC);
		CHECK_EQ(READ_ONCE(bus->registers->version), VBUS_BRIDGE_VERSION);
		bus_prepare(bus, 0, 0);
		CHECK_EQ(bus_command(bus, VBUS_COMMAND_START), VBUS_DONE);
		interface = bus_next(bus, 0, type);
		if (interface)
			return interface;
	}
	free_page(to_gpa(bus->command));
	device_hide();
	test_skip("there is no device of type %s", type);
}

void bus_end(struct bus *bus)
{
	if (bus->line != BUS_NO_LINE)
		CHECK_RESULT(vmi.line_route(bus->line, 0, 0), 0);
	bus_prepare(bus, 0, 0);
	CHECK_EQ(bus_command(bus, VBUS_COMMAND_START), VBUS_DONE);
	free_page(to_gpa(bus->command));
	device_hide();
}

void bus_open(struct bus *bus, struct bus_link *link, u32 interface)
{
	struct vbus_command *command = bus_prepare(bus, interface, 0);

	command->number = 1;
	CHECK_EQ(bus_command(bus, VBUS_COMMAND_OPEN), VBUS_DONE);
	CHECK_OP(command->connection, <, VBUS_BRIDGE_CONNECTIONS);
	memset(link, 0, sizeof(*link));
	link->bus = bus;
	link->connection = command->connection;
}

u32 bus_share(struct bus_link *link, u32 queue, u32 start)
{
	return bus_share_as(link, queue, queue, start);
}

u32 bus_share_as(struct bus_link *link, u32 queue, u32 number, u32 start)
{
	struct bus_queue *q = queue == BUS_RX ? &link->rx : &link->tx;
	u32 role = queue == BUS_RX ? VBUS_ROLE_RECEIVE : VBUS_ROLE_TRANSMIT;
	struct vbus_command *command;
	u32 i;

	q->ioq = to_linear(alloc_page());
	CHECK_RESULT(vbus_north_begin(&q->north, q->ioq, PAGE_SIZE, BUS_COUNT, role, q->posted,
				      start), 0);
	for (i = 0; i < BUS_COUNT; i++)
		q->buffers[i] = to_linear(alloc_page());
	command = bus_prepare(link->bus, 0, link->connection);
	command->queue = number;
	command->number = BUS_COUNT;
	command->data = to_gpa(q->ioq);
	return bus_command(link->bus, VBUS_COMMAND_SHARE);
}

void bus_connect(struct bus *bus, struct bus_link *link, u32 interface)
{
	bus_open(bus, link, interface);
	CHECK_EQ(bus_share(link, BUS_RX, 0), VBUS_DONE);
	CHECK_EQ(bus_share(link, BUS_TX, 0), VBUS_DONE);
}

static void free_queue(struct bus_queue *queue)
{
	u32 i;

	if (!queue->ioq)
		return;
	free_page(to_gpa(queue->ioq));
	for (i = 0; i < BUS_COUNT; i++)
		free_page(to_gpa(queue->buffers[i]));
}

void bus_free(struct bus_link *link)
{
	free_queue(&link->rx);
	free_queue(&link->tx);
}

void bus_close(struct bus_link *link)
{
	bus_prepare(link->bus, 0, link->connection);
	CHECK_EQ(bus_command(link->bus, VBUS_COMMAND_CLOSE), VBUS_DONE);
	bus_free(link);
}

u32 bus_event(struct bus *bus)
{
	u32 event;

	for (;;) {
		bus_prepare(bus, 0, 0xffffffff);
		CHECK_EQ(bus_command(bus, VBUS_COMMAND_EVENT), VBUS_DONE);
		event = READ_ONCE(bus->command->number);
		if (event != VBUS_EVENT_NONE)
			return event;
		watch("an event");
	}
}

u32 bus_call(struct bus_link *link, u32 call, u32 length)
{
	struct vbus_command *command = bus_prepare(link->bus, 0, link->connection);

	command->number = call;
	command->length = length;
	return bus_command(link->bus, VBUS_COMMAND_CALL);
}

bool bus_kick(struct bus_link *link, struct bus_queue *queue)
{
	struct bus *bus = link->bus;

	if (!vbus_side_inject(&queue->ioq->signal.sides[VBUS_SOUTH]))
		return false;
	if (have_calls(bus))
		CHECK_RESULT(vmi.bus_notify(bus->gpa, link->connection), 0);
	else if (bus->line != BUS_NO_LINE && vmi.line_notify && !bus->stores)
		CHECK_RESULT(vmi.line_notify(bus->line, link->connection), 0);
	else
		WRITE_ONCE(bus->registers->notify, link->connection);
	return true;
}

void bus_post(struct bus_queue *queue, u64 gpa, u32 length, u32 flags)
{
	struct vbus_buffer posted = {
		.cookie = queue->next % BUS_COUNT,
		.ptr = gpa,
		.len = length,
		.flags = flags,
	};

	CHECK_RESULT(vbus_north_post(&queue->north, &posted), 0);
	queue->next++;
}

static u8 *next_buffer(struct bus_queue *queue)
{
	return queue->buffers[queue->next % BUS_COUNT];
}

void bus_offer(struct bus_link *link, u32 length)
{
	bus_post(&link->rx, to_gpa(next_buffer(&link->rx)), length, 0);
	bus_kick(link, &link->rx);
}

void bus_send(struct bus_link *link, const void *packet, u32 length, u32 flags)
{
	bus_send_parts(link, packet, &length, 1, flags, 0);
}

void bus_send_parts(struct bus_link *link, const void *packet, const u32 *lengths, u32 count,
		    u32 flags, u32 more)
{
	struct bus_queue *tx = &link->tx;
	const u8 *from = packet;
	u32 i;

	CHECK_OP(count, <=, BUS_COUNT);
	while (tx->north.tail - tx->north.head + count > BUS_COUNT) {
		bus_reclaim(link);
		pause();
		watch("a buffer that was sent");
	}
	for (i = 0; i < count; i++) {
		CHECK_OP(lengths[i], <=, BUS_PACKET);
		memcpy(next_buffer(tx), from, lengths[i]);
		bus_post(tx, to_gpa(next_buffer(tx)), lengths[i],
			 (i ? 0 : flags) | (i + 1 < count ? more : 0));
		from += lengths[i];
	}
	bus_kick(link, tx);
}

u32 bus_reclaim(struct bus_link *link)
{
	struct vbus_returned returned;
	struct bus_queue *tx = &link->tx;
	u32 count = 0, expected;
	int taken;

	for (;;) {
		expected = (tx->next - (tx->north.tail - tx->north.head)) % BUS_COUNT;
		taken = vbus_north_take(&tx->north, &returned);
		if (taken < 0)
			FAIL("the device broke rule %d of a ring", -taken);
		if (!taken)
			return count;
		CHECK_EQ(returned.cookie, expected);
		count++;
	}
}

void bus_drain(struct bus_link *link)
{
	while (link->tx.north.tail != link->tx.north.head) {
		bus_reclaim(link);
		pause();
		watch("what was sent");
	}
}

const u8 *bus_receive(struct bus_link *link, struct vbus_returned *packet)
{
	int taken = vbus_north_take(&link->rx.north, packet);

	if (taken < 0)
		FAIL("the device broke rule %d of a ring", -taken);
	return taken ? link->rx.buffers[packet->cookie] : NULL;
}

const u8 *bus_await(struct bus_link *link, struct vbus_returned *packet)
{
	const u8 *bytes;

	while (!(bytes = bus_receive(link, packet))) {
		pause();
		watch("a packet");
	}
	return bytes;
}

void bus_fill(u8 *packet, u32 length, u32 seed)
{
	u32 i;

	for (i = 0; i < length; i++)
		packet[i] = (u8)(seed * 31 + i * 7 + (i >> 8));
}

bool bus_is_filled(const u8 *packet, u32 length, u32 seed)
{
	u32 i;

	for (i = 0; i < length; i++)
		if (packet[i] != (u8)(seed * 31 + i * 7 + (i >> 8)))
			return false;
	return true;
}

void bus_exchange(struct bus_link *link, u32 length, u32 seed)
{
	static u8 packets[2][BUS_PACKET];
	u8 *packet = packets[this_vcpu() & 1];
	struct vbus_returned back;
	const u8 *bytes;

	bus_fill(packet, length, seed);
	bus_offer(link, BUS_PACKET);
	bus_send(link, packet, length, seed);
	bytes = bus_await(link, &back);
	CHECK_EQ(back.used, length);
	CHECK_EQ(back.flags, seed);
	CHECK(bus_is_filled(bytes, length, seed));
	bus_drain(link);
}
