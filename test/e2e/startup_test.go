package e2e

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/wire/iwarp"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// startUp is what a stranger asks for in an enhanced MPA request, and what it has to get
// (RFC 6581 9). The program behind the NIC serves and wants 16 READs.
type startUp struct {
	name        string
	asks, wants iwarp.Setup
}

var startUps = []startUp{
	{
		name: "client and server", asks: iwarp.Setup{IRD: 2, ORD: 3},
		wants: iwarp.Setup{IRD: 3, ORD: 2},
	},
	{
		name: "flags of RTR without A", asks: iwarp.Setup{IRD: 2, ORD: 3, RTRRead: true},
		wants: iwarp.Setup{IRD: 3, ORD: 2},
	},
	{
		name:  "RTR by Send",
		asks:  iwarp.Setup{IRD: 2, ORD: 3, PeerToPeer: true, RTRSend: true},
		wants: iwarp.Setup{IRD: 3, ORD: 2, PeerToPeer: true, RTRSend: true},
	},
	{
		name:  "RTR by Write",
		asks:  iwarp.Setup{IRD: 100, ORD: 1, PeerToPeer: true, RTRWrite: true},
		wants: iwarp.Setup{IRD: 1, ORD: 16, PeerToPeer: true, RTRWrite: true},
	},
	{
		name:  "RTR by Read",
		asks:  iwarp.Setup{IRD: 5, ORD: 6, PeerToPeer: true, RTRRead: true},
		wants: iwarp.Setup{IRD: 6, ORD: 5, PeerToPeer: true, RTRRead: true},
	},
	{
		name: "RTR by any",
		asks: iwarp.Setup{
			IRD: 5, ORD: 6, PeerToPeer: true, RTRSend: true, RTRWrite: true, RTRRead: true,
		},
		wants: iwarp.Setup{IRD: 6, ORD: 5, PeerToPeer: true, RTRWrite: true},
	},
}

// rtr is the message that lets the responder send.
func rtr(s iwarp.Setup) []byte {
	switch {
	case s.RTRSend:
		return fpdu(segment(iwarp.Header{Opcode: iwarp.OpcodeSend, Last: true, MSN: 1}, 0))
	case s.RTRWrite:
		return fpdu(segment(iwarp.Header{Opcode: iwarp.OpcodeWrite, Last: true, STag: 1}, 0))
	case s.RTRRead:
		return reading(1, 0, 0)
	}
	return nil
}

// TestIWARP_StartUp_W01_W02_W03 asks a program's NIC for each kind of connection, over real
// sockets: the flag A stays (W01), exactly one RTR is chosen, answered and no message (W02), and
// depths are the lesser of what both want (W03).
func TestIWARP_StartUp_W01_W02_W03(t *testing.T) {
	v := newVictim(t, "")
	for _, x := range startUps {
		t.Run(x.name, func(t *testing.T) {
			s := v.machine.callIn(t, v.address())
			accepted := v.accept(t)
			f := iwarp.Frame{Revision: iwarp.Revision2, CRC: true, Enhanced: true, Setup: x.asks}
			s.say(t, f.Append(nil))
			if got := s.reply(t); !got.Enhanced || got.Setup != x.wants {
				t.Fatalf("asked %v, got %v, want %v", x.asks, got.Setup, x.wants)
			}
			s.say(t, rtr(x.wants))
			conn := <-accepted
			if conn == nil {
				t.FailNow()
			}
			if x.wants.RTRRead {
				h, content, err := s.message(t)
				if err != nil || h.Opcode != iwarp.OpcodeReadResponse || len(content) != 0 {
					t.Errorf("the answer to the RTR: %v, %d bytes, %v", h, len(content), err)
				}
			}
			msn := uint32(1)
			if x.wants.RTRSend {
				msn = 2
			}
			first := segment(iwarp.Header{Opcode: iwarp.OpcodeSend, Last: true, MSN: msn}, 10)
			s.say(t, fpdu(first))
			if wc := v.completion(t, conn); wc.Status != verbs.WCSuccess || wc.ByteLen != 10 {
				t.Errorf("the first message: %+v", wc)
			}
		})
	}
}

// TestIWARP_StartUp_W02_OurRTR is the other side: what a program's NIC asks for and says first.
func TestIWARP_StartUp_W02_OurRTR(t *testing.T) {
	v := newVictim(t, "")
	for name, choice := range map[string]iwarp.Setup{
		"by Write": {PeerToPeer: true, RTRWrite: true}, "by Read": {PeerToPeer: true, RTRRead: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked, s := v.beCalled(t, choice)
			if !asked.Setup.PeerToPeer || asked.Revision != iwarp.Revision2 {
				t.Fatalf("the request is %v", asked)
			}
			if choice.RTRWrite && !asked.Setup.RTRWrite || choice.RTRRead && !asked.Setup.RTRRead {
				t.Skipf("the NIC does not offer an RTR %s", name)
			}
			h, content, err := s.message(t)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case choice.RTRWrite && h.Opcode == iwarp.OpcodeWrite && len(content) == 0 && h.STag != 0:
			case choice.RTRRead && h.Opcode == iwarp.OpcodeReadRequest:
				r, err := iwarp.ParseReadRequest(content)
				if err != nil || r.Length != 0 || r.SinkSTag == 0 || r.SourceSTag == 0 {
					t.Errorf("the RTR: %v, %v", r, err)
				}
			default:
				t.Errorf("the RTR: %v, %d bytes", h, len(content))
			}
		})
	}
}

// listen opens a TCP port on a machine that no NIC knows of.
func (m *machine) listen(t *testing.T, host string) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	open := func() { l, err = net.Listen("tcp", net.JoinHostPort(host, "0")) }
	if m.ns != nil {
		m.ns.Do(open)
	} else {
		open()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestIWARP_ServerOfAnotherKind_ClientIsTold lets an unmodified program call servers that speak no
// MPA: it fails at once, and the NIC says why.
func TestIWARP_ServerOfAnotherKind_ClientIsTold(t *testing.T) {
	p := oneHostOrSelf(t)
	p.onIWARP(t, "")
	reply := iwarp.Frame{IsReply: true, Revision: iwarp.Revision2, CRC: true}
	for name, x := range map[string]struct {
		answer []byte
		why    string
	}{
		"HTTP":      {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "connect error"},
		"a request": {mpaRequest(true), "connect error"},
		"nothing":   {nil, "rejected"},
		"half":      {reply.Append(nil)[:10], "rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			l := p.server.listen(t, p.address)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 100))
				_, _ = c.Write(x.answer)
				_ = c.Close()
			}()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			out := p.client.run(t, "rping", "-c", "-a", p.address, "-p", port).end(t)
			if out.status == 0 {
				t.Error("it connects")
			}
			text := p.client.start(t, rnic, "ps", "--errors").succeed(t).stdout
			text = strings.Join(strings.Fields(text), " ")
			if _, text, _ = strings.Cut(text, ":"+port); !strings.HasPrefix(text, ": "+x.why) {
				t.Errorf("rnic ps --errors: %s", text)
			}
		})
	}
}

// beCalled lets the program dial a stranger, who accepts by the choice given.
func (v *victim) beCalled(t *testing.T, choice iwarp.Setup) (iwarp.Frame, *stranger) {
	t.Helper()
	host, _, _ := net.SplitHostPort(v.address())
	l := v.machine.listen(t, host)
	dialed := make(chan *rdmacm.Conn, 1)
	go func() {
		c, err := rdmacm.Dial(nictest.Soon(t), "rdma", l.Addr().String(), v.cfg)
		if err != nil {
			t.Errorf("dial: %v", err)
		}
		dialed <- c
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	s := &stranger{Conn: conn}
	var asked iwarp.Frame
	for n := 0; n == 0; {
		if asked, n, err = iwarp.ParseRequest(s.in); err != nil {
			t.Fatalf("%q: %v", s.in, err)
		}
		if n == 0 {
			if err := s.need(len(s.in) + 1); err != nil {
				t.Fatal(err)
			}
		}
		s.in = s.in[n:]
	}
	choice.IRD, choice.ORD = asked.Setup.ORD, asked.Setup.IRD
	f := iwarp.Frame{
		IsReply: true, Revision: iwarp.Revision2, CRC: true, Enhanced: true, Setup: choice,
	}
	s.say(t, f.Append(nil))
	t.Cleanup(func() {
		_ = s.Close()
		if c := <-dialed; c != nil {
			_ = c.Close()
		}
	})
	return asked, s
}
