/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The native layer's state and entry points. */
#ifndef NATIVE_H
#define NATIVE_H

#include "cpu.h"
#include "percpu_size.h"

/* Every call has an entry native_<section>_<call>. */
#define NATIVE_DECLARE(S, s, N, n, num, class, since) vmi_##s##_##n##_fn native_##s##_##n;
VMI_FOR_EACH_CALL(NATIVE_DECLARE)

#define NATIVE_ALARMS 3 /* real, available; stolen only remembers that it was armed */

struct native_alarm {
	u64 expiry;
	u64 period; /* 0: one shot */
	bool armed;
};

enum native_apic_mode {
	NATIVE_APIC_UNKNOWN,
	NATIVE_APIC_MMIO,
	NATIVE_APIC_MSR,
};

/* Layer data of one vCPU. Other vCPUs touch lock_pending, and all of it while the vCPU is off. */
struct native_percpu {
	u32 lock_pending;
	u32 stopped; /* an INIT was sent, and no STARTUP since */
	u32 lazy_mode;
	u32 apic_mode; /* enum native_apic_mode; forgotten when IA32_APIC_BASE is written */
	u32 alarm_vector;
	u32 timer_lvt; /* what the timer's entry in the APIC holds, 0: unknown */
	u64 timer_deadline; /* the counter value at which the timer fires, 0: it does not */
	struct native_alarm alarms[NATIVE_ALARMS];
};
_Static_assert(sizeof(struct native_percpu) <= NATIVE_PERCPU_SIZE, "NATIVE_PERCPU_SIZE");
_Static_assert(NATIVE_PERCPU_SIZE % VMI_PERCPU_ALIGN == 0, "percpu_size");

/* The state of the machine. core.init writes it before any other vCPU runs; it is constant then. */
struct native_state {
	bool ready; /* core.init has succeeded */
	bool tsc_deadline; /* the APIC timer compares with the time-stamp counter */
	u32 vcpu_count;
	u64 percpu_gs_offset;
	struct vmi_percpu *const *percpu_table;
	u64 direct_map, direct_map_size;
	u64 apic; /* linear address, 0 for none */
	u64 low_page;
	u64 tsc_hz, tsc_start; /* real time 0 is at tsc_start */
	u64 apic_hz; /* counts of the APIC timer in a second, 0: unknown */
	u64 wall_start; /* wall clock at real time 0, ns */
	u32 mult, shift; /* ns = counter * mult >> shift */
};

extern struct native_state native;

/* The start of the image, or of the kernel that the layer is linked into. */
u64 layer_image_base(void); /* 0: unknown */
extern const u32 layer_sections; /* sections offered, 1 << section for each */

/* This vCPU's layer data. Needs the kernel's GS base and core.init. */
static inline struct native_percpu *native_self(void)
{
	struct native_percpu *data;

	/*
	 * vmi_percpu.data is its first field. The asm is neither volatile nor a memory clobber: the
	 * answer is always the same for this vCPU. Callers stay on the vCPU by disabling interrupts
	 * where that matters.
	 */
	__asm__("movq %%gs:%c2(%1), %0"
		: "=r"(data)
		: "r"(native.percpu_gs_offset), "i"(VMI_OFF_PERCPU_DATA));
	return data;
}

/* A vCPU's layer data. NULL if there is no such vCPU, or the kernel has given it none. */
static inline struct native_percpu *native_other(u32 vcpu)
{
	struct vmi_percpu *percpu;

	if (vcpu >= native.vcpu_count)
		return NULL;
	percpu = READ_ONCE(native.percpu_table[vcpu]);
	return percpu ? to_pointer(READ_ONCE(percpu->data)) : NULL;
}

/* apic.c: registers, without the checks of the calls */
u32 native_apic_load(u32 offset);
void native_apic_store(u32 offset, u32 value);

/* smp.c: another vCPU gets an INIT, or else a STARTUP */
void native_smp_notice(struct native_percpu *data, bool init);
/* apic.c: whether apic.send_ipi takes this value */
bool native_icr_good(u64 icr);
/* apic.c: this vCPU's APIC is in x2APIC mode */
bool native_apic_uses_msr(void);

/*
 * core.c: core.init in three parts, so that another layer can examine its machine in between: check
 * the argument; keep what it says; start with this frequency of the counter, Hz, and this wall
 * clock, ns.
 */
int native_init_check(const struct vmi_init *init);
void native_init_keep(const struct vmi_init *init);
void native_init_start(u64 tsc_hz, u64 wall);

/* machine.c */
void native_times(struct vmi_times *times); /* now, of this vCPU */
static inline u64 native_real_time(void)
{
	struct vmi_times times;

	native_times(&times);
	return times.real;
}
u64 native_tsc_at(u64 ns); /* the counter when real time is ns, or later; U64_MAX: never */
void native_forget_more(struct native_percpu *data); /* with an INIT a vCPU has lost its state */

/* calibrate.c */
u64 native_calibrate_tsc(void);
u64 native_calibrate_apic(u64 tsc_hz);

/* rtc.c */
u64 native_rtc_seconds(void);

#endif
