// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Bare metal: makes the boot information that a hypervisor would have passed
 * from what the PVH loader and the ACPI tables say. Physical memory is reached
 * through the boot code's direct map of 4 GiB; what lies outside is not read.
 */
#include "boot.h"
#include "../kernel/layout.h"

#define START_MAGIC	0x336ec578u
#define E820_RAM	1

struct start_info {
	u32 magic, version, flags, module_count;
	u64 modules, command_line, rsdp, memory_map;
	u32 memory_map_count, reserved;
};

struct memory_map_entry {
	u64 start, size;
	u32 type, reserved;
};

struct rsdp {
	char signature[8];
	u8 checksum, oem[6], revision;
	u32 rsdt;
} __attribute__((packed));

struct acpi_header {
	char signature[4];
	u32 length;
	u8 revision, checksum, oem[6], table[8];
	u32 rest[3];
} __attribute__((packed));

static struct vmi_boot_info info;

static void *physical(u64 gpa)
{
	return (void *)(DIRECT_MAP + gpa);
}

static const struct rsdp *find_rsdp(u64 hint)
{
	u64 at;

	if (hint)
		return physical(hint);
	for (at = 0xe0000; at < 0x100000; at += 16)
		if (!memcmp(physical(at), "RSD PTR ", 8))
			return physical(at);
	return NULL;
}

static const struct acpi_header *find_madt(u64 hint)
{
	const struct rsdp *rsdp = find_rsdp(hint);
	const struct acpi_header *rsdt, *table;
	u32 i, count;

	if (!rsdp || !rsdp->rsdt)
		return NULL;
	rsdt = physical(rsdp->rsdt);
	count = (rsdt->length - sizeof(*rsdt)) / 4;
	for (i = 0; i < count; i++) {
		u32 gpa;

		memcpy(&gpa, (const u8 *)(rsdt + 1) + 4 * i, 4);
		table = physical(gpa);
		if (!memcmp(table->signature, "APIC", 4))
			return table;
	}
	return NULL;
}

/* vCPUs are numbered in the order of the MADT, in which the boot CPU is first. */
static u32 count_cpus(u64 hint)
{
	const struct acpi_header *madt = find_madt(hint);
	const u8 *entry, *end;
	u32 count = 0;

	if (!madt)
		return 1;
	entry = (const u8 *)(madt + 1) + 8;
	end = (const u8 *)madt + madt->length;
	for (; entry + 8 <= end && entry[1] >= 2; entry += entry[1]) {
		/* Local APIC: type 0, id at 3, flags at 4 (bit 0: enabled). */
		if (entry[0] || !(entry[4] & 1) || count == MAX_VCPUS)
			continue;
		pvh_apic_ids[count++] = entry[3];
	}
	return count ? count : 1;
}

u32 pvh_apic_ids[MAX_VCPUS];

static void copy_memory_map(const struct start_info *start)
{
	const struct memory_map_entry *map = physical(start->memory_map);
	u32 i;

	for (i = 0; i < start->memory_map_count; i++) {
		if (info.mem_count == VMI_BOOT_MAX_MEM)
			break;
		if (map[i].start >= 4 * GIB)
			continue;
		info.mem[info.mem_count++] = (struct vmi_mem){
			.gpa = map[i].start,
			.size = map[i].size,
			.kind = map[i].type == E820_RAM ? VMI_MEM_RAM :
				VMI_MEM_RESERVED,
		};
	}
}

const struct vmi_boot_info *pvh_boot_info(u64 start_gpa)
{
	const struct start_info *start = physical(start_gpa);

	if (start->magic != START_MAGIC)
		return NULL;
	info.magic = VMI_BOOT_MAGIC;
	info.size = sizeof(info);
	info.api_version = VMI_API_VERSION;
	info.image = (u64)image_start;
	info.image_gpa = IMAGE_PHYSICAL;
	info.image_size = image_end - image_start;
	info.direct_map = DIRECT_MAP;
	info.direct_map_size = 4 * GIB;
	info.user_end = 0x7ffffffff000;
	info.command_line = start->command_line ?
			    (u64)physical(start->command_line) : (u64)"";
	copy_memory_map(start);
	info.vcpu_count = count_cpus(start->rsdp);
	return &info;
}
