/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets: made, connected, accepted, named, configured. */
#include <netinet/tcp.h>

#include "preload.h"

PRELOAD_API int socket(int domain, int type, int protocol)
{
	const int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK);
	int fd = REAL(socket)(domain, type, protocol);
	struct preload_fd *entry;

	descriptor_is_new(fd);
	if (fd < 0 || (domain != AF_INET && domain != AF_INET6) || kind != SOCK_STREAM ||
	    (protocol && protocol != IPPROTO_TCP))
		return fd;
	entry = preload_new(PRELOAD_FRESH, domain);
	if (entry) {
		preload_add(fd, entry); /* without, it is a TCP socket for good */
		preload_put(entry);
	}
	return fd;
}

PRELOAD_API int connect(int fd, const struct sockaddr *addr, socklen_t bytes)
{
	struct preload_fd *entry;
	int error = EAGAIN;

	if (table_has(fd))
		return rconnect(fd, addr, bytes);
	entry = preload_has(fd) ? preload_get(fd) : NULL;
	if (entry && entry->kind == PRELOAD_FRESH)
		error = connect_try(fd, entry, addr, bytes);
	if (entry)
		preload_put(entry);
	return error ? REAL(connect)(fd, addr, bytes) : 0;
}

PRELOAD_API int bind(int fd, const struct sockaddr *addr, socklen_t bytes)
{
	return REAL(bind)(listener_tcp(fd), addr, bytes);
}

PRELOAD_API int listen(int fd, int backlog)
{
	const int result = REAL(listen)(listener_tcp(fd), backlog);
	struct preload_fd *entry = preload_has(fd) ? preload_get(fd) : NULL;
	int error = 0;

	if (!result && entry && entry->kind == PRELOAD_FRESH)
		error = listener_make(fd, backlog);
	if (entry)
		preload_put(entry);
	if (error)
		preload_log("listen for TCP only: %s", strerror(error));
	return result;
}

PRELOAD_API int accept4(int fd, struct sockaddr *restrict addr, socklen_t *restrict bytes,
			int flags)
{
	const struct dgram_name from = {addr, bytes};
	struct preload_fd *entry = preload_has(fd) ? preload_get(fd) : NULL;
	int got;

	if (entry && entry->kind == PRELOAD_LISTENER)
		got = listener_accept(entry, fd, &from, flags);
	else
		got = REAL(accept4)(fd, addr, bytes, flags);
	if (entry)
		preload_put(entry);
	return got;
}

PRELOAD_API int accept(int fd, struct sockaddr *restrict addr, socklen_t *restrict bytes)
{
	return accept4(fd, addr, bytes, 0);
}

PRELOAD_API int shutdown(int fd, int how)
{
	return pump_is_direct(fd) ? rshutdown(fd, how) : REAL(shutdown)(listener_tcp(fd), how);
}

PRELOAD_API int getsockname(int fd, struct sockaddr *restrict addr, socklen_t *restrict bytes)
{
	if (table_has(fd))
		return rgetsockname(fd, addr, bytes);
	return REAL(getsockname)(listener_tcp(fd), addr, bytes);
}

PRELOAD_API int getpeername(int fd, struct sockaddr *restrict addr, socklen_t *restrict bytes)
{
	if (table_has(fd))
		return rgetpeername(fd, addr, bytes);
	return REAL(getpeername)(listener_tcp(fd), addr, bytes);
}

/* Options that an rsocket has not are TCP's, and of no consequence here. */
PRELOAD_API int setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
	int result;

	if (!table_has(fd))
		return REAL(setsockopt)(listener_tcp(fd), level, name, value, bytes);
	result = rsetsockopt(fd, level, name, value, bytes);
	if (!result || errno != EOPNOTSUPP)
		return result;
	if (level == SOL_SOCKET || level == IPPROTO_TCP || level == IPPROTO_IP ||
	    level == IPPROTO_IPV6)
		return 0;
	return rs_result(ENOPROTOOPT);
}

PRELOAD_API int getsockopt(int fd, int level, int name, void *restrict value,
			   socklen_t *restrict bytes)
{
	int result;

	if (!table_has(fd))
		return REAL(getsockopt)(listener_tcp(fd), level, name, value, bytes);
	result = rgetsockopt(fd, level, name, value, bytes);
	if (result && errno == EOPNOTSUPP)
		errno = ENOPROTOOPT;
	return result;
}
