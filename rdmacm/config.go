package rdmacm

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// Config are the choices of a connection, a listener, or a datagram endpoint. The zero value is
// fit for use.
type Config struct {
	// Session makes the objects; nil takes the one that Share returns for NIC.
	Session *Session
	// NIC is where a session is opened if none is given; see Share.
	NIC verbs.Connector

	// Device is the only device of the NIC that will do; empty is what RNIC_DEVICE says, and without
	// that the address decides: the first device that it can be reached from, and for a listener
	// all that have it.
	Device string

	// PD is for the queue pair; nil is that of the session, on the device that the connection uses.
	PD *verbs.PD
	// QP describes the queue pair. Its type follows from the call. Without a SendCQ the queue
	// pair gets a completion queue of its own, which ends with it.
	QP verbs.QPConfig
	// Prepare runs when the queue pair is in INIT and no packet can arrive yet: the place to post
	// receives. An error ends the attempt.
	Prepare func(qp *verbs.QP) error

	// PrivateData goes with the request of Dial (at most 56 bytes; DialUD 180), or with the
	// acceptance of a request (196; of a datagram request 136). The peer gets it filled up with
	// zeros.
	PrivateData []byte
	// ResponderResources is how many READs and atomics the peer may have in flight, and
	// InitiatorDepth how many this side may; 0 means 16, a negative number none. Both sides' wishes
	// together decide.
	ResponderResources, InitiatorDepth int
	// RetryCount bounds retries for want of an answer, RNRRetryCount those for a receiver without
	// a receive; 0 means 7, which for the latter is for ever, a negative number none.
	RetryCount, RNRRetryCount int
	// AckTimeout is the queue pair's ACK timeout, 4.096 µs × 2^AckTimeout; 0 leaves the choice to
	// the communication managers.
	AckTimeout uint8
	// TOS is the type of service, or traffic class, of the packets.
	TOS uint8

	// LocalAddress, "host:port", is where Dial connects from; empty leaves the choice to the host.
	LocalAddress string
	// ReuseAddress lets several endpoints that do not listen share an address
	// (RDMA_OPTION_ID_REUSEADDR).
	ReuseAddress bool
	// Backlog bounds the requests that a listener has not accepted; 0 is as many as the NIC
	// grants.
	Backlog int
	// SendOnly joins a multicast group without receiving from it.
	SendOnly bool
}

// defaultDepth is how many READs and atomics are in flight unless a program says otherwise.
const defaultDepth = 16

// bounded makes the number that is meant of one in a Config.
func bounded(v, fallback, most int) uint8 {
	switch {
	case v == 0:
		v = fallback
	case v < 0:
		v = 0
	}
	return uint8(min(v, most))
}

// hold returns the core that the configuration names, with a reference for the caller.
func (c *Config) hold(ctx context.Context) (*core, error) {
	if c.Session == nil {
		s, err := Share(ctx, c.NIC)
		if err != nil {
			return nil, err
		}
		return s.core, nil // the reference of s is the caller's
	}
	if c.Session.closed.Load() || !c.Session.core.retain() {
		return nil, verbs.ErrClosed
	}
	return c.Session.core, nil
}

// param is what a request or an answer carries.
func (c *Config) param() (abi.CMParam, error) {
	const depthMax, retryMax = 255, 7
	p := abi.CMParam{
		ResponderResources: bounded(c.ResponderResources, defaultDepth, depthMax),
		InitiatorDepth:     bounded(c.InitiatorDepth, defaultDepth, depthMax),
		RetryCount:         bounded(c.RetryCount, retryMax, retryMax),
		RNRRetryCount:      bounded(c.RNRRetryCount, retryMax, retryMax),
	}
	return p, setPrivate(&p, c.PrivateData)
}

// local is the source address, if any, that goes with a destination.
func (c *Config) local(ctx context.Context, dst netip.AddrPort) (netip.AddrPort, error) {
	if c.LocalAddress == "" {
		return netip.AddrPort{}, nil
	}
	f := family6
	if dst.Addr().Is4() {
		f = family4
	}
	found, err := f.lookup(ctx, c.LocalAddress)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return found[0], nil
}

// insistsOn is the device that an endpoint has to use, or "".
func (c *Config) insistsOn() string { return cmp.Or(c.Device, os.Getenv(deviceEnv)) }

// queuePair is a queue pair with what was made for it.
type queuePair struct {
	core *core
	pd   *verbs.PD
	qp   *verbs.QP
	cq   *verbs.CQ // nil if the program brought its own
}

// newQueuePair makes one in RESET, on the device that the identifier is bound to.
func (i *identifier) newQueuePair(ctx context.Context, cfg *Config, t verbs.QPType) (
	queuePair, error,
) {
	q := queuePair{core: i.core, pd: cfg.PD}
	if q.pd == nil {
		pd, err := i.core.pdOn(ctx, i.device)
		if err != nil {
			return q, err
		}
		q.pd = pd
	} else if own := q.pd.Context().Device().Name; i.device != "" && own != i.device {
		return q, rdma.Refuse(syscall.EINVAL, fmt.Sprintf("the protection domain is one of %s, and"+
			" the connection uses %s", own, i.device))
	}
	qc := cfg.QP
	qc.Type = t
	if qc.SendCQ == nil {
		cq, err := q.pd.Context().CreateCQ(verbs.CQConfig{Entries: entriesFor(&qc)})
		if err != nil {
			return q, err
		}
		q.cq, qc.SendCQ = cq, cq
	}
	qp, err := q.pd.CreateQP(qc)
	if err != nil {
		q.close()
		return q, err
	}
	q.qp = qp
	return q, nil
}

// entriesFor is how many completions a queue pair can have at a time.
func entriesFor(qc *verbs.QPConfig) int {
	const granted = 128 // what verbs makes of 0
	n := 0
	for _, wr := range []int{qc.MaxSendWR, qc.MaxRecvWR} {
		if wr == 0 {
			wr = granted
		}
		n += 2 * wr // the NIC rounds sizes up
	}
	return n
}

func (q *queuePair) close() {
	if q.qp != nil {
		_ = q.qp.Close()
	}
	if q.cq != nil {
		_ = q.cq.Close()
	}
}

// move takes the queue pair to a state with the attributes of a connection, within the limits of
// what this side has offered.
func (q *queuePair) move(i *identifier, to verbs.QPState, limit *abi.CMParam) error {
	attr, mask, err := i.attributes(to)
	if err != nil {
		return err
	}
	attr.MaxRdAtomic = min(attr.MaxRdAtomic, limit.InitiatorDepth)
	attr.MaxDestRdAtomic = min(attr.MaxDestRdAtomic, limit.ResponderResources)
	if mask&verbs.QPAttrAccessFlags != 0 {
		// The NIC knows no rights before there is a request, and so none on the active side.
		attr.Access = verbs.AccessRemoteWrite
		if limit.ResponderResources > 0 {
			attr.Access |= verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
		}
	}
	return q.qp.Modify(attr, mask)
}

// prepare takes the queue pair to INIT and lets the program post receives.
func (q *queuePair) prepare(i *identifier, cfg *Config, limit *abi.CMParam) error {
	if err := q.move(i, verbs.QPStateInit, limit); err != nil {
		return err
	}
	if cfg.Prepare == nil {
		return nil
	}
	return cfg.Prepare(q.qp)
}

// checkBacklog refuses what cannot be meant.
func checkBacklog(n int) error {
	if n < 0 {
		return rdma.Refuse(syscall.EINVAL, "the backlog is negative")
	}
	return nil
}
