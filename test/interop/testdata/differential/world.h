/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of the program of verbs: a few slots for objects of each kind, which steps fill and
 * empty. Slots have names that do not depend on the device: "mr3", "qp1".
 */
#ifndef DIFFERENTIAL_WORLD_H
#define DIFFERENTIAL_WORLD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { PDS = 2, CQS = 3, MRS = 9, MWS = 4, SRQS = 2, AHS = 2, QPS = 8 };
/*
 * What is sent comes from SOURCE, what arrives goes to SINK, what READs and atomics bring goes to
 * ANSWER; WRITEs and atomics change TARGET, READs read WELL. So no two operations of a step touch
 * the same bytes in an order that is free.
 */
enum { SOURCE, SINK, TARGET, ANSWER, WELL, AREAS };
enum { AREA_BYTES = 65536, GRH_BYTES = 40, WORKS = 256, SGES = 3 };

struct mr_slot {
	struct ibv_mr *mr;
	int pd, area;
	uint32_t offset, length;
	unsigned int access;
	uint32_t dead_lkey, dead_rkey; /* of the last one, once it is gone */
};

struct mw_slot {
	struct ibv_mw *mw;
	int pd, mr;
	int qp; /* that it is bound to */
	unsigned int bound_at; /* step of the last bind */
	uint32_t next_rkey; /* of a window of type 2, when all binds are done */
	uint32_t offset, length;
	bool bound;
};

/* A posted work request that may complete. */
struct work {
	uint64_t id;
	struct ibv_sge sges[SGES];
	int num_sge;
	bool signaled;
};

/* Work requests in the order of posting. */
struct works {
	struct work list[WORKS];
	unsigned int head, tail;
};

struct srq_slot {
	struct ibv_srq *srq;
	int pd;
	uint32_t max_wr, max_sge;
	struct works works;
};

struct qp_slot {
	struct ibv_qp *qp;
	int pd, send_cq, recv_cq, srq, peer;
	struct ibv_qp_cap cap, asked;
	uint32_t qkey;
	unsigned int access;
	bool all_signaled;
	struct works sends, receives;
};

struct ah_slot {
	struct ibv_ah *ah;
	int pd;
};

struct world {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	int gid_index;
	union ibv_gid gid;
	int settle_ms, mtu;
	unsigned int step;
	unsigned char *areas[AREAS];
	uint64_t sums[AREAS];
	bool risky;  /* this step may do wrong */
	bool solicited; /* this program waits for such completions only */
	bool spoilt; /* an operation failed: what it left in memory is free */
	struct ibv_pd *pds[PDS];
	struct ibv_cq *cqs[CQS];
	struct mr_slot mrs[MRS];
	struct mw_slot mws[MWS];
	struct srq_slot srqs[SRQS];
	struct ah_slot ahs[AHS];
	struct qp_slot qps[QPS];
};

extern struct world world;

/* chance.c: the same numbers everywhere, anew for each step. */
void chance_begin(uint64_t seed, unsigned int step);
unsigned int chance_below(unsigned int bound);
bool chance_percent(unsigned int percent);
unsigned int chance_of(const unsigned int *choices, unsigned int count);
#define CHANCE_OF(...)                                                                             \
	chance_of((const unsigned int[]){__VA_ARGS__},                                             \
		  sizeof((const unsigned int[]){__VA_ARGS__}) / sizeof(unsigned int))

/* transcript.c: lines of "STEP WORDS". */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *outcome(int error); /* "ok" or the errno's name */
void die(const char *what) __attribute__((noreturn));

/* objects.c */
void objects_begin(void);
void objects_heal(void);
void step_pd(void);
void step_cq(void);
void step_mr(void);
void step_mw(void);
void step_srq(void);
void step_ah(void);
int object_mr_of(int pd, int area, unsigned int access);

/* queue_pairs.c */
void queue_pairs_begin(void);
void step_qp_lifetime(void);
void step_qp_modify(void);
void step_qp_query(void);
void queue_pairs_heal(void);
void queue_pair_change(int slot);
enum ibv_qp_state queue_pair_state(int slot);

/* posts.c */
void step_send(void);
void step_qp_state(void);

/* observe.c */
void observe_begin(void);
void observe_arm(void);
void observe(void);
struct work *works_add(struct works *works, uint64_t id);
void works_drop(struct works *works);
unsigned int works_count(const struct works *works);

#endif
