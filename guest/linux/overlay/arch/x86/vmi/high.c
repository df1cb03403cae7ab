// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entry from a hypervisor with the image at its usual place in the upper half: privileged
 * instructions work, and only the loader is another one. The kernel starts as after any other, with
 * what the boot information says, and rom.c takes the layer from there.
 *
 * Code here runs in the hypervisor's page tables, and ends at the kernel's own entry, which needs
 * the image at its physical address.
 */
#include <linux/minmax.h>
#include <linux/pgtable.h>
#include <linux/string.h>
#include <asm/bootparam.h>
#include <asm/page.h>
#include <asm/sections.h>
#include <asm/setup.h>
#include "vmi.h"

#define TABLE (_PAGE_PRESENT | _PAGE_RW)
#define LEAF (_PAGE_PRESENT | _PAGE_RW | _PAGE_PSE)

void startup_64(void);

/* What the entry reads before it zeroes the kernel's .bss. */
static struct boot_params params __initdata;
static char line[COMMAND_LINE_SIZE] __initdata;

/* The image, where it is linked, and where it lies: two GiB, since it may cross from one. */
static u64 root[512] __initdata __aligned(PAGE_SIZE);
static u64 linked_gib[512] __initdata __aligned(PAGE_SIZE);
static u64 linked[512] __initdata __aligned(PAGE_SIZE);
static u64 place_gib[512] __initdata __aligned(PAGE_SIZE);
static u64 place[2][512] __initdata __aligned(PAGE_SIZE);

static u64 delta __initdata;

static u64 __init physical(const void *symbol)
{
	return (u64)symbol - __START_KERNEL_map + delta;
}

static void __init fill_tables(u64 gpa)
{
	u64 first = gpa & PUD_MASK;
	unsigned int i;

	root[pgd_index(__START_KERNEL_map)] = physical(linked_gib) | TABLE;
	linked_gib[pud_index(__START_KERNEL_map)] = physical(linked) | TABLE;
	root[pgd_index(first)] = physical(place_gib) | TABLE;
	for (i = 0; i < PTRS_PER_PMD; i++) {
		linked[i] = (delta + i * PMD_SIZE) | LEAF;
		place[0][i] = (first + i * PMD_SIZE) | LEAF;
		place[1][i] = (first + PUD_SIZE + i * PMD_SIZE) | LEAF;
	}
	place_gib[pud_index(first)] = physical(place[0]) | TABLE;
	/* The image does not cross 512 GiB: vmi_high_good() */
	place_gib[(pud_index(first) + 1) % PTRS_PER_PUD] = physical(place[1]) | TABLE;
}

static bool __init vmi_high_good(const struct vmi_boot_info *info)
{
	u64 end = info->image_gpa + (u64)_end - (u64)_text;

	return info->image == (u64)_text && !(info->image_gpa & ~PMD_MASK) &&
	       info->image_gpa >> PGDIR_SHIFT == (end - 1) >> PGDIR_SHIFT;
}

void __init vmi_start_high(const struct vmi_boot_info *info)
{
	/* There is nothing yet that could report the reason. */
	if (info->magic != VMI_BOOT_MAGIC || info->size < VMI_BOOT_INFO_LEAST ||
	    !vmi_high_good(info))
		return;
	memcpy(&vmi_boot, info, min_t(size_t, info->size, sizeof(vmi_boot)));
	delta = info->image_gpa - ((u64)_text - __START_KERNEL_map);
	vmi_fill_boot_params(&params, &vmi_boot);
	params.hdr.header = 0x53726448;		/* HdrS */
	if (vmi_boot.command_line)
		strscpy(line, (const char *)vmi_boot.command_line, sizeof(line));
	params.hdr.cmd_line_ptr = physical(line);
	params.ext_cmd_line_ptr = physical(line) >> 32;
	params.hdr.cmdline_size = sizeof(line) - 1;
	fill_tables(vmi_boot.image_gpa);
	vmi_enter_again(physical(root), physical(&params), physical(startup_64));
}
