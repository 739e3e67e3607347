/*
 * Makes and destroys again and again one of everything, and says how much of itself has grown.
 *
 *   cycles ROUNDS EACH    prints after each round of EACH cycles its memory in KiB, its mappings
 *                         and its descriptors
 */
#include <dirent.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *context;
static union ibv_gid gid;

static void require(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void cycle(char *memory, size_t i)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_ah_attr ah_attr = {
		.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1, .dgid = gid},
	};
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = i % 2 ? IBV_QPT_RC : IBV_QPT_UD,
		.send_cq = cq,
		.recv_cq = cq,
	};
	struct ibv_srq *srq;
	struct ibv_mr *whole, *part;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	struct ibv_qp *qp;

	require(pd && channel && cq, "pd, comp channel, cq");
	srq = ibv_create_srq(pd, &shared);
	require(srq != NULL, "ibv_create_srq");
	if (i % 3 == 0)
		init.srq = srq;
	qp = ibv_create_qp(pd, &init);
	require(qp != NULL, "ibv_create_qp");
	ah = ibv_create_ah(pd, &ah_attr);
	require(ah != NULL, "ibv_create_ah");
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	require(mw != NULL, "ibv_alloc_mw");
	whole = ibv_reg_mr(pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	part = ibv_reg_mr(pd, memory + i % 1000, 3000 + i % 50000, IBV_ACCESS_LOCAL_WRITE);
	require(whole && part, "ibv_reg_mr");
	require(!ibv_dereg_mr(part) && !ibv_dereg_mr(whole), "ibv_dereg_mr");
	require(!ibv_dealloc_mw(mw), "ibv_dealloc_mw");
	require(!ibv_destroy_ah(ah), "ibv_destroy_ah");
	require(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	require(!ibv_destroy_srq(srq), "ibv_destroy_srq");
	require(!ibv_destroy_cq(cq), "ibv_destroy_cq");
	require(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	require(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
}

static long resident(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long size = 0;

	require(f != NULL, "status");
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "VmRSS:", 6))
			size = atol(line + 6);
	}
	fclose(f);
	return size;
}

static long mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	long count = 0;

	require(f != NULL, "maps");
	while (fgets(line, sizeof(line), f))
		count++;
	fclose(f);
	return count;
}

static long descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	long count = 0;

	require(d != NULL, "fd");
	while (readdir(d))
		count++;
	closedir(d);
	return count;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	char *memory = aligned_alloc(4096, 1 << 20);

	require(argc == 3, "usage: cycles ROUNDS EACH");
	require(memory && list && list[0], "no device");
	context = ibv_open_device(list[0]);
	require(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	require(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	memset(memory, 1, 1 << 20);
	for (int round = 0; round < atoi(argv[1]); round++) {
		for (size_t i = 0; i < strtoul(argv[2], NULL, 10); i++)
			cycle(memory, i);
		printf("%ld %ld %ld\n", resident(), mappings(), descriptors());
		fflush(stdout);
	}
	free(memory);
	return ibv_close_device(context);
}
