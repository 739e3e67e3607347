package iwarp

// Stats is what tools show of a QP.
type Stats struct {
	SendFetched   uint64 // send work requests taken from the queue
	SendCompleted uint64 // with success or not
	Pending       int    // fetched and not complete
	Unfetched     uint32 // known in the queue beside those
	RecvTaken     uint64 // receives taken from the queue
	RecvCompleted uint64
	ReadsPending  int // READs and atomics that wait for the peer's answer
	ReadsActive   int // of the peer, not yet answered
	CorruptRings  uint64
	IsDrained     bool // everything fetched has completed
}

// Stats returns the present numbers.
func (q *QP) Stats() Stats {
	s := q.stats
	s.Pending = q.send.wrs.Len()
	s.Unfetched = q.send.queue.Unfetched()
	s.ReadsPending = q.send.reads.Len()
	s.ReadsActive = q.recv.responses.Len()
	s.IsDrained = q.send.wrs.Len() == 0
	return s
}

// ConnStats is what tools show of a connection.
type ConnStats struct {
	BytesSent, BytesReceived uint64 // of the stream
	FPDUsSent, FPDUsReceived uint64
	Unsent                   int  // bytes framed and not taken by TCP
	FPDUMax                  int  // longest ULPDU that this end sends
	CRC                      bool // was agreed on
	MarkersSent, MarkersRead bool
	Revision                 uint8
}

// Stats returns the present numbers.
func (c *Conn) Stats() ConnStats {
	s := c.stats
	s.BytesSent, s.Unsent = c.tx.sent, c.tx.ahead()
	s.FPDUMax = c.mulpdu
	s.CRC, s.MarkersSent, s.MarkersRead = c.mpa.hasCRC, c.tx.hasMarkers, c.rx.hasMarkers
	s.Revision = c.mpa.revision
	return s
}
