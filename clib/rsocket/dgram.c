/* SPDX-License-Identifier: Apache-2.0 */
/* Datagram sockets. */
#include "dgram.h"

#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "raw.h"

/* Without news a look at the UDP socket, which costs a system call, is due now and then only. */
#define DGRAM_LOOK_EVERY 32
#define DGRAM_CLOSE_MS 1000

int dgram_create(struct rs_socket *rs)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct rs_dgram *dgram = calloc(1, sizeof(*dgram));

	if (!dgram)
		return ENOMEM;
	rs->dgram = dgram;
	rs->state = RS_DATAGRAM;
	dgram->last = &dgram->first;
	dgram->epfd = -1;
	dgram->udp = (int)syscall(SYS_socket, rs->domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (dgram->udp < 0)
		return errno;
	dgram->epfd = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	if (dgram->epfd < 0 ||
	    syscall(SYS_epoll_ctl, dgram->epfd, EPOLL_CTL_ADD, dgram->udp, &event))
		return errno;
	return 0;
}

/* Sizes are settled when the socket is first used. */
static int dgram_prepare(struct rs_socket *rs)
{
	struct rs_dgram *dgram = rs->dgram;
	struct rs_options *opt = &rs->opt;

	if (dgram->send_buf)
		return 0;
	/* As many slots as the buffers that were asked for hold, within the queues' sizes. */
	opt->send_wrs = rs_min(rs_min(opt->send_wrs, opt->send_bytes / WIRE_LOW_WATER), 1024);
	opt->recv_wrs = rs_min(rs_min(opt->recv_wrs, opt->recv_bytes / WIRE_LOW_WATER), 1024);
	opt->send_wrs = opt->send_wrs ? opt->send_wrs : 1;
	opt->recv_wrs = opt->recv_wrs ? opt->recv_wrs : 1;
	opt->inline_bytes = rs_min(opt->inline_bytes, WIRE_INLINE_MAX);
	dgram->free_slots = calloc(opt->send_wrs, sizeof(*dgram->free_slots));
	if (!dgram->free_slots)
		return ENOMEM;
	dgram->send_buf = ep_alloc((size_t)opt->send_wrs * WIRE_LOW_WATER);
	if (!dgram->send_buf)
		return ENOMEM;
	for (uint32_t i = 0; i < opt->send_wrs; i++)
		dgram->free_slots[dgram->free_count++] = i;
	return 0;
}

static void dgram_free_messages(struct dgram_message *message)
{
	while (message) {
		struct dgram_message *next = message->next;

		free(message);
		message = next;
	}
}

void dgram_destroy(struct rs_socket *rs)
{
	struct rs_dgram *dgram = rs->dgram;

	dgram_peer_free_all(dgram);
	while (dgram->qps) {
		struct dgram_qp *qp = dgram->qps;

		dgram->qps = qp->next;
		dgram_qp_free(rs, qp);
	}
	dgram_free_messages(dgram->first);
	dgram_free_messages(dgram->spare);
	ep_free(dgram->send_buf, (size_t)rs->opt.send_wrs * WIRE_LOW_WATER);
	free(dgram->free_slots);
	if (dgram->udp >= 0)
		raw_close(dgram->udp);
	if (dgram->epfd >= 0)
		raw_close(dgram->epfd);
	free(dgram);
	rs->dgram = NULL;
}

int dgram_udp_fd(const struct rs_socket *rs)
{
	return rs->dgram->udp;
}

int dgram_wait_fd(const struct rs_socket *rs)
{
	return rs->dgram->epfd;
}

bool dgram_can_send(const struct rs_socket *rs)
{
	return !rs->dgram->send_buf || rs->dgram->free_count;
}

bool dgram_can_recv(const struct rs_socket *rs)
{
	return rs->dgram->first;
}

static bool dgram_may_recv(const struct rs_socket *rs)
{
	return rs->dgram->first || rs->error;
}

static bool dgram_may_send(const struct rs_socket *rs)
{
	return rs->dgram->free_count || rs->error;
}

static bool dgram_all_sent(const struct rs_socket *rs)
{
	return !rs->dgram->send_buf || rs->dgram->free_count == rs->opt.send_wrs || rs->error;
}

void dgram_finish(struct rs_socket *rs)
{
	const struct wait_limit limit = {.until = rs_now_us() + DGRAM_CLOSE_MS * 1000};

	wait_for(rs, dgram_all_sent, &limit);
}

static ssize_t dgram_send_udp(struct rs_socket *rs, struct dgram_peer *peer, uint8_t op,
			      struct iovec *data)
{
	const struct wire_udp udp = {op, peer->qp->id->qp->qp_num, peer->qp->local};
	unsigned char header[WIRE_UDP_BYTES_V6];
	struct iovec iov[2] = {{header, wire_udp_write(header, &udp)}};
	struct msghdr msg = {
		.msg_name = &peer->addr,
		.msg_namelen = dgram_name_bytes(&peer->addr),
		.msg_iov = iov,
		.msg_iovlen = data ? 2 : 1,
	};

	if (data)
		iov[1] = *data;
	return syscall(SYS_sendmsg, rs->dgram->udp, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void dgram_queue_udp(struct rs_socket *rs, const struct sockaddr_storage *from,
			    const unsigned char *data, size_t bytes)
{
	struct rs_dgram *dgram = rs->dgram;
	struct dgram_message *message;

	if (dgram->from_udp >= DGRAM_UDP_MAX)
		return;
	message = malloc(sizeof(*message) + bytes);
	if (!message)
		return;
	*message = (struct dgram_message){.from = *from, .bytes = (uint32_t)bytes};
	message->data = (const unsigned char *)(message + 1);
	memcpy(message + 1, data, bytes);
	*dgram->last = message;
	dgram->last = &message->next;
	dgram->from_udp++;
	rs->arrivals++;
}

/* Takes one datagram off the UDP socket. Returns false when there is none. */
static bool dgram_take_udp(struct rs_socket *rs)
{
	unsigned char data[WIRE_UDP_BYTES_V6 + WIRE_LOW_WATER];
	struct sockaddr_storage from;
	socklen_t from_bytes = sizeof(from);
	struct dgram_peer *peer;
	struct wire_udp udp;
	size_t header;
	ssize_t got;

	memset(&from, 0, sizeof(from));
	got = syscall(SYS_recvfrom, rs->dgram->udp, data, sizeof(data), MSG_DONTWAIT, &from,
		      &from_bytes);
	if (got < 0)
		return errno == EINTR || errno == ECONNREFUSED;
	header = wire_udp_read(&udp, data, (size_t)got);
	if (!header || udp.from.ss_family != from.ss_family ||
	    dgram_peer_get(rs, (struct sockaddr *)&from, &peer))
		return true; /* somebody else's */
	dgram_peer_learn(rs, peer, udp.qpn);
	if (udp.op != WIRE_UDP_DATA)
		return true;
	dgram_send_udp(rs, peer, WIRE_UDP_REPLY, NULL);
	dgram_queue_udp(rs, &from, data + header, (size_t)got - header);
	return true;
}

void dgram_progress(struct rs_socket *rs)
{
	struct rs_dgram *dgram = rs->dgram;
	const uint32_t before = rs->arrivals, free_before = dgram->free_count;

	if (rs->is_orphan || !dgram->send_buf)
		return;
	if (dgram->look_at_udp || dgram->unknown || ++dgram->looks % DGRAM_LOOK_EVERY == 0) {
		dgram->look_at_udp = false;
		for (int i = 0; i < DGRAM_LOOK_EVERY && dgram_take_udp(rs); i++)
			dgram->look_at_udp = i + 1 == DGRAM_LOOK_EVERY;
	}
	for (struct dgram_qp *qp = dgram->qps; qp; qp = qp->next)
		dgram_qp_poll(rs, qp);
	if (rs->arrivals != before || dgram->free_count != free_before)
		wait_wake(rs);
}

void dgram_news(struct rs_socket *rs)
{
	struct ibv_cq *cq;
	void *context;

	for (struct dgram_qp *qp = rs->dgram->qps; qp; qp = qp->next) {
		if (qp->armed && !ibv_get_cq_event(qp->channel, &cq, &context)) {
			ibv_ack_cq_events(cq, 1);
			qp->armed = false;
		}
	}
	rs->dgram->look_at_udp = true;
	dgram_progress(rs);
}

int dgram_bind(struct rs_socket *rs, const struct sockaddr *addr, socklen_t bytes)
{
	int error = dgram_prepare(rs);

	if (!error && syscall(SYS_bind, rs->dgram->udp, addr, bytes))
		error = errno;
	return error;
}

static int dgram_connect_locked(struct rs_socket *rs, const struct sockaddr *addr, socklen_t bytes)
{
	int error = rs->is_orphan ? EBADF : dgram_prepare(rs);

	if (!error && syscall(SYS_connect, rs->dgram->udp, addr, bytes))
		error = errno;
	if (!error)
		error = dgram_peer_get(rs, addr, &rs->dgram->connected);
	if (!error) {
		memset(&rs->peer, 0, sizeof(rs->peer));
		memcpy(&rs->peer, addr, dgram_name_bytes(addr));
	}
	return error;
}

int dgram_connect(struct rs_socket *rs, const struct sockaddr *addr, socklen_t bytes)
{
	int error;

	pthread_mutex_lock(&rs->lock);
	error = dgram_connect_locked(rs, addr, bytes);
	pthread_mutex_unlock(&rs->lock);
	return error;
}

static int dgram_choose_peer(struct rs_socket *rs, const struct dgram_name *to,
			     struct dgram_peer **peer)
{
	int error = rs->is_orphan ? EBADF : dgram_prepare(rs);

	if (error)
		return error;
	if (!to || !to->addr) {
		*peer = rs->dgram->connected;
		return *peer ? 0 : EDESTADDRREQ;
	}
	error = rs_check_name(to->addr, *to->bytes);
	return error ? error : dgram_peer_get(rs, to->addr, peer);
}

static int dgram_post(struct rs_socket *rs, const struct dgram_peer *peer, struct rs_vector *v)
{
	struct rs_dgram *dgram = rs->dgram;
	const uint32_t slot = dgram->free_slots[dgram->free_count - 1];
	unsigned char *at = dgram->send_buf + (size_t)slot * WIRE_LOW_WATER;
	size_t header = wire_from_write(at, (const struct sockaddr *)&peer->qp->local);
	struct ibv_sge sge = {
		.addr = (uintptr_t)at,
		.length = (uint32_t)(header + v->left),
		.lkey = peer->qp->send_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = sge.length <= rs->opt.inline_bytes ? IBV_SEND_INLINE : 0,
		.wr.ud = {peer->ah, peer->qpn, RDMA_UDP_QKEY},
	}, *bad;
	int error;

	vector_take(v, at + header, v->left);
	error = ibv_post_send(peer->qp->id->qp, &wr, &bad);
	if (!error)
		dgram->free_count--;
	return error;
}

/* A datagram over UDP is one piece of memory, as it is small. */
static int dgram_post_udp(struct rs_socket *rs, struct dgram_peer *peer, struct rs_vector *v)
{
	unsigned char data[WIRE_LOW_WATER];
	struct iovec iov = {data, v->left};

	vector_take(v, data, v->left);
	if (dgram_send_udp(rs, peer, WIRE_UDP_DATA, &iov) >= 0)
		return 0;
	return errno;
}

static size_t dgram_header_bytes(const struct dgram_peer *peer)
{
	return peer->addr.ss_family == AF_INET6 ? WIRE_FROM_BYTES_V6 : WIRE_FROM_BYTES_V4;
}

/* What is too long for a packet of the queue pair still fits UDP, which has fragments. */
static bool dgram_fits(const struct dgram_peer *peer, size_t bytes)
{
	return peer->ah && bytes + dgram_header_bytes(peer) <= peer->qp->max_bytes;
}

ssize_t dgram_send(struct rs_socket *rs, struct rs_vector *v, int flags,
		   const struct dgram_name *to)
{
	const size_t all = v->left;
	struct dgram_peer *peer = NULL;
	struct wait_limit limit;
	int error;

	pthread_mutex_lock(&rs->lock);
	limit = wait_limit_of(rs, flags, &rs->opt.send_timeout);
	error = dgram_choose_peer(rs, to, &peer);
	if (!error && all > WIRE_LOW_WATER - dgram_header_bytes(peer))
		error = EMSGSIZE;
	if (!error) {
		wait_progress(rs); /* it may bring the peer's queue pair */
		if (!rs->dgram->free_count)
			error = wait_for(rs, dgram_may_send, &limit);
	}
	if (!error && rs->error) {
		error = rs->error;
		rs->error = 0;
	} else if (!error) {
		error = dgram_fits(peer, all) ? dgram_post(rs, peer, v) :
						dgram_post_udp(rs, peer, v);
	}
	if (error == EAGAIN) {
		rs->wants_room = true;
		wait_wake(rs);
	}
	pthread_mutex_unlock(&rs->lock);
	return error ? rs_result(error) : (ssize_t)all;
}

static void dgram_take_first(struct rs_socket *rs)
{
	struct rs_dgram *dgram = rs->dgram;
	struct dgram_message *message = dgram->first;

	dgram->first = message->next;
	if (!dgram->first)
		dgram->last = &dgram->first;
	if (message->qp) {
		dgram_qp_repost(message->qp, message->slot);
		message->next = dgram->spare;
		dgram->spare = message;
	} else {
		dgram->from_udp--;
		free(message);
	}
	mirror_update(rs);
}

ssize_t dgram_recv(struct rs_socket *rs, struct rs_vector *v, int flags,
		   const struct dgram_name *from)
{
	struct dgram_message *message;
	struct wait_limit limit;
	size_t bytes;
	int error;

	pthread_mutex_lock(&rs->lock);
	limit = wait_limit_of(rs, flags, &rs->opt.recv_timeout);
	error = rs->is_orphan ? EBADF : dgram_prepare(rs);
	if (!error && !rs->dgram->first)
		error = wait_for(rs, dgram_may_recv, &limit);
	message = rs->dgram->first;
	if (error || !message) {
		error = error ? error : rs->error;
		rs->error = 0;
		pthread_mutex_unlock(&rs->lock);
		return rs_result(error ? error : EAGAIN);
	}
	bytes = message->bytes < v->left ? message->bytes : v->left;
	vector_give(v, message->data, bytes);
	if (flags & MSG_TRUNC)
		bytes = message->bytes;
	if (from && from->addr && from->bytes)
		rs_give_name(&message->from, from->addr, from->bytes);
	if (!(flags & MSG_PEEK))
		dgram_take_first(rs);
	pthread_mutex_unlock(&rs->lock);
	return (ssize_t)bytes;
}
