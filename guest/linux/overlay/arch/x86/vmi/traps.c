// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exceptions. A layer enters the gates with the frame that a processor pushes, always on the
 * thread's own stack. So handlers that need a stack of their own are replaced. A privileged
 * instruction that is not a pv_op is rare. It raises #GP and is emulated by calls of the layer.
 */
#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <asm/idtentry.h>
#include <asm/insn.h>
#include <asm/io.h>
#include <asm/traps.h>
#include <asm/vmi.h>
#include "vmi.h"

void noist_exc_debug(struct pt_regs *regs);

static unsigned long *reg_at(struct pt_regs *regs, unsigned int number)
{
	static const unsigned short offsets[] = {
		offsetof(struct pt_regs, ax), offsetof(struct pt_regs, cx),
		offsetof(struct pt_regs, dx), offsetof(struct pt_regs, bx),
		offsetof(struct pt_regs, sp), offsetof(struct pt_regs, bp),
		offsetof(struct pt_regs, si), offsetof(struct pt_regs, di),
		offsetof(struct pt_regs, r8), offsetof(struct pt_regs, r9),
		offsetof(struct pt_regs, r10), offsetof(struct pt_regs, r11),
		offsetof(struct pt_regs, r12), offsetof(struct pt_regs, r13),
		offsetof(struct pt_regs, r14), offsetof(struct pt_regs, r15),
	};

	return (void *)regs + offsets[number & 15];
}

static void set_result(struct pt_regs *regs, unsigned int width, u64 value)
{
	switch (width) {
	case 1:
		regs->ax = (regs->ax & ~0xffUL) | (value & 0xff);
		break;
	case 2:
		regs->ax = (regs->ax & ~0xffffUL) | (value & 0xffff);
		break;
	default:
		regs->ax = (u32)value;
	}
}

/* ins and outs. The direction flag is always clear in the kernel. */
static void port_string(struct pt_regs *regs, bool in, unsigned int width, bool rep)
{
	u64 count = rep ? regs->cx : 1;

	if (in) {
		vmi.cpu_port_in_string((u16)regs->dx, width, (void *)regs->di, count);
		regs->di += count * width;
	} else {
		vmi.cpu_port_out_string((u16)regs->dx, width, (const void *)regs->si, count);
		regs->si += count * width;
	}
	if (rep)
		regs->cx = 0;
}

static bool control_register(struct pt_regs *regs, bool write, unsigned int number,
			     unsigned long *reg)
{
	switch (number) {
	case 0:
		if (write)
			vmi.cpu_set_cr0(*reg);
		else
			*reg = vmi.cpu_get_cr0();
		return true;
	case 2:
		if (write)
			vmi.cpu_set_cr2(*reg);
		else
			*reg = vmi.cpu_get_cr2();
		return true;
	case 3:
		if (write)
			vmi.mmu_set_cr3(*reg, 0, 0);
		else
			*reg = vmi.mmu_get_cr3();
		return true;
	case 4:
		if (write)
			vmi.cpu_set_cr4(*reg);
		else
			*reg = vmi.cpu_get_cr4();
		return true;
	}
	return false;
}

static bool two_byte(struct pt_regs *regs, const u8 *ip, unsigned int rex, unsigned int *length)
{
	unsigned int reg = (ip[1] >> 3 & 7) | (rex & 4 ? 8 : 0);
	unsigned int rm = (ip[1] & 7) | (rex & 1 ? 8 : 0);
	u64 value;

	switch (ip[0]) {
	case 0x01:
		if (ip[1] != 0xd1)	/* xsetbv */
			return false;
		*length = 2;
		return !vmi.cpu_set_xcr(regs->cx, regs->dx << 32 | (u32)regs->ax);
	case 0x06:			/* clts */
		vmi.cpu_clts();
		*length = 1;
		return true;
	case 0x08:			/* invd */
	case 0x09:			/* wbinvd */
		*length = 1;
		return true;
	case 0x20:			/* mov from and to a control register */
	case 0x22:
		*length = 2;
		return control_register(regs, ip[0] == 0x22, reg, reg_at(regs, rm));
	case 0x21:			/* mov from and to a debug register */
		value = 0;
		vmi.cpu_get_dr(reg, &value);
		*reg_at(regs, rm) = value;
		*length = 2;
		return true;
	case 0x23:
		vmi.cpu_set_dr(reg, *reg_at(regs, rm));
		*length = 2;
		return true;
	case 0x30:			/* wrmsr, rdmsr; the exception table handles a fault */
		*length = 1;
		return !vmi.cpu_write_msr(regs->cx, regs->dx << 32 | (u32)regs->ax);
	case 0x32:
		*length = 1;
		if (vmi.cpu_read_msr(regs->cx, &value))
			return false;
		regs->ax = (u32)value;
		regs->dx = value >> 32;
		return true;
	}
	return false;
}

/* Emulates the instruction at regs->ip. Returns false if it is not one of these. */
static noinline bool emulate(struct pt_regs *regs)
{
	const u8 *ip = (const u8 *)regs->ip;
	unsigned int length = 1, width = 4, rex = 0;
	bool rep = false;

	for (;; ip++) {
		if (*ip == 0x66)
			width = 2;
		else if (*ip == 0xf3 || *ip == 0xf2)
			rep = true;
		else
			break;
	}
	if ((*ip & 0xf0) == 0x40)
		rex = *ip++;
	switch (*ip) {
	case 0xe4:		/* in and out with an immediate port */
	case 0xe5:
		width = *ip == 0xe4 ? 1 : width;
		set_result(regs, width, vmi.cpu_port_in(ip[1], width));
		length = 2;
		break;
	case 0xe6:
	case 0xe7:
		width = *ip == 0xe6 ? 1 : width;
		vmi.cpu_port_out(ip[1], width, regs->ax);
		length = 2;
		break;
	case 0xec:		/* in and out by dx */
	case 0xed:
		width = *ip == 0xec ? 1 : width;
		set_result(regs, width, vmi.cpu_port_in((u16)regs->dx, width));
		break;
	case 0xee:
	case 0xef:
		width = *ip == 0xee ? 1 : width;
		vmi.cpu_port_out((u16)regs->dx, width, regs->ax);
		break;
	case 0x6c:
	case 0x6d:
	case 0x6e:
	case 0x6f:
		width = *ip & 1 ? width : 1;
		port_string(regs, *ip < 0x6e, width, rep);
		break;
	case 0xf4:		/* hlt; with interrupts off nothing would end it */
		if (regs->flags & X86_EFLAGS_IF)
			vmi.cpu_halt();
		else
			vmi.cpu_stop();
		break;
	case 0xfa:		/* cli and sti; they change the frame */
		regs->flags &= ~X86_EFLAGS_IF;
		break;
	case 0xfb:
		regs->flags |= X86_EFLAGS_IF;
		break;
	case 0x0f:
		if (!two_byte(regs, ip + 1, rex, &length))
			return false;
		length++;
		break;
	default:
		return false;
	}
	regs->ip = (unsigned long)ip + length;
	return true;
}

DEFINE_PER_CPU(unsigned long, vmi_bad_iret_error);

/*
 * cpu.iret has faulted in the layer: its frame for user mode has selectors or an address that no
 * processor accepts. The frame lies at the layer's stack pointer. No other code of the layer faults
 * without an entry in its exception table.
 */
static bool bad_iret(struct pt_regs *regs, unsigned long error_code)
{
	const unsigned long *frame = (const unsigned long *)regs->sp;

	if (!vmi_low || !vmi_in_layer(regs->ip) || !(frame[1] & SEGMENT_RPL_MASK))
		return false;
	/* Interrupts stay off until vmi_bad_iret has read it. */
	__this_cpu_write(vmi_bad_iret_error, error_code);
	regs->ip = (unsigned long)vmi_bad_iret;
	return true;
}

DEFINE_IDTENTRY_RAW_ERRORCODE(vmi_exc_general_protection)
{
	if (!user_mode(regs)) {
		bool done;

		instrumentation_begin();
		done = vmi_fixup_exception(regs) || bad_iret(regs, error_code) || emulate(regs);
		instrumentation_end();
		if (done)
			return;
	}
	exc_general_protection(regs, error_code);
}

DEFINE_IDTENTRY_RAW_ERRORCODE(vmi_exc_double_fault)
{
	exc_double_fault(regs, error_code);
}

DEFINE_IDTENTRY_RAW(vmi_exc_debug)
{
	if (user_mode(regs))
		noist_exc_debug(regs);
	else
		exc_debug(regs);
}

DEFINE_IDTENTRY_RAW(vmi_exc_nmi)
{
	exc_nmi(regs);
}

#ifdef CONFIG_X86_MCE
void noist_exc_machine_check(struct pt_regs *regs);

DEFINE_IDTENTRY_RAW(vmi_exc_machine_check)
{
	if (user_mode(regs))
		noist_exc_machine_check(regs);
	else
		exc_machine_check(regs);
}
#endif

unsigned long vmi_gate_target(unsigned int vector, unsigned long target)
{
	if (!vmi_low)
		return target;
	switch (vector) {
	case X86_TRAP_GP:
		return (unsigned long)asm_vmi_exc_general_protection;
	case X86_TRAP_DF:
		return (unsigned long)asm_vmi_exc_double_fault;
	case X86_TRAP_DB:
		return (unsigned long)asm_vmi_exc_debug;
	case X86_TRAP_NMI:
		return (unsigned long)asm_vmi_exc_nmi;
#ifdef CONFIG_X86_MCE
	case X86_TRAP_MC:
		return (unsigned long)asm_vmi_exc_machine_check;
#endif
	}
	return target;
}
