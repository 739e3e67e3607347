/* SPDX-License-Identifier: Apache-2.0 */
/* When the slots of queues come back: as on adapters, with the completion that is polled. */
#include <sched.h>
#include <sys/resource.h>

#include "setup.h"

/* Posts until there is no room and returns how many; all are signaled. */
static int post_until_full(struct ibv_qp *qp, uint64_t first)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	int count = 0, error;

	for (;; count++) {
		wr.wr_id = first + (uint64_t)count;
		error = ibv_post_send(qp, &wr, &bad);
		if (error)
			break;
	}
	CHECK(error == ENOMEM);
	return count;
}

/*
 * Two queue pairs and a CQ as deep as both: who posts until ENOMEM and then polls never overruns
 * it, however fast the NIC is.
 */
static void test_full_queue(void)
{
	struct setup s;
	struct ibv_qp_init_attr attr;
	struct ibv_qp *qps[2];
	struct ibv_wc wc[8];
	uint64_t want[2] = {0, 0};

	setup_make(&s, 8);
	attr = qp_attr(&s, IBV_QPT_RC);
	qps[0] = s.qp;
	qps[1] = ibv_create_qp(s.pd, &attr);
	CHECK(qps[1]);
	to_state(qps[0], IBV_QPS_RTS);
	to_state(qps[1], IBV_QPS_RTS);
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 2; i++)
			CHECK(post_until_full(qps[i], want[i]) == 4);
		usleep(2000);
		/* The NIC has done what was posted; nobody has polled it. */
		CHECK(post_until_full(qps[0], 0) == 0 && post_until_full(qps[1], 0) == 0);
		for (int got = 0; got < 8; got += 4) {
			poll_n(s.cq, 4, wc);
			for (int i = 0; i < 4; i++)
				CHECK(wc[i].wr_id == want[wc[i].qp_num != qps[0]->qp_num]++);
		}
	}
	CHECK(want[0] == 400 && want[1] == 400 && ibv_poll_cq(s.cq, 1, wc) == 0);
	CHECK(ibv_destroy_qp(qps[1]) == 0);
	setup_end(&s);
}

/* Polls what there is, in order from want on, and returns what comes next. */
static uint64_t poll_batch(struct ibv_cq_ex *cq, uint64_t want)
{
	struct ibv_poll_cq_attr attr = {0};
	int error = ibv_start_poll(cq, &attr);

	if (error == ENOENT)
		return want;
	for (; !error; error = ibv_next_poll(cq))
		CHECK(cq->status == IBV_WC_SUCCESS && cq->wr_id == want++);
	CHECK(error == ENOENT);
	ibv_end_poll(cq);
	return want;
}

/* The same by the extended interface: an entry in hand still takes its place in the CQ. */
static void test_full_queue_ex(void)
{
	struct setup s;
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_qp_init_attr attr;
	struct ibv_poll_cq_attr poll_attr = {0};
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	uint64_t want = 0;

	setup_make(&s, 8);
	cq = ibv_create_cq_ex(s.context, &cq_attr);
	CHECK(cq);
	attr = qp_attr(&s, IBV_QPT_RC);
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(s.pd, &attr);
	CHECK(qp);
	to_state(qp, IBV_QPS_RTS);
	for (int round = 0; round < 100; round++) {
		CHECK(post_until_full(qp, want) == 4);
		while (ibv_start_poll(cq, &poll_attr) == ENOENT)
			usleep(500);
		CHECK(post_until_full(qp, 0) == 0);
		ibv_end_poll(cq);
		CHECK(post_until_full(qp, want + 4) == 1);
		for (want++; want < 5 * ((uint64_t)round + 1);)
			want = poll_batch(cq, want);
	}
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	setup_end(&s);
}

/* The slots of unsignaled requests come back with the next one that completes visibly. */
static void test_unsignaled(void)
{
	struct setup s;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_wc wc[4];

	setup_make(&s, 4);
	to_state(s.qp, IBV_QPS_RTS);
	for (uint64_t round = 0; round < 100; round++) {
		for (int i = 0; i < 3; i++)
			CHECK(ibv_post_send(s.qp, &wr, &bad) == 0);
		CHECK(post_until_full(s.qp, round) == 1);
		poll_n(s.cq, 1, wc);
		CHECK(wc[0].wr_id == round);
	}
	post_signaled(s.qp, 1, 1);
	for (int i = 0; i < 3; i++)
		CHECK(ibv_post_send(s.qp, &wr, &bad) == 0);
	poll_n(s.cq, 1, wc);
	usleep(5000);
	CHECK(post_until_full(s.qp, 2) == 1);
	poll_n(s.cq, 1, wc);
	CHECK(wc[0].wr_id == 2 && post_until_full(s.qp, 3) == 4);
	setup_end(&s);
}

/* A reset gives back the slots of completions that nobody will poll. */
static void test_full_reset(void)
{
	struct setup s;
	struct ibv_wc wc[4];

	setup_make(&s, 4);
	for (uint64_t round = 0; round < 20; round++) {
		to_state(s.qp, IBV_QPS_RTS);
		CHECK(post_until_full(s.qp, 4 * round) == 4);
		if (round % 2) {
			poll_n(s.cq, 2, wc);
			CHECK(wc[1].wr_id == 4 * round + 1);
		}
		usleep(2000);
		to_state(s.qp, IBV_QPS_RESET);
		CHECK(ibv_poll_cq(s.cq, 4, wc) == 0);
	}
	setup_end(&s);
}

/* Receives come back when they are polled, too. The NIC turns each send into a receive as well. */
static void test_full_receives(void)
{
	struct setup s;
	struct ibv_recv_wr wr = {.num_sge = 0}, *bad;
	struct ibv_wc wc[8];
	uint64_t posted = 0, sent = 0, polled = 0;

	setup_make(&s, 8);
	to_state(s.qp, IBV_QPS_RTS);
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 4; i++) {
			wr.wr_id = 1000 + posted++;
			CHECK(ibv_post_recv(s.qp, &wr, &bad) == 0);
		}
		CHECK(post_until_full(s.qp, sent) == 4);
		usleep(1000);
		CHECK(ibv_post_recv(s.qp, &wr, &bad) == ENOMEM);
		poll_n(s.cq, 8, wc);
		for (int i = 0; i < 8; i++) {
			if (wc[i].opcode == IBV_WC_RECV)
				CHECK(wc[i].wr_id == 1000 + polled++);
			else
				CHECK(wc[i].wr_id == sent++);
		}
	}
	CHECK(posted == 400 && sent == 400 && polled == 400);
	to_state(s.qp, IBV_QPS_RESET);
	to_state(s.qp, IBV_QPS_INIT);
	for (int i = 0; i < 5; i++)
		CHECK(ibv_post_recv(s.qp, &wr, &bad) == (i < 4 ? 0 : ENOMEM));
	setup_end(&s);
}

/* Polls in vain for a while and returns how often that put the thread to sleep. */
static long poll_in_vain(struct ibv_cq *cq)
{
	struct rusage before, after;
	struct ibv_wc wc;

	CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
	for (int i = 0; i < 5000; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
	return after.ru_nvcsw - before.ru_nvcsw;
}

/* On one processor: the NIC of the test never gets to what is posted. */
static void test_rest(void)
{
	struct setup s;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	cpu_set_t one, all;

	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	}
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	setup_make(&s, 4);
	to_state(s.qp, IBV_QPS_RTS);
	CHECK(poll_in_vain(s.cq) < 250);
	CHECK(ibv_post_send(s.qp, &wr, &bad) == 0);
	CHECK(poll_in_vain(s.cq) > 2500);
	setup_end(&s);
}

/* On the lane's processor, which is the first of ours: the next poll goes to another. */
static void test_aside(void)
{
	struct setup s;
	struct ibv_wc wc;
	cpu_set_t one, all, after;
	int lane = 0, polls = 0;

	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	while (!CPU_ISSET(lane, &all))
		lane++;
	setup_make(&s, 4);
	CPU_ZERO(&one);
	CPU_SET(lane, &one);
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK(sched_getcpu() == lane);
	/* Who may run nowhere else stays, and polls on. */
	CHECK(ibv_poll_cq(s.cq, 1, &wc) == 0 && sched_getcpu() == lane);
	CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
	if (CPU_COUNT(&all) > 1) {
		while (sched_getcpu() == lane && polls < 20000000) {
			CHECK(ibv_poll_cq(s.cq, 1, &wc) == 0);
			polls++;
		}
		CHECK(polls < 20000000);
	}
	CHECK(sched_getaffinity(0, sizeof(after), &after) == 0);
	CHECK(CPU_EQUAL(&all, &after));
	setup_end(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"full_queue", test_full_queue},
		{"full_queue_ex", test_full_queue_ex},
		{"unsignaled", test_unsignaled},
		{"full_reset", test_full_reset},
		{"full_receives", test_full_receives},
		{"rest", test_rest},
		{"aside", test_aside},
	};

	return RUN_CASES(cases, argc, argv);
}
