/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events. */
#include <time.h>

#include "cause.h"
#include "ctl.h"
#include "ctx.h"

/*
 * Fills in the element of an event. Returns false for an event of an object that is gone: then
 * the next record is to be read.
 */
static bool event_fill(struct rnic_context *ctx, const struct rnic_async_event *record,
		       struct ibv_async_event *event)
{
	struct ctx_object *object = NULL;
	enum ctx_kind kind;

	event->event_type = (enum ibv_event_type)record->type;
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		kind = CTX_CQ;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		kind = CTX_QP;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		kind = CTX_SRQ;
		break;
	default:
		event->element.port_num = (int)record->handle;
		return true;
	}
	object = ctx_object_take_event(ctx, kind, record->handle, &event->event_type);
	if (!object)
		return false;
	if (kind == CTX_CQ)
		event->element.cq = (struct ibv_cq *)&container(object, struct rnic_cq, object)->ex;
	else if (kind == CTX_QP)
		event->element.qp = &container(object, struct rnic_qp, object)->base;
	else
		event->element.srq = &container(object, struct rnic_srq, object)->base;
	return true;
}

VERBS_API int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct rnic_context *ctx = ctx_of(context);
	struct rnic_async_event record;
	int got;

	memset(event, 0, sizeof(*event));
	do {
		got = ctx_event_read(context->async_fd, &record, sizeof(record));
	} while (got > 0 && !event_fill(ctx, &record, event));
	if (got > 0) {
		cause_of_event(event);
		return 0;
	}
	if (got < 0)
		return -1;
	/* The end of the pipe is the end of the device, and the last thing there is to tell. */
	ctl_conn_is_dead(&ctx->ctl);
	if (!atomic_exchange(&ctx->fatal_told, true)) {
		event->event_type = IBV_EVENT_DEVICE_FATAL;
		return 0;
	}
	errno = EIO;
	return -1;
}

static void event_ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	(*completed)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

VERBS_API void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		event_ack(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		event_ack(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		event_ack(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	default:
		break;
	}
}

/* An event that is not acknowledged yet, or NULL. acks->mutex is held. */
static const char *event_missing(const struct ctx_object *object, const struct event_acks *acks,
				 const char **ack, uint32_t *count)
{
	if (acks->comp && *acks->comp != object->comp_taken) {
		*ack = "ibv_ack_cq_events";
		*count = object->comp_taken - *acks->comp;
		return "a completion event";
	}
	*ack = "ibv_ack_async_event";
	*count = object->async_taken - *acks->async;
	return *count ? ibv_event_type_str(object->async_last) : NULL;
}

void event_drain(struct rnic_context *ctx, const struct ctx_object *object,
		 const struct event_acks *acks)
{
	const char *ack, *event;
	struct timespec soon;
	uint32_t count;
	bool told = false;

	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec++;
	pthread_mutex_lock(acks->mutex);
	while ((event = event_missing(object, acks, &ack, &count))) {
		if (told) {
			pthread_cond_wait(acks->cond, acks->mutex);
		} else if (pthread_cond_timedwait(acks->cond, acks->mutex, &soon) == ETIMEDOUT &&
			   (event = event_missing(object, acks, &ack, &count))) {
			told = true;
			/* The program needs the lock to acknowledge. */
			pthread_mutex_unlock(acks->mutex);
			ctl_conn_say_wait(&ctx->ctl, acks->call, ack, event, count);
			pthread_mutex_lock(acks->mutex);
		}
	}
	pthread_mutex_unlock(acks->mutex);
}
