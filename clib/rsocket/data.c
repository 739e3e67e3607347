/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving: what programs call. */
#include <sys/uio.h>

#include "rs.h"

static ssize_t data_send(int fd, const struct iovec *iov, size_t count, int flags,
			 const struct dgram_name *to)
{
	struct rs_socket *rs = table_get(fd);
	struct rs_vector v;
	ssize_t sent;
	int error;

	if (!rs)
		return rs_result(EBADF);
	error = vector_init(&v, iov, count);
	if (!error && rs->type == SOCK_STREAM && to && to->addr)
		error = EISCONN;
	if (error)
		sent = rs_result(error);
	else if (rs->type == SOCK_STREAM)
		sent = stream_send(rs, &v, flags);
	else
		sent = dgram_send(rs, &v, flags, to);
	table_put(rs);
	return sent;
}

static ssize_t data_recv(int fd, const struct iovec *iov, size_t count, int flags,
			 const struct dgram_name *from)
{
	struct rs_socket *rs = table_get(fd);
	struct rs_vector v;
	ssize_t got;
	int error;

	if (!rs)
		return rs_result(EBADF);
	error = vector_init(&v, iov, count);
	if (error)
		got = rs_result(error);
	else if (rs->type == SOCK_STREAM)
		got = stream_recv(rs, &v, flags);
	else
		got = dgram_recv(rs, &v, flags, from);
	if (got > 0 && rs->type == SOCK_STREAM && from && from->addr && from->bytes)
		rgetpeername(fd, from->addr, from->bytes);
	table_put(rs);
	return got;
}

RS_API ssize_t rsend(int fd, const void *buf, size_t bytes, int flags)
{
	const struct iovec iov = {(void *)(uintptr_t)buf, bytes};

	return data_send(fd, &iov, 1, flags, NULL);
}

RS_API ssize_t rsendto(int fd, const void *buf, size_t bytes, int flags,
		       const struct sockaddr *addr, socklen_t addr_bytes)
{
	const struct iovec iov = {(void *)(uintptr_t)buf, bytes};
	const struct dgram_name to = {(struct sockaddr *)(uintptr_t)addr, &addr_bytes};

	return data_send(fd, &iov, 1, flags, &to);
}

RS_API ssize_t rsendmsg(int fd, const struct msghdr *msg, int flags)
{
	socklen_t bytes = msg->msg_namelen;
	const struct dgram_name to = {msg->msg_name, &bytes};

	if (msg->msg_control && msg->msg_controllen)
		return rs_result(EOPNOTSUPP);
	return data_send(fd, msg->msg_iov, msg->msg_iovlen, flags, &to);
}

RS_API ssize_t rwrite(int fd, const void *buf, size_t bytes)
{
	return rsend(fd, buf, bytes, 0);
}

RS_API ssize_t rwritev(int fd, const struct iovec *iov, int count)
{
	return count < 0 ? rs_result(EINVAL) : data_send(fd, iov, (size_t)count, 0, NULL);
}

RS_API ssize_t rrecv(int fd, void *buf, size_t bytes, int flags)
{
	const struct iovec iov = {buf, bytes};

	return data_recv(fd, &iov, 1, flags, NULL);
}

RS_API ssize_t rrecvfrom(int fd, void *buf, size_t bytes, int flags, struct sockaddr *addr,
			 socklen_t *addr_bytes)
{
	const struct iovec iov = {buf, bytes};
	const struct dgram_name from = {addr, addr_bytes};

	return data_recv(fd, &iov, 1, flags, &from);
}

RS_API ssize_t rrecvmsg(int fd, struct msghdr *msg, int flags)
{
	const struct dgram_name from = {msg->msg_name, &msg->msg_namelen};
	ssize_t got;

	got = data_recv(fd, msg->msg_iov, msg->msg_iovlen, flags, &from);
	if (got < 0)
		return got;
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	if (!msg->msg_name)
		msg->msg_namelen = 0;
	return got;
}

RS_API ssize_t rread(int fd, void *buf, size_t bytes)
{
	return rrecv(fd, buf, bytes, 0);
}

RS_API ssize_t rreadv(int fd, const struct iovec *iov, int count)
{
	return count < 0 ? rs_result(EINVAL) : data_recv(fd, iov, (size_t)count, 0, NULL);
}
