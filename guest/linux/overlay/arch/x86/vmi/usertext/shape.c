// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shapes of system-call sites and of cpuid sites.
 *
 * Only one instruction before the syscall instruction is replaced. A thread that is between two
 * instructions, or jumps there, still finds the others and the syscall instruction itself. An
 * instruction of 5 bytes or more becomes a jump to the stub. A shorter one becomes a jump of 2
 * bytes to a cave, which holds a jump to the stub. A cave is padding that is never executed.
 *
 * Decoding backwards only guesses where an instruction begins. The registers of a system call
 * confirm the guess: the site can only have loaded rax with the number that is there. This is
 * enough for a process that can harm only itself. For text that processes share, and where the
 * registers say nothing, the beginning is proven: decoding forward from each of 15 neighbouring
 * bytes, one of which begins an instruction, leads there.
 */
#include <linux/mm.h>
#include <linux/string.h>
#include <asm/insn.h>
#include <asm/ptrace.h>
#include "shape.h"

/* @at is less than 0 in the bytes before the page. */
static int decode(struct insn *insn, const u8 *page, int at)
{
	return insn_decode(insn, page + at, min_t(unsigned int, INSN_BYTES, PAGE_SIZE - at),
			   INSN_MODE_64);
}

static bool is_rex(u8 byte)
{
	return (byte & 0xf0) == 0x40;
}

/*
 * The opcode is in the one-byte opcode map. The decoder also counts one opcode byte after VEX, EVEX
 * and REX2 prefixes, which select other maps.
 */
static bool is_plain(const struct insn *insn)
{
	return insn->opcode.nbytes == 1 && !insn->vex_prefix.nbytes && insn->rex_prefix.nbytes < 2;
}

/*
 * Returns the length of an instruction that does the same at another address and does not change
 * the stack pointer; 0 for any other.
 */
static unsigned int movable(const u8 *at, unsigned int room)
{
	struct insn insn;
	u8 opcode, modrm, rex;

	if (insn_decode(&insn, at, room, INSN_MODE_64) || insn.prefixes.nbytes || !is_plain(&insn))
		return 0;
	opcode = insn.opcode.bytes[0];
	modrm = insn.modrm.bytes[0];
	rex = insn.rex_prefix.nbytes ? insn.rex_prefix.bytes[0] : 0;
	if (opcode >= 0xb8 && opcode <= 0xbf)	/* mov imm,reg; not to rsp */
		return opcode == 0xbc && !X86_REX_B(rex) ? 0 : insn.length;
	if (!insn.modrm.nbytes)
		return 0;
	/* Others in this group are not mov: xbegin. */
	if ((opcode == 0xc6 || opcode == 0xc7) && X86_MODRM_REG(modrm))
		return 0;
	switch (opcode) {
	case 0x80:				/* with an immediate, not to rsp; shifts */
	case 0x81:
	case 0x83:
	case 0xc1:
		return X86_MODRM_MOD(modrm) == 3 &&
		       (X86_MODRM_RM(modrm) != 4 || X86_REX_B(rex)) ? insn.length : 0;
	case 0x8d:				/* lea; not relative to rip, not to rsp */
		return X86_MODRM_MOD(modrm) != 3 &&
		       (X86_MODRM_MOD(modrm) || X86_MODRM_RM(modrm) != 5) &&
		       (X86_MODRM_REG(modrm) != 4 || X86_REX_R(rex)) ? insn.length : 0;
	case 0xc6:				/* mov imm,disp(%rsp) */
	case 0xc7:
	case 0x8b:				/* mov disp8(%rsp),reg */
		if ((X86_MODRM_MOD(modrm) == 1 || (X86_MODRM_MOD(modrm) == 2 && opcode != 0x8b)) &&
		    X86_MODRM_RM(modrm) == 4 && insn.sib.bytes[0] == 0x24 &&
		    (X86_MODRM_REG(modrm) != 4 || X86_REX_R(rex)))
			return insn.length;
		if (opcode == 0xc6)
			return 0;
		fallthrough;
	case 0x31:				/* xor, mov between registers; not to rsp */
	case 0x33:
	case 0x89:
		if (X86_MODRM_MOD(modrm) != 3 || (X86_MODRM_RM(modrm) == 4 && !X86_REX_B(rex)) ||
		    (X86_MODRM_REG(modrm) == 4 && !X86_REX_R(rex)))
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

/* mov $nr,%eax or %rax, and perhaps more movable instructions after it. */
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

/*
 * mov $value,argument, and perhaps more movable instructions after it, where the call's number is
 * loaded too far before. The argument still has that value.
 */
static bool find_argument(const u8 *page, unsigned int syscall, const struct pt_regs *regs,
			  struct shape *shape)
{
	const struct {
		u8 rex, opcode;
		unsigned long value;
	} arguments[] = {
		{ 0, 0xbf, regs->di }, { 0, 0xbe, regs->si }, { 0, 0xba, regs->dx },
		{ 0x41, 0xba, regs->r10 }, { 0x41, 0xb8, regs->r8 }, { 0x41, 0xb9, regs->r9 },
	};
	unsigned int back, i, length;

	for (back = 5; back <= SHAPE_PREFIX_MAX && back < syscall; back++) {
		const u8 *at = page + syscall - back;

		for (i = 0; i < ARRAY_SIZE(arguments); i++) {
			bool rex = arguments[i].rex;
			u32 value = arguments[i].value;

			length = 5 + rex;
			if (back < length || at[rex] != arguments[i].opcode ||
			    (rex ? at[0] != arguments[i].rex : is_rex(at[-1])) ||
			    value != arguments[i].value || memcmp(at + 1 + rex, &value, 4) ||
			    !all_movable(at + length, page + syscall))
				continue;
			shape->start = syscall - back;
			return true;
		}
	}
	return false;
}

static bool follows(const u8 *page, unsigned int syscall, const u8 *code, unsigned int length)
{
	return syscall >= length && !memcmp(page + syscall - length, code, length);
}

/*
 * Functions of C libraries that can make any call. Their last instruction has 5 bytes and uses the
 * stack.
 */
static bool find_generic(const u8 *page, unsigned int syscall, struct shape *shape)
{
	/* syscall(): mov %r9,%r8; mov 8(%rsp),%r9 */
	static const u8 any[] = { 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08 };
	/* glibc 2.41, threads that can be cancelled: mov 16(%rsp),%r9; mov %r11,8(%rsp) */
	static const u8 cancelled[] = {
		0x4c, 0x8b, 0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c, 0x24, 0x08,
	};
	/* glibc 2.41, a single thread: mov disp8(%rsp),%rax, at the end of __syscall_cancel() */
	static const u8 single[] = { 0x48, 0x8b, 0x44, 0x24 };

	if (!follows(page, syscall, any, sizeof(any)) &&
	    !follows(page, syscall, cancelled, sizeof(cancelled)) &&
	    !(syscall && follows(page, syscall - 1, single, sizeof(single))))
		return false;
	shape->start = syscall - JUMP_SIZE;
	return true;
}

/* The last instruction is short. */
static bool find_short(const u8 *page, unsigned int syscall, const struct pt_regs *regs, u32 nr,
		       struct shape *shape)
{
	/* Go's: mov %rsi,%r10; mov %rdi,%rdx; mov %rcx,%rsi; mov %rbx,%rdi */
	static const u8 go[] = {
		0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf,
	};
	/* By register number. rax and rcx have changed since, and rsp holds no call number. */
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
		/* REX.B or REX.X: the destination is not eax. */
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

/* Execution does not continue after this instruction. */
static bool is_end(const struct insn *insn)
{
	u8 opcode = insn->opcode.bytes[0];

	if (insn->opcode.nbytes == 2)
		return opcode == 0x0f && insn->opcode.bytes[1] == 0x0b;
	if (!is_plain(insn))
		return false;
	return opcode == 0xc3 || opcode == 0xe9 || opcode == 0xeb || opcode == 0xcc ||
	       (opcode == 0xff && X86_MODRM_REG(insn->modrm.bytes[0]) == 4);
}

/*
 * Padding after such an end. A handler of int3 may continue after it, so only further int3
 * instructions are padding there.
 */
static bool is_padding(const struct insn *insn, u8 end)
{
	u8 opcode = insn->opcode.bytes[0];

	if (end == 0xcc && opcode != 0xcc)
		return false;
	return (is_plain(insn) && (opcode == 0x90 || opcode == 0xcc)) ||
	       (insn->opcode.nbytes == 2 && opcode == 0x0f && insn->opcode.bytes[1] == 0x1f);
}

/*
 * Finds padding between an end of execution and the next aligned address. Compilers put it there,
 * and nothing jumps into it. The search decodes forward from @at, where an instruction begins, so
 * its result is not a guess. Returns 0 if there is none.
 */
static unsigned int find_cave(const u8 *page, unsigned int at, unsigned int start)
{
	unsigned int limit = min_t(unsigned int, start + 2 + 127, PAGE_SIZE - JUMP_SIZE);
	unsigned int least = start + 2 > 128 ? start + 2 - 128 : 0, padding = 0;
	struct insn insn;
	u8 end = 0;

	while (at < PAGE_SIZE) {
		if (decode(&insn, page, at))
			return 0;
		if (end && is_padding(&insn, end)) {
			if (!padding)
				padding = at;
			if (padding > limit)
				return 0;
		} else {
			/*
			 * An aligned function may itself begin with such instructions. So
			 * the padding ends where a function could begin.
			 */
			if (padding >= least && padding && !(at & 7) &&
			    min(at, round_up(padding, 16)) - padding >= JUMP_SIZE)
				return padding;
			if (at > limit)
				return 0;
			padding = 0;
			end = is_end(&insn) ? insn.opcode.bytes[0] : 0;
		}
		at += insn.length;
	}
	return 0;
}

/*
 * Decodes from @at and returns where the first instruction begins that is not before @place; 0 if
 * an instruction on the way is invalid.
 */
static int decode_to(const u8 *page, int at, int place)
{
	struct insn insn;

	while (at < place) {
		if (decode(&insn, page, at))
			return 0;
		at += insn.length;
	}
	return at;
}

/*
 * Whether an instruction begins at @place. In any 15 consecutive bytes of code before it at least
 * one instruction begins; if decoding from all of them leads to @place, so does execution.
 * Decoders synchronise after a few instructions, so this mostly succeeds. @before is the number of
 * bytes before the page that are code and can be read.
 */
static bool begins(const u8 *page, unsigned int before, int place)
{
	int back, i;

	for (back = 3 * INSN_BYTES; back <= SHAPE_BEFORE_MAX && back <= place + (int)before;
	     back += INSN_BYTES) {
		for (i = 0; i < INSN_BYTES; i++)
			if (decode_to(page, place - back + i, place) != place)
				break;
		if (i == INSN_BYTES)
			return true;
	}
	return false;
}

/* The first place from @from on where an instruction certainly begins, or @limit if none does. */
static unsigned int first_beginning(const u8 *page, unsigned int before, unsigned int from,
				    unsigned int limit)
{
	for (; from < limit; from++)
		if (begins(page, before, from))
			return from;
	return limit;
}

/*
 * Returns the offset of the displacement in a near jcc, or in a mov between a register and
 * rip-relative memory; 0 for any other instruction.
 */
static unsigned int relative_field(const u8 *at, unsigned int length)
{
	unsigned int rex = is_rex(at[0]);

	if (length == 6 && at[0] == 0x0f && (at[1] & 0xf0) == 0x80)
		return 2;
	if (length == 6 + rex && (at[rex] == 0x89 || at[rex] == 0x8b) &&
	    (at[rex + 1] & 0xc7) == 0x05)
		return 2 + rex;
	return 0;
}

/*
 * Finds the last instruction of 5 bytes or more before the syscall or cpuid instruction at @site
 * from which on all instructions can be moved. An instruction begins at @at. Instructions with
 * displacements count only if @distances is set: code often jumps to what follows a jump, and would
 * then still execute the instruction at @site.
 */
static bool find_long(const u8 *page, unsigned int at, unsigned int site, bool distances,
		      struct shape *shape)
{
	bool found = false;
	struct insn insn;

	while (at < site) {
		if (decode(&insn, page, at))
			return false;
		if (insn.length >= JUMP_SIZE && site - at <= SHAPE_PREFIX_MAX &&
		    at + insn.length <= site &&
		    all_movable(page + at + insn.length, page + site)) {
			unsigned int relative = relative_field(page + at, insn.length);

			if (relative ? distances : movable(page + at, insn.length) == insn.length) {
				shape->start = at;
				shape->relative = relative;
				found = true;
			}
		}
		at += insn.length;
	}
	return found && at == site;
}

/* Where the instructions lie that may be moved: the first proven beginning. */
static unsigned int first_movable(const u8 *page, unsigned int before, unsigned int site)
{
	return first_beginning(page, before, site > SHAPE_PREFIX_MAX ? site - SHAPE_PREFIX_MAX : 0,
			       site);
}

bool shape_find(const u8 *page, unsigned int before, unsigned int syscall,
		const struct pt_regs *regs, struct shape *shape)
{
	u32 nr = (u32)regs->orig_ax;

	/* The instruction lies in this page, and a tracer has not changed the number. */
	if (syscall > PAGE_SIZE - 2 || page[syscall] != 0x0f || page[syscall + 1] != 0x05 ||
	    regs->orig_ax > INT_MAX)
		return false;
	shape->syscall = syscall;
	shape->cave = 0;
	shape->relative = 0;
	if (find_mov(page, syscall, nr, shape) || find_generic(page, syscall, shape) ||
	    find_argument(page, syscall, regs, shape))
		return true;
	if (find_short(page, syscall, regs, nr, shape)) {
		shape->cave = find_cave(page, syscall + 2, shape->start);
		if (shape->cave)
			return true;
	}
	return find_long(page, first_movable(page, before, syscall), syscall, false, shape);
}

bool shape_proven(const u8 *page, unsigned int before, const struct shape *shape)
{
	return begins(page, before, shape->start) &&
	       decode_to(page, shape->start, shape->syscall) == shape->syscall;
}

bool shape_find_cpuid(const u8 *page, unsigned int before, unsigned int cpuid,
		      struct shape *shape)
{
	unsigned int from;

	if (cpuid > PAGE_SIZE - 2 || page[cpuid] != 0x0f || page[cpuid + 1] != 0xa2 ||
	    !begins(page, before, cpuid))
		return false;
	shape->syscall = cpuid;
	shape->cave = 0;
	shape->relative = 0;
	if (find_long(page, first_movable(page, before, cpuid), cpuid, false, shape))
		return true;
	/* Otherwise the cpuid instruction itself becomes a short jump. */
	shape->start = cpuid;
	shape->relative = 0;
	from = first_beginning(page, before, cpuid > 160 ? cpuid - 160 : 0, cpuid);
	shape->cave = find_cave(page, from, cpuid);
	if (!shape->cave)
		shape->cave = find_cave(page, cpuid + 2, cpuid);
	if (shape->cave)
		return true;
	return find_long(page, first_movable(page, before, cpuid), cpuid, true, shape);
}
