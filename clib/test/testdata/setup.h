/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs programs for the NIC of the tests share: each runs one of its cases by name. */
#ifndef SETUP_H
#define SETUP_H

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

struct setup {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char buf[4096];
};

static inline struct ibv_context *open_device(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	CHECK(list && count == 1 && list[0] && !list[1]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	CHECK(qp->state == state);
}

static inline struct ibv_qp_init_attr qp_attr(const struct setup *s, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = type,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2,
			.max_inline_data = 64},
	};
}

static inline void setup_make(struct setup *s, int cqe)
{
	struct ibv_qp_init_attr attr;

	memset(s, 0, sizeof(*s));
	s->context = open_device();
	s->pd = ibv_alloc_pd(s->context);
	CHECK(s->pd);
	s->channel = ibv_create_comp_channel(s->context);
	CHECK(s->channel);
	s->cq = ibv_create_cq(s->context, cqe, s, s->channel, 0);
	CHECK(s->cq && s->cq->cqe >= cqe && s->channel->refcnt == 1);
	attr = qp_attr(s, IBV_QPT_RC);
	s->qp = ibv_create_qp(s->pd, &attr);
	CHECK(s->qp && attr.cap.max_send_wr == 4 && attr.cap.max_inline_data == 64);
	s->mr = ibv_reg_mr(s->pd, s->buf, sizeof(s->buf), IBV_ACCESS_LOCAL_WRITE);
	CHECK(s->mr && s->mr->lkey && s->mr->addr == s->buf);
}

static inline void setup_end(struct setup *s)
{
	CHECK(ibv_dereg_mr(s->mr) == 0);
	CHECK(ibv_destroy_comp_channel(s->channel) == EBUSY);
	CHECK(ibv_destroy_cq(s->cq) == EBUSY);
	CHECK(ibv_destroy_qp(s->qp) == 0);
	CHECK(ibv_destroy_cq(s->cq) == 0);
	CHECK(ibv_destroy_comp_channel(s->channel) == 0);
	CHECK(ibv_dealloc_pd(s->pd) == 0);
	CHECK(ibv_close_device(s->context) == 0);
}

static inline void poll_n(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int have = 0;

	while (have < count) {
		int got = ibv_poll_cq(cq, count - have, wc + have);

		CHECK(got >= 0);
		have += got;
	}
}

static inline void post_signaled(struct ibv_qp *qp, uint64_t first, int count)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	for (int i = 0; i < count; i++) {
		int error;

		wr.wr_id = first + (uint64_t)i;
		while ((error = ibv_post_send(qp, &wr, &bad)) == ENOMEM)
			usleep(100);
		CHECK(error == 0);
	}
}

struct test_case {
	const char *name;
	void (*run)(void);
};

static inline int run_case(const struct test_case *cases, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(name, cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "no case %s\n", name);
	return 2;
}

#define RUN_CASES(cases, argc, argv) \
	((argc) == 2 ? run_case(cases, sizeof(cases) / sizeof((cases)[0]), (argv)[1]) : 2)

#endif
