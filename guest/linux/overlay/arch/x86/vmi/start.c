// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entry from a hypervisor: memory layout, layer, page tables, boot_params and hooks. After that the
 * kernel boots as usual.
 *
 * Code here must not use per-CPU data before the GS base is set, nor fault before there is an IDT.
 */
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/mman.h>
#include <linux/mm_types.h>
#include <linux/string.h>
#include <asm/bootparam.h>
#include <asm/cpufeature.h>
#include <asm/desc.h>
#include <asm/e820/types.h>
#include <asm/fixmap.h>
#include <asm/ia32.h>
#include <asm/paravirt.h>
#include <asm/proto.h>
#include <asm/sections.h>
#include <asm/setup.h>
#include <asm/text-patching.h>
#include <asm/tlbflush.h>
#include <asm/vmi_cost.h>
#include "vmi.h"

/*
 * The kernel's addresses, after the end of user space. The runtimes of sanitizers need addresses
 * close to 128 TiB, so the kernel takes as few as it can (VMI_NOTE_COMPACT): 1 TiB for RAM, or as
 * much as there is, 1 TiB for vmalloc(), and 512 GiB each for the page descriptors with the CPU
 * entry areas, and for the fixmap.
 */
#define DIRECT_MAP_LEAST (1UL << 40)
#define VMALLOC_SIZE (VMALLOC_SIZE_TB_LOW << 40)
/* From the end of vmalloc(): the CPU entry areas have the first half of the slot. */
#define VMEMMAP_OFFSET (PGDIR_SIZE / 2)
#define FIXMAP_SLOT 251UL
#define CPU_ENTRY_AREA_SLOT 250UL
bool vmi_entered __ro_after_init;
bool vmi_low __ro_after_init;
/* The end of user space. task_size_max() is an alternative, and none has been applied yet. */
static unsigned long user_end __initdata;
unsigned long vmi_user_start __ro_after_init;
void *vmi_iret_target __ro_after_init;
void *vmi_sysret_target __ro_after_init;

extern char early_xen_iret_patch[];

static void __init __noreturn refuse(const char *why)
{
	vmi_print("VMI: ");
	vmi_print(why);
	vmi_print("\n");
	/* Not before core.init, which has not been called if the layer cannot be used at all. */
	if (vmi_layer.present)
		vmi.core_shutdown(255);
	for (;;)
		asm volatile("ud2");
}

static void __init layout(const struct vmi_boot_info *info)
{
	unsigned int i;

	if (info->user_end < VMI_USER_END_SHORT)
		refuse("user space is smaller than 64 TiB");
	user_end = info->user_end < VMI_USER_END ? VMI_USER_END_SHORT : VMI_USER_END;
	phys_base = info->image_gpa - (info->image - __START_KERNEL_map);
	page_offset_base = info->direct_map;
	vmalloc_base = info->direct_map +
		max(DIRECT_MAP_LEAST, round_up(info->direct_map_size, PGDIR_SIZE));
	vmemmap_base = vmalloc_base + VMALLOC_SIZE + VMEMMAP_OFFSET;
	__FIXADDR_TOP = (FIXADDR_TOP_HIGH & ~PGDIR_MASK) | FIXMAP_SLOT << PGDIR_SHIFT;
	cpu_entry_area_base = CPU_ENTRY_AREA_SLOT << PGDIR_SHIFT;
	/* Without a hole all space near the image is the user's: no modules, no trampolines. */
	modules_vaddr = modules_end = info->image & PMD_MASK;
	for (i = 0; i < info->hole_count && i < VMI_BOOT_MAX_HOLES; i++) {
		const struct vmi_hole *hole = &info->holes[i];

		if (!hole->start)
			vmi_user_start = hole->end;
		if (info->image < hole->start || info->image >= hole->end)
			continue;
		kernel_hole_start = hole->start;
		kernel_hole_size = hole->end - hole->start;
		/* The first page stays unmapped: see user_address_in_hole(). */
		if (kernel_hole_start + PMD_SIZE < modules_end &&
		    (kernel_hole_start & PUD_MASK) == (info->image & PUD_MASK))
			modules_vaddr = kernel_hole_start + PMD_SIZE;
	}
}

/*
 * Whether the layer keeps linear addresses that the kernel uses, or gives to programs. Of the user
 * range it may have what lies in a hole, but for the part of the kernel.
 */
static bool __init layout_overlaps(u64 start, u64 end)
{
	u64 pages = vmi_boot.direct_map_size >> PAGE_SHIFT;
	const u64 used[][2] = {
		{ modules_vaddr, vmi_boot.image + (u64)(_end - _text) },
		{ vmi_boot.direct_map, vmi_boot.direct_map + vmi_boot.direct_map_size },
		{ vmalloc_base, vmalloc_base + VMALLOC_SIZE },
		{ vmemmap_base, vmemmap_base + round_up(pages * sizeof(struct page), PMD_SIZE) },
		{ CPU_ENTRY_AREA_SLOT << PGDIR_SHIFT, (FIXMAP_SLOT + 1) << PGDIR_SHIFT },
	};
	unsigned int i;

	if (start >= end)
		return false;
	for (i = 0; i < ARRAY_SIZE(used); i++)
		if (start < used[i][1] && used[i][0] < end)
			return true;
	if (start >= user_end)
		return false;
	for (i = 0; i < vmi_boot.hole_count && i < VMI_BOOT_MAX_HOLES; i++)
		if (start >= vmi_boot.holes[i].start &&
		    min_t(u64, end, user_end) <= vmi_boot.holes[i].end)
			return false;
	return true;
}

/* Ends the machine if the layer keeps addresses that are in use. */
static void __init check_reserved(void)
{
	const struct vmi_rom_header *h = &vmi_layer.rom.header;
	char why[96];

	if (!layout_overlaps(h->reserve_start, h->reserve_end))
		return;
	snprintf(why, sizeof(why), "the layer keeps addresses %#llx to %#llx, which are in use",
		 h->reserve_start, h->reserve_end);
	refuse(why);
}

static const char defaults[] __initconst = VMI_BOOT_DEFAULTS;

void __init vmi_fill_boot_params(struct boot_params *params, const struct vmi_boot_info *info)
{
	unsigned int i;

	params->hdr.version = 0x20f;
	params->hdr.type_of_loader = 0xff;
	params->hdr.ramdisk_image = info->initrd_gpa;
	params->ext_ramdisk_image = info->initrd_gpa >> 32;
	params->hdr.ramdisk_size = info->initrd_size;
	params->ext_ramdisk_size = info->initrd_size >> 32;
	for (i = 0; i < info->mem_count && i < VMI_BOOT_MAX_MEM; i++) {
		struct boot_e820_entry *entry = &params->e820_table[i];

		entry->addr = info->mem[i].gpa;
		entry->size = info->mem[i].size;
		entry->type = info->mem[i].kind == VMI_MEM_RAM ? E820_TYPE_RAM :
							       E820_TYPE_RESERVED;
	}
	params->e820_entries = i;
}

static void __init fill_command_line(const struct vmi_boot_info *info)
{
	strscpy(boot_command_line, defaults, COMMAND_LINE_SIZE);
	if (info->command_line)
		strlcat(boot_command_line, (const char *)info->command_line, COMMAND_LINE_SIZE);
}

/*
 * The layer hides what it cannot do. These features Linux must not use at privilege level 3 or
 * outside the upper half, even if the processor has them: page tables and protection belong to the
 * hypervisor, further entries into the kernel do not exist, and registers that measure, cache or
 * tune belong to the host.
 */
static const u16 masked[] __initconst = {
	X86_FEATURE_PCID, X86_FEATURE_INVPCID, X86_FEATURE_LA57, X86_FEATURE_PTI,
	X86_FEATURE_SMAP, X86_FEATURE_SMEP, X86_FEATURE_UMIP, X86_FEATURE_PKU, X86_FEATURE_OSPKE,
	X86_FEATURE_IBT, X86_FEATURE_SHSTK, X86_FEATURE_LAM, X86_FEATURE_PAT, X86_FEATURE_MTRR,
	X86_FEATURE_XSAVES, X86_FEATURE_XFD, X86_FEATURE_AMX_TILE,
	X86_FEATURE_SEP, X86_FEATURE_SYSCALL32, X86_FEATURE_FRED,
	X86_FEATURE_MWAIT, X86_FEATURE_WAITPKG, X86_FEATURE_ENQCMD, X86_FEATURE_SGX,
	X86_FEATURE_MCE, X86_FEATURE_MCA, X86_FEATURE_BUS_LOCK_DETECT,
	X86_FEATURE_CORE_CAPABILITIES,
	X86_FEATURE_ARCH_PERFMON, X86_FEATURE_PERFMON_V2, X86_FEATURE_PERFCTR_CORE,
	X86_FEATURE_PERFCTR_NB, X86_FEATURE_PERFCTR_LLC, X86_FEATURE_IBS, X86_FEATURE_DS,
	X86_FEATURE_INTEL_PT, X86_FEATURE_ARCH_LBR, X86_FEATURE_CQM, X86_FEATURE_RDT_A,
	X86_FEATURE_ACPI, X86_FEATURE_ACC, X86_FEATURE_DTHERM, X86_FEATURE_PTS, X86_FEATURE_PLN,
	X86_FEATURE_EST, X86_FEATURE_HWP, X86_FEATURE_EPB, X86_FEATURE_APERFMPERF,
	X86_FEATURE_HW_PSTATE, X86_FEATURE_CPPC, X86_FEATURE_CPB,
	X86_FEATURE_TSC_ADJUST, X86_FEATURE_TSC_DEADLINE_TIMER, X86_FEATURE_CPUID_FAULT,
};

static void __init features(void)
{
	unsigned int i;

	setup_force_cpu_cap(X86_FEATURE_PVCALLS);
	setup_force_cpu_cap(X86_FEATURE_PVPRIV);
	setup_force_cpu_cap(X86_FEATURE_VMI);
	if (user_end == VMI_USER_END_SHORT)
		setup_force_cpu_cap(X86_FEATURE_VMI_SHORT);
	for (i = 0; i < ARRAY_SIZE(masked); i++)
		setup_clear_cpu_cap(masked[i]);
	/* A layer has neither their code segment nor their gates. */
	ia32_disable();
}

asmlinkage __visible void __init vmi_start_kernel(const struct vmi_boot_info *info,
						  unsigned long gs_base)
{
	enum vmi_rom_error error;
	unsigned long root;
	const char *wrong;
	void *data;

	vmi_entered = true;
	if (info->image >= __START_KERNEL_map) {
		vmi_start_high(info);
		refuse("the boot information is damaged");
	}
	error = vmi_layer_from_boot_info(info);
	if (error)
		refuse(vmi_rom_strerror(error));
	if (info->magic != VMI_BOOT_MAGIC || info->size < VMI_BOOT_INFO_LEAST)
		refuse("the boot information is damaged");
	/* Decides which calls are needed. */
	vmi_low = true;
	wrong = vmi_layer_lacks();
	if (wrong)
		refuse(wrong);
	vmi.cpu_set_gs_base(gs_base);
	memcpy(&vmi_boot, info, min_t(size_t, info->size, sizeof(vmi_boot)));
	vmi_copy_devices(&vmi_boot);
	layout(&vmi_boot);
	check_reserved();
	early_boot_irqs_disabled = true;

	data = vmi_early_data();
	if (!data)
		refuse("there is no memory for what the layer needs for a vCPU");
	if (vmi_layer_init(gs_base, data))
		refuse("the layer does not start");
	wrong = vmi_read_records();
	if (wrong)
		refuse(wrong);
	__text_gen_insn(&early_xen_iret_patch, JMP32_INSN_OPCODE, &early_xen_iret_patch,
			&vmi_iret, JMP32_INSN_SIZE);
	vmi_init_costs();
	vmi_init_cpu_ops();
	vmi_init_mmu_ops();
	vmi_init_irq_ops();
	vmi_init_irqs();

	root = vmi_early_page_tables();
	vmi.mmu_register_page_table(root, VMI_LEVEL_PML4 | VMI_PT_KERNEL_ROOT);
	vmi.mmu_set_cr3(root, 1, 1);
	this_cpu_write(cpu_tlbstate.cr4, vmi.cpu_get_cr4());
	idt_setup_early_handler();

	features();
	vmi_fill_boot_params(&boot_params, &vmi_boot);
	fill_command_line(&vmi_boot);
	vmi_init_time();
	vmi_init_machine();
	vmi_init_smp();
	x86_64_start_reservations((char *)__pa_symbol(&boot_params));
}
