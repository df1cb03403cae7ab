// SPDX-License-Identifier: GPL-2.0-only
/*
 * A layer in an option ROM, on bare metal or full virtualization, or handed over by a hypervisor
 * that runs the kernel with privilege. The kernel has started in the usual way. It calls the layer
 * for the operations that the layer asks for, and for what the layer offers: ends of interrupts,
 * flushes of spaces, clocks, alarms, stolen time. Everything else stays native.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memblock.h>
#include <linux/minmax.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/io.h>
#include <asm/msr.h>
#include <asm/setup.h>
#include <asm/smp.h>
#include <asm/tlbflush.h>
#include <asm/tsc.h>
#include <asm/vmi.h>
#include "vmi.h"

#define BOOT_INFO_LAYER "layer of the boot information"
/* The length of a ROM is one byte, in units. */
#define ROM_MAX (255 * VMI_ROM_UNIT)

static char wanted[17] __initdata;
static bool refused __initdata;

/* vmi=off refuses every layer; vmi=NAME accepts only the layer of this name. */
static int __init parse_vmi(char *argument)
{
	if (!argument)
		return -EINVAL;
	refused = !strcmp(argument, "off");
	if (!refused)
		strscpy(wanted, argument, sizeof(wanted));
	return 0;
}
early_param("vmi", parse_vmi);

/* Takes the layer whose ROM is at image, unless there is something against it, which is said. */
static bool __init take(const struct vmi_rom *rom, enum vmi_rom_error error, const u8 *image,
			const char *where)
{
	const struct vmi_rom_header *h = &rom->header;

	if (error == VMI_ROM_MAJOR) {
		pr_info("VMI: %s: major version %u, skipped\n", where,
			image[offsetof(struct vmi_rom_header, api_major)]);
		return false;
	}
	if (!error && wanted[0] && strncmp(wanted, (const char *)h->name, sizeof(h->name))) {
		pr_info("VMI: %s: %.16s, not %s, skipped\n", where, h->name, wanted);
		return false;
	}
	/* It has no place in the kernel's address space, and the kernel keeps its privilege. */
	if (!error && h->flags & (VMI_HEADER_IN_PLACE | VMI_HEADER_PARAVIRT)) {
		pr_info("VMI: %s: %.16s is for kernels in the lower half, skipped\n", where,
			h->name);
		return false;
	}
	if (!error)
		error = vmi_layer_load(rom);
	if (error)
		pr_info("VMI: %s: %s, skipped\n", where, vmi_rom_strerror(error));
	return !error;
}

/* The page tables are the kernel's own by now, so the ROM must be in guest-physical memory. */
static bool __init find_in_boot_info(void)
{
	u64 size = min_t(u64, vmi_boot.rom_size, ROM_MAX), gpa;
	enum vmi_rom_error error;
	struct vmi_rom rom;
	bool taken;
	u8 *image;

	pr_info("VMI: entered by a hypervisor\n");
	if (!vmi_boot.rom)
		return false;
	gpa = vmi_boot.rom - vmi_boot.direct_map;
	if (gpa >= vmi_boot.direct_map_size || size > vmi_boot.direct_map_size - gpa) {
		pr_info("VMI: " BOOT_INFO_LAYER ": not in the direct map, skipped\n");
		return false;
	}
	image = size ? early_memremap(gpa, size) : NULL;
	if (!image) {
		pr_info("VMI: " BOOT_INFO_LAYER ": cannot be mapped, skipped\n");
		return false;
	}
	error = vmi_rom_check(&rom, image, size, VMI_ROM_FROM_BOOT_INFO);
	taken = take(&rom, error, image, BOOT_INFO_LAYER);
	early_memunmap(image, size);
	return taken;
}

static bool __init find_in_roms(void)
{
	const u8 *start = isa_bus_to_virt(VMI_ROM_SCAN_START);
	u64 size = VMI_ROM_SCAN_END - VMI_ROM_SCAN_START, at = 0, found;
	enum vmi_rom_error error;
	struct vmi_rom rom;
	char where[24];

	while (vmi_rom_scan(&rom, start, size, &at, &found, &error)) {
		snprintf(where, sizeof(where), "ROM at %#llx", VMI_ROM_SCAN_START + found);
		if (take(&rom, error, start + found, where))
			return true;
	}
	return false;
}

static void (*prepare_boot_cpu)(void) __initdata;

/*
 * The per-CPU areas have just been allocated. The boot vCPU's has moved, and the others are copies
 * of it.
 */
static void __init vmi_smp_prepare_boot_cpu(void)
{
	unsigned int cpu;

	prepare_boot_cpu();
	vmi_percpu_table[0] = this_cpu_ptr(&vmi_percpu);
	for_each_possible_cpu(cpu)
		if (cpu && vmi_percpu_prepare(cpu))
			panic("VMI: no memory for the layer's data");
	vmi_boot.vcpu_count = num_possible_cpus();
	vmi_init_locks();
}

/* A layer that has a part in spaces knows no PCIDs. */
static void __init without_pcids(void)
{
	if (!boot_cpu_has(X86_FEATURE_PCID) ||
	    (!vmi_can_flush &&
	     vmi_layer_record(VMI_CALL_MMU_SET_CR3) == VMI_RELOC_NONE))
		return;
	setup_clear_cpu_cap(X86_FEATURE_PCID);
	cr4_clear_bits(X86_CR4_PCIDE);
}

void __init vmi_find_rom(void)
{
	unsigned long gs_base;
	const char *wrong;
	void *data;
	int result;

	if (vmi_layer.present || refused)
		return;
	/* A hypervisor may hand over a layer, and ROMs are there for all kernels. */
	if (!(vmi_entered && find_in_boot_info()) && !find_in_roms())
		return;
	wrong = vmi_layer_lacks();
	if (wrong) {
		pr_info("VMI: layer %s: %s, native\n", vmi_layer.name, wrong);
		return;
	}
	if (vmi_layer_in_the_way()) {
		pr_info("VMI: layer %s: keeps addresses %#llx to %#llx, which are in use, native\n",
			vmi_layer.name, vmi_layer.rom.header.reserve_start,
			vmi_layer.rom.header.reserve_end);
		return;
	}
	rdmsrl(MSR_GS_BASE, gs_base);
	vmi_boot.vcpu_count = NR_CPUS;
	vmi_boot.direct_map = PAGE_OFFSET;
	vmi_boot.direct_map_size = PFN_PHYS(max_pfn);
	vmi_boot.tsc_hz = tsc_khz * 1000UL;
	data = memblock_alloc(vmi_layer.rom.header.percpu_size + 1, VMI_PERCPU_ALIGN);
	result = data ? vmi_layer_init(gs_base, data) : -VMI_ENOSPC;
	if (result) {
		pr_info("VMI: layer %s does not start (error %d), native\n", vmi_layer.name,
			-result);
		return;
	}
	wrong = vmi_read_records();
	if (wrong) {
		vmi_layer.present = false;
		pr_info("VMI: layer %s: %s, native\n", vmi_layer.name, wrong);
		return;
	}
	wrong = vmi_layer_unmarked();
	if (wrong) {
		/* Indirect branch tracking would fault at its entry. */
		pr_info("VMI: layer %s: %s has no endbr64, without IBT\n", vmi_layer.name, wrong);
		setup_clear_cpu_cap(X86_FEATURE_IBT);
	}
	prepare_boot_cpu = smp_ops.smp_prepare_boot_cpu;
	smp_ops.smp_prepare_boot_cpu = vmi_smp_prepare_boot_cpu;
	vmi_init_cpu_ops();
	vmi_init_mmu_ops();
	vmi_init_irq_ops();
	vmi_init_eoi();
	vmi_init_ipis();
	vmi_init_flush_preempted();
	vmi_init_wallclock();
	vmi_init_alarms();
	without_pcids();
	if (vmi_sites_differ())
		setup_force_cpu_cap(X86_FEATURE_PVCALLS);
	pr_info("VMI: layer %s %u.%u\n", vmi_layer.name, vmi_layer.rom.header.api_major,
		vmi_layer.rom.header.api_minor);
}
