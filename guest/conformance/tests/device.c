// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "device.h"
#include "test.h"

const struct vmi_device *device_at(u32 number)
{
	return (const void *)(machine.info.devices + number * machine.info.device_size);
}

u64 device_registers(void)
{
	return kernel_area + 5 * PAGE_SIZE;
}

static void show(u64 entry)
{
	u64 va = device_registers();

	vmi.mmu_set_pte(kernel_pte(va, VMI_LEVEL_PT), entry, VMI_LEVEL_PT, va);
	vmi.mmu_flush_kernel_range(va, va + PAGE_SIZE);
}

void device_show(const struct vmi_device *device)
{
	show(device->gpa | PTE_P | PTE_W | PTE_A | PTE_D | PTE_NX | PTE_PCD | PTE_PWT);
}

void device_hide(void)
{
	show(0);
}
