// SPDX-License-Identifier: GPL-2.0-only
/* The bus type: finds the driver for a device of the virtual bus. */
#include <linux/err.h>
#include <linux/init.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include "vbus.h"

static ssize_t type_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%s\n", to_vbus_device(dev)->type);
}
static DEVICE_ATTR_RO(type);

static ssize_t version_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%u\n", to_vbus_device(dev)->version);
}
static DEVICE_ATTR_RO(version);

static struct attribute *vbus_attrs[] = {
	&dev_attr_type.attr,
	&dev_attr_version.attr,
	NULL,
};
ATTRIBUTE_GROUPS(vbus);

static int vbus_match(struct device *dev, const struct device_driver *driver)
{
	const struct vbus_driver *found = to_vbus_driver(driver);
	struct vbus_device *device = to_vbus_device(dev);

	return found->version == device->version && !strcmp(found->type, device->type);
}

static int vbus_probe(struct device *dev)
{
	return to_vbus_driver(dev->driver)->probe(to_vbus_device(dev));
}

static void vbus_remove(struct device *dev)
{
	to_vbus_driver(dev->driver)->remove(to_vbus_device(dev));
}

static const struct bus_type vbus_type = {
	.name		= "vbus",
	.dev_groups	= vbus_groups,
	.match		= vbus_match,
	.probe		= vbus_probe,
	.remove		= vbus_remove,
};

int vbus_register_driver(struct vbus_driver *driver)
{
	driver->driver.bus = &vbus_type;
	return driver_register(&driver->driver);
}

static void release(struct device *dev)
{
	kfree(to_vbus_device(dev));
}

struct vbus_device *vbus_add_device(struct vbus_bus *bus, struct device *parent, int number, u32 id,
				    u32 version, const char *type)
{
	struct vbus_device *device = kzalloc(sizeof(*device), GFP_KERNEL);
	int error;

	if (!device)
		return ERR_PTR(-ENOMEM);
	device->bus = bus;
	device->id = id;
	device->version = version;
	strscpy(device->type, type);
	device->dev.bus = &vbus_type;
	device->dev.parent = parent;
	device->dev.release = release;
	dev_set_name(&device->dev, "vbus%d-%u", number, id);
	error = device_register(&device->dev);
	if (error) {
		put_device(&device->dev);
		return ERR_PTR(error);
	}
	return device;
}

static int __init vbus_init(void)
{
	return bus_register(&vbus_type);
}
postcore_initcall(vbus_init);
