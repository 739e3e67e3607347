/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNIC_DOMAIN_H
#define RNIC_DOMAIN_H

#include "rnic.h"

struct rnic_td {
	struct ibv_td base;
	atomic_uint users; /* parent domains */
};

/* A protection domain, or a parent domain, which has one and shares its handle. */
struct rnic_pd {
	struct ibv_pd base;
	struct rnic_pd *protection; /* of a parent domain, else NULL */
	struct rnic_td *td;
	atomic_uint users; /* parent domains of a protection domain, CQs of a parent domain */
};

struct rnic_xrcd {
	struct ibv_xrcd base;
	uint32_t handle;
};

static inline struct rnic_pd *pd_of(struct ibv_pd *pd)
{
	return (struct rnic_pd *)pd;
}

static inline struct rnic_td *td_of(struct ibv_td *td)
{
	return (struct rnic_td *)td;
}

static inline struct rnic_xrcd *xrcd_of(struct ibv_xrcd *xrcd)
{
	return (struct rnic_xrcd *)xrcd;
}

struct ctl_call;

/*
 * Makes the object of a protection domain that a call to the NIC names by a handle; NULL and errno
 * if it fails.
 */
struct ibv_pd *domain_pd_query(struct ibv_context *context, struct ctl_call *call);

/* Operations of the context. */
struct ibv_pd *domain_parent_alloc(struct ibv_context *context,
				   struct ibv_parent_domain_init_attr *attr);
struct ibv_td *domain_td_alloc(struct ibv_context *context, struct ibv_td_init_attr *attr);
int domain_td_dealloc(struct ibv_td *td);
struct ibv_xrcd *domain_xrcd_open(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int domain_xrcd_close(struct ibv_xrcd *xrcd);

#endif
