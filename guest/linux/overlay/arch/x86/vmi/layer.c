// SPDX-License-Identifier: GPL-2.0-only
/* Loads and starts a layer; the table of its calls; per-vCPU data for it. */
#include <linux/cache.h>
#include <linux/errno.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/stringify.h>
#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/fixmap.h>
#include <asm/msr.h>
#include <asm/segment.h>
#include <asm/smp.h>
#include <asm/vmi.h>
#include "vmi.h"

struct vmi_calls vmi __ro_after_init;
struct vmi_layer vmi_layer __ro_after_init;
struct vmi_boot_info vmi_boot __ro_after_init;

DEFINE_PER_CPU_ALIGNED(struct vmi_percpu, vmi_percpu);
struct vmi_percpu *vmi_percpu_table[NR_CPUS];

/* For each vCPU until it has per-CPU data. */
static struct vmi_percpu early_percpu[NR_CPUS] __aligned(VMI_PERCPU_ALIGN);

/* The boot vCPU's layer data at an entry from a hypervisor, if they are no larger. */
static u8 early_data[2 * PAGE_SIZE] __aligned(VMI_PERCPU_ALIGN);

static bool __init overlaps(u64 start, u64 size, u64 other, u64 other_size)
{
	return start < other + other_size && other < start + size;
}

void vmi_print(const char *text)
{
	if (vmi.core_console_write)
		vmi.core_console_write(text, strlen(text));
}

static void *call_entry(u32 call)
{
	struct vmi_call_entry entry;

	if (!vmi_rom_call(&vmi_layer.rom, vmi_layer.base, call, &entry))
		return NULL;
	return (void *)(vmi_layer.base + entry.offset);
}

static void fill_table(void)
{
#define X(SECTION, section, CALL, name, number, CLASS, since) \
	vmi.section##_##name = call_entry(number);
	VMI_FOR_EACH_CALL(X)
#undef X
	vmi_iret_target = vmi.cpu_iret;
	vmi_sysret_target = vmi.cpu_sysret;
}

/* Uses a layer where it lies, or copies it to where the kernel can call it. */
enum vmi_rom_error vmi_layer_load(const struct vmi_rom *rom)
{
	const struct vmi_rom_header *h = &rom->header;
	u8 *space;

	vmi_layer.rom = *rom;
	vmi_layer.base = rom->image;
	if (!(h->flags & VMI_HEADER_IN_PLACE)) {
		space = vmi_layer_space(h->load_size);
		if (!space)
			return VMI_ROM_LOAD_SIZE;
		memcpy(space, rom->image, h->image_size);
		memset(space + h->image_size, 0, h->load_size - h->image_size);
		vmi_layer.base = space;
		vmi_layer.rom.image = space;
	}
	memcpy(vmi_layer.name, h->name, sizeof(h->name));
	fill_table();
	return VMI_ROM_OK;
}

enum vmi_rom_error vmi_layer_from_boot_info(const struct vmi_boot_info *info)
{
	enum vmi_rom_error error;
	struct vmi_rom rom;

	error = vmi_rom_check(&rom, (const void *)info->rom, info->rom_size,
			      VMI_ROM_FROM_BOOT_INFO);
	return error ? error : vmi_layer_load(&rom);
}

unsigned int vmi_layer_record(u32 call)
{
	struct vmi_call_entry entry;

	return vmi_rom_call(&vmi_layer.rom, vmi_layer.base, call, &entry) ? entry.reloc :
									     VMI_RELOC_NONE;
}

bool vmi_layer_has(u32 call)
{
	return call_entry(call);
}

/* Sections that Linux needs to run on a layer, and those that it needs in a ROM. */
#define NEEDED_LOW (BIT(VMI_SECTION_CORE) | BIT(VMI_SECTION_CPU) | BIT(VMI_SECTION_MMU) | \
		    BIT(VMI_SECTION_APIC) | BIT(VMI_SECTION_SMP) | BIT(VMI_SECTION_TIME))
#define NEEDED_ROM (BIT(VMI_SECTION_CORE) | BIT(VMI_SECTION_CPU) | BIT(VMI_SECTION_MMU))

/* Without a native form the macro does not expand, and its text is its name. */
#define HAS_NATIVE(SECTION, CALL)						\
	strcmp(__stringify(VMI_NATIVE_STR_##SECTION##_##CALL),			\
	       __stringify_1(VMI_NATIVE_STR_##SECTION##_##CALL))

const char *__init vmi_layer_lacks(void)
{
	unsigned long needed = vmi_low ? NEEDED_LOW : NEEDED_ROM;

	/*
	 * The kernel can do without calls of later versions. In the lower half the native form of a
	 * call does not work, and the kernel makes the call.
	 */
#define X(SECTION, section, CALL, name, number, CLASS, since)			\
	if (since == 1 && needed & BIT(number >> 8) && !vmi.section##_##name &&	\
	    (vmi_low || !HAS_NATIVE(SECTION, CALL)))				\
		return #section "." #name " is absent";
	VMI_FOR_EACH_CALL(X)
#undef X
	return NULL;
}

static const u8 endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };

const char *__init vmi_layer_unmarked(void)
{
#define X(SECTION, section, CALL, name, number, CLASS, since)				\
	if (vmi.section##_##name && memcmp(vmi.section##_##name, endbr64, sizeof(endbr64)))	\
		return #section "." #name;
	VMI_FOR_EACH_CALL(X)
#undef X
	return NULL;
}

bool vmi_layer_inline(u32 call, struct vmi_inline *insns)
{
	u32 size = vmi_layer.rom.header.image_size;
	struct vmi_call_entry entry;

	if (!vmi_rom_call(&vmi_layer.rom, vmi_layer.base, call, &entry) ||
	    !entry.inline_offset || entry.inline_offset > size - sizeof(*insns))
		return false;
	memcpy(insns, vmi_layer.base + entry.inline_offset, sizeof(*insns));
	return insns->length && insns->length <= VMI_INLINE_MAX;
}

u32 vmi_layer_features(u32 id)
{
	struct vmi_section section;

	return vmi_rom_usable(&vmi_layer.rom, id, &section) ? section.features : 0;
}

bool vmi_in_layer(unsigned long ip)
{
	return ip - (unsigned long)vmi_layer.base < vmi_layer.rom.header.load_size;
}

void vmi_set_memory_nx(unsigned long start, unsigned long end)
{
	unsigned long layer = (unsigned long)vmi_layer.base;
	unsigned long layer_end = layer + PFN_ALIGN(vmi_layer.rom.header.load_size);

	if (vmi_layer.present && start < layer && layer_end < end) {
		set_memory_nx(start, (layer - start) >> PAGE_SHIFT);
		start = layer_end;
	}
	set_memory_nx(start, (end - start) >> PAGE_SHIFT);
}

static u32 __ref apic_id(unsigned int cpu)
{
	return vmi_low ? cpu : early_per_cpu(x86_cpu_to_apicid, cpu);
}

unsigned long __ref vmi_layer_apic(void)
{
	u64 base;

	if (vmi_low || !boot_cpu_has(X86_FEATURE_APIC) || apic_is_disabled ||
	    rdmsrl_safe(MSR_IA32_APICBASE, &base) || !(base & MSR_IA32_APICBASE_ENABLE))
		return 0;
	/* The kernel has mapped it already, unless it uses the registers of x2APIC mode. */
	set_fixmap_nocache(FIX_APIC_BASE, base & PHYSICAL_PAGE_MASK);
	return APIC_BASE;
}

/*
 * The layer data of the boot vCPU, which stay where they are. RAM has them beside what the
 * hypervisor has put there.
 */
void *__init vmi_early_data(void)
{
	u64 size = PAGE_ALIGN(vmi_layer.rom.header.percpu_size);
	u32 i, k;

	if (size <= sizeof(early_data))
		return early_data;
	for (i = min_t(u32, vmi_boot.mem_count, VMI_BOOT_MAX_MEM); i-- > 0;) {
		const struct vmi_mem *mem = &vmi_boot.mem[i];
		/* It may end with the RAM, or before what lies in it. */
		u64 ends[] = { mem->gpa + mem->size, vmi_boot.initrd_gpa, vmi_boot.image_gpa };

		for (k = 0; mem->kind == VMI_MEM_RAM && k < ARRAY_SIZE(ends); k++) {
			u64 start = round_down(ends[k], PAGE_SIZE) - size;

			if (ends[k] < size || start < mem->gpa || ends[k] > mem->gpa + mem->size ||
			    overlaps(start, size, vmi_boot.initrd_gpa, vmi_boot.initrd_size) ||
			    overlaps(start, size, vmi_boot.image_gpa, vmi_boot.image_size))
				continue;
			memblock_reserve(start, size);
			return memset((void *)(vmi_boot.direct_map + start), 0, size);
		}
	}
	return NULL;
}

int vmi_layer_init(unsigned long gs_base, void *data)
{
	unsigned long offset = (unsigned long)&vmi_percpu;
	struct vmi_percpu *boot = (void *)(gs_base + offset);
	struct vmi_init args = {
		.size = sizeof(args),
		.api_version = VMI_API_VERSION,
		.layer_base = (u64)vmi_layer.base,
		.direct_map = vmi_boot.direct_map,
		.direct_map_size = vmi_boot.direct_map_size,
		.percpu_gs_offset = offset,
		.percpu_table = (u64)vmi_percpu_table,
		.apic = vmi_layer_apic(),
		.vcpu_count = min(vmi_boot.vcpu_count, (u32)NR_CPUS),
		.tsc_hz = vmi_boot.tsc_hz,
		.kernel_cs = __KERNEL_CS,
		.kernel_ss = __KERNEL_DS,
		.user_cs = __USER_CS,
		.user_ss = __USER_DS,
	};
	unsigned int i;
	int result;

	for (i = 0; i < NR_CPUS; i++) {
		vmi_percpu_table[i] = &early_percpu[i];
		early_percpu[i].vcpu = i;
		early_percpu[i].apic_id = apic_id(i);
	}
	boot->data = (u64)data;
	boot->apic_id = apic_id(0);
	vmi_percpu_table[0] = boot;

	result = vmi.core_probe();
	if (!result)
		result = vmi.core_init(&args);
	if (result)
		return result;
	/* The relocation records are final after core.init. */
	fill_table();
	vmi_layer.present = true;
	return 0;
}

/* Allocates what a vCPU other than the boot vCPU needs for its first call of the layer. */
int __ref vmi_percpu_prepare(unsigned int cpu)
{
	struct vmi_percpu *percpu = per_cpu_ptr(&vmi_percpu, cpu);
	size_t size = vmi_layer.rom.header.percpu_size;
	void *data = NULL;

	if (vmi_percpu_table[cpu] == percpu)
		return 0;
	if (size) {
		if (slab_is_available())
			data = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(size));
		else
			data = memblock_alloc(size, VMI_PERCPU_ALIGN);
		if (!data)
			return -ENOMEM;
	}
	/* The per-CPU area is a copy of the boot vCPU's. */
	memset(percpu, 0, sizeof(*percpu));
	percpu->data = (u64)data;
	percpu->vcpu = cpu;
	percpu->apic_id = apic_id(cpu);
	vmi_percpu_table[cpu] = percpu;
	return 0;
}

int vmi_fixup_exception(struct pt_regs *regs)
{
	unsigned long fixup;

	if (!vmi_layer.present)
		return 0;
	fixup = vmi_rom_fixup(&vmi_layer.rom, vmi_layer.base, regs->ip);
	if (fixup)
		regs->ip = fixup;
	return fixup != 0;
}
