/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Which calls are this layer's own, for C and assembler. All others are the native layer's.
 *
 * A call that is marked here has an entry kvm_<section>_<call>.
 */
#ifndef KVM_OWN_H
#define KVM_OWN_H

#include <paravane/vmi.h>

#define KVM_OWN_core_init 0,
#define KVM_OWN_core_version 0,
#define KVM_OWN_core_reboot 0,
#define KVM_OWN_cpu_halt 0,
#define KVM_OWN_cpu_stop 0,
#define KVM_OWN_cpu_io_delay 0,
#define KVM_OWN_mmu_flush_preempted 0,
#define KVM_OWN_apic_eoi 0,
#define KVM_OWN_apic_send_ipi 0,
#define KVM_OWN_time_wallclock 0,
#define KVM_OWN_time_wallclock_updated 0,
#define KVM_OWN_time_set_clock 0,
#define KVM_OWN_lock_wait 0,
#define KVM_OWN_lock_kick 0,
#define KVM_OWN_lock_preempted 0,
#define KVM_OWN_lock_yield 0,
#define KVM_OWN_lock_run_state 0,
#define KVM_OWN_bus_find 0,
#define KVM_OWN_bus_command 0,
#define KVM_OWN_bus_notify 0,

/* KVM_PICK(mark kvm, native): the second argument, which a mark moves. */
#define KVM_PICK(ignored, prefix, ...) prefix
#define KVM_EVAL(marked, s, n) KVM_GLUE(KVM_PICK(marked, native, ), s, n)
#define KVM_GLUE(prefix, s, n) KVM_GLUE_(prefix, s, n)
#define KVM_GLUE_(prefix, s, n) prefix##_##s##_##n
#define KVM_ENTRY(s, n) KVM_EVAL(KVM_OWN_##s##_##n kvm, s, n)

/* Layer data of a vCPU: struct kvm_percpu. */
#define KVM_PERCPU_SIZE 384
/* What cpu.halt changes in it: run.state. */
#define KVM_OFF_RUN_STATE 192

#endif
