// SPDX-License-Identifier: GPL-2.0-only
/* pv_ops.irq, the local APIC as a layer's section apic, and the vectors. */
#include <linux/cpumask.h>
#include <linux/irq.h>
#include <asm/apic.h>
#include <asm/i8259.h>
#include <asm/idtentry.h>
#include <asm/irq.h>
#include <asm/irqdomain.h>
#include <asm/mpspec.h>
#include <asm/paravirt.h>
#include <asm/x86_init.h>
#include "vmi.h"

#define ICR_NMI (4 << 8)

static void vmi_halt(void)
{
	/* Too early for a panic. The machine cannot continue, and waiting would go unnoticed. */
	if (irqs_disabled() && system_state == SYSTEM_BOOTING && early_boot_irqs_disabled)
		vmi.core_shutdown(255);
	if (irqs_disabled())
		vmi.cpu_stop();
	else
		vmi.cpu_halt();
}

static u32 vmi_apic_read(u32 reg)
{
	return vmi.apic_read(reg);
}

static void vmi_apic_write(u32 reg, u32 value)
{
	vmi.apic_write(reg, value);
}

static void vmi_apic_eoi(void)
{
	vmi.apic_eoi();
}

static u64 vmi_apic_icr_read(void)
{
	return 0;
}

static void vmi_apic_icr_write(u32 low, u32 id)
{
	vmi.apic_send_ipi((u64)id << 32 | low);
}

static u32 vmi_get_apic_id(u32 id)
{
	return id >> 24;
}

static void vmi_send_ipi(int cpu, int vector)
{
	u64 icr = vector == NMI_VECTOR ? ICR_NMI : vector;

	vmi.apic_send_ipi((u64)per_cpu(x86_cpu_to_apicid, cpu) << 32 | icr);
}

static void vmi_send_ipi_mask(const struct cpumask *mask, int vector)
{
	unsigned int cpu;

	for_each_cpu(cpu, mask)
		vmi_send_ipi(cpu, vector);
}

static void vmi_send_ipi_mask_allbutself(const struct cpumask *mask, int vector)
{
	unsigned int cpu, this_cpu = smp_processor_id();

	for_each_cpu(cpu, mask)
		if (cpu != this_cpu)
			vmi_send_ipi(cpu, vector);
}

static void vmi_send_ipi_allbutself(int vector)
{
	vmi_send_ipi_mask_allbutself(cpu_online_mask, vector);
}

static void vmi_send_ipi_all(int vector)
{
	vmi_send_ipi_mask(cpu_online_mask, vector);
}

static void vmi_send_ipi_self(int vector)
{
	vmi_send_ipi(smp_processor_id(), vector);
}

static struct apic vmi_apic __ro_after_init = {
	.name				= "VMI",
	.cpu_present_to_apicid		= default_cpu_present_to_apicid,
	.max_apic_id			= 0xfe,
	.get_apic_id			= vmi_get_apic_id,
	.calc_dest_apicid		= apic_default_calc_apicid,
	.send_IPI			= vmi_send_ipi,
	.send_IPI_mask			= vmi_send_ipi_mask,
	.send_IPI_mask_allbutself	= vmi_send_ipi_mask_allbutself,
	.send_IPI_allbutself		= vmi_send_ipi_allbutself,
	.send_IPI_all			= vmi_send_ipi_all,
	.send_IPI_self			= vmi_send_ipi_self,
	.read				= vmi_apic_read,
	.write				= vmi_apic_write,
	.eoi				= vmi_apic_eoi,
	.icr_read			= vmi_apic_icr_read,
	.icr_write			= vmi_apic_icr_write,
};

/* Called before Linux looks for a local APIC. */
static void __init vmi_find_apic(void)
{
	apic_install_driver(&vmi_apic);
}

static void __init vmi_find_cpus(void)
{
	unsigned int i;

	topology_register_boot_apic(0);
	for (i = 0; i < vmi_boot.vcpu_count; i++)
		topology_register_apic(i, i, true);
}

static void __init vmi_init_irq(void)
{
	sysvec_install(VMI_ALARM_VECTOR, sysvec_vmi_alarm);
	vmi_init_lines();
	native_init_IRQ();
}

void __init vmi_init_irq_ops(void)
{
	/* Primitive calls keep all registers but rax. */
	vmi_use(&pv_ops.irq.save_fl, VMI_CALL_CPU_IRQ_FLAG, vmi.cpu_irq_flag);
	vmi_use(&pv_ops.irq.irq_disable, VMI_CALL_CPU_IRQ_DISABLE, vmi.cpu_irq_disable);
	vmi_use(&pv_ops.irq.irq_enable, VMI_CALL_CPU_IRQ_ENABLE, vmi.cpu_irq_enable);
	vmi_use(&pv_ops.irq.safe_halt, VMI_CALL_CPU_HALT, vmi.cpu_halt);
}

/*
 * On a processor's own local APIC the layer ends interrupts, which may save an exit. The other
 * registers stay the kernel's.
 */
void __init vmi_init_eoi(void)
{
	if (vmi_layer_apic() && vmi_layer_record(VMI_CALL_APIC_EOI) == VMI_RELOC_CALL)
		apic_update_callback(eoi, vmi_apic_eoi);
}

/*
 * Interprocessor interrupts, too. The layer then learns when a CPU loses its state by an INIT. The
 * callbacks outlast the kernel's choice of a driver for the APIC.
 */
void __init vmi_init_ipis(void)
{
	if (!vmi_layer_apic() || vmi_layer_record(VMI_CALL_APIC_SEND_IPI) != VMI_RELOC_CALL)
		return;
	apic_update_callback(icr_write, vmi_apic_icr_write);
	apic_update_callback(send_IPI, vmi_send_ipi);
	apic_update_callback(send_IPI_mask, vmi_send_ipi_mask);
	apic_update_callback(send_IPI_mask_allbutself, vmi_send_ipi_mask_allbutself);
	apic_update_callback(send_IPI_allbutself, vmi_send_ipi_allbutself);
	apic_update_callback(send_IPI_all, vmi_send_ipi_all);
	apic_update_callback(send_IPI_self, vmi_send_ipi_self);
}

/* The machine has no interrupts other than the layer's. */
void __init vmi_init_irqs(void)
{
	pv_ops.irq.halt = vmi_halt;

	legacy_pic = &null_legacy_pic;
	smp_found_config = 1;
	x86_init.mpparse.find_mptable = x86_init_noop;
	x86_init.mpparse.early_parse_smp_cfg = vmi_find_apic;
	x86_init.mpparse.parse_smp_cfg = vmi_find_cpus;
	x86_init.irqs.intr_init = vmi_init_irq;
	x86_init.irqs.intr_mode_select = x86_init_noop;
	x86_init.irqs.intr_mode_init = x86_init_noop;
}
