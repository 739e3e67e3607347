/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection: one request, one reply, descriptors beside them. */
#ifndef RNIC_CTL_H
#define RNIC_CTL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic_abi.h"

/* A connection to the NIC process: a context, a connection manager, or a query for devices. */
struct ctl_conn {
	pthread_mutex_t lock; /* one request at a time */
	int fd;               /* -1 once closed, also in a forked child */
	uint32_t seq;
	uint32_t nic_pid;
	atomic_bool dead; /* the NIC is gone, or spoke garbage; never reset */
	unsigned char *buf;
};

struct ctl_call {
	uint16_t op;
	const void *req;
	size_t req_bytes;
	const void *tail; /* follows req; may be absent */
	size_t tail_bytes;
	const int *fds_out;
	uint32_t num_fds_out;
	/* The reply's body: at least rsp_bytes long, or any length up to rsp_bytes. */
	void *rsp;
	size_t rsp_bytes;
	bool rsp_any_length;
	size_t rsp_got; /* bytes stored in rsp */
	int *fds_in;    /* exactly num_fds_in descriptors, close-on-exec */
	uint32_t num_fds_in;
};

/*
 * Connects to the NIC and greets it. Returns 0 or an errno; ECONNREFUSED or ENOENT say that no NIC
 * is running. lane_fd, when not NULL, receives the lane page.
 */
int ctl_conn_open(struct ctl_conn *conn, int *lane_fd);

/* Closes the socket and frees the buffer; the connection is dead afterwards. */
void ctl_conn_close(struct ctl_conn *conn);

/*
 * Sends a request and waits for its reply. Returns 0, the errno of the reply, or EIO when the NIC
 * is gone or its reply malformed: then the connection is dead for good.
 */
int ctl_conn_call(struct ctl_conn *conn, struct ctl_call *call);

/* A request whose body and reply have a fixed size and no descriptors. */
int ctl_conn_ask(struct ctl_conn *conn, uint16_t op, const void *req, size_t req_bytes);
int ctl_conn_query(struct ctl_conn *conn, struct ctl_call *call, void *rsp, size_t rsp_bytes);

/*
 * Says on standard error and in the NIC's log that call hangs until the program has acknowledged,
 * with ack, count events such as event.
 */
void ctl_conn_say_wait(struct ctl_conn *conn, const char *call, const char *ack, const char *event,
		       uint32_t count);

/* Reports whether the NIC is gone; looks at the socket without waiting. */
bool ctl_conn_is_dead(struct ctl_conn *conn);

static inline bool ctl_conn_known_dead(struct ctl_conn *conn)
{
	return atomic_load_explicit(&conn->dead, memory_order_relaxed);
}

#endif
