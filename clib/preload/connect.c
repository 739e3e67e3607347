/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting by RDMA where the peer can, else by TCP. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>

#include "preload.h"

/*
 * How long to wait for a peer that does not say whether it has rsockets, in ms; RNIC_CONNECT_MS
 * overrides. A peer that let this time pass is not asked again for a while.
 */
#define CONNECT_MS 1000
#define CONNECT_SILENT_US (60 * 1000000ull)
#define CONNECT_SILENT_MAX 64

static pthread_mutex_t connect_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct sockaddr_storage addr;
	uint64_t until;
} connect_silent[CONNECT_SILENT_MAX];
static uint32_t connect_next;

static bool connect_same_host(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	if (a->ss_family != b->sa_family)
		return false;
	if (b->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
				  &((const struct sockaddr_in6 *)b)->sin6_addr);
}

static bool connect_is_silent(const struct sockaddr *addr)
{
	const uint64_t now = rs_now_us();
	bool silent = false;

	pthread_mutex_lock(&connect_lock);
	for (int i = 0; i < CONNECT_SILENT_MAX; i++)
		silent |= connect_silent[i].until > now &&
			  connect_same_host(&connect_silent[i].addr, addr);
	pthread_mutex_unlock(&connect_lock);
	return silent;
}

static void connect_note_silent(const struct sockaddr *addr, socklen_t bytes)
{
	pthread_mutex_lock(&connect_lock);
	memset(&connect_silent[connect_next].addr, 0, sizeof(connect_silent[0].addr));
	memcpy(&connect_silent[connect_next].addr, addr,
	       bytes < sizeof(connect_silent[0].addr) ? bytes : sizeof(connect_silent[0].addr));
	connect_silent[connect_next].until = rs_now_us() + CONNECT_SILENT_US;
	connect_next = (connect_next + 1) % CONNECT_SILENT_MAX;
	pthread_mutex_unlock(&connect_lock);
}

static int connect_time(void)
{
	const char *value = getenv("RNIC_CONNECT_MS");

	return value && atoi(value) > 0 ? atoi(value) : CONNECT_MS;
}

/*
 * Half of what a socket has for each direction. TCP's buffers grow with the connection, and
 * programs that poll are used to filling them.
 */
#define CONNECT_BUFFER (512 << 10)

/* What the program has set on the TCP socket holds for the rsocket. */
void connect_copy_options(int from, int to)
{
	const int buffer = CONNECT_BUFFER;
	static const struct {
		int level, name;
	} options[] = {
		{SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_LINGER},
		{SOL_SOCKET, SO_RCVTIMEO}, {SOL_SOCKET, SO_SNDTIMEO}, {IPPROTO_TCP, TCP_NODELAY},
		{IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_IP, IP_TOS}, {IPPROTO_IPV6, IPV6_V6ONLY},
	};
	unsigned char value[64];

	rsetsockopt(to, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	rsetsockopt(to, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		socklen_t bytes = sizeof(value);

		if (!REAL(getsockopt)(from, options[i].level, options[i].name, value, &bytes))
			rsetsockopt(to, options[i].level, options[i].name, value, bytes);
	}
}

/* The address that the program bound its socket to; its port stays with TCP. */
static int connect_bind(int tcp, int rsocket)
{
	struct sockaddr_storage name;
	socklen_t bytes = sizeof(name);

	memset(&name, 0, sizeof(name));
	if (REAL(getsockname)(tcp, (struct sockaddr *)&name, &bytes))
		return 0;
	((struct sockaddr_in *)&name)->sin_port = 0;
	if (name.ss_family == AF_INET ?
		    !((struct sockaddr_in *)&name)->sin_addr.s_addr :
		    IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&name)->sin6_addr))
		return 0;
	return rbind(rsocket, (struct sockaddr *)&name, bytes);
}

static int connect_rsocket(int fd, const struct sockaddr *addr, socklen_t bytes, int *out)
{
	const int ms = connect_time();
	struct pollfd pfd = {.events = POLLOUT};
	socklen_t size = sizeof(int);
	int error = 0, rs = rsocket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (rs < 0)
		return errno;
	connect_copy_options(fd, rs);
	if (connect_bind(fd, rs)) {
		error = errno;
	} else if (rconnect(rs, addr, bytes)) {
		error = errno;
		pfd.fd = rs;
		if (error == EINPROGRESS && rpoll(&pfd, 1, ms) > 0 &&
		    rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &error, &size))
			error = errno;
	}
	if (error == EINPROGRESS)
		connect_note_silent(addr, bytes);
	if (error)
		rclose(rs);
	else
		*out = rs;
	return error;
}

/* The rsocket takes the descriptor's place, with the flags that the program set. */
static int connect_swap(int fd, int rsocket, struct preload_fd *entry)
{
	const int status = REAL(fcntl)(fd, F_GETFL), flags = REAL(fcntl)(fd, F_GETFD);
	struct rs_socket *rs = table_get(rsocket);
	int error = 0;

	if (REAL(dup3)(rsocket, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
		error = errno;
	if (!error)
		error = table_add(rs, fd);
	if (error) {
		table_put(rs);
		return error;
	}
	REAL(fcntl)(fd, F_SETFL, status);
	table_put(table_remove(rsocket));
	pthread_mutex_lock(&rs->lock);
	rs->fd = fd;
	rs->nonblocking = status & O_NONBLOCK;
	service_watch(rs);
	pump_register(rs);
	pthread_mutex_unlock(&rs->lock);
	raw_close(rsocket);
	for (uint32_t i = 0; i < entry->watch_count; i++)
		REAL(epoll_ctl)(entry->watches[i].epfd, EPOLL_CTL_ADD, fd, &entry->watches[i].event);
	table_put(rs);
	return 0;
}

int connect_try(int fd, struct preload_fd *entry, const struct sockaddr *addr, socklen_t bytes)
{
	int rs = -1, error = rs_check_name(addr, bytes);

	if (error || connect_is_silent(addr))
		return EAGAIN;
	pthread_mutex_lock(&entry->lock);
	error = connect_rsocket(fd, addr, bytes, &rs);
	if (!error) {
		error = connect_swap(fd, rs, entry);
		if (error)
			rclose(rs);
	}
	pthread_mutex_unlock(&entry->lock);
	if (error)
		preload_log("connect by TCP: %s", strerror(error));
	preload_remove(fd);
	return error ? EAGAIN : 0;
}
