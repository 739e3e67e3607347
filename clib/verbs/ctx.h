/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: what the application has open, and the tables that events are looked up in. */
#ifndef RNIC_CTX_H
#define RNIC_CTX_H

#include "rnic.h"

void ctx_object_add(struct rnic_context *ctx, struct ctx_object *object, enum ctx_kind kind,
		    uint32_t handle);
void ctx_object_remove(struct rnic_context *ctx, struct ctx_object *object);

/*
 * Finds an object and counts an event for it, in one step, so that a destroy that comes next
 * waits for its acknowledgement. type is NULL for a completion event. Returns NULL when the object
 * is gone.
 */
struct ctx_object *ctx_object_take_event(struct rnic_context *ctx, enum ctx_kind kind,
					 uint32_t handle, const enum ibv_event_type *type);

/* What the application has acknowledged of an object that it destroys. */
struct event_acks {
	const char *call; /* that waits for the rest */
	pthread_mutex_t *mutex; /* guards the counts */
	pthread_cond_t *cond;
	const uint32_t *async;
	const uint32_t *comp; /* NULL if the object has no completion events */
};

/* Waits until every event of the object is acknowledged; nobody finds it any more (event.c). */
void event_drain(struct rnic_context *ctx, const struct ctx_object *object,
		 const struct event_acks *acks);

/* Reads one record of an event pipe: 1, 0 at the end (the NIC is gone), or −1 with errno. */
int ctx_event_read(int fd, void *record, size_t bytes);

/*
 * Opens the device of an inherited context on a connection of its own, for what needs no object of
 * the parent's. Returns 0 or an errno; ctl_conn_close ends it.
 */
int ctx_conn_open_own(struct rnic_context *ctx, struct ctl_conn *conn);

/* Maps a memfd of the NIC and closes it. Returns NULL with errno. */
void *ctx_map_fd(int fd, size_t bytes, int prot);

/* Reads the NIC's clock, in nanoseconds, as the timestamps of completions have it. */
uint64_t ctx_clock(const struct rnic_context *ctx);

/* Operations of the context that live in other files. */
int query_port_ex(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		  size_t attr_bytes);
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t attr_bytes);
int cq_poll(struct ibv_cq *ibcq, int max, struct ibv_wc *wc);
int cq_arm(struct ibv_cq *ibcq, int solicited_only);
int cq_modify(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *qp_open(struct ibv_context *context, struct ibv_qp_open_attr *attr);
int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int srq_number(struct ibv_srq *ibsrq, uint32_t *number);
int srq_post_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);

#endif
