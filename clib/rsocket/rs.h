/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rsockets: the calls of sockets, over RDMA. What goes over the wire is what every rsocket sends,
 * see docs/rsockets.md; wire.h has the formats.
 *
 * Layers, from the bottom up, are the prefixes of the names: wire (formats), config (defaults),
 * table (descriptors), mirror (what the kernel shows of a socket to those who poll), ep (queue
 * pair, buffers), cq (completions, credits), wait (sleeping), conn (connections), stream (bytes),
 * iomap (direct placement), dgram (datagrams), poll, opt. r* are the exported functions. Functions
 * of ours return 0 or an errno; the exported ones −1 with errno set.
 *
 * Locks: send_lock and recv_lock let one thread at a time send and receive, also while it sleeps.
 * lock guards everything else of a socket, is taken after them, and never held asleep. The lock of
 * the table is taken last.
 */
#ifndef RS_H
#define RS_H

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire.h"

#define RS_API __attribute__((visibility("default")))

enum rs_state {
	RS_INIT,
	RS_BOUND,
	RS_LISTENING,
	RS_RESOLVING_ADDR,
	RS_RESOLVING_ROUTE,
	RS_CONNECTING,
	RS_ACCEPTING, /* accepted; the peer has not yet confirmed */
	RS_CONNECTED,
	RS_CLOSED, /* both directions have ended, in order or not; error says why */
	RS_DATAGRAM,
};

/* What a socket's options were set to; inherited by what a listener accepts. */
struct rs_options {
	uint32_t send_bytes; /* of buffer */
	uint32_t recv_bytes;
	uint32_t send_wrs;
	uint32_t recv_wrs;
	uint32_t inline_bytes;
	uint32_t iomap_entries;
	int keep_idle; /* seconds */
	int tos;
	uint64_t socket_flags; /* by the number of the option */
	uint64_t tcp_flags;
	bool v6only;
	bool linger_off;
	struct linger linger;
	struct timespec send_timeout; /* 0: none */
	struct timespec recv_timeout;
};

/* The queue pair of a stream and the memory around it. */
struct rs_endpoint {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	bool armed; /* an event of the CQ is to come, or is in the channel */
	/* On iWARP, which has no immediate data, a message is a SEND of its own. */
	bool has_notes;
	unsigned char *notes; /* where they are received, one of WIRE_NOTE_BYTES after the other */
	uint32_t note_next;   /* to post */
	uint16_t note_reserve; /* credits of the peer that data does not use */
	uint32_t inline_bytes;
	struct ibv_mr *mr; /* of all buffers that follow */

	/* Receiving. The peer writes into one half of the buffer after the other. */
	unsigned char *recv_buf;
	uint32_t recv_half;
	uint32_t recv_at;      /* offset of the next byte to read */
	uint32_t recv_ready;   /* bytes to read */
	uint32_t recv_free;    /* bytes that have been read and are in no half that is granted */
	uint32_t recv_granted; /* bytes that the peer may still write */
	uint32_t grant_at;     /* offset of the half to grant next */
	uint32_t *messages;    /* sizes of messages to read, a ring */
	uint32_t message_head, message_count;
	uint16_t recv_seq;     /* messages that have been read */
	uint16_t recv_told_at; /* grant anew when recv_seq gets there */

	/* Sending. The list of buffers to write to is in memory that the peer writes. */
	unsigned char *send_buf;
	uint32_t send_head;        /* offset of the next byte to fill */
	uint32_t send_free;        /* bytes */
	uint32_t send_slots;       /* work requests that may be posted for data */
	uint32_t control_slots;    /* and for control messages */
	uint16_t send_seq;         /* messages sent */
	uint16_t send_seq_end;     /* must not get there */
	unsigned char *shared;     /* target list, then I/O map; the peer writes here */
	uint32_t target_next;      /* entry that the peer writes next */
	struct wire_sge targets[WIRE_TARGETS];
	uint32_t target_at, target_count;
	struct wire_sge peer_list;  /* the peer's target list: address, key, entries */
	uint32_t peer_next;         /* entry to write next */
	uint64_t peer_iomap;        /* address of the peer's I/O map */
	uint32_t peer_iomap_entries;
	bool swap;                  /* the peer has the other byte order */
	uint32_t end_due;           /* the message that ends a direction, to be sent; or 0 */
	bool end_told;              /* the peer knows of the end of both */
};

struct rs_iomap;
struct rs_dgram;

struct rs_socket {
	int fd; /* what the application knows it by: one end of the mirror */
	int domain;
	int type;
	atomic_uint refs;
	pthread_mutex_t send_lock;
	pthread_mutex_t recv_lock;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	enum rs_state state;
	bool can_read;  /* the peer may send, as far as we know */
	bool can_write;
	bool nonblocking;
	bool is_orphan; /* it belongs to the process that we were forked from */
	uint32_t doubles; /* descriptors besides fd */
	/* Of sockets of the preload library that other processes use: see preload/pump.c. */
	bool is_pumped;
	uint32_t pump_threads;
	bool pump_has_sent; /* all that there was */
	atomic_uchar *mode;
	int owner_kick_fd; /* of an orphan: wakes the thread that looks after it */
	bool is_served; /* a thread of ours looks after it */
	int fd_flags;
	int error; /* for SO_ERROR and the next call */
	struct rs_options opt;

	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct sockaddr_storage peer;
	int attempts; /* at resolving */
	uint32_t empty_looks;
	struct rs_socket *pending; /* of a listener: requests taken off the channel */
	uint64_t idle_since;       /* for keepalive, in ms; 0: just now */
	uint32_t service_slot;     /* plus 1; guarded by the service's lock */

	/* Who sleeps. One thread waits for the descriptors, the others for it. */
	bool has_leader;
	uint32_t waiters;
	uint32_t pollers; /* for whom the mirror is kept true */

	int mirror_fd; /* the other end */
	bool mirror_hup;
	bool mirror_rdhup;
	bool mirror_in;
	bool mirror_full;
	bool wants_room; /* a send found no room */
	uint32_t arrivals, mirror_arrivals;

	struct rs_endpoint ep;
	struct rs_iomap *iomaps; /* ours, that the peer may write to, and local ones */
	uint32_t iomaps_untold;
	struct rs_dgram *dgram;
};

/* Turns an errno into what exported functions return. */
static inline int rs_result(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

static inline uint64_t rs_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static inline uint32_t rs_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* config.c */
struct rs_config {
	struct rs_options opt;
	uint32_t polling_us;
};
const struct rs_config *config_get(void);

/* table.c */
int table_add(struct rs_socket *rs, int fd);
/* Returns the socket of a descriptor, held, or NULL. */
struct rs_socket *table_get(int fd);
struct rs_socket *table_remove(int fd);
bool table_has(int fd);
int table_find(const struct rs_socket *rs); /* a descriptor of the socket, or −1 */
void table_put(struct rs_socket *rs);
/* Calls visit for each socket; for a child that has just been forked. */
void table_visit(void (*visit)(struct rs_socket *rs));
int rs_new(int domain, int type, const struct rs_options *opt, struct rs_socket **out);

/* mirror.c */
int mirror_create(struct rs_socket *rs);
short mirror_events(struct rs_socket *rs); /* what poll would tell; lock is held */
void mirror_update(struct rs_socket *rs);  /* lock is held */
void mirror_clear(struct rs_socket *rs); /* lock is held */
void mirror_destroy(struct rs_socket *rs);

/* ep.c */
int ep_create(struct rs_socket *rs);
void ep_destroy(struct rs_socket *rs);
void ep_describe(const struct rs_socket *rs, struct wire_conn *out);
int ep_attach(struct rs_socket *rs, const void *data, size_t bytes);
void *ep_alloc(size_t bytes);
void ep_free(void *memory, size_t bytes);

/* cq.c; lock is held */
/* What a work request is, in its id: the kind above, the bytes of send buffer it holds below. */
#define CQ_ID_RECV 0ull
#define CQ_ID_DATA (1ull << 32)
#define CQ_ID_CONTROL (2ull << 32)
#define CQ_ID_WRITE (3ull << 32) /* the message about it has the id that counts */
void cq_progress(struct rs_socket *rs);
void cq_grant(struct rs_socket *rs);
bool cq_can_send(const struct rs_socket *rs);
bool cq_all_sent(const struct rs_socket *rs);
int cq_post_control(struct rs_socket *rs, uint32_t message);
/* Posts what is written, and the message about it; the completion of both has the id of wr. */
int cq_post_message(struct rs_socket *rs, struct ibv_send_wr *wr, uint32_t message);
int cq_post_receives(struct rs_socket *rs, uint32_t count);
uint32_t cq_receives(const struct rs_socket *rs);
int cq_post_keepalive(struct rs_socket *rs);
void cq_take_event(struct rs_socket *rs);
void cq_arm(struct rs_socket *rs);

/* wait.c */
struct wait_limit {
	bool nonblocking;
	uint64_t until; /* in µs; 0: for ever */
};
typedef bool wait_test(const struct rs_socket *rs);
/*
 * Waits, lock being held, until the test is true. Returns EAGAIN when it must not wait or time is
 * up, or EINTR.
 */
int wait_for(struct rs_socket *rs, wait_test *test, const struct wait_limit *limit);
/* Does everything that can be done now. */
void wait_progress(struct rs_socket *rs);
/* Ends the wait of those who sleep, because something has changed. */
void wait_wake(struct rs_socket *rs);
/* The descriptors to look at for news; returns how many. */
int wait_descriptors(const struct rs_socket *rs, int fds[2]);
struct wait_limit wait_limit_of(const struct rs_socket *rs, int flags,
				const struct timespec *timeout);
void wait_news(struct rs_socket *rs, bool from_cq, bool from_cm);

/* conn.c */
void conn_progress(struct rs_socket *rs); /* takes events of the connection manager */
void conn_fail(struct rs_socket *rs, int error);
void conn_close(struct rs_socket *rs);
int conn_start(struct rs_socket *rs);
bool conn_is_opening(const struct rs_socket *rs);
bool conn_is_settled(const struct rs_socket *rs);
/* Before bytes can flow: waits for the connection. lock is held. */
int conn_ready(struct rs_socket *rs, const struct wait_limit *limit);
int conn_shutdown(struct rs_socket *rs, int how);
bool conn_is_flushed(const struct rs_socket *rs);
void rs_give_name(const struct sockaddr_storage *from, struct sockaddr *addr, socklen_t *bytes);
int rs_check_name(const struct sockaddr *addr, socklen_t bytes);
void rs_close(struct rs_socket *rs);
void rs_leave(struct rs_socket *rs); /* a thread that pumps ends */
void rs_release(struct rs_socket *rs); /* frees it */

/* stream.c */
struct rs_vector {
	const struct iovec *iov;
	size_t count;
	size_t offset; /* in the first */
	size_t left;
};
struct dgram_name {
	struct sockaddr *addr;
	socklen_t *bytes;
};
int vector_init(struct rs_vector *v, const struct iovec *iov, size_t count);
void vector_take(struct rs_vector *v, void *to, size_t bytes);
void vector_give(struct rs_vector *v, const void *from, size_t bytes);
ssize_t stream_send(struct rs_socket *rs, struct rs_vector *v, int flags);
ssize_t stream_recv(struct rs_socket *rs, struct rs_vector *v, int flags);
/* Where bytes of a message wait in the send buffer; at most two pieces. */
struct rs_pieces {
	struct ibv_sge sge[2];
	int count;
	unsigned int flags;
	unsigned char inlined[WIRE_INLINE_MAX];
};
uint32_t stream_stage(struct rs_socket *rs, struct rs_vector *v, uint32_t bytes,
		      struct rs_pieces *out);
int stream_post(struct rs_socket *rs, const struct rs_pieces *pieces, struct ibv_send_wr *wr,
		const uint32_t *message);

/* iomap.c */
int iomap_announce(struct rs_socket *rs, const struct wait_limit *limit); /* send_lock is held */
void iomap_free_all(struct rs_socket *rs);

/* dgram.c */
int dgram_create(struct rs_socket *rs);
void dgram_destroy(struct rs_socket *rs);
int dgram_bind(struct rs_socket *rs, const struct sockaddr *addr, socklen_t bytes);
int dgram_connect(struct rs_socket *rs, const struct sockaddr *addr, socklen_t bytes);
ssize_t dgram_send(struct rs_socket *rs, struct rs_vector *v, int flags,
		   const struct dgram_name *to);
ssize_t dgram_recv(struct rs_socket *rs, struct rs_vector *v, int flags,
		   const struct dgram_name *from);
int dgram_udp_fd(const struct rs_socket *rs);
int dgram_wait_fd(const struct rs_socket *rs);
void dgram_finish(struct rs_socket *rs); /* waits for what is on its way */
void dgram_news(struct rs_socket *rs);
void dgram_progress(struct rs_socket *rs); /* lock is held */
bool dgram_can_send(const struct rs_socket *rs);
bool dgram_can_recv(const struct rs_socket *rs);

/* service.c */
int service_watch(struct rs_socket *rs); /* lock is held */
int service_keep(struct rs_socket *rs);
/* Lets a closed socket, that the caller holds, end by itself, at the latest at a time in µs. */
int service_linger(struct rs_socket *rs, uint64_t until);
void service_forget(struct rs_socket *rs);
void service_visit(void (*visit)(struct rs_socket *rs)); /* each socket that the thread knows */
/* Has the thread look at each of its sockets when another process kicks it. */
void service_on_kick(void (*look)(struct rs_socket *rs));
int service_kick_descriptor(void);
void service_fork_child(void);

#endif
