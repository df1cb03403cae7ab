/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Section smp: prepares the low page for one processor at a time. */
#include "ap_layout.h"
#include "native.h"

#define APIC_IRR 0x200
#define PAGE_SIZE 4096
#define ENTRY_PRESENT_WRITABLE 3
#define RFLAGS_FIXED 2 /* bit 1 is always set */

/* Flat, limit 4 GiB, accessed (the processor need not write it). */
#define GDT_CODE32 0x00cf9b000000ffffULL
#define GDT_DATA 0x00cf93000000ffffULL
#define GDT_CODE64 0x00af9b000000ffffULL

extern const u8 native_ap_start[], native_ap_start_32[], native_ap_start_64[],
	native_ap_start_end[];

struct far_pointer {
	u32 offset;
	u16 selector;
} __attribute__((packed));

struct boot_gdtr {
	u16 limit;
	u32 base;
} __attribute__((packed));

static bool state_good(const struct vmi_ap_state *state)
{
	u64 cr4 = state->cr4;

	return (state->cr0 & (CR0_PE | CR0_PG)) == (CR0_PE | CR0_PG) && cr4 & CR4_PAE &&
	       state->efer & EFER_LME && canonical(state->rip, cr4) &&
	       canonical(state->fs_base, cr4) && canonical(state->gs_base, cr4) &&
	       canonical(state->gdt_base, cr4) && canonical(state->idt_base, cr4);
}

/* The kernel maps the page at its own address. The direct map is in every space. */
static u8 *low_page(void)
{
	if (native.low_page + PAGE_SIZE <= native.direct_map_size)
		return to_pointer(native.direct_map + native.low_page);
	return to_pointer(native.low_page);
}

static u32 code_offset(const u8 *label)
{
	return AP_CODE + (u32)(label - native_ap_start);
}

static void copy(u8 *to, const void *from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to[i] = ((const u8 *)from)[i];
}

/* The code in the page that brings the processor to 64-bit mode. */
static void write_boot_part(u8 *page, const struct vmi_ap_state *state)
{
	static const u64 gdt[AP_GDT_WORDS] = { 0, GDT_CODE32, GDT_DATA, GDT_CODE64 };
	u32 base = (u32)native.low_page;
	u64 entry = base | ENTRY_PRESENT_WRITABLE;
	u32 cr4 = (u32)(state->cr4 & (CR4_PAE | CR4_LA57));
	struct boot_gdtr gdtr = { sizeof(gdt) - 1, base + AP_GDT };
	struct far_pointer far32 = { base + code_offset(native_ap_start_32), AP_SELECTOR_CODE32 };
	struct far_pointer far64 = { base + code_offset(native_ap_start_64), AP_SELECTOR_CODE64 };
	static const u8 jump[] = { 0xe9, (AP_CODE - 3) & 0xff, (AP_CODE - 3) >> 8 };

	copy(page, jump, sizeof(jump)); /* 16-bit jmp to AP_CODE */
	copy(page + (base / PAGE_SIZE) * sizeof(entry), &entry, sizeof(entry));
	copy(page + AP_CODE, native_ap_start, (size_t)(native_ap_start_end - native_ap_start));
	copy(page + AP_GDT, gdt, sizeof(gdt));
	copy(page + AP_PAGE, &base, sizeof(base));
	copy(page + AP_CR4, &cr4, sizeof(cr4));
	copy(page + AP_BOOT_GDTR, &gdtr, sizeof(gdtr));
	copy(page + AP_FAR32, &far32, sizeof(far32));
	copy(page + AP_FAR64, &far64, sizeof(far64));
}

/* INIT resets the processor's APIC and timer: forget their state, but keep a kick. */
static void forget_vcpu(struct native_percpu *data)
{
	data->lazy_mode = VMI_LAZY_NONE;
	data->apic_mode = NATIVE_APIC_UNKNOWN;
	data->timer_lvt = 0;
	data->timer_deadline = 0;
	native_forget_more(data);
	for (u32 i = 0; i < NATIVE_ALARMS; i++)
		data->alarms[i].armed = false;
}

/*
 * The vCPU may execute a few more instructions after the INIT was sent, so its state is forgotten
 * again before the STARTUP. Kernels send a second STARTUP, which a processor that runs ignores.
 */
void native_smp_notice(struct native_percpu *data, bool init)
{
	if (init || data->stopped)
		forget_vcpu(data);
	data->stopped = init;
}

int native_smp_set_ap_state(u32 vcpu, const struct vmi_ap_state *state)
{
	struct native_percpu *other = native_other(vcpu);
	struct vmi_table_register gdtr, idtr;
	u64 frame[AP_FRAME_WORDS];
	u8 *page;

	if (!vcpu || !other)
		return -VMI_ENOENT;
	if (!state_good(state))
		return -VMI_EINVAL;
	if (!native.low_page)
		return -VMI_ENOSYS;

	gdtr = (struct vmi_table_register){ .limit = state->gdt_limit, .base = state->gdt_base };
	idtr = (struct vmi_table_register){ .limit = state->idt_limit, .base = state->idt_base };
	frame[0] = state->rip;
	frame[1] = FAULT(AP_FORGETS_CS) ? cpu_cs() : state->cs;
	frame[2] = FAULT(AP_FORGETS_RFLAGS) ? RFLAGS_FIXED : state->rflags | RFLAGS_FIXED;
	frame[3] = state->gpr[4]; /* rsp */
	frame[4] = FAULT(AP_FORGETS_SS) ? 0 : state->ss;

	if (FAULT(AP_STATE_AT_ONCE))
		forget_vcpu(other);
	page = low_page();
	for (u32 i = 0; i < PAGE_SIZE; i++)
		page[i] = 0;
	write_boot_part(page, state);
	copy(page + AP_STATE, state, sizeof(*state));
	copy(page + AP_GDTR, &gdtr, sizeof(gdtr));
	copy(page + AP_IDTR, &idtr, sizeof(idtr));
	copy(page + AP_FRAME, frame, sizeof(frame));
	barrier(); /* stores are in order before the STARTUP, which is a store too */
	return 0;
}

int native_smp_vcpu_state(u32 vcpu, struct vmi_vcpu_state *state)
{
	struct native_percpu *data = native_other(vcpu);
	struct vmi_vcpu_state copy = { 0 };
	bool own = data && data == native_self();

	if (!data)
		return -VMI_ENOENT;
	if (!own && !data->stopped && !FAULT(VCPU_STATE_OF_RUNNING))
		return -VMI_EBUSY;
	copy.kick = __atomic_load_n(&data->lock_pending, __ATOMIC_SEQ_CST);
	for (u32 i = 0; i <= VMI_TIME_AVAILABLE; i++) {
		if (!data->alarms[i].armed)
			continue;
		copy.armed |= 1u << i;
		copy.alarm_vector = data->alarm_vector;
		copy.expiry[i] = data->alarms[i].expiry;
		copy.period[i] = data->alarms[i].period;
	}
	/* An INIT resets the APIC of another. */
	for (u32 i = 0; own && native.apic && i < 8 && !FAULT(VCPU_STATE_NO_REQUESTS); i++)
		copy.requested[i / 2] |= (u64)native_apic_load(APIC_IRR + i * 0x10)
					 << (i % 2 * 32);
	*state = copy;
	return 0;
}

s64 native_smp_startup_vector(void)
{
	if (!native.low_page)
		return -VMI_ENOSYS;
	return (s64)(FAULT(STARTUP_VECTOR_ADDRESS) ? native.low_page : native.low_page >> 12);
}
