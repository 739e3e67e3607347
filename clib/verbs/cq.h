/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNIC_CQ_H
#define RNIC_CQ_H

#include "rnic.h"

/* Cancels a QP's completions that nobody has polled, as a reset or destroy does. */
void cq_cancel(struct rnic_cq *cq, uint32_t qpn);

/* Installs the extended polling interface. */
void cq_poll_init(struct rnic_cq *cq, uint64_t wc_flags);

#endif
