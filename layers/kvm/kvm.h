/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The KVM layer's state and functions. */
#ifndef KVM_H
#define KVM_H

#include "abi.h"
#include "address.h"
#include "native.h"
#include "own.h"

/* The entries that this layer has itself; own.h says which. */
#define KVM_DECLARE(s, n) vmi_##s##_##n##_fn kvm_##s##_##n
KVM_DECLARE(core, init);
KVM_DECLARE(core, version);
KVM_DECLARE(core, reboot);
KVM_DECLARE(cpu, halt);
KVM_DECLARE(cpu, stop);
KVM_DECLARE(mmu, flush_preempted);
KVM_DECLARE(apic, eoi);
KVM_DECLARE(apic, send_ipi);
KVM_DECLARE(time, wallclock);
KVM_DECLARE(time, wallclock_updated);
KVM_DECLARE(time, set_clock);
KVM_DECLARE(lock, wait);
KVM_DECLARE(lock, kick);
KVM_DECLARE(lock, preempted);
KVM_DECLARE(lock, yield);
KVM_DECLARE(lock, run_state);
KVM_DECLARE(bus, find);
KVM_DECLARE(bus, command);
KVM_DECLARE(bus, notify);

/*
 * Layer data of one vCPU. The host writes clock and steal, and eoi while the vCPU has an interrupt
 * in service. Other vCPUs read run and waiting. They write what native.h lets them, run.preempted,
 * and, atomically, steal.preempted.
 */
struct kvm_percpu {
	struct native_percpu native;
	_Alignas(64) struct kvm_steal_time steal;
	_Alignas(64) struct vmi_run_state run;
	struct kvm_clock_info clock;
	struct kvm_wall_clock wall;
	u32 eoi; /* bit 0: the host ends the interrupt in service when the bit is cleared */
	u32 shared; /* the host knows the addresses of all this; an INIT makes it forget them */
	u32 waiting; /* in lock.wait: a kick needs a hypercall */
	u64 wall_gpa;
	u64 steal_start; /* steal.ns when the vCPU began; valid with steal_known */
	u64 available; /* the last one that was returned */
	u32 steal_known;
};
_Static_assert(sizeof(struct kvm_percpu) <= KVM_PERCPU_SIZE, "KVM_PERCPU_SIZE");
_Static_assert(KVM_PERCPU_SIZE % VMI_PERCPU_ALIGN == 0, "percpu_size");
_Static_assert(offsetof(struct kvm_percpu, run.state) == KVM_OFF_RUN_STATE, "KVM_OFF_RUN_STATE");

/* What the host has: constant from core.init on. */
struct kvm_state {
	bool clock, steal, eoi, unhalt, flush, send_ipi, yield;
	bool vmmcall; /* the hypercall instruction of AMD's processors */
	u64 start_ns; /* real time 0 on the host's clock */
	u32 bridges; /* bit n: device n is a bridge; where these are is meaningless without any */
	u32 devices_gpa; /* the registers of device 0; each has a page */
	u16 bus_doorbell, bus_call; /* ports: the notifications of device 0, and commands */
};

extern struct kvm_state kvm;

/* The guest-physical address of something that is mapped. */
static inline u64 kvm_gpa(const void *linear)
{
	return linear_gpa(linear, native.direct_map, native.direct_map_size);
}

/* vcpu.c: passes the addresses of a vCPU's shared data to the host. On this vCPU. */
void kvm_share(struct kvm_percpu *self);
void kvm_unshare(void);

/* clock.c */
u64 kvm_clock_hz(const struct kvm_clock_info *clock); /* 0: the host has not written it */
u64 kvm_clock_ns(const struct kvm_clock_info *clock); /* now, on the host's clock */
/* A copy that is moved to now: tsc and ns of this moment. */
void kvm_clock_now(const struct kvm_clock_info *clock, struct kvm_clock_info *now);

/* time.c: the wall clock at real time 0, ns */
u64 kvm_wall_read(struct kvm_percpu *self);
void kvm_wall_start(u64 start);

/* The clock page: which vCPU's clock it has, and which version of that. */
struct kvm_page_state {
	struct kvm_percpu *keeper;
	u32 version;
};
extern struct kvm_page_state kvm_page;

static inline bool kvm_page_behind(const struct kvm_percpu *self)
{
	return READ_ONCE(kvm_page.keeper) == self &&
	       READ_ONCE(kvm_page.version) != READ_ONCE(self->clock.version);
}

void kvm_page_follow(struct kvm_percpu *self);

/* For primitives.S: whether run states are kept, and where the address of layer data is in GS. */
extern u8 kvm_follow;
extern u64 kvm_data_at;

/* The vCPU may be in the handler of the interrupt that has ended its halt. */
static inline void kvm_awake(struct kvm_percpu *self)
{
	if (READ_ONCE(self->run.state) == VMI_RUN_HALTED)
		WRITE_ONCE(self->run.state, VMI_RUN_RUNNING);
}

/* This vCPU's layer data. Needs the kernel's GS base and core.init. */
static inline struct kvm_percpu *kvm_self(void)
{
	struct kvm_percpu *self = (struct kvm_percpu *)native_self();

	/* After a start, however the kernel has started it. */
	if (!READ_ONCE(self->shared))
		kvm_share(self);
	return self;
}

/* A vCPU's layer data; NULL as native_other(). */
static inline struct kvm_percpu *kvm_other(u32 vcpu)
{
	return (struct kvm_percpu *)native_other(vcpu);
}

/* The APIC id of a vCPU that kvm_other() has found. */
static inline u32 kvm_apic_id(u32 vcpu)
{
	return READ_ONCE(native.percpu_table[vcpu]->apic_id);
}

/*
 * The host changes no register but rax. It reads no memory of the guest, but other vCPUs may look
 * at what was stored before.
 */
static inline s64 kvm_hypercall(u32 number, u64 a, u64 b, u64 c, u64 d)
{
	s64 result;

	if (kvm.vmmcall)
		__asm__ volatile("vmmcall"
				 : "=a"(result)
				 : "0"((u64)number), "b"(a), "c"(b), "d"(c), "S"(d)
				 : "memory");
	else
		__asm__ volatile("vmcall"
				 : "=a"(result)
				 : "0"((u64)number), "b"(a), "c"(b), "d"(c), "S"(d)
				 : "memory");
	return result;
}

#endif
