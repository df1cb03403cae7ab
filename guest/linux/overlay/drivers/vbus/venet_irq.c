// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts of a card. With one pair of queues it has that of the bus, which goes to the CPU that
 * notified last. With several, each pair has one of its own on its CPU. Where the bridge has none,
 * the CPU that takes the bus's interrupt wakes the others: a second wake-up in a round trip.
 */
#include <linux/cpuhotplug.h>
#include <linux/init.h>
#include <linux/irq.h>
#include "venet.h"

static void there(void *data)
{
	struct venet_pair *pair = data;

	__napi_schedule(&pair->napi);
}

/* Lets a pair work on its CPU, or on this one, where its interrupt came. */
static void wake(struct venet_pair *pair)
{
	if (!READ_ONCE(pair->rx->here->pending) && !READ_ONCE(pair->tx->here->pending))
		return;
	pair->interrupts++;
	if (!napi_schedule_prep(&pair->napi))
		return;
	vbus_side_disable(pair->rx->here);
	/* No other CPU sends this before the pair has worked. */
	if (pair->own.irq || pair->venet->count == 1 || pair->cpu == smp_processor_id() ||
	    smp_call_function_single_async(pair->cpu, &pair->csd))
		__napi_schedule(&pair->napi);
}

void venet_signal(struct vbus_connection *connection)
{
	struct venet *venet = container_of(connection, struct venet, connection);
	struct vbus_queue *events = &connection->queues[VBUS_ETHERNET_EVENTS];
	int i;

	/* The queues do not exist before. */
	if (!smp_load_acquire(&venet->running))
		return;
	/* It may be another device's interrupt: each pair looks. */
	for (i = 0; i < venet->count; i++) {
		if (!venet->pairs[i].own.irq)
			wake(&venet->pairs[i]);
	}
	if (events->here && READ_ONCE(events->here->pending))
		schedule_work(&venet->event);
}

static irqreturn_t interrupt(int irq, void *data)
{
	struct venet_pair *pair = data;

	if (smp_load_acquire(&pair->venet->running))
		wake(pair);
	return IRQ_HANDLED;
}

/* Each pair belongs to some CPUs, which send by it, and of which the first receives by it. */
void venet_place(struct venet *venet)
{
	cpumask_var_t mask;
	int i, cpu;

	if (venet->count == 1 || !zalloc_cpumask_var(&mask, GFP_KERNEL))
		return;
	cpus_read_lock();
	for (i = 0; i < venet->count; i++) {
		int number = 0;

		cpumask_clear(mask);
		for_each_online_cpu(cpu) {
			if (number++ % venet->count == i)
				cpumask_set_cpu(cpu, mask);
		}
		/* With fewer CPUs than pairs some have none. */
		cpu = cpumask_first(mask);
		venet->pairs[i].cpu = cpu < nr_cpu_ids ? cpu : cpumask_first(cpu_online_mask);
		if (!cpumask_empty(mask))
			__netif_set_xps_queue(venet->dev, cpumask_bits(mask), i, XPS_CPUS);
	}
	cpus_read_unlock();
	free_cpumask_var(mask);
}

static enum cpuhp_state online_state = CPUHP_INVALID;

/* Interrupts that have no CPU but this one move. */
static int cpu_goes_offline(unsigned int cpu, struct hlist_node *node)
{
	struct venet *venet = hlist_entry(node, struct venet, online);
	int i;

	for (i = 0; i < venet->count; i++) {
		struct venet_pair *pair = &venet->pairs[i];

		if (pair->own.irq && pair->cpu == cpu &&
		    cpumask_equal(irq_get_effective_affinity_mask(pair->own.irq), cpumask_of(cpu)))
			pair->moved = true;
	}
	return 0;
}

/* They come back, and no others: those are where the user wants them. */
static int cpu_online_again(unsigned int cpu, struct hlist_node *node)
{
	struct venet *venet = hlist_entry(node, struct venet, online);
	int i;

	for (i = 0; i < venet->count; i++) {
		struct venet_pair *pair = &venet->pairs[i];

		if (pair->own.irq && pair->cpu == cpu && pair->moved)
			irq_set_affinity(pair->own.irq, cpumask_of(cpu));
		if (pair->cpu == cpu)
			pair->moved = false;
	}
	return 0;
}

static int request(struct venet_pair *pair)
{
	struct venet *venet = pair->venet;

	pair->own.connection = &venet->connection;
	pair->own.first = pair->number ? 2 * pair->number + 1 : 0;
	pair->own.count = 2;
	pair->moved = false;
	snprintf(pair->name, sizeof(pair->name), "%s-pair%u",
		 dev_name(&venet->connection.device->dev), pair->number);
	return vbus_request_interrupt(&pair->own, venet->count > 1 ? cpumask_of(pair->cpu) : NULL,
				      interrupt, pair->name, pair);
}

/* After the queues were shared. Before the pairs may be looked at. */
void venet_request_interrupts(struct venet *venet)
{
	int error = 0, i;

	if (!venet_interrupts || (venet_interrupts == 1 && venet->count == 1))
		return;
	for (i = 0; i < venet->count && !error; i++)
		error = request(&venet->pairs[i]);
	if (!error && online_state != CPUHP_INVALID)
		error = cpuhp_state_add_instance_nocalls(online_state, &venet->online);
	if (!error)
		return;
	venet_free_interrupts(venet);
	netdev_info_once(venet->dev, "pairs have no interrupts of their own: %d\n", error);
}

/* After the pairs have stopped. */
void venet_free_interrupts(struct venet *venet)
{
	int i;

	if (!hlist_unhashed(&venet->online)) {
		cpuhp_state_remove_instance_nocalls(online_state, &venet->online);
		INIT_HLIST_NODE(&venet->online);
	}
	for (i = 0; i < VBUS_ETHERNET_PAIRS_MAX; i++)
		vbus_free_interrupt(&venet->pairs[i].own, &venet->pairs[i]);
}

void venet_init_pair(struct venet_pair *pair)
{
	INIT_CSD(&pair->csd, there, pair);
}

/* Before the driver. */
static int __init venet_init_online(void)
{
	int state = cpuhp_setup_state_multi(CPUHP_AP_ONLINE_DYN, "vbus/venet:online",
					    cpu_online_again, cpu_goes_offline);

	/* Without it interrupts stay where they were moved to. */
	if (state >= 0)
		online_state = state;
	return 0;
}
subsys_initcall(venet_init_online);
