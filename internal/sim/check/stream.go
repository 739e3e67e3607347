package check

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Message is one that takes a receive at the other side: a SEND, or a WRITE with immediate.
type Message struct {
	Bytes   int
	Seed    uint64 // of the content, from offset 0
	HasImm  bool
	HasInv  bool
	Imm     uint32 // as in the completion: the immediate, or the key that is invalidated
	IsWrite bool
	// Solicited says that the receive wakes an application that asked for solicited events only.
	Solicited bool
	// Must is empty for a message that fits. Else its receive fails, with one of these.
	Must StatusSet
	// Landed is called for a WRITE when its receive completes; may be nil.
	Landed func()
}

// Stream is the messages from one queue pair to another.
type Stream struct {
	Court *Court
	Name  string
	// Exact: each message arrives once and in order (RC). Else any may be lost; Ordered says that
	// none overtakes another or comes twice.
	Exact, Ordered bool

	messages  []*Message
	next      int
	received  int
	confirmed int
}

// Sent records a message at the time when it is posted.
func (s *Stream) Sent(m *Message) { s.messages = append(s.messages, m) }

// Confirm records that the sender saw a message succeed.
func (s *Stream) Confirm() { s.confirmed++ }

// Received returns how many receives completed.
func (s *Stream) Received() int { return s.received }

// Finish judges an exact stream after everything has come to rest at a receiver that lives.
func (s *Stream) Finish() {
	if s.Exact && s.received < s.confirmed {
		s.Court.Failf("%s: %d messages succeeded, %d receives completed",
			s.Name, s.confirmed, s.received)
	}
}

// Receive judges the completion of a receive; payload is what arrived in the posted buffers. It
// returns the message, or nil where none fits.
func (s *Stream) Receive(c *abi.CQE, payload []byte) *Message {
	s.received++
	if s.Exact {
		return s.receiveNext(c, payload)
	}
	for i := s.next; i < len(s.messages); i++ {
		if s.messages[i].difference(c, payload) == "" {
			s.next = i + 1
			return s.take(i)
		}
	}
	if !s.Ordered {
		for i := min(s.next, len(s.messages)) - 1; i >= 0; i-- {
			if s.messages[i].difference(c, payload) == "" {
				return s.take(i)
			}
		}
	}
	s.Court.Failf("%s: %d bytes arrived that no sent message holds (imm %#x, flags %#x)",
		s.Name, c.ByteLen, c.ImmOrRKey, c.WCFlags)
	return nil
}

func (s *Stream) take(i int) *Message {
	m := s.messages[i]
	if m.Landed != nil {
		m.Landed()
	}
	return m
}

func (s *Stream) receiveNext(c *abi.CQE, payload []byte) *Message {
	if s.next >= len(s.messages) {
		s.Court.Failf("%s: a receive completes beyond the %d messages sent",
			s.Name, len(s.messages))
		return nil
	}
	m := s.messages[s.next]
	s.next++
	if d := m.difference(c, payload); d != "" {
		s.Court.Failf("%s: message %d of %d bytes: %s", s.Name, s.next-1, m.Bytes, d)
	}
	return s.take(s.next - 1)
}

// Refuse judges a receive that completed with an error: the next message of an exact stream has to
// be one that does not fit. It reports whether it was.
func (s *Stream) Refuse(status rdma.WCStatus) bool {
	for i := s.next; i < len(s.messages); i++ {
		m := s.messages[i]
		if m.Must.Has(status) {
			s.next = i + 1
			return true
		}
		if s.Exact {
			break
		}
	}
	return false
}

// difference says in which way a completion is not that of m, or "".
func (m *Message) difference(c *abi.CQE, payload []byte) string {
	opcode := rdma.WCOpRecv
	if m.IsWrite {
		opcode = rdma.WCOpRecvWriteImm
	}
	hasImm := rdma.WCFlags(c.WCFlags)&rdma.WCWithImm != 0
	hasInv := rdma.WCFlags(c.WCFlags)&rdma.WCWithInv != 0
	switch {
	case m.Must != 0:
		return "was received; it has to fail with " + m.Must.String()
	case rdma.WCOpcode(c.Opcode) != opcode:
		return "opcode of the receive is wrong"
	case int64(c.ByteLen) != int64(m.Bytes):
		return "byte_len is wrong"
	case hasImm != m.HasImm:
		return "the immediate flag is wrong"
	case hasInv != m.HasInv:
		return "the invalidate flag is wrong"
	case (hasImm || hasInv) && c.ImmOrRKey != m.Imm:
		return "the immediate, or the invalidated key, is wrong"
	case !m.IsWrite && len(payload) != m.Bytes:
		return "payload has a wrong length"
	case !m.IsWrite && Mismatch(payload, m.Seed, 0) >= 0:
		return "payload is wrong"
	}
	return ""
}
