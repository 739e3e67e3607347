/* SPDX-License-Identifier: Apache-2.0 */
/* Options of sockets. */
#include <fcntl.h>
#include <limits.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "raw.h"
#include "rs.h"

/* A buffer is as large as is asked for, twice, as the kernel counts. */
static uint32_t opt_buffer(int value)
{
	const uint32_t max = 1u << 30;
	uint32_t bytes = value < 0 ? max : (uint32_t)value;

	bytes = bytes > max / 2 ? max : bytes * 2;
	return bytes < 2 * WIRE_LOW_WATER ? 2 * WIRE_LOW_WATER : bytes;
}

static void opt_flag(uint64_t *flags, int name, bool on)
{
	if (on)
		*flags |= 1ull << name;
	else
		*flags &= ~(1ull << name);
}

static int opt_cm(struct rs_socket *rs, int name, int value)
{
	uint8_t tos = (uint8_t)value;

	if (!rs->id)
		return 0;
	if (name == RDMA_OPTION_ID_TOS)
		return rdma_set_option(rs->id, RDMA_OPTION_ID, name, &tos, 1) ? errno : 0;
	return rdma_set_option(rs->id, RDMA_OPTION_ID, name, &value, sizeof(value)) ? errno : 0;
}

static int opt_timeout(struct timespec *out, const void *value, socklen_t bytes)
{
	struct timeval tv;

	if (bytes < sizeof(tv))
		return EINVAL;
	memcpy(&tv, value, sizeof(tv));
	if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
		return EDOM;
	*out = (struct timespec){tv.tv_sec < 0 ? 0 : tv.tv_sec, tv.tv_usec * 1000};
	return 0;
}

static int opt_set_socket(struct rs_socket *rs, int name, const void *value, socklen_t bytes)
{
	struct rs_options *opt = &rs->opt;
	int number = 0, error = 0;

	if (name == SO_RCVTIMEO || name == SO_SNDTIMEO)
		return opt_timeout(name == SO_RCVTIMEO ? &opt->recv_timeout : &opt->send_timeout,
				   value, bytes);
	if (name == SO_LINGER) {
		if (bytes < sizeof(opt->linger))
			return EINVAL;
		memcpy(&opt->linger, value, sizeof(opt->linger));
		return 0;
	}
	if (bytes < sizeof(number))
		return EINVAL;
	memcpy(&number, value, sizeof(number));
	switch (name) {
	case SO_REUSEADDR:
		error = opt_cm(rs, RDMA_OPTION_ID_REUSEADDR, number);
		/* Too late for the port, but no harm. */
		if (rs->state != RS_INIT)
			error = 0;
		opt_flag(&opt->socket_flags, name, number);
		return error;
	case SO_RCVBUF:
		if (!rs->ep.cq)
			opt->recv_bytes = opt_buffer(number) & ~7u;
		return 0;
	case SO_SNDBUF:
		if (!rs->ep.cq)
			opt->send_bytes = opt_buffer(number);
		return 0;
	case SO_KEEPALIVE:
		opt_flag(&opt->socket_flags, name, number);
		return number ? service_keep(rs) : 0;
	case SO_OOBINLINE:
	case SO_BROADCAST:
	case SO_REUSEPORT:
	case SO_PRIORITY:
	case SO_RCVLOWAT:
		opt_flag(&opt->socket_flags, name, number);
		return 0;
	default:
		return EOPNOTSUPP;
	}
}

static int opt_set_tcp(struct rs_socket *rs, int name, const void *value, socklen_t bytes)
{
	int number = 0;

	if (name == TCP_CONGESTION)
		return 0; /* the NIC's business */
	if (bytes < sizeof(number))
		return EINVAL;
	memcpy(&number, value, sizeof(number));
	switch (name) {
	case TCP_KEEPIDLE:
		if (number <= 0)
			return EINVAL;
		rs->opt.keep_idle = number;
		return 0;
	case TCP_NODELAY: /* nothing is ever held back */
	case TCP_CORK:
	case TCP_QUICKACK:
		opt_flag(&rs->opt.tcp_flags, name, number);
		return 0;
	case TCP_KEEPCNT:
	case TCP_KEEPINTVL:
	case TCP_MAXSEG:
	case TCP_DEFER_ACCEPT:
	case TCP_USER_TIMEOUT:
		return 0;
	default:
		return EOPNOTSUPP;
	}
}

static int opt_set_rdma(struct rs_socket *rs, int name, const void *value, socklen_t bytes)
{
	struct rs_options *opt = &rs->opt;
	uint32_t number = 0;

	if (rs->state > RS_LISTENING && rs->state != RS_DATAGRAM)
		return EINVAL;
	if (name == RDMA_ROUTE)
		return EOPNOTSUPP; /* paths of an InfiniBand fabric: there is none */
	if (bytes < sizeof(number))
		return EINVAL;
	memcpy(&number, value, sizeof(number));
	switch (name) {
	case RDMA_SQSIZE:
		opt->send_wrs = rs_min(number, WIRE_QUEUE_MAX);
		return 0;
	case RDMA_RQSIZE:
		opt->recv_wrs = rs_min(number, WIRE_QUEUE_MAX);
		return 0;
	case RDMA_INLINE:
		opt->inline_bytes = rs_min(number, WIRE_INLINE_MAX);
		return 0;
	case RDMA_IOMAPSIZE:
		opt->iomap_entries = wire_iomap_entries(rs_min(number, UINT16_MAX));
		return 0;
	default:
		return EOPNOTSUPP;
	}
}

static int opt_set(struct rs_socket *rs, int level, int name, const void *value, socklen_t bytes)
{
	int number = 0;

	if (!value)
		return EFAULT;
	if (level == SOL_SOCKET)
		return opt_set_socket(rs, name, value, bytes);
	if (level == IPPROTO_TCP && rs->type == SOCK_STREAM)
		return opt_set_tcp(rs, name, value, bytes);
	if (level == SOL_RDMA)
		return opt_set_rdma(rs, name, value, bytes);
	memcpy(&number, value, bytes < sizeof(number) ? bytes : sizeof(number));
	if (level == IPPROTO_IP && name == IP_TOS) {
		rs->opt.tos = number;
		return opt_cm(rs, RDMA_OPTION_ID_TOS, number);
	}
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
		rs->opt.v6only = number;
		return opt_cm(rs, RDMA_OPTION_ID_AFONLY, number);
	}
	return EOPNOTSUPP;
}

RS_API int rsetsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
	struct rs_socket *rs = table_get(fd);
	int error, udp;

	if (!rs)
		return rs_result(EBADF);
	pthread_mutex_lock(&rs->lock);
	error = opt_set(rs, level, name, value, bytes);
	/* The UDP socket of a datagram socket is where it is bound. */
	udp = rs->dgram && level != SOL_RDMA ? dgram_udp_fd(rs) : -1;
	if (udp >= 0 && !raw_setsockopt(udp, level, name, value, bytes))
		error = 0;
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return rs_result(error);
}

/* Gives as much of a value as there is room for. */
static int opt_give(void *to, socklen_t *bytes, const void *value, size_t size)
{
	if (!to || !bytes)
		return EFAULT;
	if (*bytes > size)
		*bytes = (socklen_t)size;
	memcpy(to, value, *bytes);
	return 0;
}

static int opt_give_int(void *to, socklen_t *bytes, int value)
{
	return opt_give(to, bytes, &value, sizeof(value));
}

static int opt_get_socket(struct rs_socket *rs, int name, void *value, socklen_t *bytes)
{
	const struct rs_options *opt = &rs->opt;
	const struct timespec *time = name == SO_RCVTIMEO ? &opt->recv_timeout : &opt->send_timeout;
	struct timeval tv = {time->tv_sec, time->tv_nsec / 1000};
	int error;

	switch (name) {
	case SO_ERROR:
		error = rs->error;
		rs->error = 0;
		return opt_give_int(value, bytes, error);
	case SO_TYPE:
		return opt_give_int(value, bytes, rs->type);
	case SO_DOMAIN:
		return opt_give_int(value, bytes, rs->domain);
	case SO_PROTOCOL:
		return opt_give_int(value, bytes,
				    rs->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP);
	case SO_ACCEPTCONN:
		return opt_give_int(value, bytes, rs->state == RS_LISTENING);
	case SO_RCVBUF:
		return opt_give_int(value, bytes, (int)opt->recv_bytes);
	case SO_SNDBUF:
		return opt_give_int(value, bytes, (int)opt->send_bytes);
	case SO_LINGER:
		return opt_give(value, bytes, &opt->linger, sizeof(opt->linger));
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
		return opt_give(value, bytes, &tv, sizeof(tv));
	case SO_REUSEADDR:
	case SO_KEEPALIVE:
	case SO_OOBINLINE:
	case SO_BROADCAST:
	case SO_REUSEPORT:
	case SO_PRIORITY:
	case SO_RCVLOWAT:
		return opt_give_int(value, bytes, opt->socket_flags >> name & 1);
	default:
		return EOPNOTSUPP;
	}
}

static int opt_path_mtu(const struct rs_socket *rs)
{
	if (!rs->id || !rs->id->route.num_paths)
		return 2048;
	return 128 << rs->id->route.path_rec->mtu;
}

static int opt_get_tcp(struct rs_socket *rs, int name, void *value, socklen_t *bytes)
{
	struct tcp_info info = {
		.tcpi_state = rs->state == RS_CONNECTED ? TCP_ESTABLISHED :
			      rs->state == RS_LISTENING ? TCP_LISTEN : TCP_CLOSE,
		.tcpi_snd_mss = (uint32_t)opt_path_mtu(rs),
		.tcpi_rcv_mss = (uint32_t)opt_path_mtu(rs),
		.tcpi_snd_cwnd = rs->opt.send_wrs,
	};

	switch (name) {
	case TCP_INFO:
		return opt_give(value, bytes, &info, sizeof(info));
	case TCP_CONGESTION:
		return opt_give(value, bytes, "rdma", sizeof("rdma"));
	case TCP_KEEPIDLE:
		return opt_give_int(value, bytes, rs->opt.keep_idle);
	case TCP_KEEPCNT:
	case TCP_KEEPINTVL:
		return opt_give_int(value, bytes, 1);
	case TCP_MAXSEG:
		return opt_give_int(value, bytes, opt_path_mtu(rs));
	case TCP_NODELAY:
	case TCP_CORK:
	case TCP_QUICKACK:
		return opt_give_int(value, bytes, rs->opt.tcp_flags >> name & 1);
	default:
		return EOPNOTSUPP;
	}
}

static int opt_get_rdma(struct rs_socket *rs, int name, void *value, socklen_t *bytes)
{
	switch (name) {
	case RDMA_SQSIZE:
		return opt_give_int(value, bytes, (int)rs->opt.send_wrs);
	case RDMA_RQSIZE:
		return opt_give_int(value, bytes, (int)rs->opt.recv_wrs);
	case RDMA_INLINE:
		return opt_give_int(value, bytes, (int)rs->opt.inline_bytes);
	case RDMA_IOMAPSIZE:
		return opt_give_int(value, bytes, (int)rs->opt.iomap_entries);
	default:
		return EOPNOTSUPP;
	}
}

RS_API int rgetsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	struct rs_socket *rs = table_get(fd);
	int error = EOPNOTSUPP;

	if (!rs)
		return rs_result(EBADF);
	pthread_mutex_lock(&rs->lock);
	if (level == SOL_SOCKET && name == SO_ERROR)
		wait_progress(rs);
	if (level == SOL_SOCKET)
		error = opt_get_socket(rs, name, value, bytes);
	else if (level == IPPROTO_TCP && rs->type == SOCK_STREAM)
		error = opt_get_tcp(rs, name, value, bytes);
	else if (level == SOL_RDMA)
		error = opt_get_rdma(rs, name, value, bytes);
	else if (level == IPPROTO_IP && name == IP_TOS)
		error = opt_give_int(value, bytes, rs->opt.tos);
	else if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
		error = opt_give_int(value, bytes, rs->opt.v6only);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return rs_result(error);
}

static int opt_fcntl(struct rs_socket *rs, int cmd, int arg)
{
	switch (cmd) {
	case F_GETFL:
		return O_RDWR | (rs->nonblocking ? O_NONBLOCK : 0);
	case F_SETFL:
		rs->nonblocking = arg & O_NONBLOCK;
		return 0;
	case F_GETFD:
		return rs->fd_flags;
	case F_SETFD:
		rs->fd_flags = arg & FD_CLOEXEC;
		return raw_fcntl(rs->fd, F_SETFD, rs->fd_flags);
	default:
		return rs_result(EOPNOTSUPP);
	}
}

RS_API int rfcntl(int fd, int cmd, ...)
{
	struct rs_socket *rs = table_get(fd);
	int result, arg = 0;
	va_list args;

	if (!rs)
		return rs_result(EBADF);
	if (cmd == F_SETFL || cmd == F_SETFD) {
		va_start(args, cmd);
		arg = va_arg(args, int);
		va_end(args);
	}
	pthread_mutex_lock(&rs->lock);
	result = opt_fcntl(rs, cmd, arg);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return result;
}
