package softrnic_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// Case E09: a failure tells both programs what the NIC saw, without asking it.
func TestNIC_WrongKey_E09_BothSidesLearnWhy(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	mr, err := y.pd.AllocMemory(4096, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	err = x.do(nictest.Soon(t), verbs.SendWR{
		ID: 99, Opcode: verbs.WRWrite, Inline: []byte("hello"), RemoteAddr: mr.Addr(), RKey: mr.RKey(),
	})
	var cause *verbs.Cause
	if !errors.Is(err, verbs.ErrRemoteAccess) || !errors.As(err, &cause) {
		t.Fatalf("got %v", err)
	}
	if cause.NAK != 0x62 || cause.Key != mr.RKey() || cause.Addr != mr.Addr() ||
		cause.Asked != verbs.AccessRemoteWrite || cause.PeerQPN != y.qp.QPN() ||
		cause.State != verbs.QPStateRTS || cause.IsPeersRequest {
		t.Errorf("here %+v", cause)
	}
	theirs := y.qp.Cause()
	if theirs == nil || !theirs.IsPeersRequest || !theirs.HasRegion || theirs.Length != 5 ||
		theirs.Granted != verbs.AccessLocalWrite || theirs.RegionAddr != mr.Addr() {
		t.Fatalf("at the peer %+v", theirs)
	}
	if text := theirs.Error(); !strings.Contains(text, "access right missing") {
		t.Errorf("at the peer %q", text)
	}
	// A later request is flushed, and says because of what.
	err = x.do(nictest.Soon(t), verbs.SendWR{ID: 100, Opcode: verbs.WRSend, Inline: []byte("x")})
	if !errors.Is(err, verbs.ErrFlushed) || !strings.Contains(err.Error(), "because wr_id") {
		t.Errorf("flushed: %v", err)
	}
	// After an end that the program chose, the flushed ones say that.
	a, _ := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if err := a.qp.ToError(); err != nil {
		t.Fatal(err)
	}
	err = a.do(nictest.Soon(t), verbs.SendWR{Opcode: verbs.WRSend, Inline: []byte("x")})
	if !errors.As(err, &cause) || !cause.IsProgramsOwn {
		t.Errorf("after ToError: %v", err)
	}
}

func TestNIC_RefusedModify_SaysWhichAttribute(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, _ := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	err := x.qp.ToRTR(verbs.QPAttr{})
	var refusal *verbs.Refusal
	if !errors.Is(err, syscall.EINVAL) || !errors.As(err, &refusal) ||
		!strings.Contains(refusal.Reason, "RTS to RTR") {
		t.Errorf("got %v", err)
	}
}
