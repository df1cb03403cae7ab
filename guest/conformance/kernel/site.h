/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Annotated sites: the native form of a call, padded to at least 5 bytes, with
 * a record in .vmi.sites, so that it can be replaced by a call of the layer.
 * The padding is segment prefixes in front (CS, which 64-bit mode ignores), so
 * that a site that stays native costs not one instruction more than the plain
 * form. No instruction that needs privilege stands anywhere else in common code;
 * tools/checkimage.c sees to that.
 */
#ifndef KERNEL_SITE_H
#define KERNEL_SITE_H

#include <paravane/vmi.h>

#ifdef __ASSEMBLER__

/* A true comparison is -1 in gas, hence the minus. */
#define SITE(number, native...)						\
771:	.skip	-(((5 - (773f - 772f)) > 0) * (5 - (773f - 772f))), 0x2e; \
772:	native;								\
773:	.pushsection .vmi.sites, "a";					\
	.long	771b - .;						\
	.short	number;							\
	.byte	773b - 771b, 0;						\
	.popsection

/* SITE_CALL(CPU_IRQ_DISABLE): number and native form come from the same name. */
#define SITE_CALL(NAME)	SITE(VMI_CALL_##NAME, VMI_NATIVE_##NAME)

#else

#include "types.h"

#define SITE(number, native)						\
	"771:	.skip	-(((5 - (773f - 772f)) > 0) * (5 - (773f - 772f))), 0x2e\n" \
	"772:	" native "\n"						\
	"773:	.pushsection .vmi.sites, \"a\"\n"			\
	"	.long	771b - .\n"					\
	"	.short	" STRING(number) "\n"				\
	"	.byte	773b - 771b, 0\n"				\
	"	.popsection\n"
#define SITE_CALL(NAME)	SITE(VMI_CALL_##NAME, VMI_NATIVE_STR_##NAME)

/*
 * Invariants of every primitive's site below: the argument is in rdi and the
 * result in rax, all other registers survive but the arithmetic flags, and up
 * to 128 bytes of stack are used, which is free because the kernel has no red
 * zone. Naming rsp as an operand keeps the compiler from placing the site
 * before the frame is set up.
 */
register unsigned long current_rsp asm("rsp");

#define PRIMITIVE_VOID(NAME, function)					\
static inline void function(void)					\
{									\
	asm volatile(SITE_CALL(NAME) : "+r"(current_rsp)		\
		     :: "rax", "memory", "cc");				\
}

#define PRIMITIVE_GET(NAME, function)					\
static inline u64 function(void)					\
{									\
	u64 result;							\
									\
	asm volatile(SITE_CALL(NAME) : "=a"(result), "+r"(current_rsp)	\
		     :: "memory", "cc");				\
	return result;							\
}

#define PRIMITIVE_SET(NAME, function)					\
static inline void function(u64 value)					\
{									\
	asm volatile(SITE_CALL(NAME) : "+r"(current_rsp) : "D"(value)	\
		     : "rax", "memory", "cc");				\
}

PRIMITIVE_VOID(CPU_IRQ_DISABLE, irq_disable)
PRIMITIVE_VOID(CPU_IRQ_ENABLE, irq_enable)
PRIMITIVE_GET(CPU_IRQ_FLAG, irq_flag)
PRIMITIVE_SET(CPU_IRQ_RESTORE, irq_restore)
PRIMITIVE_GET(CPU_IRQ_SAVE, irq_save)
PRIMITIVE_VOID(CPU_HALT, halt)
PRIMITIVE_VOID(CPU_PAUSE, pause)
PRIMITIVE_GET(CPU_GET_CR0, get_cr0)
PRIMITIVE_SET(CPU_SET_CR0, set_cr0)
PRIMITIVE_VOID(CPU_CLTS, clts)
PRIMITIVE_GET(CPU_GET_CR2, get_cr2)
PRIMITIVE_SET(CPU_SET_CR2, set_cr2)
PRIMITIVE_GET(CPU_GET_CR4, get_cr4)
PRIMITIVE_SET(CPU_SET_CR4, set_cr4)
PRIMITIVE_GET(CPU_GET_CR8, get_cr8)
PRIMITIVE_SET(CPU_SET_CR8, set_cr8)
PRIMITIVE_GET(CPU_READ_TSC, read_tsc)
PRIMITIVE_VOID(CPU_IO_DELAY, io_delay)
PRIMITIVE_VOID(CPU_WBINVD, wbinvd)
PRIMITIVE_GET(MMU_GET_CR3, get_cr3)
PRIMITIVE_SET(MMU_INVALIDATE_PAGE, invalidate_page)

/* Of class sysv: its site lies in a function of its own (kernel/stubs.S). */
void set_cr3(u64 cr3, u64 context, u64 generation);

/* Whether interrupts are enabled, by the flag that the layer keeps. */
static inline bool irqs_enabled(void)
{
	return irq_flag() & VMI_FLAGS_IF;
}

#endif
#endif
