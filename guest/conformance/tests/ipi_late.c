// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * How late an interrupt is that another vCPU sends: to one that runs, to one that is halted, and to
 * one that has lost its processor.
 */
#include "harness.h"
#include "late.h"
#include "test.h"

#define VECTOR_LATE	0x5b
/* What a layer may add (docs/vmi.md, section 6). */
#define LATE_MOST_NS	NS_PER_MS
/* A target that takes no interrupt for this time did not run. */
#define LOST_NS		(500 * NS_PER_US)
/* Each of those takes about a time slice of the host. */
#define LOST_COUNT	100

/* The vCPU that gets the interrupts. */
static struct {
	u64 had;			/* available time, all the time that it runs */
	struct vmi_times taken;		/* when it took the last one */
	u32 taken_count;
	bool halts, over;
} target;

static void take(struct regs *regs)
{
	(void)regs;
	vmi.time_read(&target.taken);
	atomic_store(&target.taken_count, target.taken_count + 1);
}

static void be_target(void *argument)
{
	struct vmi_times times;

	(void)argument;
	while (!atomic_load(&target.over)) {
		if (target.halts) {
			halt();
			irq_disable();
			continue;
		}
		vmi.time_read(&times);
		WRITE_ONCE(target.had, times.available);
		irq_enable();
		pause();
		irq_disable();
	}
}

/* How late an interrupt was: in all, and while the sender and its target had their processors. */
struct late_by {
	u64 all, had;
};

static struct late_by late_by(void)
{
	u64 stolen = target.taken.stolen, available = READ_ONCE(target.had), lost;
	u32 before = target.taken_count;
	struct vmi_times sent, done;
	struct late_by by;

	vmi.time_read(&sent);
	CHECK_RESULT(send_ipi(1, VECTOR_LATE), 0);
	vmi.time_read(&done);
	WAIT_UNTIL(atomic_load(&target.taken_count) != before);
	by.all = target.taken.real > sent.real ? target.taken.real - sent.real : 0;
	if (target.halts) {
		lost = target.taken.stolen - stolen;
		by.had = by.all - MIN(by.all, lost);
	} else {
		by.had = MIN(by.all, target.taken.available - available);
	}
	lost = done.stolen - sent.stolen;
	by.had -= MIN(by.had, lost);
	return by;
}

static void target_start(bool halts)
{
	set_irq_handler(VECTOR_LATE, take);
	memset(&target, 0, sizeof(target));
	target.halts = halts;
	run_on(1, be_target, NULL);
	/* It has begun. */
	late_by();
}

static void target_end(void)
{
	atomic_store(&target.over, true);
	CHECK_RESULT(send_ipi(1, VECTOR_LATE), 0);
	wait_for(1);
}

/* Prints how late the interrupts were, with stolen time and without it, and checks the latter. */
static void check_tail(struct late *all, struct late *late)
{
	late_print(all, "interrupts with stolen time");
	late_print(late, "interrupts");
	CHECK_OP(late_percent(late, 99), <=, patient(LATE_MOST_NS));
}

/* On a host that has nothing else to do (tail on the command line). */
static void late_to(u64 halted)
{
	static struct late late, all;
	struct late_by by;
	char word[8];
	u32 i;

	if (!option("tail", word, sizeof(word)))
		test_skip("needs tail on the command line, and an idle host");
	set_deadline(60 * NS_PER_S);
	late_clear(&late);
	late_clear(&all);
	target_start(halted);
	for (i = 0; i < LATE_MOST; i++) {
		/* It halts, and stops looking for work. */
		delay_ns((halted ? 200 : 20 + i % 16) * NS_PER_US);
		by = late_by();
		late_add(&late, by.had);
		late_add(&all, by.all);
	}
	target_end();
	check_tail(&all, &late);
}

TEST_OF(ipi_running, "apic.send_ipi.tail_running", late_to, false, 2, 0, APIC_SEND_IPI);
TEST_OF(ipi_halted, "apic.send_ipi.tail_halted", late_to, true, 2, 0, APIC_SEND_IPI);

/*
 * On a host where other programs use the processors (steal on the command line): a vCPU that has
 * lost its processor takes the interrupt when it has it again. The rest is stolen time.
 */
TEST(ipi_preempted, "apic.send_ipi.tail_preempted", 2, 0, APIC_SEND_IPI, TIME_READ)
{
	static struct late late, all;
	u64 seed = 7;
	char word[8];

	if (!option("steal", word, sizeof(word)))
		test_skip("needs steal on the command line, on a busy host");
	set_deadline(60 * NS_PER_S);
	late_clear(&late);
	late_clear(&all);
	target_start(false);
	while (late.count < LOST_COUNT) {
		struct late_by by;

		delay_ns(100 * NS_PER_US + random64(&seed) % (4 * NS_PER_MS));
		by = late_by();
		if (by.all < LOST_NS)
			continue;
		late_add(&late, by.had);
		late_add(&all, by.all);
	}
	target_end();
	check_tail(&all, &late);
}
