// SPDX-License-Identifier: GPL-2.0-only
/* The terminals of consoles of the virtual bus. */
#include <linux/err.h>
#include <linux/idr.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include "vconsole.h"

/* Terminals. */
#define MINORS 16

static struct tty_driver *driver;
/* Consoles by index. One without a device keeps its index until its terminal is closed. */
static DEFINE_IDR(consoles);
static DEFINE_MUTEX(consoles_lock);

static int vconsole_activate(struct tty_port *port, struct tty_struct *tty)
{
	struct vconsole *console = container_of(port, struct vconsole, port);
	unsigned long flags;

	spin_lock_irqsave(&console->lock, flags);
	console->active = true;
	console->throttled = false;
	vconsole_receive(console);
	spin_unlock_irqrestore(&console->lock, flags);
	return 0;
}

static void vconsole_shutdown(struct tty_port *port)
{
	struct vconsole *console = container_of(port, struct vconsole, port);
	unsigned long flags;

	spin_lock_irqsave(&console->lock, flags);
	console->active = false;
	spin_unlock_irqrestore(&console->lock, flags);
}

/* The device has ended, and no program has the terminal open. */
static void vconsole_destruct(struct tty_port *port)
{
	struct vconsole *console = container_of(port, struct vconsole, port);

	mutex_lock(&consoles_lock);
	idr_remove(&consoles, console->index);
	mutex_unlock(&consoles_lock);
	vconsole_free(console);
}

static const struct tty_port_operations port_operations = {
	.activate	= vconsole_activate,
	.shutdown	= vconsole_shutdown,
	.destruct	= vconsole_destruct,
};

static int vconsole_install(struct tty_driver *drv, struct tty_struct *tty)
{
	struct vconsole *console;
	int error;

	mutex_lock(&consoles_lock);
	console = idr_find(&consoles, tty->index);
	if (console)
		tty_port_get(&console->port);
	mutex_unlock(&consoles_lock);
	if (!console)
		return -ENODEV;
	tty->driver_data = console;
	error = tty_port_install(&console->port, drv, tty);
	if (error)
		tty_port_put(&console->port);
	return error;
}

static int vconsole_open(struct tty_struct *tty, struct file *file)
{
	return tty_port_open(tty->port, tty, file);
}

static void vconsole_close(struct tty_struct *tty, struct file *file)
{
	tty_port_close(tty->port, tty, file);
}

static void vconsole_hangup(struct tty_struct *tty)
{
	tty_port_hangup(tty->port);
}

static void vconsole_cleanup(struct tty_struct *tty)
{
	tty_port_put(tty->port);
}

/* Under the lock. */
static unsigned int room(struct vconsole *console)
{
	const struct vbus_north *north = &vconsole_queue(console, VCONSOLE_TX)->north;

	return vconsole_works(console) ? north->count - (north->tail - north->head) : 0;
}

static ssize_t vconsole_write(struct tty_struct *tty, const u8 *bytes, size_t count)
{
	struct vconsole *console = tty->driver_data;
	unsigned long flags;
	size_t sent = 0;

	spin_lock_irqsave(&console->lock, flags);
	if (console->dead) {
		spin_unlock_irqrestore(&console->lock, flags);
		return -EIO;
	}
	if (vconsole_works(console))
		vconsole_reclaim(console);
	while (sent < count && room(console)) {
		u32 tail = vconsole_queue(console, VCONSOLE_TX)->north.tail;
		u32 place = (tail & (VCONSOLE_COUNT - 1)) * VCONSOLE_SIZE;
		u32 len = min_t(size_t, count - sent, VCONSOLE_SIZE);

		memcpy(console->buffers[VCONSOLE_TX] + place, bytes + sent, len);
		if (!vconsole_post(console, VCONSOLE_TX, len))
			break;
		console->queued += len;
		sent += len;
	}
	vconsole_tell(console, VCONSOLE_TX);
	spin_unlock_irqrestore(&console->lock, flags);
	return sent;
}

static unsigned int vconsole_write_room(struct tty_struct *tty)
{
	struct vconsole *console = tty->driver_data;
	unsigned long flags;
	unsigned int free;

	spin_lock_irqsave(&console->lock, flags);
	free = room(console);
	spin_unlock_irqrestore(&console->lock, flags);
	return free * VCONSOLE_SIZE;
}

static unsigned int vconsole_chars_in_buffer(struct tty_struct *tty)
{
	struct vconsole *console = tty->driver_data;
	unsigned long flags;
	unsigned int queued;

	spin_lock_irqsave(&console->lock, flags);
	queued = vconsole_works(console) ? console->queued : 0;
	spin_unlock_irqrestore(&console->lock, flags);
	return queued;
}

static void vconsole_throttle(struct tty_struct *tty)
{
	struct vconsole *console = tty->driver_data;
	unsigned long flags;

	spin_lock_irqsave(&console->lock, flags);
	console->throttled = true;
	spin_unlock_irqrestore(&console->lock, flags);
}

static void vconsole_unthrottle(struct tty_struct *tty)
{
	struct vconsole *console = tty->driver_data;
	unsigned long flags;

	spin_lock_irqsave(&console->lock, flags);
	console->throttled = false;
	vconsole_receive(console);
	spin_unlock_irqrestore(&console->lock, flags);
}

static const struct tty_operations operations = {
	.install		= vconsole_install,
	.open			= vconsole_open,
	.close			= vconsole_close,
	.hangup			= vconsole_hangup,
	.cleanup		= vconsole_cleanup,
	.write			= vconsole_write,
	.write_room		= vconsole_write_room,
	.chars_in_buffer	= vconsole_chars_in_buffer,
	.throttle		= vconsole_throttle,
	.unthrottle		= vconsole_unthrottle,
};

int vconsole_tty_make(struct vconsole *console)
{
	mutex_lock(&consoles_lock);
	console->index = idr_alloc(&consoles, console, 0, MINORS, GFP_KERNEL);
	mutex_unlock(&consoles_lock);
	if (console->index < 0)
		return console->index;
	tty_port_init(&console->port);
	console->port.ops = &port_operations;
	return 0;
}

int vconsole_tty_show(struct vconsole *console)
{
	struct device *parent = &console->connection.device->dev;
	struct device *dev = tty_port_register_device(&console->port, driver, console->index,
						      parent);

	console->shown = !IS_ERR(dev);
	return PTR_ERR_OR_ZERO(dev);
}

void vconsole_tty_end(struct vconsole *console)
{
	struct tty_struct *tty;

	mutex_lock(&consoles_lock);
	idr_replace(&consoles, NULL, console->index);
	mutex_unlock(&consoles_lock);
	if (console->shown)
		tty_unregister_device(driver, console->index);
	tty = tty_port_tty_get(&console->port);
	if (tty) {
		tty_vhangup(tty);
		tty_kref_put(tty);
	}
}

int __init vconsole_tty_init(void)
{
	driver = tty_alloc_driver(MINORS, TTY_DRIVER_REAL_RAW | TTY_DRIVER_DYNAMIC_DEV);
	if (IS_ERR(driver))
		return PTR_ERR(driver);
	driver->driver_name = "vconsole";
	driver->name = "vbc";
	driver->type = TTY_DRIVER_TYPE_SERIAL;
	driver->subtype = SERIAL_TYPE_NORMAL;
	driver->init_termios = tty_std_termios;
	tty_set_operations(driver, &operations);
	return tty_register_driver(driver);
}
