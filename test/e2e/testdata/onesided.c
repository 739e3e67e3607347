/*
 * One end of a reliable connection, driven by lines on standard input, so that a test can hold
 * the other end still at any moment. It knows nothing of any particular adapter.
 *
 *   at start    prints "here QPN GID ADDR RKEY" of this end
 *   connect QPN GID ADDR RKEY     connects to the other end
 *   write OFFSET BYTE LENGTH      RDMA WRITE of LENGTH bytes BYTE to OFFSET
 *   read OFFSET LENGTH            RDMA READ; prints the first and the last byte
 *   add OFFSET N                  FETCH_ADD; prints the value before
 *   swap OFFSET OLD NEW           CMP_SWAP; prints the value before
 *   send                          SEND of one byte to a peer that has posted a receive
 *   peek OFFSET LENGTH            prints the first and last byte of this end's own memory
 *
 * A command answers with one line, "ok …" or "failed …", after its completion. The program ends
 * with standard input.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY (4u << 20)

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *exposed; /* what the peer may touch */
	struct ibv_mr *local;   /* where this end's own requests read and write */
	uint64_t remote_addr;
	uint32_t remote_key;
};

static void require(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static struct ibv_mr *register_memory(struct end *e)
{
	void *memory = aligned_alloc(4096, MEMORY);
	struct ibv_mr *mr;

	require(memory != NULL, "aligned_alloc");
	memset(memory, 0, MEMORY);
	mr = ibv_reg_mr(e->pd, memory, MEMORY,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	require(mr != NULL, "ibv_reg_mr");
	return mr;
}

static void open_end(struct end *e)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};

	require(list != NULL && list[0] != NULL, "no device");
	e->context = ibv_open_device(list[0]);
	require(e->context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	e->pd = ibv_alloc_pd(e->context);
	require(e->pd != NULL, "ibv_alloc_pd");
	e->cq = ibv_create_cq(e->context, 32, NULL, NULL, 0);
	require(e->cq != NULL, "ibv_create_cq");
	e->exposed = register_memory(e);
	e->local = register_memory(e);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &init);
	require(e->qp != NULL, "ibv_create_qp");
	require(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			       IBV_QP_ACCESS_FLAGS), "to INIT");
}

static void print_here(struct end *e)
{
	union ibv_gid gid;
	char text[INET6_ADDRSTRLEN];

	require(!ibv_query_gid(e->context, 1, 0, &gid), "ibv_query_gid");
	inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
	printf("here %u %s %" PRIu64 " %u\n", e->qp->qp_num, text,
	       (uint64_t)(uintptr_t)e->exposed->addr, e->exposed->rkey);
}

static void post_receives(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->local->addr, 4096, e->local->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int i = 0; i < 16; i++)
		require(!ibv_post_recv(e->qp, &wr, &bad), "ibv_post_recv");
}

static void connect_end(struct end *e, uint32_t qpn, const char *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } },
	};

	require(inet_pton(AF_INET6, gid, attr.ah_attr.grh.dgid.raw) == 1, "inet_pton");
	require(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			       IBV_QP_MIN_RNR_TIMER), "to RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	require(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		"to RTS");
	post_receives(e);
	printf("ok\n");
}

/* Posts one request and waits for its completion. */
static int perform(struct end *e, struct ibv_send_wr *wr, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)e->local->addr, length, e->local->lkey };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n, rc;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ) {
		wr->wr.rdma.remote_addr = e->remote_addr + offset;
		wr->wr.rdma.rkey = e->remote_key;
	} else if (wr->opcode != IBV_WR_SEND) {
		wr->wr.atomic.remote_addr = e->remote_addr + offset;
		wr->wr.atomic.rkey = e->remote_key;
	}
	rc = ibv_post_send(e->qp, wr, &bad);
	if (rc) {
		printf("failed post: %s\n", strerror(rc));
		return 0;
	}
	while ((n = ibv_poll_cq(e->cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		printf("failed %s\n", n < 0 ? "poll" : ibv_wc_status_str(wc.status));
		return 0;
	}
	return 1;
}

static void print_bytes(struct ibv_mr *mr, uint64_t offset, uint32_t length)
{
	volatile uint8_t *memory = mr->addr;

	printf("ok %u %u\n", memory[offset], memory[offset + length - 1]);
}

static void obey(struct end *e, const char *line)
{
	struct ibv_send_wr wr = { .wr_id = 2 };
	uint64_t offset = 0, x = 0, y = 0;
	uint32_t qpn;
	char gid[64];

	if (sscanf(line, "connect %u %63s %" SCNu64 " %u", &qpn, gid, &e->remote_addr,
		   &e->remote_key) == 4) {
		connect_end(e, qpn, gid);
	} else if (sscanf(line, "write %" SCNu64 " %" SCNu64 " %" SCNu64, &offset, &x, &y) == 3) {
		memset(e->local->addr, (int)x, y);
		wr.opcode = IBV_WR_RDMA_WRITE;
		if (perform(e, &wr, offset, y))
			printf("ok\n");
	} else if (sscanf(line, "read %" SCNu64 " %" SCNu64, &offset, &x) == 2) {
		wr.opcode = IBV_WR_RDMA_READ;
		if (perform(e, &wr, offset, x))
			print_bytes(e->local, 0, x);
	} else if (sscanf(line, "add %" SCNu64 " %" SCNu64, &offset, &x) == 2) {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.compare_add = x;
		if (perform(e, &wr, offset, 8))
			printf("ok %" PRIu64 "\n", *(uint64_t *)e->local->addr);
	} else if (sscanf(line, "swap %" SCNu64 " %" SCNu64 " %" SCNu64, &offset, &x, &y) == 3) {
		wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		wr.wr.atomic.compare_add = x;
		wr.wr.atomic.swap = y;
		if (perform(e, &wr, offset, 8))
			printf("ok %" PRIu64 "\n", *(uint64_t *)e->local->addr);
	} else if (!strncmp(line, "send", 4)) {
		wr.opcode = IBV_WR_SEND;
		if (perform(e, &wr, 0, 1))
			printf("ok\n");
	} else if (sscanf(line, "peek %" SCNu64 " %" SCNu64, &offset, &x) == 2) {
		print_bytes(e->exposed, offset, x);
	} else {
		printf("failed to understand %s", line);
	}
}

int main(void)
{
	struct end e = { 0 };
	char line[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	open_end(&e);
	print_here(&e);
	while (fgets(line, sizeof(line), stdin))
		obey(&e, line);
	return 0;
}
