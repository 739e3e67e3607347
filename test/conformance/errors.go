package conformance

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// failure is a work request that must fail, and how.
type failure struct {
	name string
	// region describes the peer's memory; the zero value grants everything.
	region RegionConfig
	// local describes the requester's memory.
	local  RegionConfig
	adjust func(a, b *EndConfig)
	// spoil makes the good request bad.
	spoil func(wr *verbs.SendWR, s *stage)
	recv  func(s *stage) []verbs.RecvWR
	// arrange runs before the request is posted.
	arrange func(t *testing.T, s *stage)

	opcode verbs.WROpcode
	want   verbs.WCStatus
	// wantPeer is the status of the peer's receive; none is expected if it is 0.
	wantPeer verbs.WCStatus
	// peerFails says that the peer's queue pair goes to ERR.
	peerFails bool
}

// stage is what a failure plays on.
type stage struct {
	a, b   End
	ra, rb Region
}

func keepTrying(n uint8) func(a, b *EndConfig) {
	return func(a, _ *EndConfig) {
		a.Adjust = func(c *verbs.ConnectConfig) { c.RNRRetry, c.RetryCnt, c.Timeout = n, n, 9 }
	}
}

// awaitReceives gives up after the peer has said n times and once more that it has no receive. It
// leaves the peer all time to say so.
func awaitReceives(n uint8) func(a, b *EndConfig) {
	return func(a, _ *EndConfig) {
		a.Adjust = func(c *verbs.ConnectConfig) { c.RNRRetry = n }
	}
}

//tidy:table
var failures = []failure{
	{
		name: "write with an unknown rkey", opcode: verbs.WRWrite,
		spoil: func(wr *verbs.SendWR, _ *stage) { wr.RKey ^= 0x00ff0000 },
		want:  verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "write with a stale variant of the rkey", opcode: verbs.WRWrite,
		spoil: func(wr *verbs.SendWR, _ *stage) { wr.RKey ^= 1 },
		want:  verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "write one byte too far", opcode: verbs.WRWrite,
		spoil: func(wr *verbs.SendWR, s *stage) { wr.RemoteAddr = s.rb.Addr() + 4096 - 63 },
		want:  verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "write before the region", opcode: verbs.WRWrite,
		spoil: func(wr *verbs.SendWR, s *stage) { wr.RemoteAddr = s.rb.Addr() - 1 },
		want:  verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "write around the end of the address space", opcode: verbs.WRWrite,
		spoil: func(wr *verbs.SendWR, _ *stage) { wr.RemoteAddr = ^uint64(0) - 10 },
		want:  verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "write to a read-only region", opcode: verbs.WRWrite,
		region: RegionConfig{Access: verbs.AccessRemoteRead},
		want:   verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "read from a write-only region", opcode: verbs.WRRead,
		region: RegionConfig{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite},
		want:   verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "atomic on a region without the right", opcode: verbs.WRFetchAdd,
		region: RegionConfig{Access: verbs.AccessAll &^ verbs.AccessRemoteAtomic},
		want:   verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "misaligned atomic", opcode: verbs.WRFetchAdd,
		spoil: func(wr *verbs.SendWR, _ *stage) { wr.RemoteAddr += 4 },
		want:  verbs.WCRemInvReqErr, peerFails: true,
	},
	{
		name: "rkey of another protection domain", opcode: verbs.WRWrite,
		region: RegionConfig{Access: verbs.AccessAll, OtherPD: true},
		want:   verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "invalidate a plain region's key", opcode: verbs.WRSendWithInv,
		spoil: func(wr *verbs.SendWR, s *stage) { wr.InvalidateKey = s.rb.RKey() },
		recv:  oneReceive(0, 64),
		want:  verbs.WCRemAccessErr, wantPeer: verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "unknown lkey", opcode: verbs.WRWrite,
		spoil: func(wr *verbs.SendWR, _ *stage) { wr.SGE[0].LKey ^= 0x00ff0000 },
		want:  verbs.WCLocProtErr,
	},
	{
		name: "gather beyond the region", opcode: verbs.WRWrite,
		spoil: func(wr *verbs.SendWR, s *stage) { wr.SGE[0].Addr = s.ra.Addr() + 4096 - 63 },
		want:  verbs.WCLocProtErr,
	},
	{
		name: "lkey of another protection domain", opcode: verbs.WRWrite,
		local: RegionConfig{Access: verbs.AccessAll, OtherPD: true},
		want:  verbs.WCLocProtErr,
	},
	{
		name: "read into memory without local write", opcode: verbs.WRRead,
		local: RegionConfig{Access: verbs.AccessRemoteRead},
		want:  verbs.WCLocProtErr,
	},
	{
		name: "message longer than the receive", opcode: verbs.WRSend, recv: oneReceive(0, 63),
		want: verbs.WCRemInvReqErr, wantPeer: verbs.WCLocLenErr, peerFails: true,
	},
	{
		name: "receive with a bad lkey", opcode: verbs.WRSend,
		recv: func(s *stage) []verbs.RecvWR {
			list := oneReceive(0, 64)(s)
			list[0].SGE[0].LKey ^= 0x00ff0000
			return list
		},
		want: verbs.WCRemOpErr, wantPeer: verbs.WCLocProtErr, peerFails: true,
	},
	{
		name: "receive into memory without local write", opcode: verbs.WRSend,
		region: RegionConfig{Access: verbs.AccessRemoteRead}, recv: oneReceive(0, 64),
		want: verbs.WCRemOpErr, wantPeer: verbs.WCLocProtErr, peerFails: true,
	},
	{
		name: "T14 no receive and no retry", opcode: verbs.WRSend, adjust: awaitReceives(0),
		want: verbs.WCRNRRetryExcErr,
	},
	{
		name: "T14 no receive and two retries", opcode: verbs.WRWriteWithImm,
		adjust: awaitReceives(2),
		want:   verbs.WCRNRRetryExcErr,
	},
	{
		name: "peer in error", opcode: verbs.WRWrite, adjust: keepTrying(2),
		arrange: func(t *testing.T, s *stage) { s.b.Fail(t) },
		want:    verbs.WCRetryExcErr, peerFails: true,
	},
	{
		name: "region deregistered", opcode: verbs.WRRead,
		arrange: func(t *testing.T, s *stage) { s.rb.Close(t) },
		want:    verbs.WCRemAccessErr, peerFails: true,
	},
	{
		name: "QP without the right to write", opcode: verbs.WRWrite, adjust: peerGrants(0),
		want: verbs.WCRemInvReqErr, peerFails: true,
	},
	{
		name: "QP without the right to read", opcode: verbs.WRRead,
		adjust: peerGrants(verbs.AccessRemoteWrite),
		want:   verbs.WCRemInvReqErr, peerFails: true,
	},
}

func oneReceive(off, n int) func(s *stage) []verbs.RecvWR {
	return func(s *stage) []verbs.RecvWR {
		return []verbs.RecvWR{{ID: 500, SGE: []verbs.SGE{s.rb.Piece(off, n)}}}
	}
}

func peerGrants(rights verbs.Access) func(a, b *EndConfig) {
	return func(_, b *EndConfig) {
		b.Adjust = func(c *verbs.ConnectConfig) { c.Access = rights }
	}
}

func runErrors(t *testing.T, f Fabric) {
	for i := range failures {
		c := &failures[i]
		t.Run(c.name, func(t *testing.T) {
			if c.opcode == verbs.WRFetchAdd {
				require(t, f, FeatureAtomics)
			}
			c.run(t, f)
		})
	}
}

func (c *failure) run(t *testing.T, f Fabric) {
	link := Link{Type: verbs.QPTypeRC}
	if c.adjust != nil {
		c.adjust(&link.A, &link.B)
	}
	s := new(stage)
	s.a, s.b = f.Connect(t, link)
	s.ra, s.rb = s.a.Region(t, sized(c.local)), s.b.Region(t, sized(c.region))
	s.rb.Store(pattern(4096, 0x77))
	if c.recv != nil {
		if _, err := s.b.Recv(c.recv(s)...); err != nil {
			t.Fatal(err)
		}
	}
	wr := verbs.SendWR{
		ID: 1, Opcode: c.opcode, SGE: []verbs.SGE{s.ra.Piece(0, 64)},
		RemoteAddr: s.rb.Addr(), RKey: s.rb.RKey(), Flags: verbs.SendSignaled,
	}
	if c.opcode == verbs.WRFetchAdd {
		wr.SGE[0].Length = 8
	}
	if c.spoil != nil {
		c.spoil(&wr, s)
	}
	if c.arrange != nil {
		c.arrange(t, s)
	}
	after := wr
	after.ID, after.Opcode, after.SGE = 2, verbs.WRWrite, nil
	if _, err := s.a.Send(wr, after); err != nil {
		t.Fatal(err)
	}
	if isAcked(f) {
		c.check(t, s)
	} else {
		c.checkUnacknowledged(t, s)
	}
}

func sized(c RegionConfig) RegionConfig {
	c.Size = 4096
	if c.Access == 0 {
		c.Access = verbs.AccessAll
	}
	return c
}

// check looks at what both ends report, and that no byte of the peer changed.
func (c *failure) check(t *testing.T, s *stage) {
	t.Helper()
	wc := next(t, s.a)
	if wc.Status != c.want || wc.ID != 1 || wc.QPN != s.a.QPN() {
		t.Fatalf("completion %+v (%v), want %v", wc, wc.Err(), c.want)
	}
	if wc := next(t, s.a); wc.Status != verbs.WCWRFlushErr || wc.ID != 2 {
		t.Fatalf("the request behind it: %+v", wc)
	}
	if state := s.a.State(); state != verbs.QPStateError {
		t.Errorf("requester in %v", state)
	}
	if c.wantPeer != 0 {
		if wc := next(t, s.b); wc.Status != c.wantPeer || wc.ID != 500 {
			t.Errorf("the peer's receive: %+v (%v), want %v", wc, wc.Err(), c.wantPeer)
		}
	}
	if c.peerFails {
		eventually(t, "the peer is in ERR", func() bool { return s.b.State() == verbs.QPStateError })
	} else if state := s.b.State(); state != verbs.QPStateRTS {
		t.Errorf("peer in %v", state)
	}
	quiet(t, s.a)
	quiet(t, s.b)
	if !c.partial() {
		compare(t, "the peer's memory", s.rb.Load(), pattern(4096, 0x77))
	}
}

// partial says that the peer's memory may hold the beginning of the message: it went into a
// receive that was too short, or whose failure came after the data.
func (c *failure) partial() bool {
	return c.wantPeer == verbs.WCLocLenErr || c.wantPeer == verbs.WCRemAccessErr
}

// runRejected posts what cannot be: it is refused at once and changes nothing.
func runRejected(t *testing.T, f Fabric) {
	a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
	if _, err := a.Send(verbs.SendWR{Opcode: 250}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("unknown opcode: %v", err)
	}
	many := make([]verbs.SGE, 4096)
	_, err := a.Send(verbs.SendWR{Opcode: verbs.WRSend, SGE: many})
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("too many scatter/gather entries: %v", err)
	}
	if _, err := a.Recv(verbs.RecvWR{SGE: many}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("too many entries of a receive: %v", err)
	}
	n := 0
	for ; ; n++ {
		if posted, err := a.Recv(verbs.RecvWR{}); posted == 0 {
			if !errors.Is(err, verbs.ErrQueueFull) {
				t.Errorf("receive %d: %v", n, err)
			}
			break
		}
	}
	if n == 0 {
		t.Error("no receive was taken at all")
	}
	quiet(t, a)
	if a.State() != verbs.QPStateRTS || b.State() != verbs.QPStateRTS {
		t.Errorf("states %v, %v", a.State(), b.State())
	}
}
