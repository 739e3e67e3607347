/* SPDX-License-Identifier: Apache-2.0 */
/* Posts work requests and polls completions. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "ends.h"

enum { SGES = 4096, WRS = 64 };

static int read_pieces(struct ibv_sge *list)
{
	int n = (int)number();

	for (int i = 0; i < n; i++) {
		list[i].addr = number();
		list[i].length = (uint32_t)number();
		list[i].lkey = (uint32_t)number();
	}
	return n;
}

/* Data that is sent inline are words of the command, too: the library copies them. */
static int read_inline(struct ibv_sge *list, uint8_t *bytes)
{
	int n = (int)number();

	for (int i = 0; i < n; i++)
		bytes[i] = (uint8_t)number();
	*list = (struct ibv_sge){.addr = (uintptr_t)bytes, .length = (uint32_t)n};
	return 1;
}

static void read_send(struct ibv_send_wr *wr, struct ibv_sge *list, uint8_t *bytes,
		      const struct end *e)
{
	uint64_t remote, rkey, compare, swap;

	*wr = (struct ibv_send_wr){.wr_id = number(), .sg_list = list};
	wr->opcode = (enum ibv_wr_opcode)number();
	wr->send_flags = (unsigned int)number();
	wr->imm_data = htonl((uint32_t)number());
	if (wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_LOCAL_INV)
		wr->invalidate_rkey = (uint32_t)number();
	else
		number();
	remote = number();
	rkey = number();
	compare = number();
	swap = number();
	if (e->ah) {
		wr->wr.ud.ah = e->ah;
		wr->wr.ud.remote_qpn = (uint32_t)number();
		wr->wr.ud.remote_qkey = (uint32_t)number();
	} else {
		number();
		number();
		wr->wr.atomic.remote_addr = remote; /* where that of rdma is as well */
		if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		    wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr->wr.atomic.compare_add = compare;
			wr->wr.atomic.swap = swap;
			wr->wr.atomic.rkey = (uint32_t)rkey;
		} else {
			wr->wr.rdma.rkey = (uint32_t)rkey;
		}
	}
	wr->num_sge = wr->send_flags & IBV_SEND_INLINE ? read_inline(list, bytes) : read_pieces(list);
}

void do_send(void)
{
	static struct ibv_sge lists[WRS][SGES];
	static uint8_t bytes[WRS][1024];
	struct ibv_send_wr wrs[WRS], *bad = NULL;
	struct end *e = end_at();
	int n = (int)number(), error;

	for (int i = 0; i < n; i++) {
		read_send(&wrs[i], lists[i], bytes[i], e);
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
	}
	error = ibv_post_send(e->qp, wrs, &bad);
	if (error)
		refuse(error, bad ? (int)(bad - wrs) : 0);
	else
		printf("ok\n");
}

void do_recv(void)
{
	static struct ibv_sge list[SGES];
	struct end *e = end_at();
	struct ibv_recv_wr wr = {.wr_id = number(), .sg_list = list}, *bad;
	int error;

	wr.num_sge = read_pieces(list);
	error = e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
	if (error)
		refuse(error, 0);
	else
		printf("ok\n");
}

void do_poll(void)
{
	struct end *e = end_at();
	struct ibv_wc wc;
	int n = ibv_poll_cq(e->cq, 1, &wc);

	if (n < 0)
		refuse(EIO, 0);
	else if (n == 0)
		printf("ok 0\n");
	else
		printf("ok 1 %llu %d %d %u %u %u %u %u %u %u\n", (unsigned long long)wc.wr_id,
		       wc.status, wc.opcode, wc.byte_len, wc.qp_num, wc.src_qp, wc.wc_flags,
		       wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0,
		       wc.wc_flags & IBV_WC_WITH_INV ? wc.invalidated_rkey : 0, wc.vendor_err);
}
