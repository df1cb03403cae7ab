// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices that the hypervisor describes: an irq chip for their interrupt lines, and platform
 * devices for the usual virtio-mmio driver and for the driver of a bridge to a virtual bus.
 */
#include <linux/dma-mapping.h>
#include <linux/init.h>
#include <linux/ioport.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/minmax.h>
#include <linux/platform_device.h>
#include <linux/vbus_calls.h>
#include <linux/virtio_mmio_calls.h>
#include <asm/apic.h>
#include <asm/hw_irq.h>
#include <asm/idtentry.h>
#include <asm/irq_regs.h>
#include <asm/irqdomain.h>
#include "vmi.h"

#define MAX_DEVICES 64

static struct vmi_device devices[MAX_DEVICES] __initdata;
static u32 device_count __initdata;

/* Called early: later the kernel's page tables may not map the boot information. */
void __init vmi_copy_devices(const struct vmi_boot_info *info)
{
	const u8 *entry = (const u8 *)info->devices;

	if (!entry || info->device_size < sizeof(*devices))
		return;
	for (; device_count < min_t(u32, info->device_count, MAX_DEVICES); device_count++) {
		memcpy(&devices[device_count], entry, sizeof(*devices));
		entry += info->device_size;
	}
}

static struct irq_domain *domain;

static void route(struct irq_data *data, u32 place, u32 vector)
{
	int error = vmi.line_route(irqd_to_hwirq(data), place, vector);

	WARN_ONCE(error, "VMI: line %lu to vector %u of %#x: error %d\n", irqd_to_hwirq(data),
		  vector, place, error);
}

static void line_mask(struct irq_data *data)
{
	route(data, 0, 0);
}

/*
 * With version 2 an interrupt goes to the vCPU that notified the device last. The program that
 * waits for the device is probably there. All lines share one vector.
 */
static void notifier_route(struct irq_data *data)
{
	route(data, VMI_LINE_NOTIFIER, HYPERVISOR_CALLBACK_VECTOR);
}

static void no_ack(struct irq_data *data)
{
}

static struct irq_chip notifier_chip = {
	.name			= "VMI-line",
	.irq_mask		= line_mask,
	.irq_unmask		= notifier_route,
	.irq_ack		= no_ack,
	.flags			= IRQCHIP_SKIP_SET_WAKE,
};

static int notifier_map(struct irq_domain *d, unsigned int virq, irq_hw_number_t line)
{
	irq_domain_set_info(d, virq, line, &notifier_chip, NULL, handle_edge_irq, NULL, "edge");
	return 0;
}

static const struct irq_domain_ops notifier_ops = {
	.map	= notifier_map,
};

DEFINE_IDTENTRY_SYSVEC(sysvec_vmi_line)
{
	struct pt_regs *old = set_irq_regs(regs);
	unsigned long lines;
	unsigned int line;

	apic_eoi();
	vmi_clock_check();
	lines = vmi.line_pending();
	for_each_set_bit(line, &lines, BITS_PER_LONG)
		generic_handle_domain_irq(domain, line);
	set_irq_regs(old);
}

/* Whether the layer has version 2 of the section. */
static bool have_line_calls(void)
{
	return vmi.line_notify && vmi.line_status && vmi.line_pending;
}

void __init vmi_init_lines(void)
{
	if (have_line_calls())
		sysvec_install(HYPERVISOR_CALLBACK_VECTOR, sysvec_vmi_line);
}

/* Lines of a layer with version 1: each has a vector of its own on one CPU. */
static void vector_route(struct irq_data *data)
{
	const struct irq_cfg *cfg = irqd_cfg(data);

	route(data, cfg->dest_apicid, cfg->vector);
}

static int vector_set_affinity(struct irq_data *data, const struct cpumask *mask, bool force)
{
	struct irq_data *parent = data->parent_data;
	int ret = parent->chip->irq_set_affinity(parent, mask, force);

	if (ret < 0 || ret == IRQ_SET_MASK_OK_DONE)
		return ret;
	if (!irqd_irq_masked(data))
		vector_route(data);
	/* The old vector stays valid for interrupts that were sent before. */
	vector_schedule_cleanup(irqd_cfg(data));
	return ret;
}

static struct irq_chip vector_chip = {
	.name			= "VMI-line",
	.irq_mask		= line_mask,
	.irq_unmask		= vector_route,
	.irq_ack		= irq_chip_ack_parent,
	.irq_retrigger		= irq_chip_retrigger_hierarchy,
	.irq_set_affinity	= vector_set_affinity,
	.flags			= IRQCHIP_SKIP_SET_WAKE | IRQCHIP_AFFINITY_PRE_STARTUP,
};

static int vector_alloc(struct irq_domain *d, unsigned int virq, unsigned int count, void *argument)
{
	struct irq_alloc_info *info = argument;
	int ret;

	if (count != 1 || !info)
		return -EINVAL;
	ret = irq_domain_alloc_irqs_parent(d, virq, count, info);
	if (ret)
		return ret;
	irq_set_status_flags(virq, IRQ_MOVE_PCNTXT);
	irq_domain_set_info(d, virq, info->hwirq, &vector_chip, NULL, handle_edge_irq, NULL,
			    "edge");
	return 0;
}

static const struct irq_domain_ops vector_ops = {
	.alloc	= vector_alloc,
	.free	= irq_domain_free_irqs_top,
};

/* Returns the interrupt of a line, or an error. */
static int __init map_line(u32 line)
{
	struct irq_alloc_info alloc;
	int irq;

	if (have_line_calls()) {
		irq = irq_create_mapping(domain, line);
		return irq ? irq : -ENOSPC;
	}
	init_irq_alloc_info(&alloc, NULL);
	alloc.hwirq = line;
	return irq_domain_alloc_irqs(domain, 1, NUMA_NO_NODE, &alloc);
}

static struct irq_domain *__init make_domain(struct fwnode_handle *node)
{
	if (have_line_calls())
		return irq_domain_create_linear(node, MAX_DEVICES, &notifier_ops, NULL);
	return irq_domain_create_hierarchy(x86_vector_domain, 0, 0, node, &vector_ops, NULL);
}

static int __init add_device(const struct vmi_device *device, u32 number)
{
	bool bridge = device->kind == VMI_DEVICE_VBUS;
	struct platform_device_info info = {
		.name		= bridge ? "vbus-bridge" : "virtio-mmio",
		.id		= number,
		.num_res	= 2,
		.dma_mask	= DMA_BIT_MASK(64),
	};
	struct virtio_mmio_calls calls = {
		.notify		= vmi.line_notify,
		.status		= vmi.line_status,
		.device		= device->line,
	};
	struct vbus_line bridge_line = {
		.notify		= vmi.line_notify,
		.device		= device->line,
	};
	int irq;

	/* The driver stores to registers if the layer does not have the calls. */
	if (have_line_calls()) {
		info.data = bridge ? (void *)&bridge_line : &calls;
		info.size_data = bridge ? sizeof(bridge_line) : sizeof(calls);
	}
	irq = map_line(device->line);
	if (irq < 0)
		return irq;
	info.res = (struct resource []) {
		DEFINE_RES_MEM(device->gpa, device->size),
		DEFINE_RES_IRQ(irq),
	};
	return PTR_ERR_OR_ZERO(platform_device_register_full(&info));
}

static int __init vmi_add_devices(void)
{
	struct fwnode_handle *node;
	u32 i;

	if (!device_count)
		return 0;
	if (!vmi.line_route) {
		pr_err("VMI: no devices: the layer has no interrupt lines\n");
		return 0;
	}
	node = irq_domain_alloc_named_fwnode("VMI-line");
	if (!node)
		return -ENOMEM;
	domain = make_domain(node);
	if (!domain) {
		irq_domain_free_fwnode(node);
		return -ENOMEM;
	}
	for (i = 0; i < device_count; i++) {
		int error;

		if (devices[i].kind != VMI_DEVICE_VIRTIO_MMIO &&
		    devices[i].kind != VMI_DEVICE_VBUS)
			continue;
		error = add_device(&devices[i], i);
		if (error)
			pr_err("VMI: cannot add device %u: error %d\n", i, error);
	}
	return 0;
}
subsys_initcall(vmi_add_devices);
