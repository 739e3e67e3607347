/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of streams: asked for, accepted, ended. */
#include <fcntl.h>
#include <unistd.h>

#include "raw.h"
#include "rs.h"

#define CONN_RESOLVE_MS 8000
#define CONN_RETRIES 7 /* the most that a 3-bit field holds */

bool conn_is_opening(const struct rs_socket *rs)
{
	return rs->state >= RS_RESOLVING_ADDR && rs->state <= RS_ACCEPTING;
}

bool conn_is_settled(const struct rs_socket *rs)
{
	return !conn_is_opening(rs);
}

/* The connection ends, for both directions. What has been received can still be read. */
void conn_fail(struct rs_socket *rs, int error)
{
	if (rs->state == RS_CLOSED)
		return;
	rs->state = RS_CLOSED;
	rs->can_read = rs->can_write = false;
	if (error)
		rs->error = error;
	wait_wake(rs);
}

static void conn_established(struct rs_socket *rs)
{
	if (!conn_is_opening(rs))
		return;
	rs->state = RS_CONNECTED;
	cq_progress(rs);
	cq_grant(rs);
	wait_wake(rs);
}

static struct rdma_conn_param conn_param(const struct rs_socket *rs, unsigned char *data)
{
	struct wire_conn own;

	ep_describe(rs, &own);
	wire_conn_write(data, &own);
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = WIRE_CONN_BYTES,
		.flow_control = 1,
		.retry_count = CONN_RETRIES,
		.rnr_retry_count = CONN_RETRIES, /* for ever */
	};
}

static int conn_request(struct rs_socket *rs)
{
	unsigned char data[WIRE_CONN_BYTES];
	struct rdma_conn_param param;
	int error = ep_create(rs);

	if (!error && rs->is_served)
		error = service_watch(rs); /* of the new descriptor too */
	if (error)
		return error;
	param = conn_param(rs, data);
	rs->state = RS_CONNECTING;
	return rdma_connect(rs->id, &param) ? errno : 0;
}

static int conn_response(struct rs_socket *rs, const struct rdma_conn_param *param)
{
	int error = ep_attach(rs, param->private_data, param->private_data_len);

	if (error)
		return error;
	rs->can_read = rs->can_write = true;
	conn_established(rs);
	return 0;
}

static int conn_accept(struct rs_socket *rs, const struct rdma_conn_param *asked)
{
	unsigned char data[WIRE_CONN_BYTES];
	struct rdma_conn_param param;
	int error = ep_create(rs);

	if (!error && rs->is_served)
		error = service_watch(rs);
	if (!error)
		error = ep_attach(rs, asked->private_data, asked->private_data_len);
	if (error)
		return error;
	param = conn_param(rs, data);
	param.responder_resources = asked->responder_resources;
	param.initiator_depth = asked->initiator_depth;
	rs->state = RS_ACCEPTING;
	rs->can_read = rs->can_write = true;
	return rdma_accept(rs->id, &param) ? errno : 0;
}

static int conn_make_channel(struct rs_socket *rs)
{
	rs->channel = rdma_create_event_channel();
	if (!rs->channel)
		return errno;
	raw_fcntl(rs->channel->fd, F_SETFL, O_NONBLOCK);
	return 0;
}

/* Makes a socket of a request, or turns it down. */
static void conn_take_request(struct rs_socket *listener, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct rs_socket *rs = NULL, **at;
	int error = rs_new(listener->domain, SOCK_STREAM, &listener->opt, &rs);

	if (!error)
		error = conn_make_channel(rs);
	if (!error && rdma_migrate_id(id, rs->channel))
		error = errno;
	if (!error) {
		rs->id = id;
		id->context = rs;
		rs->nonblocking = listener->nonblocking;
		rs->is_served = listener->is_served;
		memcpy(&rs->peer, &id->route.addr.dst_storage, sizeof(rs->peer));
		/* The service may hear of it before it is accepted. */
		pthread_mutex_lock(&rs->lock);
		error = conn_accept(rs, &event->param.conn);
		pthread_mutex_unlock(&rs->lock);
	}
	if (error) {
		rdma_reject(id, NULL, 0);
		if (!rs || !rs->id)
			rdma_destroy_id(id);
		if (rs) {
			raw_close(rs->fd);
			table_put(rs);
		}
		return;
	}
	for (at = &listener->pending; *at; at = &(*at)->pending)
		;
	*at = rs;
}

static int conn_event_error(const struct rdma_cm_event *event)
{
	int given = event->status < 0 ? -event->status : 0;

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return ECONNREFUSED;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return ENODEV;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return given ? given : EHOSTUNREACH;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return given ? given : ETIMEDOUT;
	default:
		return 0;
	}
}

/* Goes on with what the event allows. Returns the errno that the connection fails with, or 0. */
static int conn_take_event(struct rs_socket *rs, struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rs->state = RS_RESOLVING_ROUTE;
		return rdma_resolve_route(rs->id, CONN_RESOLVE_MS) ? errno : 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return conn_request(rs);
	case RDMA_CM_EVENT_ESTABLISHED:
		if (rs->state == RS_CONNECTING)
			return conn_response(rs, &event->param.conn);
		conn_established(rs);
		return 0;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		conn_take_request(rs, event);
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* The peer's last messages are here before the news of its end. */
		conn_established(rs);
		cq_progress(rs);
		conn_fail(rs, 0);
		return 0;
	default:
		return conn_event_error(event);
	}
}

void conn_progress(struct rs_socket *rs)
{
	struct rdma_cm_event *event;

	while (rs->channel && rs->id && !rdma_get_cm_event(rs->channel, &event)) {
		int error = conn_take_event(rs, event);

		rdma_ack_cm_event(event);
		if (error)
			conn_fail(rs, error);
		wait_wake(rs);
	}
}

int conn_start(struct rs_socket *rs)
{
	rs->state = RS_RESOLVING_ADDR;
	if (rdma_resolve_addr(rs->id, NULL, (struct sockaddr *)&rs->peer, CONN_RESOLVE_MS))
		return errno;
	return 0;
}

int conn_ready(struct rs_socket *rs, const struct wait_limit *limit)
{
	int error = 0;

	if (rs->is_orphan)
		return EBADF;
	if (conn_is_opening(rs))
		error = wait_for(rs, conn_is_settled, limit);
	if (!error && rs->state < RS_CONNECTED)
		error = ENOTCONN;
	return error;
}

bool conn_is_flushed(const struct rs_socket *rs)
{
	if (rs->state == RS_ACCEPTING)
		return false;
	return rs->state != RS_CONNECTED || (!rs->ep.end_due && cq_all_sent(rs));
}

/* The message that tells the peer, or 0. */
static uint32_t conn_end(struct rs_socket *rs, int how)
{
	const bool could_write = rs->can_write;

	if (how != SHUT_WR)
		rs->can_read = false;
	if (how != SHUT_RD)
		rs->can_write = false;
	if (!rs->can_read && !rs->can_write)
		return wire_message(WIRE_CONTROL, WIRE_DISCONNECT);
	if (could_write && !rs->can_write)
		return wire_message(WIRE_CONTROL, WIRE_SHUTDOWN);
	return 0;
}

/* Does not wait: where there is no room for the message it goes when there is. */
int conn_shutdown(struct rs_socket *rs, int how)
{
	uint32_t message;

	if (rs->state != RS_CONNECTED && rs->state != RS_ACCEPTING)
		return rs->state == RS_CLOSED ? 0 : ENOTCONN;
	message = conn_end(rs, how);
	if (message && !rs->ep.end_told)
		rs->ep.end_due = message;
	else
		cq_post_keepalive(rs); /* its completion wakes those who wait to read */
	cq_grant(rs);
	wait_wake(rs);
	return 0;
}

/* Nobody uses the socket any more. */
void conn_close(struct rs_socket *rs)
{
	if (rs->id)
		rdma_destroy_id(rs->id);
	if (rs->channel)
		rdma_destroy_event_channel(rs->channel);
	rs->id = NULL;
	rs->channel = NULL;
}

static int conn_new_id(struct rs_socket *rs)
{
	int error = conn_make_channel(rs);

	if (!error && rdma_create_id(rs->channel, &rs->id, rs, RDMA_PS_TCP))
		error = errno;
	return error;
}

static int rs_open(int domain, int type, struct rs_socket **out)
{
	struct rs_socket *rs;
	int error = rs_new(domain, type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), &config_get()->opt, &rs);

	if (error)
		return error;
	rs->nonblocking = type & SOCK_NONBLOCK;
	rs->fd_flags = type & SOCK_CLOEXEC ? FD_CLOEXEC : 0;
	raw_fcntl(rs->fd, F_SETFD, rs->fd_flags);
	error = rs->type == SOCK_STREAM ? conn_new_id(rs) : dgram_create(rs);
	if (!error)
		error = table_add(rs, rs->fd);
	if (error)
		raw_close(rs->fd);
	else
		*out = rs;
	/* The table holds it from now on. */
	if (error)
		table_put(rs);
	return error;
}

RS_API int rsocket(int domain, int type, int protocol)
{
	const int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct rs_socket *rs;
	int error, fd;

	if ((domain != AF_INET && domain != AF_INET6) ||
	    (kind != SOCK_STREAM && kind != SOCK_DGRAM) ||
	    (protocol && protocol != (kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP)))
		return rs_result(EOPNOTSUPP);
	error = rs_open(domain, type, &rs);
	if (error)
		return rs_result(error);
	fd = rs->fd;
	table_put(rs);
	return fd;
}

static int rs_bind(struct rs_socket *rs, const struct sockaddr *addr, socklen_t bytes)
{
	if (rs->type == SOCK_DGRAM)
		return dgram_bind(rs, addr, bytes);
	if (rs->state != RS_INIT)
		return EINVAL;
	if (rdma_bind_addr(rs->id, (struct sockaddr *)(uintptr_t)addr))
		return errno;
	rs->state = RS_BOUND;
	return 0;
}

RS_API int rbind(int fd, const struct sockaddr *addr, socklen_t bytes)
{
	struct rs_socket *rs = table_get(fd);
	int error = rs ? rs_check_name(addr, bytes) : EBADF;

	if (rs && !error) {
		pthread_mutex_lock(&rs->lock);
		error = rs->is_orphan ? EBADF : rs_bind(rs, addr, bytes);
		pthread_mutex_unlock(&rs->lock);
	}
	if (rs)
		table_put(rs);
	return rs_result(error);
}

RS_API int rlisten(int fd, int backlog)
{
	struct rs_socket *rs = table_get(fd);
	int error = 0;

	if (!rs)
		return rs_result(EBADF);
	pthread_mutex_lock(&rs->lock);
	if (rs->type != SOCK_STREAM)
		error = EOPNOTSUPP;
	else if (rs->is_orphan || rs->state > RS_LISTENING)
		error = EINVAL;
	else if (rs->state != RS_LISTENING && rdma_listen(rs->id, backlog))
		error = errno;
	else
		rs->state = RS_LISTENING;
	wait_wake(rs);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return rs_result(error);
}
