/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The virtual bus in a guest: devices, their drivers, and connections to them. docs/vbus.md of
 * Paravane has the rules of the memory that a connection shares with its device.
 */
#ifndef DRIVERS_VBUS_H
#define DRIVERS_VBUS_H

#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/interrupt.h>
#include <linux/types.h>
#include <paravane/vbus_shm.h>

#define VBUS_TYPE_MAX 32
/* Queues of a connection: 0 receives, 1 transmits. Only network cards have more. */
#define VBUS_QUEUES (2 * VBUS_ETHERNET_PAIRS_MAX + 1)

struct vbus_bus;

/* An interface of the machine's bus. */
struct vbus_device {
	struct device dev;
	struct vbus_bus *bus;
	u32 id;
	u32 version;
	char type[VBUS_TYPE_MAX];
	/* The bus has it no more: nothing that it has will come back. */
	bool gone;
};

#define to_vbus_device(d) container_of(d, struct vbus_device, dev)

struct vbus_driver {
	struct device_driver driver;
	/* The type of its devices. */
	const char *type;
	u32 version;
	int (*probe)(struct vbus_device *device);
	void (*remove)(struct vbus_device *device);
	/* The other side has ended a connection. May sleep. */
	void (*closed)(struct vbus_device *device);
};

#define to_vbus_driver(d) container_of_const(d, struct vbus_driver, driver)

/* The driver's end of a queue. */
struct vbus_queue {
	struct vbus_north north;
	struct vbus_posted *posted;
	size_t size;
	/* Notifications: to this side, and to the device. */
	struct vbus_side *here, *there;
};

struct vbus_connection {
	struct vbus_device *device;
	struct vbus_queue queues[VBUS_QUEUES];
	/* A queue without an interrupt of its own may have news. Called with interrupts off. */
	void (*signal)(struct vbus_connection *connection);
	u32 number;
	bool open;
};

/* An interrupt that some queues of a connection have in place of the line of their bus. */
struct vbus_interrupt {
	struct vbus_connection *connection;
	u32 first, count;
	/* 0: they have that of the bus. */
	int irq;
};

/* bus.c */
int vbus_register_driver(struct vbus_driver *driver);
/* `number` is that of the bus: a machine may have several. */
struct vbus_device *vbus_add_device(struct vbus_bus *bus, struct device *parent, int number, u32 id,
				    u32 version, const char *type);

/* bridge.c. Those that return int return 0 or an error, unless they say more. They may sleep. */
int vbus_open(struct vbus_connection *connection);
/* After its return the device touches nothing of the connection. What was posted stays posted. */
void vbus_close(struct vbus_connection *connection);
/* Frees the queues of a connection that is closed. */
void vbus_free_queues(struct vbus_connection *connection);
/* Makes a queue of `count` descriptors, and shares it. */
int vbus_share(struct vbus_connection *connection, u32 queue, u32 role, u32 count);
/* Calls the device. Returns the length of the result in `data`, at most `room` bytes. */
int vbus_call(struct vbus_connection *connection, u32 call, void *data, u32 length, u32 room);
/* Tells the device to look at the connection. May be called anywhere. */
void vbus_notify(struct vbus_connection *connection);

/*
 * irq.c. Gives shared queues an interrupt of their own, at first on one of the CPUs of `mask`,
 * which stays valid; NULL: on any. Users may move it. The caller has set all but `irq`. May sleep.
 * Returns an error if the bridge has none; then the queues have that of the bus.
 */
int vbus_request_interrupt(struct vbus_interrupt *own, const struct cpumask *mask,
			   irq_handler_t handler, const char *name, void *data);
/* Gives it up, before the connection is closed. After that the handler does not run. May sleep. */
void vbus_free_interrupt(struct vbus_interrupt *own, void *data);

#endif
