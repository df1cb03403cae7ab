// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * What each call preserves: a test for every call of the specification, generated from its list.
 * Primitives are called at a site and through their entry.
 */
#include "harness.h"
#include "space.h"
#include "test.h"

#define VECTOR_WAKE 0x51

static struct harness harness;

void swapgs_by_site(void);

static u64 site_of(u32 call)
{
	const struct site_stub *stub;

	for (stub = site_stubs; stub < site_stubs_end; stub++)
		if (stub->call == call)
			return stub->target;
	FAIL("%s has no site", call_name(call));
}

/* An argument with which a primitive changes nothing of importance. */
static u64 harmless_argument(u32 call)
{
	switch (call) {
	case CPU_SET_CR0:
		return get_cr0();
	case CPU_SET_CR4:
		return get_cr4();
	case CPU_SET_CR2:
		return 0x123456789000;
	case CPU_IRQ_RESTORE:
	case CPU_SET_CR8:
		return 0;
	}
	return 0x5a5a5a5a5a5a;
}

static void check_result(u32 call, u64 result)
{
	switch (call) {
	case CPU_IRQ_FLAG:
	case CPU_IRQ_SAVE:
		CHECK_EQ(result & VMI_FLAGS_IF, 0);
		break;
	case CPU_GET_CR0:
		CHECK_EQ(result, get_cr0());
		break;
	case CPU_GET_CR2:
		CHECK_EQ(result, 0xabcd000);
		break;
	case CPU_GET_CR4:
		CHECK_EQ(result, get_cr4());
		break;
	case CPU_GET_CR8:
		CHECK_EQ(result, 0);
		break;
	case MMU_GET_CR3:
		CHECK_EQ(result & PTE_ADDRESS, to_gpa(kernel_root));
		break;
	case CPU_READ_TSC:
		CHECK_OP(result, <=, read_tsc());
		break;
	}
}

static void primitive(u32 call, u64 target)
{
	u64 argument = harmless_argument(call);

	for (harness.odd = 0; harness.odd < 2; harness.odd++) {
		u64 gs = vmi.cpu_get_gs_base(), user_gs = vmi.cpu_get_user_gs_base();

		set_cr2(0xabcd000);
		if (call == CPU_HALT)
			CHECK_RESULT(send_ipi(0, VECTOR_WAKE), 0);
		harness_call(&harness, target, &argument, 1);
		irq_disable();
		harness_check_primitive(&harness);
		check_result(call, harness.out[RAX]);
		CHECK_EQ(vmi.cpu_get_gs_base(), gs);
		CHECK_EQ(vmi.cpu_get_user_gs_base(), user_gs);
	}
}

static void at_site(u64 call)
{
	primitive(call, call == CPU_SWAPGS ? (u64)swapgs_by_site : site_of(call));
}

static void at_entry(u64 call)
{
	u64 entry = (u64)layer_entry(call);

	if (!entry)
		test_skip("the layer has no entry for it");
	harness_entry = entry;
	primitive(call, call == CPU_SWAPGS ? (u64)swapgs_by_entry : entry);
}

static void iret_at_site(u64 call)
{
	primitive(call, (u64)iret_by_site);
}

static void iret_at_entry(u64 call)
{
	harness_entry = (u64)layer_entry(call);
	CHECK(harness_entry);
	primitive(call, (u64)iret_by_entry);
}

/* Arguments with which a call of class sysv works and does no harm. */
static u32 arguments_of(u32 call, u64 *a)
{
	static u64 table[16] __attribute__((aligned(4096))), value;
	static u8 buffer[64] __attribute__((aligned(64)));
	static struct vmi_table_register gdtr, idtr;
	struct percpu *cpu = this_cpu();

	memset(a, 0, 6 * sizeof(*a));
	switch (call) {
	case CORE_VERSION:
		a[0] = VMI_SECTION_MMU;
		return 1;
	case CORE_REBOOT:
		a[0] = 99;
		return 1;
	case CORE_INIT:
	case CPU_CPUID:
		a[0] = (u64)buffer;
		return 1;
	case CORE_CONSOLE_WRITE:
		a[0] = (u64)"";
		return 2;
	case CPU_GET_DR:
		a[0] = 7;
		a[1] = (u64)&value;
		return 2;
	case CPU_SET_DR:
		a[0] = 7;
		a[1] = 0x400;
		return 2;
	case CPU_READ_MSR:
	case CPU_WRITE_MSR:
		a[0] = 0xc0000084;
		vmi.cpu_read_msr(a[0], &value);
		a[1] = call == CPU_READ_MSR ? (u64)&value : value;
		return 2;
	case CPU_READ_PMC:
		a[0] = 0x3fffffff;
		a[1] = (u64)&value;
		return 2;
	case CPU_SET_GDT:
	case CPU_GET_GDT:
		vmi.cpu_get_gdt(&gdtr);
		a[0] = (u64)&gdtr;
		return 1;
	case CPU_SET_IDT:
	case CPU_GET_IDT:
		vmi.cpu_get_idt(&idtr);
		a[0] = (u64)&idtr;
		return 1;
	case CPU_SET_TR:
		cpu->gdt[TSS_SELECTOR / 8] &= ~(2ull << 40);
		a[0] = TSS_SELECTOR;
		return 1;
	case CPU_WRITE_GDT:
	case CPU_SET_TLS:
		a[0] = (u64)(call == CPU_SET_TLS ? cpu->gdt : table);
		a[1] = TLS_INDEX;
		a[2] = (u64)&cpu->gdt[TLS_INDEX];
		a[3] = 1;
		return 4;
	case CPU_WRITE_LDT:
	case CPU_WRITE_IDT:
		a[0] = (u64)table;
		a[1] = 3;
		return 4;
	case CPU_SET_FS_BASE:
		a[0] = 0x7000;
		return 1;
	case CPU_SET_GS_BASE:
		a[0] = (u64)cpu;
		return 1;
	case CPU_SET_USER_GS_BASE:
		a[0] = vmi.cpu_get_user_gs_base();
		return 1;
	case CPU_SET_KERNEL_STACK:
		a[0] = (u64)&cpu->tss;
		a[1] = (u64)cpu->stack;
		return 2;
	case CPU_PORT_IN:
		a[0] = 0x80;
		a[1] = 1;
		return 2;
	case CPU_PORT_OUT:
		a[0] = 0x80;
		a[1] = 1;
		return 3;
	case CPU_PORT_IN_STRING:
	case CPU_PORT_OUT_STRING:
		a[0] = 0x80;
		a[1] = 1;
		a[2] = (u64)buffer;
		a[3] = 8;
		return 4;
	case CPU_SET_XCR:
		a[1] = 1ull << 63;
		return 2;
	case MMU_REGISTER_PAGE_TABLE:
	case MMU_RELEASE_PAGE_TABLE:
		a[0] = 0x1001;
		a[1] = 1;
		return 2;
	case MMU_SET_PTE:
		a[0] = (u64)&table[1];
		a[2] = VMI_LEVEL_PT;
		return 4;
	case MMU_SET_PTES:
		a[0] = (u64)&table[1];
		a[2] = 2;
		a[3] = VMI_LEVEL_PT;
		return 5;
	case MMU_SET_CR3:
		a[0] = to_gpa(kernel_root);
		a[1] = 1;
		return 3;
	case MMU_INVALIDATE_RANGE:
	case MMU_FLUSH_KERNEL_RANGE:
		a[0] = kernel_area;
		a[1] = kernel_area + 3 * PAGE_SIZE;
		return 2;
	case MMU_FLUSH_TLB:
		a[0] = VMI_FLUSH_ALL;
		return 1;
	case MMU_FILL:
		a[0] = kernel_area;
		a[1] = (u64)table;
		return 3;
	case MMU_EXPECT_SPACE:
		a[0] = PAGE_SIZE;
		return 2;
	case APIC_READ:
		a[0] = 0x30;
		return 1;
	case APIC_WRITE:
		a[0] = 0xf0;
		a[1] = 0x100 | VECTOR_SPURIOUS;
		return 2;
	case APIC_SEND_IPI:
		a[0] = (u64)machine.apic_ids[0] << 32 | VECTOR_WAKE;
		return 1;
	case SMP_SET_AP_STATE:
		a[1] = (u64)buffer;
		return 2;
	case SMP_VCPU_STATE:
		a[1] = (u64)table;
		return 2;
	case TIME_READ:
		a[0] = (u64)buffer;
		return 1;
	case TIME_SET_ALARM:
		a[0] = VMI_TIME_REAL;
		a[1] = now() + NS_PER_S;
		a[3] = VECTOR_WAKE;
		return 4;
	case LOCK_WAIT:
		a[0] = (u64)buffer;
		a[1] = 1;
		return 2;
	case LOCK_KICK:
	case LOCK_PENDING:
	case LOCK_PREEMPTED:
	case LOCK_YIELD:
		return 1;
	case PATCH_CLAIM:
	case PATCH_RELEASE:
	case PATCH_FIXUP:
		a[0] = (u64)table;
		a[1] = call == PATCH_RELEASE ? 5 : (u64)buffer;
		a[2] = (u64)&value;
		return 3;
	case PATCH_CODE:
		a[0] = (u64)table;
		a[2] = (u64)buffer;
		a[3] = sizeof(buffer);
		return 4;
	case STATS_READ:
		a[0] = 0x999;
		a[1] = (u64)table;
		return 2;
	case BUS_COMMAND:
	case BUS_NOTIFY:
		/* Where there is a bridge, one that is asked for nothing. */
		a[0] = (u64)vmi.bus_find(0);
		a[1] = call == BUS_COMMAND ? 0ull - VMI_BUS_COMMAND_ALIGN : 0xffffffff;
		return 2;
	}
	return 1;
}

static void sysv(u64 call)
{
	u64 entry = (u64)layer_entry(call), arguments[6];

	if (!entry)
		test_skip("the layer does not offer it");
	if (call == STATS_RESET)
		note_call_counts();
	harness.odd = 0;
	harness_call(&harness, entry, arguments, arguments_of(call, arguments));
	harness_check_sysv(&harness);
	CHECK(!irqs_enabled());
	CHECK_EQ(vmi.cpu_get_gs_base(), (u64)this_cpu());
	if (call == CPU_SET_FS_BASE)
		vmi.cpu_set_fs_base(0);
}

#define RECORD_PRIMITIVE(SECTION, section, CALL, name, number)		\
	TEST_OF(site_##section##_##name, #section "." #name ".registers_site", \
		at_site, number, 1, 0, number);				\
	TEST_OF(entry_##section##_##name, #section "." #name ".registers_entry", \
		at_entry, number, 1, 0, number);

#define RECORD_JUMP(SECTION, section, CALL, name, number)		\
	CHOOSE(EXCEPT_##section##_##name, TWO_JUMPS)(section, name, number)
#define TWO_JUMPS(section, name, number)				\
	TEST_OF(site_##section##_##name, #section "." #name ".registers_site", \
		iret_at_site, number, 1, 0, number);			\
	TEST_OF(entry_##section##_##name, #section "." #name ".registers_entry", \
		iret_at_entry, number, 1, 0, number);

#define RECORD_SYSV(SECTION, section, CALL, name, number)		\
	CHOOSE(EXCEPT_##section##_##name, ONE_SYSV)(section, name, number)
#define ONE_SYSV(section, name, number)					\
	TEST_OF(call_##section##_##name, #section "." #name ".registers", \
		sysv, number, 1, 0, number);

/* These do not return, or return in user mode. */
#define EXCEPT_core_shutdown	~, NOTHING,
#define EXCEPT_cpu_stop		~, NOTHING,
#define EXCEPT_cpu_sysret	~, NOTHING,
#define NOTHING(...)
#define PICK(a, b, ...)		b
#define CHOOSE(exception, otherwise) PICK(exception, otherwise, ~)

#define X(SECTION, section, CALL, name, number, CLASS, since) \
	RECORD_##CLASS(SECTION, section, CALL, name, number)
VMI_FOR_EACH_CALL(X)
#undef X
