/* SPDX-License-Identifier: Apache-2.0 */
/* Events, signals, forks, and the death of the NIC. */
#include "setup.h"

struct acker {
	struct ibv_cq *cq;
	struct ibv_async_event *event;
	atomic_bool *acked;
};

static void *ack_later(void *arg)
{
	struct acker *acker = arg;

	usleep(50000);
	atomic_store(acker->acked, true);
	if (acker->cq)
		ibv_ack_cq_events(acker->cq, 1);
	else
		ibv_ack_async_event(acker->event);
	return NULL;
}

/* Once the NIC has died: every verb fails, every destroy works, events end. */
static void check_dead(struct setup *s)
{
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_recv_wr recv = {.num_sge = 0}, *bad_recv;
	struct ibv_async_event event;
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_get_async_event(s->context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	CHECK(ibv_get_async_event(s->context, &event) == -1 && errno == EIO);
	CHECK(ibv_get_cq_event(s->channel, &cq, &context) == -1 && errno == EIO);
	CHECK(ibv_post_send(s->qp, &send, &bad_send) == EIO && bad_send == &send);
	CHECK(ibv_post_recv(s->qp, &recv, &bad_recv) == EIO && bad_recv == &recv);
	CHECK(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE) == EIO);
	CHECK(ibv_query_port(s->context, 1, &port) == EIO);
	CHECK(!ibv_alloc_pd(s->context) && errno == EIO);
	CHECK(!ibv_reg_mr(s->pd, s->buf, 100, 0) && errno == EIO);
	setup_end(s);
}

/* The NIC dies soon after a query of a P_Key. */
static void ask_for_death(struct setup *s)
{
	__be16 pkey;

	setup_make(s, 8);
	to_state(s->qp, IBV_QPS_RTS);
	post_signaled(s->qp, 1, 2);
	CHECK(ibv_query_pkey(s->context, 1, 0, &pkey) == 0);
}

static void no_action(int signal)
{
	(void)signal;
}

/* Completion events, and destroys that wait for acknowledgements. */
static void test_events(void)
{
	struct setup s;
	struct ibv_wc wc;
	struct ibv_cq *cq = NULL;
	struct ibv_async_event event;
	struct ibv_qp_attr attr = {.en_sqd_async_notify = 1};
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq;
	atomic_bool acked = false;
	struct acker acker = {.acked = &acked};
	pthread_t thread;
	void *context = NULL;

	setup_make(&s, 8);
	to_state(s.qp, IBV_QPS_RTS);
	for (int i = 0; i < 5; i++) {
		CHECK(ibv_req_notify_cq(s.cq, i % 2) == 0);
		post_signaled(s.qp, (uint64_t)i, 1);
		CHECK(ibv_get_cq_event(s.channel, &cq, &context) == 0);
		CHECK(cq == s.cq && context == &s);
		poll_n(s.cq, 1, &wc);
	}
	ibv_ack_cq_events(s.cq, 4);
	srq = ibv_create_srq(s.pd, &srq_init);
	CHECK(ibv_modify_srq(srq, &srq_init.attr, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_get_async_event(s.context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	/* An event of an object that is gone is skipped. */
	CHECK(ibv_modify_srq(srq, &srq_init.attr, IBV_SRQ_LIMIT) == 0 && ibv_destroy_srq(srq) == 0);
	CHECK(ibv_modify_qp(s.qp, &attr, IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
	CHECK(ibv_get_async_event(s.context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == s.qp);
	acker.event = &event;
	CHECK(pthread_create(&thread, NULL, ack_later, &acker) == 0);
	CHECK(ibv_destroy_qp(s.qp) == 0 && atomic_load(&acked));
	CHECK(pthread_join(thread, NULL) == 0);
	acker.cq = s.cq;
	atomic_store(&acked, false);
	CHECK(pthread_create(&thread, NULL, ack_later, &acker) == 0);
	CHECK(ibv_destroy_cq(s.cq) == 0 && atomic_load(&acked));
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(ibv_destroy_comp_channel(s.channel) == 0);
	CHECK(ibv_dereg_mr(s.mr) == 0 && ibv_dealloc_pd(s.pd) == 0);
	CHECK(ibv_close_device(s.context) == 0);
}

/* Waits of more than a second say what they wait for. */
static void *ack_very_late(void *arg)
{
	struct acker *acker = arg;

	usleep(1300000);
	if (acker->event)
		ibv_ack_async_event(acker->event);
	else
		ibv_ack_cq_events(acker->cq, 2);
	return NULL;
}

static void test_ack_log(void)
{
	struct ibv_qp_attr attr = {.en_sqd_async_notify = 1};
	struct ibv_async_event event;
	struct acker acker = {.event = &event};
	struct setup s;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	pthread_t thread;
	void *context;

	setup_make(&s, 8);
	to_state(s.qp, IBV_QPS_RTS);
	for (int i = 0; i < 2; i++) {
		CHECK(ibv_req_notify_cq(s.cq, 0) == 0);
		post_signaled(s.qp, (uint64_t)i, 1);
		CHECK(ibv_get_cq_event(s.channel, &cq, &context) == 0);
		poll_n(s.cq, 1, &wc);
	}
	CHECK(ibv_modify_qp(s.qp, &attr, IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
	CHECK(ibv_get_async_event(s.context, &event) == 0);
	CHECK(pthread_create(&thread, NULL, ack_very_late, &acker) == 0);
	CHECK(ibv_destroy_qp(s.qp) == 0 && pthread_join(thread, NULL) == 0);
	acker = (struct acker){.cq = s.cq};
	CHECK(pthread_create(&thread, NULL, ack_very_late, &acker) == 0);
	CHECK(ibv_destroy_cq(s.cq) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(ibv_destroy_comp_channel(s.channel) == 0);
	CHECK(ibv_dereg_mr(s.mr) == 0 && ibv_dealloc_pd(s.pd) == 0);
	CHECK(ibv_close_device(s.context) == 0);
}

/* A signal whose handler wants it interrupts the waits for events, as it does with hardware. */
static void test_signal(void)
{
	struct sigaction action = {.sa_handler = no_action};
	struct setup s;
	struct ibv_cq *cq;
	struct ibv_async_event event;
	void *context;

	setup_make(&s, 8);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	ualarm(50000, 0);
	CHECK(ibv_get_cq_event(s.channel, &cq, &context) == -1 && errno == EINTR);
	ualarm(50000, 0);
	CHECK(ibv_get_async_event(s.context, &event) == -1 && errno == EINTR);
	setup_end(&s);
}

/* A child's contexts are dead, its own new ones work, and the parent notices nothing. */
static void test_fork(void)
{
	struct setup s, mine;
	struct ibv_wc wc;
	int status;
	pid_t pid;

	setup_make(&s, 8);
	to_state(s.qp, IBV_QPS_RTS);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(!ibv_alloc_pd(s.context) && errno == EIO);
		check_dead(&s);
		setup_make(&mine, 8);
		to_state(mine.qp, IBV_QPS_RTS);
		post_signaled(mine.qp, 5, 1);
		poll_n(mine.cq, 1, &wc);
		setup_end(&mine);
		exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	post_signaled(s.qp, 6, 1);
	poll_n(s.cq, 1, &wc);
	CHECK(wc.wr_id == 6);
	setup_end(&s);
}

static void test_die_cq_event(void)
{
	struct setup s;
	struct ibv_cq *cq;
	void *context;

	ask_for_death(&s);
	CHECK(ibv_get_cq_event(s.channel, &cq, &context) == -1 && errno == EIO);
	check_dead(&s);
}

static void test_die_async_event(void)
{
	struct setup s;

	ask_for_death(&s);
	check_dead(&s);
}

static void test_die_poll(void)
{
	struct setup s;
	struct ibv_wc wc;

	ask_for_death(&s);
	usleep(300000);
	/* What was completed before is delivered, the rest is not coming. */
	poll_n(s.cq, 1, &wc);
	CHECK(wc.wr_id == 1);
	poll_n(s.cq, 1, &wc);
	CHECK(wc.wr_id == 2);
	while (ibv_poll_cq(s.cq, 1, &wc) == 0)
		;
	CHECK(ibv_poll_cq(s.cq, 1, &wc) == -1);
	check_dead(&s);
}

static void test_die_post(void)
{
	struct setup s;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad;
	int error;

	ask_for_death(&s);
	do {
		error = ibv_post_send(s.qp, &send, &bad);
		usleep(1000);
	} while (error == 0 || error == ENOMEM);
	CHECK(error == EIO);
	check_dead(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"events", test_events},
		{"ack_log", test_ack_log},
		{"signal", test_signal},
		{"fork", test_fork},
		{"die_cq_event", test_die_cq_event},
		{"die_async_event", test_die_async_event},
		{"die_poll", test_die_poll},
		{"die_post", test_die_post},
	};

	return RUN_CASES(cases, argc, argv);
}
