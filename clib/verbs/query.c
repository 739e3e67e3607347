/* SPDX-License-Identifier: Apache-2.0 */
/* What a device and its ports are. */
#include <endian.h>
#include <stdlib.h>

#include "ctl.h"
#include "ctx.h"

static size_t query_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int query_device_attr(struct ibv_context *context, struct rnic_device_attr *attr)
{
	struct ctl_call call = {.op = RNIC_OP_QUERY_DEVICE};
	struct rnic_context *ctx = ctx_of(context);
	struct ctl_conn own;
	int error;

	if (!ctx->inherited)
		return ctl_conn_query(&ctx->ctl, &call, attr, sizeof(*attr));
	memset(&own, 0, sizeof(own));
	error = ctx_conn_open_own(ctx, &own);
	if (error)
		return error;
	error = ctl_conn_query(&own, &call, attr, sizeof(*attr));
	ctl_conn_close(&own);
	return error;
}

static void query_device_fill(struct ibv_device_attr *out, const struct rnic_device_attr *in)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->fw_ver, in->fw_version, sizeof(out->fw_ver) - 1);
	out->node_guid = htobe64(in->node_guid);
	out->sys_image_guid = htobe64(in->sys_image_guid);
	out->max_mr_size = in->max_mr_size;
	out->page_size_cap = in->page_size_cap;
	out->vendor_id = in->vendor_id;
	out->vendor_part_id = in->vendor_part_id;
	out->hw_ver = in->hw_version;
	out->max_qp = (int)in->max_qp;
	out->max_qp_wr = (int)in->max_qpwr;
	out->device_cap_flags = (unsigned int)in->cap_flags;
	out->max_sge = (int)in->max_sge;
	out->max_sge_rd = (int)in->max_sge_read;
	out->max_cq = (int)in->max_cq;
	out->max_cqe = (int)in->max_cqe;
	out->max_mr = (int)in->max_mr;
	out->max_pd = (int)in->max_pd;
	out->max_qp_rd_atom = (int)in->max_qp_read_atomic;
	out->max_res_rd_atom = (int)in->max_res_read_atomic;
	out->max_qp_init_rd_atom = (int)in->max_qp_init_read_atomic;
	out->atomic_cap = (enum ibv_atomic_cap)in->atomic_cap;
	out->max_mw = (int)in->max_mw;
	out->max_mcast_grp = (int)in->max_mcast_grp;
	out->max_mcast_qp_attach = (int)in->max_mcast_qp_attach;
	out->max_total_mcast_qp_attach = (int)in->max_total_mcast_attach;
	out->max_ah = (int)in->max_ah;
	out->max_srq = (int)in->max_srq;
	out->max_srq_wr = (int)in->max_srqwr;
	out->max_srq_sge = (int)in->max_srqsge;
	out->max_pkeys = (uint16_t)in->max_pkeys;
	out->local_ca_ack_delay = (uint8_t)in->local_ca_ack_delay;
	out->phys_port_cnt = (uint8_t)query_min(in->ports, UINT8_MAX);
}

VERBS_API int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct rnic_device_attr in;
	int error = query_device_attr(context, &in);

	if (error)
		return rnic_fail(error);
	query_device_fill(attr, &in);
	return 0;
}

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t attr_bytes)
{
	struct ibv_device_attr_ex out;
	struct rnic_device_attr in;
	int error;

	if (input && input->comp_mask)
		return EINVAL;
	error = query_device_attr(context, &in);
	if (error)
		return rnic_fail(error);
	memset(&out, 0, sizeof(out));
	query_device_fill(&out.orig_attr, &in);
	out.completion_timestamp_mask = in.completion_ts_mask;
	out.hca_core_clock = in.hca_core_clock_khz;
	out.device_cap_flags_ex = in.cap_flags;
	out.phys_port_cnt_ex = in.ports;
	out.max_dm_size = in.max_dm_size;
	out.odp_caps.general_caps = in.odp_caps;
	out.odp_caps.per_transport_caps.rc_odp_caps = in.odp_caps_rc;
	out.odp_caps.per_transport_caps.uc_odp_caps = in.odp_caps_uc;
	out.odp_caps.per_transport_caps.ud_odp_caps = in.odp_caps_ud;
	out.xrc_odp_caps = in.odp_caps_xrc;
	out.tm_caps.max_rndv_hdr_size = in.max_rendezvous_header;
	out.tm_caps.max_num_tags = in.max_tags;
	out.tm_caps.flags = in.tag_caps;
	out.tm_caps.max_ops = in.max_tag_ops;
	out.tm_caps.max_sge = in.max_tag_sge;
	out.cq_mod_caps.max_cq_count = (uint16_t)in.max_cq_moderation;
	out.cq_mod_caps.max_cq_period = (uint16_t)in.max_cq_moderation;
	memset(attr, 0, attr_bytes);
	memcpy(attr, &out, query_min(attr_bytes, sizeof(out)));
	return 0;
}

int query_port_ex(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		  size_t attr_bytes)
{
	struct rnic_port_req req = {.port = port};
	struct ctl_call call = {.op = RNIC_OP_QUERY_PORT, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_port_attr in;
	struct ibv_port_attr out;
	int error = ctl_conn_query(&ctx_of(context)->ctl, &call, &in, sizeof(in));

	if (error)
		return rnic_fail(error);
	memset(&out, 0, sizeof(out));
	out.state = (enum ibv_port_state)in.state;
	out.max_mtu = (enum ibv_mtu)in.max_mtu;
	out.active_mtu = (enum ibv_mtu)in.active_mtu;
	out.gid_tbl_len = (int)in.gid_table_len;
	out.port_cap_flags = in.cap_flags;
	out.max_msg_sz = in.max_msg_size;
	out.bad_pkey_cntr = in.bad_pkeys;
	out.qkey_viol_cntr = in.qkey_violation;
	out.pkey_tbl_len = (uint16_t)in.pkey_table_len;
	out.lid = (uint16_t)in.lid;
	out.sm_lid = (uint16_t)in.smlid;
	out.lmc = (uint8_t)in.lmc;
	out.max_vl_num = (uint8_t)in.max_vl;
	out.sm_sl = (uint8_t)in.smsl;
	out.active_width = (uint8_t)in.active_width;
	out.active_speed = (uint8_t)in.active_speed;
	out.phys_state = (uint8_t)in.phys_state;
	out.link_layer = (uint8_t)in.link_layer;
	out.flags = (uint8_t)in.flags;
	out.port_cap_flags2 = (uint16_t)in.cap_flags2;
	memset(attr, 0, attr_bytes);
	memcpy(attr, &out, query_min(attr_bytes, sizeof(out)));
	return 0;
}

/* For programs built before the structure grew: it ended at port_cap_flags2. */
VERBS_API int ibv_query_port(struct ibv_context *context, uint8_t port,
			     struct _compat_ibv_port_attr *attr)
{
	return query_port_ex(context, port, (struct ibv_port_attr *)attr,
			     offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* Fetches the valid GIDs of a port. The caller frees *table. */
static int query_gid_table(struct ibv_context *context, uint32_t port,
			   struct rnic_gid_entry **table, size_t *count)
{
	struct rnic_port_req req = {.port = port};
	struct ctl_call call = {
		.op = RNIC_OP_QUERY_GID_TABLE,
		.req = &req,
		.req_bytes = sizeof(req),
		.rsp_any_length = true,
	};
	int error = ENOMEM;

	*count = 0;
	*table = malloc(RNIC_MAX_MESSAGE);
	if (*table)
		error = ctl_conn_query(&ctx_of(context)->ctl, &call, *table, RNIC_MAX_MESSAGE);
	if (error) {
		free(*table);
		return error;
	}
	*count = call.rsp_got / sizeof(**table);
	return 0;
}

/* Finds one GID: 0, ENODATA for an index that is valid but empty, or another errno. */
static int query_gid_entry(struct ibv_context *context, uint32_t port, uint32_t index,
			   struct rnic_gid_entry *entry)
{
	struct rnic_gid_entry *table;
	struct ibv_port_attr attr;
	size_t count;
	int error = query_gid_table(context, port, &table, &count);

	if (error)
		return error;
	error = ENODATA;
	for (size_t i = 0; i < count; i++) {
		if (table[i].index == index && table[i].port == port) {
			*entry = table[i];
			error = 0;
			break;
		}
	}
	free(table);
	if (error == ENODATA) {
		error = query_port_ex(context, (uint8_t)port, &attr, sizeof(attr));
		if (!error)
			error = index < (uint32_t)attr.gid_tbl_len ? ENODATA : EINVAL;
	}
	return error;
}

VERBS_API int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
			    union ibv_gid *gid)
{
	struct rnic_gid_entry entry;
	int error = index < 0 ? EINVAL : query_gid_entry(context, port, (uint32_t)index, &entry);

	memset(gid, 0, sizeof(*gid));
	if (error == ENODATA) /* an empty entry reads as zeros */
		return 0;
	if (error) {
		errno = error;
		return -1;
	}
	memcpy(gid->raw, entry.gid, sizeof(gid->raw));
	return 0;
}

static void query_gid_fill(struct ibv_gid_entry *out, const struct rnic_gid_entry *in)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->gid.raw, in->gid, sizeof(out->gid.raw));
	out->gid_index = in->index;
	out->port_num = in->port;
	out->gid_type = in->type;
	out->ndev_ifindex = in->if_index;
}

VERBS_API int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
				struct ibv_gid_entry *out, uint32_t flags, size_t out_bytes)
{
	struct ibv_gid_entry filled;
	struct rnic_gid_entry entry;
	int error = flags ? EINVAL : query_gid_entry(context, port, index, &entry);

	if (error)
		return rnic_fail(error);
	query_gid_fill(&filled, &entry);
	memset(out, 0, out_bytes);
	memcpy(out, &filled, query_min(out_bytes, sizeof(filled)));
	return 0;
}

/* Puts a port's GIDs into out, which must have room: max entries of out_bytes. */
static int query_gid_append(struct ibv_context *context, uint32_t port, unsigned char *out,
			    size_t out_bytes, size_t max)
{
	struct rnic_gid_entry *table;
	struct ibv_gid_entry filled;
	size_t count;
	int error = query_gid_table(context, port, &table, &count);

	if (error)
		return -error;
	if (count > max) {
		free(table);
		return -EINVAL;
	}
	for (size_t i = 0; i < count; i++, out += out_bytes) {
		query_gid_fill(&filled, &table[i]);
		memset(out, 0, out_bytes);
		memcpy(out, &filled, query_min(out_bytes, sizeof(filled)));
	}
	free(table);
	return (int)count;
}

VERBS_API ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *out,
				       size_t max, uint32_t flags, size_t out_bytes)
{
	struct rnic_device_attr device;
	size_t count = 0;
	int error = flags ? EINVAL : query_device_attr(context, &device);

	for (uint32_t port = 1; !error && port <= query_min(device.ports, UINT8_MAX); port++) {
		unsigned char *at = (unsigned char *)out + count * out_bytes;
		int got = query_gid_append(context, port, at, out_bytes, max - count);

		if (got < 0)
			error = -got;
		else
			count += (size_t)got;
	}
	return error ? -error : (ssize_t)count;
}

/*
 * Private to rdma-core's own programs, and in its numbering: 0 for InfiniBand and RoCE v1, 1 for
 * RoCE v2.
 */
VERBS_API int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				 int *type)
{
	struct rnic_gid_entry entry;
	int error = query_gid_entry(context, port, index, &entry);

	if (error && error != ENODATA) {
		errno = error;
		return -1;
	}
	*type = !error && entry.type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

VERBS_API int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	struct rnic_port_req req = {.port = port, .index = (uint32_t)index};
	struct ctl_call call = {.op = RNIC_OP_QUERY_PKEY, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_pkey_rsp rsp;
	int error = ctl_conn_query(&ctx_of(context)->ctl, &call, &rsp, sizeof(rsp));

	if (error) {
		errno = error;
		return -1;
	}
	*pkey = htobe16((uint16_t)rsp.pkey);
	return 0;
}

VERBS_API int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 have;

	for (int index = 0; ibv_query_pkey(context, port, index, &have) == 0; index++) {
		if (have == pkey)
			return index;
	}
	return -1;
}
