/* SPDX-License-Identifier: Apache-2.0 */
#include "attr.h"

#include <string.h>

void attr_ah_to_abi(struct rnic_ah_attr *out, const struct ibv_ah_attr *in)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->dgid, in->grh.dgid.raw, sizeof(out->dgid));
	out->flow_label = in->grh.flow_label;
	out->sgid_index = in->grh.sgid_index;
	out->hop_limit = in->grh.hop_limit;
	out->traffic_class = in->grh.traffic_class;
	out->is_global = in->is_global != 0;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->port = in->port_num;
}

void attr_ah_from_abi(struct ibv_ah_attr *out, const struct rnic_ah_attr *in)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->grh.dgid.raw, in->dgid, sizeof(in->dgid));
	out->grh.flow_label = in->flow_label;
	out->grh.sgid_index = in->sgid_index;
	out->grh.hop_limit = in->hop_limit;
	out->grh.traffic_class = in->traffic_class;
	out->is_global = in->is_global;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->port_num = in->port;
}

void attr_qp_to_abi(struct rnic_qp_attr *out, const struct ibv_qp_attr *in)
{
	*out = (struct rnic_qp_attr){
		.state = in->qp_state,
		.cur_state = in->cur_qp_state,
		.path_mtu = in->path_mtu,
		.path_mig_state = in->path_mig_state,
		.qkey = in->qkey,
		.rq_psn = in->rq_psn,
		.sq_psn = in->sq_psn,
		.dest_qpn = in->dest_qp_num,
		.access_flags = in->qp_access_flags,
		.max_send_wr = in->cap.max_send_wr,
		.max_recv_wr = in->cap.max_recv_wr,
		.max_send_sge = in->cap.max_send_sge,
		.max_recv_sge = in->cap.max_recv_sge,
		.max_inline = in->cap.max_inline_data,
		.pkey_index = in->pkey_index,
		.alt_pkey_index = in->alt_pkey_index,
		.en_sqd_async_notify = in->en_sqd_async_notify,
		.sq_draining = in->sq_draining,
		.max_rd_atomic = in->max_rd_atomic,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.min_rnr_timer = in->min_rnr_timer,
		.port = in->port_num,
		.timeout = in->timeout,
		.retry_cnt = in->retry_cnt,
		.rnr_retry = in->rnr_retry,
		.alt_port = in->alt_port_num,
		.alt_timeout = in->alt_timeout,
		.rate_limit = in->rate_limit,
	};
	attr_ah_to_abi(&out->ah, &in->ah_attr);
	attr_ah_to_abi(&out->alt_ah, &in->alt_ah_attr);
}

void attr_qp_from_abi(struct ibv_qp_attr *out, const struct rnic_qp_attr *in)
{
	*out = (struct ibv_qp_attr){
		.qp_state = (enum ibv_qp_state)in->state,
		.cur_qp_state = (enum ibv_qp_state)in->cur_state,
		.path_mtu = (enum ibv_mtu)in->path_mtu,
		.path_mig_state = (enum ibv_mig_state)in->path_mig_state,
		.qkey = in->qkey,
		.rq_psn = in->rq_psn,
		.sq_psn = in->sq_psn,
		.dest_qp_num = in->dest_qpn,
		.qp_access_flags = in->access_flags,
		.pkey_index = in->pkey_index,
		.alt_pkey_index = in->alt_pkey_index,
		.en_sqd_async_notify = in->en_sqd_async_notify,
		.sq_draining = in->sq_draining,
		.max_rd_atomic = in->max_rd_atomic,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.min_rnr_timer = in->min_rnr_timer,
		.port_num = in->port,
		.timeout = in->timeout,
		.retry_cnt = in->retry_cnt,
		.rnr_retry = in->rnr_retry,
		.alt_port_num = in->alt_port,
		.alt_timeout = in->alt_timeout,
		.rate_limit = in->rate_limit,
	};
	attr_ah_from_abi(&out->ah_attr, &in->ah);
	attr_ah_from_abi(&out->alt_ah_attr, &in->alt_ah);
}
