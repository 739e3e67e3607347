package rdmacm_test

import (
	"errors"
	"testing"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func TestDialUD_Service_DatagramsGoBothWays(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l, err := rdmacm.ListenUD(nictest.Soon(t), "rdma", ":7471", rdmacm.Config{NIC: nicB})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pdB := session(t, nicB).PD()
	boxA, boxB := newInbox(t, session(t, nicA).PD(), 128), newInbox(t, pdB, 128)
	served := make(chan *rdmacm.UDConn, 1)
	go func() {
		defer close(served)
		r, err := l.Accept(nictest.Soon(t))
		if err != nil {
			t.Error(err)
			return
		}
		if textOf(r.PrivateData()) != "who serves?" {
			t.Errorf("request: %q", r.PrivateData())
		}
		conn, err := r.Accept(t.Context(), rdmacm.Config{PrivateData: []byte("I do"), Prepare: boxB.post})
		if err != nil {
			t.Error(err)
			return
		}
		served <- conn
	}()
	a, err := rdmacm.DialUD(nictest.Soon(t), "rdma", "10.0.0.2:7471", rdmacm.Config{
		NIC: nicA, PrivateData: []byte("who serves?"), Prepare: boxA.post,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b := <-served
	if b == nil {
		t.Fatal("not served")
	}
	defer b.Close()
	if textOf(a.PrivateData()) != "I do" || a.RemoteAddr().String() != "10.0.0.2:7471" ||
		b.RemoteAddr().String() != a.LocalAddr().String() || a.QKey() != b.QKey() {
		t.Errorf("%q, %v, %v, Q_Keys %#x %#x", a.PrivateData(), a.RemoteAddr(), b.RemoteAddr(), a.QKey(),
			b.QKey())
	}
	wr := verbs.SendWR{Opcode: verbs.WRSend, Inline: []byte("ping")}
	a.Address(&wr)
	if _, err := a.QP().PostSend(wr); err != nil {
		t.Fatal(err)
	}
	wc := next(t, b.RecvCQ())
	if got := string(boxB.mr.Bytes()[verbs.GRHBytes:wc.ByteLen]); wc.Err() != nil || got != "ping" {
		t.Fatalf("%q: %v", got, wc.Err())
	}
	ah, err := pdB.CreateAHFrom(&wc, boxB.mr.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.QP().PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Inline: []byte("pong"), AH: ah, RemoteQPN: wc.SrcQPN,
		RemoteQKey: b.QKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	wc = next(t, a.RecvCQ())
	if got := string(boxA.mr.Bytes()[verbs.GRHBytes:wc.ByteLen]); wc.Err() != nil || got != "pong" {
		t.Errorf("%q: %v", got, wc.Err())
	}
	if err := ah.Close(); err != nil {
		t.Error(err)
	}
}

func TestDialUD_OneQueuePairServesAll(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	s := session(t, nicB)
	cq, err := s.Device().CreateCQ(verbs.CQConfig{Entries: 64})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := s.PD().CreateQP(verbs.QPConfig{Type: verbs.QPTypeUD, SendCQ: cq, QKey: 0x5151})
	if err != nil {
		t.Fatal(err)
	}
	if err := qp.Activate(); err != nil {
		t.Fatal(err)
	}
	l, err := rdmacm.ListenUD(nictest.Soon(t), "rdma", ":7471", rdmacm.Config{NIC: nicB})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			r, err := l.Accept(nictest.Soon(t))
			if err != nil {
				return
			}
			if conn, err := r.AcceptWith(qp, 0x5151, nil); err != nil {
				t.Error(err)
			} else if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	box := newInbox(t, s.PD(), 128)
	for range 3 {
		if err := box.post(qp); err != nil {
			t.Fatal(err)
		}
		a, err := rdmacm.DialUD(nictest.Soon(t), "rdma", "10.0.0.2:7471", rdmacm.Config{NIC: nicA})
		if err != nil {
			t.Fatal(err)
		}
		wr := verbs.SendWR{Opcode: verbs.WRSend, Inline: []byte("x")}
		a.Address(&wr)
		if wr.RemoteQPN != qp.QPN() || wr.RemoteQKey != 0x5151 {
			t.Errorf("QP %v, Q_Key %#x", wr.RemoteQPN, uint32(wr.RemoteQKey))
		}
		if _, err := a.QP().PostSend(wr); err != nil {
			t.Fatal(err)
		}
		if wc := next(t, cq); wc.Err() != nil {
			t.Error(wc.Err())
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if qp.State() != verbs.QPStateRTS {
		t.Errorf("the shared queue pair is %v", qp.State())
	}
}

func TestDialUD_Refused_ErrorSaysHow(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	cfg := rdmacm.Config{NIC: nicA}
	var no *rdmacm.RejectedError
	if _, err := rdmacm.DialUD(nictest.Soon(t), "rdma", "10.0.0.2:7471", cfg); !errors.As(err, &no) ||
		no.Service != 1 {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := rdmacm.ListenUD(nictest.Soon(t), "rdma", ":7471", rdmacm.Config{NIC: nicB})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if r, err := l.Accept(nictest.Soon(t)); err != nil {
			t.Error(err)
		} else if err := r.Reject([]byte("go away")); err != nil {
			t.Error(err)
		}
	}()
	if _, err := rdmacm.DialUD(nictest.Soon(t), "rdma", "10.0.0.2:7471", cfg); !errors.As(err, &no) ||
		no.Service != 2 || textOf(no.PrivateData) != "go away" || !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("rejected: %v", err)
	}
}

func TestJoin_Group_MembersGetWhatIsSent(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	for _, c := range []struct{ group, a, b string }{
		{"239.1.2.3:0", "10.0.0.1:0", "10.0.0.2:0"}, {"[ff0e::1:2]:0", "[fd00::1]:0", "[fd00::2]:0"},
	} {
		box := newInbox(t, session(t, nicB).PD(), 128)
		b, err := rdmacm.Join(nictest.Soon(t), "rdma", c.group,
			rdmacm.Config{NIC: nicB, LocalAddress: c.b, Prepare: box.post})
		if err != nil {
			t.Fatal(err)
		}
		a, err := rdmacm.Join(nictest.Soon(t), "rdma", c.group,
			rdmacm.Config{NIC: nicA, LocalAddress: c.a, SendOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		wr := verbs.SendWR{Opcode: verbs.WRSend, Inline: []byte("to all")}
		a.Address(&wr)
		if _, err := a.QP().PostSend(wr); err != nil {
			t.Fatal(err)
		}
		wc := next(t, b.RecvCQ())
		if got := string(box.mr.Bytes()[verbs.GRHBytes:wc.ByteLen]); wc.Err() != nil || got != "to all" {
			t.Errorf("%s: %q: %v", c.group, got, wc.Err())
		}
		if err := errors.Join(a.Close(), b.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
}
