// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Devices: virtio over MMIO, of which the monitor has the other half (monitor/hypervisor/src/process/device.rs).
 *
 * The registers of a device are a page of shared memory that guests see read-only: a read is a load. A write faults, and is
 * done here: a notification sets a bit and wakes the device's thread if it sleeps, without waiting for anything; an
 * acknowledgement clears bits in the page; every other write goes to the device's thread, which answers when the page shows
 * what follows from it. Cost: a signal and its return, and for a notification to a sleeping device a futex wake.
 *
 * What is shared here is not trusted by the monitor; it has its own copy of everything that matters to it.
 */
#include "calls/calls.h"
#include "device/device.h"
#include "host/host.h"
#include "vcpu/irq.h"
#include "mm/mmu.h"

/* virtio 1.2, section 4.2.2 */
#define QUEUE_NOTIFY 0x50
#define INTERRUPT_STATUS 0x60
#define INTERRUPT_ACK 0x64

#define CODE_MAX 15

static struct phv_device *device_at(u32 number)
{
	struct phv_device *all = to_pointer(PHV_SHARED + PHV_SHARED_DEVICES);

	return &all[number];
}

/* Gives the device's thread something to do. */
static void notify(struct phv_device *device, u32 bits)
{
	__atomic_fetch_or(&device->notify, bits, __ATOMIC_SEQ_CST);
	/* Against: the thread writes sleeping, fence, reads notify. One wake is enough for all who come before it runs. */
	if (READ_ONCE(device->sleeping) && __atomic_exchange_n(&device->sleeping, 0, __ATOMIC_SEQ_CST))
		futex_wake(&device->notify, 1);
}

static void request(struct vcpu *v, u32 number, u32 offset, u32 width, u64 value)
{
	struct phv_request *all = to_pointer(PHV_SHARED + PHV_SHARED_REQUESTS), *r = &all[v->number];

	r->device = number;
	r->offset = offset;
	r->width = width;
	r->value = value;
	__atomic_store_n(&r->state, PHV_REQUEST_ASKED, __ATOMIC_RELEASE);
	notify(device_at(number), PHV_NOTIFY_REGISTER);
	while (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) == PHV_REQUEST_ASKED)
		futex_wait(&r->state, PHV_REQUEST_ASKED, U64_MAX);
	WRITE_ONCE(r->state, PHV_REQUEST_NONE);
}

static void write_register(struct vcpu *v, u64 gpa, u32 width, u64 value)
{
	u64 at = gpa - shared->s.device_gpa;
	u32 number = (u32)(at / PAGE_SIZE), offset = at % PAGE_SIZE;

	if (offset == QUEUE_NOTIFY && width == 4) {
		if (value < PHV_MAX_QUEUES)
			notify(device_at(number), 1U << value);
	} else if (offset == INTERRUPT_ACK && width == 4) {
		u32 *status = to_pointer(PHV_DEVICES + number * PAGE_SIZE + INTERRUPT_STATUS);

		__atomic_fetch_and(status, ~(u32)value, __ATOMIC_SEQ_CST);
	} else {
		request(v, number, offset, width, value);
	}
}

/* A store as an instruction describes it. */
struct store {
	u32 length;	/* of the instruction */
	u32 width;	/* bytes stored */
	u64 value;
};

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

/* ah, ch, dh and bh are 4 to 7 where there is no REX prefix. */
static u64 byte_register(const struct host_registers *regs, u32 number, bool rex)
{
	if (!rex && number >= 4)
		return general_register(regs, number - 4) >> 8;
	return general_register(regs, number);
}

/* Bytes of the address behind the ModRM byte; what they say is in cr2 already. */
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

/* The plain stores: mov of a register or of an immediate, movnti. Bytes behind length are zero. */
static bool decode(const struct host_registers *regs, const u8 *code, u32 length, struct store *s)
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

/* Reads the instruction by way of the guest's tables: its mapping may be gone by now. Says how many bytes there are. */
static u32 fetch(const struct vcpu *v, u64 rip, u8 *code)
{
	const u8 *page;
	struct walk w;
	u32 i, length = CODE_MAX;

	for (i = 0; i < CODE_MAX; i++)
		code[i] = 0;
	for (i = 0; i < length; i++) {
		if (i == 0 || !((rip + i) % PAGE_SIZE))
			page = walk_guest(v, rip + i, &w, false) ? guest_ram(w.gpa) : NULL;
		if (!page)
			break;
		code[i] = page[(rip + i) % PAGE_SIZE];
	}
	return i;
}

/* Finds the device behind va; sets what a processor sets in the entry. Under the process's lock. */
static bool look_up(const struct vcpu *v, u64 va, u32 access, struct walk *w, bool *again)
{
	u64 updated;

	if (!walk_guest(v, va, w, false) || !device_page(w->gpa) || (access & PF_FETCH))
		return false;
	if (((access & PF_USER) && !w->user) || ((access & PF_WRITE) && !w->writable))
		return false;
	updated = w->pte | PTE_A | (access & PF_WRITE ? PTE_D : 0);
	*again = updated != w->pte && !__atomic_compare_exchange_n(w->slot, &w->pte, updated, false, __ATOMIC_SEQ_CST,
								   __ATOMIC_RELAXED);
	return true;
}

bool device_access(struct vcpu *v, struct host_registers *regs, u64 va, u32 access)
{
	bool write = access & PF_WRITE, again = false, found;
	u8 code[CODE_MAX];
	struct store store;
	struct walk w;
	u32 length = 0;

	if (!shared->s.device_count)
		return false;
	lock_take(&self.proc->lock);
	found = look_up(v, va, access, &w, &again);
	if (found && !again) {
		if (write)
			length = fetch(v, regs->rip, code);
		else
			tlb_fill_device(v, va, &w);
	}
	lock_release(&self.proc->lock);
	/* An entry that changed meanwhile: the instruction faults again, or does not. */
	if (!found || again || !write)
		return found;
	/* 32-bit code has other prefixes. */
	if (regs->cs != 0x33 || !decode(regs, code, length, &store)) {
		inject(v, regs, VECTOR_GP, true, 0);
		return true;
	}
	write_register(v, w.gpa + va % PAGE_SIZE, store.width, store.value);
	regs->rip += store.length;
	if (regs->rflags & FLAG_TF) {
		v->dr[6] = 0xffff4ff0;
		inject(v, regs, VECTOR_DB, false, 0);
	}
	return true;
}

int process_line_route(u32 line, u32 apic_id, u32 vector)
{
	struct vcpu *v = this_vcpu(), *to;
	struct phv_device *device;

	if (vector && (vector < VMI_VECTOR_MIN || vector > VMI_VECTOR_MAX))
		return -VMI_EINVAL;
	if (line >= shared->s.device_count || line >= PHV_MAX_DEVICES ||
	    (vector && apic_id >= shared->s.vcpu_count))
		return -VMI_ENOENT;
	device = device_at(line);
	__atomic_store_n(&device->route, vector ? apic_id << 8 | vector : 0, __ATOMIC_SEQ_CST);
	/* Against: the monitor writes raised, fence, reads route. */
	if (!vector || !__atomic_exchange_n(&device->raised, 0, __ATOMIC_SEQ_CST))
		return 0;
	to = vcpu_at(apic_id);
	irq_request(to, vector);
	if (to == v)
		irq_refresh(v);
	else
		irq_poke(to);
	return 0;
}
