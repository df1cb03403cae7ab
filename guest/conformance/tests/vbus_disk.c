// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* A virtual-block: requests to a disk (docs/vbus.md). */
#include "test.h"
#include "vbus.h"

#define SECTOR		512u
/* Sectors of the data page. */
#define PAGE_SECTORS	8

static struct {
	struct bus bus;
	struct bus_link link;
	struct vbus_block_geometry geometry;
	u32 interface;
	struct vbus_block_request *header;	/* a page */
	u8 *data;				/* a page */
} disk;

static void open_disk(void)
{
	bus_open(&disk.bus, &disk.link, disk.interface);
	CHECK_EQ(bus_call(&disk.link, VBUS_BLOCK_GEOMETRY, 0), VBUS_DONE);
	CHECK_OP(disk.bus.command->length, >=, sizeof(disk.geometry));
	memcpy(&disk.geometry, disk.bus.data, sizeof(disk.geometry));
	CHECK_EQ(bus_share(&disk.link, BUS_TX, 0), VBUS_DONE);
}

static void start(void)
{
	disk.interface = bus_find(&disk.bus, "virtual-block");
	disk.header = to_linear(alloc_page());
	disk.data = to_linear(alloc_page());
	open_disk();
	CHECK_OP(disk.geometry.sectors, >=, 16);
	CHECK_OP(disk.geometry.block, >=, SECTOR);
	CHECK_OP(disk.geometry.block, <=, PAGE_SIZE);
	CHECK_OP(disk.geometry.segments, >=, 2);
}

static void stop(void)
{
	bus_close(&disk.link);
	free_page(to_gpa(disk.header));
	free_page(to_gpa(disk.data));
	bus_end(&disk.bus);
}

/* A request with `bytes` of data, in two buffers if more than a sector. Returns its status. */
static u32 ask(u32 operation, u64 sector, u32 sectors, u32 bytes)
{
	struct bus_queue *tx = &disk.link.tx;
	u32 first = bytes > SECTOR ? SECTOR : bytes;
	u32 status;

	*disk.header = (struct vbus_block_request){
		.operation = operation,
		.sector = sector,
		.sectors = sectors,
	};
	bus_post(tx, to_gpa(disk.header), sizeof(*disk.header), bytes ? VBUS_BLOCK_MORE : 0);
	if (bytes)
		bus_post(tx, to_gpa(disk.data), first, bytes > first ? VBUS_BLOCK_MORE : 0);
	if (bytes > first)
		bus_post(tx, to_gpa(disk.data) + first, bytes - first, 0);
	bus_kick(&disk.link, tx);
	WAIT_UNTIL((status = atomic_load(&disk.header->status)) != VBUS_BLOCK_PENDING);
	bus_drain(&disk.link);
	return status;
}

static u32 page(u32 operation, u64 sector)
{
	return ask(operation, sector, PAGE_SECTORS, PAGE_SIZE);
}

TEST(bus_disk, "bus.block.keeps", 1, 0, LINE_NOTIFY)
{
	u64 last;
	u32 round;

	start();
	last = disk.geometry.sectors - PAGE_SECTORS;
	for (round = 0; round < 4; round++) {
		bus_fill(disk.data, PAGE_SIZE, round);
		CHECK_EQ(page(VBUS_BLOCK_WRITE, 0), VBUS_BLOCK_DONE);
		bus_fill(disk.data, PAGE_SIZE, round + 100);
		CHECK_EQ(page(VBUS_BLOCK_WRITE, last), VBUS_BLOCK_DONE);
		CHECK_EQ(ask(VBUS_BLOCK_FLUSH, 0, 0, 0), VBUS_BLOCK_DONE);
		memset(disk.data, 0, PAGE_SIZE);
		CHECK_EQ(page(VBUS_BLOCK_READ, 0), VBUS_BLOCK_DONE);
		CHECK(bus_is_filled(disk.data, PAGE_SIZE, round));
		CHECK_EQ(page(VBUS_BLOCK_READ, last), VBUS_BLOCK_DONE);
		CHECK(bus_is_filled(disk.data, PAGE_SIZE, round + 100));
	}
	/* Another connection reads the data that was written. */
	bus_close(&disk.link);
	open_disk();
	memset(disk.data, 0, PAGE_SIZE);
	CHECK_EQ(page(VBUS_BLOCK_READ, 0), VBUS_BLOCK_DONE);
	CHECK(bus_is_filled(disk.data, PAGE_SIZE, 3));
	if (disk.geometry.flags & VBUS_BLOCK_HAS_ZERO) {
		CHECK_EQ(ask(VBUS_BLOCK_ZERO, 0, PAGE_SECTORS, 0), VBUS_BLOCK_DONE);
		CHECK_EQ(page(VBUS_BLOCK_READ, 0), VBUS_BLOCK_DONE);
		memset(disk.data + SECTOR, 0, SECTOR);
		CHECK(!disk.data[0] && !memcmp(disk.data, disk.data + SECTOR, SECTOR));
	}
	stop();
}

/* A request that makes no sense for this disk fails alone. */
TEST(bus_disk_refuses, "bus.block.refuses", 1, 0, LINE_NOTIFY)
{
	static const u64 far[] = { 1ull << 40, 1ull << 55, ~0ull };
	u64 end;
	u32 i;

	start();
	end = disk.geometry.sectors;
	bus_fill(disk.data, PAGE_SIZE, 7);
	CHECK_EQ(page(VBUS_BLOCK_WRITE, end - PAGE_SECTORS), VBUS_BLOCK_DONE);
	bus_fill(disk.data, PAGE_SIZE, 8);
	CHECK_EQ(page(VBUS_BLOCK_WRITE, end - 1), VBUS_BLOCK_FAILED);
	CHECK_EQ(page(VBUS_BLOCK_READ, end - 1), VBUS_BLOCK_FAILED);
	CHECK_EQ(page(VBUS_BLOCK_WRITE, end), VBUS_BLOCK_FAILED);
	for (i = 0; i < ARRAY_SIZE(far); i++) {
		CHECK_EQ(page(VBUS_BLOCK_WRITE, far[i]), VBUS_BLOCK_FAILED);
		CHECK_EQ(page(VBUS_BLOCK_READ, far[i]), VBUS_BLOCK_FAILED);
	}
	/* Another amount of data than announced. */
	CHECK_EQ(ask(VBUS_BLOCK_WRITE, 0, PAGE_SECTORS, SECTOR), VBUS_BLOCK_FAILED);
	CHECK_EQ(ask(VBUS_BLOCK_WRITE, 0, 1, PAGE_SIZE), VBUS_BLOCK_FAILED);
	CHECK_EQ(ask(VBUS_BLOCK_READ, 0, 0x800000, PAGE_SIZE), VBUS_BLOCK_FAILED);
	CHECK_EQ(ask(VBUS_BLOCK_FLUSH, 0, 1, 0), VBUS_BLOCK_FAILED);
	CHECK_EQ(page(77, 0), VBUS_BLOCK_UNSUPPORTED);
	/* None of it has changed the disk, which still works. */
	CHECK_EQ(page(VBUS_BLOCK_READ, end - PAGE_SECTORS), VBUS_BLOCK_DONE);
	CHECK(bus_is_filled(disk.data, PAGE_SIZE, 7));
	stop();
}

/* A header that is none breaks the connection, and the next one works. */
TEST(bus_disk_breach, "bus.block.breach", 1, 0, LINE_NOTIFY)
{
	struct bus_queue *tx = &disk.link.tx;

	start();
	bus_post(tx, to_gpa(disk.header), sizeof(*disk.header) - 1, 0);
	bus_kick(&disk.link, tx);
	CHECK_EQ(bus_event(&disk.bus), VBUS_EVENT_CLOSED);
	CHECK_EQ(disk.bus.command->connection, disk.link.connection);
	bus_close(&disk.link);
	open_disk();
	/* Data outside of memory. */
	*disk.header = (struct vbus_block_request){ .operation = VBUS_BLOCK_READ, .sectors = 8 };
	bus_post(tx, to_gpa(disk.header), sizeof(*disk.header), VBUS_BLOCK_MORE);
	bus_post(tx, ~0ull << 20, PAGE_SIZE, 0);
	bus_kick(&disk.link, tx);
	CHECK_EQ(bus_event(&disk.bus), VBUS_EVENT_CLOSED);
	bus_close(&disk.link);
	open_disk();
	CHECK_EQ(page(VBUS_BLOCK_READ, 0), VBUS_BLOCK_DONE);
	stop();
}
