/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains, completion queues, regions, windows, shared receive queues, addresses. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "world.h"

static const unsigned int all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void step_pd(void)
{
	int i = chance_below(PDS);
	int error;

	if (!world.pds[i]) {
		world.pds[i] = ibv_alloc_pd(world.context);
		tell("alloc_pd pd%d: %s", i, outcome(world.pds[i] ? 0 : errno));
		return;
	}
	error = ibv_dealloc_pd(world.pds[i]);
	if (!error)
		world.pds[i] = NULL;
	tell("dealloc_pd pd%d: %s", i, outcome(error));
}

static void create_cq(int i, int cqe)
{
	world.cqs[i] = ibv_create_cq(world.context, cqe, NULL, world.channel, 0);
	tell("create_cq cq%d %d: %s", i, cqe, outcome(world.cqs[i] ? 0 : errno));
	if (world.cqs[i] && world.cqs[i]->cqe < cqe)
		tell("cq%d is too small", i);
}

void step_cq(void)
{
	int i = chance_below(CQS);
	int cqe = CHANCE_OF(0, 1, 100, 128, 1000);
	int error;

	if (!world.cqs[i]) {
		create_cq(i, cqe ? 200 : cqe);
		return;
	}
	if (chance_percent(60)) {
		cqe = CHANCE_OF(0, 150, 200, 300);
		error = ibv_resize_cq(world.cqs[i], cqe);
		tell("resize_cq cq%d %d: %s", i, cqe, outcome(error));
		return;
	}
	error = ibv_destroy_cq(world.cqs[i]);
	if (!error)
		world.cqs[i] = NULL;
	tell("destroy_cq cq%d: %s", i, outcome(error));
}

static void register_mr(int i)
{
	struct mr_slot *m = &world.mrs[i];

	m->mr = ibv_reg_mr(world.pds[m->pd], world.areas[m->area] + m->offset, m->length,
			   m->access);
	tell("reg_mr mr%d pd%d area %d+%u length %u access %#x: %s", i, m->pd, m->area, m->offset,
	     m->length, m->access, outcome(m->mr ? 0 : errno));
}

static void change_mr(int i)
{
	struct mr_slot *m = &world.mrs[i];
	uint32_t lkey = m->mr->lkey, rkey = m->mr->rkey;
	int error = ibv_dereg_mr(m->mr);

	tell("dereg_mr mr%d: %s", i, outcome(error));
	if (error)
		return;
	m->mr = NULL;
	m->dead_lkey = lkey;
	m->dead_rkey = rkey;
}

void step_mr(void)
{
	/* The first ones stay, so that there is always something to send from. */
	int i = AREAS + chance_below(MRS - AREAS);
	struct mr_slot *m = &world.mrs[i];

	if (m->mr) {
		change_mr(i);
		return;
	}
	m->pd = world.risky ? chance_below(PDS) : 0;
	if (!world.pds[m->pd])
		return;
	m->area = chance_below(AREAS);
	m->offset = CHANCE_OF(0, 0, 8, 4096, 4097, 20000);
	m->length = CHANCE_OF(1, 100, 4096, 8192, 30000, 40000);
	m->access = world.risky ? chance_below(32) : all_rights;
	if (chance_percent(50))
		m->access |= IBV_ACCESS_MW_BIND;
	register_mr(i);
}

static void bind_type_1(int i)
{
	struct mw_slot *w = &world.mws[i];
	int q = chance_below(QPS);
	int m = object_mr_of(w->pd, TARGET, IBV_ACCESS_MW_BIND);
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct qp_slot *qp = &world.qps[q];
	struct work *work;
	int error;

	if (m < 0 || !qp->qp || qp->qp->qp_type == IBV_QPT_UD)
		return;
	w->offset = chance_below(world.mrs[m].length / 2);
	w->length = 1 + chance_below(world.mrs[m].length - w->offset);
	if (world.risky && chance_percent(20))
		w->length = 0;
	bind.bind_info.mr = world.mrs[m].mr;
	bind.bind_info.addr = (uintptr_t)world.mrs[m].mr->addr + w->offset;
	bind.bind_info.length = w->length;
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	work = works_add(&qp->sends, world.step * 8);
	bind.wr_id = work->id;
	work->signaled = true;
	error = ibv_bind_mw(qp->qp, w->mw, &bind);
	tell("bind_mw mw%d qp%d mr%d+%u length %u: %s", i, q, m, w->offset, w->length,
	     outcome(error));
	if (error) {
		qp->sends.tail--;
		return;
	}
	w->mr = m;
	w->bound = w->length != 0;
}

void step_mw(void)
{
	int i = chance_below(MWS);
	struct mw_slot *w = &world.mws[i];
	int error;

	if (w->mw) {
		if (w->mw->type == IBV_MW_TYPE_1 && chance_percent(85)) {
			bind_type_1(i);
			return;
		}
		error = ibv_dealloc_mw(w->mw);
		tell("dealloc_mw mw%d: %s", i, outcome(error));
		if (!error)
			*w = (struct mw_slot){.mr = -1};
		return;
	}
	w->pd = 0;
	if (!world.pds[w->pd])
		return;
	w->mw = ibv_alloc_mw(world.pds[w->pd], i % 2 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
	tell("alloc_mw mw%d type %d: %s", i, i % 2 + 1, outcome(w->mw ? 0 : errno));
	if (w->mw)
		w->next_rkey = w->mw->rkey;
}

static void query_srq(int i)
{
	struct ibv_srq_attr attr = {0};
	int error = ibv_query_srq(world.srqs[i].srq, &attr);

	tell("query_srq srq%d: %s limit %u%s", i, outcome(error), attr.srq_limit,
	     attr.max_wr < world.srqs[i].max_wr ? " too small" : "");
}

void step_srq(void)
{
	int i = chance_below(SRQS);
	struct srq_slot *s = &world.srqs[i];
	struct ibv_srq_init_attr init = {0};
	struct ibv_srq_attr attr = {0};
	int error;

	if (!s->srq) {
		s->pd = 0;
		if (!world.pds[0])
			return;
		init.attr.max_wr = CHANCE_OF(0, 16, 32, 100, 1 << 28);
		init.attr.max_sge = CHANCE_OF(1, 2, 2, 1000);
		init.attr.srq_limit = CHANCE_OF(0, 0, 5);
		tell("create_srq srq%d wr %u sge %u limit %u", i, init.attr.max_wr,
		     init.attr.max_sge, init.attr.srq_limit);
		s->max_wr = init.attr.max_wr;
		s->srq = ibv_create_srq(world.pds[0], &init);
		tell("create_srq srq%d: %s", i, outcome(s->srq ? 0 : errno));
		s->max_sge = init.attr.max_sge;
		works_drop(&s->works);
		return;
	}
	if (chance_percent(60)) {
		/* Not above what is posted: when that is told is free. */
		attr.srq_limit = chance_percent(20) ? 1 << 20
						    : chance_below(works_count(&s->works) + 1);
		error = ibv_modify_srq(s->srq, &attr, IBV_SRQ_LIMIT);
		tell("modify_srq srq%d limit %u: %s", i, attr.srq_limit, outcome(error));
		query_srq(i);
		return;
	}
	error = ibv_destroy_srq(s->srq);
	tell("destroy_srq srq%d: %s", i, outcome(error));
	if (!error)
		s->srq = NULL;
}

void step_ah(void)
{
	int i = 1 + (int)chance_below(AHS - 1); /* the first one stays */
	struct ah_slot *a = &world.ahs[i];
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
	int error;

	if (a->ah) {
		error = ibv_destroy_ah(a->ah);
		tell("destroy_ah ah%d: %s", i, outcome(error));
		a->ah = NULL;
		return;
	}
	a->pd = chance_percent(85) ? 0 : chance_below(PDS);
	if (!world.pds[a->pd])
		return;
	attr.grh.dgid = world.gid;
	attr.grh.sgid_index = chance_percent(85) ? world.gid_index : 200;
	attr.port_num = chance_percent(90) ? 1 : CHANCE_OF(0, 2, 255);
	attr.is_global = chance_percent(95);
	tell("create_ah ah%d pd%d port %d%s%s", i, a->pd, attr.port_num,
	     attr.grh.sgid_index == 200 ? " bad gid" : "", attr.is_global ? "" : " local");
	a->ah = ibv_create_ah(world.pds[a->pd], &attr);
	tell("create_ah ah%d: %s", i, outcome(a->ah ? 0 : errno));
}

/* Finds a region of a domain with rights in an area, or -1; the search starts anywhere. */
int object_mr_of(int pd, int area, unsigned int access)
{
	int first = chance_below(MRS);

	for (int i = 0; i < MRS; i++) {
		const struct mr_slot *m = &world.mrs[(first + i) % MRS];

		if (m->mr && m->pd == pd && m->area == area && (m->access & access) == access)
			return (first + i) % MRS;
	}
	return -1;
}

/* Windows that were bound go away after a risky step: whether they still are may differ. */
void objects_heal(void)
{
	for (int i = 0; i < MWS; i++) {
		if (!world.mws[i].mw || world.mws[i].mr < 0)
			continue;
		if (ibv_dealloc_mw(world.mws[i].mw))
			die("ibv_dealloc_mw");
		world.mws[i] = (struct mw_slot){.mr = -1};
	}
}

static void begin_ah(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};

	attr.grh.dgid = world.gid;
	attr.grh.sgid_index = world.gid_index;
	world.ahs[0].ah = ibv_create_ah(world.pds[0], &attr);
	if (!world.ahs[0].ah)
		die("ibv_create_ah");
}

/* Most steps need something to work with: one domain, two queues, a region in each area. */
void objects_begin(void)
{
	world.pds[0] = ibv_alloc_pd(world.context);
	if (!world.pds[0])
		die("ibv_alloc_pd");
	for (int i = 0; i < MWS; i++)
		world.mws[i].mr = -1;
	for (int i = 0; i < 2; i++)
		create_cq(i, 200);
	begin_ah();
	for (int i = 0; i < AREAS; i++) {
		world.mrs[i] = (struct mr_slot){.area = i, .length = 50000, .access = all_rights};
		if (i == TARGET)
			world.mrs[i].access |= IBV_ACCESS_MW_BIND;
		register_mr(i);
	}
}
