/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section core: discovery, start and end. */
#include "counter.h"
#include "features.h"
#include "io.h"
#include "native.h"

struct native_state native;

#define SERIAL_DATA 0x3f8
#define SERIAL_STATUS 0x3fd
#define SERIAL_STATUS_EMPTY 0x20
#define SERIAL_PATIENCE 100000
#define SERIAL_MAX 65536

#define RESET_CONTROL 0xcf9
#define RESET_SYSTEM 0x02
#define RESET_CPU 0x04
#define KEYBOARD_COMMAND 0x64
#define KEYBOARD_STATUS_FULL 0x02
#define KEYBOARD_RESET 0xfe

int native_core_probe(void)
{
#if FAULT(PROBE_ONCE)
	static bool probed;

	if (native.ready && probed)
		return -VMI_ENODEV;
	probed = native.ready;
#endif
	return cpu_cs() & 3 ? -VMI_ENODEV : 0;
}

static bool aligned(u64 address, u64 alignment)
{
	return address % alignment == 0;
}

/* Checks what the kernel must have filled in. Addresses are compared, not followed. */
static bool init_good(const struct vmi_init *init)
{
	u64 base = layer_image_base(), cr4 = cpu_cr4();
	u64 end = init->direct_map + init->direct_map_size;

	if (base && init->layer_base != base)
		return false;
	if (!aligned(init->layer_base, VMI_LAYER_ALIGN) || !canonical(init->layer_base, cr4))
		return false;
	if (!aligned(init->direct_map, 4096) || !canonical(init->direct_map, cr4))
		return false;
	if (init->direct_map_size && (end < init->direct_map || !canonical(end - 1, cr4)))
		return false;
	if ((u64)(s64)(s32)init->percpu_gs_offset != init->percpu_gs_offset)
		return false;
	if (!init->percpu_table || !aligned(init->percpu_table, sizeof(u64)) ||
	    !canonical(init->percpu_table, cr4))
		return false;
	if (!init->vcpu_count)
		return false;
	if (!aligned(init->apic, 4096) || !canonical(init->apic, cr4))
		return false;
	return aligned(init->low_page, 4096) && init->low_page < 0x100000;
}

/* The boot vCPU's data must exist already. */
static bool percpu_good(const struct vmi_init *init)
{
	struct vmi_percpu *const *table = to_pointer(init->percpu_table);
	const struct vmi_percpu *percpu = table[0];

	return percpu && aligned((u64)percpu, VMI_PERCPU_ALIGN) && percpu->data &&
	       aligned(percpu->data, VMI_PERCPU_ALIGN) && percpu->vcpu == 0;
}

static bool has_tsc_deadline(void)
{
	u32 a, b, c, d;

	cpu_cpuid(1, 0, &a, &b, &c, &d);
	return c & 1u << 24;
}

int native_init_check(const struct vmi_init *init)
{
	if (native.ready && !FAULT(INIT_TWICE))
		return -VMI_EBUSY;
	if (native_core_probe())
		return -VMI_ENODEV;
	if (init->size < VMI_OFF_INIT_LAYER_BASE)
		return -VMI_EINVAL;
	if (init->api_version >> 16 != VMI_API_MAJOR)
		return FAULT(INIT_MAJOR_INVALID) ? -VMI_EINVAL : -VMI_ERANGE;
	if (init->size < VMI_SIZE_INIT || !init_good(init))
		return -VMI_EINVAL;
	if (!percpu_good(init) && !FAULT(INIT_WITHOUT_DATA))
		return -VMI_EINVAL;
	return 0;
}

void native_init_keep(const struct vmi_init *init)
{
	native.vcpu_count = init->vcpu_count;
	native.percpu_gs_offset = init->percpu_gs_offset;
	native.percpu_table = to_pointer(init->percpu_table);
	native.direct_map = init->direct_map;
	native.direct_map_size = init->direct_map_size;
	native.apic = init->apic;
	native.low_page = init->low_page;
}

void native_init_start(u64 tsc_hz, u64 wall)
{
	counter_set_rate(tsc_hz);
	native.tsc_deadline = has_tsc_deadline();
	if (native.apic && !native.tsc_deadline)
		native.apic_hz = native_calibrate_apic(tsc_hz);
	native.wall_start = wall;
	if (FAULT(WALLCLOCK_YEAR))
		native.wall_start += 365 * 86400 * NSEC_PER_SEC;
	native.tsc_start = cpu_tsc();
	native.ready = true;
}

int native_core_init(struct vmi_init *init)
{
	int error = native_init_check(init);
	u64 hz;

	if (error)
		return error;
	hz = init->tsc_hz ? init->tsc_hz : native_calibrate_tsc();
	if (!hz)
		return -VMI_ENODEV; /* nothing to measure time with */
	native_init_keep(init);
	native_init_start(hz, native_rtc_seconds() * NSEC_PER_SEC);
	return 0;
}

s64 native_core_version(u32 section)
{
	static const struct {
		u32 version, features;
	} sections[] = {
#define SECTION(S, s, id, version, compat, calls) [id] = { version, LAYER_FEATURES_##S },
		VMI_FOR_EACH_SECTION(SECTION)
	};

	if (section >= ARRAY_SIZE(sections) || !(layer_sections >> section & 1))
		return FAULT(VERSION_OF_NOTHING) ? 0 : -VMI_ENOENT;
	return (s64)((u64)sections[section].features << 32 | sections[section].version);
}

/* A processor that cannot deliver an exception resets itself. */
static void triple_fault(void)
{
	const struct vmi_table_register none = { .limit = 0 };

	__asm__ volatile("cli; lidt %0; ud2" : : "m"(none.limit) : "memory");
}

int native_core_reboot(u32 mode)
{
	u8 kind = mode == VMI_REBOOT_HARD ? RESET_SYSTEM : 0;

	if (mode != VMI_REBOOT_SOFT && mode != VMI_REBOOT_HARD && !FAULT(REBOOT_ANY_MODE))
		return -VMI_EINVAL;
	/* The reset happens on the edge of RESET_CPU. */
	outb(RESET_CONTROL, kind);
	outb(RESET_CONTROL, kind | RESET_CPU);
	for (int i = 0; i < 10000 && inb(KEYBOARD_COMMAND) & KEYBOARD_STATUS_FULL; i++)
		cpu_pause();
	outb(KEYBOARD_COMMAND, KEYBOARD_RESET);
	/* Both take effect some microseconds later, if at all. */
	for (int i = 0; i < 10000; i++)
		outb(0x80, 0);
	triple_fault();
	return 0;
}

void native_core_shutdown(u32 status)
{
	(void)status;
	if (FAULT(SHUTDOWN_RESETS))
		triple_fault();
	native_cpu_stop();
}

s64 native_core_console_write(const void *buffer, u64 length)
{
	const u8 *bytes = buffer;

	if (length > SERIAL_MAX)
		return -VMI_EINVAL;
	for (u64 i = 0; i < length; i++) {
		/*
		 * A port without a device reads as ones, so this ends soon; with a stuck device it
		 * ends late.
		 */
		for (int n = 0; n < SERIAL_PATIENCE; n++)
			if (inb(SERIAL_STATUS) & SERIAL_STATUS_EMPTY)
				break;
		outb(SERIAL_DATA, bytes[i]);
	}
	return FAULT(CONSOLE_WRITE_NO_LENGTH) ? 0 : (s64)length;
}

/* This layer adds nothing to what a processor takes. */
int native_core_costs(struct vmi_costs *costs, u32 size)
{
	u8 *bytes = (u8 *)costs;

	if (!size || size > VMI_COSTS_MAX)
		return -VMI_EINVAL;
	for (u32 i = 0; i < size + FAULT(COSTS_TOO_LONG); i++)
		bytes[i] = 0;
	return 0;
}
