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

/*
 * Called by an earlier empty poll: yields where processors are few, for then the program that an
 * answer has to come from may wait for this one. A lane that has one answers before that. The CQ is
 * locked.
 */
void poll_rest_early(struct rnic_cq *cq);

#endif
