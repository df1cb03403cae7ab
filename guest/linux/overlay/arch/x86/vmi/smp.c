// SPDX-License-Identifier: GPL-2.0-only
/* Starting and stopping the other vCPUs. */
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/sched/task_stack.h>
#include <linux/smp.h>
#include <asm/apic.h>
#include <asm/cpu.h>
#include <asm/desc.h>
#include <asm/fpu/api.h>
#include <asm/hw_irq.h>
#include <asm/msr.h>
#include <asm/paravirt.h>
#include <asm/processor.h>
#include <asm/smp.h>
#include <asm/spec-ctrl.h>
#include <asm/tlbflush.h>
#include <asm/x86_init.h>
#include "vmi.h"

#define ICR_INIT 0x4500
#define ICR_STARTUP 0x600

/* Runs on the new vCPU, with the kernel's GS base, on the stack of its idle task. */
asmlinkage __visible void vmi_ap_start(void)
{
	unsigned int cpu = smp_processor_id();

	cr4_init();
	cpu_init_exception_handling(false);
	cpuhp_ap_sync_alive();
	cpu_init();
	fpu__init_cpu();
	smp_store_cpu_info(cpu);
	set_cpu_sibling_map(cpu);
	speculative_store_bypass_ht_init();
	notify_cpu_starting(cpu);
	lock_vector_lock();
	set_cpu_online(cpu, true);
	lapic_online();
	unlock_vector_lock();
	vmi_setup_clockevent();
	/* The vCPU is up and may be interrupted. */
	local_irq_enable();
	cpu_startup_entry(CPUHP_AP_ONLINE_IDLE);
}

static int vmi_kick_ap_alive(unsigned int cpu, struct task_struct *idle)
{
	u64 apic = (u64)per_cpu(x86_cpu_to_apicid, cpu) << 32;
	struct desc_ptr idt = { .size = IDT_ENTRIES * sizeof(gate_desc) - 1, .address = vmi_idt };
	struct vmi_ap_state state = {
		.cr0 = read_cr0(),
		.cr3 = __pa_symbol(swapper_pg_dir),
		.cr4 = __read_cr4(),
		.rip = (u64)vmi_ap_entry,
		.rflags = X86_EFLAGS_FIXED,
		.gpr[4] = (u64)task_pt_regs(idle),
		.gs_base = cpu_kernelmode_gs_base(cpu),
		.gdt_base = (u64)get_cpu_gdt_rw(cpu),
		.gdt_limit = GDT_SIZE - 1,
		.idt_base = idt.address,
		.idt_limit = idt.size,
		.cs = __KERNEL_CS,
		.ss = __KERNEL_DS,
		.context_id = 1,
		.generation = 1,
	};
	s64 vector;
	int result;

	rdmsrl(MSR_EFER, state.efer);
	result = common_cpu_up(cpu, idle);
	if (!result)
		result = vmi_percpu_prepare(cpu);
	if (result)
		return result;
	vmi.apic_send_ipi(apic | ICR_INIT);
	if (vmi.smp_set_ap_state(cpu, &state))
		return -EIO;
	vector = vmi.smp_startup_vector();
	if (vector < 0)
		return -EIO;
	vmi.apic_send_ipi(apic | ICR_INIT);
	return vmi.apic_send_ipi(apic | ICR_STARTUP | vector) ? -EIO : 0;
}

static void __init vmi_smp_prepare_cpus(unsigned int max_cpus)
{
	smp_prepare_cpus_common();
	speculative_store_bypass_ht_init();
}

#ifdef CONFIG_HOTPLUG_CPU
static void vmi_play_dead(void)
{
	play_dead_common();
	vmi.cpu_stop();
	BUG();
}
#endif

static void (*prepare_boot_cpu)(void) __initdata;

static void __init vmi_smp_prepare_boot_cpu(void)
{
	prepare_boot_cpu();
	vmi_init_locks();
}

void __init vmi_init_smp(void)
{
	prepare_boot_cpu = smp_ops.smp_prepare_boot_cpu;
	smp_ops.smp_prepare_boot_cpu = vmi_smp_prepare_boot_cpu;
	smp_ops.smp_prepare_cpus = vmi_smp_prepare_cpus;
	smp_ops.kick_ap_alive = vmi_kick_ap_alive;
#ifdef CONFIG_HOTPLUG_CPU
	smp_ops.play_dead = vmi_play_dead;
#endif
	x86_cpuinit.parallel_bringup = false;
}
