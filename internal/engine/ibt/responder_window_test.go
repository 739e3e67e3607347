package ibt

import (
	"bytes"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// reader is a requester as kernels and adapters have it: it asks for each READ whole, several at
// a time, drops what comes out of turn, and asks again after a timeout only. The way to it has a
// queue that holds some packets and drains at a rate.
type reader struct {
	t       *testing.T
	b       *node
	timeout time.Duration
	depth   int
	size    uint32 // bytes of a READ
	packets uint32
	isDeaf  bool // does not acknowledge requests that it has executed

	now      clock.Time
	posted   int
	total    int
	first    rdma.PSN // of the first READ
	want     uint32   // packets that have arrived in order
	deadline clock.Time
	timeouts int

	room      int           // packets that the queue holds
	gap       time.Duration // between two of them
	stall     time.Duration // as long, every stallEvery, none leaves
	every     time.Duration
	queue     []Packet
	leave     clock.Time
	lost      int
	most      int
	questions int
}

func newReader(t *testing.T, size uint32) *reader {
	t.Helper()
	r := &reader{
		t: t, timeout: time.Second, depth: 1, size: size, room: 1000,
		gap: 25 * time.Microsecond, deadline: clock.Never, leave: clock.Never,
	}
	r.b = newNode(t, nodeConfig{qpType: rdma.QPTypeRC, name: "b", qpn: 0x22, bytes: 8 << 20})
	a := testAttr("b", "a", 0x11)
	a.MaxDestRdAtomic = 16
	r.packets = packetsOf(size, uint32(a.PathMTU.Bytes()))
	r.first = a.RQPSN
	all := rdma.QPAttrAll
	r.b.q.Modify(0, &a, all, rdma.QPStateInit)
	r.b.q.Modify(0, &a, all, rdma.QPStateRTR)
	return r
}

// live lets the responder send requests, too.
func (r *reader) live() *reader {
	a := *r.b.q.Attr()
	r.b.q.Modify(0, &a, rdma.QPAttrSQPSN|rdma.QPAttrTimeout, rdma.QPStateRTS)
	return r
}

// ask sends the request for packet k, and what follows of its READ.
func (r *reader) ask(k uint32) {
	in := k % r.packets
	mtu := uint32(1024)
	p := &Packet{Address: Address{SGID: testAddr("a"), DGID: testAddr("b")}}
	p.Headers.BTH = ib.BTH{
		Opcode: ib.RCReadRequest, PSN: r.first.Add(k), DestQPN: 0x22, PKey: rdma.PKeyDefault,
	}
	p.Headers.RETH = ib.RETH{
		VA: testBase + uint64(in*mtu), RKey: r.b.region.Key, Length: r.size - in*mtu,
	}
	r.b.q.HandlePacket(r.now, p)
	if r.deadline == clock.Never {
		r.deadline = r.now.Add(r.timeout)
	}
}

// post keeps depth READs under way.
func (r *reader) post() {
	done := int(r.want / r.packets)
	for r.posted < r.total && r.posted-done < r.depth {
		r.ask(uint32(r.posted) * r.packets)
		r.posted++
	}
}

// drain takes what the responder sends into the queue.
func (r *reader) drain() {
	var p Packet
	for r.b.q.PollTransmit(r.now, &p) {
		if len(r.queue) >= r.room {
			r.lost++
			continue
		}
		r.queue = append(r.queue, p)
		r.most = max(r.most, len(r.queue))
		if r.leave == clock.Never {
			r.leave = r.now.Add(r.gap)
		}
	}
}

// arrive takes the oldest packet out of the queue.
func (r *reader) arrive() {
	p := r.queue[0]
	r.queue = r.queue[1:]
	r.leave = clock.Never
	if len(r.queue) > 0 {
		r.leave = r.now.Add(r.gap)
		if r.every > 0 && time.Duration(r.now)%r.every < r.gap {
			r.leave = r.leave.Add(r.stall)
		}
	}
	if p.Headers.BTH.Opcode.Info().Role == ib.RoleRequest {
		r.answer(&p)
		return
	}
	if p.Headers.BTH.PSN != r.first.Add(r.want) {
		return
	}
	r.want++
	r.deadline = r.now.Add(r.timeout)
	if int(r.want/r.packets) == r.total {
		r.deadline = clock.Never
	}
}

func (r *reader) answer(p *Packet) {
	r.questions++
	if r.isDeaf {
		return
	}
	last := r.b.q.attr.SQPSN.Add(rdma.PSNMask)
	if p.Headers.BTH.PSN != last || !p.Headers.BTH.AckReq || p.Headers.RETH != (ib.RETH{}) {
		r.t.Fatalf("a question that is no repetition: %v", &p.Headers)
	}
	a := &Packet{Address: Address{SGID: testAddr("a"), DGID: testAddr("b")}}
	a.Headers.BTH = ib.BTH{Opcode: ib.RCAcknowledge, PSN: last, DestQPN: 0x22, PKey: rdma.PKeyDefault}
	a.Headers.AETH = ib.AETH{Syndrome: ib.ACK(ib.CreditsInvalid)}
	r.b.q.HandlePacket(r.now, a)
}

// read has total READs done and returns how long that took.
func (r *reader) read(total int, limit time.Duration) time.Duration {
	begin := r.now
	r.total = r.posted + total
	for {
		r.post()
		r.drain()
		if int(r.want/r.packets) == r.total && len(r.queue) == 0 {
			return r.now.Sub(begin)
		}
		r.now = max(r.now, min(r.deadline, r.leave, r.b.q.PollTimeout()))
		if r.now.Sub(begin) > limit {
			r.t.Fatalf("%d of %d packets in %v", r.want, uint32(r.total)*r.packets, limit)
		}
		if r.b.q.PollTimeout() <= r.now {
			r.b.q.HandleTimeout(r.now)
		}
		if r.leave <= r.now {
			r.arrive()
		}
		if r.deadline <= r.now {
			r.deadline = clock.Never
			r.timeouts++
			for k := r.want; k < uint32(r.posted)*r.packets; k += r.packets - k%r.packets {
				r.ask(k)
			}
		}
	}
}

// TestResponder_LongRead_KeepsTheQueueShort is about QPs that can ask their peer.
func TestResponder_LongRead_KeepsTheQueueShort(t *testing.T) {
	for _, x := range []struct {
		name         string
		size         uint32
		depth, total int
		gap          time.Duration
		stall        bool
		room         int
		timeouts     int
	}{
		{"8M", 8 << 20, 1, 10, 25 * time.Microsecond, false, 1000, 0},
		{"8M fast", 8 << 20, 1, 20, 2 * time.Microsecond, false, 1000, 0},
		{"8M slow", 8 << 20, 1, 4, 100 * time.Microsecond, false, 1000, 0},
		{"8M stalls", 8 << 20, 1, 10, 25 * time.Microsecond, true, 1000, 0},
		{"8M short queue", 8 << 20, 1, 20, 25 * time.Microsecond, false, 200, 1},
		{"1M deep", 1 << 20, 16, 80, 25 * time.Microsecond, false, 1000, 0},
		{"128K deep, short queue", 128 << 10, 16, 320, 25 * time.Microsecond, false, 200, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newReader(t, x.size).live()
			r.depth, r.gap, r.room = x.depth, x.gap, x.room
			if x.stall {
				r.stall, r.every = 20*time.Millisecond, 200*time.Millisecond
			}
			took := r.read(x.total, time.Minute)
			ideal := time.Duration(int(r.packets)*x.total) * x.gap
			t.Logf("%v, at best %v; %d timeouts, %d packets lost, %d queued, %d questions",
				took, ideal, r.timeouts, r.lost, r.most, r.questions)
			took -= time.Duration(r.timeouts) * r.timeout
			if r.timeouts > x.timeouts || took > ideal*5/4 {
				t.Errorf("%d timeouts, and %v instead of %v", r.timeouts, took, ideal)
			}
			if sent := int(r.packets) * x.total; r.questions > sent/16 {
				t.Errorf("%d questions about %d packets", r.questions, sent)
			}
		})
	}
}

// TestResponder_LongReadWithoutAnswers_FindsARate is about QPs that cannot ask, since they are not
// ready to send, or whose peer does not answer: once the rate is found, losses are rare.
func TestResponder_LongReadWithoutAnswers_FindsARate(t *testing.T) {
	for _, x := range []struct {
		name        string
		size        uint32
		depth, warm int
		gap         time.Duration
		room        int
		isDeaf      bool
	}{
		{"8M", 8 << 20, 1, 4, 25 * time.Microsecond, 1000, false},
		{"8M fast", 8 << 20, 1, 4, 2 * time.Microsecond, 1000, false},
		{"8M slow", 8 << 20, 1, 8, 100 * time.Microsecond, 1000, false},
		{"8M short queue", 8 << 20, 1, 4, 25 * time.Microsecond, 200, false},
		{"128K deep", 128 << 10, 16, 256, 25 * time.Microsecond, 1000, false},
		{"128K deep, short queue", 128 << 10, 16, 256, 25 * time.Microsecond, 200, false},
		{"8M, deaf", 8 << 20, 1, 4, 25 * time.Microsecond, 1000, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newReader(t, x.size)
			r.depth, r.gap, r.room, r.isDeaf = x.depth, x.gap, x.room, x.isDeaf
			if x.isDeaf {
				r.live()
			}
			r.read(x.warm, time.Minute)
			before := r.timeouts
			took := r.read(x.warm, time.Minute)
			ideal := time.Duration(int(r.packets)*x.warm) * x.gap
			t.Logf("%d timeouts at first, %d later; %v, at best %v",
				before, r.timeouts-before, took, ideal)
			if before > 8 || r.timeouts-before > 1 {
				t.Errorf("%d timeouts at first and %d later", before, r.timeouts-before)
			}
			if took > 3*ideal+r.timeout {
				t.Errorf("%v instead of %v", took, ideal)
			}
			if !x.isDeaf && r.questions > 0 || x.isDeaf && r.questions != replySilencesMax {
				t.Errorf("%d questions", r.questions)
			}
		})
	}
}

// TestResponder_RequesterWithAWindow_IsNotQuestioned keeps our own kind out of this: whoever asks
// for a window's worth at a time regulates itself.
func TestResponder_RequesterWithAWindow_IsNotQuestioned(t *testing.T) {
	const size = 16 << 20
	w := newWorld(t, worldConfig{bytes: size})
	for range 2 {
		w.a.post(w.now, abi.SendWQE{
			Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
			RKey: uint32(w.b.region.Key),
		}, w.a.at(0, size))
	}
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
	if s := w.b.q.Stats(); s.Questions != 0 || w.b.q.recv.window.isOn {
		t.Errorf("%d questions", s.Questions)
	}
}

// TestResponder_RequesterWithAWindow_StaysFree: it asks for less after a loss, and no second window
// slows it down. Losses come one at a time and, as when somebody is not scheduled for a while, all
// at once, which makes requesters repeat what they need not.
func TestResponder_RequesterWithAWindow_StaysFree(t *testing.T) {
	for name, isLost := range map[string]func(n int) bool{
		"losses":  func(n int) bool { return n%3000 == 0 },
		"outages": func(n int) bool { return n%2500 < 60 },
	} {
		t.Run(name, func(t *testing.T) { testFreeRequester(t, isLost) })
	}
}

func testFreeRequester(t *testing.T, isLost func(n int) bool) {
	const size = 16 << 20
	w := newWorld(t, worldConfig{bytes: size})
	data, bounded := 0, 0
	w.judge = func(_ *node, p *Packet) fate {
		if !p.Headers.BTH.Opcode.IsReadResponse() {
			return deliver
		}
		data++
		if w.b.q.recv.window.isOn {
			bounded++
		}
		if isLost(data) {
			return lose
		}
		return deliver
	}
	for range 2 {
		w.a.post(w.now, abi.SendWQE{
			Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
			RKey: uint32(w.b.region.Key),
		}, w.a.at(0, size))
	}
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
	s := w.b.q.Stats()
	if data < 32768+5 || s.Questions+uint64(bounded) > 0 {
		t.Errorf("%d packets of data, %d by a window, %d questions", data, bounded, s.Questions)
	}
}

// TestResponder_QuestionAmidRequests_IsTakenForARepetition lets both sides send while one of them
// is asked for READ data, with a peer that answers as ours does.
func TestResponder_QuestionAmidRequests_IsTakenForARepetition(t *testing.T) {
	w := newWorld(t, worldConfig{bytes: 2 * half})
	w.b.q.recv.window.isGreedy, w.b.q.recv.window.free = true, 4 // so that windows are for everybody
	w.b.q.recv.window.window.size = 4
	pattern(w.b.mem[:half], 3)
	for i := range 8 {
		w.a.receive(uint64(i), w.a.at(half+i*16, 16))
	}
	w.a.post(w.now, abi.SendWQE{
		Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, half))
	for i := range 8 {
		w.run(20 * time.Microsecond)
		w.b.post(w.now, abi.SendWQE{WRID: uint64(i), Opcode: uint8(rdma.WRSend), Flags: signaled},
			w.b.at(half, 16))
	}
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	ok := rdma.WCSuccess
	wantStatus(t, w.b.sends.take(), ok, ok, ok, ok, ok, ok, ok, ok)
	wantStatus(t, w.a.recvs.take(), ok, ok, ok, ok, ok, ok, ok, ok)
	if !bytes.Equal(w.a.mem[:half], w.b.mem[:half]) {
		t.Error("the data differ")
	}
	s := w.b.q.Stats()
	if s.Questions == 0 || w.b.q.recv.window.silences != 0 || !w.b.q.recv.window.hasAnswered {
		t.Errorf("%d questions, %d unanswered", s.Questions, w.b.q.recv.window.silences)
	}
	if w.a.counters[work.CountRcvdRNR]+w.b.counters[work.CountRcvdSeqErr]+
		w.b.counters[work.CountAckTimeout] != 0 {
		t.Error("questions led to trouble")
	}
}
