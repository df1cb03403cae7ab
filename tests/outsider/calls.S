/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The entry point of each call, and the inline code of those that have some. */
#include "asm.h"
#include "outsider.h"

/* Calls that are this layer's own. The others are the native layer's. */
#define OWN(num)									\
	(num == VMI_CALL_CORE_INIT) | (num == VMI_CALL_CORE_VERSION) |			\
	(num == VMI_CALL_CPU_READ_MSR) | (num == VMI_CALL_CPU_WRITE_MSR) |		\
	(num == VMI_CALL_APIC_EOI) | (num == VMI_CALL_MMU_FLUSH_SPACE) |		\
	(num == VMI_CALL_TIME_READ) | (num == VMI_CALL_TIME_WALLCLOCK) |		\
	(num == VMI_CALL_TIME_WALLCLOCK_UPDATED) | (num == VMI_CALL_TIME_SET_ALARM) |	\
	(num == VMI_CALL_CPU_IRQ_DISABLE) | (num == VMI_CALL_CPU_IRQ_FLAG) |		\
	(num == VMI_CALL_MMU_GET_CR3) | (num == VMI_CALL_MMU_SET_CR3)

/* Sections that no native layer has need no entries. */
#define PASS(S, s, N, n, num, class, since)	\
	.if !(OWN(num)) && num >> 8 != VMI_SECTION_STATS && num >> 8 != VMI_SECTION_LINE && \
		num >> 8 != VMI_SECTION_BUS;	\
	CALL_ENTRY_POINT(outsider_##s##_##n);	\
	jmp native_##s##_##n;			\
	END(outsider_##s##_##n);		\
	.endif;

/*
 * A u32 in struct vmi_percpu, which outsider_core_init adds to the displacement. One instruction
 * counts, so an interrupt or an NMI loses nothing. Invariant: no register changes but the flags.
 */
#define COUNT(field) incl %gs:field
#define IRQ_DISABLE cli; COUNT(OUTSIDER_IRQ_DISABLE)
#define IRQ_FLAG COUNT(OUTSIDER_IRQ_FLAG); pushfq; popq %rax
#define GET_CR3 COUNT(OUTSIDER_GET_CR3); movq %cr3, %rax

	/* Everything up to outsider_code_end is completed before core.init returns. */
	.data
	.globl	outsider_code, outsider_code_end
	.hidden	outsider_code, outsider_code_end
outsider_code:

	/* struct vmi_inline */
#define INLINE(s, n, instructions...)		\
	.globl	inline_##s##_##n;		\
	.hidden	inline_##s##_##n;		\
inline_##s##_##n:				\
	.byte	2f - 1f;			\
1:	instructions;				\
2:	.org	inline_##s##_##n + VMI_SIZE_INLINE

INLINE(cpu, irq_disable, IRQ_DISABLE)
/* As short as a site: 5 bytes. No other code looks like this. */
INLINE(cpu, irq_enable, xchgw %ax, %ax; xchgw %ax, %ax; sti)
INLINE(cpu, irq_flag, IRQ_FLAG)
INLINE(cpu, get_cr2, movq %cr2, %rax)
INLINE(mmu, invalidate_page, invlpg (%rdi))
INLINE(mmu, get_cr3, GET_CR3)
INLINE(cpu, set_cr4, movq %rdi, %cr4)

	/* The same at entry points. */
#define CODE(s, n, instructions...)		\
CALL_ENTRY_POINT(outsider_##s##_##n)		\
	instructions;				\
	ret;					\
END(outsider_##s##_##n)

CODE(cpu, irq_disable, IRQ_DISABLE)
CODE(cpu, irq_flag, IRQ_FLAG)
CODE(mmu, get_cr3, GET_CR3)
outsider_code_end:

	.text
	VMI_FOR_EACH_CALL(PASS)

/* Counts in the last bytes of the layer data. rdi stays the root. */
CALL_ENTRY_POINT(outsider_mmu_set_cr3)
	movq	outsider_gs_offset(%rip), %rax
	movq	%gs:VMI_OFF_PERCPU_DATA(%rax), %rax
	testq	%rax, %rax
	jz	native_mmu_set_cr3
	lock incq OUTSIDER_SET_CR3(%rax)
	jmp	native_mmu_set_cr3
END(outsider_mmu_set_cr3)

	.section .note.GNU-stack, "", @progbits
