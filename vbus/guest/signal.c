// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* shm-signal. The order of the accesses is that of vbus/shm/src/signal.rs. */
#include <paravane/vbus_shm.h>

static int left(struct vbus_side *side)
{
	__u32 work = __atomic_load_n(&side->dirty, __ATOMIC_ACQUIRE) |
		     __atomic_load_n(&side->pending, __ATOMIC_RELAXED);

	return work && __atomic_load_n(&side->enabled, __ATOMIC_RELAXED);
}

int vbus_side_inject(struct vbus_side *side)
{
	__atomic_exchange_n(&side->dirty, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&side->enabled, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&side->pending, __ATOMIC_RELAXED) &&
	       !__atomic_exchange_n(&side->pending, 1, __ATOMIC_SEQ_CST);
}

int vbus_side_enable(struct vbus_side *side)
{
	__atomic_store_n(&side->enabled, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return left(side);
}

void vbus_side_disable(struct vbus_side *side)
{
	__atomic_store_n(&side->enabled, 0, __ATOMIC_RELAXED);
}

void vbus_side_look(struct vbus_side *side)
{
	__atomic_exchange_n(&side->dirty, 0, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

int vbus_side_wake_up(struct vbus_side *side, __u32 rounds, void (*work)(void *), void *data)
{
	for (; rounds; rounds--) {
		if (!left(side))
			return 0;
		/* Also when no notification led here: one would be superfluous. */
		__atomic_exchange_n(&side->pending, 1, __ATOMIC_SEQ_CST);
		vbus_side_look(side);
		work(data);
		/* Pending stays set while more work comes. */
		if (!__atomic_load_n(&side->enabled, __ATOMIC_RELAXED) ||
		    !__atomic_load_n(&side->dirty, __ATOMIC_ACQUIRE)) {
			__atomic_exchange_n(&side->pending, 0, __ATOMIC_SEQ_CST);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
		}
	}
	return left(side);
}

int vbus_side_rest(struct vbus_side *side)
{
	__atomic_exchange_n(&side->pending, 0, __ATOMIC_SEQ_CST);
	return vbus_side_enable(side);
}
