/*
 * Cases of direct.c about what requests and completions look like.
 */
/* list: what is posted together is done together, in this order, with gathering and inline data. */
static void list_post(struct side *me, uint64_t value)
{
	uint64_t *words = (void *)(me->buffer + LENGTH / 2);
	struct ibv_sge pair[2] = {
		{(uintptr_t)&words[0], 8, me->mr->lkey}, {(uintptr_t)&words[1], 8, me->mr->lkey},
	}, back = {(uintptr_t)&words[8], 16, me->mr->lkey}, inside = {(uintptr_t)&value, 8, 0};
	struct ibv_send_wr wrs[3] = {
		{.wr_id = 1, .next = &wrs[1], .sg_list = pair, .num_sge = 2,
		 .opcode = IBV_WR_RDMA_WRITE},
		{.wr_id = 2, .next = &wrs[2], .sg_list = &inside, .num_sge = 1,
		 .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE | IBV_SEND_FENCE},
		{.wr_id = 3, .sg_list = &back, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		 .send_flags = IBV_SEND_SIGNALED},
	}, *bad;

	for (int i = 0; i < 3; i++) {
		wrs[i].wr.rdma.remote_addr = me->board->place.addr + (i == 1 ? 8 : 0);
		wrs[i].wr.rdma.rkey = me->board->place.rkey;
	}
	words[0] = value;
	words[1] = ~value;
	require(!ibv_post_send(me->qp, wrs, &bad), "list");
	require(next(me->cq).wr_id == 3, "order");
	require(words[8] == value && words[9] == value, "%lx %lx", (unsigned long)words[8],
		(unsigned long)words[9]);
}

static void list_initiator(struct side *me)
{
	no_preparation(me);
	await(&me->board->step, 1);
	warm(me);
	for (unsigned long i = 1; i <= rounds; i++)
		list_post(me, i);
	atomic_store(&me->board->step, 2);
}

/* extended: the other way to poll tells the same, and when. */
static void extended_initiator(struct side *me)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_poll_cq_attr none = {.comp_mask = 0};
	struct ibv_cq_ex *cq;
	uint64_t last = 0;

	make(me, 64, 256);
	ibv_destroy_qp(me->qp);
	cq = ibv_create_cq_ex(me->context, &attr);
	me->qp = ibv_create_qp(me->pd, &(struct ibv_qp_init_attr){
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = me->receives, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}});
	ibv_destroy_cq(me->cq);
	me->cq = ibv_cq_ex_to_cq(cq);
	join(me);
	await(&me->board->step, 1);
	warm(me);
	for (unsigned long i = 0; i < rounds; i++) {
		int error;

		for (unsigned int k = 0; k < 8; k++)
			require(!post(me, (struct request){.id = k, .offset = 64, .length = 40 + k}), "post");
		while ((error = ibv_start_poll(cq, &none)) == ENOENT)
			;
		for (unsigned int k = 0; k < 8; k++) {
			require(error == 0 && cq->wr_id == k && cq->status == IBV_WC_SUCCESS, "entry %u", k);
			require(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE, "opcode");
			require(ibv_wc_read_byte_len(cq) == 40 + k, "length");
			require(ibv_wc_read_qp_num(cq) == me->qp->qp_num, "number");
			require(ibv_wc_read_completion_ts(cq) >= last, "time");
			last = ibv_wc_read_completion_ts(cq);
			while ((error = ibv_next_poll(cq)) == ENOENT && k < 7) {
				ibv_end_poll(cq);
				while ((error = ibv_start_poll(cq, &none)) == ENOENT)
					;
				break;
			}
		}
		require(error == ENOENT, "one too many");
		ibv_end_poll(cq);
	}
	atomic_store(&me->board->step, 2);
}

/*
 * fringes: a region that begins and ends within pages, of which only whole ones can be mapped; what
 * lies over a border is as good as the rest.
 */
static void fringes_target(struct side *me)
{
	struct ibv_mr *mr;

	make(me, 64, 256);
	ibv_dereg_mr(me->mr);
	mr = expose(me, me->buffer + 100, 65536);
	me->board->place = (struct place){(uintptr_t)me->buffer + 100, mr->rkey};
	join(me);
	atomic_store(&me->board->step, 1);
	await(&me->board->step, 2);
}

static void fringes_initiator(struct side *me)
{
	enum ibv_wc_status status;

	make(me, 64, 256);
	join(me);
	await(&me->board->step, 1);
	for (unsigned long i = 0; i < rounds; i++) {
		const unsigned int length = 1 + (unsigned int)rand() % 300, at = (unsigned int)rand();
		const uint64_t offset = i % 3 == 0 ? 3996 - at % 200 :
					i % 3 == 1 ? 65536 - length - at % 200 : at % 60000;
		unsigned char *from = me->buffer + LENGTH / 2, *back = from + 4096;

		for (unsigned int k = 0; k < length; k++)
			from[k] = (unsigned char)rand();
		require(complete(me, (struct request){.offset = offset, .length = length,
			.from = LENGTH / 2}) == IBV_WC_SUCCESS, "write");
		require(complete(me, (struct request){.offset = offset, .length = length,
			.from = LENGTH / 2 + 4096, .opcode = IBV_WR_RDMA_READ}) == IBV_WC_SUCCESS,
			"read");
		require(!memcmp(from, back, length), "%u bytes at %lu", length,
			(unsigned long)offset);
	}
	/* One byte too many ends it, here as there. On iWARP who writes learns of it by the end. */
	do
		status = complete(me, (struct request){.offset = 65536 - 8, .length = 9});
	while (is_iwarp(me) && status == IBV_WC_SUCCESS);
	require(status == (is_iwarp(me) ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR),
		"beyond the end: %s", ibv_wc_status_str(status));
	atomic_store(&me->board->step, 2);
}

/*
 * crooked: atomics on words that are aligned by the region's IOVA, but not in memory. They are
 * whole only where all who add do so one after the other.
 */
static void crooked_target(struct side *me)
{
	struct ibv_mr *mr;

	make(me, 64, 256);
	mr = ibv_reg_mr_iova(me->pd, me->buffer + 4, 65536, 0x10000, ACCESS);
	require(mr, "ibv_reg_mr_iova");
	me->board->place = (struct place){0x10000, mr->rkey};
	join(me);
	atomic_store(&me->board->step, 1);
	await(&me->board->step, 2);
	require(!memcmp(me->buffer + 8192 + 4, &(uint64_t){rounds}, 8), "sum");
}

static void crooked_initiator(struct side *me)
{
	no_preparation(me);
	await(&me->board->step, 1);
	for (uint64_t i = 0; i < rounds; i++)
		require(complete(me, (struct request){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.offset = 8192, .from = 64, .length = 8, .add = 1}) == IBV_WC_SUCCESS &&
			*(uint64_t *)(void *)(me->buffer + 64) == i, "the value before");
	atomic_store(&me->board->step, 2);
}

/* overrun: a CQ holds as many completions as it was made for, and no more. */
static void overrun_initiator(struct side *me)
{
	struct ibv_wc wc;
	int got;

	make(me, 64, 16);
	join(me);
	await(&me->board->step, 1);
	warm(me);
	for (unsigned long i = 0; i < rounds; i++) {
		for (uint64_t k = 0; k < 16; k++)
			require(!post(me, (struct request){.id = k, .length = 8}), "post");
		for (uint64_t k = 0; k < 16; k++)
			require(next(me->cq).wr_id == k, "order");
	}
	for (uint64_t k = 0; k < 17; k++)
		require(!post(me, (struct request){.id = k, .length = 8}), "post");
	usleep(100000); /* for the one that does not fit */
	do
		got = ibv_poll_cq(me->cq, 1, &wc);
	while (got > 0);
	for (int i = 0; got == 0 && i < 1000; i++, usleep(1000))
		got = ibv_poll_cq(me->cq, 1, &wc);
	require(got < 0, "17 completions in a CQ of 16");
	atomic_store(&me->board->step, 2);
}

/* threads: some that post, and one that polls, which sleeps when there is nothing. */
struct poster {
	pthread_t thread;
	struct side side;
};

static void *poster_run(void *arg)
{
	struct poster *p = arg;

	for (unsigned long i = 0; i < rounds; i++) {
		struct request r = {.id = i, .length = 8, .quiet = i % 4 != 3};

		while (post(&p->side, r) == ENOMEM)
			sched_yield();
		if (i % 1000 == 0)
			usleep(100);
	}
	return NULL;
}

static void threads_initiator(struct side *me)
{
	struct ibv_comp_channel *channel;
	struct poster poster;
	unsigned long expected = 3;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int got;

	make(me, 64, 256);
	channel = ibv_create_comp_channel(me->context);
	ibv_destroy_qp(me->qp);
	ibv_destroy_cq(me->cq);
	me->cq = ibv_create_cq(me->context, 64, NULL, channel, 0);
	me->qp = ibv_create_qp(me->pd, &(struct ibv_qp_init_attr){
		.send_cq = me->cq, .recv_cq = me->receives, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}});
	join(me);
	await(&me->board->step, 1);
	poster.side = *me;
	require(!pthread_create(&poster.thread, NULL, poster_run, &poster), "thread");
	while (expected < rounds) {
		require(!ibv_req_notify_cq(me->cq, 0), "arm");
		while ((got = ibv_poll_cq(me->cq, 1, &wc)) == 0 && expected < rounds) {
			require(!ibv_get_cq_event(channel, &cq, &context), "event");
			ibv_ack_cq_events(cq, 1);
			require(!ibv_req_notify_cq(me->cq, 0), "arm");
		}
		for (; got == 1; got = ibv_poll_cq(me->cq, 1, &wc)) {
			require(wc.status == IBV_WC_SUCCESS && wc.wr_id == expected, "%lu, not %lu",
				(unsigned long)wc.wr_id, expected);
			expected += 4;
		}
	}
	pthread_join(poster.thread, NULL);
	atomic_store(&me->board->step, 2);
}
