/* SPDX-License-Identifier: Apache-2.0 */
/* Work requests, right and wrong. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "world.h"

enum { CHAIN = 3, RECEIVE_BIT = 31, ROOM = 9000, MANY = 64 };

struct send {
	struct ibv_send_wr wr;
	struct ibv_sge sges[SGES];
	int window, to; /* whose bind it is, and the queue pair that a datagram is for, or -1 */
	uint32_t total;
	char words[200]; /* says what it is */
};

/* Tells whether to do wrong, which a safe step never does. */
static bool risk(unsigned int percent)
{
	return world.risky && chance_percent(percent);
}

static uint32_t some_length(void)
{
	return CHANCE_OF(0, 1, 7, 8, 64, 100, 255, 256, 257, 1023, 1024, 1025, 3000, 4000);
}

/* A piece of a region, which now and then leaves it or has a wrong key. */
static void some_piece(const struct mr_slot *m, uint32_t *offset, uint32_t *length)
{
	*length = some_length();
	if (*length > m->length)
		*length = m->length;
	*offset = chance_below(m->length - *length + 1);
	if (risk(3))
		*offset = m->length - *length + 1 + chance_below(50);
}

static bool some_sge(const struct qp_slot *q, struct ibv_sge *sge, int area, char *words)
{
	unsigned int access = area == SOURCE ? 0 : IBV_ACCESS_LOCAL_WRITE;
	int i = object_mr_of(q->pd, area, access);
	const struct mr_slot *m;
	const char *fault = "";
	uint32_t offset, length;

	if (risk(4)) {
		i = chance_below(MRS);
		if (!world.mrs[i].mr || world.mrs[i].area != area)
			return false;
	}
	if (i < 0)
		return false;
	m = &world.mrs[i];
	some_piece(m, &offset, &length);
	*sge = (struct ibv_sge){(uintptr_t)m->mr->addr + offset, length, m->mr->lkey};
	if (risk(2)) {
		sge->lkey ^= 0x55;
		fault = " bad key";
	}
	sprintf(words + strlen(words), " mr%d+%u/%u%s", i, offset, length, fault);
	return true;
}

/* More entries than any queue takes that was made here. */
static struct ibv_sge *too_many(int area)
{
	static struct ibv_sge sges[MANY];

	for (int i = 0; i < MANY; i++)
		sges[i] = (struct ibv_sge){(uintptr_t)world.mrs[area].mr->addr, 1,
					   world.mrs[area].mr->lkey};
	return sges;
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* A place of the peer with room for the message. */
static void some_remote(const struct qp_slot *q, struct send *s, uint64_t *addr, uint32_t *rkey)
{
	const int area = s->wr.opcode == IBV_WR_RDMA_READ ? WELL : TARGET;
	int i = object_mr_of(0, area, world.risky ? 0 : IBV_ACCESS_REMOTE_WRITE);
	int w = chance_below(MWS);
	const struct mw_slot *mw = &world.mws[w];
	const struct mr_slot *m = &world.mrs[i];
	uint32_t offset;
	const char *fault = "";

	if (mw->mw && mw->bound && chance_percent(80) && area == TARGET &&
	    !is_atomic(s->wr.opcode) &&
	    (mw->mw->type == IBV_MW_TYPE_1 || mw->qp == q->peer || risk(30)) &&
	    (mw->length >= s->total || world.risky)) {
		offset = mw->length >= s->total ? chance_below(mw->length - s->total + 1) : 0;
		*addr = (uintptr_t)world.mrs[mw->mr].mr->addr + mw->offset + offset;
		*rkey = mw->mw->type == IBV_MW_TYPE_1 ? mw->mw->rkey : mw->next_rkey;
		sprintf(s->words + strlen(s->words), " at mw%d+%u", w, offset);
		return;
	}
	if (m->length < s->total)
		m = &world.mrs[i = area];
	offset = chance_below(m->length - s->total + 1);
	if (risk(4))
		offset = m->length - s->total + 1 + chance_below(50);
	*addr = (uintptr_t)m->mr->addr + offset;
	if (is_atomic(s->wr.opcode) && !risk(5)) {
		m = &world.mrs[i = TARGET];
		offset &= ~7u;
		*addr = (uintptr_t)m->mr->addr + offset;
	}
	*rkey = m->mr->rkey;
	if (risk(4)) {
		*rkey ^= 0x55;
		fault = " bad key";
	} else if (world.mrs[MRS - 1].dead_lkey && risk(4)) { /* rxe's rkey is 0 without rights */
		*rkey = world.mrs[MRS - 1].dead_rkey;
		fault = " dead key";
	}
	sprintf(s->words + strlen(s->words), " at mr%d+%u%s", i, offset, fault);
}

static void some_datagram(struct send *s, int to)
{
	int a = risk(20) ? (int)chance_below(AHS) : 0;

	if (!world.ahs[a].ah)
		a = 0;
	s->to = to;
	s->wr.wr.ud.ah = world.ahs[a].ah;
	s->wr.wr.ud.remote_qpn = world.qps[to].qp && !risk(3) ? world.qps[to].qp->qp_num : 0xfffff0;
	s->wr.wr.ud.remote_qkey = risk(8) ? 0x22222222 : world.qps[to].qkey;
	sprintf(s->words + strlen(s->words), " ah%d to qp%d%s qkey %#x", a, to,
		s->wr.wr.ud.remote_qpn == 0xfffff0 ? " (none)" : "", s->wr.wr.ud.remote_qkey);
}

static int some_window(void)
{
	int first = chance_below(MWS);

	for (int k = 0; k < MWS; k++) {
		int w = (first + k) % MWS;

		if (world.mws[w].mw && world.mws[w].mw->type == IBV_MW_TYPE_2 && world.mws[w].pd == 0)
			return w;
	}
	return -1;
}

/*
 * Binds a window, or invalidates one that is bound: the kernel's driver dies of the invalidation
 * of one that was never bound (Linux 6.1, rxe_do_invalidate_mw uses the queue pair that it is not
 * bound to). It is bound once a step: libraries take the key that the window has from struct
 * ibv_mw, which is of before the chain.
 */
static bool some_bind(int q, struct send *s)
{
	int w = some_window(), m = object_mr_of(0, TARGET, IBV_ACCESS_MW_BIND);
	struct mw_slot *mw = &world.mws[w];

	if (w < 0 || m < 0)
		return false;
	if (mw->bound) {
		/* Only the queue pair that it is bound to may do so, or the peer of that one. */
		if (mw->qp != q && world.qps[q].peer != mw->qp)
			return false;
		s->wr.opcode = mw->qp == q ? IBV_WR_LOCAL_INV : IBV_WR_SEND_WITH_INV;
		s->wr.invalidate_rkey = mw->next_rkey;
		mw->bound = false;
		sprintf(s->words + strlen(s->words), " mw%d", w);
		return true;
	}
	if (mw->bound_at == world.step)
		return false;
	mw->bound_at = world.step;
	mw->offset = chance_below(world.mrs[m].length / 2);
	mw->length = 1 + chance_below(world.mrs[m].length - mw->offset);
	if (risk(5))
		mw->length += world.mrs[m].length;
	mw->mr = m;
	mw->bound = true;
	mw->qp = q;
	mw->next_rkey = ibv_inc_rkey(mw->next_rkey);
	s->wr.opcode = IBV_WR_BIND_MW;
	s->wr.bind_mw.mw = mw->mw;
	s->wr.bind_mw.rkey = mw->next_rkey;
	s->wr.bind_mw.bind_info.mr = world.mrs[m].mr;
	s->wr.bind_mw.bind_info.addr = (uintptr_t)world.mrs[m].mr->addr + mw->offset;
	s->wr.bind_mw.bind_info.length = mw->length;
	s->wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	sprintf(s->words + strlen(s->words), " mw%d mr%d+%u length %u", w, m, mw->offset,
		mw->length);
	return true;
}

/*
 * What a queue pair cannot do. None are the numbers that the drivers know for users in the kernel,
 * or for newer operations: those go further there than a program could.
 */
static enum ibv_wr_opcode wrong_opcode(enum ibv_qp_type type)
{
	if (type == IBV_QPT_UD)
		return CHANCE_OF(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
				 IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_LOCAL_INV, IBV_WR_TSO);
	if (type == IBV_QPT_UC)
		return CHANCE_OF(IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_TSO);
	return CHANCE_OF(IBV_WR_TSO, 12, 13);
}

static enum ibv_wr_opcode some_opcode(enum ibv_qp_type type)
{
	if (type == IBV_QPT_UD)
		return CHANCE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM);
	if (type == IBV_QPT_UC)
		return CHANCE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				 IBV_WR_RDMA_WRITE_WITH_IMM);
	return CHANCE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
			 IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,
			 IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW,
			 IBV_WR_BIND_MW);
}

static void some_target(const struct qp_slot *q, struct send *s)
{
	switch (s->wr.opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		some_remote(q, s, &s->wr.wr.rdma.remote_addr, &s->wr.wr.rdma.rkey);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		some_remote(q, s, &s->wr.wr.atomic.remote_addr, &s->wr.wr.atomic.rkey);
		s->wr.wr.atomic.compare_add = chance_below(1000);
		s->wr.wr.atomic.swap = chance_below(1000);
		break;
	default:
		break;
	}
	if (s->wr.opcode == IBV_WR_SEND_WITH_IMM || s->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		s->wr.imm_data = htonl(chance_below(1 << 30));
}

static void some_data(const struct qp_slot *q, struct send *s)
{
	bool inward = is_atomic(s->wr.opcode) || s->wr.opcode == IBV_WR_RDMA_READ;
	int count = CHANCE_OF(0, 1, 1, 1, 1, 2, 2);

	if (s->wr.opcode == IBV_WR_BIND_MW || s->wr.opcode == IBV_WR_LOCAL_INV)
		return;
	if (is_atomic(s->wr.opcode))
		count = 1;
	for (int i = 0; i < count; i++) {
		struct ibv_sge *sge = &s->sges[i];

		while (!some_sge(q, sge, inward ? ANSWER : SOURCE, s->words))
			;
		if (is_atomic(s->wr.opcode))
			sge->length = 8;
		if (q->qp->qp_type == IBV_QPT_UD && !risk(10) && sge->length + s->total > 1024)
			sge->length = 1024 - s->total;
		s->total += sge->length;
		s->wr.num_sge++;
	}
	if (risk(2)) {
		s->wr.num_sge = (int)q->cap.max_send_sge + 1;
		s->wr.sg_list = too_many(SOURCE);
		strcat(s->words, " too many");
	}
	if (!inward && chance_percent(15) && s->total <= q->asked.max_inline_data)
		s->wr.send_flags |= IBV_SEND_INLINE;
	if (!inward && s->total > q->cap.max_inline_data && risk(10))
		s->wr.send_flags |= IBV_SEND_INLINE;
}

static void some_send(int i, struct send *s, int to, bool last)
{
	const struct qp_slot *q = &world.qps[i];

	*s = (struct send){.window = -1, .to = q->peer};
	s->wr = (struct ibv_send_wr){.opcode = some_opcode(q->qp->qp_type), .sg_list = s->sges};
	if (risk(4)) {
		s->wr.opcode = wrong_opcode(q->qp->qp_type);
		strcat(s->words, " wrong");
	}
	if (chance_percent(last ? 95 : 70))
		s->wr.send_flags |= IBV_SEND_SIGNALED;
	if (chance_percent(10))
		s->wr.send_flags |= IBV_SEND_FENCE;
	if (chance_percent(10))
		s->wr.send_flags |= IBV_SEND_SOLICITED;
	if (s->wr.opcode == IBV_WR_BIND_MW && !some_bind(i, s))
		s->wr.opcode = IBV_WR_SEND;
	some_data(q, s);
	some_target(q, s);
	if (q->qp->qp_type == IBV_QPT_UD)
		some_datagram(s, to);
}

static bool takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void some_receive(const struct qp_slot *q, struct ibv_recv_wr *wr, char *words)
{
	int want = CHANCE_OF(0, 1, 1, 1, 1, 2);
	const struct mr_slot *m = &world.mrs[SINK];
	uint32_t first, sges;

	if (world.risky) {
		while (wr->num_sge < want && some_sge(q, &wr->sg_list[wr->num_sge], SINK, words))
			wr->num_sge++;
		if (risk(2)) {
			wr->num_sge = (int)q->cap.max_recv_sge + 1;
			wr->sg_list = too_many(SINK);
		}
		return;
	}
	/* Room for each message, in one part or two. */
	sges = q->srq >= 0 ? world.srqs[q->srq].max_sge : q->asked.max_recv_sge;
	first = sges > 1 ? CHANCE_OF(ROOM, 1, 40, 41, 1000) : ROOM;
	wr->sg_list[0] = (struct ibv_sge){(uintptr_t)m->mr->addr + chance_below(9000), first,
					  m->mr->lkey};
	wr->sg_list[1] = (struct ibv_sge){(uintptr_t)m->mr->addr + 20000 + chance_below(9000),
					  ROOM - first, m->mr->lkey};
	wr->num_sge = first < ROOM ? 2 : 1;
	sprintf(words, " %u/%u", first, ROOM - first);
}

static void post_receives(int i, int count, unsigned int *number)
{
	static struct ibv_recv_wr wrs[CHAIN];
	static struct ibv_sge sges[CHAIN][SGES];
	struct ibv_recv_wr *bad = NULL;
	struct qp_slot *q = &world.qps[i];
	struct works *works = q->srq >= 0 ? &world.srqs[q->srq].works : &q->receives;
	int posted = 0, error;

	if (!count || works_count(works) + count > 12)
		return;
	for (int k = 0; k < count; k++) {
		char words[200] = "";

		wrs[k] = (struct ibv_recv_wr){.sg_list = sges[k]};
		wrs[k].wr_id = (world.step * 8 + *number) | 1u << RECEIVE_BIT;
		wrs[k].next = k < count - 1 ? &wrs[k + 1] : NULL;
		some_receive(q, &wrs[k], words);
		tell("  receive %u entries %d%s", world.step * 8 + (*number)++, wrs[k].num_sge, words);
	}
	if (q->srq >= 0)
		error = ibv_post_srq_recv(world.srqs[q->srq].srq, wrs, &bad);
	else
		error = ibv_post_recv(q->qp, wrs, &bad);
	for (int k = 0; k < count && !(error && bad == &wrs[k]); k++) {
		struct work *work = works_add(works, wrs[k].wr_id);

		work->num_sge = wrs[k].num_sge;
		memcpy(work->sges, sges[k], sizeof(work->sges));
		posted++;
	}
	tell("post_recv qp%d srq%d: %s after %d of %d", i, q->srq, outcome(error), posted, count);
}

static void post_sends(int i, struct send *sends, int count)
{
	struct ibv_send_wr *bad = NULL;
	struct qp_slot *q = &world.qps[i];
	int posted = 0, error;

	for (int k = 0; k < count; k++) {
		sends[k].wr.wr_id = world.step * 8 + k;
		sends[k].wr.next = k < count - 1 ? &sends[k + 1].wr : NULL;
		tell("  send %u opcode %d flags %#x%s", (unsigned int)sends[k].wr.wr_id,
		     sends[k].wr.opcode, sends[k].wr.send_flags, sends[k].words);
	}
	error = ibv_post_send(q->qp, &sends[0].wr, &bad);
	for (int k = 0; k < count && !(error && bad == &sends[k].wr); k++) {
		struct work *work = works_add(&q->sends, sends[k].wr.wr_id);

		work->signaled = q->all_signaled || sends[k].wr.send_flags & IBV_SEND_SIGNALED;
		if (sends[k].wr.opcode == IBV_WR_BIND_MW)
			sends[k].wr.bind_mw.mw->rkey = sends[k].wr.bind_mw.rkey;
		posted++;
	}
	tell("post_send qp%d: %s after %d of %d", i, outcome(error), posted, count);
}

static int some_qp(void)
{
	int first = chance_below(QPS);

	for (int k = 0; k < QPS; k++) {
		if (world.qps[(first + k) % QPS].qp)
			return (first + k) % QPS;
	}
	return -1;
}

/* Sends from a queue pair to its peer, which has receives ready: enough of them, if it must. */
static void send_from(int i, unsigned int receive_number)
{
	static struct send sends[CHAIN];
	struct qp_slot *q = &world.qps[i];
	int count = 1 + chance_below(CHAIN), to = q->peer, receives = 0;

	if (works_count(&q->sends) > 12 || !q->asked.max_send_wr)
		return;
	if (q->qp->qp_type == IBV_QPT_UD && chance_percent(20))
		to = i;
	if (!world.qps[to].qp)
		return;
	if (q->srq >= 0 || world.qps[to].srq >= 0)
		world.risky = false;
	for (int k = 0; k < count; k++) {
		some_send(i, &sends[k], to, k == count - 1);
		receives += takes_receive(sends[k].wr.opcode);
	}
	if (world.risky && chance_percent(40))
		receives = (int)chance_below(CHAIN);
	post_receives(to, receives, &receive_number);
	post_sends(i, sends, count);
}

void step_send(void)
{
	int i = some_qp();

	if (i >= 0)
		send_from(i, 0);
}

/* Posts to a queue pair that is in another state than RTS, or whose peer is. */
void step_qp_state(void)
{
	int i = some_qp(), changed;
	unsigned int receive_number = 0;

	if (i < 0)
		return;
	world.risky = true;
	changed = chance_percent(60) ? i : world.qps[i].peer;
	if (!world.qps[changed].qp || world.qps[i].srq >= 0)
		return;
	queue_pair_change(changed);
	if (chance_percent(50))
		post_receives(i, 1 + (int)chance_below(CHAIN), &receive_number);
	send_from(i, receive_number);
}
