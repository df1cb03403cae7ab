// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts of queues' own. Each is a vector of a CPU. A command passes it to the bridge, which
 * sends it like an MSI. The irq domain of a bus is above that of x86, which finds vectors and moves
 * them to other CPUs: also with interrupts off, and from a CPU that goes offline.
 */
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/string.h>
#include <asm/hw_irq.h>
#include <asm/irqdomain.h>
#include "bridge.h"

/*
 * Tells the bridge where the interrupt goes; vector 0: where the bus's does. When this is over, the
 * bridge sends nothing more to where it went before.
 */
static int route(const struct vbus_interrupt *own, u32 apic, u32 vector)
{
	struct vbus_bus *bus = own->connection->device->bus;
	struct vbus_command *command = bus->irq_command;
	unsigned long flags;
	int error = 0;
	u32 i;

	raw_spin_lock_irqsave(&bus->irq_lock, flags);
	for (i = 0; i < own->count && !error; i++) {
		memset(command, 0, sizeof(*command));
		command->connection = own->connection->number;
		command->queue = own->first + i;
		command->number = vector;
		command->apic = apic;
		error = vbus_carry_out(bus, command, VBUS_COMMAND_INTERRUPT);
	}
	raw_spin_unlock_irqrestore(&bus->irq_lock, flags);
	/* The other side may have ended the connection: then nothing interrupts any more. */
	WARN_ONCE(error && error != -ENOENT, "vbus: vector %u of %#x: error %d\n", vector, apic,
		  error);
	return error;
}

static int route_to_vector(struct irq_data *data)
{
	const struct irq_cfg *cfg = irqd_cfg(data);

	return route(irq_data_get_irq_chip_data(data), cfg->dest_apicid, cfg->vector);
}

static int set_affinity(struct irq_data *data, const struct cpumask *mask, bool force)
{
	struct irq_data *parent = data->parent_data;
	int ret = parent->chip->irq_set_affinity(parent, mask, force);

	if (ret < 0 || ret == IRQ_SET_MASK_OK_DONE)
		return ret;
	route_to_vector(data);
	/* The old vector stays valid for what was sent before. */
	vector_schedule_cleanup(irqd_cfg(data));
	return ret;
}

static struct irq_chip chip = {
	.name			= "vbus",
	.irq_ack		= irq_chip_ack_parent,
	.irq_retrigger		= irq_chip_retrigger_hierarchy,
	.irq_set_affinity	= set_affinity,
	.flags			= IRQCHIP_SKIP_SET_WAKE | IRQCHIP_AFFINITY_PRE_STARTUP,
};

static int alloc(struct irq_domain *domain, unsigned int irq, unsigned int count, void *argument)
{
	struct irq_alloc_info *info = argument;
	int error;

	if (count != 1 || !info)
		return -EINVAL;
	error = irq_domain_alloc_irqs_parent(domain, irq, count, info);
	if (error)
		return error;
	irq_set_status_flags(irq, IRQ_MOVE_PCNTXT);
	irq_domain_set_info(domain, irq, info->hwirq, &chip, info->data, handle_edge_irq, NULL,
			    "edge");
	return 0;
}

/* The domain of x86 has found a vector. */
static int activate(struct irq_domain *domain, struct irq_data *data, bool reserve)
{
	return reserve ? 0 : route_to_vector(data);
}

static void deactivate(struct irq_domain *domain, struct irq_data *data)
{
	route(irq_data_get_irq_chip_data(data), 0, 0);
}

static const struct irq_domain_ops ops = {
	.alloc		= alloc,
	.free		= irq_domain_free_irqs_top,
	.activate	= activate,
	.deactivate	= deactivate,
};

int vbus_request_interrupt(struct vbus_interrupt *own, const struct cpumask *mask,
			   irq_handler_t handler, const char *name, void *data)
{
	struct vbus_connection *connection = own->connection;
	struct vbus_bus *bus = connection->device->bus;
	struct irq_alloc_info info;
	int irq, error;

	if (!bus->domain)
		return -EOPNOTSUPP;
	init_irq_alloc_info(&info, NULL);
	info.hwirq = connection->number * VBUS_QUEUES + own->first;
	info.data = own;
	irq = irq_domain_alloc_irqs(bus->domain, 1, NUMA_NO_NODE, &info);
	if (irq <= 0)
		return irq ?: -ENOSPC;
	/* Before it has a vector, so that this is of one of these CPUs at once. */
	irq_set_affinity_and_hint(irq, mask);
	error = request_irq(irq, handler, 0, name, data);
	if (error) {
		irq_update_affinity_hint(irq, NULL);
		irq_domain_free_irqs(irq, 1);
		return error;
	}
	own->irq = irq;
	return 0;
}

void vbus_free_interrupt(struct vbus_interrupt *own, void *data)
{
	if (!own->irq)
		return;
	irq_update_affinity_hint(own->irq, NULL);
	free_irq(own->irq, data);
	irq_domain_free_irqs(own->irq, 1);
	own->irq = 0;
}

void vbus_init_interrupts(struct vbus_bus *bus)
{
	u32 features = readl(bus->registers + offsetof(struct vbus_bridge, features));
	struct fwnode_handle *node;

	if (!(features & VBUS_FEATURE_INTERRUPT) || !x86_vector_domain)
		return;
	node = irq_domain_alloc_named_id_fwnode("vbus", bus->number);
	if (!node)
		return;
	bus->domain = irq_domain_create_hierarchy(x86_vector_domain, 0, 0, node, &ops, bus);
	if (!bus->domain)
		irq_domain_free_fwnode(node);
}
