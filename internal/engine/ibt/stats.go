package ibt

// Stats is what tools show of a QP.
type Stats struct {
	Pending   int    // send work requests fetched and not completed
	InFlight  int    // request packets sent and not acknowledged
	Window    int    // packets allowed in flight
	Retries   uint64 // go-backs since the QP was made
	LastNak   uint8  // AETH syndrome of the last NAK received
	IsDrained bool   // SQD: everything sent has completed
}
