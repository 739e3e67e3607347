/* SPDX-License-Identifier: Apache-2.0 */
/* Socket addresses. */
#include <arpa/inet.h>

#include "cm.h"

socklen_t addr_bytes(const struct sockaddr *addr)
{
	switch (addr->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

/* No address at all is one of family 0. */
int addr_to_abi(struct rnic_cm_addr *out, const struct sockaddr *in)
{
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;

	memset(out, 0, sizeof(*out));
	if (!in)
		return 0;
	switch (in->sa_family) {
	case AF_INET:
		memcpy(&in4, in, sizeof(in4));
		out->port = ntohs(in4.sin_port);
		memcpy(out->addr, &in4.sin_addr, sizeof(in4.sin_addr));
		break;
	case AF_INET6:
		memcpy(&in6, in, sizeof(in6));
		out->port = ntohs(in6.sin6_port);
		out->scope = in6.sin6_scope_id;
		out->flow_info = in6.sin6_flowinfo;
		memcpy(out->addr, &in6.sin6_addr, sizeof(in6.sin6_addr));
		break;
	default:
		return EAFNOSUPPORT;
	}
	out->family = in->sa_family;
	return 0;
}

void addr_from_abi(struct sockaddr_storage *out, const struct rnic_cm_addr *in)
{
	struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons(in->port)};
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(in->port),
		.sin6_scope_id = in->scope,
		.sin6_flowinfo = in->flow_info,
	};

	memset(out, 0, sizeof(*out));
	if (in->family == AF_INET) {
		memcpy(&in4.sin_addr, in->addr, sizeof(in4.sin_addr));
		memcpy(out, &in4, sizeof(in4));
	} else if (in->family == AF_INET6) {
		memcpy(&in6.sin6_addr, in->addr, sizeof(in6.sin6_addr));
		memcpy(out, &in6, sizeof(in6));
	}
}

static __be16 addr_port(const struct sockaddr *addr)
{
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;

	if (addr->sa_family == AF_INET) {
		memcpy(&in4, addr, sizeof(in4));
		return in4.sin_port;
	}
	if (addr->sa_family != AF_INET6)
		return 0;
	memcpy(&in6, addr, sizeof(in6));
	return in6.sin6_port;
}

CM_API __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return addr_port(&id->route.addr.src_addr);
}

CM_API __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return addr_port(&id->route.addr.dst_addr);
}
