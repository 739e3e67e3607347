package rping

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// DefaultPort is the port of rping.
const DefaultPort = "7174"

// SizeMax bounds the bytes of a round: a server holds as many for each client.
const SizeMax = 16 << 20

// ErrProtocol is wrapped when the peer does not do what rping does.
var ErrProtocol = errors.New("the peer does not speak as rping does")

const (
	messageBytes = 16
	// spinTime is how long a side looks for a completion before it sleeps.
	spinTime = 20 * time.Microsecond
	// sendDepth is more than the requests of one round.
	sendDepth = 16
)

// Numbers of work requests whose completion somebody waits for.
const (
	idReceive = iota + 1
	idRead
)

// buffer is a piece of memory that a side names to the other.
type buffer struct {
	addr uint64
	key  verbs.Key
	size uint32
}

func (b buffer) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint64(to, b.addr)
	to = binary.BigEndian.AppendUint32(to, uint32(b.key))
	return binary.BigEndian.AppendUint32(to, b.size)
}

// parseBuffer reads a message.
//
// Preconditions: it has messageBytes.
func parseBuffer(message []byte) buffer {
	return buffer{
		addr: binary.BigEndian.Uint64(message),
		key:  verbs.Key(binary.BigEndian.Uint32(message[8:])),
		size: binary.BigEndian.Uint32(message[12:]),
	}
}

// link is one side of a connection. One goroutine uses it.
type link struct {
	session *rdmacm.Session
	pd      *verbs.PD // on the device of the connection
	conn    *rdmacm.Conn
	cq      *verbs.CQ
	message *verbs.MR // where one message of the peer arrives
	scratch [messageBytes]byte

	pending   bool   // a message has arrived that nobody has asked for yet
	pendingAs buffer // what it says
	reads     int    // completions of READs that nobody has asked for yet
}

// newLink prepares memory; the connection comes later.
func newLink(session *rdmacm.Session, pd *verbs.PD) (*link, error) {
	mr, err := pd.AllocMemory(messageBytes, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	return &link{session: session, pd: pd, message: mr}, nil
}

// config is what Dial and Accept need for a connection whose first receive is posted in time.
func (l *link) config() rdmacm.Config {
	return rdmacm.Config{
		Session: l.session, Device: l.pd.Context().Device().Name, PD: l.pd,
		QP: verbs.QPConfig{
			MaxSendWR: sendDepth, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInline: messageBytes,
		},
		Prepare: l.receive,
	}
}

// attach makes a connection the link's.
func (l *link) attach(conn *rdmacm.Conn) { l.conn, l.cq = conn, conn.RecvCQ() }

func (l *link) close() {
	if l.conn != nil {
		_ = l.conn.Close()
	}
	_ = l.message.Close()
}

func (l *link) receive(qp *verbs.QP) error {
	wr := verbs.RecvWR{ID: idReceive, SGE: l.message.SGE(0, messageBytes)}
	_, err := qp.PostRecv(wr)
	return err
}

// send posts a message.
func (l *link) send(b buffer) error {
	return l.post(verbs.SendWR{Opcode: verbs.WRSend, Inline: b.append(l.scratch[:0])})
}

func (l *link) post(wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	_, err := l.conn.QP().PostSend(wr)
	return err
}

// await returns when the peer's next message is there, and what it says.
func (l *link) await(ctx context.Context) (buffer, error) {
	for !l.pending {
		if err := l.step(ctx); err != nil {
			return buffer{}, err
		}
	}
	l.pending = false
	return l.pendingAs, nil
}

// awaitRead returns when a READ has completed.
func (l *link) awaitRead(ctx context.Context) error {
	for l.reads == 0 {
		if err := l.step(ctx); err != nil {
			return err
		}
	}
	l.reads--
	return nil
}

// step takes in one completion.
func (l *link) step(ctx context.Context) error {
	wc, err := l.poll(ctx)
	switch {
	case err != nil:
		return err
	case wc.Err() != nil:
		return wc.Err()
	case wc.ID == idRead:
		l.reads++
		return nil
	case wc.ID != idReceive:
		return nil // the peer's answer says as much
	case wc.ByteLen != messageBytes:
		return fmt.Errorf("%w: a message of %d bytes", ErrProtocol, wc.ByteLen)
	case l.pending:
		return fmt.Errorf("%w: a message out of turn", ErrProtocol)
	}
	l.pendingAs, l.pending = parseBuffer(l.message.Bytes()), true
	return l.receive(l.conn.QP())
}

// poll returns the next completion. It looks for a short time, then sleeps.
func (l *link) poll(ctx context.Context) (verbs.WC, error) {
	var wcs [1]verbs.WC
	for begin := time.Now(); ; {
		n, err := l.cq.Poll(wcs[:])
		if n == 1 || err != nil {
			return wcs[0], err
		}
		if time.Since(begin) < spinTime {
			runtime.Gosched()
			continue
		}
		if err := l.cq.Wait(ctx); err != nil {
			return verbs.WC{}, err
		}
	}
}
