/* SPDX-License-Identifier: Apache-2.0 */
/* Work requests, right and wrong. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "world.h"

enum { CHAIN = 3, RECEIVE_BIT = 31 };

struct send {
	struct ibv_send_wr wr;
	struct ibv_sge sges[SGES];
	int window;
	char words[200]; /* says what it is */
};

static uint32_t some_length(void)
{
	return CHANCE_OF(0, 1, 7, 8, 64, 100, 255, 256, 257, 1023, 1024, 1025, 3000, 8000);
}

/* A piece of a region, which now and then leaves it or has a wrong key. */
static void some_piece(const struct mr_slot *m, uint32_t *offset, uint32_t *length)
{
	*length = some_length();
	if (*length > m->length)
		*length = m->length;
	*offset = chance_below(m->length - *length + 1);
	if (chance_percent(3))
		*offset = m->length - *length + 1 + chance_below(50);
}

static bool some_sge(const struct qp_slot *q, struct ibv_sge *sge, int area, char *words)
{
	unsigned int access = area == SOURCE ? 0 : IBV_ACCESS_LOCAL_WRITE;
	int i = object_mr_of(q->pd, area, access);
	const struct mr_slot *m;
	const char *fault = "";
	uint32_t offset, length;

	if (chance_percent(4)) {
		i = chance_below(MRS);
		if (!world.mrs[i].mr || world.mrs[i].area != area)
			return false;
	}
	if (i < 0)
		return false;
	m = &world.mrs[i];
	some_piece(m, &offset, &length);
	*sge = (struct ibv_sge){(uintptr_t)m->mr->addr + offset, length, m->mr->lkey};
	if (chance_percent(2)) {
		sge->lkey ^= 0x55;
		fault = " bad key";
	}
	sprintf(words + strlen(words), " mr%d+%u/%u%s", i, offset, length, fault);
	return true;
}

static void some_remote(const struct qp_slot *q, struct send *s, uint64_t *addr, uint32_t *rkey)
{
	const struct qp_slot *peer = &world.qps[q->peer];
	int i = object_mr_of(peer->qp ? peer->pd : 0, TARGET, 0);
	int w = chance_below(MWS);
	uint32_t offset, length;
	const char *fault = "";

	if (world.mws[w].mw && world.mws[w].bound && chance_percent(30)) {
		const struct mw_slot *mw = &world.mws[w];
		const struct mr_slot *m = &world.mrs[mw->mr];

		if (!m->mr)
			return;
		offset = chance_below(mw->length);
		*addr = (uintptr_t)m->mr->addr + mw->offset + offset;
		*rkey = mw->mw->type == IBV_MW_TYPE_1 ? mw->mw->rkey : mw->rkey;
		sprintf(s->words + strlen(s->words), " at mw%d+%u", w, offset);
		return;
	}
	if (i < 0)
		return;
	some_piece(&world.mrs[i], &offset, &length);
	if (s->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    s->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		offset = chance_percent(95) ? offset & ~7u : offset;
	*addr = (uintptr_t)world.mrs[i].mr->addr + offset;
	*rkey = world.mrs[i].mr->rkey;
	if (chance_percent(3)) {
		*rkey ^= 0x55;
		fault = " bad key";
	} else if (world.mrs[MRS - 1].dead_rkey && chance_percent(3)) {
		*rkey = world.mrs[MRS - 1].dead_rkey;
		fault = " dead key";
	}
	sprintf(s->words + strlen(s->words), " at mr%d+%u%s", i, offset, fault);
}

static void some_datagram(struct send *s)
{
	int a = chance_below(AHS), to = 4 + chance_below(2);

	for (int i = 0; i < AHS && !world.ahs[a].ah; i++)
		a = (a + 1) % AHS;
	s->wr.wr.ud.ah = world.ahs[a].ah;
	s->wr.wr.ud.remote_qpn = world.qps[to].qp ? world.qps[to].qp->qp_num : 0xfffff0;
	s->wr.wr.ud.remote_qkey = chance_percent(92) ? 0x11111111 : 0x22222222;
	sprintf(s->words + strlen(s->words), " ah%d to qp%d qkey %#x", a, to,
		s->wr.wr.ud.remote_qkey);
}

static void some_bind(const struct qp_slot *q, struct send *s)
{
	int w = 1 + 2 * (int)chance_below(MWS / 2);
	struct mw_slot *mw = &world.mws[w];
	int m = object_mr_of(q->pd, TARGET, IBV_ACCESS_MW_BIND);

	if (!mw->mw || m < 0 || mw->pd != q->pd) {
		s->wr.opcode = IBV_WR_SEND;
		return;
	}
	if (chance_percent(30)) {
		s->wr.opcode = IBV_WR_LOCAL_INV;
		s->wr.invalidate_rkey = mw->rkey;
		mw->bound = false;
		sprintf(s->words + strlen(s->words), " mw%d", w);
		return;
	}
	mw->offset = chance_below(world.mrs[m].length / 2);
	mw->length = 1 + chance_below(world.mrs[m].length - mw->offset);
	mw->mr = m;
	mw->bound = true;
	mw->next_rkey = ibv_inc_rkey(mw->rkey);
	s->window = w;
	s->wr.bind_mw.mw = mw->mw;
	s->wr.bind_mw.rkey = mw->next_rkey;
	s->wr.bind_mw.bind_info.mr = world.mrs[m].mr;
	s->wr.bind_mw.bind_info.addr = (uintptr_t)world.mrs[m].mr->addr + mw->offset;
	s->wr.bind_mw.bind_info.length = mw->length;
	s->wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	sprintf(s->words + strlen(s->words), " mw%d mr%d+%u length %u", w, m, mw->offset,
		mw->length);
}

static enum ibv_wr_opcode some_opcode(enum ibv_qp_type type)
{
	if (chance_percent(3))
		return chance_below(14);
	if (type == IBV_QPT_UD)
		return CHANCE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM);
	if (type == IBV_QPT_UC)
		return CHANCE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				 IBV_WR_RDMA_WRITE_WITH_IMM);
	return CHANCE_OF(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE,
			 IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
			 IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
			 IBV_WR_BIND_MW);
}

static void some_target(const struct qp_slot *q, struct send *s)
{
	int w = chance_below(MWS);

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
	case IBV_WR_SEND_WITH_INV:
		if (world.mws[w].mw && world.mws[w].mw->type == IBV_MW_TYPE_2) {
			s->wr.invalidate_rkey = world.mws[w].rkey;
			world.mws[w].bound = false;
			sprintf(s->words + strlen(s->words), " mw%d", w);
		} else {
			s->wr.opcode = IBV_WR_SEND;
		}
		break;
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
		some_bind(q, s);
		break;
	default:
		break;
	}
	if (s->wr.opcode == IBV_WR_SEND_WITH_IMM || s->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		s->wr.imm_data = htonl(chance_below(1 << 30));
}

static void some_data(const struct qp_slot *q, struct send *s)
{
	bool atomic = s->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      s->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	bool inward = atomic || s->wr.opcode == IBV_WR_RDMA_READ;
	int count = CHANCE_OF(0, 1, 1, 1, 1, 2, 2);

	if (s->wr.opcode == IBV_WR_BIND_MW || s->wr.opcode == IBV_WR_LOCAL_INV)
		return;
	if (atomic)
		count = 1;
	for (int i = 0; i < count; i++) {
		if (!some_sge(q, &s->sges[i], inward ? SINK : SOURCE, s->words))
			break;
		s->wr.num_sge++;
		if (atomic)
			s->sges[i].length = 8;
	}
	if (!inward && chance_percent(15)) {
		uint32_t total = 0;

		for (int i = 0; i < s->wr.num_sge; i++)
			total += s->sges[i].length;
		if (total <= q->asked.max_inline_data || total > q->cap.max_inline_data)
			s->wr.send_flags |= IBV_SEND_INLINE;
	}
}

static void some_send(int i, struct send *s, bool last)
{
	const struct qp_slot *q = &world.qps[i];

	s->window = -1;
	s->words[0] = 0;
	s->wr = (struct ibv_send_wr){.opcode = some_opcode(q->qp->qp_type), .sg_list = s->sges};
	if (chance_percent(last ? 95 : 70))
		s->wr.send_flags |= IBV_SEND_SIGNALED;
	if (chance_percent(10))
		s->wr.send_flags |= IBV_SEND_FENCE;
	if (chance_percent(10))
		s->wr.send_flags |= IBV_SEND_SOLICITED;
	some_target(q, s);
	some_data(q, s);
	if (q->qp->qp_type == IBV_QPT_UD)
		some_datagram(s);
}

static int some_qp(unsigned int percent_ready)
{
	int first = chance_below(QPS);
	bool ready = chance_percent(percent_ready);

	for (int k = 0; k < QPS; k++) {
		int i = (first + k) % QPS;

		if (world.qps[i].qp && (!ready || queue_pair_state(i) == IBV_QPS_RTS))
			return i;
	}
	return -1;
}

void step_send(void)
{
	static struct send sends[CHAIN];
	struct ibv_send_wr *bad = NULL;
	struct qp_slot *q;
	int count = 1 + chance_below(CHAIN), i = some_qp(96), posted = 0, error;

	if (i < 0 || works_count(&world.qps[i].sends) > 12)
		return;
	q = &world.qps[i];
	for (int k = 0; k < count; k++) {
		some_send(i, &sends[k], k == count - 1);
		if (q->qp->qp_type == IBV_QPT_UD && !sends[k].wr.wr.ud.ah)
			return;
		sends[k].wr.wr_id = (q->sends.tail + k) & 0x7fffffff;
		sends[k].wr.next = k < count - 1 ? &sends[k + 1].wr : NULL;
	}
	error = ibv_post_send(q->qp, &sends[0].wr, &bad);
	for (int k = 0; k < count && !(error && bad == &sends[k].wr); k++) {
		struct work *work = works_add(&q->sends, sends[k].wr.wr_id);

		work->window = sends[k].window;
		work->signaled = q->all_signaled || sends[k].wr.send_flags & IBV_SEND_SIGNALED;
		posted++;
	}
	for (int k = 0; k < count; k++)
		tell("  wr %u opcode %d flags %#x%s", (unsigned int)sends[k].wr.wr_id,
		     sends[k].wr.opcode, sends[k].wr.send_flags, sends[k].words);
	tell("post_send qp%d: %s after %d of %d", i, outcome(error), posted, count);
}

void step_receive(void)
{
	static struct ibv_recv_wr wrs[CHAIN];
	static struct ibv_sge sges[CHAIN][SGES];
	struct ibv_recv_wr *bad = NULL;
	struct works *works;
	struct qp_slot *q;
	int count = 1 + chance_below(CHAIN), i = some_qp(90), posted = 0, error;

	if (i < 0)
		return;
	q = &world.qps[i];
	works = q->srq >= 0 ? &world.srqs[q->srq].works : &q->receives;
	if (works_count(works) + count > 12)
		return;
	for (int k = 0; k < count; k++) {
		char words[200] = "";
		int want = CHANCE_OF(0, 1, 1, 1, 1, 2);

		wrs[k] = (struct ibv_recv_wr){.sg_list = sges[k]};
		wrs[k].wr_id = ((works->tail + k) & 0x7fffffff) | 1u << RECEIVE_BIT;
		wrs[k].next = k < count - 1 ? &wrs[k + 1] : NULL;
		while (wrs[k].num_sge < want &&
		       some_sge(q, &sges[k][wrs[k].num_sge], SINK, words))
			wrs[k].num_sge++;
		tell("  wr %u%s", (unsigned int)wrs[k].wr_id, words);
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
