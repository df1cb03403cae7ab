/* SPDX-License-Identifier: GPL-2.0-only */
/* The machine's end of a bus: what bridge.c and irq.c share. */
#ifndef DRIVERS_VBUS_BRIDGE_H
#define DRIVERS_VBUS_BRIDGE_H

#include <linux/irqdomain.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/vbus_calls.h>
#include <linux/workqueue.h>
#include "vbus.h"

/* Interfaces of a bus. */
#define VBUS_INTERFACES 64

struct vbus_bus {
	struct device *dev;
	void __iomem *registers;
	/* Where these are, as the calls know the bridge; without calls they are stored to. */
	u64 address;
	const struct vbus_calls *calls;
	/* Without these calls, both for notifications; without either there is a register. */
	const struct vbus_line *line;
	unsigned long port;
	/* The interrupt of all that has none of its own. */
	int irq;
	/* Of this bus, for names. */
	int number;
	u32 events;
	struct work_struct work;
	/* For the command, and for its data. */
	struct mutex lock;
	struct vbus_command *command;
	void *data;
	/* For a command of its own: interrupts are moved where nothing sleeps. */
	raw_spinlock_t irq_lock;
	struct vbus_command *irq_command;
	/* Of interrupts of queues' own, if the bridge has these. */
	struct irq_domain *domain;
	/* Only the work and the probe use the list. */
	struct vbus_device *devices[VBUS_INTERFACES];
	struct vbus_connection *connections[VBUS_BRIDGE_CONNECTIONS];
};

/* bridge.c: carries out a command, under its lock. */
int vbus_carry_out(struct vbus_bus *bus, struct vbus_command *what, u32 command);

/* irq.c: once, when the driver has begun. Without success all queues have the bus's interrupt. */
void vbus_init_interrupts(struct vbus_bus *bus);

#endif
