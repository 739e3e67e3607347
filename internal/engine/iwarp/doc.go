// Package iwarp is the iWARP transport engine: RDMAP (RFC 5040, RFC 7306) over DDP (RFC 5041) over
// MPA (RFC 5044, RFC 6581), on top of any in-order byte stream.
//
// A QP is what verbs see: queues, states, completions. A Conn is one stream from the moment that
// it is established; it sets MPA up, and gives a QP its peer. Both are deterministic state machines
// without I/O. Their owner drives them from one thread:
//
//	q.HandleDoorbell(now)            the application posted work
//	q.Modify(now, attr, mask, state) a verb changed attributes or state
//	c.HandleStream(now, bytes)       the next bytes of the peer, in order
//	c.HandleSent(now, n)             the socket took n bytes of what Fill returned
//	c.HandleEnd(now, errno)          the peer's direction ended
//	c.HandleTimeout(now)             c.PollTimeout() has come
//
// Where a message that is coming in belongs in mapped memory, c.ReceiveSpace says so, and the owner
// may receive there and call c.HandleReceived instead. While c.IsWaiting it does not read at all:
// the next message needs a receive that the application has not posted yet.
//
// After any of these the owner drains, in this order,
//
//	for c.PollEvent(&event) { … }
//	for c.HasWork() && the socket has room {
//		if !c.Fill(now, &vector) { break }
//		n := send(vector.Buffers)
//		c.HandleSent(now, n)
//	}
//	deadline := c.PollTimeout()
//
// Completions, asynchronous events and memory accesses happen inside the calls, through the
// interfaces in Config. Each call does bounded work: what is left over keeps Conn.HasWork, or for
// flushes QP.HasWork, true.
//
// TCP makes nothing of what InfiniBand's transport is made of necessary: no acknowledges, no
// retries, no receiver-not-ready. A SEND or WRITE is complete once TCP has its bytes; a READ or
// atomic once its answer is placed. A message that the peer cannot take ends the connection with a
// Terminate.
package iwarp
