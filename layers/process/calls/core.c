// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Section core. */
#include "calls/calls.h"
#include "common/faults.h"
#include "crossing/crossing.h"
#include "entry/debug.h"
#include "entry/deliver.h"
#include "host/clock.h"
#include "host/costs.h"
#include "host/doorbell.h"
#include "host/futex.h"
#include "host/lock.h"
#include "state/cpu.h"
#include "state/state.h"
#include "vcpu/irq.h"

extern const u8 layer_section_table[], layer_section_table_end[];
extern volatile u64 ph_kernel_cs, ph_user_selectors, ph_deliver_with;

int process_core_probe(void)
{
	return shared->s.magic == PHV_MAGIC ? 0 : -VMI_ENODEV;
}

/* Gives each GS(field) of the thunks its displacement. */
static void edit_thunks(u64 displacement)
{
	u8 *p;
	u32 word;

	for (p = ph_thunks_start + 24; p + 4 <= ph_thunks_end; p++) {
		__builtin_memcpy(&word, p, 4);
		if ((word & ~0xffU) != GS_PATTERN)
			continue;
		word += (u32)displacement - GS_PATTERN;
		__builtin_memcpy(p, &word, 4);
		p += 3;
	}
	*(volatile u64 *)&gs_displacement = displacement;
	ph_kernel_cs = shared->kernel_cs;
	ph_user_selectors = (u64)shared->user_ss << 32 | shared->user_cs;
	ph_deliver_with = (u64)deliver_at_return;
}

/* Addresses that this layer does not use are checked too: a kernel must not depend on that. */
static bool init_good(const struct vmi_init *init)
{
	return init->layer_base == PHV_LAYER_BASE && init->direct_map == shared->direct_map &&
	       !(init->percpu_gs_offset & 7) && init->percpu_gs_offset + 0x80000000 <= 0xffffffff &&
	       init->vcpu_count && !(init->percpu_table & 7) &&
	       kernel_data(init->percpu_table, init->vcpu_count * 8ULL) &&
	       !(init->apic & 0xfff) && !(init->low_page & 0xfff) && init->low_page < 0x100000;
}

/* An entry of vmi_init.percpu_table. Only the boot vCPU needs its data already. */
static bool entry_good(u64 pointer, u32 vcpu)
{
	const struct vmi_percpu *percpu = to_pointer(pointer);

	return percpu_good(pointer) && percpu->vcpu == vcpu && (vcpu || percpu->data) &&
	       !(percpu->data & (VMI_PERCPU_ALIGN - 1));
}

int process_core_init(struct vmi_init *init)
{
	const u64 *table = to_pointer(init->percpu_table);
	struct vcpu *boot = vcpu_at(0);
	u32 i, count = init->vcpu_count;

	if (shared->init_done)
		return -VMI_EBUSY;
	if (init->size < VMI_OFF_INIT_LAYER_BASE)
		return -VMI_EINVAL;
	if (init->api_version >> 16 != VMI_API_MAJOR)
		return -VMI_ERANGE;
	if (init->size < VMI_SIZE_INIT || !init_good(init))
		return -VMI_EINVAL;
	/* A kernel may be built for more vCPUs than the machine has. Those never start. */
	if (count > shared->s.vcpu_count)
		count = shared->s.vcpu_count;
	for (i = 0; i < count; i++)
		if ((i == 0 || table[i]) && !entry_good(table[i], i))
			return -VMI_EINVAL;
	for (i = 0; i < count; i++) {
		struct vcpu *v = vcpu_at(i);

		if (!table[i])
			continue;
		v->percpu = to_pointer(table[i]);
		*(u64 *)((u8 *)v->percpu + F_VCPU) = (u64)v;
		FAST(v, F_IRQ) = 0;
		FAST(v, F_PENDING) = 0;
		FAST(v, F_FORCE) = 0;
	}
	shared->kernel_cs = init->kernel_cs;
	shared->kernel_ss = init->kernel_ss;
	shared->user_cs = init->user_cs;
	shared->user_ss = init->user_ss;
	shared->percpu_gs_offset = init->percpu_gs_offset;
	shared->percpu_table = init->percpu_table;
	shared->start_ns = now_ns();
	boot->kernel_gs = rdgsbase();
	edit_thunks(init->percpu_gs_offset);
	/* Requests that came before there was a place to mark them. */
	irq_mark(boot);
	shared->init_done = 1;
	if (FAULT(INFO_CHANGES))
		((struct vmi_boot_info *)to_pointer(shared->s.boot_info))->mem[0].size -= 4096;
	return 0;
}

s64 process_core_version(u32 section)
{
	const struct vmi_section *s = (const struct vmi_section *)layer_section_table;

	for (; s < (const struct vmi_section *)layer_section_table_end; s++)
		if (s->id == section)
			return (s64)((u64)s->features << 32 | s->version);
	return -VMI_ENOENT;
}

static void monitor_tell(u32 state, u32 status)
{
	u32 old = PHV_VM_RUNNING;

	shared->s.vm_status = status;
	__atomic_compare_exchange_n(&shared->s.vm_state, &old, state, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
	doorbell_ring();
}

static noreturn void wait_for_end(void)
{
	static u32 never;

	for (;;)
		futex_wait(&never, 0, U64_MAX);
}

int process_core_reboot(u32 mode)
{
	if (mode != VMI_REBOOT_SOFT && mode != VMI_REBOOT_HARD)
		return -VMI_EINVAL;
	debug_note_call(this_vcpu());
	monitor_tell(PHV_VM_REBOOT, mode);
	wait_for_end();
}

noreturn void process_core_shutdown(u32 status)
{
	debug_note_call(this_vcpu());
	monitor_tell(PHV_VM_SHUTDOWN, status & 0xff);
	wait_for_end();
}

s64 process_core_console_write(const void *buffer, u64 length)
{
	u8 *ring = to_pointer(PHV_SHARED + PHV_SHARED_CONSOLE);
	const u8 *bytes = buffer;
	u32 head, tail;
	u64 done;

	if (length > 65536)
		return -VMI_EINVAL;
	lock_take(&shared->console);
	head = shared->s.console_head;
	for (done = 0; done < length;) {
		tail = __atomic_load_n(&shared->s.console_tail, __ATOMIC_ACQUIRE);
		if (head - tail >= PHV_CONSOLE_SIZE) {
			__atomic_store_n(&shared->s.console_head, head, __ATOMIC_RELEASE);
			doorbell_ring();
			futex_wait(&shared->s.console_tail, tail, U64_MAX);
			continue;
		}
		ring[head++ & (PHV_CONSOLE_SIZE - 1)] = bytes[done++];
	}
	__atomic_store_n(&shared->s.console_head, head, __ATOMIC_RELEASE);
	lock_release(&shared->console);
	doorbell_ring();
	return (s64)length;
}

int process_core_costs(struct vmi_costs *costs, u32 size)
{
	struct vmi_costs known = { 0 };
	u32 both = size < sizeof(known) ? size : sizeof(known);

	if (!size || size > VMI_COSTS_MAX)
		return -VMI_EINVAL;
	if (heuristic(PHV_FLAG_NO_COSTS))
		costs_known(&known);
	__builtin_memcpy(costs, &known, both);
	__builtin_memset((u8 *)costs + both, 0, size - both);
	return 0;
}
