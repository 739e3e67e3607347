/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of libibverbs. Each begins with the public structure of <infiniband/verbs.h>, so a
 * pointer that the application holds is a pointer to ours.
 *
 * Layers, from the bottom up, are the prefixes of the names: ctl (control socket, shared), mem
 * (application memory), ctx (contexts and their tables), queue (shared rings), then one prefix
 * for each kind of object. ibv_* are the exported verbs.
 */
#ifndef RNIC_H
#define RNIC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl.h"
#include "log.h"
#include "rnic_abi.h"

/* The header turns these verbs into inline wrappers; here the functions themselves are meant. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define VERBS_API __attribute__((visibility("default")))

#define container(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

/* A device outlives the list that named it while a context is open on it. */
struct rnic_device {
	struct ibv_device base;
	/*
	 * Libraries of hardware providers look behind struct ibv_device for their own operations
	 * to learn whether a device is theirs. They find none.
	 */
	const void *provider_ops;
	uintptr_t provider_room[7];
	uint64_t guid; /* in host order */
	uint32_t index;
	uint32_t refs; /* guarded by the device table's lock */
	struct rnic_device *next;
};

/* A region of this process that work requests name as it is; see direct_local_add. */
struct direct_local {
	atomic_uint version; /* odd while the rest changes */
	_Atomic uint32_t lkey;
	_Atomic uint32_t pd;
	_Atomic uint32_t access;
	_Atomic uint64_t addr;
	_Atomic uint64_t length;
};

#define DIRECT_LOCALS 256

struct direct_map;

/* What a context's queue pairs share on the direct path (direct.c). */
struct direct_context {
	pthread_mutex_t lock; /* guards what follows, except that locals are read without */
	const _Atomic uint64_t *tickets; /* NULL until there is one; then it stays */
	struct direct_map *maps;
	uint32_t num_maps;
	struct direct_local locals[DIRECT_LOCALS];
};

enum ctx_kind { CTX_CQ = 1, CTX_QP, CTX_SRQ };

/* What events can name: a CQ, QP or SRQ by its handle. */
struct ctx_object {
	struct ctx_object *next;
	uint32_t handle;
	enum ctx_kind kind;
	/* Events that the application has taken; guarded by the context's objects_lock. */
	uint32_t async_taken;
	uint32_t comp_taken;
	enum ibv_event_type async_last; /* the last of the former */
};

#define CTX_BUCKETS 256

struct rnic_context {
	struct verbs_context vctx; /* its last field is the struct ibv_context of the application */
	struct ctl_conn ctl;
	struct rnic_device *device;
	unsigned char *doorbell;
	const unsigned char *lane;
	int kick_fd;
	int imported_fd; /* cmd_fd of the context that this one imports from, or −1 */
	atomic_bool fatal_told; /* the application got IBV_EVENT_DEVICE_FATAL */
	bool inherited;         /* this process is a child of the one that opened it */
	pthread_mutex_t objects_lock;
	struct ctx_object *objects[CTX_BUCKETS];
	struct rnic_channel *channels; /* guarded by objects_lock */
	struct direct_context direct;
	struct rnic_context *next_open;
};

struct rnic_channel {
	struct ibv_comp_channel base;
	uint32_t handle;
	struct rnic_channel *next;
};

/* Enough that a QP is found at once among the thousands that one CQ may serve. */
#define CQ_BUCKETS 1024

struct queue_ring;
struct rnic_pd;

/*
 * Completions of what the library did itself, since nobody but the NIC writes into the queue it
 * shares. Entries lie between two indices in the CQ's header, which run freely; the lock is for who
 * adds, for who arms the CQ, and for who makes another array. Who takes has the CQ's lock.
 */
struct direct_list {
	pthread_mutex_t lock;
	struct rnic_cqe *entries; /* NULL until the first comes */
	uint32_t mask;
};

/* How far a poll has come in the shared queue and in the library's own list. */
struct poll_place {
	uint32_t ring;
	uint32_t own;
};

struct rnic_cq {
	struct ibv_cq_ex ex; /* struct ibv_cq is its beginning */
	struct ctx_object object;
	pthread_mutex_t lock;
	bool unlocked; /* the application promised to poll from one thread */
	atomic_uint users; /* ends of queue pairs that complete here */
	struct rnic_pd *parent; /* domain, or NULL */
	unsigned char *map;
	size_t map_bytes;
	/* The entries: behind the header in map, or after a resize in a mapping of their own. */
	unsigned char *slots;
	size_t slots_bytes; /* of their own mapping, else 0 */
	uint32_t mask;
	uint32_t consumer; /* ours; the shared word follows it */
	uint32_t empty_polls;
	uint64_t empty_since; /* see poll_rest */
	uint64_t dear_until;  /* see poll_rest_early */
	uint64_t aside_until; /* see poll_aside */
	/* The rings whose completions come here; see cq_join. */
	struct queue_ring *_Atomic rings[CQ_BUCKETS];
	struct direct_list direct;
	bool stamped; /* completions tell their time */
	/* Of the extended polling interface: an entry that is being read, and what comes after it. */
	bool holding;
	struct poll_place held;
	struct rnic_cqe current;
	/* What the wall clock is ahead of the NIC's, and how wrong that may be; see poll_sample. */
	uint64_t wall_ahead;
	uint64_t wall_error;
	bool wall_sampled; /* since start_poll */
};

/* The producing end of a send or receive ring; its lock guards the producer index. */
struct queue_ring {
	pthread_mutex_t lock;
	unsigned char *slots;
	_Atomic uint32_t *producer;
	/*
	 * Below it slots may be filled again. An SRQ's is the NIC's word: slots come back when they
	 * were read. That of a QP's ring is polled, so that slots come back when the application
	 * has polled the completion, as they do on adapters: whoever posts until there is no room
	 * then cannot overrun a CQ that is as deep as the queues that complete into it.
	 */
	_Atomic uint32_t *consumer;
	uint32_t seen; /* last consumer index that was read */
	/*
	 * Of a QP's rings, written under the CQ's lock. Of a send queue it counts, as seen then does,
	 * what the library did itself as well: indices of the ring and direct together.
	 */
	_Atomic uint32_t polled;
	_Atomic uint32_t *taken; /* the NIC's word, of a QP's ring: what it has done with */
	_Atomic uint32_t direct; /* work requests done without the NIC; they have no slot */
	/* In the CQ's table. */
	struct queue_ring *_Atomic next;
	uint32_t qpn;
	bool receives;
	uint32_t entries;
	uint32_t stride;
	uint32_t max_sge;
};

struct direct_key;

/* A queue pair's part in the direct path, guarded by sq.lock. */
struct direct_qp {
	struct direct_key *keys; /* NULL until one is used */
	struct direct_key *ask;  /* used often enough that its memory should be mapped */
	uint64_t ask_addr;
	uint64_t ask_length;
	uint64_t ops;
	uint64_t sent;
	uint64_t received;
};

struct rnic_qp {
	union {
		struct ibv_qp base;
		struct ibv_qp_ex ex;
		/* Operations that later versions of the header have put behind those of this one. */
		struct {
			char until[offsetof(struct ibv_qp_ex, wr_atomic_write)];
			void (*wr_atomic_write)(struct ibv_qp_ex *, uint32_t, uint64_t, const void *);
			void (*wr_flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t,
					 uint8_t);
			void (*room[6])(void);
		} later;
	};
	struct ctx_object object;
	unsigned char *map;
	size_t map_bytes;
	struct queue_ring sq;
	struct queue_ring rq;
	uint32_t doorbell_slot;
	uint32_t max_inline;
	bool has_builder; /* made with send_ops_flags */
	bool is_shared;   /* a further handle of somebody's XRC QP: without memory */
	struct ibv_qp_init_attr init;
	struct direct_qp direct;
	/* The work request builder, guarded by sq.lock from wr_start to wr_complete. */
	uint32_t build_next;
	int build_error;
	struct rnic_send_wqe *build_wqe;
	/* Of the first request that does not fit: its text is empty where the QP is at fault. */
	struct build_refusal {
		bool is_set;
		uint32_t opcode;
		uint64_t wr_id;
		char text[RNIC_POST_REFUSAL_TEXT];
	} build_refusal;
};

struct rnic_srq {
	struct ibv_srq base;
	struct ctx_object object;
	unsigned char *map;
	size_t map_bytes;
	uint32_t number;
	struct rnic_cq *cq; /* of XRC, and of tag matching */
	size_t slots_bytes; /* of a mapping of their own, after a resize, else 0 */
	struct queue_ring rq;
	/* Of tag matching; without it ops has no entries. */
	struct queue_ring ops;
	uint32_t doorbell_slot;
	uint32_t max_tags;
	uint32_t tags_added; /* modulo 2^32; guarded by ops.lock */
};

static inline struct rnic_context *ctx_of(struct ibv_context *context)
{
	return container(context, struct rnic_context, vctx.context);
}

static inline struct rnic_cq *cq_of(struct ibv_cq *cq)
{
	return (struct rnic_cq *)cq;
}

static inline struct rnic_cq *cq_of_ex(struct ibv_cq_ex *cq)
{
	return (struct rnic_cq *)cq;
}

static inline struct rnic_qp *qp_of(struct ibv_qp *qp)
{
	return (struct rnic_qp *)qp;
}

static inline struct rnic_srq *srq_of(struct ibv_srq *srq)
{
	return (struct rnic_srq *)srq;
}

#endif
