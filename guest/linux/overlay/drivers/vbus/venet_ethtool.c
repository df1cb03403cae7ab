// SPDX-License-Identifier: GPL-2.0-only
/* What ethtool asks a network card, and sets. */
#include <linux/ethtool.h>
#include "venet.h"

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct venet *venet = netdev_priv(dev);

	strscpy(info->driver, "venet");
	strscpy(info->bus_info, dev_name(&venet->connection.device->dev));
}

/* Of all pairs, and then of each one. */
static const char names[][ETH_GSTRING_LEN] = { "interrupts", "kicks", "quiet" };
static const char each[][ETH_GSTRING_LEN] = { "received", "sent" };

static int get_sset_count(struct net_device *dev, int set)
{
	struct venet *venet = netdev_priv(dev);

	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return ARRAY_SIZE(names) + venet->count * ARRAY_SIZE(each);
}

static void get_strings(struct net_device *dev, u32 set, u8 *text)
{
	struct venet *venet = netdev_priv(dev);
	int i, n;

	if (set != ETH_SS_STATS)
		return;
	for (n = 0; n < ARRAY_SIZE(names); n++)
		ethtool_puts(&text, names[n]);
	for (i = 0; i < venet->count; i++) {
		for (n = 0; n < ARRAY_SIZE(each); n++)
			ethtool_sprintf(&text, "pair%d_%s", i, each[n]);
	}
}

static void get_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *values)
{
	struct venet *venet = netdev_priv(dev);
	u64 *next = values + ARRAY_SIZE(names);
	int i;

	memset(values, 0, ARRAY_SIZE(names) * sizeof(*values));
	for (i = 0; i < venet->count; i++) {
		const struct venet_pair *pair = &venet->pairs[i];

		values[0] += pair->interrupts;
		values[1] += pair->kicks;
		values[2] += pair->quiet;
		*next++ = pair->received;
		*next++ = pair->sent;
	}
}

static void get_channels(struct net_device *dev, struct ethtool_channels *channels)
{
	struct venet *venet = netdev_priv(dev);

	channels->max_combined = VBUS_ETHERNET_PAIRS_MAX;
	channels->combined_count = venet->connection.open ? venet->count : venet->wanted;
}

static int set_channels(struct net_device *dev, struct ethtool_channels *channels)
{
	struct venet *venet = netdev_priv(dev);

	/* The core has compared the number with the maximum. */
	if (!channels->combined_count)
		return -EINVAL;
	venet->wanted = channels->combined_count;
	return venet_again(venet);
}

const struct ethtool_ops venet_ethtool_ops = {
	.get_drvinfo		= get_drvinfo,
	.get_link		= ethtool_op_get_link,
	.get_sset_count		= get_sset_count,
	.get_strings		= get_strings,
	.get_ethtool_stats	= get_stats,
	.get_channels		= get_channels,
	.set_channels		= set_channels,
};
