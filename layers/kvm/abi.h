/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* KVM's interface for guests: CPUID leaves, MSRs, shared structures, hypercalls. */
#ifndef KVM_ABI_H
#define KVM_ABI_H

#include "types.h"

/* CPUID: the highest leaf and "KVMKVMKVM", then the features. */
#define KVM_CPUID_SIGNATURE 0x40000000
#define KVM_CPUID_FEATURES 0x40000001
#define KVM_SIGNATURE_EBX 0x4b4d564b
#define KVM_SIGNATURE_ECX 0x564b4d56
#define KVM_SIGNATURE_EDX 0x0000004d

/* EAX of the features */
#define KVM_FEATURE_NO_IO_DELAY (1u << 1)
#define KVM_FEATURE_CLOCK (1u << 3)
#define KVM_FEATURE_STEAL_TIME (1u << 5)
#define KVM_FEATURE_EOI (1u << 6)
#define KVM_FEATURE_UNHALT (1u << 7)
#define KVM_FEATURE_FLUSH (1u << 9)
#define KVM_FEATURE_SEND_IPI (1u << 11)
#define KVM_FEATURE_YIELD (1u << 13)
/* EDX: vCPUs have processors of their own */
#define KVM_HINT_REALTIME (1u << 0)

/*
 * CPUID of Paravane's monitor, beside KVM's: the highest leaf and "ParavaneVMM"; then eax, a bit
 * for each device that is a bridge to a virtual bus, ebx, the guest-physical address of device 0's
 * registers, and ecx, the port of device 0's notifications, with that of commands in its upper
 * half (monitor/hypervisor/src/kvm/cpuid.rs).
 */
#define MONITOR_CPUID_SIGNATURE 0x40000100
#define MONITOR_CPUID_BUS 0x40000101
#define MONITOR_SIGNATURE_EBX 0x61726150
#define MONITOR_SIGNATURE_ECX 0x656e6176
#define MONITOR_SIGNATURE_EDX 0x004d4d56
/* Bytes of a device's registers, and ports of its notifications. */
#define MONITOR_DEVICE_SIZE 4096
#define MONITOR_DOORBELL_SIZE 4
#define MONITOR_DEVICES 32

/* Each takes a guest-physical address; bit 0 of all but the first enables. */
#define MSR_KVM_WALL_CLOCK 0x4b564d00
#define MSR_KVM_SYSTEM_TIME 0x4b564d01
#define MSR_KVM_STEAL_TIME 0x4b564d03
#define MSR_KVM_EOI 0x4b564d04
#define KVM_MSR_ENABLE 1

/* The host changes it only while the vCPU does not run: the version changes with it. */
struct kvm_clock_info {
	u32 version; /* odd during a change */
	u32 pad;
	u64 tsc;
	u64 ns; /* at tsc */
	u32 mul; /* ns in 2^-32 for a tick, after the shift */
	signed char shift; /* to the left */
	u8 flags;
	u8 pad2[2];
};
_Static_assert(sizeof(struct kvm_clock_info) == 32, "struct kvm_clock_info");
#define KVM_CLOCK_STABLE 1 /* the same on all vCPUs */

/* The date at which the clock was 0. */
struct kvm_wall_clock {
	u32 version; /* odd during a change */
	u32 sec;
	u32 nsec;
};

/* The record of one vCPU, aligned to 64 bytes. */
struct kvm_steal_time {
	u64 ns;
	u32 version; /* odd during a change */
	u32 flags;
	u8 preempted; /* KVM_VCPU_... */
	u8 pad[47];
};
_Static_assert(sizeof(struct kvm_steal_time) == 64, "struct kvm_steal_time");
#define KVM_VCPU_PREEMPTED 1
#define KVM_VCPU_FLUSH 2 /* written by a guest: flush before it runs again */

/* Hypercalls: number in rax, arguments in rbx, rcx, rdx, rsi, result in rax. */
#define KVM_HC_KICK_CPU 5 /* 0, APIC id */
#define KVM_HC_SEND_IPI 10 /* bitmap of APIC ids (two words), the id of its bit 0, ICR */
#define KVM_HC_SCHED_YIELD 11 /* APIC id */

#endif
