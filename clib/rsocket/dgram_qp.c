/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pair of a local address. */
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "attr.h"
#include "dgram.h"
#include "raw.h"

#define QP_BATCH 16
#define QP_ID_RECV (1ull << 32) /* with the slot below */

void dgram_qp_repost(struct dgram_qp *qp, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)qp->recv_buf + (size_t)slot * DGRAM_SLOT_BYTES,
		.length = DGRAM_SLOT_BYTES,
		.lkey = qp->recv_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = QP_ID_RECV | slot, .sg_list = &sge, .num_sge = 1}, *bad;

	/* It fails when the NIC is gone, which the next completion tells. */
	ibv_post_recv(qp->id->qp, &wr, &bad);
}

static int qp_create(struct rs_socket *rs, struct dgram_qp *qp)
{
	const size_t recv_bytes = (size_t)rs->opt.recv_wrs * DGRAM_SLOT_BYTES;
	const size_t send_bytes = (size_t)rs->opt.send_wrs * WIRE_LOW_WATER;
	const int access = IBV_ACCESS_LOCAL_WRITE | RNIC_ACCESS_UNSHARED;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = {rs->opt.send_wrs, rs->opt.recv_wrs, 1, 1, rs->opt.inline_bytes},
	};

	qp->channel = ibv_create_comp_channel(qp->id->verbs);
	if (!qp->channel)
		return errno;
	raw_fcntl(qp->channel->fd, F_SETFL, O_NONBLOCK);
	qp->cq = ibv_create_cq(qp->id->verbs, (int)(rs->opt.send_wrs + rs->opt.recv_wrs), NULL,
			       qp->channel, 0);
	if (!qp->cq)
		return errno;
	attr.send_cq = attr.recv_cq = qp->cq;
	if (rdma_create_qp(qp->id, NULL, &attr))
		return errno;
	qp->recv_buf = ep_alloc(recv_bytes);
	if (!qp->recv_buf)
		return ENOMEM;
	qp->recv_mr = ibv_reg_mr(qp->id->pd, qp->recv_buf, recv_bytes, access);
	/* Every queue pair sends from the same buffer, so pages of it must not move any more. */
	if (qp->recv_mr)
		qp->send_mr = ibv_reg_mr(qp->id->pd, rs->dgram->send_buf, send_bytes,
					 IBV_ACCESS_LOCAL_WRITE);
	return qp->send_mr ? 0 : errno;
}

static int qp_start(struct rs_socket *rs, struct dgram_qp *qp)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = qp};
	struct ibv_port_attr port;
	int error;

	if (rdma_create_id(NULL, &qp->id, NULL, RDMA_PS_UDP))
		return errno;
	if (rdma_bind_addr(qp->id, (struct sockaddr *)&qp->local))
		return errno;
	if (!qp->id->verbs)
		return ENODEV;
	error = ibv_query_port(qp->id->verbs, qp->id->port_num, &port);
	if (error)
		return error;
	qp->max_bytes = rs_min(128u << port.active_mtu, WIRE_LOW_WATER);
	error = qp_create(rs, qp);
	if (error)
		return error;
	if (syscall(SYS_epoll_ctl, rs->dgram->epfd, EPOLL_CTL_ADD, qp->channel->fd, &event))
		return errno;
	for (uint32_t slot = 0; slot < rs->opt.recv_wrs; slot++)
		dgram_qp_repost(qp, slot);
	return 0;
}

void dgram_qp_free(struct rs_socket *rs, struct dgram_qp *qp)
{
	if (qp->id && qp->id->qp)
		rdma_destroy_qp(qp->id);
	if (qp->recv_mr)
		ibv_dereg_mr(qp->recv_mr);
	if (qp->send_mr)
		ibv_dereg_mr(qp->send_mr);
	if (qp->cq)
		ibv_destroy_cq(qp->cq);
	if (qp->channel)
		ibv_destroy_comp_channel(qp->channel);
	if (qp->id)
		rdma_destroy_id(qp->id);
	ep_free(qp->recv_buf, (size_t)rs->opt.recv_wrs * DGRAM_SLOT_BYTES);
	free(qp);
}

int dgram_qp_get(struct rs_socket *rs, const struct sockaddr *local, struct dgram_qp **out)
{
	struct dgram_qp *qp;
	int error;

	for (qp = rs->dgram->qps; qp && !dgram_same_name(&qp->local, local); qp = qp->next)
		;
	if (qp) {
		*out = qp;
		return 0;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return ENOMEM;
	memcpy(&qp->local, local, dgram_name_bytes(local));
	error = qp_start(rs, qp);
	if (error) {
		dgram_qp_free(rs, qp);
		return error;
	}
	qp->next = rs->dgram->qps;
	rs->dgram->qps = qp;
	*out = qp;
	return 0;
}

/* Queues a datagram, unless it is none of ours. */
static bool qp_take(struct rs_socket *rs, struct dgram_qp *qp, const struct ibv_wc *wc)
{
	struct rs_dgram *dgram = rs->dgram;
	struct dgram_message *message = dgram->spare;
	const uint32_t slot = (uint32_t)wc->wr_id;
	const unsigned char *data =
		qp->recv_buf + (size_t)slot * DGRAM_SLOT_BYTES + DGRAM_GRH_BYTES;
	struct sockaddr_storage from;
	size_t header;

	if (wc->status != IBV_WC_SUCCESS || wc->byte_len < DGRAM_GRH_BYTES)
		return false;
	header = wire_from_read(&from, data, wc->byte_len - DGRAM_GRH_BYTES);
	if (!header || (dgram->connected && !dgram_same_name(&from, &dgram->connected->addr)))
		return false;
	if (message)
		dgram->spare = message->next;
	else
		message = malloc(sizeof(*message));
	if (!message)
		return false;
	*message = (struct dgram_message){
		.from = from,
		.qp = qp,
		.slot = slot,
		.bytes = (uint32_t)(wc->byte_len - DGRAM_GRH_BYTES - header),
		.data = data + header,
	};
	*dgram->last = message;
	dgram->last = &message->next;
	rs->arrivals++;
	return true;
}

void dgram_qp_poll(struct rs_socket *rs, struct dgram_qp *qp)
{
	struct rs_dgram *dgram = rs->dgram;
	struct ibv_wc wc[QP_BATCH];
	int count;

	/* Armed before it is polled: so whoever sleeps afterwards wakes. */
	if (!qp->armed) {
		qp->armed = true;
		ibv_req_notify_cq(qp->cq, 0);
	}
	do {
		count = ibv_poll_cq(qp->cq, QP_BATCH, wc);
		for (int i = 0; i < count; i++) {
			if (!(wc[i].wr_id & QP_ID_RECV))
				dgram->free_slots[dgram->free_count++] = (uint32_t)wc[i].wr_id;
			else if (!qp_take(rs, qp, &wc[i]) && wc[i].status == IBV_WC_SUCCESS)
				dgram_qp_repost(qp, (uint32_t)wc[i].wr_id);
		}
	} while (count == QP_BATCH);
	if (count < 0)
		rs->error = EIO;
}
