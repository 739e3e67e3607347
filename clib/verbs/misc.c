/* SPDX-License-Identifier: Apache-2.0 */
/* Fork support, files of sysfs, and the layer below IP. */
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rnic.h"

/* No page is pinned, so a child's copy-on-write takes nothing away from the NIC. */
VERBS_API int ibv_fork_init(void)
{
	return 0;
}

VERBS_API enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

VERBS_API int ibv_dontfork_range(void *base, size_t size);
VERBS_API int ibv_dofork_range(void *base, size_t size);

int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

VERBS_API void ibv_static_providers(void *unused, ...);

void ibv_static_providers(void *unused, ...)
{
	(void)unused;
}

VERBS_API const char *ibv_get_sysfs_path(void);

const char *ibv_get_sysfs_path(void)
{
	const char *path = getenv("SYSFS_PATH");

	return path && *path == '/' ? path : "/sys";
}

VERBS_API int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

/* Reads a small file without its final newline. Returns its length or −1. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[1024];
	ssize_t got;
	int fd;

	if (size == 0 || (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read(fd, buf, size);
	close(fd);
	if (got < 0)
		return -1;
	if (got > 0 && buf[got - 1] == '\n')
		got--;
	if ((size_t)got == size)
		got--;
	buf[got] = '\0';
	return (int)got;
}

/* The NIC writes a message's bytes in order only by accident. */
VERBS_API int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}

/* Looks an IPv4 address up in the kernel's neighbour table. */
static int misc_neighbour_find(const unsigned char *addr, unsigned char *mac)
{
	char line[256], want[16], ip[16];
	unsigned int m[ETHERNET_LL_SIZE];
	FILE *table = fopen("/proc/net/arp", "re");
	int error = EHOSTUNREACH;

	if (!table)
		return errno;
	snprintf(want, sizeof(want), "%u.%u.%u.%u", addr[0], addr[1], addr[2], addr[3]);
	while (error && fgets(line, sizeof(line), table)) {
		if (sscanf(line, "%15s %*s %*s %x:%x:%x:%x:%x:%x", ip, &m[0], &m[1], &m[2], &m[3],
			   &m[4], &m[5]) != 7 || strcmp(ip, want) != 0)
			continue;
		for (int i = 0; i < ETHERNET_LL_SIZE; i++)
			mac[i] = (unsigned char)m[i];
		error = 0;
	}
	fclose(table);
	return error;
}

static bool misc_has_addr(const struct ifaddrs *ifa, const unsigned char *gid, bool ipv4)
{
	if (!ifa->ifa_addr)
		return false;
	if (ipv4 && ifa->ifa_addr->sa_family == AF_INET)
		return !memcmp(&((struct sockaddr_in *)ifa->ifa_addr)->sin_addr, gid + 12, 4);
	if (!ipv4 && ifa->ifa_addr->sa_family == AF_INET6)
		return !memcmp(&((struct sockaddr_in6 *)ifa->ifa_addr)->sin6_addr, gid, 16);
	return false;
}

/* Finds the hardware address of our own interface that has the address. */
static int misc_local_find(const unsigned char *gid, bool ipv4, unsigned char *mac)
{
	struct ifaddrs *list, *ifa, *link;
	int error = EHOSTUNREACH;

	if (getifaddrs(&list) != 0)
		return errno;
	for (ifa = list; ifa && !misc_has_addr(ifa, gid, ipv4); ifa = ifa->ifa_next)
		;
	for (link = ifa ? list : NULL; link; link = link->ifa_next) {
		const struct sockaddr_ll *ll = (const struct sockaddr_ll *)(void *)link->ifa_addr;

		if (!ll || ll->sll_family != AF_PACKET || strcmp(link->ifa_name, ifa->ifa_name))
			continue;
		memcpy(mac, ll->sll_addr, ETHERNET_LL_SIZE);
		error = 0;
		break;
	}
	freeifaddrs(list);
	return error;
}

/*
 * Tells the Ethernet address behind a GID, as far as it can be told without asking the network:
 * multicast, link-local addresses made from a MAC, our own, and known IPv4 neighbours.
 */
VERBS_API int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					  uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	const unsigned char *gid = attr->grh.dgid.raw;
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	const bool ipv4 = !memcmp(gid, mapped, sizeof(mapped));
	int error;

	(void)context;
	if (vid)
		*vid = 0xffff; /* no VLAN */
	if (gid[0] == 0xff) {
		mac[0] = mac[1] = 0x33;
		memcpy(mac + 2, gid + 12, 4);
		return 0;
	}
	if (ipv4 && gid[12] >= 224 && gid[12] < 240) {
		const unsigned char group[6] = {0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]};

		memcpy(mac, group, sizeof(group));
		return 0;
	}
	if (gid[0] == 0xfe && gid[1] == 0x80 && gid[11] == 0xff && gid[12] == 0xfe) {
		const unsigned char unicast[6] = {gid[8] ^ 2, gid[9], gid[10],
						  gid[13],    gid[14], gid[15]};

		memcpy(mac, unicast, sizeof(unicast));
		return 0;
	}
	error = misc_local_find(gid, ipv4, mac);
	if (error && ipv4)
		error = misc_neighbour_find(gid + 12, mac);
	return error ? rnic_fail(error) : 0;
}
