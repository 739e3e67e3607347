/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of connections, and what the test says to do with them. */
#ifndef CONFORMANCE_ENDS_H
#define CONFORMANCE_ENDS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

enum { SIDES = 2, SLOTS = 4096, PATIENCE_MS = 30000 };

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pds[2];
	struct ibv_srq *srqs[SLOTS];
	int srq_count;
};

struct end {
	struct side *side;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct rdma_cm_id *id;
	struct ibv_ah *ah;
	union ibv_gid gid;
};

/* What the test asks of an end. */
struct wish {
	int side, srq, sends;
	bool signals_all;
	uint32_t psn, qkey;
	struct ibv_qp_attr attr;
};

extern struct side sides[SIDES];
extern struct end ends[SLOTS];

/* Takes the next number, or the next end, out of the command. */
uint64_t number(void);
struct end *end_at(void);

/* Answers that something has failed, after so many requests were posted. */
void refuse(int error, int posted);

/* Ends the program, which is out of step with the test. */
void die(const char *what);

/* Listens at an address, where all ends connect from then on, and returns the device. */
struct ibv_context *listen_at(const char *where);

/* The commands. */
void do_connect(void);
void do_send(void);
void do_recv(void);
void do_poll(void);
void do_ask(void);

#endif
