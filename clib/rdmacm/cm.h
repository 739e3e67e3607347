/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of librdmacm. Those that the application sees begin with their public structure of
 * <rdma/rdma_cma.h>.
 *
 * Layers, from the bottom up, are the prefixes of the names: ctl (control socket, shared), session
 * (the NIC and its devices), channel (event pipes), id (identifiers and their table), qp, event,
 * then what programs call: conn, mcast, info, ep. rdma_* are the exported functions. Functions of
 * ours return 0 or an errno; the exported ones −1 with errno set.
 */
#ifndef CM_H
#define CM_H

#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "log.h"
#include "rnic_abi.h"

#define CM_API __attribute__((visibility("default")))
#define CM_BUCKETS 1024

/* A device is opened once, and stays open with the library. */
struct cm_device {
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* for queue pairs of ids whose program names none */
	struct ibv_xrcd *xrcd; /* likewise; NULL until one is needed, guarded by devices_lock */
	uint8_t max_responder_resources;
	uint8_t max_initiator_depth;
	struct cm_device *next;
};

/*
 * One incarnation of the NIC, as one process sees it. After its death, and in a forked child, its
 * objects fail and a new session is opened on demand. Sessions are never freed: ids and device
 * contexts that the application holds may point to them.
 */
struct cm_session {
	struct ctl_conn ctl;
	pthread_mutex_t devices_lock;
	struct cm_device *devices;   /* guarded by devices_lock, only ever grows */
	struct cm_channel *channels; /* guarded by cm_lock, as is what follows */
	struct cm_id *ids[CM_BUCKETS];
	struct cm_session *next;
};

/* An event that has been taken out of the pipe and waits for its turn. */
struct cm_record {
	struct cm_record *next;
	struct rnic_cm_event event;
};

/*
 * The pipe carries the events. Records that had to be taken out before their turn, because an id
 * was destroyed or migrated, wait in a queue. For each of them, as far as there is room, a mark is
 * put into the pipe, so that whoever polls the descriptor learns of them.
 */
struct cm_channel {
	struct rdma_event_channel base;
	struct cm_session *session;
	uint32_t handle;
	pthread_mutex_t lock; /* guards reading the pipe, and the queue; held while no one waits */
	struct cm_record *queue;
	struct cm_record **queue_end;
	uint32_t queued;
	uint32_t marks; /* that are in the pipe; at most queued */
	/* Guarded by cm_lock: threads in rdma_get_cm_event, the last of which frees an ended one. */
	uint32_t readers;
	bool is_ended;
	struct cm_channel *next;
};

struct cm_group;
struct cm_event;

struct cm_id {
	struct rdma_cm_id base;
	struct cm_session *session;
	uint32_t handle;
	struct cm_id *next;       /* in its bucket; guarded by cm_lock */
	struct cm_event *unacked; /* events that the application holds; guarded by cm_lock */
	bool is_listening;
	bool is_sync;             /* has a channel of its own, and calls wait */
	bool removal_told;        /* the application got DEVICE_REMOVAL; guarded by cm_lock */
	bool is_connected;        /* from ESTABLISHED to DISCONNECTED */
	struct cm_device *device; /* NULL while not bound to one */
	struct ibv_sa_path_rec path;
	/* What the request asked for, when it is accepted without parameters. */
	uint8_t responder_resources;
	uint8_t initiator_depth;
	/* From rdma_create_ep. */
	void *connect_data;
	size_t connect_bytes;
	struct ibv_qp_init_attr *ep_attr;
	struct ibv_pd *ep_pd;
	struct cm_group *groups; /* guarded by mcast_lock */
	struct ibv_ece local_ece, remote_ece;
};

struct cm_event {
	struct rdma_cm_event base;
	struct cm_id *holder; /* the id whose destruction waits for the acknowledgement */
	struct cm_event *next, **link;
	unsigned char private_data[256];
};

/* Guards the tables of ids and channels and the lists of unacknowledged events. */
extern pthread_mutex_t cm_lock;

static inline struct cm_id *id_of(struct rdma_cm_id *id)
{
	return (struct cm_id *)id;
}

static inline struct cm_channel *channel_of(struct rdma_event_channel *channel)
{
	return (struct cm_channel *)channel;
}

/* Turns an errno into what exported functions return. */
static inline int cm_result(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

/*
 * A thread that is cancelled where it holds a lock would take it along. Returns the state for
 * pthread_setcancelstate to go back to.
 */
static inline int cm_no_cancel(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

/* session.c */
int session_get(struct cm_session **session);
/* Returns the device's XRC domain, or NULL with errno. */
struct ibv_xrcd *session_device_xrcd(struct cm_session *session, struct cm_device *device);

int session_device_find(struct cm_session *session, const char *name, struct cm_device **device);

/* addr.c */
int addr_to_abi(struct rnic_cm_addr *out, const struct sockaddr *in);
void addr_from_abi(struct sockaddr_storage *out, const struct rnic_cm_addr *in);
socklen_t addr_bytes(const struct sockaddr *addr);

/* channel.c */
int channel_create(struct cm_session *session, struct cm_channel **channel);
void channel_destroy(struct cm_channel *channel);
/* Keeps the channel from being freed while an event is taken. */
void channel_enter(struct cm_channel *channel);
void channel_leave(void *channel);
/* Drops records in the channel that no id is left for. */
void channel_purge(struct cm_channel *channel);
/* Moves what waits for the id, and for requests made to it, to another channel. */
void channel_move(struct cm_channel *from, struct cm_channel *to, uint32_t id);
/* Reads one record; the channel is locked. EAGAIN: nothing there. EIO: the NIC is gone. */
int channel_read(struct cm_channel *channel, struct rnic_cm_event *record);
/* Waits until there is something to read, unless the application wants it not to wait. */
int channel_wait(struct cm_channel *channel);
void channel_fork_child(struct cm_channel *channel);
void channel_fork_child_all(void); /* what belongs to no channel */

/* id.c */
void id_insert(struct cm_id *id);
int id_create(struct cm_channel *channel, uint32_t handle, struct cm_id **out);
int id_new(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
	   const struct rdma_addrinfo *kind);
struct cm_id *id_find(struct cm_session *session, uint32_t handle); /* cm_lock is held */
int id_ask(struct cm_id *id, uint16_t op);
void id_forget(struct cm_session *session, uint32_t handle);
int id_query(struct cm_id *id);
int id_apply_route(struct cm_id *id, const struct rnic_cm_route *route);
int id_make_sync(struct cm_id *id);
void id_free(struct cm_id *id);
void id_fork_child(void);

/* qp.c */
int qp_attr_get(struct cm_id *id, struct ibv_qp_attr *attr, int *mask);
int qp_to_rtr(struct cm_id *id, uint8_t responder_resources);
int qp_to_rts(struct cm_id *id, uint8_t initiator_depth);
int qp_to_error(struct cm_id *id);

/* event.c */
void event_ack(struct cm_id *id);
/* Waits for the acknowledgement of every event of the id. */
void event_drain(struct cm_id *id, const char *who);
/* For a synchronous id, waits for an event; for others does nothing. */
int event_complete(struct cm_id *id, enum rdma_cm_event_type wanted);
void event_fork_child(void);

/* mcast.c */
void mcast_event(struct cm_id *id, const struct rnic_cm_event *record, struct cm_event *event);
void mcast_detach_all(struct cm_id *id);
void mcast_free(struct cm_id *id);
void mcast_fork_child(void);

#endif
