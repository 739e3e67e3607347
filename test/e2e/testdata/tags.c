/*
 * Lets a shared receive queue match tags, and prints what completes: eager messages short and long,
 * rendezvous that the adapter finishes, one that the program has to, unexpected messages, and what
 * is refused. Both ends are its own. It knows nothing of any particular adapter.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "join.h"

enum { ROOM = 1 << 20, FIN_AT = ROOM, HEADERS = sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh) };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *sends;
static struct ibv_cq_ex *tags;
static struct ibv_srq *srq;
static struct ibv_qp *here, *there;
static unsigned char *from, *to; /* ROOM bytes each, and some more */
static struct ibv_mr *from_mr, *to_mr;

static struct ibv_qp *make(struct ibv_srq *shared)
{
	struct ibv_qp_init_attr init = {
		.send_cq = sends,
		.recv_cq = shared ? ibv_cq_ex_to_cq(tags) : sends,
		.srq = shared,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	require(qp != NULL, "ibv_create_qp");
	return qp;
}

static void make_queue(void)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO,
	};
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.tm_cap = {.max_num_tags = 4, .max_ops = 16},
	};
	struct ibv_device_attr_ex device;

	require(!ibv_query_device_ex(context, NULL, &device), "ibv_query_device_ex");
	printf("caps %d %d %d %d %d\n", device.tm_caps.flags == IBV_TM_CAP_RC,
	       device.tm_caps.max_num_tags >= 4, device.tm_caps.max_ops >= 16,
	       device.tm_caps.max_sge >= 1, device.tm_caps.max_rndv_hdr_size >= HEADERS);
	tags = ibv_create_cq_ex(context, &cq_attr);
	require(tags != NULL, "ibv_create_cq_ex");
	attr.cq = ibv_cq_ex_to_cq(tags);
	srq = ibv_create_srq_ex(context, &attr);
	printf("without sizes %d %s\n", srq != NULL, strerror(errno));
	attr.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
	srq = ibv_create_srq_ex(context, &attr);
	require(srq != NULL, "ibv_create_srq_ex");
}

/* Prints the next completion of the queue that matches tags. */
static void tell(void)
{
	struct ibv_poll_cq_attr attr = {.comp_mask = 0};
	struct ibv_wc_tm_info info = {0, 0};
	int error;

	do
		error = ibv_start_poll(tags, &attr);
	while (error == ENOENT);
	require(!error, "ibv_start_poll");
	ibv_wc_read_tm_info(tags, &info);
	printf("id %d status %d opcode %d flags %#x bytes %u tag %#llx %#x\n", (int)tags->wr_id,
	       tags->status, ibv_wc_read_opcode(tags), ibv_wc_read_wc_flags(tags),
	       ibv_wc_read_byte_len(tags), (unsigned long long)info.tag, info.priv);
	ibv_end_poll(tags);
}

static int post(struct ibv_srq *queue, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad = NULL;
	int error = ibv_post_srq_ops(queue, wr, &bad);

	require(!error || bad == wr, "bad_wr");
	return error;
}

static uint32_t add(uint64_t id, uint64_t tag, uint32_t bytes)
{
	struct ibv_sge sge = {(uintptr_t)to, bytes, to_mr->lkey};
	struct ibv_ops_wr wr = {
		.wr_id = 100 + id,
		.opcode = IBV_WR_TAG_ADD,
		.tm.add = {id, &sge, 1, tag, ~0ull},
	};

	require(!post(srq, &wr), "IBV_WR_TAG_ADD");
	return wr.tm.handle;
}

static void plain(uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)to, 4096, to_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	require(!ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

static void await_send(void)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(sends, 1, &wc))
		;
	require(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
}

static void work(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct ibv_send_wr *bad;

	wr->sg_list = sge;
	wr->num_sge = 1;
	require(!ibv_post_send(qp, wr, &bad), "ibv_post_send");
	await_send();
}

/* Sends a message whose header is in front of what from holds. */
static void send_tagged(enum ibv_tmh_op op, uint64_t tag, uint32_t bytes)
{
	struct ibv_tmh tmh = {.opcode = (uint8_t)op, .app_ctx = htobe32(0xc0de), .tag = htobe64(tag)};
	struct ibv_sge sge = {(uintptr_t)from, bytes, from_mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	memcpy(from, &tmh, sizeof(tmh));
	work(here, &wr, &sge);
}

/* Offers the bytes from 64 on by rendezvous, and has a place for the FIN. */
static void offer(uint64_t tag, uint32_t bytes)
{
	struct ibv_rvh rvh = {
		.va = htobe64((uintptr_t)from + 64), .rkey = htobe32(from_mr->rkey), .len = htobe32(bytes),
	};
	struct ibv_sge sge = {(uintptr_t)from + FIN_AT, 64, from_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1}, *bad;

	require(!ibv_post_recv(here, &wr, &bad), "ibv_post_recv");
	memcpy(from + sizeof(struct ibv_tmh), &rvh, sizeof(rvh));
	memset(from + FIN_AT, 0, 64);
	send_tagged(IBV_TMH_RNDV, tag, HEADERS);
}

static void await_fin(void)
{
	await_send();
	from[0] = IBV_TMH_FIN;
	printf("fin %d\n", !memcmp(from, from + FIN_AT, HEADERS));
}

static void fill(void)
{
	for (size_t i = 0; i < ROOM; i++)
		from[i] = (unsigned char)(i * 13 + (i >> 8));
	memset(to, 0, ROOM);
}

static void eager(void)
{
	fill();
	add(1, 0x11, 4096);
	send_tagged(IBV_TMH_EAGER, 0x11, 116);
	tell();
	printf("data %d\n", !memcmp(to, from + 16, 100) && !to[100]);
	fill();
	add(2, 0x12, 200000);
	send_tagged(IBV_TMH_EAGER, 0x12, 150016);
	tell();
	tell();
	printf("data %d\n", !memcmp(to, from + 16, 150000) && !to[150000]);
}

static void rendezvous(void)
{
	fill();
	add(3, 0x13, ROOM);
	offer(0x13, 900000);
	tell();
	tell();
	printf("data %d\n", !memcmp(to, from + 64, 900000) && !to[900000]);
	await_fin();
}

/* The buffer is too short: the program does what the adapter else would. */
static void by_hand(void)
{
	struct ibv_sge sge = {(uintptr_t)to, 5000, to_mr->lkey};
	struct ibv_send_wr read = {.opcode = IBV_WR_RDMA_READ}, fin = {.opcode = IBV_WR_SEND};
	struct ibv_rvh rvh;

	fill();
	add(4, 0x14, 64);
	offer(0x14, 5000);
	tell();
	memcpy(&rvh, to + sizeof(struct ibv_tmh), sizeof(rvh));
	to[FIN_AT] = IBV_TMH_FIN;
	memcpy(to + FIN_AT + 1, to + 1, HEADERS - 1);
	read.wr.rdma.remote_addr = be64toh(rvh.va);
	read.wr.rdma.rkey = be32toh(rvh.rkey);
	work(there, &read, &sge);
	printf("data %d\n", !memcmp(to, from + 64, be32toh(rvh.len)));
	sge = (struct ibv_sge){(uintptr_t)to + FIN_AT, HEADERS, to_mr->lkey};
	work(there, &fin, &sge);
	await_fin();
}

static void unexpected(void)
{
	struct ibv_ops_wr sync = {
		.wr_id = 50,
		.opcode = IBV_WR_TAG_SYNC,
		.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
		.tm.unexpected_cnt = 1,
	};
	struct ibv_ops_wr del = {.wr_id = 51, .opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_SIGNALED};

	plain(20);
	plain(21);
	send_tagged(IBV_TMH_EAGER, 0x99, 48);
	tell();
	send_tagged(IBV_TMH_NO_TAG, 0x99, 48);
	tell();
	del.tm.handle = add(5, 0x15, 4096);
	require(!post(srq, &sync), "IBV_WR_TAG_SYNC");
	tell();
	require(!post(srq, &del), "IBV_WR_TAG_DEL");
	tell();
	require(!post(srq, &del), "IBV_WR_TAG_DEL");
	tell();
}

static void refused(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *ordinary = ibv_create_srq(pd, &init);
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_SYNC};

	require(ordinary != NULL, "ibv_create_srq");
	printf("ordinary queue: %d\n", post(ordinary, &wr));
	require(!ibv_destroy_srq(ordinary), "ibv_destroy_srq");
	wr.opcode = (enum ibv_ops_wr_opcode)7;
	printf("opcode: %d\n", post(srq, &wr));
	wr.opcode = IBV_WR_TAG_ADD;
	wr.flags = 8;
	printf("flags: %d\n", post(srq, &wr));
	wr.flags = 0;
	wr.tm.add.num_sge = 1000;
	printf("entries: %d\n", post(srq, &wr));
	for (uint64_t id = 30; id < 34; id++)
		add(id, id, 64);
	wr.tm.add.num_sge = 0;
	printf("one too many: %d\n", post(srq, &wr));
	printf("destroy with a QP: %d\n", ibv_destroy_srq(srq));
	require(!ibv_destroy_qp(there), "ibv_destroy_qp");
	printf("destroy with tags: %d\n", ibv_destroy_srq(srq));
	require(!ibv_destroy_cq(ibv_cq_ex_to_cq(tags)), "ibv_destroy_cq");
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	require(list && list[0], "ibv_get_device_list");
	context = ibv_open_device(list[0]);
	require(context != NULL, "ibv_open_device");
	pd = ibv_alloc_pd(context);
	sends = ibv_create_cq(context, 64, NULL, NULL, 0);
	require(pd && sends, "ibv_create_cq");
	from = aligned_alloc(4096, ROOM + 4096);
	to = aligned_alloc(4096, ROOM + 4096);
	require(from && to, "aligned_alloc");
	from_mr = ibv_reg_mr(pd, from, ROOM + 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	to_mr = ibv_reg_mr(pd, to, ROOM + 4096, IBV_ACCESS_LOCAL_WRITE);
	require(from_mr && to_mr, "ibv_reg_mr");
	make_queue();
	here = make(NULL);
	there = make(srq);
	join(here, there->qp_num, IBV_ACCESS_REMOTE_READ, 4);
	join(there, here->qp_num, IBV_ACCESS_REMOTE_READ, 4);
	eager();
	rendezvous();
	by_hand();
	unexpected();
	refused();
	return 0;
}
