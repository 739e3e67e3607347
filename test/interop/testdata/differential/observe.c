/* SPDX-License-Identifier: Apache-2.0 */
/* What a step led to: completions, events, and bytes that changed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "world.h"

/* The completions of a step, kept until it is over: only the order within a queue is fixed. */
enum { COMPLETIONS = 1024, EVENTS = 64, PATIENCE_MS = 3000 };
static struct ibv_wc completions[COMPLETIONS];
static unsigned int completion_count;
static char events[EVENTS][80];
static unsigned int event_count;

struct work *works_add(struct works *works, uint64_t id)
{
	struct work *work = &works->list[works->tail++ % WORKS];

	*work = (struct work){.id = id};
	return work;
}

void works_drop(struct works *works)
{
	works->head = works->tail;
}

unsigned int works_count(const struct works *works)
{
	return works->tail - works->head;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void fill_areas(void)
{
	for (int a = 0; a < AREAS; a++) {
		for (int i = 0; i < AREA_BYTES; i++)
			world.areas[a][i] = (unsigned char)(i * 7 + i / 251 + a * 31 + world.step);
	}
}

static uint64_t sum_of(const unsigned char *bytes)
{
	uint64_t sum = 0xcbf29ce484222325;

	for (int i = 0; i < AREA_BYTES; i++)
		sum = (sum ^ bytes[i]) * 0x100000001b3;
	return sum;
}

static void sum_areas(bool quietly)
{
	for (int a = 0; a < AREAS; a++) {
		uint64_t sum = sum_of(world.areas[a]);

		if (sum != world.sums[a] && !quietly)
			tell("  area %d is %016lx", a, (unsigned long)sum);
		world.sums[a] = sum;
	}
}

static void never_block(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		die("fcntl");
}

void observe_begin(void)
{
	never_block(world.context->async_fd);
	never_block(world.channel->fd);
	fill_areas();
	sum_areas(true);
}

static int qp_of_number(uint32_t number)
{
	for (int i = 0; i < QPS; i++) {
		if (world.qps[i].qp && world.qps[i].qp->qp_num == number)
			return i;
	}
	return -1;
}

static const char *name_of(const void *object, const char *kind)
{
	static char name[16];
	int i = 0;

	if (!strcmp(kind, "qp")) {
		while (i < QPS && world.qps[i].qp != object)
			i++;
	} else if (!strcmp(kind, "srq")) {
		while (i < SRQS && world.srqs[i].srq != object)
			i++;
	} else {
		while (i < CQS && world.cqs[i] != object)
			i++;
	}
	snprintf(name, sizeof(name), "%s%d", kind, i);
	return name;
}

static void take_events(void)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(world.context, &event) == 0) {
		const char *name = "";

		if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED ||
		    event.event_type == IBV_EVENT_SRQ_ERR)
			name = name_of(event.element.srq, "srq");
		else if (event.event_type == IBV_EVENT_CQ_ERR)
			name = name_of(event.element.cq, "cq");
		else if (event.event_type <= IBV_EVENT_PATH_MIG_ERR ||
			 event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
			name = name_of(event.element.qp, "qp");
		/* Those of a device or port come when they like. */
		if (*name && event_count < EVENTS)
			snprintf(events[event_count++], sizeof(events[0]), "  event %s %s",
				 ibv_event_type_str(event.event_type), name);
		ibv_ack_async_event(&event);
	}
}

/* A completion ends all requests before it; one that reports no success ends one each. */
static bool end_work(struct works *works, uint64_t id, struct work *ended)
{
	for (unsigned int i = works->head; i != works->tail; i++) {
		if (works->list[i % WORKS].id == id) {
			*ended = works->list[i % WORKS];
			works->head = i + 1;
			return true;
		}
	}
	return false;
}

static int take_completions(void)
{
	int taken = 0;

	for (int i = 0; i < CQS; i++) {
		struct ibv_wc wc;
		int got;

		if (!world.cqs[i])
			continue;
		while ((got = ibv_poll_cq(world.cqs[i], 1, &wc)) == 1) {
			if (completion_count < COMPLETIONS)
				completions[completion_count++] = wc;
			taken++;
		}
		if (got < 0)
			tell("  poll_cq cq%d: %d", i, got);
	}
	return taken;
}

/* Tells whether a queue pair has something to complete that it is able to. */
static bool is_busy(int i)
{
	struct qp_slot *q = &world.qps[i];
	enum ibv_qp_state state;
	unsigned int waiting = 0;

	if (!q->qp)
		return false;
	for (unsigned int k = q->sends.head; k != q->sends.tail; k++) {
		waiting += q->sends.list[k % WORKS].signaled;
		for (unsigned int c = 0; c < completion_count; c++) {
			if (completions[c].wr_id == q->sends.list[k % WORKS].id &&
			    completions[c].qp_num == q->qp->qp_num)
				waiting = 0;
		}
	}
	if (!waiting)
		return false;
	state = queue_pair_state(i);
	return state == IBV_QPS_RTS || state == IBV_QPS_ERR;
}

static bool someone_is_busy(void)
{
	for (int i = 0; i < QPS; i++) {
		if (is_busy(i))
			return true;
	}
	return false;
}

static void settle(void)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	int64_t start = now_ms(), quiet = start;

	for (;;) {
		int64_t now = now_ms();

		if (take_completions())
			quiet = now;
		take_events();
		if (now - start > PATIENCE_MS)
			break;
		if (now - quiet >= world.settle_ms && !someone_is_busy())
			break;
		nanosleep(&nap, NULL);
	}
}

/* The header that a datagram's receiver gets has fields that are free, like the packet's number. */
static void wipe_header(const struct work *work)
{
	uint32_t left = GRH_BYTES;

	for (int i = 0; i < work->num_sge && left; i++) {
		uint32_t part = work->sges[i].length < left ? work->sges[i].length : left;

		memset((void *)(uintptr_t)work->sges[i].addr, 0, part);
		left -= part;
	}
}

static void tell_send(int i, const struct ibv_wc *wc)
{
	struct work work;

	if (!end_work(&world.qps[i].sends, wc->wr_id, &work)) {
		tell("  send qp%d %u out of order", i, (unsigned int)wc->wr_id & 0x7fffffff);
		return;
	}
	if (wc->status) {
		tell("  send qp%d %u: %s", i, (unsigned int)wc->wr_id & 0x7fffffff,
		     ibv_wc_status_str(wc->status));
		return;
	}
	tell("  send qp%d %u: opcode %d", i, (unsigned int)wc->wr_id & 0x7fffffff, wc->opcode);
	if (wc->opcode == IBV_WC_RDMA_READ)
		tell("  send qp%d %u length %u", i, (unsigned int)wc->wr_id & 0x7fffffff, wc->byte_len);
}

static void tell_receive(int i, const struct ibv_wc *wc)
{
	struct qp_slot *q = &world.qps[i];
	struct works *works = q->srq >= 0 ? &world.srqs[q->srq].works : &q->receives;
	unsigned int flags = wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV);
	struct work work;

	/* ibv_poll_cq(3): means something for datagrams only. rxe sets it for UC too. */
	if (q->qp->qp_type == IBV_QPT_UD)
		flags |= wc->wc_flags & IBV_WC_GRH;
	if (!end_work(works, wc->wr_id, &work)) {
		tell("  recv qp%d %u out of order", i, (unsigned int)wc->wr_id & 0x7fffffff);
		return;
	}
	if (wc->status) {
		tell("  recv qp%d %u: %s", i, (unsigned int)wc->wr_id & 0x7fffffff,
		     ibv_wc_status_str(wc->status));
		return;
	}
	tell("  recv qp%d %u: opcode %d length %u flags %#x", i, (unsigned int)wc->wr_id & 0x7fffffff,
	     wc->opcode, wc->byte_len, flags);
	if (flags & IBV_WC_WITH_IMM)
		tell("  recv qp%d %u immediate %#x", i, (unsigned int)wc->wr_id & 0x7fffffff, wc->imm_data);
	if (q->qp->qp_type == IBV_QPT_UD) {
		tell("  recv qp%d %u from qp%d", i, (unsigned int)wc->wr_id & 0x7fffffff,
		     qp_of_number(wc->src_qp));
		wipe_header(&work);
	}
}

/* Receives carry bit 31 of the number of their work request, whatever their status. */
static void tell_completions(void)
{
	for (int i = 0; i < QPS; i++) {
		for (int receives = 0; receives < 2; receives++) {
			for (unsigned int k = 0; k < completion_count; k++) {
				const struct ibv_wc *wc = &completions[k];

				if (qp_of_number(wc->qp_num) != i ||
				    (wc->wr_id >> 31 & 1) != (unsigned int)receives)
					continue;
				world.spoilt |= wc->status != IBV_WC_SUCCESS;
				if (receives)
					tell_receive(i, wc);
				else
					tell_send(i, wc);
			}
		}
	}
	for (unsigned int k = 0; k < completion_count; k++) {
		if (qp_of_number(completions[k].qp_num) < 0)
			tell("  completion of no queue pair");
	}
	completion_count = 0;
}

/*
 * Queues are empty now, so whether something wakes their readers depends on this step alone, if a
 * program always asks for the same: a queue that was not woken remembers what it was asked for.
 */
void observe_arm(void)
{
	for (int i = 0; i < CQS; i++) {
		if (world.cqs[i] && ibv_req_notify_cq(world.cqs[i], world.solicited))
			tell("req_notify_cq cq%d: %s", i, outcome(errno));
	}
}

static void tell_wakeups(void)
{
	bool woken[CQS] = {false};
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(world.channel, &cq, &context) == 0) {
		for (int i = 0; i < CQS; i++)
			woken[i] |= world.cqs[i] == cq;
		ibv_ack_cq_events(cq, 1);
	}
	for (int i = 0; i < CQS; i++) {
		if (woken[i])
			tell("  cq%d woke", i);
	}
}

static void tell_events(void)
{
	for (unsigned int pass = 1; pass < event_count; pass++) {
		for (unsigned int i = 0; i + pass < event_count; i++) {
			char swap[sizeof(events[0])];

			if (strcmp(events[i], events[i + 1]) <= 0)
				continue;
			memcpy(swap, events[i], sizeof(swap));
			memcpy(events[i], events[i + 1], sizeof(swap));
			memcpy(events[i + 1], swap, sizeof(swap));
		}
	}
	for (unsigned int i = 0; i < event_count; i++)
		tell("%s", events[i]);
	event_count = 0;
}

static void tell_states(void)
{
	static enum ibv_qp_state before[QPS];

	for (int i = 0; i < QPS; i++) {
		enum ibv_qp_state state = IBV_QPS_UNKNOWN;

		if (world.qps[i].qp)
			state = queue_pair_state(i);
		if (state != before[i] && world.qps[i].qp)
			tell("  qp%d is in state %d", i, state);
		before[i] = state;
		if (world.qps[i].qp && is_busy(i)) {
			tell("  qp%d hangs", i);
			works_drop(&world.qps[i].sends);
		}
	}
}

void observe(void)
{
	settle();
	tell_completions();
	tell_wakeups();
	tell_events();
	tell_states();
	if (!world.spoilt)
		sum_areas(false);
	if (world.risky) {
		fill_areas();
		sum_areas(true);
	}
	world.spoilt = false;
}
