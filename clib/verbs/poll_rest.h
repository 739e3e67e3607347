/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread does between polls that find nothing. */
#ifndef RNIC_POLL_REST_H
#define RNIC_POLL_REST_H

#include "rnic.h"

/*
 * Leaves the processor to others for a moment. first: the first time since a completion was found.
 * The CQ is locked.
 */
void poll_rest(struct rnic_cq *cq, bool first);

#endif
