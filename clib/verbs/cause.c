/* SPDX-License-Identifier: Apache-2.0 */
#include "cause.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "mr.h"
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

void cause_of_bind(const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info,
		   char *text)
{
	const unsigned int unknown = info->mw_access_flags & ~POST_WINDOW_ACCESS;

#define SAY(...) snprintf(text, RNIC_POST_REFUSAL_TEXT, __VA_ARGS__)
	if (!mw)
		SAY("a bind needs a memory window");
	else if ((mw->rkey ^ rkey) >> 8)
		SAY("rkey 0x%08x is not of window 0x%08x: all but the last byte stays", rkey,
		    mw->rkey);
	else if (unknown)
		SAY("mw_access_flags has %#x, which no window can have", unknown);
	else if (!info->mr && (info->addr || info->length))
		SAY("the range of a window needs a region");
	else if (info->mr && mr_of(info->mr)->kind != MR_MEMORY)
		SAY("no window can be bound to such a region: null, device, or imported");
	else if (info->mr && info->mr->pd != mw->pd)
		SAY("the region is of protection domain %u, the window of %u", info->mr->pd->handle,
		    mw->pd->handle);
	else
		SAY("the window is of type %d: ibv_bind_mw binds type 1, work requests type 2",
		    mw->type);
#undef SAY
}

/* What is wrong with a send's operation and flags: returns false where it is not they. */
static bool refused_by_operation(struct rnic_qp *qp, const struct ibv_send_wr *wr,
				 struct refused *r)
{
	const unsigned int known =
		IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

	if (!post_opcode_is_allowed(qp->base.qp_type, wr->opcode))
		refused_say(r, "a QP of type %d has no operation %d", qp->base.qp_type, wr->opcode);
	else if ((unsigned int)wr->opcode == POST_WR_FLUSH)
		refused_say(r, "a list has no place for what a FLUSH says: ibv_wr_flush does");
	else if (wr->send_flags & ~known)
		refused_say(r, "send_flags has %#x, which is not known here",
			    wr->send_flags & ~known);
	else if ((wr->send_flags & IBV_SEND_INLINE) && !post_opcode_sends_data(wr->opcode))
		refused_say(r, "operation %d sends no data, so none can be inline", wr->opcode);
	else if (r->error == EPERM && wr->bind_mw.mw &&
		 wr->bind_mw.mw->type == IBV_MW_TYPE_1 && wr->bind_mw.mw->pd != qp->base.pd)
		refused_say(r, "the window is of protection domain %u, the QP of %u",
			    wr->bind_mw.mw->pd->handle, qp->base.pd->handle);
	else if (wr->opcode == IBV_WR_BIND_MW)
		cause_of_bind(wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info, r->text);
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
	if (refused_by_state(qp, &r) || refused_by_operation(qp, wr, &r))
		;
	else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		refused_say(&r, "%d scatter/gather entries; the QP has room for %u", wr->num_sge,
			    qp->sq.max_sge);
	else if (wr->send_flags & IBV_SEND_INLINE)
		refused_say(&r, "more bytes inline than the QP has room for (%u)", qp->max_inline);
	else
		refused_say(&r, "a datagram needs an address handle");
	refused_leave(qp->map, &r, "QP", qp->base.qp_num);
}

void cause_of_build(struct rnic_qp *qp, int error)
{
	const struct build_refusal *why = &qp->build_refusal;
	struct refused r = {.error = error, .wr_id = why->wr_id, .opcode = why->opcode};

	if (error == EIO || !why->is_set)
		return; /* in a QP that cannot send nothing was to be sent */
	if (why->text[0])
		refused_say(&r, "%s", why->text);
	else if (!refused_by_state(qp, &r))
		refused_say(&r, "this QP has no operation %u", why->opcode);
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
	/* An atomic's list has one length only. */
	const bool is_exact = !(c->flags & RNIC_CAUSE_OF_PEER) &&
			      (c->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			       c->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
			       c->opcode == POST_WR_ATOMIC_WRITE || c->opcode == POST_WR_FLUSH);

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
	if ((c->flags & RNIC_CAUSE_HAS_ROOM) && is_exact)
		TELL("; %" PRIu64 " bytes in its list, which needs %" PRIu64, c->length,
		     c->region_length);
	else if (c->flags & RNIC_CAUSE_HAS_ROOM)
		TELL("; %" PRIu64 " bytes into room for %" PRIu64, c->length, c->region_length);
	else if ((c->vendor & 0xff) == RNIC_VENDOR_ADDRESS_HANDLE)
		TELL("; address handle %u", c->key);
	else if (c->key)
		TELL("; key 0x%08x, %" PRIu64 " bytes at %#" PRIx64 ", access asked %#x", c->key,
		     c->length, c->addr, c->asked);
	if (c->flags & RNIC_CAUSE_HAS_REGION)
		TELL("; the %s has %" PRIu64 " bytes at %#" PRIx64 ", access %#x",
		     c->window ? "memory window" : "region", c->region_length, c->region_addr,
		     c->granted);
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
