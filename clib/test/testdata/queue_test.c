/* SPDX-License-Identifier: Apache-2.0 */
/* Posting and polling. */
#include "setup.h"

static struct ibv_qp_ex *make_builder(const struct setup *s, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr basic = qp_attr(s, type);
	struct ibv_qp_init_attr_ex attr;
	struct ibv_qp *qp;

	memset(&attr, 0, sizeof(attr));
	memcpy(&attr, &basic, sizeof(basic));
	attr.pd = s->pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = ops;
	qp = ibv_create_qp_ex(s->context, &attr);
	return qp ? ibv_qp_to_qp_ex(qp) : NULL;
}

/* Every way to post wrongly, and what stays of the list then. */
static void test_post_errors(void)
{
	struct setup s;
	struct ibv_sge sge[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
	struct ibv_send_wr wr[6], *bad = NULL;
	struct ibv_recv_wr recv = {.sg_list = sge, .num_sge = 1}, *bad_recv = NULL;

	setup_make(&s, 8);
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < 6; i++) {
		wr[i].opcode = IBV_WR_SEND;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
	}
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL && bad == wr);
	CHECK(ibv_post_recv(s.qp, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	to_state(s.qp, IBV_QPS_INIT);
	CHECK(ibv_post_recv(s.qp, &recv, &bad_recv) == 0);
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL);
	to_state(s.qp, IBV_QPS_RTR);
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL);
	to_state(s.qp, IBV_QPS_RTS);
	wr[0].sg_list = sge;
	wr[0].num_sge = 3;
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL && bad == &wr[0]);
	recv.num_sge = 3;
	CHECK(ibv_post_recv(s.qp, &recv, &bad_recv) == EINVAL);
	wr[0].num_sge = -1;
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL && bad == &wr[0]);
	wr[0].num_sge = 0;
	wr[0].opcode = IBV_WR_TSO;
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL);
	wr[0].opcode = (enum ibv_wr_opcode)40;
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL);
	wr[0].opcode = IBV_WR_SEND;
	wr[0].send_flags = IBV_SEND_IP_CSUM;
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL);
	sge[0] = (struct ibv_sge){(uintptr_t)s.buf, 65, 0};
	wr[0].send_flags = IBV_SEND_INLINE;
	wr[0].num_sge = 1;
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL);
	for (int i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)s.buf, 1, 0};
	wr[0].num_sge = 3; /* the limit holds for data inside the request, too */
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL && bad == &wr[0]);
	wr[0].num_sge = 1;
	sge[0].length = 8;
	for (int i = 0; i < 3; i++) { /* what brings data back cannot have it inside */
		static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ,
			IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};

		wr[0].opcode = opcodes[i];
		CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL && bad == &wr[0]);
	}
	wr[0].opcode = IBV_WR_SEND;
	wr[0].send_flags = 0;
	/* Nobody reads while the list is being posted: four fit. */
	CHECK(ibv_post_send(s.qp, wr, &bad) == ENOMEM && bad == &wr[4]);
	to_state(s.qp, IBV_QPS_RESET);
	CHECK(ibv_post_send(s.qp, wr, &bad) == EINVAL);
	setup_end(&s);
}

/* Posts one of each; the test compares what the NIC reads. */
static void test_post_contents(void)
{
	struct setup s;
	struct ibv_sge sge[2] = {{0x1000, 10, 20}, {0x2000, 30, 40}};
	struct ibv_sge text[2] = {{(uintptr_t) "hello ", 6, 0}, {(uintptr_t) "world", 5, 0}};
	struct ibv_send_wr send = {
		.wr_id = 1, .sg_list = sge, .num_sge = 2, .opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, .imm_data = htonl(0x11223344),
	};
	struct ibv_send_wr write = {
		.wr_id = 2, .sg_list = text, .num_sge = 2, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_FENCE,
		.wr.rdma = {.remote_addr = 0x3000, .rkey = 50},
	};
	struct ibv_send_wr swap = {
		.wr_id = 3, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = 0x4000, .compare_add = 60, .swap = 70, .rkey = 80},
	};
	struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
	struct ibv_send_wr datagram = {.wr_id = 4, .opcode = IBV_WR_SEND, .send_flags = 2}, *bad;
	struct ibv_qp_init_attr attr;
	struct ibv_qp *ud;
	struct ibv_wc wc[4];

	setup_make(&s, 8);
	to_state(s.qp, IBV_QPS_RTS);
	send.next = &write;
	write.next = &swap;
	CHECK(ibv_post_send(s.qp, &send, &bad) == 0);
	poll_n(s.cq, 3, wc);
	CHECK(wc[0].wr_id == 1 && wc[0].opcode == IBV_WC_SEND && wc[0].byte_len == 77);
	CHECK(wc[0].imm_data == htonl(0x11223344) && wc[0].qp_num == s.qp->qp_num);
	CHECK(wc[0].status == IBV_WC_SUCCESS && wc[0].vendor_err == 5 && wc[0].src_qp == 6);
	CHECK(wc[0].wc_flags == IBV_WC_WITH_IMM && wc[0].pkey_index == 7 && wc[0].slid == 8);
	CHECK(wc[0].sl == 9 && wc[0].dlid_path_bits == 10);
	CHECK(wc[1].wr_id == 2 && wc[1].opcode == IBV_WC_RDMA_WRITE);
	CHECK(wc[2].wr_id == 3 && wc[2].opcode == IBV_WC_COMP_SWAP);
	attr = qp_attr(&s, IBV_QPT_UD);
	ud = ibv_create_qp(s.pd, &attr);
	CHECK(ud);
	to_state(ud, IBV_QPS_RTS);
	CHECK(ibv_post_send(ud, &datagram, &bad) == EINVAL); /* no address handle */
	datagram.wr.ud.ah = ibv_create_ah(s.pd, &ah_attr);
	datagram.wr.ud.remote_qpn = 90;
	datagram.wr.ud.remote_qkey = 100;
	CHECK(datagram.wr.ud.ah && ibv_post_send(ud, &datagram, &bad) == 0);
	poll_n(s.cq, 1, wc);
	datagram.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(ud, &datagram, &bad) == EINVAL);
	CHECK(ibv_destroy_ah(datagram.wr.ud.ah) == 0 && ibv_destroy_qp(ud) == 0);
	setup_end(&s);
}

/* The same contents as test_post_contents, by the builder. */
static void test_build_contents(void)
{
	struct setup s;
	struct ibv_sge sge[2] = {{0x1000, 10, 20}, {0x2000, 30, 40}};
	struct ibv_data_buf text[2] = {{"hello ", 6}, {"world", 5}};
	struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
	struct ibv_qp_ex *rc, *ud;
	struct ibv_ah *ah;
	struct ibv_wc wc[4];

	setup_make(&s, 8);
	CHECK(!make_builder(&s, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_READ) && errno == EOPNOTSUPP);
	CHECK(!make_builder(&s, IBV_QPT_RC, IBV_QP_EX_WITH_TSO) && errno == EOPNOTSUPP);
	rc = make_builder(&s, IBV_QPT_RC, IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
						  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
	CHECK(rc);
	to_state(&rc->qp_base, IBV_QPS_RTS);
	ibv_wr_start(rc);
	rc->wr_id = 1;
	rc->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	ibv_wr_send_imm(rc, htonl(0x11223344));
	ibv_wr_set_sge_list(rc, 2, sge);
	rc->wr_id = 2;
	rc->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	ibv_wr_rdma_write(rc, 50, 0x3000);
	ibv_wr_set_inline_data_list(rc, 2, text);
	rc->wr_id = 3;
	rc->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_cmp_swp(rc, 80, 0x4000, 60, 70);
	ibv_wr_set_sge(rc, 20, 0x1000, 10);
	CHECK(ibv_wr_complete(rc) == 0);
	poll_n(s.cq, 3, wc);
	CHECK(wc[0].wr_id == 1 && wc[1].wr_id == 2 && wc[2].wr_id == 3);
	ud = make_builder(&s, IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	CHECK(ud);
	to_state(&ud->qp_base, IBV_QPS_RTS);
	ah = ibv_create_ah(s.pd, &ah_attr);
	ibv_wr_start(ud);
	ud->wr_id = 4;
	ud->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ud);
	ibv_wr_set_ud_addr(ud, ah, 90, 100);
	CHECK(ibv_wr_complete(ud) == 0);
	poll_n(s.cq, 1, wc);
	CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(&ud->qp_base) == 0);
	CHECK(ibv_destroy_qp(&rc->qp_base) == 0);
	setup_end(&s);
}

/* An error in a batch, or an abort, posts nothing; the next batch works. */
static void test_build_errors(void)
{
	struct setup s;
	struct ibv_sge sge[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
	unsigned char much[65] = {0};
	struct ibv_qp_ex *qp;
	struct ibv_wc wc;

	setup_make(&s, 8);
	qp = make_builder(&s, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
	CHECK(qp);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	CHECK(ibv_wr_complete(qp) == EINVAL); /* in RESET */
	to_state(&qp->qp_base, IBV_QPS_RTS);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(qp);
	for (int i = 0; i < 5; i++)
		ibv_wr_send(qp);
	CHECK(ibv_wr_complete(qp) == ENOMEM);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, 3, sge);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, much, 64);
	ibv_wr_set_inline_data(qp, much, 1);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_rdma_read(qp, 1, 2);
	ibv_wr_set_inline_data(qp, much, 8);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	/* The record names the first that does not fit, not the last, nor one that does. */
	qp->wr_id = 70;
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	qp->wr_id = 71;
	ibv_wr_atomic_fetch_add(qp, 1, 2, 3);
	ibv_wr_set_sge_list(qp, 3, sge);
	qp->wr_id = 72;
	ibv_wr_send(qp);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send_tso(qp, much, 1, 1);
	CHECK(ibv_wr_complete(qp) == EOPNOTSUPP);
	ibv_wr_start(qp);
	ibv_wr_set_sge(qp, 1, 2, 3); /* of no request */
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	usleep(10000);
	CHECK(ibv_poll_cq(s.cq, 1, &wc) == 0);
	qp->wr_id = 1234;
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	CHECK(ibv_wr_complete(qp) == 0);
	poll_n(s.cq, 1, &wc);
	CHECK(wc.wr_id == 1234);
	CHECK(ibv_destroy_qp(&qp->qp_base) == 0);
	setup_end(&s);
}

/* Completions of a QP that was reset or destroyed are not seen; those of others are, in order. */
static void test_cancel(void)
{
	struct setup s;
	struct ibv_qp_init_attr attr;
	struct ibv_qp *other;
	struct ibv_wc wc[8];

	setup_make(&s, 16);
	attr = qp_attr(&s, IBV_QPT_RC);
	other = ibv_create_qp(s.pd, &attr);
	to_state(s.qp, IBV_QPS_RTS);
	to_state(other, IBV_QPS_RTS);
	for (int i = 0; i < 3; i++) {
		post_signaled(s.qp, 100 + (uint64_t)i, 1);
		usleep(5000);
		post_signaled(other, 200 + (uint64_t)i, 1);
		usleep(5000);
	}
	to_state(s.qp, IBV_QPS_RESET);
	poll_n(s.cq, 2, wc);
	CHECK(wc[0].wr_id == 200 && wc[1].wr_id == 201);
	to_state(s.qp, IBV_QPS_RTS);
	post_signaled(s.qp, 300, 1);
	usleep(5000);
	CHECK(ibv_destroy_qp(other) == 0);
	poll_n(s.cq, 1, wc);
	CHECK(wc[0].wr_id == 300 && wc[0].qp_num == s.qp->qp_num);
	CHECK(ibv_poll_cq(s.cq, 8, wc) == 0);
	setup_end(&s);
}

/* Reads what there is by the extended interface; returns how many completions that were. */
static uint64_t check_batch(struct ibv_cq_ex *cq, uint64_t want)
{
	static uint64_t wall; /* all completions have one timestamp, thus one time of day */
	struct ibv_poll_cq_attr attr = {0};
	uint64_t count = 0;
	int error = ibv_start_poll(cq, &attr);

	if (error == ENOENT)
		return 0;
	do {
		CHECK(error == 0 && cq->wr_id == want + count && cq->status == IBV_WC_SUCCESS);
		CHECK(ibv_wc_read_byte_len(cq) == 77 && ibv_wc_read_vendor_err(cq) == 5);
		CHECK(ibv_wc_read_opcode(cq) == IBV_WC_SEND && ibv_wc_read_src_qp(cq) == 6);
		CHECK(ibv_wc_read_slid(cq) == 8 && ibv_wc_read_sl(cq) == 9);
		CHECK(ibv_wc_read_dlid_path_bits(cq) == 10 && ibv_wc_read_completion_ts(cq) == 11);
		CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM && ibv_wc_read_qp_num(cq));
		wall = wall ? wall : ibv_wc_read_completion_wallclock_ns(cq);
		CHECK(ibv_wc_read_completion_wallclock_ns(cq) == wall);
		count++;
		error = ibv_next_poll(cq);
	} while (error != ENOENT);
	ibv_end_poll(cq);
	return count;
}

/* The ring turns many times. */
static void test_poll_ex(void)
{
	struct setup s;
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct ibv_qp_init_attr attr;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	uint64_t want = 0;

	setup_make(&s, 8);
	cq_attr.wc_flags |= IBV_WC_EX_WITH_CVLAN;
	CHECK(!ibv_create_cq_ex(s.context, &cq_attr) && errno == EOPNOTSUPP);
	cq_attr.wc_flags &= ~(uint64_t)IBV_WC_EX_WITH_CVLAN;
	cq_attr.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	cq = ibv_create_cq_ex(s.context, &cq_attr);
	CHECK(cq);
	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);
	attr = qp_attr(&s, IBV_QPT_RC);
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(s.pd, &attr);
	CHECK(qp);
	to_state(qp, IBV_QPS_RTS);
	for (int round = 0; round < 20; round++) {
		post_signaled(qp, want, 3);
		while (want < 3 * ((uint64_t)round + 1))
			want += check_batch(cq, want);
	}
	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);
	post_signaled(qp, 1, 2);
	usleep(5000);
	to_state(qp, IBV_QPS_RESET);
	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	setup_end(&s);
}

/* What was not polled before a resize comes after it, and the queue goes on. */
static void test_resize(void)
{
	struct setup s;
	struct ibv_wc wc[16];
	struct ibv_modify_cq_attr moderate = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = {.cq_count = 2, .cq_period = 10},
	};
	uint64_t want = 1;

	setup_make(&s, 4);
	to_state(s.qp, IBV_QPS_RTS);
	for (int cqe = 4; cqe <= 64; cqe *= 2) {
		post_signaled(s.qp, want, 3);
		usleep(5000);
		CHECK(ibv_resize_cq(s.cq, 2) == EINVAL);
		CHECK(ibv_resize_cq(s.cq, cqe) == 0 && s.cq->cqe == cqe);
		CHECK(ibv_poll_cq(s.cq, 16, wc) == 3);
		for (int i = 0; i < 3; i++)
			CHECK(wc[i].wr_id == want++);
	}
	CHECK(ibv_resize_cq(s.cq, 1) == 0 && s.cq->cqe == 1);
	post_signaled(s.qp, want, 1);
	while (ibv_poll_cq(s.cq, 16, wc) == 0)
		;
	CHECK(wc[0].wr_id == want);
	CHECK(ibv_modify_cq(s.cq, &moderate) == 0);
	moderate.moderate.cq_period = 0;
	CHECK(ibv_modify_cq(s.cq, &moderate) == EINVAL);
	moderate.attr_mask = 2;
	CHECK(ibv_modify_cq(s.cq, &moderate) == EOPNOTSUPP);
	setup_end(&s);
}

/* A CQ that overruns gives what it has, then an error; an event tells of it. */
static void test_overrun(void)
{
	struct setup s;
	struct ibv_wc wc[8];
	struct ibv_async_event event;

	setup_make(&s, 2);
	to_state(s.qp, IBV_QPS_RTS);
	post_signaled(s.qp, 1, 3);
	CHECK(ibv_get_async_event(s.context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == s.cq);
	ibv_ack_async_event(&event);
	CHECK(ibv_poll_cq(s.cq, 8, wc) == 2 && wc[1].wr_id == 2);
	CHECK(ibv_poll_cq(s.cq, 8, wc) == -1);
	setup_end(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"post_errors", test_post_errors},
		{"post_contents", test_post_contents},
		{"build_contents", test_build_contents},
		{"build_errors", test_build_errors},
		{"cancel", test_cancel},
		{"poll_ex", test_poll_ex},
		{"overrun", test_overrun},
		{"resize", test_resize},
	};

	return RUN_CASES(cases, argc, argv);
}
