// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frames from the device. Each buffer is a page, or several if the device puts a frame into one
 * buffer only. A short frame is copied and its buffer posted again; otherwise the page goes up.
 */
#include <linux/etherdevice.h>
#include <linux/mm.h>
#include "venet.h"

/* Frames of up to this number of bytes are copied. */
#define COPY 256
/* Bytes of a longer frame that are copied: its headers. */
#define HEAD 128

static unsigned int buffer_size(const struct venet *venet)
{
	return PAGE_SIZE << venet->order;
}

static int post(struct venet_pair *pair, struct page *page)
{
	struct vbus_buffer buffer = {
		.cookie	= (unsigned long)page,
		.ptr	= page_to_phys(page),
		.len	= buffer_size(pair->venet),
	};

	return vbus_north_post(&pair->rx->north, &buffer);
}

static struct page *new_page(struct venet *venet, gfp_t flags)
{
	return alloc_pages(flags | __GFP_NOWARN | (venet->order ? __GFP_COMP : 0), venet->order);
}

/* Posts buffers until the queue is full. Returns 0 or -ENOMEM. */
int venet_fill(struct venet_pair *pair)
{
	struct venet *venet = pair->venet;
	struct page *page;

	while (venet_room(pair->rx)) {
		page = new_page(venet, GFP_KERNEL);
		if (!page)
			return -ENOMEM;
		if (post(pair, page)) {
			__free_pages(page, venet->order);
			return -EPROTO;
		}
	}
	return 0;
}

/* A frame of one buffer that is short. */
static struct sk_buff *copied(struct venet_pair *pair, struct page *page, u32 used)
{
	struct sk_buff *skb = napi_alloc_skb(&pair->napi, used);

	if (skb)
		skb_put_data(skb, page_address(page), used);
	return skb;
}

/* The beginning of a frame, which takes the page. */
static struct sk_buff *begun(struct venet_pair *pair, struct page *page, u32 used)
{
	struct sk_buff *skb = napi_alloc_skb(&pair->napi, HEAD);
	u32 head = min_t(u32, used, HEAD);

	if (!skb)
		return NULL;
	skb_put_data(skb, page_address(page), head);
	if (used > head)
		skb_add_rx_frag(skb, 0, page, head, used - head, buffer_size(pair->venet));
	else
		__free_pages(page, pair->venet->order);
	return skb;
}

/*
 * A frame that may be as long as several segments: what is sent on must be cut again. Returns false
 * if the flags make no sense.
 */
static bool segments(struct sk_buff *skb, u32 flags, u32 caps)
{
	u16 size = flags >> VBUS_ETHERNET_SIZE_SHIFT;
	int type;

	switch (flags & VBUS_ETHERNET_TSO6) {
	case VBUS_ETHERNET_TSO4:
		type = caps & VBUS_ETHERNET_CAP_RX_TSO4 ? SKB_GSO_TCPV4 : 0;
		break;
	case VBUS_ETHERNET_TSO6:
		type = caps & VBUS_ETHERNET_CAP_RX_TSO6 ? SKB_GSO_TCPV6 : 0;
		break;
	default:
		type = 0;
	}
	if (!type)
		return true;
	if (!size || skb->ip_summed != CHECKSUM_PARTIAL)
		return false;
	skb_shinfo(skb)->gso_size = size;
	/* The stack looks at the headers, and counts the segments. */
	skb_shinfo(skb)->gso_type = type | SKB_GSO_DODGY;
	skb_shinfo(skb)->gso_segs = 0;
	return true;
}

static void deliver(struct venet_pair *pair, struct sk_buff *skb, u32 flags)
{
	struct venet *venet = pair->venet;
	u16 start = flags >> VBUS_ETHERNET_START_SHIFT & 0xff;
	u16 offset = (flags >> VBUS_ETHERNET_OFFSET_SHIFT & 0xf) * 2;

	if (unlikely(skb->len < ETH_HLEN))
		goto drop;
	if (flags & VBUS_ETHERNET_CSUM && venet->caps & VBUS_ETHERNET_CAP_CSUM) {
		if (!skb_partial_csum_set(skb, start, offset))
			goto drop;
	} else if (flags & VBUS_ETHERNET_VALID && venet->caps & VBUS_ETHERNET_CAP_CSUM) {
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	}
	if (!segments(skb, flags, venet->caps))
		goto drop;
	dev_sw_netstats_rx_add(venet->dev, skb->len);
	skb->protocol = eth_type_trans(skb, venet->dev);
	skb_record_rx_queue(skb, pair->number);
	pair->received++;
	napi_gro_receive(&pair->napi, skb);
	return;
drop:
	DEV_STATS_INC(venet->dev, rx_errors);
	dev_kfree_skb_any(skb);
}

/* Adds a buffer to the frame of which parts are missing. Returns whether it took the page. */
static bool append(struct venet_pair *pair, struct page *page, u32 used)
{
	struct sk_buff *skb = pair->partial;
	int frags = skb_shinfo(skb)->nr_frags;

	/* Too many parts, or an end without bytes. */
	if (frags == MAX_SKB_FRAGS || !used)
		return false;
	skb_add_rx_frag(skb, frags, page, 0, used, buffer_size(pair->venet));
	return true;
}

/*
 * Handles a buffer that came back. Returns the page to post: the same one, or another where it
 * went up. Without memory for another the frame is lost.
 */
static struct page *handle(struct venet_pair *pair, struct page *page, u32 used, u32 flags)
{
	struct venet *venet = pair->venet;
	bool more = flags & VBUS_ETHERNET_MORE && venet->caps & VBUS_ETHERNET_CAP_CHAIN;
	struct page *next;

	if (unlikely(pair->skips)) {
		pair->skips = more;
		return page;
	}
	if (!pair->partial && !more && used <= COPY) {
		struct sk_buff *skb = copied(pair, page, used);

		if (skb)
			deliver(pair, skb, flags);
		else
			DEV_STATS_INC(venet->dev, rx_dropped);
		return page;
	}
	next = new_page(venet, GFP_ATOMIC);
	if (!next)
		goto drop;
	if (!pair->partial) {
		pair->partial = begun(pair, page, used);
		pair->partial_flags = flags;
		if (!pair->partial) {
			__free_pages(next, venet->order);
			goto drop;
		}
	} else if (!append(pair, page, used)) {
		__free_pages(next, venet->order);
		goto drop;
	}
	if (!more) {
		struct sk_buff *skb = pair->partial;

		pair->partial = NULL;
		deliver(pair, skb, pair->partial_flags);
	}
	return next;
drop:
	/* What follows of this frame is its sender's data, and no frame. */
	pair->skips = more;
	DEV_STATS_INC(venet->dev, rx_dropped);
	dev_kfree_skb_any(pair->partial);
	pair->partial = NULL;
	return page;
}

/* Takes at most `budget` buffers. Returns how many there were. */
int venet_receive(struct venet_pair *pair, int budget)
{
	struct vbus_queue *queue = pair->rx;
	struct vbus_returned returned;
	int done = 0, taken = 0;
	struct page *page;

	while (done < budget && (taken = vbus_north_take(&queue->north, &returned)) > 0) {
		page = (struct page *)(unsigned long)returned.cookie;
		page = handle(pair, page, returned.used, returned.flags);
		if (post(pair, page))
			__free_pages(page, pair->venet->order);
		done++;
	}
	if (taken < 0)
		venet_break(pair->venet, taken);
	if (done)
		venet_kick(pair, queue);
	return done;
}

/* After the connection was closed. */
void venet_free_buffers(struct venet_pair *pair)
{
	struct vbus_north *north = &pair->rx->north;

	for (; north->head != north->tail; north->head++) {
		struct vbus_posted *posted = &north->posted[north->head & (north->count - 1)];

		__free_pages((struct page *)(unsigned long)posted->cookie, pair->venet->order);
	}
	dev_kfree_skb_any(pair->partial);
	pair->partial = NULL;
	pair->skips = false;
}
