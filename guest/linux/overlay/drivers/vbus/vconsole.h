/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the console driver share. */
#ifndef DRIVERS_VCONSOLE_H
#define DRIVERS_VCONSOLE_H

#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/tty.h>
#include <linux/workqueue.h>
#include "vbus.h"

#define VCONSOLE_RX 0
#define VCONSOLE_TX 1
#define VCONSOLE_QUEUES 2
/* Descriptors of a queue, and bytes of the buffer of each. */
#define VCONSOLE_COUNT 32
#define VCONSOLE_SIZE 1024

struct vconsole {
	struct vbus_connection connection;
	struct tty_port port;
	int index;
	/* A buffer for each descriptor. */
	char *buffers[VCONSOLE_QUEUES];

	spinlock_t lock;
	/* Bytes that the device has not taken over. */
	unsigned int queued;
	/* A program has opened it; and does not read now. */
	bool active, throttled;
	/* The connection ended, or the device broke the protocol: it must be connected again. */
	bool broken;
	/* There is no device any more. */
	bool dead;
	/* The terminal was shown. */
	bool shown;
	struct work_struct restart;
	/* Looks again for room in the terminal. */
	struct timer_list retry;
};

static inline struct vbus_queue *vconsole_queue(struct vconsole *console, int number)
{
	return &console->connection.queues[number];
}

static inline bool vconsole_works(const struct vconsole *console)
{
	return !console->broken && !console->dead;
}

/* vconsole.c. Under the lock, but for the last. */
/* Posts the next buffer of a queue, of `len` bytes. Returns false if the connection has ended. */
bool vconsole_post(struct vconsole *console, int number, u32 len);
/* Tells the device of what was posted. */
void vconsole_tell(struct vconsole *console, int number);
/* Gives the terminal what came, as long as it takes it. */
void vconsole_receive(struct vconsole *console);
/* Takes back what the device has taken over. */
void vconsole_reclaim(struct vconsole *console);
/* Frees a console whose device and terminal have gone. */
void vconsole_free(struct vconsole *console);

/* vconsole_tty.c */
int vconsole_tty_init(void);
/* Gives a console an index and a terminal that cannot be opened yet. Frees nothing on failure. */
int vconsole_tty_make(struct vconsole *console);
/* The terminal can be opened. */
int vconsole_tty_show(struct vconsole *console);
/* It cannot be opened any more. Programs that have it open get an end. */
void vconsole_tty_end(struct vconsole *console);

#endif
