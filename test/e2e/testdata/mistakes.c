/*
 * Makes mistakes that programs make, and prints what it is told of each: a transition that does
 * not exist, a send that is not as the queue pair takes them, a WRITE that leaves the peer's
 * region, and what is posted after that. Both ends are its own. It knows nothing of any particular
 * adapter.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "join.h"

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	require(qp != NULL, "ibv_create_qp");
	return qp;
}

static void poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (n == 0);
	require(n == 1, "ibv_poll_cq");
	printf("wr_id %d status %d\n", (int)wc.wr_id, wc.status);
}

int main(void)
{
	static char memory[8192] __attribute__((aligned(4096)));
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = {.wr_id = 7, .opcode = IBV_WR_RDMA_WRITE, .num_sge = 2}, *bad;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_context *context;
	struct ibv_qp *here, *there;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_pd *pd;

	require(list && list[0], "ibv_get_device_list");
	context = ibv_open_device(list[0]);
	require(context != NULL, "ibv_open_device");
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	require(pd && cq, "ibv_create_cq");
	mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	require(mr != NULL, "ibv_reg_mr");
	here = make(pd, cq);
	there = make(pd, cq);

	printf("modify %d\n", ibv_modify_qp(here, &attr, IBV_QP_STATE));
	join(here, there->qp_num, IBV_ACCESS_REMOTE_WRITE, 1);
	join(there, here->qp_num, IBV_ACCESS_REMOTE_WRITE, 1);
	for (int i = 0; i < 2; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)memory, 64, mr->lkey};
	wr.sg_list = sge;
	printf("post %d\n", ibv_post_send(here, &wr, &bad));
	wr.num_sge = 1;
	wr.wr_id = 8;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4080;
	wr.wr.rdma.rkey = mr->rkey;
	require(!ibv_post_send(here, &wr, &bad), "ibv_post_send");
	poll_one(cq);
	wr.wr_id = 9;
	require(!ibv_post_send(here, &wr, &bad), "ibv_post_send");
	poll_one(cq);
	return 0;
}
