/*
 * Makes as many reliable connections as it is told, both ends its own, and passes data over each.
 *
 *   many COUNT    makes COUNT queue pairs and prints "idle"; then for each line on standard input
 *                 writes and sends over every one of them, looks at what arrives and prints "ok".
 *                 It destroys everything at the end of standard input and prints "done".
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#include "join.h"

#define DEPTH 64 /* connections that work at a time */

static struct ibv_cq *cq;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_qp **qps;
static uint64_t *words;
static size_t count;

static void make(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	require(list && list[0], "no device");
	context = ibv_open_device(list[0]);
	require(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	require(pd != NULL, "ibv_alloc_pd");
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	require(cq != NULL, "ibv_create_cq");
	words = calloc(2 * count, sizeof(*words));
	require(words != NULL, "calloc");
	mr = ibv_reg_mr(pd, words, 2 * count * sizeof(*words),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	require(mr != NULL, "ibv_reg_mr");
	qps = calloc(count, sizeof(*qps));
	require(qps != NULL, "calloc");
	for (size_t i = 0; i < count; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
			.qp_type = IBV_QPT_RC,
		};

		qps[i] = ibv_create_qp(pd, &init);
		require(qps[i] != NULL, "ibv_create_qp");
	}
	for (size_t i = 0; i < count; i++)
		join(qps[i], qps[i ^ 1]->qp_num, IBV_ACCESS_REMOTE_WRITE, 16);
}

/* start lets the first end of a connection WRITE its word, then SEND another, to the second. */
static void start(size_t i, uint64_t value)
{
	struct ibv_sge in = {.addr = (uintptr_t)&words[2 * (i ^ 1) + 1], .length = 8, .lkey = mr->lkey};
	struct ibv_sge out = {.addr = (uintptr_t)&words[2 * i], .length = 8, .lkey = mr->lkey};
	struct ibv_recv_wr recv = {.wr_id = i ^ 1, .sg_list = &in, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {
		.wr_id = i, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr write = {
		.wr_id = i, .next = &send, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = (uintptr_t)&words[2 * (i ^ 1)], .rkey = mr->rkey},
	}, *bad_send;

	words[2 * i] = value + i;
	require(!ibv_post_recv(qps[i ^ 1], &recv, &bad_recv), "ibv_post_recv");
	require(!ibv_post_send(qps[i], &write, &bad_send), "ibv_post_send");
}

static void await(size_t wanted)
{
	struct ibv_wc wc[32];

	while (wanted > 0) {
		int n = ibv_poll_cq(cq, 32, wc);

		require(n >= 0, "ibv_poll_cq");
		for (int i = 0; i < n; i++) {
			if (wc[i].status == IBV_WC_SUCCESS)
				continue;
			fprintf(stderr, "connection %zu: %s\n", (size_t)wc[i].wr_id,
				ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		wanted -= n;
	}
}

static void work(uint64_t value)
{
	for (size_t from = 0; from < count; from += 2 * DEPTH) {
		size_t to = from + 2 * DEPTH < count ? from + 2 * DEPTH : count;

		for (size_t i = from; i < to; i += 2)
			start(i, value);
		await(to - from);
	}
	for (size_t i = 0; i < count; i += 2) {
		if (words[2 * i + 2] == value + i && words[2 * i + 3] == value + i)
			continue;
		fprintf(stderr, "connection %zu: other data\n", i);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	char line[64];

	count = argc > 1 ? strtoul(argv[1], NULL, 10) & ~1ul : 0;
	require(count > 0, "usage: many COUNT");
	make();
	puts("idle");
	fflush(stdout);
	for (uint64_t value = 1000; fgets(line, sizeof(line), stdin); value += count) {
		work(value);
		puts("ok");
		fflush(stdout);
	}
	for (size_t i = 0; i < count; i++)
		require(!ibv_destroy_qp(qps[i]), "ibv_destroy_qp");
	require(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	require(!ibv_destroy_cq(cq), "ibv_destroy_cq");
	require(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	puts("done");
	return 0;
}
