/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The real-time clock of the PC, in UTC. */
#include "io.h"
#include "native.h"

#define CMOS_INDEX 0x70
#define CMOS_DATA 0x71
#define CMOS_SECONDS 0x00
#define CMOS_MINUTES 0x02
#define CMOS_HOURS 0x04
#define CMOS_DAY 0x07
#define CMOS_MONTH 0x08
#define CMOS_YEAR 0x09
#define CMOS_STATUS_A 0x0a
#define CMOS_STATUS_B 0x0b
#define CMOS_CENTURY 0x32
#define STATUS_A_UPDATING 0x80
#define STATUS_B_24_HOURS 0x02
#define STATUS_B_BINARY 0x04
#define HOURS_PM 0x80

/*
 * An update takes at most 2 ms and a port access about 1 us. If it takes longer there is no clock.
 */
#define UPDATE_PATIENCE 100000
#define READ_TRIES 10

struct rtc {
	u8 second, minute, hour, day, month, year, century;
};

static u8 cmos(u8 reg)
{
	outb(CMOS_INDEX, reg); /* bit 7 clear: NMIs stay on */
	return inb(CMOS_DATA);
}

static bool rtc_sample(struct rtc *rtc)
{
	int patience = UPDATE_PATIENCE;

	while (cmos(CMOS_STATUS_A) & STATUS_A_UPDATING)
		if (!patience--)
			return false;
	rtc->second = cmos(CMOS_SECONDS);
	rtc->minute = cmos(CMOS_MINUTES);
	rtc->hour = cmos(CMOS_HOURS);
	rtc->day = cmos(CMOS_DAY);
	rtc->month = cmos(CMOS_MONTH);
	rtc->year = cmos(CMOS_YEAR);
	rtc->century = cmos(CMOS_CENTURY);
	return true;
}

static bool same(const struct rtc *a, const struct rtc *b)
{
	return a->second == b->second && a->minute == b->minute && a->hour == b->hour &&
	       a->day == b->day && a->month == b->month && a->year == b->year &&
	       a->century == b->century;
}

/* Two equal samples, since an update may begin between two registers of one sample. */
static bool rtc_read(struct rtc *rtc)
{
	struct rtc again;

	for (int i = 0; i < READ_TRIES; i++) {
		if (!rtc_sample(rtc) || !rtc_sample(&again))
			return false;
		if (same(rtc, &again))
			return true;
	}
	return false;
}

static u32 number(u8 value, bool binary)
{
	return binary ? value : (value >> 4) * 10u + (value & 0xf);
}

/* Days from 1970-01-01. Years count from March, so that a leap day is the last day of one. */
static u64 days(u32 year, u32 month, u32 day)
{
	u32 since_march = (month + 9) % 12;

	if (month <= 2)
		year--;
	return 365ULL * year + year / 4 - year / 100 + year / 400 +
	       (since_march * 306 + 5) / 10 + day - 1 - 719468;
}

/* Seconds since 1970-01-01T00:00:00Z; 0 if there is no such clock. */
u64 native_rtc_seconds(void)
{
	struct rtc rtc;
	u32 hour, year, month, day;
	u8 status;
	bool binary;

	if (!rtc_read(&rtc))
		return 0;
	status = cmos(CMOS_STATUS_B);
	binary = status & STATUS_B_BINARY;
	hour = number(rtc.hour & ~HOURS_PM, binary);
	if (!(status & STATUS_B_24_HOURS))
		hour = hour % 12 + (rtc.hour & HOURS_PM ? 12 : 0);
	day = number(rtc.day, binary);
	month = number(rtc.month, binary);
	year = number(rtc.year, binary);
	/* Not every PC stores the century there. */
	if (number(rtc.century, binary) >= 19 && number(rtc.century, binary) <= 21)
		year += 100 * number(rtc.century, binary);
	else
		year += year < 70 ? 2000 : 1900;
	if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31)
		return 0;
	return ((days(year, month, day) * 24 + hour) * 60 + number(rtc.minute, binary)) * 60 +
	       number(rtc.second, binary);
}
