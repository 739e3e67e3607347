/*
 * One-sided operations between two processes, for what may go wrong where a library carries them
 * out itself. It knows nothing of any particular adapter: what it wants, every adapter does.
 *
 *   direct CASE [ROUNDS]
 *
 * It is silent when all is well.
 */
#include "direct.h"

static unsigned long rounds;

static void no_preparation(struct side *me)
{
	make(me, 64, 256);
	join(me);
}

#include "direct_revoke.h"
#include "direct_shape.h"
#include "direct_poll.h"

/*
 * order: small WRITEs among operations of all kinds. The target sees the word at 0 before the
 * message that follows it; and a word that two requests write has what the later one wrote.
 */
static void post_receives(struct side *me, int count)
{
	struct ibv_recv_wr wr = {.num_sge = 0}, *bad;

	while (count--)
		require(!ibv_post_recv(me->qp, &wr, &bad), "ibv_post_recv");
}

static void order_target(struct side *me)
{
	volatile uint64_t *words;
	unsigned long seen = 0;
	struct ibv_wc wc;

	make(me, 64, 256);
	words = (void *)me->buffer;
	join(me);
	post_receives(me, 500);
	atomic_store(&me->board->step, 1);
	while (seen < rounds) {
		int got;

		while ((got = ibv_poll_cq(me->receives, 1, &wc)) == 1) {
			require(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
			seen++;
			require(words[0] >= seen, "message %lu before word %lu", seen,
				(unsigned long)words[0]);
			post_receives(me, 1);
		}
		require(got == 0, "ibv_poll_cq");
	}
	await(&me->board->step, 2);
}

#include "direct_late.h"

/* Other requests that come between. */
static struct request order_filler(uint64_t id)
{
	switch (rand() % 6) {
	case 0:
		return (struct request){.id = id, .offset = 4096, .length = 60000};
	case 1:
		return (struct request){.id = id, .offset = 4096, .length = 64,
					.opcode = IBV_WR_RDMA_READ};
	case 2:
		return (struct request){.id = id, .offset = 128, .length = 8, .add = 1,
					.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
	default:
		return (struct request){.id = id, .offset = 4096, .quiet = rand() % 2,
					.length = (uint32_t)(1 + rand() % 500)};
	}
}

struct order {
	uint64_t ids[64]; /* signaled, not polled */
	unsigned int posted, polled;
	uint64_t id;
	unsigned int in_queue;
};

static void order_poll(struct side *me, struct order *o, bool all)
{
	while (o->polled != o->posted) {
		struct ibv_wc wc;
		int got = ibv_poll_cq(me->cq, 1, &wc);

		require(got >= 0, "ibv_poll_cq");
		if (!got && !all)
			return;
		if (!got)
			continue;
		require(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
		require(wc.wr_id == o->ids[o->polled % 64], "completion of %lu, not of %lu",
			(unsigned long)wc.wr_id, (unsigned long)o->ids[o->polled % 64]);
		o->polled++;
	}
}

static void order_post(struct side *me, struct order *o, struct request r)
{
	int error;

	r.id = o->id++;
	/* Without a signal in between the queue would stay full. */
	r.quiet = r.quiet && o->id % 8;
	if (r.quiet == false)
		o->ids[o->posted % 64] = r.id;
	while ((error = post(me, r)))
		order_poll(me, o, false);
	if (!r.quiet)
		o->posted++;
	if (o->posted - o->polled > 48)
		order_poll(me, o, true);
	else if (rand() % 3 == 0)
		order_poll(me, o, rand() % 2);
}

/* A long WRITE, a short one into it, and a look at what has become of it. */
static void order_overwrite(struct side *me, struct order *o, uint64_t from)
{
	const uint64_t *read = (void *)(me->buffer + LENGTH / 2 + 65536), *wrote;

	wrote = (void *)(me->buffer + from);
	order_post(me, o, (struct request){.offset = 4096, .length = 60000, .quiet = true});
	order_post(me, o, (struct request){.offset = 8192, .length = 8, .from = from,
					   .quiet = rand() % 2});
	order_post(me, o, (struct request){.offset = 8192, .length = 8,
					   .from = LENGTH / 2 + 65536,
					   .opcode = IBV_WR_RDMA_READ});
	order_poll(me, o, true);
	require(*read == *wrote, "%lu, not %lu", (unsigned long)*read, (unsigned long)*wrote);
}

static void order_initiator(struct side *me)
{
	struct order o = {.posted = 0};
	uint64_t *words;

	make(me, 64, 256);
	words = (void *)me->buffer;
	join(me);
	await(&me->board->step, 1);
	warm(me);
	for (uint64_t i = 1; i <= rounds; i++) {
		/* A request reads its word when it likes, so each has one of its own. */
		const uint64_t from = LENGTH / 2 + 8 * (i % 1024);

		words[from / 8] = i;
		order_post(me, &o, (struct request){.length = 8, .from = from,
						    .quiet = rand() % 2});
		order_post(me, &o, (struct request){.opcode = rand() % 2 ? IBV_WR_SEND :
							IBV_WR_RDMA_WRITE_WITH_IMM,
						    .offset = 4096, .quiet = rand() % 2});
		if (rand() % 4 == 0)
			order_overwrite(me, &o, from);
		for (int k = rand() % 8; k > 0; k--)
			order_post(me, &o, order_filler(0));
	}
	order_post(me, &o, (struct request){.length = 8, .offset = 256});
	order_poll(me, &o, true);
	atomic_store(&me->board->step, 2);
}

/* atomics: three kinds of users of one word, and none of their sums is lost. */
static void atomics_initiator(struct side *me)
{
	uint64_t *old, last = 0;

	make(me, 64, 256);
	old = (void *)me->buffer;
	join(me);
	await(&me->board->step, 1);
	for (unsigned long i = 0; i < rounds; i++) {
		if (i % 4 == 0) {
			const uint64_t guess = last;

			require(complete(me, (struct request){
				.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .length = 8,
				.add = guess, .swap = guess + 1}) == IBV_WC_SUCCESS, "swap");
			last = *old;
			if (last == guess)
				atomic_fetch_add(&me->board->count, 1);
			continue;
		}
		/* A longer WRITE sends what follows through the NIC now and then. */
		if (i % 7 == 0)
			require(!post(me, (struct request){.offset = 8192, .length = 65536,
							   .quiet = true}), "post");
		require(complete(me, (struct request){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
						      .length = 8, .add = 1}) == IBV_WC_SUCCESS,
			"add");
		require(*old >= last, "the word went from %lu to %lu", (unsigned long)last,
			(unsigned long)*old);
		last = *old + 1;
		atomic_fetch_add(&me->board->count, 1);
	}
	atomic_store(&me->board->step, 2);
}

static void atomics_target(struct side *me)
{
	_Atomic uint64_t *word;
	uint64_t own = 0;

	make(me, 64, 256);
	word = (void *)me->buffer;
	join(me);
	atomic_store(&me->board->step, 1);
	while (atomic_load(&me->board->step) != 2) {
		atomic_fetch_add(word, 1);
		own++;
	}
	require(atomic_load(word) == own + atomic_load(&me->board->count), "%lu, not %lu + %lu",
		(unsigned long)atomic_load(word), (unsigned long)own,
		atomic_load(&me->board->count));
}

/* full: a queue has room for so many requests, whoever does them, until they are polled. */
static void full_initiator(struct side *me)
{
	const struct request quiet = {.length = 8, .quiet = true};

	make(me, 8, 256);
	join(me);
	await(&me->board->step, 1);
	warm(me);
	for (unsigned long i = 0; i < rounds; i++) {
		const bool through = i % 3 == 1; /* some through the NIC */

		for (int k = 0; k < 7; k++)
			require(!post(me, k == 3 && through ?
				(struct request){.offset = 8192, .length = 60000, .quiet = true} :
				quiet), "request %d of round %lu", k, i);
		require(!post(me, (struct request){.id = i, .length = 8}), "the last");
		require(post(me, quiet) == ENOMEM, "one more than the queue has room for");
		require(next(me->cq).wr_id == i, "order");
	}
	atomic_store(&me->board->step, 2);
}

static void idle_target(struct side *me)
{
	make(me, 64, 256);
	join(me);
	atomic_store(&me->board->step, 1);
	await(&me->board->step, 2);
}

/* events: who asks for an event gets one, whatever was direct before. */
static void events_initiator(struct side *me)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	void *context;

	make(me, 64, 256);
	channel = ibv_create_comp_channel(me->context);
	require(channel, "channel");
	ibv_destroy_qp(me->qp);
	ibv_destroy_cq(me->cq);
	me->cq = ibv_create_cq(me->context, 64, NULL, channel, 0);
	me->qp = ibv_create_qp(me->pd, &(struct ibv_qp_init_attr){
		.send_cq = me->cq, .recv_cq = me->receives, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}});
	require(me->cq && me->qp, "objects");
	join(me);
	await(&me->board->step, 1);
	warm(me);
	for (unsigned long i = 0; i < rounds; i++) {
		require(complete(me, (struct request){.length = 8}) == IBV_WC_SUCCESS, "write");
		require(!ibv_req_notify_cq(me->cq, 0), "arm");
		require(!post(me, (struct request){.id = i, .length = 8}), "post");
		require(!ibv_get_cq_event(channel, &cq, &context) && cq == me->cq, "event");
		ibv_ack_cq_events(cq, 1);
		require(next(me->cq).wr_id == i, "order");
	}
	atomic_store(&me->board->step, 2);
}

/* count: does so many, for who looks at counters; window: keys of windows are good, too. */
static void count_initiator(struct side *me)
{
	no_preparation(me);
	await(&me->board->step, 1);
	warm(me);
	for (unsigned long i = 0; i < rounds; i++) {
		require(complete(me, (struct request){.length = 100}) == IBV_WC_SUCCESS, "write");
		require(complete(me, (struct request){.length = 50, .opcode = IBV_WR_RDMA_READ}) ==
			IBV_WC_SUCCESS, "read");
	}
	printf("done\n");
	fflush(stdout);
	require(getchar() != 'x', "input"); /* until the test has looked */
	atomic_store(&me->board->step, 2);
}

/* stream: so many WRITEs each time that somebody says so. */
static void stream_initiator(struct side *me)
{
	no_preparation(me);
	await(&me->board->step, 1);
	for (int round = 1; round <= 3; round++) {
		for (unsigned long i = 0; i < rounds; i++)
			require(complete(me, (struct request){.length = 100}) == IBV_WC_SUCCESS,
				"write");
		printf("round %d\n", round);
		fflush(stdout);
		require(getchar() != 'x', "input");
	}
	atomic_store(&me->board->step, 2);
}

/* endless: until there is no NIC any more. */
static void endless_initiator(struct side *me)
{
	struct ibv_wc wc;
	int got = 0;

	no_preparation(me);
	await(&me->board->step, 1);
	while (got >= 0 && !post(me, (struct request){.length = 8}))
		while ((got = ibv_poll_cq(me->cq, 1, &wc)) == 0)
			;
	puts("the NIC is gone");
	atomic_store(&me->board->step, 2);
}

/* orphan: until the target is gone, which ends itself in the middle. */
static void orphan_target(struct side *me)
{
	no_preparation(me);
	let_it_write(me, 1);
	atomic_store(&me->board->step, 2);
	kill(getpid(), SIGKILL);
}

static void orphan_initiator(struct side *me)
{
	no_preparation(me);
	await(&me->board->step, 1);
	hammer(me);
	require(atomic_load(&me->board->step) == 2, "too early");
	puts("the peer is gone");
	exit(0);
}

static const struct {
	const char *name;
	void (*initiator)(struct side *me);
	void (*target)(struct side *me);
	unsigned long rounds;
} cases[] = {
	{"order", order_initiator, order_target, 5000},
	{"revoke", hammer_initiator, revoke_target, 200},
	{"reregister", hammer_initiator, reregister_target, 200},
	{"rights", hammer_initiator, rights_target, 200},
	{"error", hammer_initiator, error_target, 20},
	{"access", hammer_initiator, access_target, 200},
	{"atomics", atomics_initiator, atomics_target, 20000},
	{"full", full_initiator, idle_target, 2000},
	{"events", events_initiator, idle_target, 500},
	{"count", count_initiator, idle_target, 1000},
	{"stream", stream_initiator, idle_target, 300},
	{"endless", endless_initiator, idle_target, 0},
	{"orphan", orphan_initiator, orphan_target, 0},
	{"list", list_initiator, idle_target, 5000},
	{"extended", extended_initiator, idle_target, 1000},
	{"fringes", fringes_initiator, fringes_target, 2000},
	{"overrun", overrun_initiator, idle_target, 20},
	{"late", late_initiator, late_target, 100},
	{"disconnect", hammer_initiator, disconnect_target, 100},
	{"threads", threads_initiator, idle_target, 20000},
	{"crooked", crooked_initiator, crooked_target, 200},
	{"renew", renew_initiator, renew_target, 40},
	{"cancelled", cancelled_initiator, idle_target, 60},
	{"interrupted", interrupted_initiator, idle_target, 5000},
};

/* The target is another user's. */
static void become(int user)
{
	require(!setgid((gid_t)user) && !setuid((uid_t)user), "setuid");
}

int main(int argc, char **argv)
{
	struct side me = {.which = 0};
	int status;
	pid_t child;

	me.board = mmap(NULL, sizeof(*me.board), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(me.board != MAP_FAILED && argc > 1, "usage");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[1], cases[i].name))
			continue;
		rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : cases[i].rounds;
		child = fork();
		require(child >= 0, "fork");
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getenv("DIRECT_TARGET_USER"))
				become(atoi(getenv("DIRECT_TARGET_USER")));
			me.which = 1;
			cases[i].target(&me);
			return 0;
		}
		cases[i].initiator(&me);
		require(waitpid(child, &status, 0) == child && status == 0, "the target: %d", status);
		return 0;
	}
	return 2;
}
