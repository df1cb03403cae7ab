// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "smp.h"
#include "calls.h"
#include "check.h"
#include "clock.h"
#include "console.h"
#include "cpu.h"
#include "layout.h"
#include "machine.h"
#include "mm.h"
#include "paging.h"
#include "site.h"
#include "trap.h"

#define START_DEADLINE	(5 * NS_PER_S)
#define INIT_DELAY	(200 * NS_PER_US)
#define STARTUP_AGAIN	(20 * NS_PER_MS)

enum work_state { WORK_NONE, WORK_POSTED, WORK_RUNNING };

void apic_init(void)
{
	/* Enabled, with the spurious vector; LINT0 and LINT1 masked. */
	vmi.apic_write(0xf0, 0x100 | VECTOR_SPURIOUS);
	vmi.apic_write(0x350, 0x10000);
	vmi.apic_write(0x360, 0x10000);
	set_cr8(0);
}

int send_icr(u32 vcpu, u64 icr)
{
	return vmi.apic_send_ipi((u64)machine.apic_ids[vcpu] << 32 | icr);
}

int send_ipi(u32 vcpu, u32 vector)
{
	return send_icr(vcpu, ICR_FIXED | vector);
}

/* The work loop. A failed check returns to it. */
static noreturn void serve(struct percpu *cpu)
{
	struct test_jump jump;

	cpu->test_jump = &jump;
	if (jump_set(&jump))
		atomic_store(&cpu->work_state, WORK_NONE);
	for (;;) {
		irq_disable();
		if (atomic_load(&cpu->work_state) == WORK_POSTED) {
			atomic_store(&cpu->work_state, WORK_RUNNING);
			cpu->work(cpu->work_argument);
			atomic_store(&cpu->work_state, WORK_NONE);
		} else {
			halt();
		}
	}
}

/* Entered by smp.set_ap_state and STARTUP, on the stack of this vCPU. */
static noreturn void ap_main(void)
{
	struct percpu *cpu = this_cpu();

	cpu_init_registers();
	apic_init();
	atomic_store(&cpu->online, true);
	serve(cpu);
}

struct vmi_ap_state smp_work_state(u32 vcpu)
{
	struct percpu *cpu = percpus[vcpu];

	return (struct vmi_ap_state){
		.cr0 = cpu_cr0(),
		.cr3 = to_gpa(kernel_root),
		.cr4 = cpu_cr4(),
		.efer = cpu_efer(),
		.rip = (u64)ap_main,
		.rflags = FLAGS_FIXED,
		/* As after a call instruction: 16-byte aligned, then 8 less. */
		.gpr[4] = (u64)cpu->stack + KERNEL_STACK_SIZE - 8,
		.gs_base = (u64)cpu,
		.gdt_base = (u64)cpu->gdt,
		.gdt_limit = sizeof(cpu->gdt) - 1,
		.idt_base = (u64)cpu->idt,
		.idt_limit = PAGE_SIZE - 1,
		.cs = KERNEL_CS,
		.ss = KERNEL_SS,
		.tr = TSS_SELECTOR,
		.context_id = 1,
		.generation = 1,
	};
}

int smp_start_with(u32 vcpu, const struct vmi_ap_state *state)
{
	int result;
	s64 vector;

	/* Loading TR has marked the descriptor busy; it must be available again. */
	percpus[vcpu]->gdt[TSS_SELECTOR / 8] &= ~(2ull << 40);
	/* A running vCPU must stop before it can get a new state. */
	result = send_icr(vcpu, ICR_INIT);
	if (result)
		return result;
	delay_ns(INIT_DELAY);
	result = vmi.smp_set_ap_state(vcpu, state);
	if (result)
		return result;
	vector = vmi.smp_startup_vector();
	if (vector < 0)
		return vector;
	result = send_icr(vcpu, ICR_INIT);
	if (result)
		return result;
	delay_ns(INIT_DELAY);
	return send_icr(vcpu, ICR_STARTUP | vector);
}

/*
 * KVM's processors lose STARTUPs: while one resets itself for an INIT, another INIT and its STARTUP
 * may come. It then takes the STARTUP for the first INIT, and waits again after the second. The
 * reset lasts long where the host is slow, so the second STARTUP of kernels may be lost, too.
 */
bool smp_wait_start(u32 vcpu, bool (*done)(void *), void *argument)
{
	s64 vector = vmi.smp_startup_vector();
	u64 end = now() + patient(START_DEADLINE);

	while (!spin_until(done, argument, STARTUP_AGAIN)) {
		if (now() > end)
			return false;
		if (vector >= 0)
			send_icr(vcpu, ICR_STARTUP | vector);
	}
	return true;
}

static bool is_online(void *argument)
{
	struct percpu *cpu = argument;

	return atomic_load(&cpu->online);
}

bool smp_start(u32 vcpu)
{
	struct vmi_ap_state state = smp_work_state(vcpu);
	struct percpu *cpu = percpus[vcpu];

	cpu->online = false;
	cpu->work_state = WORK_NONE;
	cpu->space = NULL;
	cpu->nesting = 0;
	cpu->catch = NULL;
	cpu->user = NULL;
	return !smp_start_with(vcpu, &state) && smp_wait_start(vcpu, is_online, cpu);
}

int smp_state_before[MAX_VCPUS];

void smp_init(void)
{
	static struct vmi_vcpu_state state;
	u32 i;

	machine.vcpus_online = 1;
	percpus[0]->online = true;
	for (i = 1; i < machine.vcpu_count; i++) {
		if (vmi.smp_vcpu_state)
			smp_state_before[i] = vmi.smp_vcpu_state(i, &state);
		if (!smp_start(i)) {
			print("# vCPU %u does not start\n", i);
			break;
		}
		machine.vcpus_online++;
	}
}

bool work_done(u32 vcpu)
{
	return atomic_load(&percpus[vcpu]->work_state) == WORK_NONE;
}

static void post(u32 vcpu, void (*work)(void *), void *argument)
{
	struct percpu *cpu = percpus[vcpu];

	CHECK(work_done(vcpu));
	cpu->work = work;
	cpu->work_argument = argument;
	atomic_store(&cpu->work_state, WORK_POSTED);
	CHECK_RESULT(send_ipi(vcpu, VECTOR_WORK), 0);
}

void run_on(u32 vcpu, void (*work)(void *), void *argument)
{
	post(vcpu, work, argument);
}

void wait_for(u32 vcpu)
{
	while (!work_done(vcpu)) {
		pause();
		watch("another vCPU's work");
	}
	if (test_failed())
		test_abandon();
}

void run_on_others(u32 count, void (*work)(void *), void *argument)
{
	u32 i;

	for (i = 1; i < count; i++)
		post(i, work, argument);
	for (i = 1; i < count; i++)
		wait_for(i);
}
