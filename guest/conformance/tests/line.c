// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Interrupt lines, by the device that hypervisors provide for this test: an entropy source (virtio
 * 1.2, sections 4.2 and 5.4), which uses every buffer that it gets.
 */
#include "test.h"
#include "virtio.h"

#define VECTOR_LINE	0x58
#define VECTOR_OTHER	0x6f
#define QUIET		(NS_PER_MS / 2)

#define RNG_ID		4
#define QUEUE_SIZE	8
#define BUFFER_SIZE	64

/* A page with a queue and a buffer. */
struct queue {
	struct {
		u64 gpa;
		u32 length;
		u16 flags, next;
	} descriptors[QUEUE_SIZE];
	struct {
		u16 flags, index, ring[QUEUE_SIZE], event;
	} available;
	u8 pad[4];
	struct {
		u16 flags, index;
		struct {
			u32 id, length;
		} ring[QUEUE_SIZE];
	} used;
	u8 buffer[BUFFER_SIZE] __attribute__((aligned(8)));
};

static struct {
	struct virtio device;
	u64 page;		/* guest-physical */
	struct queue *queue;
} rng;

static u32 get(u32 offset)
{
	return virtio_get(&rng.device, offset);
}

static void put(u32 offset, u32 value)
{
	virtio_put(&rng.device, offset, value);
}

/* Finds the device and maps its registers. */
static void need_device(void)
{
	if (!vmi.line_route)
		test_skip("the layer has no lines");
	if (!virtio_find(&rng.device, RNG_ID))
		test_skip("there is no device for it");
}

/* Starts the device as a driver does. */
static void start(void)
{
	need_device();
	rng.page = alloc_page();
	rng.queue = to_linear(rng.page);
	virtio_start(&rng.device, QUEUE_SIZE, rng.page,
		     rng.page + offsetof(struct queue, available),
		     rng.page + offsetof(struct queue, used));
}

static void stop(void)
{
	CHECK_RESULT(vmi.line_route(rng.device.line, 0, 0), 0);
	put(STATUS, 0);
	CHECK_EQ(get(STATUS), 0);
	virtio_hide(&rng.device);
	free_page(rng.page);
}

/* Makes a buffer available. */
static void offer(void)
{
	struct queue *q = rng.queue;
	u16 index = q->available.index;

	q->descriptors[0].gpa = rng.page + offsetof(struct queue, buffer);
	q->descriptors[0].length = BUFFER_SIZE;
	q->descriptors[0].flags = 2;	/* the device writes */
	q->available.ring[index % QUEUE_SIZE] = 0;
	atomic_store(&q->available.index, (u16)(index + 1));
}

/* Asks for bytes: the device uses the buffer and interrupts. */
static void ask(void)
{
	offer();
	put(QUEUE_NOTIFY, 0);
}

static void wait_used(void)
{
	struct queue *q = rng.queue;

	WAIT_UNTIL(READ_ONCE(q->used.index) == q->available.index);
	CHECK_EQ(q->used.ring[(u16)(q->used.index - 1) % QUEUE_SIZE].length, BUFFER_SIZE);
}

/* Waits for the interrupt with this number: halted for an odd number, running for an even one. */
static void wait_interrupt(u64 number)
{
	while (irq_count(0, VECTOR_LINE) < number) {
		if (number & 1)
			vmi.cpu_halt();
		else
			irq_enable();
		watch("the interrupt");
		irq_disable();
	}
}

TEST(line_errors, "line.route.errors", 1, 0, LINE_ROUTE)
{
	need_device();
	CHECK_RESULT(vmi.line_route(rng.device.line, 0, 31), -VMI_EINVAL);
	CHECK_RESULT(vmi.line_route(rng.device.line, 0, 256), -VMI_EINVAL);
	CHECK_RESULT(vmi.line_route(rng.device.line, 0, 0xffffff40), -VMI_EINVAL);
	CHECK_RESULT(vmi.line_route(0xffffffff, 0, 31), -VMI_EINVAL);
	CHECK_RESULT(vmi.line_route(0xffffffff, 0, VECTOR_LINE), -VMI_ENOENT);
	CHECK_RESULT(vmi.line_route(0x10000000, 0, 0), -VMI_ENOENT);
	CHECK_RESULT(vmi.line_route(0xffffffff, VMI_LINE_NOTIFIER, 31), -VMI_EINVAL);
	CHECK_RESULT(vmi.line_route(rng.device.line, 0xffff, VECTOR_LINE), -VMI_ENOENT);
	CHECK_RESULT(vmi.line_route(rng.device.line, 0xffffffff, VECTOR_LINE), -VMI_ENOENT);
	/* Masked: whichever APIC it is routed to. */
	CHECK_RESULT(vmi.line_route(rng.device.line, 0xffff, 0), 0);
	virtio_hide(&rng.device);
}

TEST(line_interrupts, "line.route.interrupts", 1, 0, LINE_ROUTE)
{
	u64 before = irq_count(0, VECTOR_LINE), sum = 0;
	u32 i, round;

	start();
	CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[0], VECTOR_LINE), 0);
	for (round = 1; round <= 20; round++) {
		ask();
		wait_interrupt(before + round);
		wait_used();
		CHECK_EQ(get(INTERRUPT_STATUS), 1);
		put(INTERRUPT_ACK, 1);
		CHECK_EQ(get(INTERRUPT_STATUS), 0);
	}
	CHECK_EQ(irq_count(0, VECTOR_LINE), before + 20);
	for (i = 0; i < BUFFER_SIZE; i++)
		sum += rng.queue->buffer[i];
	CHECK_NE(sum, 0);
	stop();
}

/* Signals of a masked line merge into one, which is delivered when the line is routed. */
TEST(line_masked, "line.route.masked", 1, 0, LINE_ROUTE)
{
	u64 before = irq_count(0, VECTOR_LINE);

	start();
	irq_enable();
	CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[0], VECTOR_LINE), 0);
	CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[0], 0), 0);
	ask();
	wait_used();
	ask();
	wait_used();
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_LINE), before);
	CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[0], VECTOR_LINE), 0);
	WAIT_UNTIL(irq_count(0, VECTOR_LINE) == before + 1);
	delay_ns(QUIET);
	CHECK_EQ(irq_count(0, VECTOR_LINE), before + 1);
	irq_disable();
	stop();
}

TEST(line_other, "line.route.other_vcpu", 2, 0, LINE_ROUTE)
{
	u64 first = irq_count(0, VECTOR_OTHER), second = irq_count(1, VECTOR_OTHER);
	u32 round;

	start();
	irq_enable();
	for (round = 1; round <= 10; round++) {
		CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[1], VECTOR_OTHER), 0);
		ask();
		WAIT_UNTIL(irq_count(1, VECTOR_OTHER) == second + round);
		CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[0], VECTOR_OTHER), 0);
		ask();
		WAIT_UNTIL(irq_count(0, VECTOR_OTHER) == first + round);
	}
	irq_disable();
	stop();
}

static void need_calls(void)
{
	need_device();
	if (!vmi.line_notify || !vmi.line_status)
		test_skip("the layer has version 1 of the section");
}

TEST(line_call_errors, "line.notify.errors", 1, 0, LINE_NOTIFY, LINE_STATUS)
{
	need_calls();
	CHECK_RESULT(vmi.line_notify(0xffffffff, 0), -VMI_ENOENT);
	CHECK_RESULT(vmi.line_notify(machine.info.device_count, 0), -VMI_ENOENT);
	CHECK_RESULT(vmi.line_status(0xffffffff), -VMI_ENOENT);
	CHECK_RESULT(vmi.line_status(machine.info.device_count), -VMI_ENOENT);
	virtio_hide(&rng.device);
}

/* Queues that the device does not have are ignored. */
TEST(line_notify, "line.notify.device", 1, 0, LINE_NOTIFY, LINE_STATUS)
{
	u64 before = irq_count(0, VECTOR_LINE);
	u32 round;

	need_calls();
	start();
	CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[0], VECTOR_LINE), 0);
	for (round = 1; round <= 20; round++) {
		offer();
		CHECK_RESULT(vmi.line_notify(rng.device.line, 1), 0);
		CHECK_RESULT(vmi.line_notify(rng.device.line, 29 + round), 0);
		CHECK_RESULT(vmi.line_notify(rng.device.line, 0xffffffff), 0);
		CHECK_RESULT(vmi.line_notify(rng.device.line, 0), 0);
		wait_interrupt(before + round);
		wait_used();
		CHECK_RESULT(vmi.line_status(rng.device.line), 1);
	}
	stop();
}

/* The call returns what the register shows, and clears it. */
TEST(line_status, "line.status.clears", 1, 0, LINE_STATUS)
{
	need_calls();
	start();
	CHECK_RESULT(vmi.line_status(rng.device.line), 0);
	ask();
	wait_used();
	WAIT_UNTIL(get(INTERRUPT_STATUS) == 1);
	CHECK_RESULT(vmi.line_status(rng.device.line), 1);
	CHECK_EQ(get(INTERRUPT_STATUS), 0);
	CHECK_RESULT(vmi.line_status(rng.device.line), 0);
	stop();
}

TEST(line_notify_two, "line.notify.other_vcpu", 2, 0, LINE_NOTIFY)
{
	u64 before;
	u32 round;

	need_calls();
	start();
	before = irq_count(1, VECTOR_OTHER);
	CHECK_RESULT(vmi.line_route(rng.device.line, machine.apic_ids[1], VECTOR_OTHER), 0);
	for (round = 1; round <= 10; round++) {
		offer();
		CHECK_RESULT(vmi.line_notify(rng.device.line, 0), 0);
		WAIT_UNTIL(irq_count(1, VECTOR_OTHER) == before + round);
		CHECK_RESULT(vmi.line_status(rng.device.line), 1);
	}
	stop();
}

/* A signal goes to the vCPU that notified, and the set of lines has the line once. */
static void notifier_round(u32 vcpu)
{
	u64 before[2] = { irq_count(0, VECTOR_LINE), irq_count(1, VECTOR_LINE) };

	offer();
	CHECK_RESULT(vmi.line_notify(rng.device.line, 0), 0);
	WAIT_UNTIL(irq_count(vcpu, VECTOR_LINE) == before[vcpu] + 1);
	CHECK_EQ(irq_count(!vcpu, VECTOR_LINE), before[!vcpu]);
	CHECK_EQ(vmi.line_pending(), 1ULL << rng.device.line);
	CHECK_EQ(vmi.line_pending(), 0);
	CHECK_RESULT(vmi.line_status(rng.device.line), 1);
}

static void notify_here(void *argument)
{
	u32 round;

	(void)argument;
	irq_enable();
	for (round = 0; round < 5; round++)
		notifier_round(this_vcpu());
	irq_disable();
}

TEST(line_notifier, "line.route.notifier", 2, 0, LINE_ROUTE, LINE_NOTIFY, LINE_PENDING)
{
	u32 round;

	need_calls();
	start();
	CHECK_RESULT(vmi.line_route(rng.device.line, VMI_LINE_NOTIFIER, VECTOR_LINE), 0);
	for (round = 0; round < 3; round++) {
		notify_here(NULL);
		run_on_others(2, notify_here, NULL);
	}
	irq_enable();
	/* A masked line keeps its signal for the notifier, too. */
	CHECK_RESULT(vmi.line_route(rng.device.line, 0, 0), 0);
	ask();
	wait_used();
	delay_ns(QUIET);
	CHECK_EQ(vmi.line_pending(), 0);
	CHECK_RESULT(vmi.line_route(rng.device.line, VMI_LINE_NOTIFIER, VECTOR_LINE), 0);
	CHECK_EQ(vmi.line_pending(), 1ULL << rng.device.line);
	irq_disable();
	stop();
}

/* The signal has come to this vCPU, which does not take it any more. */
static void notify_and_stop(void *argument)
{
	(void)argument;
	irq_disable();
	offer();
	vmi.line_notify(rng.device.line, 0);
	WAIT_UNTIL(get(INTERRUPT_STATUS) == 1);
	delay_ns(QUIET);
	vmi.cpu_stop();
}

TEST(line_stopped, "line.route.notifier_stops", 2, 0, LINE_ROUTE, LINE_PENDING, CPU_STOP)
{
	u64 before = irq_count(0, VECTOR_LINE);

	need_calls();
	start();
	CHECK_RESULT(vmi.line_route(rng.device.line, VMI_LINE_NOTIFIER, VECTOR_LINE), 0);
	run_on(1, notify_and_stop, NULL);
	irq_enable();
	WAIT_UNTIL(irq_count(0, VECTOR_LINE) > before);
	irq_disable();
	CHECK_EQ(vmi.line_pending(), 1ULL << rng.device.line);
	CHECK(smp_start(1));
	stop();
}

static u32 masked;

/* The signal has come to this vCPU. The line is masked before the vCPU stops. */
static void notify_mask_and_stop(void *argument)
{
	(void)argument;
	irq_disable();
	offer();
	vmi.line_notify(rng.device.line, 0);
	WAIT_UNTIL(get(INTERRUPT_STATUS) == 1);
	delay_ns(QUIET);
	vmi.line_route(rng.device.line, 0, 0);
	atomic_add(&masked, 1);
	vmi.cpu_stop();
}

static void take_line(void *argument)
{
	irq_enable();
	WAIT_UNTIL(irq_count(1, VECTOR_LINE) > *(u64 *)argument);
	irq_disable();
}

TEST(line_stopped_masked, "line.route.notifier_stops_masked", 2, 0, LINE_ROUTE, LINE_PENDING,
     CPU_STOP)
{
	u64 before = irq_count(1, VECTOR_LINE);

	need_calls();
	start();
	masked = 0;
	CHECK_RESULT(vmi.line_route(rng.device.line, VMI_LINE_NOTIFIER, VECTOR_LINE), 0);
	run_on(1, notify_mask_and_stop, NULL);
	WAIT_UNTIL(READ_ONCE(masked));
	/* An INIT stops it if it has not stopped yet. */
	CHECK(smp_start(1));
	CHECK_EQ(irq_count(1, VECTOR_LINE), before);
	CHECK_RESULT(vmi.line_route(rng.device.line, VMI_LINE_NOTIFIER, VECTOR_LINE), 0);
	run_on_others(2, take_line, &before);
	CHECK_EQ(vmi.line_pending(), 1ULL << rng.device.line);
	stop();
}

static u32 low, high;		/* halves of the features */

#define STORE(half, instruction, ...)					\
	do {								\
		u64 offset = DEVICE_FEATURES_SEL;			\
									\
		put(DEVICE_FEATURES_SEL, half == low);			\
		asm volatile(instruction : "+r"(offset)			\
			     : "r"(rng.device.registers), "r"((u64)(half == high))	\
			     : "memory", "cc", "r8", "r12", "r13", "r15");	\
		CHECK_EQ(get(DEVICE_FEATURES), half);			\
	} while (0)

/*
 * Every plain store works. DEVICE_FEATURES shows which half was chosen if the right four bytes were
 * written.
 */
TEST(line_stores, "line.registers.stores", 1, 0, LINE_ROUTE)
{
	need_device();
	put(DEVICE_FEATURES_SEL, 0);
	low = get(DEVICE_FEATURES);
	put(DEVICE_FEATURES_SEL, 1);
	high = get(DEVICE_FEATURES);
	CHECK_NE(low, high);
	STORE(low, "movl %k2, 0x14(%1)");
	STORE(high, "movl %k2, (%1, %0)");
	STORE(low, "subq $0x12345678, %0; movl %k2, 0x12345678(%1, %0)");
	STORE(high, "movq %1, %%r12; movq %2, %%r15; movl %%r15d, 0x14(%%r12)");
	STORE(low, "movq %1, %%r13; movq %2, %%r8; movl %%r8d, 0x14(%%r13)");
	STORE(high, "movq %1, %%r13; movq %0, %%r12; movl %k2, (%%r13, %%r12)");
	STORE(low, "movl $0, 0x14(%1)");
	STORE(high, "movl $1, (%1, %0)");
	STORE(low, "movnti %k2, 0x14(%1)");
	STORE(high, "ds movl %k2, 0x14(%1)");
	/* Also after a flush, which must not make the registers writable. */
	vmi.mmu_flush_kernel_range(kernel_area, kernel_area + KERNEL_AREA_SIZE);
	STORE(low, "movl %k2, 0x14(%1)");
	vmi.mmu_flush_tlb(VMI_FLUSH_ALL);
	STORE(high, "movl %k2, 0x14(%1)");
	virtio_hide(&rng.device);
}

static void try_narrow(void *argument)
{
	(void)argument;
	/*
	 * Registers have four bytes. Other stores have no effect, and the next instruction follows.
	 */
	asm volatile("movb %%al, 0x14(%0); movw %%ax, 0x14(%0); movq %%rax, 0x14(%0)\n\t"
		     "movb $0, 0x14(%0); movw $0, 0x14(%0); movq $0, 0x14(%0); movb %%ah, 0x15(%0)"
		     : : "r"(rng.device.registers), "a"(0ul) : "memory");
}

static void try_add(void *argument)
{
	(void)argument;
	asm volatile("addl $1, 0x14(%0)" : : "r"(rng.device.registers) : "memory", "cc");
}

static void try_exchange(void *argument)
{
	(void)argument;
	asm volatile("xchgl %%eax, 0x14(%0)" : : "r"(rng.device.registers), "a"(0) : "memory");
}

static void try_string(void *argument)
{
	(void)argument;
	asm volatile("stosl" : : "D"(rng.device.registers + DEVICE_FEATURES_SEL),
		     "a"(0) : "memory");
}

static void try_run(void *argument)
{
	(void)argument;
	((void (*)(void))rng.device.registers)();
}

/* Another plain store has no effect or is refused; one that reads too may also work. */
TEST(line_odd_stores, "line.registers.odd_stores", 1, 0, LINE_ROUTE)
{
	static void (*const odd[])(void *) = { try_add, try_exchange, try_string };
	struct catch catch;
	u32 i;

	need_device();
	put(DEVICE_FEATURES_SEL, 1);
	high = get(DEVICE_FEATURES);
	catch_trap(&catch, try_narrow, NULL);
	CHECK(catch.vector == -1 || catch.vector == VECTOR_GP);
	CHECK_EQ(get(DEVICE_FEATURES), high);
	for (i = 0; i < ARRAY_SIZE(odd); i++) {
		catch_trap(&catch, odd[i], NULL);
		CHECK(catch.vector == -1 || catch.vector == VECTOR_GP);
		if (catch.vector == -1)
			put(DEVICE_FEATURES_SEL, 1);
		CHECK_EQ(get(DEVICE_FEATURES), high);
	}
	catch_trap(&catch, try_run, NULL);
	CHECK_EQ(catch.vector, VECTOR_PF);
	/* Registers of a device that does not exist. */
	virtio_hide(&rng.device);
}
