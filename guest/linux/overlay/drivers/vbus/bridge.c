// SPDX-License-Identifier: GPL-2.0-only
/*
 * vbus-proxy: the machine's bus as the hypervisor's bridge shows it. Commands and notifications are
 * calls of the layer, if it has section bus. Without it a command is a store to a register that
 * traps, and a notification another call of the layer, or the lightest of traps, a port. Interrupts
 * say only that something happened: each queue has its own flags for that. Those of queues' own are
 * in irq.c.
 */
#include <linux/acpi.h>
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include "bridge.h"

/* Events that are handled before the list of interfaces is compared. */
#define EVENTS 256

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vbus."

/* Off: as on a layer without the section. For bridges that are found afterwards. */
static bool use_calls = true;
module_param_named(calls, use_calls, bool, 0444);
MODULE_PARM_DESC(calls, "commands and notifications are calls of the layer");

/* Bridges found so far. */
static int buses;

static const int errors[] = {
	[VBUS_DONE]		= 0,
	[VBUS_ERROR_NOT_FOUND]	= -ENOENT,
	[VBUS_ERROR_EXISTS]	= -EEXIST,
	[VBUS_ERROR_BUSY]	= -EBUSY,
	[VBUS_ERROR_DENIED]	= -EACCES,
	[VBUS_ERROR_INVALID]	= -EINVAL,
	[VBUS_ERROR_LIMIT]	= -ENOSPC,
	[VBUS_ERROR_BROKEN]	= -EPROTO,
	[VBUS_ERROR_HOST]	= -EIO,
};

int vbus_carry_out(struct vbus_bus *bus, struct vbus_command *what, u32 command)
{
	u32 status;

	what->command = command;
	what->status = VBUS_ERROR_HOST;
	/* Both are over when the command is. A call that fails leaves the status; a store traps. */
	if (bus->calls)
		bus->calls->command(bus->address, virt_to_phys(what));
	else
		writeq(virt_to_phys(what),
		       bus->registers + offsetof(struct vbus_bridge, command));
	status = READ_ONCE(what->status);
	return status < ARRAY_SIZE(errors) ? errors[status] : -EIO;
}

/* Carries out bus->command. Under the lock. */
static int carry_out(struct vbus_bus *bus, u32 command)
{
	return vbus_carry_out(bus, bus->command, command);
}

int vbus_open(struct vbus_connection *connection)
{
	struct vbus_bus *bus = connection->device->bus;
	struct vbus_command *command = bus->command;
	int error;

	mutex_lock(&bus->lock);
	memset(command, 0, sizeof(*command));
	command->interface = connection->device->id;
	command->number = connection->device->version;
	error = carry_out(bus, VBUS_COMMAND_OPEN);
	connection->number = READ_ONCE(command->connection);
	if (!error && connection->number >= VBUS_BRIDGE_CONNECTIONS)
		error = -EPROTO;
	if (!error) {
		WRITE_ONCE(bus->connections[connection->number], connection);
		connection->open = true;
	}
	mutex_unlock(&bus->lock);
	return error;
}

static void free_queue(struct vbus_queue *queue)
{
	if (queue->north.ioq)
		free_pages_exact(queue->north.ioq, queue->size);
	kvfree(queue->posted);
	memset(queue, 0, sizeof(*queue));
}

void vbus_close(struct vbus_connection *connection)
{
	struct vbus_bus *bus = connection->device->bus;

	if (!connection->open)
		return;
	mutex_lock(&bus->lock);
	WRITE_ONCE(bus->connections[connection->number], NULL);
	memset(bus->command, 0, sizeof(*bus->command));
	bus->command->connection = connection->number;
	/* An error means that it was closed before. */
	carry_out(bus, VBUS_COMMAND_CLOSE);
	mutex_unlock(&bus->lock);
	synchronize_irq(bus->irq);
	connection->open = false;
}

void vbus_free_queues(struct vbus_connection *connection)
{
	int i;

	for (i = 0; i < VBUS_QUEUES; i++)
		free_queue(&connection->queues[i]);
}

int vbus_share(struct vbus_connection *connection, u32 number, u32 role, u32 count)
{
	struct vbus_queue *queue = &connection->queues[number];
	struct vbus_bus *bus = connection->device->bus;
	void *memory;
	int error;

	queue->size = vbus_ioq_size(count);
	queue->posted = kvcalloc(count, sizeof(*queue->posted), GFP_KERNEL);
	memory = alloc_pages_exact(queue->size, GFP_KERNEL | __GFP_ZERO);
	if (!memory || !queue->posted ||
	    vbus_north_begin(&queue->north, memory, queue->size, count, role, queue->posted, 0)) {
		if (memory)
			free_pages_exact(memory, queue->size);
		queue->north.ioq = NULL;
		free_queue(queue);
		return -ENOMEM;
	}
	queue->here = &queue->north.ioq->signal.sides[VBUS_NORTH];
	queue->there = &queue->north.ioq->signal.sides[VBUS_SOUTH];
	mutex_lock(&bus->lock);
	memset(bus->command, 0, sizeof(*bus->command));
	bus->command->connection = connection->number;
	bus->command->queue = number;
	bus->command->data = virt_to_phys(memory);
	bus->command->number = count;
	error = carry_out(bus, VBUS_COMMAND_SHARE);
	mutex_unlock(&bus->lock);
	/* The memory stays until the connection is closed. */
	return error;
}

int vbus_call(struct vbus_connection *connection, u32 call, void *data, u32 length, u32 room)
{
	struct vbus_bus *bus = connection->device->bus;
	struct vbus_command *command = bus->command;
	int result;

	if (length > VBUS_BRIDGE_DATA)
		return -EINVAL;
	mutex_lock(&bus->lock);
	memset(command, 0, sizeof(*command));
	memcpy(bus->data, data, length);
	command->connection = connection->number;
	command->number = call;
	command->data = virt_to_phys(bus->data);
	command->length = length;
	result = carry_out(bus, VBUS_COMMAND_CALL);
	if (!result) {
		result = min3(READ_ONCE(command->length), room, (u32)VBUS_BRIDGE_DATA);
		memcpy(data, bus->data, result);
	}
	mutex_unlock(&bus->lock);
	return result;
}

void vbus_notify(struct vbus_connection *connection)
{
	struct vbus_bus *bus = connection->device->bus;

	if (bus->calls)
		bus->calls->notify(bus->address, connection->number);
	else if (bus->line)
		bus->line->notify(bus->line->device, connection->number);
	else if (bus->port)
		outl(connection->number, bus->port);
	else
		writel(connection->number, bus->registers + offsetof(struct vbus_bridge, notify));
}

/* The next interface after `id`, which becomes its number. */
static int next_interface(struct vbus_bus *bus, u32 *id, u32 *version, char *type)
{
	struct vbus_command *command = bus->command;
	u32 length;
	int error;

	mutex_lock(&bus->lock);
	memset(command, 0, sizeof(*command));
	command->interface = *id;
	command->data = virt_to_phys(bus->data);
	error = carry_out(bus, VBUS_COMMAND_INTERFACE);
	if (!error) {
		length = min(READ_ONCE(command->length), (u32)VBUS_TYPE_MAX - 1);
		memcpy(type, bus->data, length);
		type[length] = 0;
		*version = READ_ONCE(command->number);
		/* Upwards only, so that the list ends. */
		if (READ_ONCE(command->interface) <= *id)
			error = -EPROTO;
		*id = READ_ONCE(command->interface);
	}
	mutex_unlock(&bus->lock);
	return error;
}

static struct vbus_device **find(struct vbus_bus *bus, u32 id)
{
	int i;

	for (i = 0; i < VBUS_INTERFACES; i++) {
		if (bus->devices[i] && bus->devices[i]->id == id)
			return &bus->devices[i];
	}
	return NULL;
}

static void drop(struct vbus_device **device)
{
	(*device)->gone = true;
	device_unregister(&(*device)->dev);
	*device = NULL;
}

static void add(struct vbus_bus *bus, u32 id, u32 version, const char *type)
{
	struct vbus_device *device;
	int i;

	for (i = 0; i < VBUS_INTERFACES && bus->devices[i]; i++)
		;
	if (i == VBUS_INTERFACES)
		return;
	device = vbus_add_device(bus, bus->dev, bus->number, id, version, type);
	if (IS_ERR(device))
		dev_err(bus->dev, "cannot add interface %u: %ld\n", id, PTR_ERR(device));
	else
		bus->devices[i] = device;
}

/* Makes the list of devices that of the bridge. */
static void compare(struct vbus_bus *bus)
{
	DECLARE_BITMAP(seen, VBUS_INTERFACES) = {};
	struct vbus_device **device;
	char type[VBUS_TYPE_MAX];
	u32 id = 0, version;
	int i, count;

	for (count = 0; count < VBUS_INTERFACES; count++) {
		if (next_interface(bus, &id, &version, type))
			break;
		if (!find(bus, id))
			add(bus, id, version, type);
		device = find(bus, id);
		if (device)
			__set_bit(device - bus->devices, seen);
	}
	for (i = 0; i < VBUS_INTERFACES; i++) {
		if (bus->devices[i] && !test_bit(i, seen))
			drop(&bus->devices[i]);
	}
}

static void closed(struct vbus_bus *bus, u32 number)
{
	struct vbus_connection *connection;
	struct vbus_device *device = NULL;

	mutex_lock(&bus->lock);
	connection = number < VBUS_BRIDGE_CONNECTIONS ? bus->connections[number] : NULL;
	if (connection)
		device = connection->device;
	mutex_unlock(&bus->lock);
	/* Only this work removes devices, so it stays. */
	if (device && device->dev.driver)
		to_vbus_driver(device->dev.driver)->closed(device);
}

/* Returns whether there was an event. */
static bool handle_event(struct vbus_bus *bus)
{
	struct vbus_command *command = bus->command;
	u32 event, interface, connection;
	struct vbus_device **device;

	mutex_lock(&bus->lock);
	memset(command, 0, sizeof(*command));
	event = carry_out(bus, VBUS_COMMAND_EVENT) ? VBUS_EVENT_NONE : READ_ONCE(command->number);
	interface = READ_ONCE(command->interface);
	connection = READ_ONCE(command->connection);
	mutex_unlock(&bus->lock);
	switch (event) {
	case VBUS_EVENT_NONE:
		return false;
	case VBUS_EVENT_DROPPED:
		device = find(bus, interface);
		if (device)
			drop(device);
		break;
	case VBUS_EVENT_CLOSED:
		closed(bus, connection);
		break;
	default:
		compare(bus);
	}
	return true;
}

static void handle_events(struct work_struct *work)
{
	struct vbus_bus *bus = container_of(work, struct vbus_bus, work);
	int i;

	for (i = 0; i < EVENTS; i++) {
		if (!handle_event(bus))
			return;
	}
	schedule_work(&bus->work);
}

static irqreturn_t interrupt(int irq, void *data)
{
	struct vbus_bus *bus = data;
	struct vbus_connection *connection;
	u32 events = readl(bus->registers + offsetof(struct vbus_bridge, events));
	int i;

	if (unlikely(events != READ_ONCE(bus->events))) {
		WRITE_ONCE(bus->events, events);
		schedule_work(&bus->work);
	}
	for (i = 0; i < VBUS_BRIDGE_CONNECTIONS; i++) {
		connection = READ_ONCE(bus->connections[i]);
		if (connection)
			connection->signal(connection);
	}
	return IRQ_HANDLED;
}

static int bridge_probe(struct platform_device *platform)
{
	struct device *dev = &platform->dev;
	struct resource *port, *registers;
	struct vbus_bus *bus;
	int error;

	BUILD_BUG_ON(sizeof(struct vbus_command) > PAGE_SIZE / 4);
	BUILD_BUG_ON(VBUS_BRIDGE_DATA > PAGE_SIZE / 2);
	bus = devm_kzalloc(dev, sizeof(*bus), GFP_KERNEL);
	if (!bus)
		return -ENOMEM;
	bus->command = (void *)devm_get_free_pages(dev, GFP_KERNEL | __GFP_ZERO, 0);
	if (!bus->command)
		return -ENOMEM;
	bus->irq_command = (void *)bus->command + PAGE_SIZE / 4;
	bus->data = (void *)bus->command + PAGE_SIZE / 2;
	bus->dev = dev;
	/* Bridges stay, and are found one after another. */
	bus->number = buses++;
	bus->line = dev_get_platdata(dev);
	port = platform_get_resource(platform, IORESOURCE_IO, 0);
	if (port && devm_request_region(dev, port->start, resource_size(port), dev_name(dev)))
		bus->port = port->start;
	mutex_init(&bus->lock);
	raw_spin_lock_init(&bus->irq_lock);
	INIT_WORK(&bus->work, handle_events);
	bus->registers = devm_platform_get_and_ioremap_resource(platform, 0, &registers);
	if (IS_ERR(bus->registers))
		return PTR_ERR(bus->registers);
	bus->address = registers->start;
	bus->calls = use_calls ? vmi_vbus_calls(bus->address) : NULL;
	if (readl(bus->registers + offsetof(struct vbus_bridge, magic)) != VBUS_BRIDGE_MAGIC ||
	    readl(bus->registers + offsetof(struct vbus_bridge, version)) != VBUS_BRIDGE_VERSION)
		return dev_err_probe(dev, -ENODEV, "another version of the bridge\n");
	bus->irq = platform_get_irq(platform, 0);
	if (bus->irq < 0)
		return bus->irq;
	bus->events = readl(bus->registers + offsetof(struct vbus_bridge, events));
	error = carry_out(bus, VBUS_COMMAND_START);
	if (error)
		return dev_err_probe(dev, error, "the bridge does not start\n");
	error = devm_request_irq(dev, bus->irq, interrupt, 0, dev_name(dev), bus);
	if (error)
		return error;
	platform_set_drvdata(platform, bus);
	vbus_init_interrupts(bus);
	compare(bus);
	/* What came since then. */
	schedule_work(&bus->work);
	return 0;
}

/* A hypervisor without a table of devices has the bridge in its ACPI tables. */
static const struct acpi_device_id bridge_ids[] = {
	{ "PRVN0001" },
	{ }
};

static struct platform_driver bridge_driver = {
	.probe	= bridge_probe,
	.driver	= {
		.name			= "vbus-bridge",
		.acpi_match_table	= ACPI_PTR(bridge_ids),
		.suppress_bind_attrs	= true,
	},
};
builtin_platform_driver(bridge_driver);
