// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "layer.h"
#include "console.h"
#include "layout.h"
#include "machine.h"
#include "mm.h"
#include "panic.h"
#include "percpu.h"
#include "percpu_size.h"

/* The copy lies inside the image: near to every site, and executable. */
static u8 layer_space[LAYER_SPACE] __attribute__((aligned(4096)));

/* Copies the image, or leaves it where a hypervisor has put it. */
static bool load(const struct vmi_rom *rom)
{
	const struct vmi_rom_header *h = &rom->header;

	if (h->flags & VMI_HEADER_IN_PLACE) {
		layer.base = rom->image;
	} else {
		if (h->load_size > sizeof(layer_space))
			return false;
		memcpy(layer_space, rom->image, h->image_size);
		memset(layer_space + h->image_size, 0,
		       h->load_size - h->image_size);
		layer.base = layer_space;
	}
	layer.rom = *rom;
	layer.rom.image = layer.base;
	memcpy(layer.name, h->name, sizeof(h->name));
	layer.name[sizeof(h->name)] = 0;
	layer.present = true;
	calls_fill();
	return true;
}

static void from_boot_info(void)
{
	const struct vmi_boot_info *info = &machine.info;
	enum vmi_rom_error error;
	struct vmi_rom rom;

	error = vmi_rom_check(&rom, (const void *)info->rom, info->rom_size,
			      VMI_ROM_FROM_BOOT_INFO);
	if (error)
		print("# layer in the boot information: %s\n",
		      vmi_rom_strerror(error));
	else if (!load(&rom))
		print("# layer in the boot information: too large\n");
}

static void from_scan(void)
{
	const u8 *start = to_linear(VMI_ROM_SCAN_START);
	u64 size = VMI_ROM_SCAN_END - VMI_ROM_SCAN_START;
	enum vmi_rom_error error;
	struct vmi_rom rom;
	u64 at = 0, found;

	while (vmi_rom_scan(&rom, start, size, &at, &found, &error)) {
		u64 gpa = VMI_ROM_SCAN_START + found;

		if (error == VMI_ROM_MAJOR)
			print("# rom at 0x%llx: major version %u, skipped\n",
			      gpa, start[found + 13]);
		else if (error)
			print("# rom at 0x%llx: %s, skipped\n", gpa,
			      vmi_rom_strerror(error));
		else if (load(&rom))
			return;
		else
			print("# rom at 0x%llx: too large, skipped\n", gpa);
	}
}

void layer_find(void)
{
	/* Something to print with until there is more. */
	calls_fill();
	if (machine.info.rom)
		from_boot_info();
	else
		from_scan();
}

static void go_native(void)
{
	if (layer.present && (layer.rom.header.flags & VMI_HEADER_PARAVIRT))
		panic("this layer cannot be done without");
	layer.present = false;
	memcpy(layer.name, "none", sizeof("none"));
	calls_fill();
}

/*
 * What the boot information knows. The benchmark of instructions runs under
 * "-icount shift=0", where the counter counts them, one each ns; measuring that
 * takes an interval timer millions of instructions.
 */
static u64 tsc_hz(void)
{
	char kind[8];

	if (machine.pvh && option("bench", kind, sizeof(kind)) && !kind[0])
		return NS_PER_S;
	return machine.info.tsc_hz;
}

static int init(void (*before)(const struct vmi_init *good))
{
	struct vmi_init args = {
		.size = sizeof(args),
		.api_version = VMI_API_VERSION,
		.layer_base = (u64)layer.base,
		.direct_map = machine.info.direct_map,
		.direct_map_size = machine.info.direct_map_size,
		.percpu_gs_offset = PERCPU_VMI,
		.percpu_table = (u64)vmi_percpus,
		.vcpu_count = VCPU_WITHOUT_DATA + 1,
		.apic = machine.apic,
		.low_page = machine.low_page,
		.tsc_hz = tsc_hz(),
		.kernel_cs = KERNEL_CS,
		.kernel_ss = KERNEL_SS,
		.user_cs = USER_CS,
		.user_ss = USER_SS,
	};
	u32 size = layer.present ? layer.rom.header.percpu_size :
		   NATIVE_PERCPU_SIZE;
	struct vmi_percpu *later = vmi_percpus[machine.vcpu_count - 1];
	int result;
	u32 i;

	for (i = 0; i < machine.vcpu_count; i++)
		vmi_percpus[i]->data = size ? (u64)alloc_contiguous(size) : 0;
	if (layer.present)
		before(&args);
	/* The last vCPU gets its data before smp.set_ap_state. */
	if (machine.vcpu_count > 1)
		vmi_percpus[machine.vcpu_count - 1] = NULL;
	result = vmi.core_init(&args);
	vmi_percpus[machine.vcpu_count - 1] = later;
	return result;
}

static void write_text(void *to, const void *from, unsigned int length)
{
	/* Only this vCPU runs, with interrupts off, and not at a site. */
	memcpy(to, from, length);
}

/* The processor may have fetched what was just patched. */
static void synchronise(void)
{
	vmi.cpu_cpuid(&(struct vmi_cpuid){ 0 });
}

void layer_init(void (*before)(const struct vmi_init *good))
{
	const struct vmi_site *end = vmi_sites_end;
	enum vmi_rom_error error;
	int result;

	layer.sites = end - vmi_sites_start;
	if (layer.present) {
		const struct vmi_rom_header *h = &layer.rom.header;

		result = vmi.core_probe ? vmi.core_probe() : -VMI_ENODEV;
		if (!result)
			result = init(before);
		if (!result) {
			/* core.init may have changed the tables of the layer. */
			calls_fill();
			error = vmi_rom_patch(&layer.rom, layer.base,
					      vmi_sites_start, end, write_text,
					      &layer.patched);
			synchronise();
			if (error)
				panic("layer %s: %s", layer.name,
				      vmi_rom_strerror(error));
			print("# layer: %s %u.%u, %u of %u sites patched\n",
			      layer.name, h->api_major, h->api_minor,
			      layer.patched, layer.sites);
			return;
		}
		print("# layer %s: init failed, error %d\n", layer.name, -result);
		go_native();
	}
	result = init(before);
	print("# no layer: native instructions\n");
	if (result)
		panic("built-in calls: error %d", -result);
}
