/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of connections, for a test that says what to do with them: a command a line on standard
 * input, an answer a line on standard output, "ok …" or "err ERRNO POSTED". Numbers are those of
 * verbs.h. It connects queue pairs itself, or by rdma_cm where it is given an address.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES = 2, SLOTS = 4096, SGES = 4096, WRS = 64, PATIENCE_MS = 30000 };

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pds[2];
	struct ibv_srq *srqs[SLOTS];
	int srq_count;
};

struct end {
	struct side *side;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct rdma_cm_id *id;
	struct ibv_ah *ah;
	union ibv_gid gid;
};

/* What the test asks of an end. */
struct wish {
	int side, srq, sends;
	bool signals_all;
	uint32_t psn, qkey;
	struct ibv_qp_attr attr;
};

static struct side sides[SIDES];
static struct end ends[SLOTS];
/* Memory stays when it is registered no more: whoever looks at it sees what is there. */
static struct region {
	struct ibv_mr *mr;
	void *memory;
	size_t length;
} regions[SLOTS];
static int end_count, region_count;
static enum ibv_mtu mtu;
static struct rdma_event_channel *dialing, *listening;
static struct rdma_cm_id *listener;
static struct sockaddr_in address;
static char *cursor; /* in the line of the command */

static uint64_t number(void)
{
	return strtoull(cursor, &cursor, 0);
}

static void refuse(int error, int posted)
{
	printf("err %d %d\n", error ? error : EIO, posted);
}

static void die(const char *what)
{
	fprintf(stderr, "ends: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct end *end_at(void)
{
	return &ends[number() % SLOTS];
}

/* Waits for an event of rdma_cm. Those that tell of older connections are passed over. */
static struct rdma_cm_id *await(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	for (;;) {
		struct rdma_cm_id *id;
		enum rdma_cm_event_type got;

		if (rdma_get_cm_event(channel, &event))
			return NULL;
		id = event->id;
		got = event->event;
		rdma_ack_cm_event(event);
		if (got == type)
			return id;
		if (got != RDMA_CM_EVENT_DISCONNECTED && got != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
			fprintf(stderr, "ends: %s\n", rdma_event_str(got));
			errno = EPROTO;
			return NULL;
		}
	}
}

static int make_qp(struct end *e, enum ibv_qp_type type, const struct wish *w)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.srq = e->srq,
		.qp_type = type,
		.sq_sig_all = w->signals_all,
		.cap = {.max_send_wr = (uint32_t)(w->sends ? w->sends : 128),
			.max_recv_wr = 128,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
	};

	if (e->id) {
		if (rdma_create_qp(e->id, e->side->pds[0], &init))
			return -1;
		e->qp = e->id->qp;
		return 0;
	}
	e->qp = ibv_create_qp(e->side->pds[0], &init);
	return e->qp ? 0 : -1;
}

static int start_end(struct end *e, const struct wish *w)
{
	*e = (struct end){.side = &sides[w->side]};
	e->cq = ibv_create_cq(e->side->ctx, 1024, NULL, NULL, 0);
	if (!e->cq)
		return -1;
	if (w->srq >= 0)
		e->srq = e->side->srqs[w->srq];
	return ibv_query_gid(e->side->ctx, 1, 0, &e->gid);
}

static void aim(struct ibv_ah_attr *ah, const struct end *peer)
{
	*ah = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	ah->grh.dgid = peer->gid;
	ah->grh.hop_limit = 64;
}

/* Takes a queue pair to RTS by hand. */
static int bring_up(struct end *e, const struct wish *w, const struct end *peer, uint32_t psn)
{
	enum ibv_qp_type type = e->qp->qp_type;
	struct ibv_qp_attr a = w->attr;
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	a.port_num = 1;
	a.qkey = w->qkey;
	a.dest_qp_num = peer->qp->qp_num;
	a.rq_psn = psn;
	a.sq_psn = w->psn;
	aim(&a.ah_attr, peer);
	init |= type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (type != IBV_QPT_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	}
	a.qp_state = IBV_QPS_INIT;
	if (ibv_modify_qp(e->qp, &a, init))
		return -1;
	a.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(e->qp, &a, rtr))
		return -1;
	a.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(e->qp, &a, rts))
		return -1;
	if (type == IBV_QPT_UD) {
		e->ah = ibv_create_ah(e->side->pds[0], &a.ah_attr);
		return e->ah ? 0 : -1;
	}
	return 0;
}

static int connect_by_hand(struct end *a, struct end *b, enum ibv_qp_type type,
			   const struct wish w[2])
{
	if (make_qp(a, type, &w[0]) || make_qp(b, type, &w[1]))
		return -1;
	return bring_up(a, &w[0], b, w[1].psn) || bring_up(b, &w[1], a, w[0].psn) ? -1 : 0;
}

static int dial(struct end *e, const struct wish *w)
{
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16, .retry_count = 7, .rnr_retry_count = 7};

	if (rdma_create_id(dialing, &e->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&address, PATIENCE_MS) ||
	    !await(dialing, RDMA_CM_EVENT_ADDR_RESOLVED) ||
	    rdma_resolve_route(e->id, PATIENCE_MS) ||
	    !await(dialing, RDMA_CM_EVENT_ROUTE_RESOLVED) || make_qp(e, IBV_QPT_RC, w))
		return -1;
	return rdma_connect(e->id, &param);
}

static int connect_by_cm(struct end *a, struct end *b, const struct wish w[2])
{
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16, .rnr_retry_count = 7};
	struct ibv_qp_attr grant[2] = {w[0].attr, w[1].attr};

	if (dial(a, &w[0]))
		return -1;
	b->id = await(listening, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!b->id || make_qp(b, IBV_QPT_RC, &w[1]) || rdma_accept(b->id, &param) ||
	    !await(listening, RDMA_CM_EVENT_ESTABLISHED) ||
	    !await(dialing, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	return ibv_modify_qp(a->qp, &grant[0], IBV_QP_ACCESS_FLAGS) ||
		       ibv_modify_qp(b->qp, &grant[1], IBV_QP_ACCESS_FLAGS)
		       ? -1
		       : 0;
}

static struct wish read_wish(int side)
{
	struct wish w = {.side = side};

	w.srq = (int)number() - 1;
	w.sends = (int)number();
	w.signals_all = number();
	w.psn = (uint32_t)number();
	w.qkey = (uint32_t)number();
	w.attr.qp_access_flags = (unsigned int)number();
	w.attr.path_mtu = (enum ibv_mtu)number();
	w.attr.max_rd_atomic = (uint8_t)number();
	w.attr.max_dest_rd_atomic = (uint8_t)number();
	w.attr.min_rnr_timer = (uint8_t)number();
	w.attr.timeout = (uint8_t)number();
	w.attr.retry_cnt = (uint8_t)number();
	w.attr.rnr_retry = (uint8_t)number();
	return w;
}

static void do_connect(void)
{
	enum ibv_qp_type type = (enum ibv_qp_type)number();
	struct wish w[2];
	struct end *e = &ends[end_count];

	w[0] = read_wish(0);
	w[1] = read_wish(1);
	if (end_count + 2 > SLOTS || start_end(&e[0], &w[0]) || start_end(&e[1], &w[1]) ||
	    (listener ? connect_by_cm(&e[0], &e[1], w) : connect_by_hand(&e[0], &e[1], type, w))) {
		refuse(errno, 0);
		return;
	}
	printf("ok %d %u %u\n", end_count, e[0].qp->qp_num, e[1].qp->qp_num);
	end_count += 2;
}

static void do_close(void)
{
	struct end *e = end_at();
	int error = 0;

	if (e->id) {
		rdma_disconnect(e->id); /* perhaps it is over already */
		rdma_destroy_qp(e->id);
	} else {
		error = ibv_destroy_qp(e->qp);
	}
	if (!error && e->ah)
		error = ibv_destroy_ah(e->ah);
	if (!error)
		error = ibv_destroy_cq(e->cq);
	if (!error && e->id && rdma_destroy_id(e->id))
		error = errno;
	if (error)
		refuse(error, 0);
	else
		printf("ok\n");
}

static void do_srq(void)
{
	struct side *s = &sides[number() % SIDES];
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 128, .max_sge = 4}};
	struct ibv_srq *srq = ibv_create_srq(s->pds[0], &init);

	if (!srq || s->srq_count == SLOTS) {
		refuse(errno, 0);
		return;
	}
	s->srqs[s->srq_count++] = srq;
	printf("ok %d\n", s->srq_count);
}

static void do_region(void)
{
	struct end *e = end_at();
	size_t size = number();
	int access = (int)number();
	bool is_other = number();
	void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	struct ibv_mr *mr = memory ? ibv_reg_mr(e->side->pds[is_other], memory, size, access) : NULL;

	if (!mr || region_count == SLOTS) {
		refuse(errno, 0);
		return;
	}
	regions[region_count] = (struct region){mr, memory, size};
	printf("ok %d %llu %u %u\n", region_count++, (unsigned long long)(uintptr_t)memory,
	       mr->lkey, mr->rkey);
}

static void do_dereg(void)
{
	int error = ibv_dereg_mr(regions[number() % SLOTS].mr);

	if (error)
		refuse(error, 0);
	else
		printf("ok\n");
}

static void do_load(void)
{
	struct region *r = &regions[number() % SLOTS];

	printf("ok %zu\n", r->length);
	fwrite(r->memory, 1, r->length, stdout);
}

static void do_store(void)
{
	struct region *r = &regions[number() % SLOTS];
	size_t n = number();

	if (n > r->length || fread(r->memory, 1, n, stdin) != n)
		die("store");
	printf("ok\n");
}

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

static void do_send(void)
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

static void do_recv(void)
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

static void do_poll(void)
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

static void do_state(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int error = ibv_query_qp(end_at()->qp, &attr, IBV_QP_STATE, &init);

	if (error)
		refuse(error, 0);
	else
		printf("ok %d\n", attr.qp_state);
}

static void do_fail(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int error = ibv_modify_qp(end_at()->qp, &attr, IBV_QP_STATE);

	if (error)
		refuse(error, 0);
	else
		printf("ok\n");
}

/* Waits for the next asynchronous event about an end. */
static void do_event(void)
{
	struct end *e = end_at();
	struct pollfd fd = {.fd = e->side->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	while (poll(&fd, 1, PATIENCE_MS) == 1 && !ibv_get_async_event(e->side->ctx, &event)) {
		bool is_port = event.event_type >= IBV_EVENT_DEVICE_FATAL &&
			       event.event_type != IBV_EVENT_QP_LAST_WQE_REACHED;
		bool is_ours = !is_port && event.event_type != IBV_EVENT_CQ_ERR &&
			       event.element.qp == e->qp;

		ibv_ack_async_event(&event);
		if (is_ours) {
			printf("ok %d\n", event.event_type);
			return;
		}
	}
	refuse(ETIMEDOUT, 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{"connect", do_connect}, {"close", do_close}, {"srq", do_srq},	   {"region", do_region},
	{"dereg", do_dereg},	 {"load", do_load},   {"store", do_store}, {"send", do_send},
	{"recv", do_recv},	 {"poll", do_poll},   {"state", do_state}, {"fail", do_fail},
	{"event", do_event},
};

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

/* Listens at an address; the device of the listener is that of all ends. */
static struct ibv_context *listen_at(const char *where)
{
	address.sin_family = AF_INET;
	inet_pton(AF_INET, where, &address.sin_addr);
	dialing = rdma_create_event_channel();
	listening = rdma_create_event_channel();
	if (!dialing || !listening || rdma_create_id(listening, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&address) || rdma_listen(listener, 64))
		die("listen");
	address.sin_port = rdma_get_src_port(listener);
	return listener->verbs;
}

static void start(const char *device, const char *where)
{
	struct ibv_port_attr port;
	struct ibv_context *both = where ? listen_at(where) : NULL;

	for (int i = 0; i < SIDES; i++) {
		struct side *s = &sides[i];

		s->ctx = both ? both : open_device(device);
		if (!s->ctx)
			die("open device");
		s->pds[0] = ibv_alloc_pd(s->ctx);
		s->pds[1] = ibv_alloc_pd(s->ctx);
		if (!s->pds[0] || !s->pds[1] || ibv_query_port(s->ctx, 1, &port))
			die("protection domains");
	}
	mtu = port.active_mtu;
	printf("ok %d %s\n", mtu, ibv_get_device_name(sides[0].ctx->device));
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t room = 0;

	start(argv[1], argc > 2 ? argv[2] : NULL);
	fflush(stdout);
	while (getline(&line, &room, stdin) > 0) {
		char *word = strtok_r(line, " \n", &cursor);
		bool is_known = false;

		for (size_t i = 0; word && i < sizeof(commands) / sizeof(*commands); i++)
			if (!strcmp(word, commands[i].name)) {
				commands[i].run();
				is_known = true;
			}
		if (!is_known)
			die("unknown command");
		fflush(stdout);
	}
	free(line);
	return 0;
}
