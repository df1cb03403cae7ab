// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network cards of the virtual bus. The connection to the device lives from ndo_open to ndo_stop.
 * All work is NAPI's: the device notifies when it has frames, and not while NAPI looks by itself.
 */
#include <linux/err.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ipv6.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include "venet.h"

/* Several pairs are for guests in which several flows keep several CPUs busy: only on request. */
static unsigned int pairs = 1;
module_param(pairs, uint, 0444);
MODULE_PARM_DESC(pairs, "pairs of queues of a card at first; 0: one for each CPU");

unsigned int venet_interrupts = 1;
module_param_named(interrupts, venet_interrupts, uint, 0644);
MODULE_PARM_DESC(interrupts, "interrupts of pairs' own: 0: never; 1: of several pairs; 2: always");

#define MINE (VBUS_ETHERNET_CAP_CHAIN | VBUS_ETHERNET_CAP_CSUM | VBUS_ETHERNET_CAP_TSO4 | \
	      VBUS_ETHERNET_CAP_RX_TSO4 | VBUS_ETHERNET_CAP_TSO6 | VBUS_ETHERNET_CAP_RX_TSO6)

/* The pause after an attempt to connect again that failed: it doubles up to 26 s. */
#define AGAIN_MS 100
#define AGAIN_DOUBLES 8U

/* The device is not used again until it is connected again. */
void venet_break(struct venet *venet, int error)
{
	if (venet->broken)
		return;
	venet->broken = true;
	netdev_err(venet->dev, "the device broke the protocol: %d\n", error);
	mod_delayed_work(system_wq, &venet->restart, 0);
}

/*
 * Frees what the device has sent. Returns whether to poll again: if a sender has the lock and
 * awaits the notification that led here, it may have looked before the device gave back its
 * buffers, and no other notification comes.
 */
static bool poll_sent(struct venet_pair *pair, struct netdev_queue *queue, int budget)
{
	bool again;

	if (venet_room(pair->tx) == VENET_COUNT)
		return false;
	if (!__netif_tx_trylock(queue)) {
		/* The sender may have seen the timer pending that has led here. */
		mod_timer(&pair->timer, jiffies + 1);
		return READ_ONCE(pair->awaited);
	}
	vbus_side_look(pair->tx->here);
	venet_reclaim(pair, budget);
	/* Someone may wait for the rest, and perhaps nothing else comes. */
	if (!pair->awaited && !pair->venet->broken && venet_room(pair->tx) < VENET_COUNT &&
	    !timer_pending(&pair->timer)) {
		pair->awaited = true;
		pair->until = pair->tx->north.tail;
	}
	again = pair->awaited && vbus_side_rest(pair->tx->here);
	__netif_tx_unlock(queue);
	return again;
}

static int poll(struct napi_struct *napi, int budget)
{
	struct venet_pair *pair = container_of(napi, struct venet_pair, napi);
	struct netdev_queue *queue = netdev_get_tx_queue(pair->venet->dev, pair->number);
	int done;

	vbus_side_look(pair->rx->here);
	done = venet_receive(pair, budget);
	if (poll_sent(pair, queue, budget))
		done = budget;
	if (done < budget && napi_complete_done(napi, done)) {
		if (unlikely(vbus_side_rest(pair->rx->here)) && napi_schedule_prep(napi)) {
			vbus_side_disable(pair->rx->here);
			__napi_schedule(napi);
		}
	}
	return done;
}

static void expired(struct timer_list *timer)
{
	struct venet_pair *pair = from_timer(pair, timer, timer);

	if (venet_room(pair->tx) < VENET_COUNT)
		napi_schedule(&pair->napi);
}

/* Returns the bits of a group that both sides have. */
static u32 agree(struct venet *venet, u32 group, u32 mine)
{
	__le32 caps[2] = { cpu_to_le32(group), cpu_to_le32(mine) };
	int length = vbus_call(&venet->connection, VBUS_ETHERNET_NEGCAP, caps, sizeof(caps),
			       sizeof(caps));

	return length == sizeof(caps) ? le32_to_cpu(caps[1]) & mine : 0;
}

/* Opens the connection and agrees on capabilities. */
static int connect(struct venet *venet)
{
	__le32 pairs = cpu_to_le32(venet->wanted);
	int length, error;

	error = vbus_open(&venet->connection);
	if (error)
		return error;
	venet->caps = agree(venet, 0, MINE);
	venet->event_caps = agree(venet, VBUS_ETHERNET_GROUP_EVENTS, VBUS_ETHERNET_EVENT_LINK);
	length = vbus_call(&venet->connection, VBUS_ETHERNET_PAIRS, &pairs, sizeof(pairs),
			   sizeof(pairs));
	venet->count = 1;
	/* A card that does not know the call has one pair. */
	if (length == sizeof(pairs))
		venet->count = clamp(le32_to_cpu(pairs), 1, venet->wanted);
	return 0;
}

/* Shares the queues of a pair. */
static int share(struct venet_pair *pair)
{
	struct vbus_connection *connection = &pair->venet->connection;
	unsigned int first = pair->number ? 2 * pair->number + 1 : 0;
	int error;

	pair->rx = &connection->queues[first];
	pair->tx = &connection->queues[first + 1];
	error = vbus_share(connection, first, VBUS_ROLE_RECEIVE, VENET_COUNT);
	if (error)
		return error;
	error = venet_fill(pair);
	if (error)
		return error;
	return vbus_share(connection, first + 1, VBUS_ROLE_TRANSMIT, VENET_COUNT);
}

static void stop_pairs(struct venet *venet)
{
	int i;

	for (i = 0; i < venet->count; i++) {
		napi_disable(&venet->pairs[i].napi);
		timer_delete_sync(&venet->pairs[i].timer);
	}
}

/* Shares the queues and begins to work. */
static int start(struct venet *venet)
{
	struct vbus_connection *connection = &venet->connection;
	unsigned int size = venet->dev->mtu + VLAN_ETH_HLEN;
	int error, i;

	venet->broken = false;
	venet->order = venet->caps & VBUS_ETHERNET_CAP_CHAIN ? 0 : get_order(size);
	for (i = 0; i < venet->count; i++) {
		error = share(&venet->pairs[i]);
		if (error)
			return error;
	}
	if (venet->event_caps) {
		error = venet_share_events(venet);
		if (error)
			return error;
	}
	venet_place(venet);
	venet_request_interrupts(venet);
	for (i = 0; i < venet->count; i++)
		napi_enable(&venet->pairs[i].napi);
	smp_store_release(&venet->running, true);
	for (i = 0; i < venet->count; i++) {
		if (vbus_side_rest(venet->pairs[i].rx->here))
			napi_schedule(&venet->pairs[i].napi);
	}
	/* Before the device tells how the link is. */
	netif_carrier_on(venet->dev);
	error = vbus_call(connection, VBUS_ETHERNET_LINKUP, NULL, 0, 0);
	if (error < 0) {
		WRITE_ONCE(venet->running, false);
		stop_pairs(venet);
		return error;
	}
	/* Frames may wait that came while there was no connection. */
	netif_tx_wake_all_queues(venet->dev);
	return 0;
}

/* Ends the connection and frees what the device had. */
static void end(struct venet *venet)
{
	int i;

	WRITE_ONCE(venet->running, false);
	venet_free_interrupts(venet);
	vbus_close(&venet->connection);
	for (i = 0; i < VBUS_ETHERNET_PAIRS_MAX; i++) {
		struct venet_pair *pair = &venet->pairs[i];

		if (pair->tx && pair->tx->posted)
			venet_free_sent(pair);
		if (pair->rx && pair->rx->posted)
			venet_free_buffers(pair);
		pair->rx = NULL;
		pair->tx = NULL;
	}
	vbus_free_queues(&venet->connection);
}

static int venet_open(struct net_device *dev)
{
	struct venet *venet = netdev_priv(dev);
	int error;

	/* A close from here on is that of the new connection. */
	WRITE_ONCE(venet->closed, false);
	error = connect(venet);
	if (error)
		return error;
	netdev_update_features(dev);
	error = netif_set_real_num_queues(dev, venet->count, venet->count);
	if (!error)
		error = start(venet);
	if (error)
		end(venet);
	else
		venet->failures = 0;
	return error;
}

static int venet_stop(struct net_device *dev)
{
	struct venet *venet = netdev_priv(dev);

	/* After an attempt to connect again that failed, there is nothing. */
	if (!venet->connection.open)
		return 0;
	netif_tx_disable(dev);
	vbus_call(&venet->connection, VBUS_ETHERNET_LINKDOWN, NULL, 0, 0);
	/* No interrupt lets a pair work from here on. */
	WRITE_ONCE(venet->running, false);
	stop_pairs(venet);
	end(venet);
	return 0;
}

/* Tries to connect until it succeeds. Under the lock of network devices. */
static int reconnect(struct venet *venet)
{
	unsigned int pause;
	int error;

	venet_stop(venet->dev);
	error = venet_open(venet->dev);
	if (!error)
		return 0;
	netif_carrier_off(venet->dev);
	pause = AGAIN_MS << min(venet->failures++, AGAIN_DOUBLES);
	if (is_power_of_2(venet->failures))
		netdev_err(venet->dev, "cannot connect again: %d; next attempt in %u ms\n", error,
			   pause);
	mod_delayed_work(system_wq, &venet->restart, msecs_to_jiffies(pause));
	return error;
}

/* The connection was closed, the device broke the protocol, or an attempt has failed. */
static void restart(struct work_struct *work)
{
	struct venet *venet = container_of(work, struct venet, restart.work);

	rtnl_lock();
	/* The user may have made a new connection meanwhile, which is left alone. */
	if (netif_running(venet->dev) &&
	    (!venet->connection.open || venet->broken || READ_ONCE(venet->closed)))
		reconnect(venet);
	rtnl_unlock();
}

static netdev_features_t venet_fix_features(struct net_device *dev, netdev_features_t features)
{
	struct venet *venet = netdev_priv(dev);

	if (!(venet->caps & VBUS_ETHERNET_CAP_CHAIN))
		features &= ~NETIF_F_SG;
	if (!(venet->caps & VBUS_ETHERNET_CAP_CSUM))
		features &= ~NETIF_F_HW_CSUM;
	if (!(venet->caps & VBUS_ETHERNET_CAP_TSO4))
		features &= ~NETIF_F_TSO;
	if (!(venet->caps & VBUS_ETHERNET_CAP_TSO6))
		features &= ~NETIF_F_TSO6;
	return features;
}

/* Devices cut segments over IPv6 that have no headers between those of IPv6 and TCP. */
static netdev_features_t venet_features_check(struct sk_buff *skb, struct net_device *dev,
					      netdev_features_t features)
{
	if (skb_is_gso(skb) && skb_shinfo(skb)->gso_type & SKB_GSO_TCPV6 &&
	    ipv6_hdr(skb)->nexthdr != IPPROTO_TCP)
		features &= ~NETIF_F_GSO_MASK;
	return vlan_features_check(skb, features);
}

int venet_again(struct venet *venet)
{
	if (!netif_running(venet->dev))
		return 0;
	if (venet->connection.open)
		return reconnect(venet);
	/* The next attempt uses what has changed. */
	mod_delayed_work(system_wq, &venet->restart, 0);
	return 0;
}

static int venet_change_mtu(struct net_device *dev, int mtu)
{
	/* The size of buffers may depend on it. */
	WRITE_ONCE(dev->mtu, mtu);
	return venet_again(netdev_priv(dev));
}

static const struct net_device_ops venet_ops = {
	.ndo_open		= venet_open,
	.ndo_stop		= venet_stop,
	.ndo_start_xmit		= venet_xmit,
	.ndo_validate_addr	= eth_validate_addr,
	.ndo_fix_features	= venet_fix_features,
	.ndo_features_check	= venet_features_check,
	.ndo_change_mtu		= venet_change_mtu,
};

/* Asks for the address and the MTU, and for capabilities. */
static int ask(struct venet *venet)
{
	struct net_device *dev = venet->dev;
	u8 address[ETH_ALEN];
	__le16 mtu[2];
	int length;

	length = vbus_call(&venet->connection, VBUS_ETHERNET_MACQUERY, address, 0, ETH_ALEN);
	if (length != ETH_ALEN || !is_valid_ether_addr(address))
		return -EPROTO;
	eth_hw_addr_set(dev, address);
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_DATA_LEN;
	length = vbus_call(&venet->connection, VBUS_ETHERNET_MTUQUERY, mtu, 0, sizeof(mtu));
	if (length == sizeof(mtu)) {
		dev->max_mtu = max_t(u32, le16_to_cpu(mtu[1]), ETH_MIN_MTU);
		dev->mtu = clamp_t(u32, le16_to_cpu(mtu[0]), ETH_MIN_MTU, dev->max_mtu);
	}
	return 0;
}

static int venet_probe(struct vbus_device *device)
{
	struct net_device *dev = alloc_etherdev_mq(sizeof(struct venet), VBUS_ETHERNET_PAIRS_MAX);
	struct venet *venet;
	int error, i;

	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, &device->dev);
	venet = netdev_priv(dev);
	venet->dev = dev;
	venet->connection.device = device;
	venet->connection.signal = venet_signal;
	INIT_DELAYED_WORK(&venet->restart, restart);
	INIT_WORK(&venet->event, venet_take_events);
	venet->wanted = clamp(pairs ?: num_online_cpus(), 1, VBUS_ETHERNET_PAIRS_MAX);
	for (i = 0; i < VBUS_ETHERNET_PAIRS_MAX; i++) {
		struct venet_pair *pair = &venet->pairs[i];

		pair->venet = venet;
		pair->number = i;
		venet_init_pair(pair);
		timer_setup(&pair->timer, expired, 0);
		netif_napi_add(dev, &pair->napi, poll);
	}
	venet->events = kcalloc(VENET_EVENTS, sizeof(*venet->events), GFP_KERNEL);
	if (!venet->events) {
		error = -ENOMEM;
		goto free;
	}
	dev->netdev_ops = &venet_ops;
	dev->ethtool_ops = &venet_ethtool_ops;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	error = connect(venet);
	if (error)
		goto free;
	error = ask(venet);
	end(venet);
	if (error)
		goto free;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6;
	dev->features = dev->hw_features;
	dev->vlan_features = dev->hw_features;
	/* From down to up, or the state of the link stays unknown. */
	netif_carrier_off(dev);
	dev_set_drvdata(&device->dev, venet);
	error = netif_set_real_num_queues(dev, venet->count, venet->count);
	if (error)
		goto free;
	error = register_netdev(dev);
	if (!error) {
		netif_carrier_on(dev);
		return 0;
	}
free:
	kfree(venet->events);
	free_netdev(dev);
	return error;
}

static void venet_remove(struct vbus_device *device)
{
	struct venet *venet = dev_get_drvdata(&device->dev);

	unregister_netdev(venet->dev);
	cancel_delayed_work_sync(&venet->restart);
	cancel_work_sync(&venet->event);
	kfree(venet->events);
	free_netdev(venet->dev);
}

static void venet_closed(struct vbus_device *device)
{
	struct venet *venet = dev_get_drvdata(&device->dev);

	/* Not yet while the card is probed: then the probe fails. */
	if (!venet)
		return;
	WRITE_ONCE(venet->closed, true);
	mod_delayed_work(system_wq, &venet->restart, 0);
}

static struct vbus_driver venet_driver = {
	.driver.name	= "venet",
	.type		= "virtual-ethernet",
	.version	= 1,
	.probe		= venet_probe,
	.remove		= venet_remove,
	.closed		= venet_closed,
};

static int __init venet_init(void)
{
	return vbus_register_driver(&venet_driver);
}
device_initcall(venet_init);
