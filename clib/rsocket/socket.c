/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting, accepting, ending: what programs call. */
#include <fcntl.h>
#include <unistd.h>

#include "raw.h"
#include "rs.h"

/* How long a socket that is closed waits for its last bytes to be taken, without SO_LINGER. */
#define SOCKET_CLOSE_MS 20000

static int socket_connect_stream(struct rs_socket *rs, const struct sockaddr *addr, socklen_t bytes)
{
	struct wait_limit limit = wait_limit_of(rs, 0, &rs->opt.send_timeout);
	int error;

	if (conn_is_opening(rs))
		error = EALREADY;
	else if (rs->state == RS_CONNECTED)
		error = EISCONN;
	else if (rs->state > RS_BOUND)
		error = rs->state == RS_CLOSED ? ECONNABORTED : EOPNOTSUPP;
	else
		error = 0;
	if (error)
		return error;
	memset(&rs->peer, 0, sizeof(rs->peer));
	memcpy(&rs->peer, addr, bytes < sizeof(rs->peer) ? bytes : sizeof(rs->peer));
	error = conn_start(rs);
	if (error) {
		conn_fail(rs, error);
	} else if (wait_for(rs, conn_is_settled, &limit) != 0 && conn_is_opening(rs)) {
		wait_wake(rs);
		return EINPROGRESS;
	}
	error = rs->state == RS_CONNECTED ? 0 : rs->error ? rs->error : ECONNABORTED;
	rs->error = 0;
	return error;
}

/* The size that an address of its family has at least. */
int rs_check_name(const struct sockaddr *addr, socklen_t bytes)
{
	if (!addr || bytes < sizeof(sa_family_t))
		return EINVAL;
	if (addr->sa_family == AF_INET)
		return bytes < sizeof(struct sockaddr_in) ? EINVAL : 0;
	if (addr->sa_family == AF_INET6)
		return bytes < sizeof(struct sockaddr_in6) ? EINVAL : 0;
	return EAFNOSUPPORT;
}

RS_API int rconnect(int fd, const struct sockaddr *addr, socklen_t bytes)
{
	struct rs_socket *rs = table_get(fd);
	int error;

	if (!rs)
		return rs_result(EBADF);
	error = rs_check_name(addr, bytes);
	if (!error && rs->type == SOCK_DGRAM) {
		error = dgram_connect(rs, addr, bytes);
	} else if (!error) {
		pthread_mutex_lock(&rs->lock);
		error = rs->is_orphan ? EBADF : socket_connect_stream(rs, addr, bytes);
		pthread_mutex_unlock(&rs->lock);
	}
	table_put(rs);
	return rs_result(error);
}

static bool socket_has_pending(const struct rs_socket *rs)
{
	return rs->pending || rs->state != RS_LISTENING;
}

static int socket_accept(struct rs_socket *rs, struct rs_socket **out)
{
	struct wait_limit limit = wait_limit_of(rs, 0, &rs->opt.recv_timeout);
	int error;

	if (rs->is_orphan)
		return EBADF;
	if (rs->state != RS_LISTENING)
		return EINVAL;
	error = wait_for(rs, socket_has_pending, &limit);
	if (!error && !rs->pending)
		error = rs->error ? rs->error : EINVAL;
	if (error)
		return error;
	*out = rs->pending;
	rs->pending = (*out)->pending;
	(*out)->pending = NULL;
	wait_wake(rs);
	return 0;
}

/* As much of an address as there is room for, and how long it is. */
void rs_give_name(const struct sockaddr_storage *from, struct sockaddr *addr, socklen_t *bytes)
{
	socklen_t whole = from->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
							sizeof(struct sockaddr_in);

	memcpy(addr, from, *bytes < whole ? *bytes : whole);
	*bytes = whole;
}

RS_API int raccept(int fd, struct sockaddr *addr, socklen_t *bytes)
{
	struct rs_socket *listener = table_get(fd), *rs;
	int error;

	if (!listener)
		return rs_result(EBADF);
	pthread_mutex_lock(&listener->lock);
	error = socket_accept(listener, &rs);
	pthread_mutex_unlock(&listener->lock);
	table_put(listener);
	if (error)
		return rs_result(error);
	fd = rs->fd;
	raw_fcntl(fd, F_SETFD, 0);
	if (addr && bytes)
		rs_give_name(&rs->peer, addr, bytes);
	error = table_add(rs, fd);
	if (error) {
		raw_close(fd);
		fd = -1;
	}
	table_put(rs);
	return error ? rs_result(error) : fd;
}

RS_API int rshutdown(int fd, int how)
{
	const struct wait_limit limit = {.until = rs_now_us() + SOCKET_CLOSE_MS * 1000ull};
	struct rs_socket *rs = table_get(fd);
	int error;

	if (!rs)
		return rs_result(EBADF);
	pthread_mutex_lock(&rs->lock);
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		error = EINVAL;
	else if (rs->is_orphan)
		error = EBADF;
	else if (rs->type == SOCK_DGRAM)
		error = 0;
	else
		error = conn_shutdown(rs, how);
	if (!error && rs->state == RS_CONNECTED && !rs->can_read && !rs->can_write &&
	    !rs->is_served) {
		wait_for(rs, conn_is_flushed, &limit);
		conn_fail(rs, 0);
	}
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return rs_result(error);
}

/* When a closed socket ends even if bytes are still on their way; 0: at once. */
static uint64_t socket_finish_until(const struct rs_socket *rs)
{
	const struct linger *linger = &rs->opt.linger;

	if ((rs->state != RS_CONNECTED && rs->state != RS_ACCEPTING) ||
	    (linger->l_onoff && !linger->l_linger))
		return 0;
	if (linger->l_onoff)
		return rs_now_us() + (uint64_t)linger->l_linger * 1000000;
	return rs_now_us() + SOCKET_CLOSE_MS * 1000ull;
}

/*
 * Leaves the rest to the service, until the moment given. Also what is flushed is freed there: the
 * NIC takes its time with queue pairs, and a program of TCP's does not expect close to wait. So
 * long a server would keep a listener that it is about to close, and get connections by it.
 */
static bool socket_leave_to_service(struct rs_socket *rs, uint64_t until)
{
	if (!rs->is_served || !rs->ep.cq)
		return false;
	atomic_fetch_add(&rs->refs, 1);
	if (!service_linger(rs, until))
		return true;
	atomic_fetch_sub(&rs->refs, 1);
	return false;
}

/* Tells the peer and waits for the last bytes to arrive, or lets the service do so. */
static void socket_finish(struct rs_socket *rs)
{
	struct wait_limit limit = {.until = socket_finish_until(rs)};

	if (!limit.until) {
		conn_fail(rs, 0);
		socket_leave_to_service(rs, rs_now_us());
		return;
	}
	conn_shutdown(rs, SHUT_RDWR);
	if (socket_leave_to_service(rs, limit.until))
		return;
	wait_for(rs, conn_is_flushed, &limit);
	conn_fail(rs, 0);
}

/* The last descriptor of a socket is closed. The reference of the table is given up. */
void rs_close(struct rs_socket *rs)
{
	pthread_mutex_lock(&rs->lock);
	if (rs->is_orphan)
		rs->state = RS_CLOSED;
	else if (rs->type == SOCK_STREAM)
		socket_finish(rs);
	else
		dgram_finish(rs);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
}

/* The last thread to end closes the socket. */
void rs_leave(struct rs_socket *rs)
{
	bool last;

	pthread_mutex_lock(&rs->lock);
	last = --rs->pump_threads == 0;
	pthread_mutex_unlock(&rs->lock);
	if (last)
		rs_close(rs);
	else
		table_put(rs);
}

RS_API int rclose(int fd)
{
	struct rs_socket *rs = table_remove(fd);

	if (!rs)
		return rs_result(EBADF);
	pthread_mutex_lock(&rs->lock);
	rs->fd = -1; /* the number may soon be somebody else's */
	pthread_mutex_unlock(&rs->lock);
	raw_close(fd);
	rs_close(rs);
	return 0;
}

RS_API int rgetpeername(int fd, struct sockaddr *addr, socklen_t *bytes)
{
	struct rs_socket *rs = table_get(fd);
	int error = 0;

	if (!rs)
		return rs_result(EBADF);
	pthread_mutex_lock(&rs->lock);
	if (rs->dgram ? !rs->peer.ss_family :
			(rs->state != RS_ACCEPTING && rs->state != RS_CONNECTED &&
			 !(rs->state == RS_CLOSED && rs->ep.cq)))
		error = ENOTCONN;
	else if (!addr || !bytes)
		error = EFAULT;
	else
		rs_give_name(&rs->peer, addr, bytes);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return rs_result(error);
}

RS_API int rgetsockname(int fd, struct sockaddr *addr, socklen_t *bytes)
{
	struct rs_socket *rs = table_get(fd);
	struct sockaddr_storage name;
	socklen_t whole = sizeof(name);
	int error = 0;

	if (!rs)
		return rs_result(EBADF);
	memset(&name, 0, sizeof(name));
	pthread_mutex_lock(&rs->lock);
	if (rs->dgram && getsockname(dgram_udp_fd(rs), (struct sockaddr *)&name, &whole))
		error = errno;
	if (rs->id)
		memcpy(&name, &rs->id->route.addr.src_storage, sizeof(name));
	pthread_mutex_unlock(&rs->lock);
	if (!name.ss_family)
		name.ss_family = (sa_family_t)rs->domain;
	if (!addr || !bytes)
		error = EFAULT;
	else if (!error)
		rs_give_name(&name, addr, bytes);
	table_put(rs);
	return rs_result(error);
}
