// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Starting and stopping other vCPUs. */
#include "harness.h"
#include "space.h"
#include "test.h"

#define VECTOR_A 0x58

extern u64 ap_probe_gpr[16], ap_probe_flags, ap_probe_irq_flag;
void ap_probe(void);

static struct {
	u64 cr0, cr3, cr4, efer, fs_base, gs_base, tr, ldtr;
	u32 cs, ss, ds, es, fs, gs;	/* in the registers */
	u64 frame_cs, frame_ss;		/* in the frame of an exception */
	struct vmi_table_register gdt, idt;
	u32 done;
} seen;

void k_ud2(void *argument);

#define SELECTOR(name) asm volatile("movl %%" #name ", %0" : "=r"(seen.name))

noreturn void ap_probe_main(void)
{
	struct catch catch;

	SELECTOR(cs);
	SELECTOR(ss);
	SELECTOR(ds);
	SELECTOR(es);
	SELECTOR(fs);
	SELECTOR(gs);
	this_cpu()->catch = NULL;
	catch_trap(&catch, k_ud2, NULL);
	seen.frame_cs = catch.regs.cs;
	seen.frame_ss = catch.regs.ss;
	seen.cr0 = get_cr0();
	seen.cr3 = get_cr3();
	seen.cr4 = get_cr4();
	vmi.cpu_read_msr(0xc0000080, &seen.efer);
	seen.fs_base = vmi.cpu_get_fs_base();
	seen.gs_base = vmi.cpu_get_gs_base();
	vmi.cpu_get_gdt(&seen.gdt);
	vmi.cpu_get_idt(&seen.idt);
	seen.tr = vmi.cpu_get_tr();
	seen.ldtr = vmi.cpu_get_ldt();
	/* Otherwise no interrupt could arrive, whether it is stopped or not. */
	apic_init();
	atomic_store(&seen.done, 1);
	vmi.cpu_stop();
	for (;;)
		;
}

static struct vmi_ap_state probe_state(void)
{
	struct vmi_ap_state state = smp_work_state(1);
	u64 seed = 0xabcdef, rsp = state.gpr[RSP];
	u32 i;

	for (i = 0; i < 16; i++)
		state.gpr[i] = random64(&seed);
	state.gpr[RSP] = rsp - 256;
	state.rip = (u64)ap_probe;
	state.rflags = FLAGS_FIXED | FLAGS_ARITHMETIC;
	state.fs_base = 0x123456789000;
	return state;
}

static bool is_done(void *argument)
{
	(void)argument;
	return atomic_load(&seen.done);
}

static void start_probe(const struct vmi_ap_state *state)
{
	memset(&seen, 0, sizeof(seen));
	memset(ap_probe_gpr, 0, sizeof(ap_probe_gpr));
	CHECK_RESULT(smp_start_with(1, state), 0);
	if (!smp_wait_start(1, is_done, NULL))
		FAIL("vCPU 1 did not start");
}

/* Returns vCPU 1 to the work loop. */
static void back_to_work(void)
{
	CHECK(smp_start(1));
}

TEST(ap_state, "smp.set_ap_state.exact", 2, 0, SMP_SET_AP_STATE,
     SMP_STARTUP_VECTOR, CPU_STOP)
{
	struct vmi_ap_state state = probe_state();
	bool hardware = !(layer.rom.header.flags & VMI_HEADER_PARAVIRT) || !layer.present;
	u64 *gdt = percpus[1]->gdt;
	u32 i;

	/* Selectors that nothing else uses. Privilege level 0 may not be the processor's. */
	gdt[SPARE_INDEX] = gdt[KERNEL_CS / 8];
	gdt[SPARE_INDEX + 1] = gdt[KERNEL_SS / 8];
	if (hardware) {
		state.cs = SPARE_SELECTOR;
		state.ss = SPARE_SELECTOR + 8;
	}
	start_probe(&state);
	back_to_work();
	CHECK_EQ(seen.frame_cs, state.cs);
	CHECK(seen.frame_ss == state.ss || (!hardware && !seen.frame_ss));
	if (hardware) {
		CHECK_EQ(seen.cs, state.cs);
		CHECK_EQ(seen.ss, state.ss);
		CHECK_EQ(seen.ds, state.ss);
		CHECK_EQ(seen.es, state.ss);
		CHECK_EQ(seen.fs, 0);
		CHECK_EQ(seen.gs, 0);
	}
	for (i = 0; i < 16; i++)
		if (ap_probe_gpr[i] != state.gpr[i])
			FAIL("register %u is 0x%llx, want 0x%llx", i,
			     ap_probe_gpr[i], state.gpr[i]);
	CHECK_EQ(ap_probe_flags & (FLAGS_ARITHMETIC | FLAGS_DF | FLAGS_TF),
		 FLAGS_ARITHMETIC);
	CHECK_EQ(ap_probe_irq_flag & VMI_FLAGS_IF, 0);
	CHECK_EQ(seen.cr0, state.cr0);
	CHECK_EQ(seen.cr3, state.cr3);
	CHECK_EQ(seen.cr4, state.cr4);
	CHECK_EQ(seen.efer & ~0x400ull, state.efer & ~0x400ull);
	CHECK_EQ(seen.fs_base, state.fs_base);
	CHECK_EQ(seen.gs_base, state.gs_base);
	CHECK_EQ(seen.gdt.base, state.gdt_base);
	CHECK_EQ(seen.gdt.limit, state.gdt_limit);
	CHECK_EQ(seen.idt.base, state.idt_base);
	CHECK_EQ(seen.idt.limit, state.idt_limit);
	CHECK_EQ(seen.tr, state.tr);
	CHECK_EQ(seen.ldtr, state.ldtr);
}

/* Into a user space, without a task register: everything that the state leaves open. */
TEST(ap_space, "smp.set_ap_state.space", 2, 0, SMP_SET_AP_STATE)
{
	static struct space space;
	struct vmi_ap_state state = probe_state();
	u64 low = machine.low_page;

	if (low)
		test_skip("bare metal starts in a space with the low page");
	space_create(&space);
	state.cr3 = space.root;
	state.context_id = space.context;
	state.generation = space.generation;
	state.tr = 0;
	start_probe(&state);
	back_to_work();
	CHECK_EQ(seen.cr3, space.root);
	CHECK_EQ(seen.tr, 0);
	space_destroy(&space);
}

/* The call copies the structure. */
TEST(ap_copied, "smp.set_ap_state.copied", 2, 0, SMP_SET_AP_STATE)
{
	struct vmi_ap_state state = probe_state();
	u64 rbx = state.gpr[RBX];
	s64 vector;

	memset(&seen, 0, sizeof(seen));
	percpus[1]->gdt[TSS_SELECTOR / 8] &= ~(2ull << 40);
	CHECK_RESULT(send_icr(1, ICR_INIT), 0);
	delay_ns(200 * NS_PER_US);
	CHECK_RESULT(vmi.smp_set_ap_state(1, &state), 0);
	memset(&state, 0xff, sizeof(state));
	vector = vmi.smp_startup_vector();
	CHECK_RESULT(send_icr(1, ICR_STARTUP | vector), 0);
	if (!smp_wait_start(1, is_done, NULL))
		FAIL("vCPU 1 did not start");
	back_to_work();
	CHECK_EQ(ap_probe_gpr[RBX], rbx);
}

TEST(ap_errors, "smp.set_ap_state.errors", 2, 0, SMP_SET_AP_STATE)
{
	const struct vmi_ap_state good = smp_work_state(1);
	const u64 bad_address = 0x0000900000000000;
	struct vmi_ap_state state;

	CHECK_RESULT(vmi.smp_set_ap_state(0, &good), -VMI_ENOENT);
	/* Older layers took a vCPU without data. */
	if (!layer_older_than(3))
		CHECK_RESULT(vmi.smp_set_ap_state(VCPU_WITHOUT_DATA, &good), -VMI_ENOENT);
	CHECK_RESULT(vmi.smp_set_ap_state(VCPU_WITHOUT_DATA + 1, &good), -VMI_ENOENT);
	CHECK_RESULT(vmi.smp_set_ap_state(0xffffffff, &good), -VMI_ENOENT);
#define BAD(field, value)						\
	do {								\
		state = good;						\
		state.field = (value);					\
		CHECK_RESULT(vmi.smp_set_ap_state(1, &state), -VMI_EINVAL); \
	} while (0)
	BAD(cr0, good.cr0 & ~1ull);
	BAD(cr0, good.cr0 & ~(1ull << 31));
	BAD(cr4, good.cr4 & ~0x20ull);
	BAD(efer, good.efer & ~0x100ull);
	BAD(rip, bad_address);
	BAD(fs_base, bad_address);
	BAD(gs_base, bad_address);
	BAD(gdt_base, bad_address);
	BAD(idt_base, bad_address);
#undef BAD
	/* It continues as if nothing had happened. */
	back_to_work();
}

TEST(startup_vector, "smp.startup_vector.range", 1, 0, SMP_STARTUP_VECTOR)
{
	s64 vector = vmi.smp_startup_vector();

	if (vector == -VMI_ENOSYS && !machine.low_page)
		return;
	CHECK_OP(vector, <=, 0xff);
	CHECK_OP(vector, >=, 0);
}

static u64 counter;

static void count(void *argument)
{
	(void)argument;
	atomic_add(&counter, 1);
}

TEST(ap_restart, "cpu.stop.restart", 2, 0, CPU_STOP, SMP_SET_AP_STATE)
{
	struct vmi_ap_state state = probe_state();
	u64 round;

	counter = 0;
	for (round = 1; round <= 5; round++) {
		start_probe(&state);
		back_to_work();
		run_on(1, count, NULL);
		wait_for(1);
		CHECK_EQ(counter, round);
	}
}

/* When a vCPU is stopped, its stack may be reused. */
TEST(ap_stack, "cpu.stop.stack", 2, 0, CPU_STOP)
{
	struct vmi_ap_state state = probe_state();
	u64 *stack = (u64 *)(state.gpr[RSP] & ~15ull) - 128, round, i;

	for (round = 0; round < 20; round++) {
		start_probe(&state);
		/* Arrives when it is stopped, or stops it. */
		CHECK_RESULT(send_icr(1, ICR_INIT), 0);
		if (machine.low_page)
			delay_ns(200 * NS_PER_US);
		for (i = 0; i < 128; i++)
			WRITE_ONCE(stack[i], round);
		delay_ns(100 * NS_PER_US);
		for (i = 0; i < 128; i++)
			CHECK_EQ(READ_ONCE(stack[i]), round);
	}
	back_to_work();
}

static u64 about_to_stop;

/* A call first: by it the layer knows that the vCPU runs. */
static void stop_here(void *argument)
{
	(void)argument;
	(void)vmi.lock_preempted(0);
	atomic_store(&about_to_stop, 1);
	vmi.cpu_stop();
}

/* Others see that it is stopped, and that it has not been preempted. */
TEST(ap_stop_seen, "lock.run_state.stopped", 2, 0, LOCK_RUN_STATE, LOCK_PREEMPTED, CPU_STOP)
{
	const struct vmi_run_state *other;
	u32 stopped;
	int preempted;
	u64 start;

	if (!(layer_features(VMI_SECTION_LOCK) & VMI_LOCK_RUN_STATES))
		test_skip("needs VMI_LOCK_RUN_STATES");
	other = (const struct vmi_run_state *)vmi.lock_run_state(1);
	about_to_stop = 0;
	run_on(1, stop_here, NULL);
	WAIT_UNTIL(atomic_load(&about_to_stop));
	start = now();
	while ((stopped = READ_ONCE(other->state)) != VMI_RUN_OFF &&
	       now() - start < patient(NS_PER_S))
		pause();
	preempted = vmi.lock_preempted(1);
	back_to_work();
	CHECK_EQ(stopped, VMI_RUN_OFF);
	CHECK(!preempted);
	WAIT_UNTIL(READ_ONCE(other->state) != VMI_RUN_OFF);
}

static void take_interrupts(void *argument)
{
	(void)argument;
	irq_enable();
	delay_ns(NS_PER_MS);
	irq_disable();
}

/* A stopped vCPU takes no interrupts. When it starts, none is pending. */
TEST(ap_stopped, "cpu.stop.stays", 2, 0, CPU_STOP)
{
	struct vmi_ap_state state = probe_state();
	u64 before;

	start_probe(&state);
	delay_ns(NS_PER_MS);
	before = irq_count(1, VECTOR_A);
	CHECK_RESULT(send_ipi(1, VECTOR_A), 0);
	delay_ns(NS_PER_MS);
	CHECK_EQ(irq_count(1, VECTOR_A), before);
	back_to_work();
	run_on(1, take_interrupts, NULL);
	wait_for(1);
	CHECK_EQ(irq_count(1, VECTOR_A), before);
}

static u64 running;

static void run_forever(void *argument)
{
	(void)argument;
	for (;;)
		atomic_add(&running, 1);
}

/* INIT stops a vCPU wherever it is. */
TEST(ap_init, "apic.send_ipi.init_stops", 2, 0, APIC_SEND_IPI)
{
	u64 value = 0, tries = 0;

	running = 0;
	run_on(1, run_forever, NULL);
	WAIT_UNTIL(atomic_load(&running) > 1000);
	CHECK_RESULT(send_icr(1, ICR_INIT), 0);
	/* It stops for good as soon as the INIT has arrived. */
	while (value != atomic_load(&running)) {
		CHECK(++tries < 100);
		value = atomic_load(&running);
		delay_ns(10 * NS_PER_MS);
	}
	back_to_work();
}

TEST(ap_all, "smp.work.all", 2, 0, SMP_SET_AP_STATE)
{
	u64 round;

	counter = 0;
	for (round = 1; round <= 50; round++) {
		run_on_others(machine.vcpus_online, count, NULL);
		CHECK_EQ(counter, round * (machine.vcpus_online - 1));
	}
}

static void add_under_lock(void *argument)
{
	u64 i;

	(void)argument;
	for (i = 0; i < 5000; i++)
		atomic_add(&counter, 1);
}

/* Memory is coherent: the atomic additions of all vCPUs add up. */
TEST(ap_memory, "smp.memory.atomic", 2, 0)
{
	counter = 0;
	run_on_others(machine.vcpus_online, add_under_lock, NULL);
	CHECK_EQ(counter, 5000ull * (machine.vcpus_online - 1));
}

static u64 starts;
static u32 enough;

/* No task register is loaded, so the vCPU can start again and again. */
static noreturn void count_start(void)
{
	atomic_add(&starts, 1);
	for (;;)
		pause();
}

static bool has_started(void *argument)
{
	(void)argument;
	return atomic_load(&starts);
}

static void send_startups(void *argument)
{
	s64 vector = vmi.smp_startup_vector();

	(void)argument;
	while (!atomic_load(&enough))
		CHECK_RESULT(send_icr(1, ICR_STARTUP | vector), 0);
}

/*
 * Repeated STARTUPs from one vCPU, INITs from another: each INIT is followed by one start, never by
 * two.
 */
TEST(ap_startups, "smp.startup.once", 3, 0, APIC_SEND_IPI, SMP_SET_AP_STATE)
{
	struct vmi_ap_state state = smp_work_state(1);
	u64 round, seed = 0x5157;

	state.rip = (u64)count_start;
	state.tr = 0;
	starts = 0;
	enough = 0;
	CHECK_RESULT(smp_start_with(1, &state), 0);
	CHECK(smp_wait_start(1, has_started, NULL));
	CHECK_EQ(atomic_load(&starts), 1);
	run_on(2, send_startups, NULL);
	for (round = 2; round <= 100; round++) {
		CHECK_RESULT(send_icr(1, ICR_INIT), 0);
		WAIT_UNTIL(atomic_load(&starts) >= round);
		delay_ns(random64(&seed) % (50 * NS_PER_US));
		CHECK_EQ(atomic_load(&starts), round);
	}
	atomic_store(&enough, 1);
	wait_for(2);
	back_to_work();
}

/* Each vCPU finds its own data, also while all of them run. */
static void check_self(void *argument)
{
	struct percpu *cpu = this_cpu();
	u32 i;

	(void)argument;
	for (i = 0; i < 1000; i++) {
		CHECK_EQ(vmi.cpu_get_gs_base(), (u64)cpu);
		CHECK_EQ(vmi.cpu_get_tr(), TSS_SELECTOR);
	}
	CHECK(percpus[cpu->vcpu] == cpu);
}

TEST(ap_self, "cpu.get_gs_base.per_vcpu", 2, 0, CPU_GET_GS_BASE)
{
	run_on_others(machine.vcpus_online, check_self, NULL);
	check_self(NULL);
}
