// SPDX-License-Identifier: GPL-2.0-only
/*
 * Consoles of the virtual bus: terminals /dev/vbc0 and so on, whose other end is a byte stream of
 * the host. Nothing is dropped: bytes for the guest stay in the queue until a program has opened
 * the terminal and reads, and writers wait for the host.
 */
#include <linux/err.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/tty_flip.h>
#include "vconsole.h"

/* Looks for one notification, before the interrupts of the CPU get a turn in between. */
#define ROUNDS 16

/* Under the lock. */
static void break_off(struct vconsole *console, int error)
{
	if (!vconsole_works(console))
		return;
	console->broken = true;
	dev_err(&console->connection.device->dev, "the connection ended: %d\n", error);
	schedule_work(&console->restart);
}

bool vconsole_post(struct vconsole *console, int number, u32 len)
{
	struct vbus_queue *queue = vconsole_queue(console, number);
	u32 place = (queue->north.tail & (VCONSOLE_COUNT - 1)) * VCONSOLE_SIZE;
	struct vbus_buffer buffer = {
		.cookie	= place,
		.ptr	= virt_to_phys(console->buffers[number] + place),
		.len	= len,
	};
	int error = vbus_north_post(&queue->north, &buffer);

	if (error)
		break_off(console, error);
	return !error;
}

void vconsole_tell(struct vconsole *console, int number)
{
	if (vconsole_works(console) && vbus_side_inject(vconsole_queue(console, number)->there))
		vbus_notify(&console->connection);
}

void vconsole_receive(struct vconsole *console)
{
	struct vbus_queue *queue = vconsole_queue(console, VCONSOLE_RX);
	struct vbus_returned returned;
	bool some = false;
	int taken;

	while (vconsole_works(console) && console->active && !console->throttled) {
		if (tty_buffer_space_avail(&console->port) < VCONSOLE_SIZE) {
			mod_timer(&console->retry, jiffies + 1);
			break;
		}
		taken = vbus_north_take(&queue->north, &returned);
		if (taken < 0)
			break_off(console, taken);
		if (taken <= 0)
			break;
		/* The cookie is this driver's own copy, and `used` at most SIZE. */
		tty_insert_flip_string(&console->port,
				       console->buffers[VCONSOLE_RX] + returned.cookie,
				       returned.used);
		some = true;
		vconsole_post(console, VCONSOLE_RX, VCONSOLE_SIZE);
	}
	if (some) {
		tty_flip_buffer_push(&console->port);
		vconsole_tell(console, VCONSOLE_RX);
	}
}

/* Under the lock, as all that others call. */
void vconsole_reclaim(struct vconsole *console)
{
	struct vbus_queue *queue = vconsole_queue(console, VCONSOLE_TX);
	struct vbus_returned returned;
	int taken;

	while ((taken = vbus_north_take(&queue->north, &returned)) > 0)
		console->queued -= returned.len;
	if (taken < 0)
		break_off(console, taken);
}

static void receive_work(void *data)
{
	vconsole_receive(data);
}

static void reclaim_work(void *data)
{
	vconsole_reclaim(data);
}

static void retry(struct timer_list *timer)
{
	struct vconsole *console = from_timer(console, timer, retry);
	unsigned long flags;

	spin_lock_irqsave(&console->lock, flags);
	vconsole_receive(console);
	spin_unlock_irqrestore(&console->lock, flags);
}

static bool pending(struct vconsole *console, int number)
{
	struct vbus_queue *queue = vconsole_queue(console, number);

	/* Before the queue is shared there is nothing; it may be another device's interrupt. */
	return smp_load_acquire(&queue->here) && READ_ONCE(queue->here->pending);
}

static void answer(struct vconsole *console, int number, void (*work)(void *))
{
	struct vbus_side *here;

	spin_lock(&console->lock);
	if (vconsole_works(console)) {
		here = vconsole_queue(console, number)->here;
		while (vbus_side_wake_up(here, ROUNDS, work, console))
			;
	}
	spin_unlock(&console->lock);
}

static void vconsole_signal(struct vbus_connection *connection)
{
	struct vconsole *console = container_of(connection, struct vconsole, connection);

	if (pending(console, VCONSOLE_RX))
		answer(console, VCONSOLE_RX, receive_work);
	if (pending(console, VCONSOLE_TX)) {
		answer(console, VCONSOLE_TX, reclaim_work);
		/* May write at once, so not under the lock. */
		tty_port_tty_wakeup(&console->port);
	}
}

/* Opens the connection, and posts the buffers for what comes. */
static int connect(struct vconsole *console)
{
	struct vbus_connection *connection = &console->connection;
	unsigned long flags;
	int error, i;

	error = vbus_open(connection);
	if (!error)
		error = vbus_share(connection, VCONSOLE_RX, VBUS_ROLE_RECEIVE, VCONSOLE_COUNT);
	if (!error)
		error = vbus_share(connection, VCONSOLE_TX, VBUS_ROLE_TRANSMIT, VCONSOLE_COUNT);
	if (error)
		return error;
	spin_lock_irqsave(&console->lock, flags);
	console->broken = false;
	console->queued = 0;
	/* Nothing was posted yet, so nothing can have come. */
	vbus_side_rest(vconsole_queue(console, VCONSOLE_RX)->here);
	vbus_side_rest(vconsole_queue(console, VCONSOLE_TX)->here);
	for (i = 0; i < VCONSOLE_COUNT; i++)
		vconsole_post(console, VCONSOLE_RX, VCONSOLE_SIZE);
	vconsole_tell(console, VCONSOLE_RX);
	spin_unlock_irqrestore(&console->lock, flags);
	return 0;
}

static void disconnect(struct vconsole *console)
{
	vbus_close(&console->connection);
	vbus_free_queues(&console->connection);
}

/* Nothing is done from now on. */
static void end(struct vconsole *console)
{
	unsigned long flags;

	spin_lock_irqsave(&console->lock, flags);
	console->dead = true;
	spin_unlock_irqrestore(&console->lock, flags);
}

/* What the device had is lost. */
static void restart(struct work_struct *work)
{
	struct vconsole *console = container_of(work, struct vconsole, restart);
	int error;

	if (READ_ONCE(console->dead))
		return;
	disconnect(console);
	error = connect(console);
	if (error) {
		dev_err(&console->connection.device->dev, "cannot connect again: %d\n", error);
		end(console);
		disconnect(console);
	}
	tty_port_tty_wakeup(&console->port);
}

void vconsole_free(struct vconsole *console)
{
	int i;

	for (i = 0; i < VCONSOLE_QUEUES; i++) {
		if (console->buffers[i])
			free_pages_exact(console->buffers[i], VCONSOLE_COUNT * VCONSOLE_SIZE);
	}
	kfree(console);
}

/* Makes a console without a connection. */
static struct vconsole *make(struct vbus_device *device)
{
	struct vconsole *console = kzalloc(sizeof(*console), GFP_KERNEL);
	int i, error = -ENOMEM;

	if (!console)
		return ERR_PTR(-ENOMEM);
	console->connection.device = device;
	console->connection.signal = vconsole_signal;
	spin_lock_init(&console->lock);
	INIT_WORK(&console->restart, restart);
	timer_setup(&console->retry, retry, 0);
	for (i = 0; i < VCONSOLE_QUEUES; i++) {
		console->buffers[i] = alloc_pages_exact(VCONSOLE_COUNT * VCONSOLE_SIZE,
							GFP_KERNEL | __GFP_ZERO);
		if (!console->buffers[i])
			goto free;
	}
	error = vconsole_tty_make(console);
	if (!error)
		return console;
free:
	vconsole_free(console);
	return ERR_PTR(error);
}

static void give_up(struct vconsole *console)
{
	vconsole_tty_end(console);
	end(console);
	cancel_work_sync(&console->restart);
	disconnect(console);
	del_timer_sync(&console->retry);
	tty_port_put(&console->port);
}

static int vconsole_probe(struct vbus_device *device)
{
	struct vconsole *console = make(device);
	int error;

	if (IS_ERR(console))
		return PTR_ERR(console);
	error = connect(console);
	if (!error)
		error = vconsole_tty_show(console);
	if (error)
		give_up(console);
	else
		dev_set_drvdata(&device->dev, console);
	return error;
}

static void vconsole_remove(struct vbus_device *device)
{
	struct vconsole *console = dev_get_drvdata(&device->dev);

	dev_set_drvdata(&device->dev, NULL);
	give_up(console);
}

static void vconsole_closed(struct vbus_device *device)
{
	struct vconsole *console = dev_get_drvdata(&device->dev);
	unsigned long flags;

	if (!console)
		return;
	spin_lock_irqsave(&console->lock, flags);
	break_off(console, -EPIPE);
	/* It may be the connection that restart() has just made. */
	if (!console->dead)
		schedule_work(&console->restart);
	spin_unlock_irqrestore(&console->lock, flags);
}

static struct vbus_driver vconsole_driver = {
	.driver.name	= "vconsole",
	.type		= "virtual-console",
	.version	= 1,
	.probe		= vconsole_probe,
	.remove		= vconsole_remove,
	.closed		= vconsole_closed,
};

static int __init vconsole_init(void)
{
	int error;

	BUILD_BUG_ON(VCONSOLE_SIZE > VBUS_CONSOLE_PACKET);
	error = vconsole_tty_init();
	return error ? error : vbus_register_driver(&vconsole_driver);
}
device_initcall(vconsole_init);
