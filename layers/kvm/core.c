/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Section core: what the host's KVM has. Without KVM, or without a feature, the layer does as the
 * native one.
 */
#include "counter.h"
#include "kvm.h"

struct kvm_state kvm;

/* For primitives.S: 0 where an I/O delay must be one. */
u8 kvm_no_io_delay;

u8 kvm_follow;
u64 kvm_data_at;

/* Tables of the ROM (common/tables.inc), in the copy that runs. */
extern struct vmi_section layer_section_table[], layer_section_table_end[];

static struct vmi_section *section(u32 id)
{
	for (struct vmi_section *s = layer_section_table; s < layer_section_table_end; s++)
		if (s->id == id)
			return s;
	return NULL;
}

/* Before core.init returns a layer may still change what a kernel does with a call. */
static void set_record(u32 call, u8 record)
{
	struct vmi_call_entry *calls = to_pointer(layer_image_base() + section(call >> 8)->calls);

	calls[call & 0xff].reloc = record;
}

static bool amd(void)
{
	u32 a, b, c, d;

	cpu_cpuid(0, 0, &a, &b, &c, &d);
	/* "AuthenticAMD", "HygonGenuine": the first four letters are at the beginning of ebx. */
	return b == 0x68747541 || b == 0x6f677948;
}

/* Features of the host; 0 without KVM. */
static u32 features(bool *realtime)
{
	u32 a, b, c, d;

	*realtime = false;
	cpu_cpuid(1, 0, &a, &b, &c, &d);
	if (!(c & 1u << 31))
		return 0; /* no hypervisor: the leaves below are not defined */
	cpu_cpuid(KVM_CPUID_SIGNATURE, 0, &a, &b, &c, &d);
	if (b != KVM_SIGNATURE_EBX || c != KVM_SIGNATURE_ECX || d != KVM_SIGNATURE_EDX)
		return 0;
	/* Old hosts say 0, and have the leaf. */
	if (a && a < KVM_CPUID_FEATURES)
		return 0;
	cpu_cpuid(KVM_CPUID_FEATURES, 0, &a, &b, &c, &d);
	*realtime = d & KVM_HINT_REALTIME;
	return a;
}

/* What the monitor says of bridges to virtual buses. Other hypervisors have none. */
static void find_bridges(void)
{
	u32 a, b, c, d;

	cpu_cpuid(1, 0, &a, &b, &c, &d);
	if (!(c & 1u << 31))
		return;
	cpu_cpuid(MONITOR_CPUID_SIGNATURE, 0, &a, &b, &c, &d);
	if (a < MONITOR_CPUID_BUS || b != MONITOR_SIGNATURE_EBX ||
	    c != MONITOR_SIGNATURE_ECX || d != MONITOR_SIGNATURE_EDX)
		return;
	cpu_cpuid(MONITOR_CPUID_BUS, 0, &a, &b, &c, &d);
	kvm.bridges = a;
	kvm.devices_gpa = b;
	kvm.bus_doorbell = (u16)c;
	kvm.bus_call = (u16)(c >> 16);
}

static void find_features(void)
{
	bool realtime;
	u32 found = features(&realtime);

	find_bridges();
	kvm.vmmcall = amd();
	kvm.clock = found & KVM_FEATURE_CLOCK;
	kvm.steal = found & KVM_FEATURE_STEAL_TIME;
	kvm.eoi = found & KVM_FEATURE_EOI;
	kvm.send_ipi = found & KVM_FEATURE_SEND_IPI;
	/* A vCPU with a processor of its own had better spin, and answers interrupts at once. */
	kvm.unhalt = found & KVM_FEATURE_UNHALT && !realtime;
	kvm.yield = found & KVM_FEATURE_YIELD && !realtime;
	kvm.flush = found & KVM_FEATURE_FLUSH && kvm.steal && !realtime;
	kvm_no_io_delay = (found & KVM_FEATURE_NO_IO_DELAY) != 0;
	kvm_data_at = native.percpu_gs_offset + VMI_OFF_PERCPU_DATA;
	kvm_follow = kvm.steal && kvm.unhalt;
}

static void write_records(void)
{
	if (kvm_no_io_delay && !FAULT(IO_DELAY_STAYS))
		set_record(VMI_CALL_CPU_IO_DELAY, VMI_RELOC_NOP);
	if (kvm.flush)
		section(VMI_SECTION_MMU)->features |= VMI_MMU_FLUSH_PREEMPTED;
	if (kvm.eoi)
		set_record(VMI_CALL_APIC_EOI, VMI_RELOC_CALL);
	/* It is right where the counters of the host's processors are not in step, too. */
	if (kvm.clock)
		set_record(VMI_CALL_TIME_READ, VMI_RELOC_CALL);
	else
		section(VMI_SECTION_TIME)->features |= VMI_TIME_PAGE_KEPT;
	/* An INIT must be noticed, after which nothing is shared. */
	if (kvm.send_ipi || kvm.clock || kvm.steal || kvm.eoi)
		set_record(VMI_CALL_APIC_SEND_IPI, VMI_RELOC_CALL);
	if (!kvm.unhalt)
		return;
	for (u32 call = VMI_CALL_LOCK_WAIT; call <= VMI_CALL_LOCK_RUN_STATE; call++)
		set_record(call, VMI_RELOC_CALL);
	if (!kvm_follow)
		return;
	section(VMI_SECTION_LOCK)->features |= VMI_LOCK_RUN_STATES;
	set_record(VMI_CALL_CPU_HALT, VMI_RELOC_CALL);
}

int kvm_core_init(struct vmi_init *init)
{
	struct kvm_percpu *self;
	int error = native_init_check(init);
	u64 hz = init->tsc_hz, wall;

	if (error && !(FAULT(INIT_AGAIN) && error == -VMI_EBUSY))
		return error;
	native_init_keep(init);
	find_features();
	self = (struct kvm_percpu *)native_self();
	kvm_share(self);
	/* A host that offers a clock and does not write it has none. */
	if (kvm.clock && !kvm_clock_hz(&self->clock))
		kvm.clock = false;
	if (!hz)
		hz = kvm.clock ? kvm_clock_hz(&self->clock) : native_calibrate_tsc();
	if (!hz) {
		kvm_unshare();
		kvm_follow = 0;
		kvm = (struct kvm_state){ .clock = false };
		return -VMI_ENODEV; /* nothing to measure time with */
	}
	if (kvm.clock)
		kvm.start_ns = kvm_clock_ns(&self->clock);
	wall = kvm.clock ? kvm_wall_read(self) : native_rtc_seconds() * NSEC_PER_SEC;
	kvm_wall_start(wall);
	native_init_start(hz, wall);
	write_records();
	return 0;
}

s64 kvm_core_version(u32 id)
{
	s64 version = native_core_version(id);
	const struct vmi_section *offered = section(id);

	if (version < 0 || !offered)
		return version;
	if (FAULT(VERSION_WITHOUT_FEATURES))
		return (u32)version;
	return (s64)((u64)offered->features << 32 | (u32)version);
}

int kvm_core_reboot(u32 mode)
{
	/* The next kernel may not know of the shared memory. The other vCPUs get an INIT. */
	if (native.ready && (mode == VMI_REBOOT_SOFT || mode == VMI_REBOOT_HARD) &&
	    !FAULT(REBOOT_KEEPS_SHARED))
		kvm_unshare();
	return native_core_reboot(mode);
}
