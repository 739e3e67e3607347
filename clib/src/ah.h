/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNIC_AH_H
#define RNIC_AH_H

#include "rnic.h"

void ah_attr_to_abi(struct rnic_ah_attr *out, const struct ibv_ah_attr *in);
void ah_attr_from_abi(struct ibv_ah_attr *out, const struct rnic_ah_attr *in);

#endif
