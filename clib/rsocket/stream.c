/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of streams. */
#include <limits.h>
#include <sys/uio.h>

#include "rs.h"

/* A long transfer begins with small messages, so that the peer begins to read while we write. */
#define STREAM_MESSAGE_FIRST 2048u
#define STREAM_MESSAGE_MAX 65536u

int vector_init(struct rs_vector *v, const struct iovec *iov, size_t count)
{
	*v = (struct rs_vector){.iov = iov, .count = count};
	if (count > IOV_MAX || (count && !iov))
		return EINVAL;
	for (size_t i = 0; i < count; i++) {
		if (iov[i].iov_len > SSIZE_MAX - v->left)
			return EINVAL;
		v->left += iov[i].iov_len;
	}
	return 0;
}

/* The next stretch of memory, at most so many bytes. */
static void *vector_next(struct rs_vector *v, size_t *bytes)
{
	unsigned char *at;
	size_t here;

	while (v->offset == v->iov->iov_len) {
		v->iov++;
		v->offset = 0;
	}
	at = (unsigned char *)v->iov->iov_base + v->offset;
	here = v->iov->iov_len - v->offset;
	if (*bytes > here)
		*bytes = here;
	v->offset += *bytes;
	v->left -= *bytes;
	return at;
}

void vector_take(struct rs_vector *v, void *to, size_t bytes)
{
	unsigned char *at = to;

	while (bytes) {
		size_t some = bytes;
		const void *from = vector_next(v, &some);

		memcpy(at, from, some);
		at += some;
		bytes -= some;
	}
}

void vector_give(struct rs_vector *v, const void *from, size_t bytes)
{
	const unsigned char *at = from;

	while (bytes) {
		size_t some = bytes;
		void *to = vector_next(v, &some);

		memcpy(to, at, some);
		at += some;
		bytes -= some;
	}
}

/*
 * Copies bytes to where a work request may refer to them, while lock is not held: the part of the
 * buffer is ours, as nobody else sends. Returns how much of the buffer it takes.
 */
uint32_t stream_stage(struct rs_socket *rs, struct rs_vector *v, uint32_t bytes,
		      struct rs_pieces *out)
{
	struct rs_endpoint *ep = &rs->ep;
	uint32_t first = rs_min(bytes, rs->opt.send_bytes - ep->send_head);

	out->count = 1;
	out->flags = 0;
	if (bytes <= ep->inline_bytes) {
		vector_take(v, out->inlined, bytes);
		out->sge[0] = (struct ibv_sge){(uintptr_t)out->inlined, bytes, 0};
		out->flags = IBV_SEND_INLINE;
		return 0;
	}
	vector_take(v, ep->send_buf + ep->send_head, first);
	out->sge[0] = (struct ibv_sge){
		(uintptr_t)ep->send_buf + ep->send_head, first, ep->mr->lkey,
	};
	if (first < bytes) {
		vector_take(v, ep->send_buf, bytes - first);
		out->sge[1] = (struct ibv_sge){
			(uintptr_t)ep->send_buf, bytes - first, ep->mr->lkey,
		};
		out->count = 2;
	}
	ep->send_head = (ep->send_head + bytes) % rs->opt.send_bytes;
	return bytes;
}

/*
 * Posts what was staged, with a message or without; its id says how much of the buffer it holds.
 * lock is held.
 */
int stream_post(struct rs_socket *rs, const struct rs_pieces *pieces, struct ibv_send_wr *wr,
		const uint32_t *message)
{
	struct rs_endpoint *ep = &rs->ep;
	struct ibv_send_wr *bad;
	int error;

	wr->sg_list = (struct ibv_sge *)(uintptr_t)pieces->sge;
	wr->num_sge = pieces->count;
	wr->send_flags = pieces->flags;
	ep->send_slots--;
	ep->send_free -= (uint32_t)wr->wr_id;
	wr->wr_id |= CQ_ID_DATA;
	if (message)
		return cq_post_message(rs, wr, *message);
	error = ibv_post_send(rs->id->qp, wr, &bad);
	if (error)
		conn_fail(rs, error);
	return error;
}

static bool stream_may_send(const struct rs_socket *rs)
{
	return cq_can_send(rs) || rs->state != RS_CONNECTED || !rs->can_write;
}

static int stream_error(struct rs_socket *rs)
{
	int error = rs->error;

	rs->error = 0;
	return error ? error : ECONNRESET;
}

static int stream_post_data(struct rs_socket *rs, const struct rs_pieces *pieces, uint32_t bytes,
			    uint32_t held)
{
	struct rs_endpoint *ep = &rs->ep;
	struct wire_sge *target = &ep->targets[ep->target_at];
	const uint32_t message = wire_message(WIRE_DATA, bytes);
	struct ibv_send_wr wr = {
		.wr_id = held,
		.wr.rdma = {.remote_addr = target->addr, .rkey = target->key},
	};

	target->addr += bytes;
	target->length -= bytes;
	if (!target->length) {
		ep->target_at = (ep->target_at + 1) % WIRE_TARGETS;
		ep->target_count--;
	}
	ep->send_seq++;
	return stream_post(rs, pieces, &wr, &message);
}

/* Sends one message; lock is held, but not while bytes are copied. */
static int stream_send_message(struct rs_socket *rs, struct rs_vector *v, uint32_t most)
{
	struct rs_endpoint *ep = &rs->ep;
	uint32_t bytes = rs_min(most, rs_min(ep->send_free, ep->targets[ep->target_at].length));
	struct rs_pieces pieces;
	uint32_t held;

	if (v->left < bytes)
		bytes = (uint32_t)v->left;
	pthread_mutex_unlock(&rs->lock);
	held = stream_stage(rs, v, bytes, &pieces);
	pthread_mutex_lock(&rs->lock);
	if (rs->state != RS_CONNECTED || !rs->can_write) {
		v->left += bytes;
		return 0; /* the caller finds out */
	}
	return stream_post_data(rs, &pieces, bytes, held);
}

static int stream_send_all(struct rs_socket *rs, struct rs_vector *v, struct wait_limit *limit)
{
	uint32_t most = STREAM_MESSAGE_FIRST;
	int error = conn_ready(rs, limit);

	if (!error && rs->iomaps_untold)
		error = iomap_announce(rs, limit);
	while (!error && v->left) {
		if (!cq_can_send(rs))
			error = wait_for(rs, stream_may_send, limit);
		if (error)
			break;
		if (rs->state != RS_CONNECTED)
			return stream_error(rs);
		if (!rs->can_write)
			return EPIPE;
		error = stream_send_message(rs, v, most);
		if (most < STREAM_MESSAGE_MAX)
			most *= 2;
	}
	return error;
}

ssize_t stream_send(struct rs_socket *rs, struct rs_vector *v, int flags)
{
	const size_t all = v->left;
	struct wait_limit limit;
	int error;

	if (flags & MSG_OOB)
		return rs_result(EOPNOTSUPP);
	pthread_mutex_lock(&rs->send_lock);
	pthread_mutex_lock(&rs->lock);
	limit = wait_limit_of(rs, flags, &rs->opt.send_timeout);
	error = stream_send_all(rs, v, &limit);
	if (error == EAGAIN) {
		rs->wants_room = true;
		wait_wake(rs);
	}
	rs->idle_since = 0;
	pthread_mutex_unlock(&rs->lock);
	pthread_mutex_unlock(&rs->send_lock);
	return v->left < all ? (ssize_t)(all - v->left) : rs_result(error);
}

static bool stream_may_recv(const struct rs_socket *rs)
{
	return rs->ep.recv_ready || !rs->can_read;
}

/* Counts bytes as read, and whole messages as well. */
static void stream_consume(struct rs_socket *rs, uint32_t bytes)
{
	struct rs_endpoint *ep = &rs->ep;

	ep->recv_ready -= bytes;
	ep->recv_free += bytes;
	ep->recv_at = (ep->recv_at + bytes) % (ep->recv_half * 2);
	/* A message of no bytes counts with the one before it. */
	while (ep->message_count) {
		uint32_t *first = &ep->messages[ep->message_head];
		uint32_t some = rs_min(*first, bytes);

		*first -= some;
		bytes -= some;
		if (*first)
			break;
		ep->message_head = (ep->message_head + 1) % rs->opt.recv_wrs;
		ep->message_count--;
		ep->recv_seq++;
	}
	cq_grant(rs);
	mirror_update(rs);
}

/*
 * Copies what is there, at most what is wanted; lock is held, but not while bytes are copied:
 * the peer writes elsewhere until they have been consumed.
 */
static void stream_copy(struct rs_socket *rs, struct rs_vector *v, bool discard)
{
	struct rs_endpoint *ep = &rs->ep;
	uint32_t bytes = v->left < ep->recv_ready ? (uint32_t)v->left : ep->recv_ready;
	uint32_t first = rs_min(bytes, ep->recv_half * 2 - ep->recv_at);

	if (discard) {
		v->left -= bytes;
		return;
	}
	pthread_mutex_unlock(&rs->lock);
	vector_give(v, ep->recv_buf + ep->recv_at, first);
	vector_give(v, ep->recv_buf, bytes - first);
	pthread_mutex_lock(&rs->lock);
}

static int stream_recv_all(struct rs_socket *rs, struct rs_vector *v, int flags,
			   const struct wait_limit *limit)
{
	const bool whole = (flags & MSG_WAITALL) && !(flags & MSG_PEEK) && !limit->nonblocking;
	int error = conn_ready(rs, limit);

	if (!v->left)
		return error;
	do {
		size_t before = v->left;

		if (!error && !rs->ep.recv_ready)
			error = wait_for(rs, stream_may_recv, limit);
		if (error)
			return error;
		if (!rs->ep.recv_ready) { /* the end */
			error = rs->error;
			rs->error = 0;
			return error;
		}
		stream_copy(rs, v, flags & MSG_TRUNC);
		if (!(flags & MSG_PEEK))
			stream_consume(rs, (uint32_t)(before - v->left));
	} while (v->left && whole);
	return 0;
}

ssize_t stream_recv(struct rs_socket *rs, struct rs_vector *v, int flags)
{
	const size_t all = v->left;
	struct wait_limit limit;
	int error;

	if (flags & MSG_OOB)
		return rs_result(EINVAL);
	if (flags & MSG_ERRQUEUE)
		return rs_result(EAGAIN);
	pthread_mutex_lock(&rs->recv_lock);
	pthread_mutex_lock(&rs->lock);
	limit = wait_limit_of(rs, flags, &rs->opt.recv_timeout);
	error = stream_recv_all(rs, v, flags, &limit);
	pthread_mutex_unlock(&rs->lock);
	pthread_mutex_unlock(&rs->recv_lock);
	return v->left < all ? (ssize_t)(all - v->left) : rs_result(error);
}
