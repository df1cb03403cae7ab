/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The wall clock, and the clock page.
 *
 * The host says what date it was when its clock was 0, and forgets that it was asked. Asking is an
 * exit, so the layer asks once a second at most.
 */
#include "counter.h"
#include "kvm.h"

#define ASK_NS NSEC_PER_SEC
/* A difference that is less is the host's own error. */
#define ERROR_NS 1000000
/* One that is less is the host's NTP at work, and no step. */
#define STEP_NS 100000000

/* The state of the machine. The vCPU that has set busy changes it. */
static struct {
	u32 busy;
	u64 start; /* the wall clock at real time 0, ns */
	u64 reported; /* start, when a step was last reported to the kernel */
	u64 asked; /* real time */
	bool stepped;
	struct vmi_clock *page;
} wall;

struct kvm_page_state kvm_page;

u64 kvm_wall_read(struct kvm_percpu *self)
{
	u32 version;
	u64 ns;

	cpu_wrmsr(MSR_KVM_WALL_CLOCK, self->wall_gpa);
	do {
		version = READ_ONCE(self->wall.version);
		barrier();
		ns = READ_ONCE(self->wall.sec) * NSEC_PER_SEC + READ_ONCE(self->wall.nsec);
		barrier();
	} while (version & 1 || version != READ_ONCE(self->wall.version));
	return ns + kvm.start_ns;
}

void kvm_wall_start(u64 start)
{
	wall.start = start;
	wall.reported = start;
}

static u64 distance(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

static void page_write(struct kvm_percpu *self)
{
	struct vmi_clock *page = wall.page;
	struct kvm_clock_info now;

	if (!page)
		return;
	kvm_clock_now(&self->clock, &now);
	kvm_page.keeper = self;
	kvm_page.version = now.version;
	/* Readers see an odd sequence or all of it: this processor keeps its stores in order. */
	WRITE_ONCE(page->sequence, page->sequence | 1);
	barrier();
	page->flags = now.flags & KVM_CLOCK_STABLE ? 1 : 0;
	page->tsc = now.tsc;
	page->real_ns = now.ns > kvm.start_ns ? now.ns - kvm.start_ns : 0;
	if (FAULT(CLOCK_PAGE_HOST_TIME))
		page->real_ns = now.ns;
	page->wall_ns = wall.start;
	page->mult = now.mul;
	page->shift = (u32)(32 - now.shift);
	barrier();
	WRITE_ONCE(page->sequence, page->sequence + 1);
}

/* Interrupts are off, and the state is this vCPU's. */
static void refresh(struct kvm_percpu *self)
{
	u64 now = native_real_time(), start;
	bool changed = false;

	if (now - wall.asked >= ASK_NS && !FAULT(WALLCLOCK_ASKED_ONCE)) {
		wall.asked = now;
		start = kvm_wall_read(self);
		if (distance(start, wall.start) >= ERROR_NS) {
			wall.start = start;
			changed = true;
		}
		if (distance(start, wall.reported) >= STEP_NS) {
			wall.reported = start;
			wall.stepped = !FAULT(STEP_UNREPORTED);
		}
	}
	if (changed || kvm_page_behind(self))
		page_write(self);
}

static bool begin(struct kvm_percpu *self)
{
	u32 free = 0;

	if (!__atomic_compare_exchange_n(&wall.busy, &free, 1, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return false;
	refresh(self);
	return true;
}

static void end(void)
{
	__atomic_store_n(&wall.busy, 0, __ATOMIC_SEQ_CST);
}

void kvm_page_follow(struct kvm_percpu *self)
{
	/* Another vCPU, or what this NMI has interrupted, is at it. */
	if (begin(self))
		end();
}

u64 kvm_time_wallclock(void)
{
	u64 flags, start;

	if (!kvm.clock)
		return native_time_wallclock();
	flags = cpu_irq_save();
	/* If another vCPU is asking, its result may be reported a second later. */
	if (begin(kvm_self()))
		end();
	start = READ_ONCE(wall.start) + native_real_time();
	cpu_irq_restore(flags);
	return start;
}

int kvm_time_wallclock_updated(void)
{
	bool stepped = false;
	u64 flags;

	if (!kvm.clock)
		return native_time_wallclock_updated();
	flags = cpu_irq_save();
	if (begin(kvm_self())) {
		stepped = wall.stepped;
		wall.stepped = false;
		end();
	}
	cpu_irq_restore(flags);
	return stepped;
}

int kvm_time_set_clock(struct vmi_clock *clock, u64 gpa)
{
	struct kvm_percpu *self;
	u64 flags;

	if (!kvm.clock)
		return native_time_set_clock(clock, gpa);
	if ((clock || gpa) && (!clock || (u64)clock % sizeof(*clock) ||
			       ((u64)clock ^ gpa) & 0xfff))
		return -VMI_EINVAL;
	flags = cpu_irq_save();
	self = kvm_self();
	while (!begin(self))
		cpu_pause();
	kvm_page.keeper = NULL;
	wall.page = clock;
	page_write(self);
	end();
	cpu_irq_restore(flags);
	return 0;
}
