/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls by number. This code is also in the preload library, where the calls by name are
 * those that the application makes.
 */
#ifndef RS_RAW_H
#define RS_RAW_H

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int raw_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static inline int raw_fcntl(int fd, int cmd, long arg)
{
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static inline ssize_t raw_send(int fd, const void *buf, size_t bytes, int flags)
{
	return syscall(SYS_sendto, fd, buf, bytes, flags, NULL, 0);
}

static inline ssize_t raw_recv(int fd, void *buf, size_t bytes, int flags)
{
	return syscall(SYS_recvfrom, fd, buf, bytes, flags, NULL, NULL);
}

static inline int raw_shutdown(int fd, int how)
{
	return (int)syscall(SYS_shutdown, fd, how);
}

static inline int raw_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
	return (int)syscall(SYS_setsockopt, fd, level, name, value, bytes);
}

#endif
