/* SPDX-License-Identifier: Apache-2.0 */
#include "cause.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "post.h"
#include "queue.h"

/* Keeps senders and receivers of all queue pairs from writing one record at once. */
static pthread_mutex_t cause_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *cause_state(uint32_t state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	return state < sizeof(names) / sizeof(*names) ? names[state] : "unknown";
}

static uint32_t cause_qp_state(struct rnic_qp *qp)
{
	return atomic_load_explicit(queue_word(qp->map, RNIC_OFF_QP_STATE), memory_order_relaxed);
}

/* One post that was refused. */
struct refused {
	uint64_t wr_id;
	uint32_t opcode; /* IBV_WC_RECV for a receive */
	int error;
	char text[RNIC_POST_REFUSAL_TEXT];
};

static void refused_say(struct refused *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void refused_say(struct refused *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->text, sizeof(r->text), format, args);
	va_end(args);
}

static const char *refused_verb(uint32_t opcode)
{
	switch (opcode) {
	case IBV_WC_RECV:
		return "ibv_post_recv";
	case IBV_WC_TM_ADD:
		return "ibv_post_srq_ops";
	default:
		return "ibv_post_send";
	}
}

/* Writes the record into the memory of the queue, which where names. */
static void refused_leave(unsigned char *map, const struct refused *r, const char *where,
			  uint32_t number)
{
	struct rnic_post_refusal *to = (void *)(map + RNIC_OFF_QP_REFUSAL);

	/* A full queue is how programs learn that they have to poll: no news for people. */
	if (r->error != ENOMEM)
		rnic_log("%s of wr_id %" PRIu64 " on %s 0x%06x: %s",
			 refused_verb(r->opcode), r->wr_id, where, number, r->text);
	/* Whoever comes second at the same moment is not remembered; the first is. */
	if (pthread_mutex_trylock(&cause_lock))
		return;
	to->error = (uint32_t)r->error;
	to->wr_id = r->wr_id;
	to->opcode = r->opcode;
	memcpy(to->text, r->text, sizeof(to->text));
	atomic_fetch_add_explicit(queue_word(map, RNIC_OFF_QP_REFUSAL), 1,
				  memory_order_release);
	pthread_mutex_unlock(&cause_lock);
}

/* What is wrong with every send: returns false where it is this one. */
static bool refused_by_state(struct rnic_qp *qp, struct refused *r)
{
	uint32_t state = cause_qp_state(qp);

	if (r->error == ENOMEM)
		refused_say(r, "the queue is full: poll completions, then post again");
	else if (state < IBV_QPS_RTS)
		refused_say(r, "the QP is in state %s; it can send from RTS on", cause_state(state));
	else if (qp->sq.entries == 0)
		refused_say(r, "the QP has no send queue");
	else
		return false;
	return true;
}

void cause_of_send(struct rnic_qp *qp, const struct ibv_send_wr *wr, int error)
{
	struct refused r = {.error = error, .wr_id = wr ? wr->wr_id : 0};

	if (!wr || error == EIO)
		return;
	r.opcode = wr->opcode;
	if (refused_by_state(qp, &r))
		;
	else if (!post_opcode_is_allowed(qp->base.qp_type, wr->opcode))
		refused_say(&r, "a QP of type %d has no operation %d", qp->base.qp_type, wr->opcode);
	else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		refused_say(&r, "%d scatter/gather entries; the QP has room for %u", wr->num_sge,
			    qp->sq.max_sge);
	else if (wr->send_flags & IBV_SEND_INLINE)
		refused_say(&r, "more bytes inline than the QP has room for (%u), or send_flags %#x",
			    qp->max_inline, wr->send_flags);
	else if (qp->base.qp_type == IBV_QPT_UD && !wr->wr.ud.ah)
		refused_say(&r, "a datagram needs an address handle");
	else
		refused_say(&r, "send_flags %#x, or a memory window, that it cannot have",
			    wr->send_flags);
	refused_leave(qp->map, &r, "QP", qp->base.qp_num);
}

void cause_of_build(struct rnic_qp *qp, int error)
{
	struct refused r = {.error = error, .wr_id = qp->ex.wr_id};

	if (error == EIO)
		return;
	r.opcode = qp->build_wqe ? qp->build_wqe->opcode : IBV_WR_SEND;
	if (!refused_by_state(qp, &r))
		refused_say(&r, "a request between wr_start and wr_complete does not fit the QP: "
				"operation, flags, entries, inline data");
	refused_leave(qp->map, &r, "QP", qp->base.qp_num);
}

void cause_of_recv(struct rnic_qp *qp, const struct ibv_recv_wr *wr, int error)
{
	struct refused r = {.error = error, .opcode = IBV_WC_RECV};

	if (!wr || error == EIO)
		return;
	r.wr_id = wr->wr_id;
	if (error == ENOMEM)
		refused_say(&r, "the queue is full: poll completions, then post again");
	else if (qp->rq.entries == 0)
		refused_say(&r, "the QP has no receive queue of its own");
	else if (cause_qp_state(qp) == IBV_QPS_RESET)
		refused_say(&r, "the QP is in state RESET; it takes receives from INIT on");
	else
		refused_say(&r, "%d scatter/gather entries; the queue has room for %u", wr->num_sge,
			    qp->rq.max_sge);
	refused_leave(qp->map, &r, "QP", qp->base.qp_num);
}

void cause_of_srq_recv(struct rnic_srq *srq, const struct ibv_recv_wr *wr, int error)
{
	struct refused r = {.error = error, .opcode = IBV_WC_RECV};

	if (!wr || error == EIO)
		return;
	r.wr_id = wr->wr_id;
	if (error == ENOMEM)
		refused_say(&r, "the shared queue is full: the NIC has not taken its receives yet");
	else
		refused_say(&r, "%d scatter/gather entries; the queue has room for %u", wr->num_sge,
			    srq->rq.max_sge);
	refused_leave(srq->map, &r, "SRQ", srq->number);
}

void cause_of_srq_op(struct rnic_srq *srq, const struct ibv_ops_wr *wr, int error)
{
	struct refused r = {.error = error, .opcode = IBV_WC_TM_ADD};

	if (!wr || error == EIO)
		return;
	r.wr_id = wr->wr_id;
	if (error == ENOMEM)
		refused_say(&r, "%u tags are in the list, or too many operations under way",
			    srq->max_tags);
	else if (wr->opcode == IBV_WR_TAG_ADD)
		refused_say(&r, "%d scatter/gather entries, of %u; flags %#x", wr->tm.add.num_sge,
			    srq->ops.max_sge, wr->flags);
	else
		refused_say(&r, "opcode %d, flags %#x", wr->opcode, wr->flags);
	refused_leave(srq->map, &r, "SRQ", srq->number);
}

/* Copies what the NIC left about a QP. Returns false where there is nothing, or it changes. */
static bool cause_read(unsigned char *map, struct rnic_cause *cause)
{
	uint32_t words[RNIC_CAUSE_WORDS];

	for (size_t i = 0; i < RNIC_CAUSE_WORDS; i++)
		words[i] = atomic_load(queue_word(map, RNIC_OFF_QP_CAUSE + 4 * i));
	for (size_t i = 0; i < RNIC_CAUSE_NUMBER_WORDS; i++)
		if (atomic_load(queue_word(map, RNIC_OFF_QP_CAUSE + 4 * i)) != words[i])
			return false;
	static_assert(sizeof(words) == sizeof(*cause), "all words");
	memcpy(cause, words, sizeof(words));
	return cause->number != 0;
}

/* Adds what the evidence says to a line. */
static void cause_tell(const struct rnic_cause *c, char *line, size_t room)
{
	size_t used = strlen(line);

#define TELL(...) \
	do { \
		if (used < room) \
			used += (size_t)snprintf(line + used, room - used, __VA_ARGS__); \
	} while (0)
	if (c->flags & RNIC_CAUSE_HAS_PATH)
		TELL("; the peer is QP 0x%06x", c->peer_qpn);
	if (c->syndrome)
		TELL("; NAK syndrome %#04x for PSN %u", c->syndrome, c->psn);
	if (c->flags & RNIC_CAUSE_HAS_TERMINATE)
		TELL("; %s (rnic explain terminate 0x%04x)",
		     c->flags & RNIC_CAUSE_IS_TOLD ? "the peer's Terminate ended the connection"
						   : "this end terminated the connection",
		     c->terminate);
	if (c->flags & RNIC_CAUSE_HAS_ROOM)
		TELL("; %" PRIu64 " bytes into room for %" PRIu64, c->length, c->region_length);
	else if (c->key)
		TELL("; key 0x%08x, %" PRIu64 " bytes at %#" PRIx64 ", access asked %#x", c->key,
		     c->length, c->addr, c->asked);
	if (c->flags & RNIC_CAUSE_HAS_REGION)
		TELL("; the region has %" PRIu64 " bytes at %#" PRIx64 ", access %#x",
		     c->region_length, c->region_addr, c->granted);
	if (c->timeouts)
		TELL("; %u ACK timeouts (timeout %u)", c->timeouts, c->timeout);
	if (c->retries)
		TELL("; retry_cnt %u is used up", c->retry_cnt);
	if (c->rnr_tries)
		TELL("; %u times receiver not ready (rnr_retry %u)", c->rnr_tries, c->rnr_retry);
	TELL("; the QP was in %s", cause_state(c->state));
#undef TELL
}

void cause_of_completion(const struct rnic_cqe *cqe, struct queue_ring *ring)
{
	char line[512] = "";
	struct rnic_cause cause;
	struct rnic_qp *qp;

	if (cqe->status == IBV_WC_WR_FLUSH_ERR || !rnic_log_is_wanted())
		return; /* what flushed requests suffer from was said before */
	if (ring && ring->qpn == cqe->qp_num) {
		qp = ring->receives ? container(ring, struct rnic_qp, rq)
				    : container(ring, struct rnic_qp, sq);
		if (cause_read(qp->map, &cause) && cause.wr_id == cqe->wr_id &&
		    cause.status == cqe->status)
			cause_tell(&cause, line, sizeof(line));
	}
	rnic_log("wr_id %" PRIu64 " on QP 0x%06x: %s (status %u, vendor_err %#x)%s; "
		 "\"rnic explain wc status %u\" and \"rnic ps --errors\" tell more",
		 cqe->wr_id, cqe->qp_num, ibv_wc_status_str((enum ibv_wc_status)cqe->status),
		 cqe->status, cqe->vendor_err, line, cqe->status);
}

void cause_of_event(const struct ibv_async_event *event)
{
	char line[512] = "";
	struct rnic_cause cause;
	struct rnic_qp *qp;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		break;
	default:
		return;
	}
	if (!rnic_log_is_wanted())
		return;
	qp = qp_of(event->element.qp);
	if (cause_read(qp->map, &cause))
		cause_tell(&cause, line, sizeof(line));
	rnic_log("event on QP 0x%06x: %s%s; \"rnic explain event %d\" and \"rnic ps --errors\" "
		 "tell more",
		 qp->base.qp_num, ibv_event_type_str(event->event_type), line, event->event_type);
}
