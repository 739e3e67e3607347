package check

import (
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

const testMTU = 256

// talk is one packet of a script: a request, an answer that is sent, or one that arrives.
type talk struct {
	at     clock.Time
	who    byte // 'r' request, 'a' answer, 'v' arrives
	opcode ib.Opcode
	psn    uint32
	bytes  int
	fill   byte
	// isAckDue: the request asks for an acknowledge.
	isAckDue bool
	// READ length, or syndrome and MSN of an answer.
	length   uint32
	syndrome ib.Syndrome
	msn      uint32
	queue    ib.XRCETH
}

func (c *Conversation) play(list []talk) {
	for _, x := range list {
		h := &ib.Headers{
			BTH:  ib.BTH{Opcode: x.opcode, PSN: rdma.PSN(x.psn), AckReq: x.isAckDue},
			RETH: ib.RETH{Length: x.length}, XRC: x.queue,
			AETH: ib.AETH{Syndrome: x.syndrome, MSN: rdma.MSN(x.msn)},
		}
		b := make([]byte, x.bytes)
		for i := range b {
			b[i] = x.fill
		}
		switch x.who {
		case 'r':
			c.Request(x.at, h, b)
		case 'a':
			c.Answer(h, b)
		case 'v':
			c.Arrived(x.at, h)
		}
	}
}

const (
	none = ib.Syndrome(0x1f)
	wait = ib.Syndrome(0x20 | 1) // 10 µs
)

func send(psn uint32) talk {
	return talk{who: 'r', opcode: ib.RCSendOnly, psn: psn, bytes: 10}
}

// question is an empty WRITE, which is only there to be acknowledged.
func question(psn uint32) talk {
	return talk{who: 'r', opcode: ib.RCWriteOnly, psn: psn, isAckDue: true}
}

// arrive has an ACK reach the requester.
func arrive(psn uint32) talk {
	return talk{who: 'v', opcode: ib.RCAcknowledge, psn: psn, syndrome: none}
}

func ack(psn, msn uint32) talk {
	return talk{who: 'a', opcode: ib.RCAcknowledge, psn: psn, syndrome: none, msn: msn}
}

var read = talk{who: 'r', opcode: ib.RCReadRequest, psn: 0xfffffe, length: 3 * testMTU}

var smallRead = talk{who: 'r', opcode: ib.RCReadRequest, psn: 0xfffffe, length: testMTU}

//tidy:table
var conversations = []struct {
	name string
	list []talk
	want string
}{
	{"in order, over the wrap", []talk{
		send(0xfffffe), send(0xffffff), send(0), send(0xffffff), ack(0, 3),
	}, ""},
	{"a gap", []talk{send(0xfffffe), send(0)}, "leaves out 1"},
	{"before the first", []talk{send(0xfffffd)}, "before the first"},
	{"middle without a first", []talk{
		{who: 'r', opcode: ib.RCSendMiddle, psn: 0xfffffe, bytes: testMTU},
	}, "cannot follow"},
	{"first inside a message", []talk{
		{who: 'r', opcode: ib.RCSendFirst, psn: 0xfffffe, bytes: testMTU}, send(0xffffff),
	}, "cannot follow"},
	{"SEND goes on as WRITE", []talk{
		{who: 'r', opcode: ib.RCSendFirst, psn: 0xfffffe, bytes: testMTU},
		{who: 'r', opcode: ib.RCWriteLast, psn: 0xffffff, bytes: 1},
	}, "another operation"},
	{"first is short", []talk{
		{who: 'r', opcode: ib.RCSendFirst, psn: 0xfffffe, bytes: testMTU - 1},
	}, "at MTU"},
	{"another content", []talk{
		send(0xfffffe), {who: 'r', opcode: ib.RCSendOnly, psn: 0xfffffe, bytes: 10, fill: 1},
	}, "another content"},
	{"another opcode", []talk{
		send(0xfffffe), {who: 'r', opcode: ib.RCSendOnlyImm, psn: 0xfffffe, bytes: 10},
	}, "another content"},
	{"question before the first", []talk{question(0xfffffd), ack(0xfffffd, 0), send(0xfffffe)}, ""},
	{"question about what is acknowledged", []talk{
		send(0xfffffe), arrive(0xfffffe), question(0xfffffe), ack(0xfffffe, 1),
	}, ""},
	{"question too early", []talk{send(0xfffffe), question(0xfffffe)}, "another content"},
	{"READ takes PSNs", []talk{read, send(1)}, ""},
	{"rest of a READ", []talk{
		read, {who: 'r', opcode: ib.RCReadRequest, psn: 0xffffff, length: 2 * testMTU},
	}, ""},
	{"ACK of a READ", []talk{read, ack(0xffffff, 1)}, "T05"},
	{"data for a SEND", []talk{
		send(0xfffffe), {who: 'a', opcode: ib.RCReadResponseOnly, psn: 0xfffffe, msn: 1},
	}, "answers PSN"},
	{"ATOMIC WRITE and FLUSH, each with its answer", []talk{
		{who: 'r', opcode: ib.RCAtomicWrite, psn: 0xfffffe, bytes: 8},
		{who: 'r', opcode: ib.RCFlush, psn: 0xffffff},
		{who: 'a', opcode: ib.RCReadResponseOnly, psn: 0xfffffe, syndrome: none, msn: 1},
		{who: 'a', opcode: ib.RCReadResponseOnly, psn: 0xffffff, syndrome: none, msn: 2},
	}, ""},
	{"XRC, in order", []talk{
		{who: 'r', opcode: ib.XRCSendFirst, psn: 0xfffffe, bytes: testMTU, queue: 7},
		{who: 'r', opcode: ib.XRCSendLast, psn: 0xffffff, bytes: 1, queue: 7},
		{who: 'r', opcode: ib.XRCSendOnly, psn: 0, queue: 8},
		{who: 'a', opcode: ib.XRCAcknowledge, psn: 0, syndrome: none, msn: 2},
	}, ""},
	{"a message to two shared queues", []talk{
		{who: 'r', opcode: ib.XRCSendFirst, psn: 0xfffffe, bytes: testMTU, queue: 7},
		{who: 'r', opcode: ib.XRCSendLast, psn: 0xffffff, bytes: 1, queue: 8},
	}, "its message to"},
	{"a repetition to another shared queue", []talk{
		{who: 'r', opcode: ib.XRCSendOnly, psn: 0xfffffe, queue: 7},
		{who: 'r', opcode: ib.XRCSendOnly, psn: 0xfffffe, queue: 8},
	}, "another content"},
	{"credits of a shared queue", []talk{
		{who: 'r', opcode: ib.XRCSendOnly, psn: 0xfffffe, queue: 7},
		{who: 'a', opcode: ib.XRCAcknowledge, psn: 0xfffffe, syndrome: 3, msn: 1},
	}, "gives credits"},
	{"an answer of another service", []talk{
		{who: 'r', opcode: ib.XRCSendOnly, psn: 0xfffffe, queue: 7}, ack(0xfffffe, 1),
	}, "of another service"},
	{"an ACK of a FLUSH", []talk{
		{who: 'r', opcode: ib.RCFlush, psn: 0xfffffe}, ack(0xfffffe, 1),
	}, "an ACK carries PSN"},
	{"a FLUSH that brings data", []talk{
		{who: 'r', opcode: ib.RCFlush, psn: 0xfffffe},
		{who: 'a', opcode: ib.RCReadResponseOnly, psn: 0xfffffe, bytes: 4, msn: 1},
	}, "answers PSN"},
	{"an ATOMIC WRITE of seven bytes", []talk{
		{who: 'r', opcode: ib.RCAtomicWrite, psn: 0xfffffe, bytes: 7},
	}, "at MTU"},
	{"atomic answer for a READ", []talk{
		read, {who: 'a', opcode: ib.RCAtomicAcknowledge, psn: 0xfffffe, msn: 1},
	}, "answers PSN"},
	{"short data", []talk{
		read, {who: 'a', opcode: ib.RCReadResponseFirst, psn: 0xfffffe, bytes: 3, msn: 1},
	}, "at MTU"},
	{"ACK of the future", []talk{send(0xfffffe), ack(0xffffff, 1)}, "was not sent"},
	{"MSN too small", []talk{send(0xfffffe), send(0xffffff), ack(0xffffff, 1)}, "MSN 1"},
	{"MSN too large", []talk{send(0xfffffe), ack(0xfffffe, 2)}, "MSN 2"},
	{"not ready, and impatient", []talk{
		send(0xfffffe),
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xfffffe, syndrome: wait},
		{at: 10_099, who: 'r', opcode: ib.RCSendOnly, psn: 0xfffffe, bytes: 10},
	}, "before the receiver is ready"},
	{"not ready, and patient", []talk{
		send(0xfffffe),
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xfffffe, syndrome: wait},
		{at: 10_100, who: 'r', opcode: ib.RCSendOnly, psn: 0xfffffe, bytes: 10},
	}, ""},
	{"not ready, too often", []talk{
		send(0xfffffe),
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xfffffe, syndrome: wait},
		{at: 20_000, who: 'r', opcode: ib.RCSendOnly, psn: 0xfffffe, bytes: 10},
		{at: 30_000, who: 'v', opcode: ib.RCAcknowledge, psn: 0xfffffe, syndrome: wait},
		{at: 50_000, who: 'r', opcode: ib.RCSendOnly, psn: 0xfffffe, bytes: 10},
	}, "rnr_retry is 1"},
	{"not ready, and asleep", []talk{
		send(0xfffffe),
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xfffffe, syndrome: wait},
		{at: 20_020_100, who: 'r', opcode: ib.RCSendOnly, psn: 0xfffffe, bytes: 10},
	}, "after the receiver's time"},
	{"not ready, told twice while data are missing", []talk{
		smallRead, send(0xffffff),
		{at: 50, who: 'r', opcode: ib.RCSendOnly, psn: 0xffffff, bytes: 10},
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xffffff, syndrome: wait},
		{at: 200, who: 'v', opcode: ib.RCReadResponseOnly, psn: 0xfffffe, syndrome: none},
		{at: 300, who: 'v', opcode: ib.RCAcknowledge, psn: 0xffffff, syndrome: wait},
		{at: 10_100, who: 'r', opcode: ib.RCSendOnly, psn: 0xffffff, bytes: 10},
	}, ""},
	{"not ready, told twice, and impatient", []talk{
		smallRead, send(0xffffff),
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xffffff, syndrome: wait},
		{at: 200, who: 'v', opcode: ib.RCReadResponseOnly, psn: 0xfffffe, syndrome: none},
		{at: 300, who: 'v', opcode: ib.RCAcknowledge, psn: 0xffffff, syndrome: wait},
		{at: 10_099, who: 'r', opcode: ib.RCSendOnly, psn: 0xffffff, bytes: 10},
	}, "before the receiver is ready"},
	{"not ready, sent again, not ready, and impatient", []talk{
		smallRead, send(0xffffff),
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xffffff, syndrome: wait},
		{at: 200, who: 'r', opcode: ib.RCSendOnly, psn: 0xffffff, bytes: 10},
		{at: 300, who: 'v', opcode: ib.RCReadResponseOnly, psn: 0xfffffe, syndrome: none},
		{at: 400, who: 'v', opcode: ib.RCAcknowledge, psn: 0xffffff, syndrome: wait},
		{at: 10_100, who: 'r', opcode: ib.RCSendOnly, psn: 0xffffff, bytes: 10},
	}, "before the receiver is ready"},
	{"not ready, then acknowledged", []talk{
		send(0xfffffe),
		{at: 100, who: 'v', opcode: ib.RCAcknowledge, psn: 0xfffffe, syndrome: wait},
		{at: 200, who: 'v', opcode: ib.RCAcknowledge, psn: 0xfffffe, syndrome: none},
		{at: 300, who: 'r', opcode: ib.RCSendOnly, psn: 0xffffff, bytes: 10},
	}, ""},
}

func TestConversation_EveryMistake_IsFound(t *testing.T) {
	for _, r := range conversations {
		var court Court
		c := &Conversation{Court: &court, Name: r.name, MTU: testMTU, First: 0xfffffe, RNRRetry: 1}
		c.play(r.list)
		expect(t, &court, r.want)
	}
}

func TestConversation_Flush_IsToldWhenAnswered(t *testing.T) {
	var court Court
	var told []int
	c := Conversation{Court: &court, MTU: testMTU, Flushed: func(n int) { told = append(told, n) }}
	c.First = 0xfffffe
	c.play([]talk{
		{who: 'r', opcode: ib.RCFlush, psn: 0xfffffe},
		send(0xffffff),
		{who: 'r', opcode: ib.RCFlush, psn: 0},
		{who: 'a', opcode: ib.RCReadResponseOnly, psn: 0xfffffe, syndrome: none, msn: 1},
		{who: 'a', opcode: ib.RCReadResponseOnly, psn: 0, syndrome: none, msn: 3},
		{who: 'a', opcode: ib.RCReadResponseOnly, psn: 0, syndrome: none, msn: 3},
	})
	if want := []int{0, 1, 1}; !slices.Equal(told, want) || court.HasFailed() {
		t.Errorf("told %v, want %v; %v", told, want, court.Failures())
	}
}
