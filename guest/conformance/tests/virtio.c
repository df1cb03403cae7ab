// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "test.h"
#include "virtio.h"

static const struct vmi_device *device_at(u32 number)
{
	return (const void *)(machine.info.devices + number * machine.info.device_size);
}

static void show(const struct virtio *device, u64 entry)
{
	u64 *pte = kernel_pte(device->registers, VMI_LEVEL_PT);

	vmi.mmu_set_pte(pte, entry, VMI_LEVEL_PT, device->registers);
	vmi.mmu_flush_kernel_range(device->registers, device->registers + PAGE_SIZE);
}

bool virtio_find(struct virtio *device, u32 id)
{
	u32 i;

	device->registers = kernel_area + 5 * PAGE_SIZE;
	for (i = 0; i < machine.info.device_count; i++) {
		const struct vmi_device *d = device_at(i);

		if (d->kind != VMI_DEVICE_VIRTIO_MMIO)
			continue;
		show(device, d->gpa | PTE_P | PTE_W | PTE_A | PTE_D | PTE_NX | PTE_PCD | PTE_PWT);
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
	show(device, 0);
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
