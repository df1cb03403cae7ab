// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entry from a hypervisor: memory layout, layer, page tables, boot_params, hooks; then the ordinary way.
 *
 * Nothing here may use per-CPU data before the GS base is set, nor fault before there is an IDT.
 */
#include <linux/irqflags.h>
#include <linux/string.h>
#include <asm/bootparam.h>
#include <asm/cpufeature.h>
#include <asm/desc.h>
#include <asm/e820/types.h>
#include <asm/fixmap.h>
#include <asm/paravirt.h>
#include <asm/proto.h>
#include <asm/sections.h>
#include <asm/setup.h>
#include <asm/text-patching.h>
#include <asm/tlbflush.h>
#include "vmi.h"

/* From the direct map's start: more than the RAM of any machine that this runs on, then as in the upper half. */
#define VMALLOC_OFFSET (16UL << 40)
#define VMEMMAP_OFFSET (VMALLOC_OFFSET + (VMALLOC_SIZE_TB_L4 << 40))
#define FIXMAP_SLOT 251UL
#define CPU_ENTRY_AREA_SLOT 250UL

/* The boot vCPU's layer data: it starts before there is an allocator. */
static u8 boot_data[2 * PAGE_SIZE] __aligned(VMI_PERCPU_ALIGN);

bool vmi_low __ro_after_init;
void *vmi_iret_target __ro_after_init;
void *vmi_sysret_target __ro_after_init;

extern char early_xen_iret_patch[];

static void __init __noreturn refuse(const char *why)
{
	vmi_print("VMI: ");
	vmi_print(why);
	vmi_print("\n");
	if (vmi.core_shutdown)
		vmi.core_shutdown(255);
	for (;;)
		asm volatile("ud2");
}

static void __init layout(const struct vmi_boot_info *info)
{
	phys_base = info->image_gpa - (info->image - __START_KERNEL_map);
	page_offset_base = info->direct_map;
	vmalloc_base = info->direct_map + VMALLOC_OFFSET;
	vmemmap_base = info->direct_map + VMEMMAP_OFFSET;
	__FIXADDR_TOP = (FIXADDR_TOP_HIGH & ~PGDIR_MASK) | FIXMAP_SLOT << PGDIR_SHIFT;
	cpu_entry_area_base = CPU_ENTRY_AREA_SLOT << PGDIR_SHIFT;
	if (info->hole_count) {
		kernel_hole_start = info->holes[0].start;
		kernel_hole_size = info->holes[0].end - info->holes[0].start;
	}
}

static void __init fill_boot_params(const struct vmi_boot_info *info)
{
	unsigned int i;

	boot_params.hdr.version = 0x20f;
	boot_params.hdr.type_of_loader = 0xff;
	boot_params.hdr.ramdisk_image = info->initrd_gpa;
	boot_params.ext_ramdisk_image = info->initrd_gpa >> 32;
	boot_params.hdr.ramdisk_size = info->initrd_size;
	boot_params.ext_ramdisk_size = info->initrd_size >> 32;
	for (i = 0; i < info->mem_count && i < VMI_BOOT_MAX_MEM; i++) {
		struct boot_e820_entry *entry = &boot_params.e820_table[i];

		entry->addr = info->mem[i].gpa;
		entry->size = info->mem[i].size;
		entry->type = info->mem[i].kind == VMI_MEM_RAM ? E820_TYPE_RAM :
							       E820_TYPE_RESERVED;
	}
	boot_params.e820_entries = i;
	if (info->command_line)
		strscpy(boot_command_line, (const char *)info->command_line, COMMAND_LINE_SIZE);
}

/* The layer hides what it cannot do; this is what Linux must not do in privilege level 3 whatever the processor can. */
static void __init features(void)
{
	setup_force_cpu_cap(X86_FEATURE_PVCALLS);
	setup_force_cpu_cap(X86_FEATURE_PVPRIV);
	setup_force_cpu_cap(X86_FEATURE_VMI);
	setup_clear_cpu_cap(X86_FEATURE_PCID);
	setup_clear_cpu_cap(X86_FEATURE_INVPCID);
	setup_clear_cpu_cap(X86_FEATURE_SMAP);
	setup_clear_cpu_cap(X86_FEATURE_SMEP);
	setup_clear_cpu_cap(X86_FEATURE_UMIP);
	setup_clear_cpu_cap(X86_FEATURE_MWAIT);
	setup_clear_cpu_cap(X86_FEATURE_LA57);
	setup_clear_cpu_cap(X86_FEATURE_XSAVES);
	setup_clear_cpu_cap(X86_FEATURE_SEP);
	setup_clear_cpu_cap(X86_FEATURE_SYSCALL32);
	setup_clear_cpu_cap(X86_FEATURE_MTRR);
	setup_clear_cpu_cap(X86_FEATURE_ARCH_PERFMON);
	setup_clear_cpu_cap(X86_FEATURE_ACPI);
	setup_clear_cpu_cap(X86_FEATURE_ACC);
}

asmlinkage __visible void __init vmi_start_kernel(const struct vmi_boot_info *info,
						  unsigned long gs_base)
{
	enum vmi_rom_error error;
	unsigned long root;

	error = vmi_layer_from_boot_info(info);
	if (error)
		refuse(vmi_rom_strerror(error));
	if (info->magic != VMI_BOOT_MAGIC || info->size < sizeof(*info))
		refuse("the boot information is damaged");
	vmi.cpu_set_gs_base(gs_base);
	vmi_boot = *info;
	vmi_copy_devices(info);
	layout(info);
	early_boot_irqs_disabled = true;
	vmi_low = true;

	if (vmi_layer.rom.header.percpu_size > sizeof(boot_data))
		refuse("the layer wants more data for a vCPU than there is yet");
	if (vmi_layer_init(gs_base, boot_data))
		refuse("the layer does not start");
	__text_gen_insn(&early_xen_iret_patch, JMP32_INSN_OPCODE, &early_xen_iret_patch,
			&vmi_iret, JMP32_INSN_SIZE);
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
	fill_boot_params(info);
	vmi_init_time();
	vmi_init_machine();
	vmi_init_smp();
	x86_64_start_reservations((char *)__pa_symbol(&boot_params));
}
