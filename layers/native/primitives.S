/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Primitives and jumps: the native form of the call, from vmi.h, and a return, after the endbr64 of
 * each entry.
 *
 * Invariant of primitives: argument in rdi, result in rax, every other register preserved, at most
 * eight bytes of stack besides the return address. The native forms comply. A form that enables
 * interrupts shadows the ret, so interrupts arrive at the first instruction after the call.
 */
#include "asm.h"

#define EMIT(S, s, N, n, num, class, since) EMIT_##class(S, s, N, n)
#define EMIT_SYSV(S, s, N, n)
#define EMIT_PRIMITIVE(S, s, N, n)	\
	CALL_ENTRY_POINT(native_##s##_##n)	\
	VMI_NATIVE_##S##_##N;		\
	ret;				\
	END(native_##s##_##n);
/* Reached with a jump: frame and registers are those that the instruction expects. */
#define EMIT_JUMP(S, s, N, n)		\
	CALL_ENTRY_POINT(native_##s##_##n)	\
	VMI_NATIVE_##S##_##N;		\
	END(native_##s##_##n);

#if FAULT(IRQ_ENABLE_NOTHING)
#undef VMI_NATIVE_CPU_IRQ_ENABLE
#define VMI_NATIVE_CPU_IRQ_ENABLE nop
#endif
#if FAULT(IRQ_SAVE_LEAVES_ON)
#undef VMI_NATIVE_CPU_IRQ_SAVE
#define VMI_NATIVE_CPU_IRQ_SAVE pushfq; popq %rax
#endif
#if FAULT(HALT_LEAVES_OFF)
#undef VMI_NATIVE_CPU_HALT
#define VMI_NATIVE_CPU_HALT sti; hlt; cli
#endif
#if FAULT(TSC_CLOBBERS_RDX)
#undef VMI_NATIVE_CPU_READ_TSC
#define VMI_NATIVE_CPU_READ_TSC rdtsc; shlq $32, %rdx; orq %rdx, %rax
#endif
#if FAULT(GET_CR4_CLOBBERS_RCX)
#undef VMI_NATIVE_CPU_GET_CR4
#define VMI_NATIVE_CPU_GET_CR4 movq %cr4, %rcx; movq %rcx, %rax
#endif
#if FAULT(CR8_IGNORED)
#undef VMI_NATIVE_CPU_SET_CR8
#define VMI_NATIVE_CPU_SET_CR8 nop
#endif
#if FAULT(INVALIDATE_PAGE_NOTHING)
#undef VMI_NATIVE_MMU_INVALIDATE_PAGE
#define VMI_NATIVE_MMU_INVALIDATE_PAGE nop
#endif

#if FAULT(IRQ_DISABLE_NOTHING)
#undef VMI_NATIVE_CPU_IRQ_DISABLE
#define VMI_NATIVE_CPU_IRQ_DISABLE nop
#endif
#if FAULT(IRQ_FLAG_CLEAR)
#undef VMI_NATIVE_CPU_IRQ_FLAG
#define VMI_NATIVE_CPU_IRQ_FLAG xorl %eax, %eax
#endif
#if FAULT(IRQ_RESTORE_NEVER_ENABLES)
#undef VMI_NATIVE_CPU_IRQ_RESTORE
#define VMI_NATIVE_CPU_IRQ_RESTORE cli
#endif
#if FAULT(PAUSE_CLOBBERS_RCX)
#undef VMI_NATIVE_CPU_PAUSE
#define VMI_NATIVE_CPU_PAUSE pause; xorl %ecx, %ecx
#endif
#if FAULT(GET_CR0_NO_NE)
#undef VMI_NATIVE_CPU_GET_CR0
#define VMI_NATIVE_CPU_GET_CR0 movq %cr0, %rax; andq $~0x20, %rax
#endif
#if FAULT(SET_CR0_NOTHING)
#undef VMI_NATIVE_CPU_SET_CR0
#define VMI_NATIVE_CPU_SET_CR0 nop
#endif
#if FAULT(CLTS_NOTHING)
#undef VMI_NATIVE_CPU_CLTS
#define VMI_NATIVE_CPU_CLTS nop
#endif
#if FAULT(GET_CR2_PAGE_ONLY)
#undef VMI_NATIVE_CPU_GET_CR2
#define VMI_NATIVE_CPU_GET_CR2 movq %cr2, %rax; andq $-4096, %rax
#endif
#if FAULT(SET_CR2_NOTHING)
#undef VMI_NATIVE_CPU_SET_CR2
#define VMI_NATIVE_CPU_SET_CR2 nop
#endif
#if FAULT(SET_CR4_CLEARS_NOTHING)
#undef VMI_NATIVE_CPU_SET_CR4
#define VMI_NATIVE_CPU_SET_CR4 movq %cr4, %rax; orq %rdi, %rax; movq %rax, %cr4
#endif
#if FAULT(GET_CR8_SHIFTED)
#undef VMI_NATIVE_CPU_GET_CR8
#define VMI_NATIVE_CPU_GET_CR8 movq %cr8, %rax; shlq $4, %rax
#endif
#if FAULT(SWAPGS_NOTHING)
#undef VMI_NATIVE_CPU_SWAPGS
#define VMI_NATIVE_CPU_SWAPGS nop
#endif
#if FAULT(SYSRET_LOSES_FLAGS)
#undef VMI_NATIVE_CPU_SYSRET
#define VMI_NATIVE_CPU_SYSRET movl $0x202, %r11d; sysretq
#endif
#if FAULT(IO_DELAY_CLOBBERS_RDX)
#undef VMI_NATIVE_CPU_IO_DELAY
#define VMI_NATIVE_CPU_IO_DELAY outb %al, $0x80; xorl %edx, %edx
#endif
#if FAULT(WBINVD_CLOBBERS_RCX)
#undef VMI_NATIVE_CPU_WBINVD
#define VMI_NATIVE_CPU_WBINVD wbinvd; xorl %ecx, %ecx
#endif
#if FAULT(GET_CR3_FRAME)
#undef VMI_NATIVE_MMU_GET_CR3
#define VMI_NATIVE_MMU_GET_CR3 movq %cr3, %rax; shrq $12, %rax
#endif

	.text
	VMI_FOR_EACH_CALL(EMIT)

/* A call of class sysv with a native form: with PCIDs off there is no state. */
CALL_ENTRY_POINT(native_mmu_set_cr3)
	VMI_NATIVE_MMU_SET_CR3
	ret
END(native_mmu_set_cr3)

	.section .note.GNU-stack, "", @progbits
