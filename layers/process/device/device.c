// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The layer's half of virtio over MMIO. The monitor's half is
 * monitor/hypervisor/src/process/device.rs.
 *
 * The registers of a device are a page of shared memory that guests see read-only, so a read is a
 * load. A write faults and is carried out here. A notification sets a bit and wakes the device's
 * thread if it sleeps; it waits for nothing. An acknowledgement clears bits in the page. Every
 * other write goes to the device's thread, which answers when the page shows its effects. A write
 * costs a signal and its return, and a notification of a sleeping device also a futex wake. The
 * calls line.notify and line.status do what those two writes do, without the signal; bus.command
 * and bus.notify do the same for the registers of a bridge.
 *
 * The monitor does not trust what is shared here. It keeps its own copy of all that matters to it.
 */
#include "device/device.h"
#include "common/faults.h"
#include "device/notify.h"
#include "device/store.h"
#include "host/lock.h"
#include "host/signals.h"
#include "mm/fill.h"
#include "mm/walk.h"
#include "state/cpu.h"
#include "state/state.h"

/* virtio 1.2, section 4.2.2 */
#define QUEUE_NOTIFY 0x50
#define INTERRUPT_STATUS 0x60
#define INTERRUPT_ACK 0x64

u32 device_acknowledge(u32 number, u32 bits)
{
	u32 *status = to_pointer(PHV_DEVICES + number * PAGE_SIZE + INTERRUPT_STATUS);

	return __atomic_fetch_and(status, ~bits, __ATOMIC_SEQ_CST) & bits;
}

static void write_register(struct vcpu *v, u64 gpa, u32 width, u64 value)
{
	u64 at = gpa - shared->s.device_gpa;
	u32 number = (u32)(at / PAGE_SIZE), offset = at % PAGE_SIZE;

	if (offset == QUEUE_NOTIFY && width == 4) {
		if (value < PHV_MAX_QUEUES)
			device_notify_from(v, number, (u32)value);
	} else if (offset == INTERRUPT_ACK && width == 4) {
		device_acknowledge(number, (u32)value);
	} else {
		device_store(v, number, offset, width, value);
	}
}

/*
 * Reads the instruction through the guest's tables: its mapping may be gone by now. Returns the
 * number of bytes.
 */
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

/*
 * Finds the device at va and sets the bits that a processor sets in the entry. Under the process's
 * lock.
 */
static bool look_up(const struct vcpu *v, u64 va, u32 access, struct walk *w, bool *again)
{
	u64 updated;

	if (!walk_guest(v, va, w, false) || !device_page(w->gpa) || (access & PF_FETCH))
		return false;
	if (((access & PF_USER) && !w->user) || ((access & PF_WRITE) && !w->writable))
		return false;
	updated = w->pte | PTE_A | (access & PF_WRITE ? PTE_D : 0);
	*again = updated != w->pte &&
		!__atomic_compare_exchange_n(w->entry, &w->pte, updated, false, __ATOMIC_SEQ_CST,
								   __ATOMIC_RELAXED);
	return true;
}

enum device_result device_access(struct vcpu *v, struct host_registers *regs, u64 va, u32 access)
{
	bool write = access & PF_WRITE, again = false, found;
	u8 code[CODE_MAX];
	struct store store;
	struct walk w;
	u32 length = 0;

	if (!shared->s.device_count)
		return DEVICE_NONE;
	lock_take(&self.proc->lock);
	found = look_up(v, va, access, &w, &again);
	if (found && !again) {
		if (write)
			length = fetch(v, regs->rip, code);
		else
			tlb_fill_device(v, va, &w);
	}
	lock_release(&self.proc->lock);
	/* If the entry changed in between, the instruction is executed again. */
	if (!found)
		return DEVICE_NONE;
	if (again || !write)
		return DEVICE_DONE;
	/* 32-bit code has other prefixes. */
	if (regs->cs != HOST_USER_CS || !store_decode(regs, code, length, &store))
		return DEVICE_REFUSED;
	if (FAULT(STORE_ANY_WIDTH))
		store.width = 4;
	write_register(v, w.gpa + va % PAGE_SIZE, store.width, store.value);
	regs->rip += store.length;
	return regs->rflags & FLAG_TF ? DEVICE_STEPPED : DEVICE_DONE;
}

