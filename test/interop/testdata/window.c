/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lends memory by windows of type 2: the server binds, tells the key by a message right behind, and
 * the client writes and reads through it; then the client revokes the key by SEND with invalidate,
 * or the server does by a local invalidate. At last the client uses a dead key.
 *
 *	window -d DEVICE -g GID -p PORT [-n ROUNDS] [-s BYTES] [SERVER]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* rdma_rxe tells programs the kernel's own flag, whose number means something else for them. */
#define WITH_INV (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)

struct address {
	uint32_t qpn;
	uint32_t unused;
	union ibv_gid gid;
};

struct offer {
	uint64_t addr;
	uint32_t rkey;
	uint32_t length;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr, *mail_mr;
static unsigned char *buf;
static struct offer mail[2]; /* out, in */
static uint32_t length = 5000;

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (errno %d: %s)\n", errno, strerror(errno));
	exit(1);
}

#define MUST(condition) ((condition) ? (void)0 : die("line %d: %s", __LINE__, #condition))

static void open_all(const char *device)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), device))
			context = ibv_open_device(list[i]);
	}
	MUST(context);
	MUST(pd = ibv_alloc_pd(context));
	MUST(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	init.send_cq = init.recv_cq = cq;
	MUST(qp = ibv_create_qp(pd, &init));
	MUST(buf = calloc(1, length));
	MUST(mr = ibv_reg_mr(pd, buf, length, ACCESS | IBV_ACCESS_MW_BIND));
	MUST(mail_mr = ibv_reg_mr(pd, mail, sizeof(mail), IBV_ACCESS_LOCAL_WRITE));
}

static int meet(const char *server, const char *port)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	const int on = 1;
	int sock, peer;

	if (!server)
		hints.ai_flags = AI_PASSIVE;
	MUST(getaddrinfo(server, port, &hints, &found) == 0);
	sock = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (server) {
		MUST(connect(sock, found->ai_addr, found->ai_addrlen) == 0);
		return sock;
	}
	MUST(bind(sock, found->ai_addr, found->ai_addrlen) == 0 && listen(sock, 1) == 0);
	MUST((peer = accept(sock, NULL, NULL)) >= 0);
	close(sock);
	return peer;
}

static void post_recv(void)
{
	struct ibv_sge sge = {(uintptr_t)&mail[1], sizeof(mail[1]), mail_mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	MUST(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void connect_qp(int sock, int gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 4, .max_rd_atomic = 4,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1,
			    .grh = {.hop_limit = 64, .sgid_index = (uint8_t)gid}},
	};
	struct address mine = {.qpn = qp->qp_num}, other;

	MUST(ibv_query_gid(context, 1, gid, &mine.gid) == 0);
	MUST(write(sock, &mine, sizeof(mine)) == sizeof(mine));
	MUST(recv(sock, &other, sizeof(other), MSG_WAITALL) == sizeof(other));
	attr.dest_qp_num = other.qpn;
	attr.ah_attr.grh.dgid = other.gid;
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC |
						IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	post_recv();
	MUST(write(sock, "", 1) == 1 && recv(sock, &other, 1, MSG_WAITALL) == 1);
}

static struct ibv_wc await(void)
{
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	MUST(got == 1);
	return wc;
}

static struct ibv_wc expect(enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = await();

	if (wc.status != IBV_WC_SUCCESS)
		die("opcode %d fails: %s", opcode, ibv_wc_status_str(wc.status));
	MUST(wc.opcode == opcode);
	return wc;
}

static void post(struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct ibv_send_wr *bad;

	wr->send_flags = IBV_SEND_SIGNALED;
	wr->sg_list = sge;
	wr->num_sge = sge != NULL;
	MUST(ibv_post_send(qp, wr, &bad) == 0);
}

static void post_mail(struct ibv_send_wr *wr)
{
	struct ibv_sge sge = {(uintptr_t)&mail[0], sizeof(mail[0]), mail_mr->lkey};

	post(wr, &sge);
}

static void serve(int rounds)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	uint32_t rkey;

	MUST(mw);
	rkey = mw->rkey;
	for (int i = 0; i <= rounds; i++) {
		struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW}, tell = {.opcode = IBV_WR_SEND};
		struct ibv_send_wr inv = {.opcode = IBV_WR_LOCAL_INV};
		struct ibv_wc wc;

		if (i < rounds) {
			rkey = ibv_inc_rkey(rkey);
			bind.bind_mw.mw = mw;
			bind.bind_mw.rkey = rkey;
			bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
				mr, (uintptr_t)buf, length,
				IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
			post(&bind, NULL);
		}
		mail[0] = (struct offer){(uintptr_t)buf, rkey, length};
		post_mail(&tell);
		if (i == rounds) /* the client ends the connection by a dead key */
			return;
		expect(IBV_WC_BIND_MW);
		mw->rkey = rkey; /* rdma_rxe finds the window by it, so programs keep it up */
		expect(IBV_WC_SEND);
		wc = expect(IBV_WC_RECV);
		for (uint32_t k = 0; k < length; k++)
			MUST(buf[k] == (unsigned char)(k * 7 + (unsigned int)i));
		if (i % 2 == 0) {
			MUST(wc.wc_flags & WITH_INV && wc.invalidated_rkey == rkey);
		} else {
			inv.invalidate_rkey = rkey;
			post(&inv, NULL);
			expect(IBV_WC_LOCAL_INV);
		}
		post_recv();
	}
}

static enum ibv_wc_status use(enum ibv_wr_opcode opcode, const struct offer *o)
{
	struct ibv_sge sge = {(uintptr_t)buf, o->length, mr->lkey};
	struct ibv_send_wr wr = {.opcode = opcode, .wr.rdma = {o->addr, o->rkey}};

	post(&wr, &sge);
	return await().status;
}

static void call(int rounds)
{
	for (int i = 0; i <= rounds; i++) {
		struct ibv_send_wr done = {.opcode = IBV_WR_SEND};
		struct offer o;

		expect(IBV_WC_RECV);
		o = mail[1];
		post_recv();
		MUST(o.length == length);
		if (i == rounds) {
			MUST(use(IBV_WR_RDMA_WRITE, &o) == IBV_WC_REM_ACCESS_ERR);
			return;
		}
		for (uint32_t k = 0; k < length; k++)
			buf[k] = (unsigned char)(k * 7 + (unsigned int)i);
		MUST(use(IBV_WR_RDMA_WRITE, &o) == IBV_WC_SUCCESS);
		memset(buf, 0, length);
		MUST(use(IBV_WR_RDMA_READ, &o) == IBV_WC_SUCCESS);
		for (uint32_t k = 0; k < length; k++)
			MUST(buf[k] == (unsigned char)(k * 7 + (unsigned int)i));
		if (i % 2 == 0) {
			done.opcode = IBV_WR_SEND_WITH_INV;
			done.invalidate_rkey = o.rkey;
		}
		post_mail(&done);
		expect(IBV_WC_SEND);
	}
}

int main(int argc, char **argv)
{
	const char *device = "", *port = "20000";
	int option, gid = 0, rounds = 20, sock;

	while ((option = getopt(argc, argv, "d:g:p:n:s:")) != -1) {
		switch (option) {
		case 'd':
			device = optarg;
			break;
		case 'g':
			gid = atoi(optarg);
			break;
		case 'p':
			port = optarg;
			break;
		case 'n':
			rounds = atoi(optarg);
			break;
		case 's':
			length = (uint32_t)atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	alarm(30); /* a test that hangs says nothing */
	open_all(device);
	sock = meet(argv[optind], port);
	connect_qp(sock, gid);
	if (argv[optind])
		call(rounds);
	else
		serve(rounds);
	MUST(write(sock, "", 1) == 1 && recv(sock, mail, 1, MSG_WAITALL) == 1);
	printf("%d windows lent and revoked\n", rounds);
	return 0;
}
