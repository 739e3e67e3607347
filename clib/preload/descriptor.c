/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: closed, doubled, configured. */
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "preload.h"

static pid_t descriptor_pid;

static void descriptor_fork_child(void)
{
	descriptor_pid = getpid();
}

__attribute__((constructor)) static void descriptor_library_init(void)
{
	descriptor_pid = getpid();
	pthread_atfork(NULL, NULL, descriptor_fork_child);
}

/* A child of vfork has descriptors of its own, but our tables are its parent's. */
static bool descriptor_is_known(int fd)
{
	return (table_has(fd) || preload_has(fd)) && getpid() == descriptor_pid;
}

/* Closes a descriptor of which we know something. */
static void descriptor_close(int fd)
{
	struct rs_socket *rs = table_remove(fd);
	bool last;

	preload_remove(fd);
	if (!rs) {
		REAL(close)(fd);
		return;
	}
	pthread_mutex_lock(&rs->lock);
	last = rs->doubles == 0;
	if (!last) {
		rs->doubles--;
		rs->fd = rs->fd == fd ? table_find(rs) : rs->fd;
	}
	pthread_mutex_unlock(&rs->lock);
	if (!last) {
		REAL(close)(fd);
		table_put(rs);
	} else if (pump_close(rs, fd)) {
		table_put(rs);
	} else {
		rs_close(rs);
	}
}

PRELOAD_API int close(int fd)
{
	if (!descriptor_is_known(fd))
		return REAL(close)(fd);
	descriptor_close(fd);
	return 0;
}

PRELOAD_API int close_range(unsigned int first, unsigned int last, int flags)
{
	const unsigned int most = 1024 * 4096 - 1;

	for (unsigned int fd = first; !flags && fd <= last && fd <= most; fd++) {
		if (!table_has((int)fd) && !preload_has((int)fd) && fd % 1024 == 0 &&
		    fd > (unsigned int)getdtablesize())
			break;
		if (descriptor_is_known((int)fd))
			descriptor_close((int)fd);
	}
	return (int)syscall(SYS_close_range, first, last, flags);
}

PRELOAD_API void closefrom(int first)
{
	close_range(first < 0 ? 0 : (unsigned int)first, ~0u, 0);
}

/* A number that the kernel has just given was closed behind our back if we know it. */
void descriptor_is_new(int fd)
{
	struct rs_socket *rs;
	bool last;

	if (!descriptor_is_known(fd))
		return;
	preload_remove(fd);
	rs = table_remove(fd);
	if (!rs)
		return;
	pthread_mutex_lock(&rs->lock);
	last = rs->doubles == 0;
	rs->doubles -= !last;
	if (rs->fd == fd)
		rs->fd = last ? -1 : table_find(rs);
	pthread_mutex_unlock(&rs->lock);
	if (last)
		rs_close(rs);
	else
		table_put(rs);
}

/* A new descriptor of what an old one is. */
static int descriptor_double(int old, int fd)
{
	struct rs_socket *rs;
	struct preload_fd *entry;

	if (fd < 0 || fd == old)
		return fd;
	rs = table_get(old);
	/* A child that does this is about to hand the socket to another program. */
	if (rs && (rs->is_orphan || getpid() != descriptor_pid))
		pump_ask(rs);
	if (getpid() != descriptor_pid) {
		if (rs)
			table_put(rs);
		return fd;
	}
	if (rs && !table_add(rs, fd)) {
		pthread_mutex_lock(&rs->lock);
		rs->doubles++;
		pthread_mutex_unlock(&rs->lock);
	}
	if (rs)
		table_put(rs);
	entry = preload_has(old) ? preload_get(old) : NULL;
	if (entry) {
		preload_add(fd, entry);
		preload_put(entry);
	}
	return fd;
}

PRELOAD_API int dup(int fd)
{
	return descriptor_double(fd, REAL(dup)(fd));
}

/* What a number stands for is closed before it stands for something else. */
static void descriptor_make_room(int old, int fd)
{
	if (old != fd && descriptor_is_known(fd) && REAL(fcntl)(old, F_GETFD) >= 0)
		descriptor_close(fd);
}

PRELOAD_API int dup2(int old, int fd)
{
	descriptor_make_room(old, fd);
	return descriptor_double(old, REAL(dup2)(old, fd));
}

PRELOAD_API int dup3(int old, int fd, int flags)
{
	descriptor_make_room(old, fd);
	return descriptor_double(old, REAL(dup3)(old, fd, flags));
}

static int descriptor_control(int fd, int cmd, long arg, int result)
{
	struct rs_socket *rs;

	if (result < 0)
		return result;
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return descriptor_double(fd, result);
	rs = cmd == F_SETFL && pump_is_direct(fd) ? table_get(fd) : NULL;
	if (rs) {
		pthread_mutex_lock(&rs->lock);
		rs->nonblocking = arg & O_NONBLOCK;
		pthread_mutex_unlock(&rs->lock);
		table_put(rs);
	}
	return result;
}

PRELOAD_API int fcntl(int fd, int cmd, ...)
{
	va_list args;
	long arg;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	return descriptor_control(fd, cmd, arg, REAL(fcntl)(fd, cmd, arg));
}

PRELOAD_API int fcntl64(int fd, int cmd, ...)
{
	va_list args;
	long arg;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	return descriptor_control(fd, cmd, arg, REAL(fcntl64)(fd, cmd, arg));
}

static int descriptor_ask(struct rs_socket *rs, unsigned long request, int *value)
{
	int result = 0;

	pthread_mutex_lock(&rs->lock);
	if (request == FIONREAD) {
		wait_progress(rs);
		*value = (int)rs->ep.recv_ready;
	} else if (request == SIOCOUTQ) {
		wait_progress(rs);
		*value = rs->ep.cq ? (int)(rs->opt.send_bytes - rs->ep.send_free) : 0;
	} else {
		rs->nonblocking = *value;
		result = REAL(ioctl)(rs->fd, FIONBIO, value);
	}
	pthread_mutex_unlock(&rs->lock);
	return result;
}

PRELOAD_API int ioctl(int fd, unsigned long request, ...)
{
	struct rs_socket *rs = NULL;
	va_list args;
	void *arg;
	int result;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (pump_is_direct(fd) && (request == FIONREAD || request == FIONBIO || request == SIOCOUTQ))
		rs = table_get(fd);
	if (!rs)
		return REAL(ioctl)(fd, request, arg);
	result = descriptor_ask(rs, request, arg);
	table_put(rs);
	return result;
}
