// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Decodes store instructions. */
#include "device/store.h"
#include "host/signals.h"

static u64 general_register(const struct host_registers *regs, u32 number)
{
	switch (number) {
	case 0: return regs->rax;
	case 1: return regs->rcx;
	case 2: return regs->rdx;
	case 3: return regs->rbx;
	case 4: return regs->rsp;
	case 5: return regs->rbp;
	case 6: return regs->rsi;
	case 7: return regs->rdi;
	default: return (&regs->r8)[number - 8];
	}
}

/* Without a REX prefix, 4 to 7 are ah, ch, dh and bh. */
static u64 byte_register(const struct host_registers *regs, u32 number, bool rex)
{
	if (!rex && number >= 4)
		return general_register(regs, number - 4) >> 8;
	return general_register(regs, number);
}

/* Bytes of the address after the ModRM byte. The address itself is in cr2. */
static u32 address_length(u8 modrm, u8 sib)
{
	u32 mod = modrm >> 6, rm = modrm & 7;
	u32 length = rm == 4;

	if (mod == 1)
		return length + 1;
	if (mod == 2 || (mod == 0 && (rm == 5 || (rm == 4 && (sib & 7) == 5))))
		return length + 4;
	return length;
}

static u64 immediate(const u8 *bytes, u32 count)
{
	u64 value = 0;
	u32 i;

	for (i = 0; i < count; i++)
		value |= (u64)bytes[i] << 8 * i;
	/* Sign-extended, for a store of eight bytes. */
	return count == 4 ? (u64)(s64)(s32)value : value;
}

bool store_decode(const struct host_registers *regs, const u8 *code, u32 length, struct store *s)
{
	u32 at = 0, reg, operand, count = 0;
	bool narrow = false, extended;
	u8 rex = 0, op, modrm;

	for (; at < CODE_MAX; at++) {
		u8 b = code[at];

		if (b == 0x66)
			narrow = true;
		else if (b != 0x26 && b != 0x2e && b != 0x36 && b != 0x3e && b != 0x64 && b != 0x65)
			break;
	}
	if (at + 4 > CODE_MAX)
		return false;
	if ((code[at] & 0xf0) == 0x40)
		rex = code[at++];
	op = code[at++];
	extended = op == 0x0f;
	if (extended)
		op = code[at++];
	modrm = code[at++];
	if (modrm >> 6 == 3)
		return false;
	reg = (modrm >> 3 & 7) | (rex & 4) << 1;
	at += address_length(modrm, at < CODE_MAX ? code[at] : 0);
	operand = rex & 8 ? 8 : narrow ? 2 : 4;

	if (extended) {
		if (op != 0xc3 || narrow)
			return false;
		s->value = general_register(regs, reg);
	} else if (op == 0x88) {
		operand = 1;
		s->value = byte_register(regs, reg, rex != 0);
	} else if (op == 0x89) {
		s->value = general_register(regs, reg);
	} else if ((op == 0xc6 || op == 0xc7) && !(modrm & 0x38)) {
		if (op == 0xc6)
			operand = 1;
		count = operand > 4 ? 4 : operand;
		if (at + count > CODE_MAX)
			return false;
		s->value = immediate(code + at, count);
	} else {
		return false;
	}
	s->width = operand;
	if (operand < 8)
		s->value &= (1ULL << 8 * operand) - 1;
	s->length = at + count;
	return s->length <= length;
}
