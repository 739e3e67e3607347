// Package ibt is the InfiniBand transport engine (IBTA volume 1, chapter 9): requester, responder
// and completer of RC, UC and UD queue pairs, under whatever link carries the packets.
//
// A QP is a deterministic state machine without I/O. Its owner drives it from one thread:
//
//	q.HandleDoorbell(now)            the application posted work
//	q.HandlePacket(now, &packet)     a packet for this QP arrived
//	q.HandleTimeout(now)             q.PollTimeout() has come
//	q.Modify(now, attr, state)       a verb changed attributes or state
//
// Packets that have arrived come before timeouts that are due: an answer that lies in the queue is
// no loss. After any of these the owner drains, in this order,
//
//	for q.PollTransmit(now, &packet) { send packet }
//	deadline := q.PollTimeout()
//
// Completions, asynchronous events and memory accesses happen inside the calls, through the
// interfaces in Config. Each call does bounded work: what is left over keeps q.HasWork true.
package ibt
