/* SPDX-License-Identifier: Apache-2.0 */
/* Regions, windows and device memory against a real NIC, "region_test CASE". */
#include "setup.h"

#include <dirent.h>
#include <sys/mman.h>

#define PAGE 4096u
#define REMOTE \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* Two connected queue pairs; the one of setup is the requester. */
struct pair {
	struct setup s;
	struct ibv_qp *peer;
};

static void connect_qp(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = REMOTE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
	};

	CHECK(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC |
						IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void pair_connect(struct pair *p)
{
	struct ibv_qp *qps[] = {p->s.qp, p->peer};

	for (int i = 0; i < 2; i++) {
		to_state(qps[i], IBV_QPS_RESET);
		connect_qp(qps[i], qps[1 - i]->qp_num);
	}
}

static void pair_make(struct pair *p)
{
	struct ibv_qp_init_attr attr;

	setup_make(&p->s, 64);
	attr = qp_attr(&p->s, IBV_QPT_RC);
	p->peer = ibv_create_qp(p->s.pd, &attr);
	CHECK(p->peer);
	pair_connect(p);
}

static void pair_end(struct pair *p)
{
	CHECK(ibv_destroy_qp(p->peer) == 0);
	setup_end(&p->s);
}

static enum ibv_wc_status await(struct pair *p)
{
	struct ibv_wc wc;

	poll_n(p->s.cq, 1, &wc);
	return wc.status;
}

/* Writes 8 bytes of the requester's buffer to the peer. */
static enum ibv_wc_status write_to(struct pair *p, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)p->s.buf, 8, p->s.mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {addr, rkey},
	}, *bad;

	CHECK(ibv_post_send(p->s.qp, &wr, &bad) == 0);
	return await(p);
}

static void *map_pages(size_t count)
{
	void *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void check_input(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access)
{
	const struct ibv_mr before = *mr;

	errno = 0;
	CHECK(ibv_rereg_mr(mr, flags, pd, addr, length, access) == IBV_REREG_MR_ERR_INPUT);
	CHECK(errno == EINVAL && !memcmp(&before, mr, sizeof(before)));
}

static void test_rereg(void)
{
	unsigned char *old = map_pages(2), *fresh = map_pages(3);
	struct ibv_pd *other;
	struct ibv_mr *mr, *null;
	uint32_t rkey;
	struct pair p;

	pair_make(&p);
	mr = ibv_reg_mr(p.s.pd, old, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE);
	other = ibv_alloc_pd(p.s.context);
	null = ibv_alloc_null_mr(p.s.pd);
	CHECK(mr && other && null && null->length == SIZE_MAX && null->rkey == 0);
	rkey = mr->rkey;

	check_input(null, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0);
	check_input(mr, 8, NULL, NULL, 0, 0);
	check_input(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, PAGE, 0);
	check_input(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, fresh, 0, 0);
	check_input(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0);
	check_input(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, IBV_ACCESS_LOCAL_WRITE);
	/* What only the NIC can refuse; the region is as before. */
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_CMD && errno == EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)PAGE, PAGE, 0) ==
		      IBV_REREG_MR_ERR_CMD && errno == EFAULT);
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_CMD && errno == EINVAL);
	CHECK(mr->addr == old && mr->length == 2 * PAGE && mr->pd == p.s.pd);

	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, REMOTE) == 0);
	p.s.buf[0] = 11;
	CHECK(write_to(&p, (uintptr_t)old + PAGE, rkey) == IBV_WC_SUCCESS && old[PAGE] == 11);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, fresh, 3 * PAGE, 0) == 0);
	CHECK(mr->addr == fresh && mr->length == 3 * PAGE && mr->rkey == rkey);
	p.s.buf[0] = 12;
	CHECK(write_to(&p, (uintptr_t)fresh + 2 * PAGE, rkey) == IBV_WC_SUCCESS);
	CHECK(fresh[2 * PAGE] == 12 && old[PAGE] == 11);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0) == 0 && mr->pd == other);
	CHECK(write_to(&p, (uintptr_t)fresh, rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_pd(other) == EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, p.s.pd, old, PAGE, REMOTE) == 0);
	CHECK(ibv_dealloc_pd(other) == 0);
	pair_connect(&p);
	CHECK(write_to(&p, (uintptr_t)old, rkey) == IBV_WC_SUCCESS && old[0] == 12);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(null) == 0);
	CHECK(munmap(old, 2 * PAGE) == 0 && munmap(fresh, 3 * PAGE) == 0);
	pair_end(&p);
}

static void bind_type2(struct pair *p, struct ibv_mw *mw, const struct ibv_mw_bind_info *info,
		       int want)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = *info},
	}, *bad = NULL;

	CHECK(ibv_post_send(p->peer, &wr, &bad) == want);
	CHECK(want == 0 || bad == &wr);
}

static void test_window_1(void)
{
	unsigned char *at = map_pages(1);
	struct ibv_mw_bind bind;
	struct ibv_pd *other;
	struct ibv_mr *mr;
	struct ibv_mw *mw, *two;
	uint32_t first;
	struct pair p;

	pair_make(&p);
	mr = ibv_reg_mr(p.s.pd, at, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(p.s.pd, IBV_MW_TYPE_1);
	two = ibv_alloc_mw(p.s.pd, IBV_MW_TYPE_2);
	other = ibv_alloc_pd(p.s.context);
	CHECK(mr && mw && two && other && mw->type == IBV_MW_TYPE_1 && mw->pd == p.s.pd);
	CHECK(!ibv_alloc_mw(p.s.pd, (enum ibv_mw_type)3) && errno == EINVAL);
	bind = (struct ibv_mw_bind){
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {mr, (uintptr_t)at + 16, 8, IBV_ACCESS_REMOTE_WRITE},
	};
	CHECK(ibv_bind_mw(p.peer, two, &bind) == EINVAL); /* type 2 is posted */
	bind_type2(&p, mw, &bind.bind_info, EINVAL);
	bind.bind_info.mw_access_flags = IBV_ACCESS_ON_DEMAND;
	CHECK(ibv_bind_mw(p.peer, mw, &bind) == EINVAL);
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	first = mw->rkey;
	CHECK(ibv_bind_mw(p.peer, mw, &bind) == 0 && mw->rkey != first);
	CHECK(await(&p) == IBV_WC_SUCCESS);
	p.s.buf[0] = 21;
	CHECK(write_to(&p, (uintptr_t)at + 16, mw->rkey) == IBV_WC_SUCCESS && at[16] == 21);
	CHECK(ibv_dereg_mr(mr) == EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0) ==
		      IBV_REREG_MR_ERR_CMD && errno == EBUSY);
	/* Bound again, it opens another part, and the key before is dead. */
	first = mw->rkey;
	bind.bind_info.addr += 8;
	CHECK(ibv_bind_mw(p.peer, mw, &bind) == 0 && await(&p) == IBV_WC_SUCCESS);
	CHECK(write_to(&p, (uintptr_t)at + 24, mw->rkey) == IBV_WC_SUCCESS && at[24] == 21);
	CHECK(write_to(&p, (uintptr_t)at + 16, first) == IBV_WC_REM_ACCESS_ERR);
	pair_connect(&p);
	bind.bind_info = (struct ibv_mw_bind_info){0};
	CHECK(ibv_bind_mw(p.peer, mw, &bind) == 0 && await(&p) == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(other) == 0);
	CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(two) == 0);
	pair_end(&p);
}

static void test_window_2(void)
{
	unsigned char *at = map_pages(1);
	struct ibv_mw_bind_info info;
	struct ibv_send_wr inv = {.opcode = IBV_WR_SEND_WITH_INV}, *bad;
	struct ibv_recv_wr recv = {.wr_id = 5}, *bad_recv;
	struct ibv_wc wc[2];
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint32_t rkey;
	struct pair p;

	pair_make(&p);
	mr = ibv_reg_mr(p.s.pd, at, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(p.s.pd, IBV_MW_TYPE_2);
	CHECK(mr && mw);
	rkey = ibv_inc_rkey(mw->rkey);
	info = (struct ibv_mw_bind_info){mr, (uintptr_t)at, PAGE,
					 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED};
	bind_type2(&p, mw, &info, 0);
	CHECK(await(&p) == IBV_WC_SUCCESS);
	p.s.buf[0] = 31;
	CHECK(write_to(&p, 40, rkey) == IBV_WC_SUCCESS && at[40] == 31);
	CHECK(ibv_post_recv(p.peer, &recv, &bad_recv) == 0);
	inv.invalidate_rkey = rkey;
	inv.send_flags = IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(p.s.qp, &inv, &bad) == 0);
	poll_n(p.s.cq, 2, wc);
	for (int i = 0; i < 2; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS);
		if (wc[i].opcode & IBV_WC_RECV)
			CHECK(wc[i].wc_flags == IBV_WC_WITH_INV && wc[i].invalidated_rkey == rkey);
	}
	CHECK(ibv_dereg_mr(mr) == 0); /* nothing holds it */
	CHECK(write_to(&p, 40, rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_mw(mw) == 0);
	pair_end(&p);
}

static void test_paging(void)
{
	unsigned char *at = map_pages(2);
	const int access = REMOTE | IBV_ACCESS_ON_DEMAND;
	struct ibv_mr *some, *all;
	struct ibv_sge range;
	struct pair p;

	pair_make(&p);
	CHECK(munmap(at, 2 * PAGE) == 0);
	CHECK(!ibv_reg_mr(p.s.pd, at, 2 * PAGE, REMOTE) && errno == EFAULT);
	some = ibv_reg_mr(p.s.pd, at, 2 * PAGE, access);
	all = ibv_reg_mr(p.s.pd, NULL, SIZE_MAX, access);
	CHECK(some && all && !ibv_reg_mr(p.s.pd, NULL, SIZE_MAX, REMOTE));
	range = (struct ibv_sge){(uintptr_t)at, PAGE, some->lkey};
	CHECK(ibv_advise_mr(p.s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH,
			    &range, 1) == EFAULT);
	CHECK(ibv_advise_mr(p.s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1) == 0);
	for (int i = 0; i < 2; i++) {
		CHECK(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
		CHECK(ibv_advise_mr(p.s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				    IBV_ADVISE_MR_FLAG_FLUSH, &range, 1) == 0);
		p.s.buf[0] = (unsigned char)(41 + i);
		CHECK(write_to(&p, (uintptr_t)at, some->rkey) == IBV_WC_SUCCESS);
		CHECK(write_to(&p, (uintptr_t)at + PAGE, all->rkey) == IBV_WC_SUCCESS);
		CHECK(at[0] == 41 + i && at[PAGE] == 41 + i);
		CHECK(munmap(at, 2 * PAGE) == 0);
	}
	range.lkey = p.s.mr->lkey;
	CHECK(ibv_advise_mr(p.s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1) == EINVAL);
	range.lkey ^= 0x5500;
	CHECK(ibv_advise_mr(p.s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1) == ENOENT);
	CHECK(ibv_advise_mr(p.s.pd, (enum ibv_advise_mr_advice)9, 0, &range, 1) == EOPNOTSUPP);
	CHECK(ibv_advise_mr(p.s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 0) == EINVAL);
	CHECK(write_to(&p, (uintptr_t)at, all->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ibv_dereg_mr(some) == 0 && ibv_dereg_mr(all) == 0);
	pair_end(&p);
}

static void test_device(void)
{
	struct ibv_alloc_dm_attr attr = {.length = 100, .log_align_req = 6};
	const unsigned int access = REMOTE | IBV_ACCESS_ZERO_BASED;
	struct ibv_device_attr_ex device;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	unsigned char bytes[8];
	int status;
	struct pair p;

	pair_make(&p);
	CHECK(ibv_query_device_ex(p.s.context, NULL, &device) == 0 && device.max_dm_size > 0);
	dm = ibv_alloc_dm(p.s.context, &attr);
	CHECK(dm);
	attr.comp_mask = 1;
	CHECK(!ibv_alloc_dm(p.s.context, &attr) && errno == EINVAL);
	attr = (struct ibv_alloc_dm_attr){.length = device.max_dm_size + 1};
	CHECK(!ibv_alloc_dm(p.s.context, &attr) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(p.s.pd, dm, 0, 100, REMOTE) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(p.s.pd, dm, 4, 100, access) && errno == EINVAL);
	mr = ibv_reg_dm_mr(p.s.pd, dm, 20, 80, access);
	CHECK(mr && mr->length == 80);
	memcpy(p.s.buf, "devmem!!", 8);
	CHECK(write_to(&p, 12, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_memcpy_from_dm(bytes, dm, 32, 8) == 0 && !memcmp(bytes, "devmem!!", 8));
	CHECK(ibv_memcpy_from_dm(bytes, dm, 33, 4) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 96, bytes, 8) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 104, bytes, 4) == EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, p.s.pd, NULL, 0, 0) ==
	      IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0);
	if (fork() == 0) { /* a child has no part in the context, but may have device memory */
		attr = (struct ibv_alloc_dm_attr){.length = 64};
		dm = ibv_alloc_dm(p.s.context, &attr);
		CHECK(dm && ibv_memcpy_to_dm(dm, 60, bytes, 4) == 0 && ibv_free_dm(dm) == 0);
		CHECK(ibv_query_device_ex(p.s.context, NULL, &device) == 0);
		CHECK(!ibv_alloc_pd(p.s.context));
		_exit(0);
	}
	CHECK(wait(&status) > 0 && status == 0);
	CHECK(!ibv_reg_dmabuf_mr(p.s.pd, 0, PAGE, 0, 0, 0) && errno == EOPNOTSUPP);
	pair_end(&p);
}

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	CHECK(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static int count_lines(const char *path)
{
	FILE *file = fopen(path, "re");
	int c, count = 0;

	CHECK(file);
	while ((c = fgetc(file)) != EOF)
		count += c == '\n';
	fclose(file);
	return count;
}

/* Nothing of this process grows by registrations that come and go. */
static void test_cycles(void)
{
	const char *count = getenv("RNIC_MR_CYCLES");
	const long cycles = count ? atol(count) : 3000;
	unsigned char *at = map_pages(16);
	int fds = 0, maps = 0;
	struct setup s;

	setup_make(&s, 16);
	for (long i = 0; i < 500 + cycles; i++) {
		const size_t length = 1 + (size_t)i * 37 % (16 * PAGE);
		struct ibv_mr *mr = ibv_reg_mr(s.pd, at, length, REMOTE);
		struct ibv_mw *mw = ibv_alloc_mw(s.pd, IBV_MW_TYPE_2);

		CHECK(mr && mw);
		CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				   IBV_ACCESS_LOCAL_WRITE) == 0);
		CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
		if (i == 499) {
			fds = count_entries("/proc/self/fd");
			maps = count_lines("/proc/self/maps");
		}
	}
	CHECK(count_entries("/proc/self/fd") == fds);
	CHECK(count_lines("/proc/self/maps") <= maps + 1);
	setup_end(&s);
}

static const struct test_case cases[] = {
	{"rereg", test_rereg},	 {"window_1", test_window_1}, {"window_2", test_window_2},
	{"paging", test_paging}, {"device", test_device},     {"cycles", test_cycles},
};

int main(int argc, char **argv)
{
	return RUN_CASES(cases, argc, argv);
}
