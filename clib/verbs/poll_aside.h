/* SPDX-License-Identifier: Apache-2.0 */
/* Not being in the NIC's way on a processor. */
#ifndef RNIC_POLL_ASIDE_H
#define RNIC_POLL_ASIDE_H

#include "rnic.h"

/*
 * Returns the processor that the lane ran on last, −1 where it does not tell: one of a high
 * priority needs nobody to give way.
 */
int poll_aside_lane(const struct rnic_context *ctx);

/*
 * Called by a poll that has found nothing. Where the lane is awake and has the processor that we
 * run on, it gets it, and true comes back. The CQ is locked.
 */
bool poll_aside(struct rnic_cq *cq);

#endif
