/*
 * Cases of direct.c about what a request has to wait for, and about ends by rdma_cm.
 */
/* late: a message waits for its receive, and the WRITE behind it waits for the message. */
static void late_target(struct side *me)
{
	volatile uint64_t *word;

	make(me, 64, 256);
	word = (void *)me->buffer;
	join(me);
	atomic_store(&me->board->step, 1);
	for (unsigned int i = 1; i <= rounds; i++) {
		double end;

		await(&me->board->step, 2 * i);
		for (end = now() + 500e-6; now() < end;)
			require(*word == i - 1, "the WRITE has overtaken the message");
		post_receives(me, 1);
		require(next(me->receives).status == IBV_WC_SUCCESS, "message");
		for (end = now() + 30; *word != i;)
			require(now() < end, "the WRITE behind the message is lost");
		atomic_store(&me->board->step, 2 * i + 1);
	}
}

static void late_initiator(struct side *me)
{
	make(me, 64, 256);
	join(me);
	await(&me->board->step, 1);
	warm(me);
	for (unsigned int i = 1; i <= rounds; i++) {
		uint64_t *from = (void *)(me->buffer + LENGTH / 2);

		*from = i;
		for (int k = 0; k < 3; k++)
			require(complete(me, (struct request){.offset = 64, .length = 8}) ==
				IBV_WC_SUCCESS, "write");
		require(!post(me, (struct request){.opcode = IBV_WR_SEND, .offset = 4096}), "send");
		if (is_iwarp(me)) /* it is complete, and its message is not taken */
			require(next(me->cq).status == IBV_WC_SUCCESS, "send");
		require(!post(me, (struct request){.length = 8, .from = LENGTH / 2}), "write");
		atomic_store(&me->board->step, 2 * i);
		for (int k = is_iwarp(me); k < 2; k++)
			require(next(me->cq).status == IBV_WC_SUCCESS, "message and WRITE");
		await(&me->board->step, 2 * i + 1);
	}
}

/* disconnect: the target ends the connection by rdma_cm, and is told that it is over. */
static void disconnect_target(struct side *me)
{
	make(me, 64, 256);
	for (unsigned int i = 1; i <= rounds; i++) {
		join(me);
		let_it_write(me, i);
		require(!rdma_disconnect(me->id), "rdma_disconnect: %s", strerror(errno));
		is_mine(me->buffer, LENGTH / 2);
	}
}
