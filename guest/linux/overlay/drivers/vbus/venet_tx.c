// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frames to the device. A frame takes a descriptor for each of its parts. The device is notified
 * only if it sleeps, and does not notify for what it has sent until much waits: what is received,
 * what is sent next and a timer free what it has done.
 */
#include <linux/if_vlan.h>
#include <net/sock.h>
#include "venet.h"

/* With this number of bytes or descriptors, the device notifies: a program may wait for them. */
#define MUCH_BYTES (128 << 10)
#define MUCH (VENET_COUNT / 2)
/* Descriptors of the largest frame. */
#define LARGEST (MAX_SKB_FRAGS + 1)

static u32 flags_of(struct sk_buff *skb)
{
	u32 flags = 0, start, offset;

	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		start = skb_checksum_start_offset(skb);
		offset = skb->csum_offset;
		flags = VBUS_ETHERNET_CSUM | offset / 2 << VBUS_ETHERNET_OFFSET_SHIFT |
			start << VBUS_ETHERNET_START_SHIFT;
	}
	if (skb_is_gso(skb))
		flags |= (skb_shinfo(skb)->gso_type & SKB_GSO_TCPV6 ? VBUS_ETHERNET_TSO6 :
			  VBUS_ETHERNET_TSO4) |
			 skb_shinfo(skb)->gso_size << VBUS_ETHERNET_SIZE_SHIFT;
	return flags;
}

/* A checksum whose place the flags cannot name is made here. */
static bool finish(struct sk_buff *skb)
{
	if (skb->ip_summed != CHECKSUM_PARTIAL ||
	    (skb_checksum_start_offset(skb) < 256 && skb->csum_offset < 32 &&
	     !(skb->csum_offset & 1)))
		return true;
	return !skb_checksum_help(skb);
}

static int post(struct venet_pair *pair, struct sk_buff *skb, u64 ptr, u32 len, u32 flags,
		bool last)
{
	struct vbus_buffer buffer = {
		.cookie	= last ? (unsigned long)skb : 0,
		.ptr	= ptr,
		.len	= len,
		.flags	= flags | (last ? 0 : VBUS_ETHERNET_MORE),
	};

	return vbus_north_post(&pair->tx->north, &buffer);
}

/* Posts all parts; there is room for them. */
static int post_all(struct venet_pair *pair, struct sk_buff *skb)
{
	int frags = skb_shinfo(skb)->nr_frags, error, i;

	error = post(pair, skb, virt_to_phys(skb->data), skb_headlen(skb), flags_of(skb), !frags);
	for (i = 0; i < frags && !error; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		error = post(pair, skb, page_to_phys(skb_frag_page(frag)) + skb_frag_off(frag),
			     skb_frag_size(frag), 0, i == frags - 1);
	}
	return error;
}

/* Frees what the device has sent. With a budget of 0 not from NAPI. */
void venet_reclaim(struct venet_pair *pair, int budget)
{
	struct netdev_queue *queue = netdev_get_tx_queue(pair->venet->dev, pair->number);
	unsigned int room;
	struct vbus_returned returned;
	struct sk_buff *skb;
	int taken;

	while ((taken = vbus_north_take(&pair->tx->north, &returned)) > 0) {
		pair->bytes -= returned.len;
		skb = (struct sk_buff *)(unsigned long)returned.cookie;
		if (skb)
			napi_consume_skb(skb, budget);
	}
	if (taken < 0)
		venet_break(pair->venet, taken);
	room = venet_room(pair->tx);
	if (netif_tx_queue_stopped(queue) && !pair->venet->broken && room >= 2 * LARGEST)
		netif_tx_wake_queue(queue);
	if (pair->awaited && room > VENET_COUNT - MUCH && pair->bytes < MUCH_BYTES &&
	    (s32)(pair->tx->north.head - pair->until) >= 0) {
		vbus_side_disable(pair->tx->here);
		pair->awaited = false;
	}
}

/*
 * Asks the device to notify. The device may have given back all its frames just before. Then it
 * sends no notification, so the queue is examined after the request.
 */
static void await(struct venet_pair *pair)
{
	if (pair->awaited)
		return;
	pair->awaited = true;
	pair->until = pair->tx->north.head;
	vbus_side_look(pair->tx->here);
	if (vbus_side_rest(pair->tx->here) || vbus_north_returned(&pair->tx->north))
		napi_schedule(&pair->napi);
}

/*
 * A program sleeps when its frames fill its socket's buffer, and wakes up when half of the buffer
 * is free. An acknowledgement of the other side makes NAPI free the frames of TCP.
 */
static bool fills(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	return sk && sk_fullsock(sk) && !sk_is_tcp(sk) && !sock_writeable(sk);
}

netdev_tx_t venet_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct venet *venet = netdev_priv(dev);
	struct venet_pair *pair = &venet->pairs[skb_get_queue_mapping(skb)];
	struct netdev_queue *queue = netdev_get_tx_queue(dev, pair->number);
	bool more = netdev_xmit_more();
	unsigned int len;
	int error;

	venet_reclaim(pair, 0);
	if (unlikely(venet_room(pair->tx) < LARGEST)) {
		netif_tx_stop_queue(queue);
		await(pair);
		return NETDEV_TX_BUSY;
	}
	if (unlikely(venet->broken || !finish(skb)))
		goto drop;
	len = skb->len;
	skb_tx_timestamp(skb);
	error = post_all(pair, skb);
	if (unlikely(error)) {
		/* Parts of it may be posted, so it is freed with the rest. */
		venet_break(venet, error);
		return NETDEV_TX_OK;
	}
	pair->bytes += len;
	pair->sent++;
	dev_sw_netstats_tx_add(dev, 1, len);
	if (venet_room(pair->tx) < LARGEST)
		netif_tx_stop_queue(queue);
	if (fills(skb)) {
		await(pair);
		pair->until = pair->tx->north.tail;
	}
	/* A stopped queue must see what came back since. */
	if (venet_room(pair->tx) < MUCH || pair->bytes >= MUCH_BYTES)
		await(pair);
	else if (!pair->awaited && !timer_pending(&pair->timer))
		mod_timer(&pair->timer, jiffies + 1);
	if (!more || netif_tx_queue_stopped(queue))
		venet_kick(pair, pair->tx);
	return NETDEV_TX_OK;
drop:
	DEV_STATS_INC(dev, tx_dropped);
	dev_kfree_skb_any(skb);
	if (!more)
		venet_kick(pair, pair->tx);
	return NETDEV_TX_OK;
}

/* After the connection was closed. */
void venet_free_sent(struct venet_pair *pair)
{
	struct vbus_north *north = &pair->tx->north;

	for (; north->head != north->tail; north->head++) {
		struct vbus_posted *posted = &north->posted[north->head & (north->count - 1)];
		struct sk_buff *skb = (struct sk_buff *)(unsigned long)posted->cookie;

		if (skb)
			dev_kfree_skb_any(skb);
	}
	pair->bytes = 0;
	pair->awaited = false;
}
