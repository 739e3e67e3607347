/* SPDX-License-Identifier: Apache-2.0 */
/* Address handles. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "attr.h"
#include "ctl.h"
#include "rnic.h"

VERBS_API struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct rnic_create_ah_req req = {.pd = pd->handle};
	struct ctl_call call = {.op = RNIC_OP_CREATE_AH, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_handle_msg rsp;
	struct ibv_ah *ah = calloc(1, sizeof(*ah));
	int error;

	if (!ah)
		return NULL;
	attr_ah_to_abi(&req.attr, attr);
	error = ctl_conn_query(&ctx_of(pd->context)->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		free(ah);
		errno = error;
		return NULL;
	}
	ah->context = pd->context;
	ah->pd = pd;
	ah->handle = rsp.handle;
	return ah;
}

VERBS_API int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct ctl_conn *conn = &ctx_of(ah->context)->ctl;
	struct rnic_handle_msg req = {.handle = ah->handle};
	int error = ctl_conn_ask(conn, RNIC_OP_DESTROY_AH, &req, sizeof(req));

	if (error && !ctl_conn_known_dead(conn))
		return rnic_fail(error);
	free(ah);
	return 0;
}

/* The fields of a received GRH area that an answer needs. */
struct ah_route {
	union ibv_gid sgid;
	union ibv_gid dgid;
	uint8_t traffic_class;
	uint32_t flow_label;
};

static bool ah_ipv4_checksum_is_good(const unsigned char *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

static void ah_gid_from_ipv4(union ibv_gid *gid, const unsigned char *addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

/*
 * The 40 bytes before a datagram are a GRH, an IPv6 header of the same form, or on RoCE v2 over
 * IPv4 that header in the last 20 of them (annex A17.4.5.1). The first 20 are then undefined, so
 * where both readings are possible the IPv4 checksum decides.
 */
static void ah_route_parse(struct ah_route *route, const struct ibv_grh *grh)
{
	const unsigned char *bytes = (const unsigned char *)grh;
	const unsigned char *ipv4 = bytes + 20;
	uint32_t word = ntohl(grh->version_tclass_flow);

	memset(route, 0, sizeof(*route));
	if (ipv4[0] == 0x45 && (word >> 28 != 6 || ah_ipv4_checksum_is_good(ipv4))) {
		route->traffic_class = ipv4[1];
		ah_gid_from_ipv4(&route->sgid, ipv4 + 12);
		ah_gid_from_ipv4(&route->dgid, ipv4 + 16);
		return;
	}
	route->traffic_class = (uint8_t)(word >> 20);
	route->flow_label = word & 0xfffff;
	route->sgid = grh->sgid;
	route->dgid = grh->dgid;
}

/*
 * Finds our GID that a datagram was sent to. RoCE v1 is what this device does not speak; a port
 * that is presented as InfiniBand has GIDs of that type.
 */
static int ah_find_gid(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	struct ibv_gid_entry entries[256];
	ssize_t count = ibv_query_gid_table(context, entries, 256, 0);

	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].port_num == port && entries[i].gid_type != IBV_GID_TYPE_ROCE_V1 &&
		    !memcmp(&entries[i].gid, gid, sizeof(*gid)))
			return (int)entries[i].gid_index;
	}
	return -1;
}

VERBS_API int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
				  struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct ah_route route;
	int index;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	ah_route_parse(&route, grh);
	index = ah_find_gid(context, port, &route.dgid);
	if (index < 0) {
		errno = EINVAL;
		return -1;
	}
	attr->is_global = 1;
	attr->grh.dgid = route.sgid;
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.flow_label = route.flow_label;
	attr->grh.traffic_class = route.traffic_class;
	attr->grh.hop_limit = 0xff;
	return 0;
}

VERBS_API struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					       struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
