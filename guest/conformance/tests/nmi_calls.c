// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The calls that a handler of an NMI may make. The NMI may arrive in any of the layer's own
 * instructions, so it must not see or spoil what a call has half done.
 */
#include "harness.h"
#include "test.h"

#define NMIS	400
#define MSR_FS_BASE 0xc0000100
#define MSR_GS_BASE 0xc0000101
#define MSR_KERNEL_GS_BASE 0xc0000102

static u32 ready, over;
static u64 wrong, taken;

/* The first call whose result is wrong. */
static const char *first_wrong;

static void expect(bool right, const char *what)
{
	if (right)
		return;
	if (!wrong++)
		first_wrong = what;
}

static void read_time(void)
{
	struct vmi_times t;

	vmi.time_read(&t);
	expect(t.real == t.available + t.stolen, "time.read");
}

/* Registers are set to what they are. */
static void use_registers(void)
{
	struct vmi_table_register table;
	u64 value = 0, cr8 = get_cr8();
	int counter;

	set_cr0(cpu_cr0());
	clts();
	expect(get_cr0() == cpu_cr0(), "cpu.get_cr0");
	set_cr4(cpu_cr4());
	expect(get_cr4() == cpu_cr4(), "cpu.get_cr4");
	set_cr8(cr8);
	expect(get_cr8() == cr8, "cpu.get_cr8");
	expect(!vmi.cpu_get_dr(7, &value) && value == 0x400, "cpu.get_dr");
	expect(!vmi.cpu_set_dr(7, value), "cpu.set_dr");
	expect(!vmi.cpu_read_msr(MSR_GS_BASE, &value) && value == (u64)this_cpu(),
	       "cpu.read_msr");
	expect(vmi.cpu_get_gs_base() == value, "cpu.get_gs_base");
	vmi.cpu_read_msr(MSR_FS_BASE, &value);
	expect(vmi.cpu_get_fs_base() == value, "cpu.get_fs_base");
	vmi.cpu_read_msr(MSR_KERNEL_GS_BASE, &value);
	expect(vmi.cpu_get_user_gs_base() == value, "cpu.get_user_gs_base");
	counter = vmi.cpu_read_pmc(0x3fffffff, &value);
	expect(!counter || counter == -VMI_EFAULT, "cpu.read_pmc");
	expect(vmi.cpu_get_tr() == TSS_SELECTOR && !vmi.cpu_get_ldt(), "cpu.get_tr");
	vmi.cpu_get_gdt(&table);
	expect(table.base == (u64)this_cpu()->gdt, "cpu.get_gdt");
	table.base = 0;
	vmi.cpu_get_idt(&table);
	expect(table.base, "cpu.get_idt");
}

static void handler(struct regs *regs)
{
	u64 cr2 = get_cr2(), tsc = read_tsc();
	struct vmi_cpuid id = { 0 };
	struct vmi_costs costs;

	(void)regs;
	set_cr2(0x4e4d49000);
	expect(get_cr2() == 0x4e4d49000, "cpu.set_cr2");
	set_cr2(cr2);
	irq_restore(irq_save());
	expect(!irqs_enabled() || irq_flag(), "cpu.irq_flag");
	pause();
	io_delay();
	/* It takes long on some processors. */
	if (!READ_ONCE(taken))
		wbinvd();
	if (vmi.cpu_swapgs) {
		/* Nothing in between needs the base. */
		vmi.cpu_swapgs();
		vmi.cpu_swapgs();
	}
	use_registers();
	vmi.cpu_cpuid(&id);
	expect(id.eax >= 1, "cpu.cpuid");
	expect(vmi.time_frequency() > 0, "time.frequency");
	read_time();
	expect(get_cr3() == to_gpa(kernel_root), "mmu.get_cr3");
	if (layer_offers_section(VMI_SECTION_LOCK))
		expect(!vmi.lock_kick(0) && vmi.lock_pending(0) == 1, "lock.kick of another vCPU");
	if (vmi.lock_run_state)
		expect(vmi.lock_run_state(this_vcpu()) != 0, "lock.run_state");
	expect(!vmi.core_probe(), "core.probe");
	expect(vmi.core_version(VMI_SECTION_CPU) > 0, "core.version");
	expect(vmi.core_reboot(2) == -VMI_EINVAL, "core.reboot");
	expect(vmi.core_console_write("", 0) == 0, "core.console_write");
	if (vmi.core_costs)
		expect(vmi.core_costs(&costs, sizeof(costs)) == 0, "core.costs");
	expect(read_tsc() >= tsc, "cpu.read_tsc");
	WRITE_ONCE(taken, taken + 1);
}

static void victim(void *argument)
{
	u64 value;

	(void)argument;
	atomic_store(&ready, 1);
	while (!atomic_load(&over)) {
		read_time();
		set_cr2(0x1234000);
		expect(get_cr2() == 0x1234000, "cpu.get_cr2 of the interrupted code");
		expect(!vmi.cpu_read_msr(MSR_GS_BASE, &value) && value == (u64)this_cpu(),
		       "cpu.read_msr of the interrupted code");
		if (layer_offers_section(VMI_SECTION_LOCK)) {
			expect(vmi.lock_kick(1) == 0 && vmi.lock_pending(1) == 1, "lock.kick");
			vmi.lock_wait(&(u8){ 0 }, 0);
			expect(vmi.lock_pending(1) == 0, "lock.wait");
		}
		expect(!vmi.time_set_alarm(VMI_TIME_REAL, now() + NS_PER_S, 0, 0x5b) &&
		       vmi.time_cancel_alarm(VMI_TIME_REAL) == 1, "time.set_alarm");
		watch("NMIs");
	}
}

TEST(nmi_calls, "apic.send_ipi.nmi_makes_calls", 2, 0, APIC_SEND_IPI, TIME_READ, CPU_SET_CR2,
     CPU_READ_MSR)
{
	u64 i, seed = 77, before, end = now() + ROUNDS_BUDGET;

	ready = over = 0;
	wrong = taken = 0;
	set_irq_handler(VECTOR_NMI, handler);
	run_on(1, victim, NULL);
	WAIT_UNTIL(atomic_load(&ready));
	for (i = 0; i < NMIS && (i < 20 || now() < end); i++) {
		before = READ_ONCE(taken);
		CHECK_RESULT(send_icr(1, ICR_NMI), 0);
		WAIT_UNTIL(READ_ONCE(taken) > before);
		delay_ns(random64(&seed) % (20 * NS_PER_US));
	}
	atomic_store(&over, 1);
	wait_for(1);
	if (wrong)
		FAIL("%llu wrong results, first of %s", wrong, first_wrong);
}
