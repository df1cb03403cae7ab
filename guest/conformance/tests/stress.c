// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Everything at once on every vCPU: switches, faults, flushes, shootdowns, user code, alarms,
 * kicks. Each page carries its identity, each alarm must arrive, each shootdown must be answered,
 * vector registers must survive.
 */
#include "harness.h"
#include "pages.h"
#include "test.h"

#define VECTOR_ALARM	0x5e
#define VECTOR_SHOOT	0x5f
#define SHARED		4		/* spaces that every vCPU loads */
#define OWN_PAGES	8
#define SHARED_VA	(USER_DATA + 64 * MIB)

struct shared {
	struct space space;
	u64 gpa[2];
	u64 now, before;		/* what may be read: see read_shared() */
};

struct worker {
	struct space own;
	u64 gpa[OWN_PAGES];
	u32 mapped[OWN_PAGES];		/* the page at each address */
	u64 seed, loops;
	u64 alarm_due, alarms;
	u32 alarm_armed;
	struct fpu_state fpu, after;
};

static struct shared shared[SHARED];
static struct worker *workers[MAX_VCPUS];
static u64 end_time, shooting, shot_va, answers, active;

static u64 page_va(u32 n)
{
	return USER_DATA + n * 3 * PAGE_SIZE;
}

static void on_alarm(struct regs *regs)
{
	struct worker *w = workers[this_vcpu()];

	(void)regs;
	if (vmi.time_ack_alarm() & 1u << VMI_TIME_REAL) {
		WRITE_ONCE(w->alarm_armed, 0);
		w->alarms++;
	}
}

static void on_shoot(struct regs *regs)
{
	(void)regs;
	invalidate_page(READ_ONCE(shot_va));
	atomic_add(&answers, 1);
}

/* Own space: moves a page, or unmaps it and maps it again. */
static void change_own(struct worker *w)
{
	u32 a = random64(&w->seed) % OWN_PAGES, b = random64(&w->seed) % OWN_PAGES;
	bool loaded = this_cpu()->space == &w->own;
	u32 page = w->mapped[a];

	if (loaded && w->seed & 0x100) {
		expect_page(page_va(a), w->gpa[page]);
		space_set(&w->own, page_va(a), 0, VMI_LEVEL_PT);
		invalidate_page(page_va(a));
		expect_fault(w->seed & 0x200 ? USER_WRITE : KERNEL_READ, page_va(a),
			     w->seed & 0x200 ? PF_U | PF_W : 0);
		space_set(&w->own, page_va(a), w->gpa[page] | USER_RW, VMI_LEVEL_PT);
	} else {
		w->mapped[a] = w->mapped[b];
		w->mapped[b] = page;
		space_set(&w->own, page_va(a), w->gpa[w->mapped[a]] | USER_RW, 1);
		space_set(&w->own, page_va(b), w->gpa[w->mapped[b]] | USER_RW, 1);
		w->own.generation++;
		if (loaded && w->seed & 0x400)
			CHECK_RESULT(vmi.mmu_flush_tlb(VMI_FLUSH_USER), 0);
		else if (loaded)
			space_load(&w->own);
	}
	if (loaded)
		expect_page(page_va(a), w->gpa[w->mapped[a]]);
}

static void read_own(struct worker *w)
{
	u32 n = random64(&w->seed) % OWN_PAGES;

	space_load(&w->own);
	expect_page(page_va(n), w->gpa[w->mapped[n]]);
	if (w->seed & 0x800)
		expect_page_user(page_va(n), w->gpa[w->mapped[n]]);
}

/* With interrupts off no shootdown is answered: only two pages are possible. */
static void read_shared(struct worker *w)
{
	struct shared *s = &shared[random64(&w->seed) % SHARED];
	u64 before, value;

	/* The generation must not be an old one when the layer gets it. */
	irq_disable();
	space_load(&s->space);
	before = atomic_load(&s->before);
	value = w->seed & 0x1000 ? user_call(u_load, SHARED_VA, 0) :
		*(volatile u64 *)SHARED_VA;
	if (value != identity(before) && value != identity(atomic_load(&s->now)) &&
	    value != identity(atomic_load(&s->before)))
		FAIL("stale page 0x%llx of a shared space", identity(value));
	irq_enable();
}

/* One vCPU at a time changes the page of the space that all share. */
static void shoot_shared(struct worker *w)
{
	struct shared *s = &shared[random64(&w->seed) % SHARED];
	u64 to;

	if (atomic_swap(&shooting, 1))
		return;
	/* A vCPU that has ended its work still answers, from the work loop. */
	to = s->now == s->gpa[0] ? s->gpa[1] : s->gpa[0];
	atomic_store(&s->now, to);
	WRITE_ONCE(*space_pte(&s->space, SHARED_VA, VMI_LEVEL_PT), to | USER_RW);
	atomic_add(&s->space.generation, 1);
	WRITE_ONCE(shot_va, SHARED_VA);
	if (this_cpu()->space == &s->space)
		invalidate_page(SHARED_VA);
	if (machine.vcpus_online > 1) {
		u64 want = atomic_load(&answers) + machine.vcpus_online - 1;

		CHECK_RESULT(vmi.apic_send_ipi(ICR_OTHERS | VECTOR_SHOOT), 0);
		WAIT_UNTIL(atomic_load(&answers) == want);
	}
	atomic_store(&s->before, to);
	atomic_store(&shooting, 0);
}

static void use_alarm(struct worker *w)
{
	if (READ_ONCE(w->alarm_armed)) {
		/* Long overdue would mean that it is lost. */
		if (now() > w->alarm_due + 10 * NS_PER_S)
			FAIL("an alarm has not come");
		return;
	}
	w->alarm_due = now() + random64(&w->seed) % 200000;
	WRITE_ONCE(w->alarm_armed, 1);
	CHECK_RESULT(vmi.time_set_alarm(VMI_TIME_REAL, w->alarm_due, 0,
					VECTOR_ALARM), 0);
	if (!(w->seed & 0x6000))
		for (;;) {
			irq_disable();
			if (!READ_ONCE(w->alarm_armed))
				break;
			halt();
			watch("halt");
		}
	irq_enable();
}

static void use_kicks(struct worker *w)
{
	u8 byte = 0;

	vmi.lock_kick(random64(&w->seed) % machine.vcpus_online);
	if (w->seed & 0x70000)
		return;
	vmi.lock_kick(this_vcpu());
	vmi.lock_wait(&byte, 0);
}

static void work(void *argument)
{
	struct worker *w = workers[this_vcpu()];
	enum fpu_level level = fpu_level();

	(void)argument;
	fpu_fill(&w->fpu, w->seed);
	fpu_load(&w->fpu, level);
	space_load(&w->own);
	irq_enable();
	while (now() < end_time) {
		switch (random64(&w->seed) % 8) {
		case 0:
		case 1:
			change_own(w);
			break;
		case 2:
		case 3:
			read_own(w);
			break;
		case 4:
			read_shared(w);
			break;
		case 5:
			shoot_shared(w);
			break;
		case 6:
			use_alarm(w);
			break;
		case 7:
			use_kicks(w);
			break;
		}
		irq_enable();
		if (++w->loops % 16 == 0) {
			fpu_store(&w->after, level);
			fpu_compare(&w->fpu, &w->after, "under stress");
		}
		watch("stress");
	}
	WAIT_UNTIL(!READ_ONCE(w->alarm_armed));
	atomic_add(&active, -1);
	/* Others may still wait for an answer, for which interrupts must be on. */
	WAIT_UNTIL(!atomic_load(&active));
	irq_disable();
	space_load(NULL);
}

static void create_worker(u32 vcpu)
{
	static u64 run;
	struct worker *w = workers[vcpu];
	u32 i;

	if (!w)
		w = workers[vcpu] = alloc_contiguous(sizeof(*w));
	memset(w, 0, sizeof(*w));
	w->seed = 0x9e3779b97f4a7c15ull * (vcpu + 1 + MAX_VCPUS * run++);
	space_create(&w->own);
	for (i = 0; i < OWN_PAGES; i++) {
		w->gpa[i] = identity_page();
		w->mapped[i] = i;
		space_set(&w->own, page_va(i), w->gpa[i] | USER_RW, VMI_LEVEL_PT);
	}
}

static u64 parse_seconds(void)
{
	char text[16];
	u64 seconds = 0;
	char *s;

	if (!option("stress", text, sizeof(text)))
		return 1;
	for (s = text; *s >= '0' && *s <= '9'; s++)
		seconds = seconds * 10 + *s - '0';
	return seconds ? seconds : 1;
}

TEST(stress, "memory.stress", 1, 0, MMU_SET_CR3, MMU_INVALIDATE_PAGE, MMU_FLUSH_TLB,
     LOCK_KICK, LOCK_WAIT, TIME_SET_ALARM, CPU_HALT)
{
	u64 in_use = pages_in_use(), seconds = parse_seconds(), loops = 0, alarms = 0;
	u32 i, n;

	set_deadline((seconds + 20) * NS_PER_S);
	set_irq_handler(VECTOR_ALARM, on_alarm);
	set_irq_handler(VECTOR_SHOOT, on_shoot);
	shooting = answers = 0;
	for (i = 0; i < SHARED; i++) {
		struct shared *s = &shared[i];

		space_create(&s->space);
		s->gpa[0] = identity_page();
		s->gpa[1] = identity_page();
		s->now = s->before = s->gpa[0];
		space_set(&s->space, SHARED_VA, s->gpa[0] | USER_RW, VMI_LEVEL_PT);
	}
	for (i = 0; i < machine.vcpus_online; i++)
		create_worker(i);
	active = machine.vcpus_online;
	end_time = now() + seconds * NS_PER_S;
	for (i = 1; i < machine.vcpus_online; i++)
		run_on(i, work, NULL);
	work(NULL);
	for (i = 1; i < machine.vcpus_online; i++)
		wait_for(i);
	for (i = 0; i < machine.vcpus_online; i++) {
		struct worker *w = workers[i];

		loops += w->loops;
		alarms += w->alarms;
		space_destroy(&w->own);
		for (n = 0; n < OWN_PAGES; n++)
			free_page(w->gpa[n]);
	}
	for (i = 0; i < SHARED; i++) {
		space_destroy(&shared[i].space);
		free_page(shared[i].gpa[0]);
		free_page(shared[i].gpa[1]);
	}
	print("# stress: %llu operations, %llu alarms\n", loops, alarms);
	CHECK_OP(loops, >, 0);
	CHECK_EQ(pages_in_use(), in_use);
}
