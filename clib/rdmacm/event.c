/* SPDX-License-Identifier: Apache-2.0 */
/* Events: taken from a channel, completed with what the library does about them, acknowledged. */
#include <time.h>

#include "attr.h"
#include "cm.h"

static pthread_cond_t event_acked = PTHREAD_COND_INITIALIZER; /* with cm_lock */

/* A condition that threads of the parent wait for must not be used in the child. */
void event_fork_child(void)
{
	pthread_cond_init(&event_acked, NULL);
}

CM_API const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
		[RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
		[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
		[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
		[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
		[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
		[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
		[RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
		[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
		[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	if ((unsigned int)event >= sizeof(names) / sizeof(names[0]))
		return "UNKNOWN EVENT";
	return names[event];
}

/* Lists the event with the id whose destruction is to wait for it; cm_lock is held. */
static void event_hold(struct cm_event *event, struct cm_id *holder)
{
	event->holder = holder;
	event->link = &holder->unacked;
	event->next = holder->unacked;
	if (event->next)
		event->next->link = &event->next;
	holder->unacked = event;
}

static void event_release(struct cm_event *event)
{
	pthread_mutex_lock(&cm_lock);
	*event->link = event->next;
	if (event->next)
		event->next->link = event->link;
	pthread_cond_broadcast(&event_acked);
	pthread_mutex_unlock(&cm_lock);
}

CM_API int rdma_ack_cm_event(struct rdma_cm_event *base)
{
	struct cm_event *event = (struct cm_event *)base;

	if (!event)
		return cm_result(EINVAL);
	event_release(event);
	free(event);
	return 0;
}

void event_ack(struct cm_id *id)
{
	if (id->base.event)
		rdma_ack_cm_event(id->base.event);
	id->base.event = NULL;
}

/* cm_lock is held, and let go meanwhile: it is for moments, not for talks with the NIC. */
static void event_say_wait(struct cm_id *id, const char *who, const char *event)
{
	uint32_t count = 0;

	for (const struct cm_event *e = id->unacked; e; e = e->next)
		count++;
	pthread_mutex_unlock(&cm_lock);
	ctl_conn_say_wait(&id->session->ctl, who, "rdma_ack_cm_event", event, count);
	pthread_mutex_lock(&cm_lock);
}

void event_drain(struct cm_id *id, const char *who)
{
	const char *event = NULL;
	struct timespec soon;

	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec++;
	pthread_mutex_lock(&cm_lock);
	while (id->unacked) {
		if (event) {
			pthread_cond_wait(&event_acked, &cm_lock);
		} else if (pthread_cond_timedwait(&event_acked, &cm_lock, &soon) == ETIMEDOUT &&
			   id->unacked) {
			event = rdma_event_str(id->unacked->base.event);
			event_say_wait(id, who, event);
		}
	}
	pthread_mutex_unlock(&cm_lock);
}

/*
 * Finds whom the record in event concerns, while the channel is locked: the next record, read by
 * another thread, may be about an id that this one brings. Returns false if there is nobody.
 */
static bool event_claim(struct cm_channel *channel, const struct rnic_cm_event *record,
			struct cm_event *event)
{
	const bool request = record->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct cm_id *child = NULL, *id;

	if (request && id_create(channel, record->id, &child)) {
		id_forget(channel->session, record->id);
		return false;
	}
	pthread_mutex_lock(&cm_lock);
	id = id_find(channel->session, request ? record->listen_id : record->id);
	if (id) {
		event_hold(event, id);
		event->base.id = &(request ? child : id)->base;
		event->base.listen_id = request ? &id->base : NULL;
	}
	if (id && request) {
		child->base.context = id->base.context;
		child->base.ps = id->base.ps;
		child->base.qp_type = id->base.qp_type;
	}
	pthread_mutex_unlock(&cm_lock);
	if (id && request) {
		id_insert(child);
	} else if (request) {
		id_forget(channel->session, record->id);
		id_free(child);
	}
	return id != NULL;
}

/* The NIC is gone: each id on the channel is told so, once. Then there are no more events. */
static int event_claim_removal(struct cm_channel *channel, struct cm_event *event)
{
	struct cm_session *session = channel->session;
	struct cm_id *id = NULL;

	ctl_conn_is_dead(&session->ctl);
	pthread_mutex_lock(&cm_lock);
	for (size_t i = 0; i < CM_BUCKETS && !id; i++) {
		for (id = session->ids[i]; id; id = id->next) {
			if (id->base.channel == &channel->base && !id->removal_told)
				break;
		}
	}
	if (id) {
		id->removal_told = true;
		event_hold(event, id);
		event->base.id = &id->base;
		event->base.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
	}
	pthread_mutex_unlock(&cm_lock);
	return id ? 0 : EIO;
}

static void event_fill(struct cm_event *event, const struct rnic_cm_event *record)
{
	const struct rnic_cm_param *param = &record->param;
	struct rdma_cm_event *base = &event->base;
	const void *data = NULL;

	base->event = (enum rdma_cm_event_type)record->event;
	base->status = record->status;
	if (param->private_data_len) {
		memcpy(event->private_data, param->private_data, sizeof(event->private_data));
		data = event->private_data;
	}
	if (base->id->qp_type == IBV_QPT_UD) {
		base->param.ud.private_data = data;
		base->param.ud.private_data_len = param->private_data_len;
		base->param.ud.qp_num = param->qpn;
		base->param.ud.qkey = param->qkey;
		attr_ah_from_abi(&base->param.ud.ah_attr, &param->ah);
		return;
	}
	base->param.conn = (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = param->private_data_len,
		.responder_resources = param->responder_resources,
		.initiator_depth = param->initiator_depth,
		.flow_control = param->flow_control,
		.retry_count = param->retry_count,
		.rnr_retry_count = param->rnr_retry_count,
		.srq = param->srq,
		.qp_num = param->qpn,
	};
}

/* What the other side has said of the options of its QP. */
static void event_ece(struct cm_id *id, const struct rnic_cm_param *param)
{
	id->remote_ece.vendor_id = param->ece_vendor;
	id->remote_ece.options = param->ece_options;
}

/* Completes the id of a request. If that fails the request is turned down. */
static int event_request(struct cm_event *event, const struct rnic_cm_event *record)
{
	struct cm_id *id = id_of(event->base.id), *listener = id_of(event->base.listen_id);
	int error;

	event_ece(id, &record->param);
	id->responder_resources = record->param.responder_resources;
	id->initiator_depth = record->param.initiator_depth;
	error = id_query(id);
	if (!error && listener->is_sync)
		error = id_make_sync(id);
	return error;
}

/* The active side's QP is ready before the other side may send. */
static int event_response(struct cm_id *id)
{
	struct rnic_cm_conn_req reject = {.id = id->handle};
	int error = qp_to_rtr(id, RDMA_MAX_RESP_RES);

	if (!error)
		error = qp_to_rts(id, RDMA_MAX_INIT_DEPTH);
	if (!error)
		error = id_ask(id, RNIC_OP_ESTABLISH);
	if (error) {
		qp_to_error(id);
		ctl_conn_ask(&id->session->ctl, RNIC_OP_REJECT, &reject, sizeof(reject));
	}
	return error;
}

static void event_replace(struct cm_event *event, enum rdma_cm_event_type type, int error)
{
	event->base.event = type;
	event->base.status = -error;
}

/* Does what the library does about an event. Returns false if it is of no more concern. */
static bool event_process(struct cm_event *event, const struct rnic_cm_event *record)
{
	struct cm_id *id = id_of(event->base.id);
	int error = 0;

	event_fill(event, record);
	switch (event->base.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		error = id_query(id);
		if (error)
			event_replace(event, RDMA_CM_EVENT_ADDR_ERROR, error);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		error = id_query(id);
		if (error)
			event_replace(event, RDMA_CM_EVENT_ROUTE_ERROR, error);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		error = event_request(event, record);
		if (error) {
			rnic_log("turn a request down: %s", strerror(error));
			event_release(event);
			rdma_destroy_id(&id->base);
			return false;
		}
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		event_ece(id, &record->param);
		if (!id->base.qp)
			break;
		error = event_response(id);
		id->is_connected = !error;
		event_replace(event, error ? RDMA_CM_EVENT_CONNECT_ERROR :
					     RDMA_CM_EVENT_ESTABLISHED, error);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		/* A datagram service that was found is nothing that ends. */
		id->is_connected = id->base.qp_type != IBV_QPT_UD;
		break;
	case RDMA_CM_EVENT_REJECTED:
		qp_to_error(id);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		id->is_connected = false;
		break;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		mcast_event(id, record, event);
		break;
	default:
		break;
	}
	return true;
}

/* Takes the next record and finds whom it concerns; EAGAIN if there is none now. */
static int event_take(struct cm_channel *channel, struct rnic_cm_event *record,
		      struct cm_event *event)
{
	int error;

	pthread_mutex_lock(&channel->lock);
	do {
		error = channel_read(channel, record);
	} while (!error && !event_claim(channel, record, event));
	pthread_mutex_unlock(&channel->lock);
	return error;
}

static int event_get(struct cm_channel *channel, struct cm_event *event)
{
	struct rnic_cm_event record;

	for (;;) {
		int error = event_take(channel, &record, event);

		if (error == EAGAIN)
			error = channel_wait(channel);
		else if (error == EIO)
			return event_claim_removal(channel, event);
		else if (!error && event_process(event, &record))
			return 0;
		if (error)
			return error;
	}
}

/* Says on standard error, when that is asked for, what a failure means. */
static void event_tell(const struct rdma_cm_event *event)
{
	const char *family = event->status < 0 ? "errno" : "sidr";

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		if (event->status >= 0)
			family = "reject";
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		break;
	default:
		return;
	}
	rnic_log("%s, status %d%s%s; \"rnic explain %s %d\" and \"rnic ps --errors\" tell more",
		 rdma_event_str(event->event), event->status, event->status < 0 ? ": " : "",
		 event->status < 0 ? strerror(-event->status) : "", family,
		 event->status < 0 ? -event->status : event->status);
}

CM_API int rdma_get_cm_event(struct rdma_event_channel *base, struct rdma_cm_event **out)
{
	struct cm_event *event;
	int error, state;

	if (!base || !out)
		return cm_result(EINVAL);
	event = calloc(1, sizeof(*event));
	if (!event)
		return cm_result(ENOMEM);
	/* A thread may be cancelled while it waits, and only then. */
	state = cm_no_cancel();
	channel_enter(channel_of(base));
	pthread_cleanup_push(free, event);
	pthread_cleanup_push(channel_leave, channel_of(base));
	error = event_get(channel_of(base), event);
	pthread_cleanup_pop(true);
	pthread_cleanup_pop(error != 0);
	pthread_setcancelstate(state, NULL);
	if (!error) {
		event_tell(&event->base);
		*out = &event->base;
	}
	return cm_result(error);
}

/* The errno that a synchronous call fails with upon an event; 0 for events of no concern. */
static int event_failure(const struct rdma_cm_event *event)
{
	int given = event->status < 0 ? -event->status : 0;

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return ECONNREFUSED;
	case RDMA_CM_EVENT_DISCONNECTED:
		return ECONNRESET;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return ENODEV;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return given ? given : EHOSTUNREACH;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return given ? given : ECONNABORTED;
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		return given ? given : ENETUNREACH;
	default:
		return given;
	}
}

/* A program that looks after its QP itself has to establish the connection itself too. */
static bool event_is_wanted(const struct cm_id *id, enum rdma_cm_event_type wanted)
{
	const struct rdma_cm_event *event = id->base.event;

	if (event->status)
		return false;
	return event->event == wanted || (wanted == RDMA_CM_EVENT_ESTABLISHED &&
					  event->event == RDMA_CM_EVENT_CONNECT_RESPONSE);
}

int event_complete(struct cm_id *id, enum rdma_cm_event_type wanted)
{
	if (!id->is_sync)
		return 0;
	for (;;) {
		int error;

		event_ack(id);
		if (rdma_get_cm_event(id->base.channel, &id->base.event))
			return errno;
		if (event_is_wanted(id, wanted))
			return 0;
		error = event_failure(id->base.event);
		if (error)
			return error;
	}
}
