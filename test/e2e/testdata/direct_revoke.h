/*
 * Cases of direct.c in which the target takes back what it has exposed, while the initiator writes
 * there: afterwards nobody changes a byte of it.
 */
/* Writes until the key is refused, which ends the connection; with all kinds of sizes. */
static void hammer(struct side *me)
{
	static const uint32_t sizes[] = {8, 64, 4096, 16384};
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	memset(me->buffer, 0xee, LENGTH / 2);
	for (unsigned int i = 0; status == IBV_WC_SUCCESS; i++) {
		status = complete(me, (struct request){.length = sizes[i % 4],
						       .offset = 4096 * (i % 16)});
		atomic_fetch_add(&me->board->count, 1);
	}
	require(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_RETRY_EXC_ERR ||
		status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_WR_FLUSH_ERR ||
		status == IBV_WC_REM_OP_ERR, "%s", ibv_wc_status_str(status));
}

static void hammer_initiator(struct side *me)
{
	make(me, 64, 256);
	for (unsigned int i = 1; i <= rounds; i++) {
		join(me);
		await(&me->board->step, i);
		hammer(me);
	}
}

/* Waits until the initiator is at it for long enough to go direct, and some time more. */
static void let_it_write(struct side *me, unsigned int round)
{
	const unsigned long enough = atomic_load(&me->board->count) + 30;
	const double end = now() + 30;

	atomic_store(&me->board->step, round);
	while (atomic_load(&me->board->count) < enough)
		require(now() < end, "the initiator has stopped");
	for (volatile int i = rand() % 2000; i > 0; i--)
		;
}

/* Fills memory that is nobody else's any more, and sees whether anybody changes it. */
static void is_mine(unsigned char *memory, size_t length)
{
	const double end = now() + 300e-6;

	memset(memory, 0x11, length);
	do {
		for (size_t i = 0; i < length; i++)
			require(memory[i] == 0x11, "byte %zu has become %#x", i, memory[i]);
	} while (now() < end);
}

/* Exposes memory in each round, and takes it back by take while the initiator writes there. */
static void expose_and_take(struct side *me, void (*take)(struct side *me, struct ibv_mr *mr))
{
	make(me, 64, 256);
	for (unsigned int i = 1; i <= rounds; i++) {
		struct ibv_mr *mr = expose(me, me->buffer, LENGTH / 2);

		me->board->place.rkey = mr->rkey;
		join(me);
		let_it_write(me, i);
		take(me, mr);
	}
}

static void take_region(struct side *me, struct ibv_mr *mr)
{
	require(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	is_mine(me->buffer, LENGTH / 2);
}

/* The target deregisters its memory and uses it for something else. */
static void revoke_target(struct side *me)
{
	expose_and_take(me, take_region);
}

static void take_elsewhere(struct side *me, struct ibv_mr *mr)
{
	require(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, me->buffer + LENGTH / 2,
			      LENGTH / 4, 0), "ibv_rereg_mr");
	is_mine(me->buffer, LENGTH / 2);
	require(!ibv_dereg_mr(mr), "ibv_dereg_mr");
}

/* The key stays, but leads elsewhere. */
static void reregister_target(struct side *me)
{
	expose_and_take(me, take_elsewhere);
}

static void take_rights(struct side *me, struct ibv_mr *mr)
{
	require(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), "rereg");
	is_mine(me->buffer, LENGTH / 2);
	require(!ibv_dereg_mr(mr), "ibv_dereg_mr");
}

/* The key stays, its rights go. */
static void rights_target(struct side *me)
{
	expose_and_take(me, take_rights);
}

/* The target ends the connection by its own queue pair. */
static void error_target(struct side *me)
{
	make(me, 64, 256);
	for (unsigned int i = 1; i <= rounds; i++) {
		join(me);
		let_it_write(me, i);
		if (i % 2)
			modify(me, (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, 0);
		else
			modify(me, (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, 0);
		is_mine(me->buffer, LENGTH / 2);
	}
}

/* The target takes the right to write back, and gives it again, while the connection lives. */
static void access_target(struct side *me)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	make(me, 64, 256);
	for (unsigned int i = 1; i <= rounds; i++) {
		join(me);
		let_it_write(me, i);
		attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
		require(!ibv_modify_qp(me->qp, &attr, IBV_QP_ACCESS_FLAGS), "access flags");
		is_mine(me->buffer, LENGTH / 2);
	}
}

/* renew: memory that is registered anew for every few WRITEs is written to directly all the same */
static void renew_target(struct side *me)
{
	no_preparation(me);
	for (unsigned int i = 0; i < rounds; i++) {
		struct ibv_mr *mr = expose(me, me->buffer, 4096);

		me->board->place = (struct place){(uintptr_t)me->buffer, mr->rkey};
		atomic_store(&me->board->step, 2 * i + 1);
		await(&me->board->step, 2 * i + 2);
		require(me->buffer[0] == (unsigned char)(i + 1), "round %u: %u", i, me->buffer[0]);
		require(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	}
}

static void renew_initiator(struct side *me)
{
	no_preparation(me);
	for (unsigned int i = 0; i < rounds; i++) {
		await(&me->board->step, 2 * i + 1);
		me->buffer[0] = (unsigned char)(i + 1);
		for (int k = 0; k < 20; k++)
			require(complete(me, (struct request){.length = 8}) == IBV_WC_SUCCESS, "write");
		atomic_store(&me->board->step, 2 * i + 2);
	}
}
