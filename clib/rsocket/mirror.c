/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the application knows a socket by is one end of a pair of UNIX sockets, whose other end is
 * ours: the mirror. Through it the kernel tells whoever polls the descriptor, by whatever call,
 * what there is: a byte in it makes it readable, bytes that nobody takes make it not writable, and
 * the end of the connection is its end. No other thread needs to know of those who poll.
 *
 * It is kept true only while somebody looks: see pollers and is_served.
 */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "raw.h"
#include "rs.h"

/*
 * A UNIX socket is writable while no more than a fourth of its buffer is in use, and this is the
 * smallest buffer that the kernel grants.
 */
#define MIRROR_FILL 2048
#define MIRROR_EXTRA_MAX 64

int mirror_create(struct rs_socket *rs)
{
	int pair[2], least = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return errno;
	raw_setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
	rs->fd = pair[0];
	rs->mirror_fd = pair[1];
	return 0;
}

/* The descriptor of the application is closed by who removes it from the table. */
void mirror_destroy(struct rs_socket *rs)
{
	if (rs->mirror_fd >= 0)
		raw_close(rs->mirror_fd);
	rs->mirror_fd = -1;
}

static short mirror_stream_events(struct rs_socket *rs)
{
	short events = 0;

	switch (rs->state) {
	case RS_INIT:
	case RS_BOUND:
		return POLLOUT | POLLHUP;
	case RS_LISTENING:
		return rs->pending ? POLLIN : 0;
	case RS_CONNECTED:
		break;
	case RS_CLOSED:
		/* An end makes many programs leave what there still is to read. */
		events = POLLIN | POLLOUT | (rs->ep.recv_ready ? 0 : POLLRDHUP | POLLHUP);
		return rs->error ? events | POLLERR : events;
	default:
		return 0;
	}
	if (rs->ep.recv_ready || !rs->can_read)
		events |= POLLIN;
	if (!rs->can_read && !rs->ep.recv_ready)
		events |= POLLRDHUP;
	if (cq_can_send(rs) || !rs->can_write)
		events |= POLLOUT;
	if (!rs->can_read && !rs->can_write)
		events |= POLLHUP;
	return events;
}

short mirror_events(struct rs_socket *rs)
{
	short events = 0;

	if (rs->type == SOCK_STREAM)
		return mirror_stream_events(rs);
	if (dgram_can_recv(rs))
		events |= POLLIN;
	if (dgram_can_send(rs))
		events |= POLLOUT;
	if (rs->error)
		events |= POLLERR;
	return events;
}

static void mirror_show_in(struct rs_socket *rs, bool in)
{
	unsigned char bytes[MIRROR_EXTRA_MAX] = {0};

	/* News while there are old ones is another edge to those who wait for edges. */
	if (in && (!rs->mirror_in || (rs->arrivals != rs->mirror_arrivals &&
				      rs->arrivals - rs->mirror_arrivals < MIRROR_EXTRA_MAX))) {
		raw_send(rs->mirror_fd, bytes, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	} else if (!in && rs->mirror_in) {
		while (raw_recv(rs->fd, bytes, sizeof(bytes), MSG_DONTWAIT) == sizeof(bytes))
			;
	}
	rs->mirror_in = in;
	rs->mirror_arrivals = rs->arrivals;
}

static void mirror_show_out(struct rs_socket *rs, bool out)
{
	static const unsigned char filler[MIRROR_FILL];
	unsigned char bytes[MIRROR_FILL];

	if (!out && !rs->mirror_full) {
		raw_send(rs->fd, filler, sizeof(filler), MSG_DONTWAIT | MSG_NOSIGNAL);
		rs->mirror_full = true;
	} else if (out && rs->mirror_full) {
		while (raw_recv(rs->mirror_fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			;
		rs->mirror_full = false;
	}
}

/* The end is shown once and for all. */
static void mirror_show_end(struct rs_socket *rs, short events)
{
	static const unsigned char byte;

	if (rs->mirror_hup)
		return;
	if (events & POLLERR) {
		/* An end that closes with bytes unread is a reset to the other. */
		if (!rs->mirror_full)
			raw_send(rs->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		mirror_destroy(rs);
		rs->mirror_hup = true;
	} else if (events & POLLHUP) {
		mirror_destroy(rs);
		rs->mirror_hup = true;
	} else if ((events & POLLRDHUP) && !rs->mirror_rdhup) {
		raw_shutdown(rs->mirror_fd, SHUT_WR);
		rs->mirror_rdhup = true;
	}
}

void mirror_clear(struct rs_socket *rs)
{
	mirror_show_in(rs, false);
	mirror_show_out(rs, true);
}

void mirror_update(struct rs_socket *rs)
{
	short events;

	if ((!rs->pollers && !rs->is_served) || rs->mirror_fd < 0 || rs->is_pumped)
		return;
	events = mirror_events(rs);
	/* A socket that nobody has connected yet is one still. */
	if (rs->state == RS_INIT || rs->state == RS_BOUND)
		events = POLLOUT;
	/* A thread of ours that serves cannot keep up with every moment of having no room. */
	if (rs->is_served && rs->state == RS_CONNECTED && !rs->wants_room)
		events |= POLLOUT;
	/* The end is readable too: whoever wakes for the one is to see the other. */
	mirror_show_out(rs, events & POLLOUT);
	mirror_show_end(rs, events);
	mirror_show_in(rs, events & POLLIN);
	if (events & POLLOUT)
		rs->wants_room = false;
}
