// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The start of the layer, the calls that it counts or changes, and its registers. */
#include "address.h"
#include "native.h"
#include "outsider.h"

vmi_core_init_fn outsider_core_init;
vmi_core_version_fn outsider_core_version;
vmi_cpu_read_msr_fn outsider_cpu_read_msr;
vmi_cpu_write_msr_fn outsider_cpu_write_msr;
vmi_mmu_flush_space_fn outsider_mmu_flush_space;
vmi_apic_eoi_fn outsider_apic_eoi;
vmi_time_read_fn outsider_time_read;
vmi_time_wallclock_fn outsider_time_wallclock;
vmi_time_wallclock_updated_fn outsider_time_wallclock_updated;
vmi_time_set_alarm_fn outsider_time_set_alarm;

extern u8 outsider_code[], outsider_code_end[];

extern u64 outsider_gs_offset;
/* Displacement of struct vmi_percpu from the GS base. */
u64 outsider_gs_offset;

/* Opcode and address form of incl %gs:disp32. */
static const u8 counts[] = { 0x65, 0xff, 0x04, 0x25 };

/* Adds the displacement to each counting instruction, inline and at entry points. */
static void complete(u32 displacement)
{
	for (u8 *at = outsider_code; at + sizeof(counts) + 4 <= outsider_code_end; at++) {
		u32 field;

		if (__builtin_memcmp(at, counts, sizeof(counts)))
			continue;
		__builtin_memcpy(&field, at + sizeof(counts), 4);
		field += displacement;
		__builtin_memcpy(at + sizeof(counts), &field, 4);
		at += sizeof(counts) + 3;
	}
}

/* The section's entry in the table, which is the layer's own copy. */
static struct vmi_section *section(u32 id)
{
	u8 *base = to_pointer(layer_image_base());
	struct vmi_rom_header *header = (struct vmi_rom_header *)base;
	struct vmi_section *at = (struct vmi_section *)(base + header->sections);

	for (u32 i = 0; i < header->section_count; i++)
		if (at[i].id == id)
			return &at[i];
	return NULL;
}

static bool is_alone(void)
{
	u32 a, b, c, d;

	cpu_cpuid(1, 0, &a, &b, &c, &d);
	return !(d & 1u << 28) || (b >> 16 & 0xff) < 2;
}

static u8 spare[OUTSIDER_SPARE];

/* The memory after the image is there, and zero. */
static bool whole(void)
{
	for (u32 i = 0; i < sizeof(spare); i += 64) {
		if (READ_ONCE(spare[i]))
			return false;
		WRITE_ONCE(spare[i], 1);
	}
	return true;
}

/* Of the layer itself: something in its image, and where that is in physical memory. */
static u64 image_mark, image_gpa;

static u64 *field(struct native_percpu *data, u32 at)
{
	return (u64 *)((u8 *)data + at);
}

/* A hypervisor that got the address would see what the layer writes. */
static bool shares(u64 *mark, u64 gpa)
{
	const u64 *page = to_pointer(native.direct_map + gpa);

	if (!gpa || gpa >= native.direct_map_size)
		return false;
	WRITE_ONCE(*mark, cpu_tsc());
	return READ_ONCE(*page) == *mark;
}

static u64 gpa_of(const u64 *mark)
{
	return linear_gpa(mark, native.direct_map, native.direct_map_size);
}

/* Looks where a vCPU's layer data are: once, as a layer does that tells its hypervisor. */
static bool find(struct native_percpu *data)
{
	u64 *mark = field(data, OUTSIDER_MARK), gpa = gpa_of(mark);

	*field(data, OUTSIDER_GPA) = gpa;
	return shares(mark, gpa);
}

/* Whether image and data are still there: the levels of the tables that say so, or 0. */
static u32 stays(struct native_percpu *data)
{
	u64 *mark = field(data, OUTSIDER_MARK), gpa = *field(data, OUTSIDER_GPA);

	if (gpa_of(&image_mark) != image_gpa || !shares(&image_mark, image_gpa))
		return 0;
	if (gpa_of(mark) != gpa || !shares(mark, gpa))
		return 0;
	return cpu_cr4() & CR4_LA57 ? 5 : 4;
}

/* In the tables that the kernel has at its start. */
static bool find_all(void)
{
	image_gpa = gpa_of(&image_mark);
	return shares(&image_mark, image_gpa) && find(native_self());
}

int outsider_core_init(struct vmi_init *init)
{
	static bool started;
	int error = native_core_init(init);

	if (!error) {
		if (!started && (!whole() || !find_all()))
			return -VMI_ENODEV;
		started = true;
		outsider_gs_offset = native.percpu_gs_offset;
		complete((u32)native.percpu_gs_offset);
		if (!is_alone())
			section(VMI_SECTION_MMU)->features &= ~VMI_MMU_FLUSH_SPACE;
	}
	return error;
}

s64 outsider_core_version(u32 id)
{
	const struct vmi_section *is = section(id);

	return is ? (s64)((u64)is->features << 32 | is->version) : -VMI_ENOENT;
}

/* One locked instruction: an interrupt or a move to another vCPU loses nothing. */
static void count(u32 call)
{
	u64 *at = field(native_self(), call);

	__asm__ volatile("lock incq %0" : "+m"(*at));
}

int outsider_mmu_flush_space(u64 cr3, u64 context, u64 generation, u64 start, u64 end)
{
	(void)cr3;
	(void)context;
	(void)generation;
	if (!(section(VMI_SECTION_MMU)->features & VMI_MMU_FLUSH_SPACE))
		return -VMI_ENOSYS;
	if (end < start)
		return -VMI_EINVAL;
	count(OUTSIDER_FLUSH_SPACE);
	/* Nothing is kept of a space that is not loaded. */
	return native_mmu_flush_tlb(VMI_FLUSH_USER);
}

void outsider_apic_eoi(void)
{
	struct native_percpu *self = native_self();

	/* However the kernel has started this vCPU. */
	if (!*field(self, OUTSIDER_GPA))
		find(self);
	count(OUTSIDER_EOI);
	native_apic_eoi();
}

int outsider_time_set_alarm(u32 flags, u64 expiry, u64 period, u32 vector)
{
	int error = native_time_set_alarm(flags, expiry, period, vector);

	if (!error)
		count(OUTSIDER_SET_ALARM);
	return error;
}

/* Of the machine, set by the registers. */
static u64 stolen_since, clock_moved;
static bool steals, clock_news;

void outsider_time_read(struct vmi_times *times)
{
	native_time_read(times);
	if (!READ_ONCE(steals))
		return;
	times->stolen = (times->real - READ_ONCE(stolen_since)) / 4;
	times->available = times->real - times->stolen;
}

u64 outsider_time_wallclock(void)
{
	count(OUTSIDER_WALLCLOCK);
	return native_time_wallclock() + READ_ONCE(clock_moved);
}

int outsider_time_wallclock_updated(void)
{
	return __atomic_exchange_n(&clock_news, false, __ATOMIC_SEQ_CST);
}

int outsider_cpu_write_msr(u32 msr, u64 value)
{
	switch (msr) {
	case OUTSIDER_MOVE_CLOCK:
		WRITE_ONCE(clock_moved, clock_moved + value * 1000000000);
		__atomic_store_n(&clock_news, true, __ATOMIC_SEQ_CST);
		return 0;
	case OUTSIDER_STEAL:
		WRITE_ONCE(stolen_since, native_real_time());
		barrier();
		WRITE_ONCE(steals, true);
		return 0;
	}
	return native_cpu_write_msr(msr, value);
}

int outsider_cpu_read_msr(u32 msr, u64 *value)
{
	u32 index = msr - OUTSIDER_MSR, small;
	u64 at = OUTSIDER_IRQ_DISABLE + 4 * index, flags;

	if (index > OUTSIDER_STAYS)
		return native_cpu_read_msr(msr, value);
	if (index == OUTSIDER_STAYS) {
		flags = cpu_irq_save();
		*value = stays(native_self());
		cpu_irq_restore(flags);
		return 0;
	}
	if (index >= OUTSIDER_FAST && index < OUTSIDER_COUNTS) {
		u32 count = OUTSIDER_SET_CR3 - 8 * (index - OUTSIDER_FAST);

		*value = READ_ONCE(*field(native_self(), count));
		return 0;
	}
	if (index == OUTSIDER_APIC_ID)
		at = VMI_OFF_PERCPU_APIC_ID;
	__asm__ volatile("movl %%gs:(%1), %0"
			 : "=r"(small)
			 : "r"(outsider_gs_offset + at));
	*value = small;
	return 0;
}
