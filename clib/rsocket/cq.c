/* SPDX-License-Identifier: Apache-2.0 */
/* Completions of a stream: messages from the peer, and what ours give back. */
#include <endian.h>

#include "rs.h"

#define CQ_BATCH 16

static int cq_error_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return ECONNRESET;
	default:
		return EIO;
	}
}

/* Takes over the entries of the target list that the peer has written. */
static void cq_take_targets(struct rs_endpoint *ep)
{
	while (ep->target_count < WIRE_TARGETS) {
		unsigned char *at = ep->shared + ep->target_next * sizeof(struct wire_sge);
		_Atomic uint32_t *length =
			(_Atomic uint32_t *)(void *)(at + offsetof(struct wire_sge, length));
		struct wire_sge sge;

		/* The peer's NIC writes the length last. */
		if (!atomic_load_explicit(length, memory_order_acquire))
			return;
		memcpy(&sge, at, sizeof(sge));
		atomic_store_explicit(length, 0, memory_order_relaxed);
		ep->targets[(ep->target_at + ep->target_count) % WIRE_TARGETS] = sge;
		ep->target_count++;
		ep->target_next = (ep->target_next + 1) % WIRE_TARGETS;
	}
}

static void cq_take_data(struct rs_socket *rs, uint32_t bytes)
{
	struct rs_endpoint *ep = &rs->ep;

	/* Neither happens while the peer keeps to what it was granted. */
	if (bytes > ep->recv_granted || ep->message_count == rs->opt.recv_wrs) {
		conn_fail(rs, EPROTO);
		return;
	}
	ep->recv_granted -= bytes;
	if (!rs->can_read) { /* nobody will read it */
		ep->recv_seq++;
		ep->recv_free += bytes;
		return;
	}
	ep->messages[(ep->message_head + ep->message_count) % rs->opt.recv_wrs] = bytes;
	ep->message_count++;
	ep->recv_ready += bytes;
	rs->arrivals++;
}

static void cq_take_control(struct rs_socket *rs, uint32_t value)
{
	if (value == WIRE_DISCONNECT) {
		conn_fail(rs, 0);
	} else if (value == WIRE_SHUTDOWN) {
		rs->can_read = false;
		if (!rs->can_write)
			conn_fail(rs, 0);
	}
}

static void cq_take_message(struct rs_socket *rs, uint32_t message)
{
	struct rs_endpoint *ep = &rs->ep;
	uint32_t value = wire_message_value(message);

	switch (wire_message_kind(message)) {
	case WIRE_DATA:
		cq_take_data(rs, value);
		break;
	case WIRE_CREDITS:
		ep->send_seq_end = (uint16_t)(value - ep->note_reserve);
		cq_take_targets(ep);
		break;
	case WIRE_IOMAP:
		ep->recv_seq++; /* it was counted as a message by who sent it */
		break;
	case WIRE_CONTROL:
		cq_take_control(rs, value);
		break;
	default: /* reserved */
		break;
	}
}

/* The message that a receive brought. */
static bool cq_message(const struct rs_endpoint *ep, const struct ibv_wc *wc, uint32_t *message)
{
	if (!ep->has_notes) {
		*message = be32toh(wc->imm_data);
		return wc->wc_flags & IBV_WC_WITH_IMM;
	}
	memcpy(message, ep->notes + (uint32_t)wc->wr_id * WIRE_NOTE_BYTES, WIRE_NOTE_BYTES);
	return wc->byte_len == WIRE_NOTE_BYTES;
}

static void cq_take(struct rs_socket *rs, const struct ibv_wc *wc, uint32_t *received)
{
	struct rs_endpoint *ep = &rs->ep;
	const uint64_t kind = wc->wr_id & ~0xffffffffull;
	uint32_t message;

	if (kind == CQ_ID_DATA) {
		ep->send_slots++;
		ep->send_free += (uint32_t)wc->wr_id;
	} else if (kind == CQ_ID_CONTROL) {
		ep->control_slots++;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		if (rs->state != RS_CLOSED)
			conn_fail(rs, cq_error_of(wc->status));
		return;
	}
	if (kind != CQ_ID_RECV)
		return;
	++*received;
	if (rs->state == RS_ACCEPTING)
		rs->state = RS_CONNECTED; /* whoever sends has had our reply */
	if (rs->state == RS_CONNECTED && cq_message(ep, wc, &message))
		cq_take_message(rs, message);
}

/* Receives that are posted all the time. */
uint32_t cq_receives(const struct rs_socket *rs)
{
	return rs->opt.recv_wrs + (rs->ep.has_notes ? WIRE_NOTES_SPARE : 0);
}

/* Posts receives. They complete in order, so that the place of the oldest is free. */
int cq_post_receives(struct rs_socket *rs, uint32_t count)
{
	struct rs_endpoint *ep = &rs->ep;
	struct ibv_recv_wr wrs[CQ_BATCH], *bad;
	struct ibv_sge sges[CQ_BATCH];
	int error = 0;

	while (!error && count) {
		const uint32_t some = rs_min(count, CQ_BATCH);

		for (uint32_t i = 0; i < some; i++) {
			wrs[i] = (struct ibv_recv_wr){
				.wr_id = CQ_ID_RECV | ep->note_next,
				.next = i + 1 < some ? &wrs[i + 1] : NULL,
			};
			if (!ep->has_notes)
				continue;
			sges[i] = (struct ibv_sge){
				(uintptr_t)ep->notes + ep->note_next * WIRE_NOTE_BYTES,
				WIRE_NOTE_BYTES, ep->mr->lkey,
			};
			wrs[i].sg_list = &sges[i];
			wrs[i].num_sge = 1;
			ep->note_next = (ep->note_next + 1) % cq_receives(rs);
		}
		error = ibv_post_recv(rs->id->qp, wrs, &bad);
		count -= some;
	}
	return error;
}

static void cq_repost(struct rs_socket *rs, uint32_t count)
{
	int error = cq_post_receives(rs, count);

	if (error)
		conn_fail(rs, error);
}

void cq_progress(struct rs_socket *rs)
{
	struct ibv_wc wc[CQ_BATCH];
	int count;
	bool any = false;

	if (!rs->ep.cq || rs->is_orphan)
		return;
	/* On iWARP the peer's first messages may be here before the news of the connection. */
	if (rs->state == RS_CONNECTING)
		return;
	do {
		uint32_t received = 0;

		count = ibv_poll_cq(rs->ep.cq, CQ_BATCH, wc);
		for (int i = 0; i < count; i++)
			cq_take(rs, &wc[i], &received);
		if (rs->state == RS_CONNECTED)
			cq_repost(rs, received);
		any |= count > 0;
	} while (count == CQ_BATCH);
	if (count < 0 && rs->state != RS_CLOSED)
		conn_fail(rs, EIO);
	if (!any)
		return;
	cq_grant(rs);
	wait_wake(rs);
}

static int cq_post(struct rs_socket *rs, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(rs->id->qp, wr, &bad);

	if (error)
		conn_fail(rs, error);
	return error;
}

int cq_post_message(struct rs_socket *rs, struct ibv_send_wr *wr, uint32_t message)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&message, .length = WIRE_NOTE_BYTES};
	struct ibv_send_wr note = {
		.wr_id = wr->wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};

	if (!rs->ep.has_notes) {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htobe32(message);
		return cq_post(rs, wr);
	}
	if (!wr->num_sge)
		return cq_post(rs, &note);
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr_id = CQ_ID_WRITE;
	wr->next = &note;
	return cq_post(rs, wr);
}

int cq_post_control(struct rs_socket *rs, uint32_t message)
{
	struct ibv_send_wr wr = {.wr_id = CQ_ID_CONTROL};

	rs->ep.control_slots--;
	return cq_post_message(rs, &wr, message);
}

/* A write of nothing: the peer's NIC answers it, its rsocket hears nothing of it. */
int cq_post_keepalive(struct rs_socket *rs)
{
	struct ibv_send_wr wr = {.wr_id = CQ_ID_CONTROL, .opcode = IBV_WR_RDMA_WRITE};

	if (rs->state != RS_CONNECTED || !rs->ep.control_slots)
		return 0;
	rs->ep.control_slots--;
	return cq_post(rs, &wr);
}

/* Tells the peer of the half that has been read, along with how much it may send. */
static void cq_grant_half(struct rs_socket *rs, uint32_t message)
{
	struct rs_endpoint *ep = &rs->ep;
	struct wire_sge grant = {
		(uintptr_t)ep->recv_buf + ep->grant_at, ep->mr->rkey, ep->recv_half,
	};
	struct ibv_sge sge = {.addr = (uintptr_t)&grant, .length = sizeof(grant)};
	struct ibv_send_wr wr = {
		.wr_id = CQ_ID_CONTROL,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma.remote_addr = ep->peer_list.addr +
				       (uint64_t)ep->peer_next * sizeof(grant),
		.wr.rdma.rkey = ep->peer_list.key,
	};

	if (ep->swap)
		wire_sge_swap(&grant);
	ep->control_slots--;
	ep->recv_free -= ep->recv_half;
	ep->recv_granted += ep->recv_half;
	ep->grant_at = ep->grant_at ? 0 : ep->recv_half;
	ep->peer_next = (ep->peer_next + 1) % ep->peer_list.length;
	cq_post_message(rs, &wr, message);
}

/* Sends what is due: the end of a direction, else how much more the peer may send. */
void cq_grant(struct rs_socket *rs)
{
	struct rs_endpoint *ep = &rs->ep;
	const bool half = ep->recv_free >= ep->recv_half;
	const bool due = (int16_t)(ep->recv_seq - ep->recv_told_at) >= 0;
	uint32_t message;

	if (rs->state != RS_CONNECTED || !ep->control_slots)
		return;
	if (ep->end_due) {
		message = ep->end_due;
		ep->end_due = 0;
		ep->end_told = message == wire_message(WIRE_CONTROL, WIRE_DISCONNECT);
		cq_post_control(rs, message);
		return;
	}
	if (ep->end_told || (!half && !due))
		return;
	ep->recv_told_at = (uint16_t)(ep->recv_seq + rs->opt.recv_wrs / 2);
	message = wire_message(WIRE_CREDITS, (uint16_t)(ep->recv_seq + rs->opt.recv_wrs));
	if (half)
		cq_grant_half(rs, message);
	else
		cq_post_control(rs, message);
}

bool cq_can_send(const struct rs_socket *rs)
{
	const struct rs_endpoint *ep = &rs->ep;

	return rs->state == RS_CONNECTED && rs->can_write && ep->send_slots &&
	       ep->send_free >= WIRE_LOW_WATER && ep->send_seq != ep->send_seq_end &&
	       ep->target_count;
}

bool cq_all_sent(const struct rs_socket *rs)
{
	return rs->ep.send_slots + rs->ep.control_slots == rs->opt.send_wrs;
}

void cq_arm(struct rs_socket *rs)
{
	if (!rs->ep.cq || rs->ep.armed || rs->is_orphan)
		return;
	rs->ep.armed = true;
	ibv_req_notify_cq(rs->ep.cq, 0);
}

void cq_take_event(struct rs_socket *rs)
{
	struct ibv_cq *cq;
	void *context;

	if (!rs->ep.channel || ibv_get_cq_event(rs->ep.channel, &cq, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	rs->ep.armed = false;
}
