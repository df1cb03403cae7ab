// SPDX-License-Identifier: GPL-2.0-only
/*
 * The relocation record of each call at the kernel's sites: the calls of pv_ops for which the VMI
 * has a native form. Each record is obeyed by itself.
 *
 * Until the alternatives are applied, a site calls what pv_ops contains. Then alternative.c asks
 * here what the site becomes.
 *
 * /sys/kernel/debug/vmi/calls says for each of these calls what its record is, and how many sites
 * hold what.
 */
#include <linux/array_size.h>
#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <asm/paravirt.h>
#include <asm/vmi.h>
#include "vmi.h"

#define NATIVE_MAX 3

struct kind {
	const char *name;
	const void *op;
	u32 call;
	/*
	 * What the site is without a layer. None: a call of the kernel's own function, to which
	 * pv_ops points.
	 */
	u8 native[NATIVE_MAX], native_length;
	/* The operands of the call are not all in their registers at the site. */
	bool wrapped;
	/* VMI_RELOC_..., and the code of VMI_RELOC_INLINE. Set by vmi_read_records(). */
	u8 record;
	struct vmi_inline insns;
	/* Sites by what they have become. */
	u32 as_native, as_nop, as_inline, as_call;
};

/* The bytes are the native forms of vmi.h. */
static struct kind kinds[] = {
	{ "cpu.irq_flag", &pv_ops.irq.save_fl, VMI_CALL_CPU_IRQ_FLAG, { 0x9c, 0x58 }, 2 },
	{ "cpu.irq_disable", &pv_ops.irq.irq_disable, VMI_CALL_CPU_IRQ_DISABLE, { 0xfa }, 1 },
	{ "cpu.irq_enable", &pv_ops.irq.irq_enable, VMI_CALL_CPU_IRQ_ENABLE, { 0xfb }, 1 },
	{ "cpu.halt", &pv_ops.irq.safe_halt, VMI_CALL_CPU_HALT },
	{ "cpu.get_cr0", &pv_ops.cpu.read_cr0, VMI_CALL_CPU_GET_CR0 },
	{ "cpu.set_cr0", &pv_ops.cpu.write_cr0, VMI_CALL_CPU_SET_CR0 },
	{ "cpu.get_cr2", &pv_ops.mmu.read_cr2, VMI_CALL_CPU_GET_CR2, { 0x0f, 0x20, 0xd0 }, 3 },
	{ "cpu.set_cr2", &pv_ops.mmu.write_cr2, VMI_CALL_CPU_SET_CR2 },
	{ "cpu.set_cr4", &pv_ops.cpu.write_cr4, VMI_CALL_CPU_SET_CR4 },
	{ "cpu.io_delay", &pv_ops.cpu.io_delay, VMI_CALL_CPU_IO_DELAY },
	{ "cpu.wbinvd", &pv_ops.cpu.wbinvd, VMI_CALL_CPU_WBINVD, { 0x0f, 0x09 }, 2 },
	/* A site has the root alone. The function that pv_ops gets adds context and generation. */
	{ "mmu.set_cr3", &pv_ops.mmu.write_cr3, VMI_CALL_MMU_SET_CR3, { 0x0f, 0x22, 0xdf }, 3,
	  .wrapped = true },
	{ "mmu.get_cr3", &pv_ops.mmu.read_cr3, VMI_CALL_MMU_GET_CR3, { 0x0f, 0x20, 0xd8 }, 3 },
	{ "mmu.invalidate_page", &pv_ops.mmu.flush_tlb_one_user, VMI_CALL_MMU_INVALIDATE_PAGE },
};

static struct kind *kind_of(const void *op)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].op == op)
			return &kinds[i];
	return NULL;
}

void __init vmi_use(void *op, u32 call, void *function)
{
	unsigned int record = vmi_layer_record(call);
	const struct kind *kind = kind_of(op);

	/* In the lower half the kernel has no other way to do what is no site's instruction. */
	if (record == VMI_RELOC_NONE && (kind || !vmi_low || !vmi_layer_has(call)))
		return;
	/* Only a site can be erased. Other calls are made in any case. */
	if (record == VMI_RELOC_NOP && kind)
		function = paravirt_nop;
	memcpy(op, &function, sizeof(function));
}

/* Whether the record of a call is one that can be obeyed. */
static bool __init good_record(u32 call, bool jump)
{
	struct vmi_inline insns;

	switch (vmi_layer_record(call)) {
	case VMI_RELOC_NONE:
		return true;
	case VMI_RELOC_JUMP:
		return jump;
	case VMI_RELOC_CALL:
	case VMI_RELOC_NOP:
		return !jump;
	case VMI_RELOC_INLINE:
		return vmi_layer_inline(call, &insns);
	}
	return false;
}

/*
 * Calls that the kernel has no sites of. With privilege it keeps their instructions, which work. In
 * the lower half it is built for one record of each: it never swaps GS bases, it returns by jumps,
 * and it spins and reads the time-stamp counter as programs do.
 */
static const struct {
	u32 call;
	u8 record;
	const char *wrong;
} unmarked[] __initconst = {
	{ VMI_CALL_CPU_SWAPGS, VMI_RELOC_NOP, "cpu.swapgs: its record is not NOP" },
	{ VMI_CALL_CPU_IRET, VMI_RELOC_JUMP, "cpu.iret: its record is not JUMP" },
	{ VMI_CALL_CPU_SYSRET, VMI_RELOC_JUMP, "cpu.sysret: its record is not JUMP" },
	{ VMI_CALL_CPU_PAUSE, VMI_RELOC_NONE, "cpu.pause: its record is not NONE" },
	{ VMI_CALL_CPU_READ_TSC, VMI_RELOC_NONE, "cpu.read_tsc: its record is not NONE" },
};

#define CALL_NAME(section, name, text) #section "." #name text
#define IS_PRIMITIVE false
#define IS_SYSV false
#define IS_JUMP true

const char *__init vmi_read_records(void)
{
	static char left[64] __initdata;
	const char *lacks = vmi_layer_lacks();
	unsigned int i;

	/* core.init may have taken back a call, too. */
	if (lacks)
		return lacks;
#define X(SECTION, section, CALL, name, number, CLASS, since)			\
	if (!good_record(number, IS_##CLASS))					\
		return CALL_NAME(section, name, ": bad relocation record");
	VMI_FOR_EACH_CALL(X)
#undef X
	for (i = 0; vmi_low && i < ARRAY_SIZE(unmarked); i++)
		if (vmi_layer_record(unmarked[i].call) != unmarked[i].record)
			return unmarked[i].wrong;
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct kind *kind = &kinds[i];

		kind->record = vmi_layer_record(kind->call);
		if (kind->record == VMI_RELOC_INLINE)
			vmi_layer_inline(kind->call, &kind->insns);
		/* pushf needs no privilege. */
		if (vmi_layer.rom.header.flags & VMI_HEADER_PARAVIRT &&
		    kind->record == VMI_RELOC_NONE && kind->call != VMI_CALL_CPU_IRQ_FLAG) {
			snprintf(left, sizeof(left), "%s: the instruction does not work here",
				 kind->name);
			return left;
		}
	}
	return NULL;
}

bool __init vmi_sites_differ(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].native_length && kinds[i].record != VMI_RELOC_NONE)
			return true;
	return false;
}

int __init_or_module vmi_site(const void *op, u8 *code, unsigned int length)
{
	struct kind *kind = vmi_layer.present ? kind_of(op) : NULL;

	if (!kind)
		return -1;
	switch (kind->record) {
	case VMI_RELOC_NONE:
		kind->as_native++;
		if (!kind->native_length)
			return -1;
		memcpy(code, kind->native, kind->native_length);
		return kind->native_length;
	case VMI_RELOC_NOP:
		kind->as_nop++;
		return 0;
	case VMI_RELOC_INLINE:
		/* Too short a site gets a call instead. */
		if (kind->wrapped || kind->insns.length > length)
			break;
		kind->as_inline++;
		memcpy(code, kind->insns.code, kind->insns.length);
		return kind->insns.length;
	}
	kind->as_call++;
	return -1;
}

static int calls_show(struct seq_file *file, void *unused)
{
	static const char *const records[] = {
		[VMI_RELOC_NONE] = "none", [VMI_RELOC_CALL] = "call", [VMI_RELOC_NOP] = "nop",
		[VMI_RELOC_INLINE] = "inline",
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct kind *kind = &kinds[i];

		seq_printf(file, "%s %s native %u nop %u inline %u call %u\n", kind->name,
			   records[kind->record], kind->as_native, kind->as_nop,
			   kind->as_inline, kind->as_call);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(calls);

static int __init calls_init(void)
{
	if (vmi_layer.present)
		debugfs_create_file("calls", 0444, vmi_debugfs(), NULL, &calls_fops);
	return 0;
}
late_initcall(calls_init);
