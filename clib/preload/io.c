/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: calls that the application makes on sockets, and on everything else. */
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "preload.h"

#define IO_FILE_BYTES 65536

/* Who writes to a peer that is gone gets a signal, unless it asked for none. */
static ssize_t io_sent(ssize_t sent, int flags)
{
	if (sent >= 0 || (errno != ECONNRESET && errno != EPIPE))
		return sent;
	if (!(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	errno = EPIPE;
	return -1;
}

PRELOAD_API ssize_t read(int fd, void *buf, size_t bytes)
{
	return pump_is_direct(fd) ? rread(fd, buf, bytes) : REAL(read)(fd, buf, bytes);
}

PRELOAD_API ssize_t readv(int fd, const struct iovec *iov, int count)
{
	return pump_is_direct(fd) ? rreadv(fd, iov, count) : REAL(readv)(fd, iov, count);
}

PRELOAD_API ssize_t recv(int fd, void *buf, size_t bytes, int flags)
{
	return pump_is_direct(fd) ? rrecv(fd, buf, bytes, flags) : REAL(recv)(fd, buf, bytes, flags);
}

PRELOAD_API ssize_t recvfrom(int fd, void *restrict buf, size_t bytes, int flags,
			     struct sockaddr *restrict addr, socklen_t *restrict addr_bytes)
{
	if (!pump_is_direct(fd))
		return REAL(recvfrom)(fd, buf, bytes, flags, addr, addr_bytes);
	if (addr_bytes)
		*addr_bytes = 0; /* a stream names no one */
	return rrecv(fd, buf, bytes, flags);
}

PRELOAD_API ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t got;

	if (!pump_is_direct(fd))
		return REAL(recvmsg)(fd, msg, flags);
	got = rrecvmsg(fd, msg, flags);
	if (got >= 0)
		msg->msg_namelen = 0;
	return got;
}

PRELOAD_API int recvmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags,
			 struct timespec *timeout)
{
	unsigned int done;

	if (!pump_is_direct(fd))
		return REAL(recvmmsg)(fd, msgs, count, flags, timeout);
	for (done = 0; done < count; done++) {
		ssize_t got = recvmsg(fd, &msgs[done].msg_hdr, flags | (done ? MSG_DONTWAIT : 0));

		if (got < 0)
			return done ? (int)done : -1;
		msgs[done].msg_len = (unsigned int)got;
	}
	return (int)done;
}

PRELOAD_API ssize_t write(int fd, const void *buf, size_t bytes)
{
	if (!pump_is_direct(fd))
		return REAL(write)(fd, buf, bytes);
	return io_sent(rwrite(fd, buf, bytes), 0);
}

PRELOAD_API ssize_t writev(int fd, const struct iovec *iov, int count)
{
	if (!pump_is_direct(fd))
		return REAL(writev)(fd, iov, count);
	return io_sent(rwritev(fd, iov, count), 0);
}

PRELOAD_API ssize_t send(int fd, const void *buf, size_t bytes, int flags)
{
	if (!pump_is_direct(fd))
		return REAL(send)(fd, buf, bytes, flags);
	return io_sent(rsend(fd, buf, bytes, flags), flags);
}

PRELOAD_API ssize_t sendto(int fd, const void *buf, size_t bytes, int flags,
			   const struct sockaddr *addr, socklen_t addr_bytes)
{
	if (!pump_is_direct(fd))
		return REAL(sendto)(fd, buf, bytes, flags, addr, addr_bytes);
	return io_sent(rsend(fd, buf, bytes, flags), flags); /* a stream minds no name */
}

PRELOAD_API ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct msghdr plain;

	if (!pump_is_direct(fd))
		return REAL(sendmsg)(fd, msg, flags);
	plain = *msg;
	plain.msg_name = NULL;
	return io_sent(rsendmsg(fd, &plain, flags), flags);
}

PRELOAD_API int sendmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags)
{
	unsigned int done;

	if (!pump_is_direct(fd))
		return REAL(sendmmsg)(fd, msgs, count, flags);
	for (done = 0; done < count; done++) {
		ssize_t sent = sendmsg(fd, &msgs[done].msg_hdr, flags);

		if (sent < 0)
			return done ? (int)done : -1;
		msgs[done].msg_len = (unsigned int)sent;
	}
	return (int)done;
}

/* A file is read in pieces; what the socket does not take of one is left in the file. */
static ssize_t io_send_file(int to, int from, off64_t *offset, size_t bytes)
{
	off64_t at = offset ? *offset : lseek64(from, 0, SEEK_CUR);
	unsigned char *buf;
	size_t done = 0;
	ssize_t sent = 0;

	if (at < 0)
		return -1;
	buf = malloc(IO_FILE_BYTES);
	if (!buf)
		return rs_result(ENOMEM);
	while (done < bytes) {
		size_t want = bytes - done < IO_FILE_BYTES ? bytes - done : IO_FILE_BYTES;
		ssize_t got = pread64(from, buf, want, at + (off64_t)done);

		sent = got > 0 ? io_sent(rwrite(to, buf, (size_t)got), 0) : got;
		if (sent > 0)
			done += (size_t)sent;
		if (sent <= 0 || sent < got)
			break;
	}
	free(buf);
	if (!done && sent < 0)
		return -1;
	if (offset)
		*offset = at + (off64_t)done;
	else
		lseek64(from, at + (off64_t)done, SEEK_SET);
	return (ssize_t)done;
}

PRELOAD_API ssize_t sendfile64(int to, int from, off64_t *offset, size_t bytes)
{
	if (!pump_is_direct(to))
		return REAL(sendfile64)(to, from, offset, bytes);
	return io_send_file(to, from, offset, bytes);
}

PRELOAD_API ssize_t sendfile(int to, int from, off_t *offset, size_t bytes)
{
	off64_t at = offset ? *offset : 0;
	ssize_t sent;

	if (!pump_is_direct(to))
		return REAL(sendfile)(to, from, offset, bytes);
	sent = io_send_file(to, from, offset ? &at : NULL, bytes);
	if (offset)
		*offset = (off_t)at;
	return sent;
}

/* A pipe has nothing to do with it; programs then copy themselves. */
PRELOAD_API ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset,
			   size_t bytes, unsigned int flags)
{
	if (pump_is_direct(from) || pump_is_direct(to))
		return rs_result(EINVAL);
	return REAL(splice)(from, from_offset, to, to_offset, bytes, flags);
}

/* What a compiler makes of calls whose buffers it knows the size of. */
PRELOAD_API ssize_t __read_chk(int fd, void *buf, size_t bytes, size_t room);
PRELOAD_API ssize_t __recv_chk(int fd, void *buf, size_t bytes, size_t room, int flags);
PRELOAD_API ssize_t __recvfrom_chk(int fd, void *buf, size_t bytes, size_t room, int flags,
				   struct sockaddr *addr, socklen_t *addr_bytes);

PRELOAD_API ssize_t __read_chk(int fd, void *buf, size_t bytes, size_t room)
{
	if (!pump_is_direct(fd) || bytes > room)
		return REAL(__read_chk)(fd, buf, bytes, room);
	return rread(fd, buf, bytes);
}

PRELOAD_API ssize_t __recv_chk(int fd, void *buf, size_t bytes, size_t room, int flags)
{
	if (!pump_is_direct(fd) || bytes > room)
		return REAL(__recv_chk)(fd, buf, bytes, room, flags);
	return rrecv(fd, buf, bytes, flags);
}

PRELOAD_API ssize_t __recvfrom_chk(int fd, void *buf, size_t bytes, size_t room, int flags,
				   struct sockaddr *addr, socklen_t *addr_bytes)
{
	if (!pump_is_direct(fd) || bytes > room)
		return REAL(__recvfrom_chk)(fd, buf, bytes, room, flags, addr, addr_bytes);
	return recvfrom(fd, buf, bytes, flags, addr, addr_bytes);
}
