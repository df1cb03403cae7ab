// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Descriptor tables, thread-local storage, segment bases. */
#include "test.h"
#include "user_mode.h"

#define VECTOR_A	0x53
#define VECTOR_B	0x54
#define NON_CANONICAL	0x0000900000000000ull
#define LDT_DATA	0x07		/* entry 0 of the LDT, for user mode */
#define BEYOND_LIMIT	(GDT_ENTRIES * 8)

static bool segments_work(void)
{
	return layer_features(VMI_SECTION_CPU) & VMI_CPU_SEGMENTS;
}

/* Writable data for user mode, 4 GiB from base. */
static u64 data_descriptor(u32 base)
{
	return 0x00cff3000000ffff | (u64)(base & 0xffffff) << 16 |
	       (u64)(base >> 24) << 56;
}

/* LDT (type 2) or available TSS (type 9). */
static void system_descriptor(u64 *words, u64 base, u32 limit, u32 type)
{
	words[0] = limit | (base & 0xffffff) << 16 |
		   (u64)(0x80 | type) << 40 | (base >> 24 & 0xff) << 56;
	words[1] = base >> 32;
}

/*
 * A user page below 4 GiB with its own address in the first word. Skips the test if there is none.
 */
static u64 map_low_page(struct space *space)
{
	u64 va, gpa;

	for (va = 0x10000000; va < 0xf0000000; va += 16 * MIB) {
		if (in_hole(va, va + PAGE_SIZE))
			continue;
		gpa = alloc_page();
		*(u64 *)to_linear(gpa) = va;
		space_set(space, va, gpa | PTE_P | PTE_U | PTE_W, VMI_LEVEL_PT);
		return va;
	}
	test_skip("no user addresses below 4 GiB");
}

static void unmap_low_page(struct space *space, u64 va)
{
	u64 *pte = space_pte(space, va, VMI_LEVEL_PT);

	free_page(*pte & PTE_ADDRESS);
}

TEST(gdt_get, "cpu.get_gdt.what_was_set", 1, 0, CPU_GET_GDT, CPU_SET_GDT)
{
	static u64 copy[GDT_ENTRIES] __attribute__((aligned(16)));
	struct percpu *cpu = this_cpu();
	struct vmi_table_register gdt = { 0 }, other = {
		.limit = sizeof(copy) - 1, .base = (u64)copy,
	};
	u64 before = irq_count(0, VECTOR_A);

	vmi.cpu_get_gdt(&gdt);
	CHECK_EQ(gdt.base, (u64)cpu->gdt);
	CHECK_EQ(gdt.limit, sizeof(cpu->gdt) - 1);
	memcpy(copy, cpu->gdt, sizeof(copy));
	vmi.cpu_set_gdt(&other);
	vmi.cpu_get_gdt(&gdt);
	CHECK_EQ(gdt.base, (u64)copy);
	CHECK_EQ(gdt.limit, sizeof(copy) - 1);
	/* An interrupt and its iret load selectors from there. */
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	irq_enable();
	asm volatile("nop");
	irq_disable();
	CHECK_EQ(irq_count(0, VECTOR_A), before + 1);
	cpu_load_tables_again();
	vmi.cpu_get_gdt(&gdt);
	CHECK_EQ(gdt.base, (u64)cpu->gdt);
}

TEST(idt_get, "cpu.set_idt.replaces", 1, 0, CPU_SET_IDT, CPU_GET_IDT)
{
	static u64 copy[256][2] __attribute__((aligned(4096)));
	struct percpu *cpu = this_cpu();
	struct vmi_table_register idt = { 0 }, other = {
		.limit = sizeof(copy) - 1, .base = (u64)copy,
	};
	u64 a = irq_count(0, VECTOR_A), b = irq_count(0, VECTOR_B);

	vmi.cpu_get_idt(&idt);
	CHECK_EQ(idt.base, (u64)cpu->idt);
	CHECK_EQ(idt.limit, PAGE_SIZE - 1);
	memcpy(copy, cpu->idt, sizeof(copy));
	copy[VECTOR_A][0] = copy[VECTOR_B][0];
	copy[VECTOR_A][1] = copy[VECTOR_B][1];
	vmi.cpu_set_idt(&other);
	vmi.cpu_get_idt(&idt);
	CHECK_EQ(idt.base, (u64)copy);
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	irq_enable();
	asm volatile("nop");
	irq_disable();
	CHECK_EQ(irq_count(0, VECTOR_A), a);
	CHECK_EQ(irq_count(0, VECTOR_B), b + 1);
	cpu_load_tables_again();
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	irq_enable();
	asm volatile("nop");
	CHECK_EQ(irq_count(0, VECTOR_A), a + 1);
}

TEST(idt_write, "cpu.write_idt.takes_effect", 1, 0, CPU_WRITE_IDT)
{
	struct percpu *cpu = this_cpu();
	u64 low = cpu->idt[VECTOR_A][0], high = cpu->idt[VECTOR_A][1];
	u64 a = irq_count(0, VECTOR_A), b = irq_count(0, VECTOR_B);

	CHECK_RESULT(vmi.cpu_write_idt(cpu->idt[0], VECTOR_A,
				       cpu->idt[VECTOR_B][0],
				       cpu->idt[VECTOR_B][1]), 0);
	CHECK_EQ(cpu->idt[VECTOR_A][0], cpu->idt[VECTOR_B][0]);
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	irq_enable();
	asm volatile("nop");
	irq_disable();
	CHECK_RESULT(vmi.cpu_write_idt(cpu->idt[0], VECTOR_A, low, high), 0);
	CHECK_EQ(irq_count(0, VECTOR_B), b + 1);
	CHECK_EQ(irq_count(0, VECTOR_A), a);
}

TEST(table_writes, "cpu.write_gdt.stores", 1, 0, CPU_WRITE_GDT, CPU_WRITE_LDT,
     CPU_WRITE_IDT)
{
	static u64 table[16];
	u64 two[2] = { 0x1111, 0x2222 };

	memset(table, 0xee, sizeof(table));
	CHECK_RESULT(vmi.cpu_write_gdt(table, 2, two, 1), 0);
	CHECK_EQ(table[2], 0x1111);
	CHECK_EQ(table[3], 0xeeeeeeeeeeeeeeee);
	CHECK_RESULT(vmi.cpu_write_gdt(table, 3, two, 2), 0);
	CHECK_EQ(table[3], 0x1111);
	CHECK_EQ(table[4], 0x2222);
	CHECK_EQ(table[5], 0xeeeeeeeeeeeeeeee);
	CHECK_RESULT(vmi.cpu_write_ldt(table, 7, 0x3333), 0);
	CHECK_EQ(table[7], 0x3333);
	CHECK_RESULT(vmi.cpu_write_idt(table, 5, 0x4444, 0x5555), 0);
	CHECK_EQ(table[10], 0x4444);
	CHECK_EQ(table[11], 0x5555);
	CHECK_EQ(table[12], 0xeeeeeeeeeeeeeeee);
}

TEST(table_errors, "cpu.write_gdt.errors", 1, 0, CPU_WRITE_GDT, CPU_WRITE_LDT,
     CPU_WRITE_IDT, CPU_SET_TLS)
{
	u64 *gdt = this_cpu()->gdt, words[4] = { 0 }, table[2] = { 9, 9 };

	CHECK_RESULT(vmi.cpu_write_gdt(table, 0, words, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_write_gdt(table, 0, words, 3), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_write_gdt(table, 8192, words, 1), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_write_gdt(table, 8191, words, 2), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_write_gdt(table, 0xffffffff, words, 1), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_write_ldt(table, 8192, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_write_idt(table, 256, 0, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_set_tls(gdt, TLS_INDEX, words, 0), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_set_tls(gdt, TLS_INDEX, words, 4), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_set_tls(gdt, 8191, words, 2), -VMI_EINVAL);
	CHECK_RESULT(vmi.cpu_set_tls(gdt, 0xffffffff, words, 1), -VMI_EINVAL);
	CHECK_EQ(table[0], 9);
	CHECK_EQ(table[1], 9);
}

TEST(ldt_load, "cpu.set_ldt.loads", 1, 0, CPU_SET_LDT, CPU_GET_LDT, CPU_WRITE_GDT)
{
	static u64 ldt[4] __attribute__((aligned(16)));
	struct percpu *cpu = this_cpu();
	u64 words[2];

	system_descriptor(words, (u64)ldt, sizeof(ldt) - 1, 2);
	CHECK_RESULT(vmi.cpu_write_gdt(cpu->gdt, LDT_SELECTOR / 8, words, 2), 0);
	CHECK_EQ(vmi.cpu_get_ldt(), 0);
	CHECK_RESULT(vmi.cpu_set_ldt(LDT_SELECTOR), 0);
	CHECK_EQ(vmi.cpu_get_ldt(), LDT_SELECTOR);
	CHECK_RESULT(vmi.cpu_set_ldt(0), 0);
	CHECK_EQ(vmi.cpu_get_ldt(), 0);
}

TEST(ldt_errors, "cpu.set_ldt.errors", 1, 0, CPU_SET_LDT)
{
	static u64 ldt[4] __attribute__((aligned(16)));
	u64 words[2];

	system_descriptor(words, (u64)ldt, sizeof(ldt) - 1, 2);
	vmi.cpu_write_gdt(this_cpu()->gdt, LDT_SELECTOR / 8, words, 2);
	CHECK_RESULT(vmi.cpu_set_ldt(LDT_SELECTOR), 0);
	CHECK_RESULT(vmi.cpu_set_ldt(KERNEL_CS), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_set_ldt(BEYOND_LIMIT), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_set_ldt(TSS_SELECTOR), -VMI_EFAULT);
	CHECK_EQ(vmi.cpu_get_ldt(), LDT_SELECTOR);
	CHECK_RESULT(vmi.cpu_set_ldt(0), 0);
}

TEST(ldt_user, "cpu.write_ldt.user_segment", 1, 0, CPU_WRITE_LDT, CPU_SET_LDT)
{
	static u64 ldt[4] __attribute__((aligned(16)));
	static struct space space;
	u64 words[2], va;

	if (!segments_work())
		test_skip("the layer keeps descriptors only");
	space_create(&space);
	va = map_low_page(&space);
	space_load(&space);
	system_descriptor(words, (u64)ldt, sizeof(ldt) - 1, 2);
	vmi.cpu_write_gdt(this_cpu()->gdt, LDT_SELECTOR / 8, words, 2);
	CHECK_RESULT(vmi.cpu_set_ldt(LDT_SELECTOR), 0);
	CHECK_RESULT(vmi.cpu_write_ldt(ldt, 0, data_descriptor(va)), 0);
	CHECK_EQ(user_call(u_fs_select, LDT_DATA, 0), va);
	CHECK_RESULT(vmi.cpu_set_ldt(0), 0);
	vmi.cpu_set_fs_base(0);
	space_load(NULL);
	unmap_low_page(&space, va);
	space_destroy(&space);
}

static struct tss other_tss __attribute__((aligned(16)));

TEST(tr_load, "cpu.set_tr.loads", 1, 0, CPU_SET_TR, CPU_GET_TR)
{
	struct percpu *cpu = this_cpu();
	u64 words[2];

	CHECK_EQ(vmi.cpu_get_tr(), TSS_SELECTOR);
	other_tss.io_map = sizeof(other_tss);
	system_descriptor(words, (u64)&other_tss, sizeof(other_tss) - 1, 9);
	CHECK_RESULT(vmi.cpu_write_gdt(cpu->gdt, SPARE_INDEX, words, 2), 0);
	CHECK_RESULT(vmi.cpu_set_tr(SPARE_SELECTOR), 0);
	CHECK_EQ(vmi.cpu_get_tr(), SPARE_SELECTOR);
	/* Back again: the descriptor must be available. */
	cpu->gdt[TSS_SELECTOR / 8] &= ~(2ull << 40);
	CHECK_RESULT(vmi.cpu_set_tr(TSS_SELECTOR), 0);
	CHECK_EQ(vmi.cpu_get_tr(), TSS_SELECTOR);
}

TEST(tr_errors, "cpu.set_tr.errors", 1, 0, CPU_SET_TR)
{
	/* Not 0: some emulators load it. */
	CHECK_RESULT(vmi.cpu_set_tr(KERNEL_CS), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_set_tr(BEYOND_LIMIT), -VMI_EFAULT);
	CHECK_EQ(vmi.cpu_get_tr(), TSS_SELECTOR);
}

TEST(tls_memory, "cpu.set_tls.stores", 1, 0, CPU_SET_TLS)
{
	u64 *gdt = this_cpu()->gdt, sentinel = gdt[TLS_INDEX + 3];
	u64 words[3] = { data_descriptor(0x1000), data_descriptor(0x2000),
			 data_descriptor(0x3000) };
	u32 i;

	CHECK_RESULT(vmi.cpu_set_tls(gdt, TLS_INDEX, words, 3), 0);
	/* The processor may set the accessed bit when it loads a selector. */
	for (i = 0; i < 3; i++)
		CHECK_EQ(gdt[TLS_INDEX + i], words[i]);
	CHECK_EQ(gdt[TLS_INDEX + 3], sentinel);
	words[0] = 0;
	CHECK_RESULT(vmi.cpu_set_tls(gdt, TLS_INDEX + 1, words, 1), 0);
	CHECK_EQ(gdt[TLS_INDEX], data_descriptor(0x1000));
	CHECK_EQ(gdt[TLS_INDEX + 1], 0);
	CHECK_EQ(gdt[TLS_INDEX + 2], data_descriptor(0x3000));
}

static void tls_user(u64 lazy)
{
	static struct space space;
	u64 *gdt = this_cpu()->gdt, descriptor, va;

	if (!segments_work())
		test_skip("the layer keeps descriptors only");
	space_create(&space);
	va = map_low_page(&space);
	space_load(&space);
	descriptor = data_descriptor(va);
	if (lazy)
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_CPU), 0);
	CHECK_RESULT(vmi.cpu_set_tls(gdt, TLS_INDEX, &descriptor, 1), 0);
	if (lazy)
		CHECK_RESULT(vmi.mmu_set_lazy_mode(VMI_LAZY_NONE), 0);
	CHECK_EQ(user_call(u_fs_select, TLS_SELECTOR, 0), va);
	CHECK_EQ(user_call(u_gs_select, TLS_SELECTOR, 0), va);
	CHECK_RESULT(vmi.cpu_load_gs(0), 0);
	vmi.cpu_set_fs_base(0);
	vmi.cpu_set_user_gs_base(0);
	space_load(NULL);
	unmap_low_page(&space, va);
	space_destroy(&space);
}
TEST_OF(tls_used, "cpu.set_tls.user", tls_user, 0, 1, 0, CPU_SET_TLS);
TEST_OF(tls_lazy, "cpu.set_tls.user_lazy", tls_user, 1, 1, 0, CPU_SET_TLS,
	MMU_SET_LAZY_MODE);

TEST(load_gs, "cpu.load_gs.loads", 1, 0, CPU_LOAD_GS)
{
	static struct space space;
	u64 base = vmi.cpu_get_gs_base(), descriptor = data_descriptor(0x1234000);

	space_create(&space);
	space_load(&space);
	CHECK_RESULT(vmi.cpu_set_tls(this_cpu()->gdt, TLS_INDEX, &descriptor, 1), 0);
	CHECK_RESULT(vmi.cpu_load_gs(USER_SS), 0);
	CHECK_EQ(vmi.cpu_get_gs_base(), base);
	CHECK_EQ(user_call(u_gs_selector, 0, 0), USER_SS);
	if (segments_work()) {
		CHECK_RESULT(vmi.cpu_load_gs(TLS_SELECTOR), 0);
		CHECK_EQ(vmi.cpu_get_user_gs_base(), 0x1234000);
		CHECK_EQ(user_call(u_gs_selector, 0, 0), TLS_SELECTOR);
	}
	CHECK_RESULT(vmi.cpu_load_gs(0), 0);
	CHECK_EQ(user_call(u_gs_selector, 0, 0), 0);
	CHECK_EQ(vmi.cpu_get_gs_base(), base);
	vmi.cpu_set_user_gs_base(0);
	space_load(NULL);
	space_destroy(&space);
}

TEST(load_gs_bad, "cpu.load_gs.errors", 1, 0, CPU_LOAD_GS)
{
	static struct space space;
	u64 base = vmi.cpu_get_gs_base();

	space_create(&space);
	space_load(&space);
	CHECK_RESULT(vmi.cpu_load_gs(USER_SS), 0);
	CHECK_RESULT(vmi.cpu_load_gs(BEYOND_LIMIT | 3), -VMI_EFAULT);
	CHECK_EQ(vmi.cpu_get_gs_base(), base);
	CHECK_EQ(user_call(u_gs_selector, 0, 0), 0);
	CHECK_RESULT(vmi.cpu_load_gs(TSS_SELECTOR), -VMI_EFAULT);
	CHECK_RESULT(vmi.cpu_load_gs(0), 0);
	CHECK_EQ(vmi.cpu_get_gs_base(), base);
	vmi.cpu_set_user_gs_base(0);
	space_load(NULL);
	space_destroy(&space);
}

TEST(fs_base, "cpu.set_fs_base.reads_back", 1, 0, CPU_SET_FS_BASE, CPU_GET_FS_BASE)
{
	static const u64 bases[] = { 0, 0x1000, 0x7ffffffff000, 0xffff800000000000 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bases); i++) {
		CHECK_RESULT(vmi.cpu_set_fs_base(bases[i]), 0);
		CHECK_EQ(vmi.cpu_get_fs_base(), bases[i]);
	}
	CHECK_RESULT(vmi.cpu_set_fs_base(0x5000), 0);
	CHECK_RESULT(vmi.cpu_set_fs_base(NON_CANONICAL), -VMI_EFAULT);
	CHECK_EQ(vmi.cpu_get_fs_base(), 0x5000);
	CHECK_RESULT(vmi.cpu_set_fs_base(0), 0);
}

TEST(gs_base, "cpu.set_gs_base.reads_back", 1, 0, CPU_SET_GS_BASE, CPU_GET_GS_BASE)
{
	u64 base = (u64)this_cpu(), other, count;
	int result;

	CHECK_EQ(vmi.cpu_get_gs_base(), base);
	irq_disable();
	result = vmi.cpu_set_gs_base(NON_CANONICAL);
	other = vmi.cpu_get_gs_base();
	vmi.cpu_set_gs_base(base);
	CHECK_RESULT(result, -VMI_EFAULT);
	CHECK_EQ(other, base);
	CHECK_EQ(vmi.cpu_get_gs_base(), base);
	/* Interrupts are still delivered. */
	count = irq_count(0, VECTOR_A);
	CHECK_RESULT(send_ipi(0, VECTOR_A), 0);
	irq_enable();
	asm volatile("nop");
	CHECK_EQ(irq_count(0, VECTOR_A), count + 1);
}

TEST(user_gs_base, "cpu.set_user_gs_base.reads_back", 1, 0,
     CPU_SET_USER_GS_BASE, CPU_GET_USER_GS_BASE)
{
	static const u64 bases[] = { 0x1000, 0x7ffffffff000, 0xffff800000000000, 0 };
	u64 base = vmi.cpu_get_gs_base();
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bases); i++) {
		CHECK_RESULT(vmi.cpu_set_user_gs_base(bases[i]), 0);
		CHECK_EQ(vmi.cpu_get_user_gs_base(), bases[i]);
		CHECK_EQ(vmi.cpu_get_gs_base(), base);
	}
	CHECK_RESULT(vmi.cpu_set_user_gs_base(NON_CANONICAL), -VMI_EFAULT);
	CHECK_EQ(vmi.cpu_get_user_gs_base(), 0);
}

/* The entry alone: the bases change places, unless the layer has erased the sites. */
TEST(swapgs_exchanges, "cpu.swapgs.exchanges", 1, 0, CPU_SWAPGS)
{
	static const u64 marker = 0x5a3a95;
	struct vmi_call_entry entry;
	u64 other, own;

	if (!vmi.cpu_swapgs)
		test_skip("the layer has no entry for it");
	if (layer.present && vmi_rom_call(&layer.rom, layer.base, CPU_SWAPGS, &entry) &&
	    entry.reloc == VMI_RELOC_NOP)
		test_skip("the kernel is entered with its own GS base");
	irq_disable();
	CHECK_RESULT(vmi.cpu_set_user_gs_base((u64)&marker), 0);
	asm volatile("call *%3; movq %%gs:0, %0; call *%3; movq %%gs:0, %1"
		     : "=&r"(other), "=&r"(own), "+r"(current_rsp)
		     : "r"(vmi.cpu_swapgs) : "rax", "memory", "cc");
	vmi.cpu_set_user_gs_base(0);
	CHECK_EQ(other, marker);
	CHECK_EQ(own, (u64)this_cpu());
}

/* User code reads through the bases that the kernel has set, and keeps them. */
TEST(user_bases, "cpu.swapgs.user_bases", 1, 0, CPU_SWAPGS, CPU_SET_USER_GS_BASE,
     CPU_SET_FS_BASE)
{
	static struct space space;
	u64 gpa = alloc_page(), *page = to_linear(gpa), base = vmi.cpu_get_gs_base();
	u32 i;

	space_create(&space);
	space_set(&space, USER_DATA, gpa | PTE_P | PTE_W | PTE_U, VMI_LEVEL_PT);
	space_load(&space);
	page[0] = 0xf5f5;
	page[8] = 0x6565;
	CHECK_RESULT(vmi.cpu_set_fs_base(USER_DATA), 0);
	CHECK_RESULT(vmi.cpu_set_user_gs_base(USER_DATA + 64), 0);
	for (i = 0; i < 100; i++) {
		CHECK_EQ(user_call(u_fs_load, 0, 0), 0xf5f5);
		CHECK_EQ(user_call(u_gs_load, 0, 0), 0x6565);
		CHECK_EQ(vmi.cpu_get_gs_base(), base);
		CHECK_EQ(vmi.cpu_get_user_gs_base(), USER_DATA + 64);
		CHECK_EQ(vmi.cpu_get_fs_base(), USER_DATA);
	}
	vmi.cpu_set_fs_base(0);
	vmi.cpu_set_user_gs_base(0);
	space_load(NULL);
	space_destroy(&space);
	free_page(gpa);
}
