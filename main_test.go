package softrnic_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func TestMain(m *testing.M) {
	nictest.Main(m, map[string]func() error{"target": playTarget, "lender": playLender})
}

// playTarget offers 64 bytes of Go memory to the endpoint that it reads, and says where they are.
func playTarget() error {
	dev, err := verbs.Open(context.Background(), "")
	if err != nil {
		return err
	}
	defer dev.Close()
	e, err := newEnd(dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if err != nil {
		return err
	}
	memory := make([]byte, 64)
	copy(memory, "the target's own words")
	mr, err := e.pd.Register(memory, verbs.AccessAll)
	if err != nil {
		return err
	}
	fmt.Println(e.point, mr.Addr(), uint32(mr.RKey()))
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	var peer verbs.Endpoint
	if err := peer.UnmarshalText([]byte(strings.TrimSpace(line))); err != nil {
		return err
	}
	if err := e.qp.ConnectTo(peer); err != nil {
		return err
	}
	fmt.Println("connected")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	fmt.Printf("%q\n", memory[:32])
	return nil
}

// end is a queue pair with what it needs.
type end struct {
	dev   *verbs.Context
	pd    *verbs.PD
	cq    *verbs.CQ
	qp    *verbs.QP
	point verbs.Endpoint
}

func newEnd(dev *verbs.Context, cfg verbs.QPConfig) (*end, error) {
	e := &end{dev: dev}
	var err error
	if e.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if e.cq, err = dev.CreateCQ(verbs.CQConfig{Entries: 64}); err != nil {
		return nil, err
	}
	cfg.SendCQ = e.cq
	if e.qp, err = e.pd.CreateQP(cfg); err != nil {
		return nil, err
	}
	e.point, err = e.qp.Endpoint()
	return e, err
}

// do posts one request and waits for its completion.
func (e *end) do(ctx context.Context, wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	if _, err := e.qp.PostSend(wr); err != nil {
		return err
	}
	wc, err := e.next(ctx)
	return errors.Join(err, wc.Err())
}

func (e *end) next(ctx context.Context) (verbs.WC, error) {
	var wcs [1]verbs.WC
	for {
		if err := e.cq.Wait(ctx); err != nil {
			return wcs[0], err
		}
		if n, err := e.cq.Poll(wcs[:]); n > 0 || err != nil {
			return wcs[0], err
		}
	}
}

// pair returns two connected ends.
func pair(t *testing.T, a, b *verbs.Context, cfg verbs.QPConfig) (x, y *end) {
	t.Helper()
	x, err := newEnd(a, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if y, err = newEnd(b, cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Type == verbs.QPTypeUD {
		err = errors.Join(x.qp.Activate(), y.qp.Activate())
	} else {
		err = errors.Join(x.qp.ConnectTo(y.point), y.qp.ConnectTo(x.point))
	}
	if err != nil {
		t.Fatal(err)
	}
	return x, y
}

func open(t *testing.T, opts ...verbs.Option) *verbs.Context {
	t.Helper()
	dev, err := verbs.Open(t.Context(), "", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	return dev
}
