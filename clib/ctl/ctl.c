/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ctl_path.h"
#include "log.h"

#define CTL_BUF_BYTES (RNIC_MAX_MESSAGE + sizeof(struct rnic_header))

union ctl_cmsg {
	struct cmsghdr align;
	unsigned char space[CMSG_SPACE(RNIC_MAX_FDS * sizeof(int))];
};

static void ctl_fds_close(const int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

static int ctl_conn_kill(struct ctl_conn *conn, const char *why)
{
	if (!atomic_exchange(&conn->dead, true))
		rnic_log("the NIC is gone: %s", why);
	return EIO;
}

/*
 * A request that was not sent: nothing of it was. The connection is lost unless a descriptor of
 * the program's was none, or the kernel has no memory for the message now.
 */
static int ctl_conn_unsent(struct ctl_conn *conn, const struct ctl_call *call, int error)
{
	if (error == ENOMEM || error == ENOBUFS)
		return ENOMEM;
	if (call->num_fds_out && error == ETOOMANYREFS)
		return EMFILE;
	if (call->num_fds_out && error == EBADF && fcntl(conn->fd, F_GETFD) >= 0)
		return EBADF;
	return ctl_conn_kill(conn, strerror(error));
}

static int ctl_conn_send(struct ctl_conn *conn, const struct ctl_call *call)
{
	struct rnic_header header = {
		.op = call->op,
		.seq = ++conn->seq,
		.length = (uint32_t)(call->req_bytes + call->tail_bytes),
	};
	struct iovec iov[3] = {
		{&header, sizeof(header)},
		{(void *)call->req, call->req_bytes},
		{(void *)call->tail, call->tail_bytes},
	};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};
	union ctl_cmsg control;
	ssize_t sent;

	if (call->num_fds_out) {
		size_t bytes = call->num_fds_out * sizeof(int);
		struct cmsghdr *cmsg;

		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(bytes);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(cmsg), call->fds_out, bytes);
	}
	do {
		sent = sendmsg(conn->fd, &msg, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? ctl_conn_unsent(conn, call, errno) : 0;
}

/* Takes the descriptors out of a message; those beyond max are closed. */
static uint32_t ctl_msg_take_fds(struct msghdr *msg, int *fds, uint32_t max)
{
	struct cmsghdr *cmsg;
	uint32_t count = 0;

	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t bytes, at;

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		bytes = cmsg->cmsg_len - CMSG_LEN(0);
		for (at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + at, sizeof(fd));
			if (count < max)
				fds[count++] = fd;
			else
				close(fd);
		}
	}
	return count;
}

/*
 * Memory that the NIC may not reach, and a device that is not there or will not do, are the user's
 * matter: the text says what to set right.
 */
static void ctl_say_refusal(uint32_t op, int status, const char *text, int length)
{
	if ((op == RNIC_OP_REG_MR && (status == EPERM || status == EACCES)) ||
	    (op == RNIC_OP_CREATE_ID && (status == ENODEV || status == EOPNOTSUPP)))
		rnic_warn("%.*s", length, text);
	else
		rnic_log("%.*s", length, text);
}

/* Checks the reply in conn->buf and hands out its body. Descriptors are the caller's to close. */
static int ctl_conn_parse(struct ctl_conn *conn, struct ctl_call *call, size_t got)
{
	struct rnic_header header;
	const unsigned char *body = conn->buf + sizeof(header);
	size_t length = got - sizeof(header);

	if (got < sizeof(header))
		return ctl_conn_kill(conn, "short reply");
	memcpy(&header, conn->buf, sizeof(header));
	if (header.op != call->op || header.seq != conn->seq || header.length != length)
		return ctl_conn_kill(conn, "reply does not fit the request");
	if (header.status != 0) {
		if (header.status < 0 || header.status > 4095)
			return ctl_conn_kill(conn, "reply with a status that is no errno");
		ctl_say_refusal(call->op, header.status, (const char *)body, (int)length);
		return header.status;
	}
	if (call->rsp_any_length ? length > call->rsp_bytes : length < call->rsp_bytes)
		return ctl_conn_kill(conn, "reply of a wrong length");
	call->rsp_got = call->rsp_any_length ? length : call->rsp_bytes;
	if (call->rsp_got)
		memcpy(call->rsp, body, call->rsp_got);
	return 0;
}

static int ctl_conn_receive(struct ctl_conn *conn, struct ctl_call *call)
{
	struct iovec iov = {conn->buf, CTL_BUF_BYTES};
	union ctl_cmsg control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fds[RNIC_MAX_FDS], error;
	uint32_t num_fds;
	ssize_t got;

	do {
		got = recvmsg(conn->fd, &msg, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got <= 0)
		return ctl_conn_kill(conn, got ? strerror(errno) : "connection closed");
	num_fds = ctl_msg_take_fds(&msg, fds, RNIC_MAX_FDS);
	if (msg.msg_flags & MSG_TRUNC)
		error = ctl_conn_kill(conn, "reply too long");
	else if (msg.msg_flags & MSG_CTRUNC)
		error = EMFILE; /* this process has no room for the descriptors */
	else
		error = ctl_conn_parse(conn, call, (size_t)got);
	if (!error && num_fds != call->num_fds_in)
		error = ctl_conn_kill(conn, "reply with a wrong number of descriptors");
	if (error)
		ctl_fds_close(fds, num_fds);
	else if (num_fds)
		memcpy(call->fds_in, fds, num_fds * sizeof(int));
	return error;
}

/*
 * Takes places of descriptors for those that a reply brings. A request is not made without them:
 * its object would be there, and nobody could use it or end it.
 */
static int ctl_spares_take(struct ctl_conn *conn, int *spares, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		spares[i] = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);
		if (spares[i] < 0) {
			int error = errno;

			ctl_fds_close(spares, i);
			if (error == EBADF)
				return ctl_conn_kill(conn, strerror(error));
			rnic_log("no descriptor left (ulimit -n): %s", strerror(error));
			return error;
		}
	}
	return 0;
}

/* One request and its reply. */
static int ctl_conn_converse(struct ctl_conn *conn, struct ctl_call *call)
{
	const uint32_t count = call->num_fds_in < RNIC_MAX_FDS ? call->num_fds_in : RNIC_MAX_FDS;
	int spares[RNIC_MAX_FDS], error;

	error = ctl_spares_take(conn, spares, count);
	if (error)
		return error;
	error = ctl_conn_send(conn, call);
	ctl_fds_close(spares, count);
	return error ? error : ctl_conn_receive(conn, call);
}

int ctl_conn_call(struct ctl_conn *conn, struct ctl_call *call)
{
	int error = EIO, state;

	/* A thread that is cancelled must not take the reply to its request with it. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&conn->lock);
	if (!ctl_conn_known_dead(conn))
		error = ctl_conn_converse(conn, call);
	pthread_mutex_unlock(&conn->lock);
	pthread_setcancelstate(state, NULL);
	return error;
}

int ctl_conn_ask(struct ctl_conn *conn, uint16_t op, const void *req, size_t req_bytes)
{
	struct ctl_call call = {.op = op, .req = req, .req_bytes = req_bytes};

	return ctl_conn_call(conn, &call);
}

int ctl_conn_query(struct ctl_conn *conn, struct ctl_call *call, void *rsp, size_t rsp_bytes)
{
	call->rsp = rsp;
	call->rsp_bytes = rsp_bytes;
	return ctl_conn_call(conn, call);
}

bool ctl_conn_is_dead(struct ctl_conn *conn)
{
	struct pollfd pfd = {.fd = conn->fd, .events = POLLRDHUP};
	int got, state;

	if (ctl_conn_known_dead(conn))
		return true;
	/* Whoever asks may have a lock of a queue, which a thread that is cancelled would keep. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	got = poll(&pfd, 1, 0);
	pthread_setcancelstate(state, NULL);
	if (got > 0 && (pfd.revents & (POLLHUP | POLLERR | POLLRDHUP | POLLNVAL)))
		ctl_conn_kill(conn, "connection closed");
	return ctl_conn_known_dead(conn);
}

static int ctl_conn_connect(struct ctl_conn *conn)
{
	struct sockaddr_un addr;
	int error = ctl_path_find(&addr);

	if (error)
		return error;
	conn->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (conn->fd < 0)
		return errno;
	/* A name of its own, by which the NIC knows it should it come back as ibv_import_device's. */
	if (bind(conn->fd, (struct sockaddr *)&(struct sockaddr_un){.sun_family = AF_UNIX},
		 sizeof(sa_family_t)) != 0)
		rnic_log("a control connection without a name: %s", strerror(errno));
	while (connect(conn->fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		if (errno == EINTR)
			continue;
		error = errno;
		rnic_log("no NIC at %s (%s); start one with \"rnic up\", "
			 "or run the program under \"rnic run --\"",
			 addr.sun_path, strerror(error));
		return error;
	}
	return 0;
}

static int ctl_conn_greet(struct ctl_conn *conn, int *lane_fd)
{
	struct rnic_hello_req req = {
		.magic = RNIC_MAGIC,
		.version = RNIC_VERSION,
		.pid = (uint32_t)getpid(),
	};
	const char *direct = getenv("RNIC_DIRECT");
	struct rnic_hello_rsp rsp;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_HELLO,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};

	if (direct && !strcmp(direct, "off"))
		req.flags = RNIC_HELLO_KEEPS_OUT;
	snprintf((char *)req.name, sizeof(req.name), "%s", program_invocation_short_name);
	error = ctl_conn_query(conn, &call, &rsp, sizeof(rsp));
	if (error)
		return error;
	conn->nic_pid = rsp.nic_pid;
	if (lane_fd)
		*lane_fd = fd;
	else
		close(fd);
	return 0;
}

int ctl_conn_open(struct ctl_conn *conn, int *lane_fd)
{
	int error;

	memset(conn, 0, sizeof(*conn));
	conn->fd = -1;
	pthread_mutex_init(&conn->lock, NULL);
	conn->buf = malloc(CTL_BUF_BYTES);
	error = conn->buf ? ctl_conn_connect(conn) : ENOMEM;
	if (!error)
		error = ctl_conn_greet(conn, lane_fd);
	if (error)
		ctl_conn_close(conn);
	return error;
}

void ctl_conn_close(struct ctl_conn *conn)
{
	atomic_store(&conn->dead, true);
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	free(conn->buf);
	conn->buf = NULL;
	pthread_mutex_destroy(&conn->lock);
}

void ctl_conn_say_wait(struct ctl_conn *conn, const char *call, const char *ack, const char *event,
		       uint32_t count)
{
	struct rnic_waits_req req = {.count = count};

	rnic_say("%s waits for %s of %s", call, ack, event);
	snprintf((char *)req.call, sizeof(req.call), "%s", call);
	snprintf((char *)req.ack, sizeof(req.ack), "%s", ack);
	snprintf((char *)req.event, sizeof(req.event), "%s", event);
	ctl_conn_ask(conn, RNIC_OP_WAITS, &req, sizeof(req));
}
