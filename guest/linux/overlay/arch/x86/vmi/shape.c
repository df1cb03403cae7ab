// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shapes of system-call sites.
 *
 * Only one instruction before the syscall instruction is replaced, so whoever is, or comes, between two
 * instructions finds what was there: the rest of them, and the syscall instruction itself, stay. An
 * instruction of 5 bytes or more becomes a jump to the slot. A shorter one becomes a jump of 2 bytes to a
 * cave, padding that is never executed, and that one to the slot.
 *
 * Going backwards, where an instruction begins is a guess. It is made sure of by what the system call's
 * registers say: the site can only have loaded rax with what is there.
 */
#include <linux/mm.h>
#include <linux/string.h>
#include <asm/insn.h>
#include <asm/ptrace.h>
#include "shape.h"

#define JUMP_SIZE 5

static bool is_rex(u8 byte)
{
	return (byte & 0xf0) == 0x40;
}

/* Instructions that do the same at another address, and leave the stack alone. Their length, or 0. */
static unsigned int movable(const u8 *at, unsigned int room)
{
	struct insn insn;
	u8 opcode, modrm;

	if (insn_decode(&insn, at, room, INSN_MODE_64) || insn.prefixes.nbytes || insn.opcode.nbytes != 1)
		return 0;
	opcode = insn.opcode.bytes[0];
	modrm = insn.modrm.bytes[0];
	if (opcode >= 0xb8 && opcode <= 0xbf)	/* mov imm,reg */
		return insn.length;
	if (!insn.modrm.nbytes)
		return 0;
	switch (opcode) {
	case 0x8b:				/* mov disp8(%rsp),reg */
		if (X86_MODRM_MOD(modrm) == 1 && X86_MODRM_RM(modrm) == 4 &&
		    insn.sib.bytes[0] == 0x24)
			return insn.length;
		fallthrough;
	case 0x31:				/* xor, mov between registers; not to rsp */
	case 0x33:
	case 0x89:
	case 0x80:				/* with an immediate */
	case 0x83:
	case 0xc7:
		if (X86_MODRM_MOD(modrm) != 3 || X86_MODRM_RM(modrm) == 4 || X86_MODRM_REG(modrm) == 4)
			return 0;
		return insn.length;
	}
	return 0;
}

static bool all_movable(const u8 *at, const u8 *end)
{
	unsigned int length;

	for (; at < end; at += length) {
		length = movable(at, end - at);
		if (!length || length > end - at)
			return false;
	}
	return true;
}

/* mov $nr,%eax or %rax, and perhaps more behind it. */
static bool find_mov(const u8 *page, unsigned int syscall, u32 nr, struct shape *shape)
{
	static const u8 wide[] = { 0x48, 0xc7, 0xc0 };
	unsigned int back, start;
	bool match;

	for (back = 5; back <= SHAPE_PREFIX_MAX && back < syscall; back++) {
		const u8 *at = page + syscall - back;

		start = syscall - back;
		if (at[0] == 0xb8)
			match = !is_rex(at[-1]) && !memcmp(at + 1, &nr, 4) &&
				all_movable(at + 5, page + syscall);
		else
			match = back >= 7 && !memcmp(at, wide, sizeof(wide)) &&
				!memcmp(at + 3, &nr, 4) && all_movable(at + 7, page + syscall);
		if (match) {
			shape->start = start;
			return true;
		}
	}
	return false;
}

/* The function syscall() of C libraries: its last argument comes from the stack. */
static bool find_generic(const u8 *page, unsigned int syscall, struct shape *shape)
{
	static const u8 code[] = { 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08 };

	if (syscall < sizeof(code) || memcmp(page + syscall - sizeof(code), code, sizeof(code)))
		return false;
	shape->start = syscall - 5;
	return true;
}

/* A short last instruction. */
static bool find_short(const u8 *page, unsigned int syscall, const struct pt_regs *regs, u32 nr,
		       struct shape *shape)
{
	/* Go's: mov %rsi,%r10; mov %rdi,%rdx; mov %rcx,%rsi; mov %rbx,%rdi */
	static const u8 go[] = {
		0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf,
	};
	/* By number; rax, rcx and rsp are not what they were, or not what is looked for. */
	const unsigned long from[] = {
		0, 0, regs->dx, regs->bx, 0, regs->bp, regs->si, regs->di,
		regs->r8, regs->r9, regs->r10, 0, regs->r12, regs->r13, regs->r14, regs->r15,
	};
	const u16 known = 0xf7ec;
	const u8 *end = page + syscall;
	unsigned int number, length = 2;

	if (syscall >= sizeof(go) && !memcmp(end - sizeof(go), go, sizeof(go))) {
		shape->start = syscall - 3;
		return true;
	}
	if (syscall < 4)
		return false;
	/* xor %eax,%eax */
	if (end[-1] == 0xc0 && (end[-2] == 0x31 || end[-2] == 0x33) && !is_rex(end[-3]) && !nr) {
		shape->start = syscall - 2;
		return true;
	}
	/* mov register,%eax */
	if (end[-2] != 0x89 || (end[-1] & 0xc7) != 0xc0)
		return false;
	number = end[-1] >> 3 & 7;
	if (is_rex(end[-3])) {
		/* To r8 and so on, if not this. */
		if (end[-3] & 3)
			return false;
		number |= (end[-3] & 4) << 1;
		length = 3;
	}
	if (!(known >> number & 1) || (u32)from[number] != nr)
		return false;
	shape->start = syscall - length;
	return true;
}

/* Execution does not go on behind it. */
static bool is_end(const struct insn *insn)
{
	u8 opcode = insn->opcode.bytes[0];

	if (insn->opcode.nbytes == 2)
		return opcode == 0x0f && insn->opcode.bytes[1] == 0x0b;
	if (insn->opcode.nbytes != 1)
		return false;
	return opcode == 0xc3 || opcode == 0xe9 || opcode == 0xeb || opcode == 0xcc ||
	       (opcode == 0xff && X86_MODRM_REG(insn->modrm.bytes[0]) == 4);
}

static bool is_padding(const struct insn *insn)
{
	u8 opcode = insn->opcode.bytes[0];

	return (insn->opcode.nbytes == 1 && (opcode == 0x90 || opcode == 0xcc)) ||
	       (insn->opcode.nbytes == 2 && opcode == 0x0f && insn->opcode.bytes[1] == 0x1f);
}

/*
 * Padding behind an end of execution, up to where something is aligned: compilers put it there, nothing jumps into it. Found by going
 * through the instructions that follow the system call, so that this is no guess.
 */
static unsigned int find_cave(const u8 *page, unsigned int syscall, unsigned int start)
{
	unsigned int limit = min_t(unsigned int, start + 2 + 127, PAGE_SIZE - JUMP_SIZE);
	unsigned int at = syscall + 2, padding = 0;
	bool ended = false;
	struct insn insn;

	while (at < PAGE_SIZE) {
		if (insn_decode(&insn, page + at, min_t(unsigned int, 15, PAGE_SIZE - at), INSN_MODE_64))
			return 0;
		if (ended && is_padding(&insn)) {
			if (!padding)
				padding = at;
			if (padding > limit)
				return 0;
		} else {
			if (padding && at - padding >= JUMP_SIZE && !(at & 15))
				return padding;
			if (at > limit)
				return 0;
			padding = 0;
			ended = is_end(&insn);
		}
		at += insn.length;
	}
	return 0;
}

bool shape_find(const u8 *page, unsigned int syscall, const struct pt_regs *regs, struct shape *shape)
{
	u32 nr = (u32)regs->orig_ax;

	/* The instruction is in this page, and the number has not been changed. */
	if (syscall > PAGE_SIZE - 2 || page[syscall] != 0x0f || page[syscall + 1] != 0x05 ||
	    regs->orig_ax > INT_MAX)
		return false;
	shape->syscall = syscall;
	shape->cave = 0;
	if (find_mov(page, syscall, nr, shape) || find_generic(page, syscall, shape))
		return true;
	if (!find_short(page, syscall, regs, nr, shape))
		return false;
	shape->cave = find_cave(page, syscall, shape->start);
	return shape->cave != 0;
}
