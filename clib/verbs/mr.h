/* SPDX-License-Identifier: Apache-2.0 */
/* Memory regions, and what lies beside them: windows and device memory. */
#ifndef RNIC_MR_H
#define RNIC_MR_H

#include "mem.h"

enum mr_kind { MR_MEMORY, MR_NULL, MR_DEVICE, MR_IMPORTED };

struct rnic_mr {
	struct ibv_mr base;
	enum mr_kind kind;
	unsigned int access;
	bool has_own_addresses; /* work requests name the memory as this process does */
	/* One is in use; the other is made while the region is registered again. */
	struct mem_plan plans[2];
	struct mem_plan *plan; /* NULL where no memory of the application is behind it */
};

/* Memory of the NIC, mapped here too. */
struct rnic_dm {
	struct ibv_dm base;
	unsigned char *map;
	size_t map_bytes;
	size_t length; /* as asked for */
	/* Of a child of fork, which has no part in its parent's connection, and who it is. */
	struct ctl_conn *own;
	pid_t owner;
};

/* Gives device memory its functions. */
void dm_fill(struct rnic_dm *dm, struct ibv_context *context, size_t length);

static inline struct rnic_mr *mr_of(struct ibv_mr *mr)
{
	return (struct rnic_mr *)mr;
}

static inline struct rnic_dm *dm_of(struct ibv_dm *dm)
{
	return (struct rnic_dm *)dm;
}

/* Makes a region that the NIC describes in its reply to call. Returns NULL with errno. */
struct ibv_mr *mr_make(struct ibv_pd *pd, enum mr_kind kind, struct ctl_call *call);

/* Operations of the context. */
struct ibv_mr *mr_alloc_null(struct ibv_pd *pd);
int mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	      struct ibv_sge *list, uint32_t count);
struct ibv_dm *dm_alloc(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int dm_free(struct ibv_dm *ibdm);
struct ibv_mr *dm_register(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			   unsigned int access);
struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type);
int mw_free(struct ibv_mw *mw);
int mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

#endif
