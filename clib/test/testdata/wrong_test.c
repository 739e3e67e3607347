/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong arguments, and a process that has run out of something: the context goes on after them. */
#include <fcntl.h>
#include <sys/resource.h>

#include "setup.h"

static void test_bad_descriptor(void)
{
	struct ibv_context *context = open_device();
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = 9999,
		.oflags = O_CREAT,
	};
	struct ibv_pd *pd;

	CHECK(!ibv_open_xrcd(context, &attr) && errno == EBADF);
	pd = ibv_alloc_pd(context);
	CHECK(pd && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void test_missing_parts(void)
{
	struct setup s;
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
	};

	setup_make(&s, 4);
	attr.pd = s.pd;
	CHECK(!ibv_create_srq_ex(s.context, &attr) && errno == EINVAL);
	attr.pd = NULL;
	CHECK(!ibv_create_srq_ex(s.context, &attr) && errno == EINVAL);
	setup_end(&s);
}

/* What needs a descriptor fails before it is there, and works again once there is one. */
static void test_no_descriptors(void)
{
	struct setup s;
	struct ibv_qp_init_attr init;
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct rlimit was, none;
	struct ibv_qp *qp;

	setup_make(&s, 4);
	init = qp_attr(&s, IBV_QPT_RC);
	CHECK(getrlimit(RLIMIT_NOFILE, &was) == 0);
	none = was;
	none.rlim_cur = (rlim_t)dup(0);
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	close((int)none.rlim_cur);
	CHECK(!ibv_create_comp_channel(s.context) && errno == EMFILE);
	CHECK(!ibv_create_cq(s.context, 4, NULL, NULL, 0) && errno == EMFILE);
	CHECK(ibv_resize_cq(s.cq, 40) == EMFILE);
	CHECK(!ibv_create_srq(s.pd, &srq_init) && errno == EMFILE);
	CHECK(!ibv_create_qp(s.pd, &init) && errno == EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &was) == 0);
	qp = ibv_create_qp(s.pd, &init);
	CHECK(qp && ibv_destroy_qp(qp) == 0);
	setup_end(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"bad_descriptor", test_bad_descriptor},
		{"missing_parts", test_missing_parts},
		{"no_descriptors", test_no_descriptors},
	};

	return RUN_CASES(cases, argc, argv);
}
