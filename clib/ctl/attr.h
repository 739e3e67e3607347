/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of addresses and queue pairs, as verbs and as the NIC has them. */
#ifndef RNIC_ATTR_H
#define RNIC_ATTR_H

#include <infiniband/verbs.h>

#include "rnic_abi.h"

/*
 * Our libraries' own hint to ibv_reg_mr: no other thread knows of the memory yet, so its pages may
 * move. It is one of the access flags that a device may ignore.
 */
#define RNIC_ACCESS_UNSHARED (1 << 29)

void attr_ah_to_abi(struct rnic_ah_attr *out, const struct ibv_ah_attr *in);
void attr_ah_from_abi(struct ibv_ah_attr *out, const struct rnic_ah_attr *in);
void attr_qp_to_abi(struct rnic_qp_attr *out, const struct ibv_qp_attr *in);
void attr_qp_from_abi(struct ibv_qp_attr *out, const struct rnic_qp_attr *in);

#endif
