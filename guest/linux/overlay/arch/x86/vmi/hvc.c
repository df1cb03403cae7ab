// SPDX-License-Identifier: GPL-2.0-only
/* The layer's console as hvc0. It has no input yet. */
#include <linux/init.h>
#include <linux/sizes.h>
#include "../../../drivers/tty/hvc/hvc_console.h"
#include "vmi.h"

static ssize_t hvc_vmi_put(uint32_t vtermno, const u8 *text, size_t count)
{
	s64 written = vmi.core_console_write(text, min_t(size_t, count, SZ_64K));

	return written < 0 ? -EIO : written;
}

static ssize_t hvc_vmi_get(uint32_t vtermno, u8 *text, size_t count)
{
	return 0;
}

/* Prevents khvcd from polling for input several times a second: there is none. */
static int hvc_vmi_open(struct hvc_struct *hp, int data)
{
	hp->irq_requested = 1;
	return 0;
}

static void hvc_vmi_close(struct hvc_struct *hp, int data)
{
	hp->irq_requested = 0;
}

static const struct hv_ops hvc_vmi_ops = {
	.get_chars = hvc_vmi_get,
	.put_chars = hvc_vmi_put,
	.notifier_add = hvc_vmi_open,
	.notifier_del = hvc_vmi_close,
	.notifier_hangup = hvc_vmi_close,
};

static int __init hvc_vmi_console(void)
{
	if (!vmi_low)
		return -ENODEV;
	return hvc_instantiate(0, 0, &hvc_vmi_ops);
}
console_initcall(hvc_vmi_console);

static int __init hvc_vmi_init(void)
{
	if (!vmi_low)
		return -ENODEV;
	return PTR_ERR_OR_ZERO(hvc_alloc(0, 0, &hvc_vmi_ops, 1024));
}
device_initcall(hvc_vmi_init);
