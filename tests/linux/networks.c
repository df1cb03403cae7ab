// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Network features that the kernel's configuration must have: protocols, software interfaces,
 * filters. Each test has a network namespace of its own.
 */
#include "test.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/rtnetlink.h>
#include <linux/vm_sockets.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

/* From net/if.h, which conflicts with the kernel's linux/if.h. */
unsigned int if_nametoindex(const char *name);

/* A netlink message under construction. */
struct message {
	_Alignas(8) char bytes[2048];
	size_t size;
	size_t begin;	/* of the last one */
};

static void message_begin(struct message *m, unsigned int type, unsigned int flags,
			  const void *head, size_t size)
{
	struct nlmsghdr *h = (struct nlmsghdr *)(m->bytes + m->size);

	m->begin = m->size;
	memset(h, 0, sizeof(*h));
	h->nlmsg_type = (unsigned short)type;
	h->nlmsg_flags = (unsigned short)(NLM_F_REQUEST | flags);
	memcpy(h + 1, head, size);
	m->size += sizeof(*h) + NLMSG_ALIGN(size);
	h->nlmsg_len = (unsigned int)(m->size - m->begin);
}

static void attribute(struct message *m, unsigned int type, const void *value, size_t size)
{
	struct nlattr *a = (struct nlattr *)(m->bytes + m->size);

	CHECK(m->size + sizeof(*a) + size + 4 < sizeof(m->bytes));
	a->nla_type = (unsigned short)type;
	a->nla_len = (unsigned short)(sizeof(*a) + size);
	memset(a + 1, 0, NLMSG_ALIGN(size));
	if (value)
		memcpy(a + 1, value, size);
	m->size += sizeof(*a) + NLMSG_ALIGN(size);
	((struct nlmsghdr *)(m->bytes + m->begin))->nlmsg_len = (unsigned int)(m->size - m->begin);
}

static void text(struct message *m, unsigned int type, const char *value)
{
	attribute(m, type, value, strlen(value) + 1);
}

static void big_endian(struct message *m, unsigned int type, uint32_t value)
{
	value = htonl(value);
	attribute(m, type, &value, sizeof(value));
}

/* Nested attributes: everything until nest_end. */
static size_t nest(struct message *m, unsigned int type)
{
	size_t at = m->size;

	attribute(m, type | NLA_F_NESTED, NULL, 0);
	return at;
}

static void nest_end(struct message *m, size_t at)
{
	((struct nlattr *)(m->bytes + at))->nla_len = (unsigned short)(m->size - at);
}

/* Sends it. Returns the first error in the answers, or 0. */
static int talk(int family, const struct message *m, unsigned int answers)
{
	struct timeval patience = { .tv_sec = 5 };
	_Alignas(8) char reply[8192];
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family), error = 0;

	CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	CHECK(send(fd, m->bytes, m->size, 0) == (ssize_t)m->size);
	while (answers) {
		ssize_t n = recv(fd, reply, sizeof(reply), 0);
		struct nlmsghdr *h = (struct nlmsghdr *)reply;

		CHECK(n > 0);
		for (; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			answers--;
			if (!error)
				error = -((struct nlmsgerr *)NLMSG_DATA(h))->error;
		}
	}
	close(fd);
	return error;
}

static void own_network(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd;

	CHECK(!unshare(CLONE_NEWNET));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	request.ifr_flags = IFF_UP;
	CHECK(fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &request));
	close(fd);
}

/* Sends a datagram to a port of 127.0.0.1 and back. */
static bool loopback_works(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval patience = { .tv_usec = 200000 };
	socklen_t size = sizeof(address);
	char c = 0;
	int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
	bool works;

	CHECK(to >= 0 && from >= 0 && !bind(to, (struct sockaddr *)&address, size));
	CHECK(!getsockname(to, (struct sockaddr *)&address, &size));
	CHECK(!setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	if (sendto(from, "x", 1, 0, (struct sockaddr *)&address, size) == 1)
		works = recv(to, &c, 1, 0) == 1 && c == 'x';
	else
		works = false;
	close(to);
	close(from);
	return works;
}

static void nf_message(struct message *m, unsigned int type, unsigned int flags,
		       unsigned int family, unsigned int id)
{
	struct nfgenmsg head = { .nfgen_family = (unsigned char)family, .version = NFNETLINK_V0,
				 .res_id = htons((uint16_t)id) };

	message_begin(m, type, flags, &head, sizeof(head));
}

static void nft_message(struct message *m, unsigned int type)
{
	nf_message(m, NFNL_SUBSYS_NFTABLES << 8 | type,
		   NLM_F_CREATE | NLM_F_ACK | (type == NFT_MSG_NEWRULE ? NLM_F_APPEND : 0),
		   NFPROTO_INET, 0);
}

/* table inet t { chain c { type filter hook input priority 0; counter drop } } */
static void nftables(void)
{
	struct message m = { 0 };
	size_t all, one, data, more, verdict;

	own_network();
	CHECK(loopback_works());
	nf_message(&m, NFNL_MSG_BATCH_BEGIN, 0, 0, NFNL_SUBSYS_NFTABLES);
	nft_message(&m, NFT_MSG_NEWTABLE);
	text(&m, NFTA_TABLE_NAME, "t");
	nft_message(&m, NFT_MSG_NEWCHAIN);
	text(&m, NFTA_CHAIN_TABLE, "t");
	text(&m, NFTA_CHAIN_NAME, "c");
	all = nest(&m, NFTA_CHAIN_HOOK);
	big_endian(&m, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_IN);
	big_endian(&m, NFTA_HOOK_PRIORITY, 0);
	nest_end(&m, all);
	text(&m, NFTA_CHAIN_TYPE, "filter");
	nft_message(&m, NFT_MSG_NEWRULE);
	text(&m, NFTA_RULE_TABLE, "t");
	text(&m, NFTA_RULE_CHAIN, "c");
	all = nest(&m, NFTA_RULE_EXPRESSIONS);
	one = nest(&m, NFTA_LIST_ELEM);
	text(&m, NFTA_EXPR_NAME, "counter");
	nest_end(&m, one);
	one = nest(&m, NFTA_LIST_ELEM);
	text(&m, NFTA_EXPR_NAME, "immediate");
	data = nest(&m, NFTA_EXPR_DATA);
	big_endian(&m, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	more = nest(&m, NFTA_IMMEDIATE_DATA);
	verdict = nest(&m, NFTA_DATA_VERDICT);
	big_endian(&m, NFTA_VERDICT_CODE, NF_DROP);
	nest_end(&m, verdict);
	nest_end(&m, more);
	nest_end(&m, data);
	nest_end(&m, one);
	nest_end(&m, all);
	nf_message(&m, NFNL_MSG_BATCH_END, 0, 0, NFNL_SUBSYS_NFTABLES);
	errno = talk(NETLINK_NETFILTER, &m, 3);
	CHECK(errno == 0);
	CHECK(!loopback_works());
}

/* The tables of iptables, as used by programs that include their own library for them. */
static void iptables(void)
{
	static const char *const tables[] = { "filter", "nat", "mangle", "raw" };
	int fd;
	size_t i;

	own_network();
	fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	CHECK(fd >= 0);
	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		struct ipt_getinfo info = { 0 };
		socklen_t size = sizeof(info);

		strcpy(info.name, tables[i]);
		CHECK(!getsockopt(fd, IPPROTO_IP, IPT_SO_GET_INFO, &info, &size) &&
		      info.num_entries > 0);
	}
	close(fd);
}

static void new_link(const char *kind, const char *name, const char *below)
{
	struct ifinfomsg head = { 0 };
	struct message m = { 0 };
	uint32_t index;
	size_t at;

	message_begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &head, sizeof(head));
	text(&m, IFLA_IFNAME, name);
	if (below) {
		index = if_nametoindex(below);
		attribute(&m, IFLA_LINK, &index, sizeof(index));
	}
	at = nest(&m, IFLA_LINKINFO);
	text(&m, IFLA_INFO_KIND, kind);
	nest_end(&m, at);
	errno = talk(NETLINK_ROUTE, &m, 1);
	if (errno)
		printf("# %s\n", kind);
	CHECK(errno == 0);
	CHECK(if_nametoindex(name) != 0);
}

static void interfaces(void)
{
	struct ifreq request = { .ifr_name = "tap0", .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd;

	own_network();
	new_link("veth", "v0", NULL);
	new_link("bridge", "b0", NULL);
	new_link("dummy", "d0", NULL);
	new_link("macvlan", "m0", "d0");
	new_link("ipvlan", "i0", "v0");
	new_link("wireguard", "w0", NULL);
	fd = open("/dev/net/tun", O_RDWR);
	CHECK(fd >= 0 && !ioctl(fd, TUNSETIFF, &request) && if_nametoindex("tap0") != 0);
	close(fd);
}

static void ipv6(void)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6,
					.sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t size = sizeof(address);
	char c = 0;
	int listener, one, other;

	own_network();
	listener = socket(AF_INET6, SOCK_STREAM, 0);
	one = socket(AF_INET6, SOCK_STREAM, 0);
	CHECK(listener >= 0 && one >= 0 && !bind(listener, (struct sockaddr *)&address, size) &&
	      !listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &size));
	CHECK(!connect(one, (struct sockaddr *)&address, size));
	other = accept(listener, NULL, NULL);
	CHECK(other >= 0 && write(one, "6", 1) == 1 && read(other, &c, 1) == 1 && c == '6');
}

static void packets(void)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct timeval patience = { .tv_sec = 5 };
	char frame[256];
	int fd;

	own_network();
	fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	address.sll_ifindex = (int)if_nametoindex("lo");
	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	CHECK(loopback_works());
	CHECK(recv(fd, frame, sizeof(frame), 0) == 14 + 20 + 8 + 1);
}

static void vsock_loopback(void)
{
	struct sockaddr_vm address = { .svm_family = AF_VSOCK, .svm_port = 1234,
				       .svm_cid = VMADDR_CID_ANY };
	int listener = socket(AF_VSOCK, SOCK_STREAM, 0), one = socket(AF_VSOCK, SOCK_STREAM, 0),
		other;
	char c = 0;

	CHECK(listener >= 0 && one >= 0 &&
	      !bind(listener, (struct sockaddr *)&address, sizeof(address)) &&
	      !listen(listener, 1));
	address.svm_cid = VMADDR_CID_LOCAL;
	CHECK(!connect(one, (struct sockaddr *)&address, sizeof(address)));
	other = accept(listener, NULL, NULL);
	CHECK(other >= 0 && write(one, "v", 1) == 1 && read(other, &c, 1) == 1 && c == 'v');
}

const struct test network_tests[] = {
	{ "feature.nftables", nftables, true },
	{ "feature.iptables", iptables, true },
	{ "feature.interfaces", interfaces, true },
	{ "feature.ipv6", ipv6, true },
	{ "feature.packets", packets, true },
	{ "feature.vsock", vsock_loopback, true },
	{ NULL, NULL, false },
};
