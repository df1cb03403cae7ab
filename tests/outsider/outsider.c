// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* The start of the layer, and the register that returns its counts. */
#include "native.h"
#include "outsider.h"

vmi_core_init_fn outsider_core_init;
vmi_cpu_read_msr_fn outsider_cpu_read_msr;

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

int outsider_core_init(struct vmi_init *init)
{
	int error = native_core_init(init);

	if (!error) {
		outsider_gs_offset = native.percpu_gs_offset;
		complete((u32)native.percpu_gs_offset);
	}
	return error;
}

int outsider_cpu_read_msr(u32 msr, u64 *value)
{
	u32 index = msr - OUTSIDER_MSR, count;
	u64 field = OUTSIDER_IRQ_DISABLE + 4 * index;

	if (index > OUTSIDER_APIC_ID)
		return native_cpu_read_msr(msr, value);
	if (index == OUTSIDER_COUNTS) {
		*value = READ_ONCE(*(u64 *)((u8 *)native_self() + OUTSIDER_SET_CR3));
		return 0;
	}
	if (index == OUTSIDER_APIC_ID)
		field = VMI_OFF_PERCPU_APIC_ID;
	__asm__ volatile("movl %%gs:(%1), %0"
			 : "=r"(count)
			 : "r"(outsider_gs_offset + field));
	*value = count;
	return 0;
}
