// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "device.h"
#include "test.h"
#include "virtio.h"

bool virtio_find(struct virtio *device, u32 id)
{
	u32 i;

	device->registers = device_registers();
	for (i = 0; i < machine.info.device_count; i++) {
		const struct vmi_device *d = device_at(i);

		if (d->kind != VMI_DEVICE_VIRTIO_MMIO)
			continue;
		device_show(d);
		CHECK_EQ(virtio_get(device, MAGIC), 0x74726976);
		CHECK_EQ(virtio_get(device, VERSION), 2);
		device->line = d->line;
		if (virtio_get(device, DEVICE_ID) == id)
			return true;
	}
	return false;
}

void virtio_hide(struct virtio *device)
{
	(void)device;
	device_hide();
}

static void put_address(struct virtio *device, u32 offset, u64 gpa)
{
	virtio_put(device, offset, (u32)gpa);
	virtio_put(device, offset + 4, (u32)(gpa >> 32));
}

void virtio_start(struct virtio *device, u32 size, u64 descriptors, u64 available, u64 used)
{
	virtio_put(device, STATUS, 0);
	WAIT_UNTIL(virtio_get(device, STATUS) == 0);
	virtio_put(device, STATUS, 1);
	virtio_put(device, STATUS, 3);
	virtio_put(device, DEVICE_FEATURES_SEL, 1);
	CHECK(virtio_get(device, DEVICE_FEATURES) & F_VERSION_1);
	virtio_put(device, DRIVER_FEATURES_SEL, 1);
	virtio_put(device, DRIVER_FEATURES, F_VERSION_1);
	virtio_put(device, DRIVER_FEATURES_SEL, 0);
	virtio_put(device, DRIVER_FEATURES, 0);
	virtio_put(device, STATUS, 0xb);
	CHECK_EQ(virtio_get(device, STATUS), 0xb);
	virtio_put(device, QUEUE_SEL, 0);
	CHECK_OP(virtio_get(device, QUEUE_NUM_MAX), >=, size);
	virtio_put(device, QUEUE_NUM, size);
	put_address(device, QUEUE_DESC, descriptors);
	put_address(device, QUEUE_DRIVER, available);
	put_address(device, QUEUE_DEVICE, used);
	virtio_put(device, QUEUE_READY, 1);
	CHECK_EQ(virtio_get(device, QUEUE_READY), 1);
	virtio_put(device, STATUS, 0xf);
	CHECK_EQ(virtio_get(device, STATUS), 0xf);
}
