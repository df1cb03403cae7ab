// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network cards of the virtual bus. The connection to the device lives from ndo_open to ndo_stop.
 * All work is NAPI's: the device notifies when it has frames, and not while NAPI looks by itself.
 */
#include <linux/err.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/rtnetlink.h>
#include "venet.h"

#define MINE (VBUS_ETHERNET_CAP_CHAIN | VBUS_ETHERNET_CAP_CSUM | VBUS_ETHERNET_CAP_TSO4)

/* The device is used no more until it is connected anew. */
void venet_break(struct venet *venet, int error)
{
	if (venet->broken)
		return;
	venet->broken = true;
	netdev_err(venet->dev, "the device broke the protocol: %d\n", error);
	schedule_work(&venet->restart);
}

static void signal(struct vbus_connection *connection)
{
	struct venet *venet = container_of(connection, struct venet, connection);
	struct vbus_queue *rx = venet_queue(venet, VENET_RX), *tx = venet_queue(venet, VENET_TX);

	/* Before both queues are shared there is nothing to look at. */
	if (!smp_load_acquire(&tx->here))
		return;
	/* It may be another device's interrupt. */
	if (!READ_ONCE(rx->here->pending) && !READ_ONCE(tx->here->pending))
		return;
	venet->interrupts++;
	if (napi_schedule_prep(&venet->napi)) {
		vbus_side_disable(rx->here);
		__napi_schedule(&venet->napi);
	}
}

static int poll(struct napi_struct *napi, int budget)
{
	struct venet *venet = container_of(napi, struct venet, napi);
	struct netdev_queue *queue = netdev_get_tx_queue(venet->dev, 0);
	struct vbus_queue *rx = venet_queue(venet, VENET_RX), *tx = venet_queue(venet, VENET_TX);
	int done;

	vbus_side_look(rx->here);
	done = venet_receive(venet, budget);
	if (venet_room(tx) < VENET_COUNT && __netif_tx_trylock(queue)) {
		bool awaited = venet->awaited;

		if (awaited)
			vbus_side_look(tx->here);
		venet_reclaim(venet, budget);
		/* Still much. The next notification has to come. */
		if (venet->awaited && vbus_side_rest(tx->here))
			done = budget;
		__netif_tx_unlock(queue);
	}
	if (done < budget && napi_complete_done(napi, done)) {
		if (unlikely(vbus_side_rest(rx->here)) && napi_schedule_prep(napi)) {
			vbus_side_disable(rx->here);
			__napi_schedule(napi);
		}
	}
	return done;
}

static void expired(struct timer_list *timer)
{
	struct venet *venet = from_timer(venet, timer, timer);

	if (venet_room(venet_queue(venet, VENET_TX)) < VENET_COUNT)
		napi_schedule(&venet->napi);
}

/* Opens the connection and agrees on capabilities. */
static int connect(struct venet *venet)
{
	__le32 caps[2] = { 0, cpu_to_le32(MINE) };
	int length, error;

	error = vbus_open(&venet->connection);
	if (error)
		return error;
	length = vbus_call(&venet->connection, VBUS_ETHERNET_NEGCAP, caps, sizeof(caps),
			   sizeof(caps));
	venet->caps = length == sizeof(caps) ? le32_to_cpu(caps[1]) & MINE : 0;
	return 0;
}

/* Shares the queues and begins to work. */
static int start(struct venet *venet)
{
	struct vbus_connection *connection = &venet->connection;
	unsigned int size = venet->dev->mtu + VLAN_ETH_HLEN;
	int error;

	venet->broken = false;
	venet->order = venet->caps & VBUS_ETHERNET_CAP_CHAIN ? 0 : get_order(size);
	error = vbus_share(connection, VENET_RX, VBUS_ROLE_RECEIVE, VENET_COUNT);
	if (error)
		return error;
	error = venet_fill(venet);
	if (error)
		return error;
	error = vbus_share(connection, VENET_TX, VBUS_ROLE_TRANSMIT, VENET_COUNT);
	if (error)
		return error;
	napi_enable(&venet->napi);
	if (vbus_side_rest(venet_queue(venet, VENET_RX)->here))
		napi_schedule(&venet->napi);
	error = vbus_call(connection, VBUS_ETHERNET_LINKUP, NULL, 0, 0);
	if (error < 0) {
		napi_disable(&venet->napi);
		return error;
	}
	netif_carrier_on(venet->dev);
	netif_start_queue(venet->dev);
	return 0;
}

/* Ends the connection and frees what the device had. */
static void end(struct venet *venet)
{
	vbus_close(&venet->connection);
	if (venet_queue(venet, VENET_TX)->posted)
		venet_free_sent(venet);
	if (venet_queue(venet, VENET_RX)->posted)
		venet_free_buffers(venet);
	vbus_free_queues(&venet->connection);
}

static int venet_open(struct net_device *dev)
{
	struct venet *venet = netdev_priv(dev);
	int error;

	error = connect(venet);
	if (error)
		return error;
	netdev_update_features(dev);
	error = start(venet);
	if (error)
		end(venet);
	return error;
}

static int venet_stop(struct net_device *dev)
{
	struct venet *venet = netdev_priv(dev);

	/* After a restart that failed there is nothing. */
	if (!venet->connection.open)
		return 0;
	netif_tx_disable(dev);
	vbus_call(&venet->connection, VBUS_ETHERNET_LINKDOWN, NULL, 0, 0);
	napi_disable(&venet->napi);
	timer_delete_sync(&venet->timer);
	end(venet);
	return 0;
}

/* The connection was closed, or the device broke the protocol. */
static void restart(struct work_struct *work)
{
	struct venet *venet = container_of(work, struct venet, restart);
	int error;

	rtnl_lock();
	if (netif_running(venet->dev)) {
		venet_stop(venet->dev);
		error = venet_open(venet->dev);
		if (error) {
			netif_carrier_off(venet->dev);
			netdev_err(venet->dev, "cannot connect again: %d\n", error);
		}
	}
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
	return features;
}

static int venet_change_mtu(struct net_device *dev, int mtu)
{
	struct venet *venet = netdev_priv(dev);
	bool up = netif_running(dev) && venet->connection.open;
	int error = 0;

	/* The size of buffers may depend on it. */
	if (up)
		venet_stop(dev);
	WRITE_ONCE(dev->mtu, mtu);
	if (up)
		error = venet_open(dev);
	return error;
}

static const struct net_device_ops venet_ops = {
	.ndo_open		= venet_open,
	.ndo_stop		= venet_stop,
	.ndo_start_xmit		= venet_xmit,
	.ndo_validate_addr	= eth_validate_addr,
	.ndo_fix_features	= venet_fix_features,
	.ndo_change_mtu		= venet_change_mtu,
};

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct venet *venet = netdev_priv(dev);

	strscpy(info->driver, "venet");
	strscpy(info->bus_info, dev_name(&venet->connection.device->dev));
}

static const char names[][ETH_GSTRING_LEN] = { "interrupts", "kicks", "quiet" };

static int get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(names) : -EOPNOTSUPP;
}

static void get_strings(struct net_device *dev, u32 set, u8 *text)
{
	if (set == ETH_SS_STATS)
		memcpy(text, names, sizeof(names));
}

static void get_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *values)
{
	struct venet *venet = netdev_priv(dev);

	values[0] = venet->interrupts;
	values[1] = venet->kicks;
	values[2] = venet->quiet;
}

static const struct ethtool_ops venet_ethtool_ops = {
	.get_drvinfo		= get_drvinfo,
	.get_link		= ethtool_op_get_link,
	.get_sset_count		= get_sset_count,
	.get_strings		= get_strings,
	.get_ethtool_stats	= get_stats,
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
	struct net_device *dev = alloc_etherdev(sizeof(struct venet));
	struct venet *venet;
	int error;

	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, &device->dev);
	venet = netdev_priv(dev);
	venet->dev = dev;
	venet->connection.device = device;
	venet->connection.signal = signal;
	INIT_WORK(&venet->restart, restart);
	timer_setup(&venet->timer, expired, 0);
	dev->netdev_ops = &venet_ops;
	dev->ethtool_ops = &venet_ethtool_ops;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	netif_napi_add(dev, &venet->napi, poll);
	error = connect(venet);
	if (error)
		goto free;
	error = ask(venet);
	end(venet);
	if (error)
		goto free;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO;
	dev->features = dev->hw_features;
	dev->vlan_features = dev->hw_features;
	/* From down to up, or the state of the link stays unknown. */
	netif_carrier_off(dev);
	dev_set_drvdata(&device->dev, venet);
	error = register_netdev(dev);
	if (!error) {
		netif_carrier_on(dev);
		return 0;
	}
free:
	free_netdev(dev);
	return error;
}

static void venet_remove(struct vbus_device *device)
{
	struct venet *venet = dev_get_drvdata(&device->dev);

	unregister_netdev(venet->dev);
	cancel_work_sync(&venet->restart);
	free_netdev(venet->dev);
}

static void venet_closed(struct vbus_device *device)
{
	struct venet *venet = dev_get_drvdata(&device->dev);

	schedule_work(&venet->restart);
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
