// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* How late alarms are, and alarms on available time while time is stolen. */
#include "late.h"
#include "space.h"
#include "test.h"
#include "user_mode.h"

#define VECTOR_A	0x5a
#define BATCH		16
#define BATCHES		40
/* What a layer may add (docs/vmi.md, section 9). */
#define LATE_MOST_NS	NS_PER_MS

static struct vmi_times fired;
static u32 fires;

static struct vmi_times times(void)
{
	struct vmi_times t;

	vmi.time_read(&t);
	return t;
}

static void alarm(struct regs *regs)
{
	struct vmi_times t = times();

	(void)regs;
	if (!vmi.time_ack_alarm())
		return;
	fired = t;
	WRITE_ONCE(fires, fires + 1);
}

/* How late the last alarm on real time was, with the time for which the vCPU was kept from it. */
static u64 late_in_all;

/* Arms an alarm for in ns. Waits for it, halted or not. Returns how late it was. */
static u64 lateness(u32 counter, u64 in, bool halted)
{
	struct vmi_times start = times();
	u64 expiry = (counter == VMI_TIME_REAL ? start.real : start.available) + in, late, stolen;
	u32 before = fires;

	CHECK_RESULT(vmi.time_set_alarm(counter, expiry, 0, VECTOR_A), 0);
	while (READ_ONCE(fires) == before) {
		if (halted) {
			halt();
		} else {
			irq_enable();
			pause();
		}
		irq_disable();
		watch("an alarm");
	}
	if (counter == VMI_TIME_AVAILABLE) {
		CHECK_OP(fired.available, >=, expiry);
		return fired.available - expiry;
	}
	CHECK_OP(fired.real, >=, expiry);
	late = fired.real - expiry;
	late_in_all = late;
	/* The vCPU was kept from taking it. */
	stolen = fired.stolen - start.stolen;
	return late > stolen ? late - stolen : 0;
}

/*
 * The median of a batch counts, and the best of several batches: the host may keep its processors
 * busy without saying so. A layer that looks at its alarms every few ms never has such a batch.
 */
static void punctual(u64 how)
{
	u32 counter = how & 0xf;
	u64 best = ~0ull, most = patient(LATE_MOST_NS), end = now() + 10 * NS_PER_S;
	u32 batch, i, n;

	set_irq_handler(VECTOR_A, alarm);
	for (batch = 0; batch < BATCHES && best > most && now() < end; batch++) {
		u64 sorted[BATCH];

		for (i = 0; i < BATCH; i++) {
			u64 in = (100 + i * 37) * NS_PER_US;
			u64 late = lateness(counter, in, how >> 4);

			for (n = i; n && sorted[n - 1] > late; n--)
				sorted[n] = sorted[n - 1];
			sorted[n] = late;
		}
		best = MIN(best, sorted[BATCH / 2]);
	}
	print("# half of the alarms are late by at most %llu us\n", best / NS_PER_US);
	CHECK_OP(best, <=, most);
}
TEST_OF(punctual_real, "time.set_alarm.punctual_real", punctual, VMI_TIME_REAL, 1, 0,
	TIME_SET_ALARM);
TEST_OF(punctual_available, "time.set_alarm.punctual_available", punctual, VMI_TIME_AVAILABLE,
	1, 0, TIME_SET_ALARM);
TEST_OF(punctual_halted, "cpu.halt.punctual", punctual, VMI_TIME_REAL | 1 << 4, 1, 0, CPU_HALT,
	TIME_SET_ALARM);

static bool tail_over;

static void want_processor(void *argument)
{
	(void)argument;
	while (!atomic_load(&tail_over))
		pause();
}

/*
 * The tail: on a host that has nothing else to do (tail on the command line), 99 of 100 alarms of a
 * vCPU that halts until then are as punctual as half of them, apart from stolen time. All other
 * vCPUs want to run, so that with more vCPUs than processors this one has to get its own back for
 * each alarm.
 */
TEST(punctual_tail, "time.set_alarm.tail", 1, 0, TIME_SET_ALARM, CPU_HALT)
{
	static struct late late, all;
	char word[8];
	u32 i;

	if (!option("tail", word, sizeof(word)))
		test_skip("needs tail on the command line, and an idle host");
	set_deadline(60 * NS_PER_S);
	set_irq_handler(VECTOR_A, alarm);
	late_clear(&late);
	late_clear(&all);
	tail_over = false;
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, want_processor, NULL);
	for (i = 0; i < LATE_MOST; i++) {
		late_add(&late, lateness(VMI_TIME_REAL, (100 + i % 16 * 37) * NS_PER_US, true));
		late_add(&all, late_in_all);
	}
	atomic_store(&tail_over, true);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	late_print(&all, "alarms with stolen time");
	late_print(&late, "alarms");
	CHECK_OP(late_percent(&late, 99), <=, patient(LATE_MOST_NS));
}

/*
 * On a host whose processors have other users (steal on the command line): an alarm on available
 * time waits for available time.
 */
TEST(available_stolen, "time.set_alarm.available_is_not_real", 1, 0, TIME_SET_ALARM)
{
	struct vmi_times start = times();
	char word[8];
	u32 i;

	if (!option("steal", word, sizeof(word)))
		test_skip("needs steal on the command line, on a busy host");
	set_irq_handler(VECTOR_A, alarm);
	WAIT_UNTIL(times().stolen - start.stolen > 50 * NS_PER_MS);
	for (i = 0; i < 5; i++)
		lateness(VMI_TIME_AVAILABLE, 10 * NS_PER_MS, false);
}

/*
 * On such a host: a halted vCPU whose alarm is due waits for a processor. The alarm's handler
 * already reads this time as stolen time.
 */
TEST(wait_stolen, "time.read.wait_is_stolen_at_once", 1, 0, TIME_READ, CPU_HALT, TIME_SET_ALARM)
{
	u64 waited = 0, unseen = 0, end = now() + 5 * NS_PER_S;
	char word[8];

	if (!option("steal", word, sizeof(word)))
		test_skip("needs steal on the command line, on a busy host");
	set_irq_handler(VECTOR_A, alarm);
	while (waited < 40 * NS_PER_MS && now() < end) {
		u64 in = 3 * NS_PER_MS, start = now(), rest, late;

		rest = lateness(VMI_TIME_REAL, in, true);
		late = fired.real - start - in;
		if (late < LATE_MOST_NS)
			continue;
		waited += late;
		unseen += rest;
	}
	print("# waited for %llu us, of which %llu are not stolen\n", waited / NS_PER_US,
	      unseen / NS_PER_US);
	CHECK_OP(waited, >, 0);
	CHECK_OP(unseen, <, waited / 4);
}

/* A vCPU that sleeps with a space that another one flushes. */
static struct {
	struct space space;
	struct vmi_times start;
	u64 expiry;
	u32 sleeps;
} sleeper;

static void sleep_in_space(void *argument)
{
	u32 before = fires;

	(void)argument;
	space_load(&sleeper.space);
	sleeper.start = times();
	sleeper.expiry = sleeper.start.real + 200 * NS_PER_MS;
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, sleeper.expiry, 0, VECTOR_A), 0);
	atomic_store(&sleeper.sleeps, 1);
	while (READ_ONCE(fires) == before) {
		halt();
		irq_disable();
		watch("an alarm");
	}
	space_load(NULL);
}

/* The host wakes it for that, and it sleeps on: it waits for nothing but its alarm. */
TEST(flush_idle, "time.read.flush_is_idle", 2, 0, TIME_READ, CPU_HALT, MMU_FLUSH_SPACE)
{
	u64 late, stolen;

	if (!(layer_features(VMI_SECTION_MMU) & VMI_MMU_FLUSH_SPACE))
		test_skip("the layer does not offer it");
	set_irq_handler(VECTOR_A, alarm);
	space_create(&sleeper.space);
	sleeper.sleeps = 0;
	run_on(1, sleep_in_space, NULL);
	WAIT_UNTIL(atomic_load(&sleeper.sleeps));
	delay_ns(20 * NS_PER_MS);
	CHECK_RESULT(vmi.mmu_flush_space(sleeper.space.root, sleeper.space.context,
					 atomic_add(&sleeper.space.generation, 1), USER_DATA,
					 USER_DATA + PAGE_SIZE), 0);
	wait_for(1);
	space_destroy(&sleeper.space);
	late = fired.real - sleeper.expiry;
	stolen = fired.stolen - sleeper.start.stolen;
	/* On a busy host it may have had to wait before it slept, too. */
	CHECK_OP(stolen, <, late + 100 * NS_PER_MS);
}
