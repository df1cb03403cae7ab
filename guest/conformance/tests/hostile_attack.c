// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Attacks on the host through the zygote, whose signals and memory the guest can reach.
 * tests/tests/attacks.rs observes them from outside. The guest can write the words of the area that
 * it shares with the layer.
 */
#include <paravane/process.h>

#include "hostile.h"
#include "harness.h"
#include "test.h"

#define SIGURG 23
#define TGKILL 234
#define FUTEX 202
#define EXIT_GROUP 231
/* The zygote's process id is slightly below that of the first process. */
#define NEAR 512
/* Time for the whole attack. */
#define ATTACK_NS NS_PER_S
#define VECTOR_STORM 0x67
/* A field of struct vmi_percpu for the layer alone: the virtual interrupt flag. */
#define PERCPU_IRQ 24

extern char h_payload[], h_payload_path[];
extern u64 h_payload_call;

static volatile struct phv_shared *const area = (void *)PHV_SHARED;

static volatile struct phv_proc *proc_at(u64 index)
{
	return (void *)(PHV_SHARED + PHV_SHARED_PROCS + index % PHV_MAX_PROCS * PHV_PROC_STRIDE);
}

static volatile struct phv_vcpu *vcpu_at(u32 number)
{
	return (void *)(PHV_SHARED + PHV_SHARED_VCPUS + number * PHV_VCPU_STRIDE);
}

static s64 urge(u64 pid, u64 tid)
{
	return (s64)host_call(TGKILL, pid, tid, SIGURG, 0, 0, 0);
}

void hostile_wish(u32 more)
{
	area->proc_wanted = area->proc_count + more;
	area->doorbell++;
	host_call(FUTEX, (u64)&area->doorbell, 1, 1, 0, 0, 0);
}

u64 hostile_zygote(void)
{
	u64 first = proc_at(0)->pid, pid;

	for (pid = first - 1; pid && pid + NEAR > first; pid--)
		if (!urge(pid, pid))
			return pid;
	return 0;
}

static void on_others(void (*work)(void *), void *argument)
{
	u32 i;

	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, work, argument);
}

static void wait_for_others(void)
{
	u32 i;

	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
}

/* --- burst: the zygote's stack and the memory below it --- */

static struct {
	u64 zygote, end;
	u64 pulse;	/* signals in a row */
	u64 gap;	/* the most pauses between two, to vary the size of frames */
	u64 rest;	/* ns for a process to start */
} burst;

/*
 * A starting process reports its ids before it has its filter. A signal at that moment must find
 * that it is vCPU 0.
 */
static void forge_owner(void)
{
	u64 i, count = area->proc_count;


	for (i = count + 4; i-- > count;) {
		u64 pid = proc_at(i)->pid, tid = proc_at(i)->tid[0];

		if (pid && pid == tid) {
			vcpu_at(0)->owner = pid << 32 | tid;
			break;
		}
	}
}

static void burst_work(void *argument)
{
	u64 n, from, gap, wish = 0, seed = burst.pulse + this_vcpu();

	(void)argument;
	while ((from = now()) < burst.end) {
		for (n = 0; n < burst.pulse; n++) {
			urge(burst.zygote, burst.zygote);
			for (gap = random64(&seed) % burst.gap; gap; gap--)
				pause();
		}
		/*
		 * The machine can have few processes, so ask for one now and then. The zygote stops
		 * waiting for a process that never becomes ready.
		 */
		if (!this_vcpu() && from > wish) {
			if (wish && proc_at(area->proc_count)->pid)
				proc_at(area->proc_count)->state = PHV_PROC_FREE;
			hostile_wish(1);
			wish = from + ATTACK_NS / 40;
		}
		while (now() < from + burst.rest)
			forge_owner();
	}
}

/* The payload handles every exception that the layer injects into vCPU 0, on a stack of its own. */
static void payload_prepare(void)
{
	static u64 idt[256][2] __attribute__((aligned(16)));
	static u8 stack[PAGE_SIZE] __attribute__((aligned(16)));
	struct vmi_table_register table = { .base = (u64)idt, .limit = sizeof(idt) - 1 };
	u64 to = (u64)h_payload;
	u32 i;

	h_payload_call = host_call_address();
	if (!option("marker", h_payload_path, 128))
		panic("hostile=burst needs marker=PATH");
	for (i = 0; i < 256; i++) {
		idt[i][0] = (to & 0xffff) | (u64)KERNEL_CS << 16 | 0x8eull << 40 |
			    (to >> 16 & 0xffff) << 48;
		idt[i][1] = to >> 32;
	}
	vmi.cpu_set_idt(&table);
	set_kernel_stack((u64)stack + sizeof(stack));
	/* Set without a check of what is pending. */
	((volatile u8 *)&this_cpu()->vmi)[PERCPU_IRQ] = 1;
}

static void burst_run(void)
{
	u64 seed = (option_number("seed") + 1) * 0x9e3779b97f4a7c15ull;

	burst.zygote = option_number("zygote") ?: hostile_zygote();
	print("# zygote %llu\n", burst.zygote);
	/*
	 * Deep enough to reach the memory below the stack, and not much deeper. How deep depends on
	 * the host.
	 */
	burst.pulse = option_number("pulse") ?: 16 + random64(&seed) % 24;
	burst.gap = option_number("gap") ?: 1 + random64(&seed) % 8;
	burst.rest = (option_number("rest") ?: 100 + random64(&seed) % 200) * NS_PER_US;
	burst.end = now() + ATTACK_NS;
	on_others(burst_work, NULL);
	payload_prepare();
	burst_work(NULL);
	/* There is no way back: the payload has the gates. */
	host_call(EXIT_GROUP, 0, 0, 0, 0, 0, 0);
}

/* --- hold: the word that tells that a process is ready keeps the value for "not ready" --- */

/* Processes to create under the attack. */
#define HELD 32
/*
 * If none appears for this time, the attack has stopped the zygote. The zygote may have to wait for
 * a processor.
 */
#define STANDS_NS (4 * NS_PER_S)

static bool hold_over;

static void hold_those_to_come(void)
{
	u64 i, count = area->proc_count;

	for (i = count; i < count + 4; i++)
		proc_at(i)->state = PHV_PROC_NONE;
}

static void holder(void *argument)
{
	(void)argument;
	while (!READ_ONCE(hold_over))
		hold_those_to_come();
}

static void hold_run(void)
{
	u32 first = area->proc_count, seen = first;
	u64 last = now();

	on_others(holder, NULL);
	while (seen < first + HELD && now() < last + STANDS_NS) {
		hostile_wish(4);
		while (area->proc_count == seen && now() < last + STANDS_NS)
			hold_those_to_come();
		if (area->proc_count != seen)
			last = now();
		seen = area->proc_count;
	}
	print("# held: %u of %u were made\n", MIN(seen - first, HELD), HELD);
	/* End one of the machine's processes: the monitor must notice. */
	host_call(EXIT_GROUP, 7, 0, 0, 0, 0, 0);
}

/* --- self-burst and interrupts: the layer's own signal stacks --- */

static u64 storm_end;

/* All threads of all processes, both waiting and running. */
static void self_burst(void *argument)
{
	u32 i, t;

	(void)argument;
	while (now() < storm_end)
		for (i = 0; i < area->proc_count; i++)
			for (t = 0; t < machine.vcpus_online; t++)
				urge(proc_at(i)->pid, proc_at(i)->tid[t]);
}

static void nothing(struct regs *regs)
{
	(void)regs;
	vmi.time_ack_alarm();
}

static void interrupts(void *argument)
{
	u64 n = 0;

	(void)argument;
	irq_enable();
	while (now() < storm_end) {
		if (n++ % 16)
			vmi.apic_send_ipi(ICR_OTHERS | ICR_FIXED | VECTOR_STORM);
		else
			vmi.time_set_alarm(VMI_TIME_REAL, now() + n % 64 * NS_PER_US, 0,
					   VECTOR_STORM);
	}
	irq_disable();
	vmi.time_cancel_alarm(VMI_TIME_REAL);
}

static void storm_run(void (*work)(void *))
{
	set_irq_handler(VECTOR_STORM, nothing);
	storm_end = now() + ATTACK_NS;
	on_others(work, NULL);
	work(NULL);
	wait_for_others();
	print("# stood: vCPU 0 took %llu interrupts\n", irq_count(0, VECTOR_STORM));
}

/* --- neighbour: a process of another machine --- */

static struct {
	u64 victim, end;
	u64 reached, refused;
} neighbour;

static void neighbour_work(void *argument)
{
	(void)argument;
	while (now() < neighbour.end) {
		bool reached = !urge(neighbour.victim, neighbour.victim);

		atomic_add(reached ? &neighbour.reached : &neighbour.refused, 1);
	}
}

static void neighbour_run(void)
{
	neighbour.victim = option_number("victim");
	neighbour.end = now() + (option_number("ms") ?: 1000) * NS_PER_US * 1000;
	on_others(neighbour_work, NULL);
	neighbour_work(NULL);
	wait_for_others();
	print("# neighbour: reached %llu times, refused %llu\n", neighbour.reached,
	      neighbour.refused);
}

static u64 heard;

static void hear(struct regs *regs)
{
	(void)regs;
	WRITE_ONCE(heard, READ_ONCE(heard) + 1);
}

static void listen(void *argument)
{
	(void)argument;
	for (;;)
		halt();
}

/* Whether vCPU 1, which sleeps, gets an interrupt within ns. */
static bool hears(u64 ns)
{
	u64 before, end = now() + 100 * NS_PER_US * 1000;

	while (vcpu_at(1)->state != PHV_VCPU_HALTED || now() < end)
		pause();
	before = READ_ONCE(heard);
	send_icr(1, ICR_FIXED | VECTOR_STORM);
	for (end = now() + ns; now() < end;)
		if (READ_ONCE(heard) != before)
			return true;
	return false;
}

/*
 * A vCPU sleeps, and the area says that it polls for interrupts. So no sender wakes it.
 * All vCPUs sleep so in the end.
 */
static void deaf_run(void)
{
	u32 i;

	set_irq_handler(VECTOR_STORM, hear);
	run_on(1, listen, NULL);
	if (!hears(NS_PER_S))
		panic("vCPU 1 hears nothing");
	vcpu_at(1)->polling = 1;
	print("# vCPU 1 hears %s\n", hears(NS_PER_S) ? "all the same" : "nothing");
	for (i = 0; i < machine.vcpus_online; i++)
		vcpu_at(i)->polling = 1;
	listen(NULL);
}

bool hostile_attack(const char *mode)
{
	if (!strcmp(mode, "burst"))
		burst_run();
	else if (!strcmp(mode, "hold"))
		hold_run();
	else if (!strcmp(mode, "self-burst"))
		storm_run(self_burst);
	else if (!strcmp(mode, "interrupts"))
		storm_run(interrupts);
	else if (!strcmp(mode, "neighbour"))
		neighbour_run();
	else if (!strcmp(mode, "deaf"))
		deaf_run();
	else
		return false;
	return true;
}
