/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of connections, for a test that says what to do with them: a command a line on standard
 * input, an answer a line on standard output, "ok …" or "err ERRNO POSTED". Numbers are those of
 * verbs.h. It connects queue pairs itself, or by rdma_cm where it is given an address.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"

struct side sides[SIDES];
struct end ends[SLOTS];
/* Memory stays when it is registered no more: whoever looks at it sees what is there. */
static struct region {
	struct ibv_mr *mr;
	void *memory;
	size_t length;
} regions[SLOTS];
static int region_count;
static char *cursor; /* in the line of the command */

uint64_t number(void)
{
	return strtoull(cursor, &cursor, 0);
}

void refuse(int error, int posted)
{
	printf("err %d %d\n", error ? error : EIO, posted);
}

void die(const char *what)
{
	fprintf(stderr, "ends: %s: %s\n", what, strerror(errno));
	exit(1);
}

struct end *end_at(void)
{
	return &ends[number() % SLOTS];
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
	{"event", do_event},	 {"ask", do_ask},
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
	printf("ok %d %s\n", port.active_mtu, ibv_get_device_name(sides[0].ctx->device));
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
