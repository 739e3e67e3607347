package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/verbs"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var opts []verbs.Option
	if os.Getenv("RNIC_SOCKET") == "" {
		nic, err := softrnic.Start(ctx, softrnic.Config{})
		if err != nil {
			return err
		}
		defer nic.Close()
		opts = append(opts, verbs.WithConnector(nic))
	}
	dev, err := verbs.Open(ctx, "", opts...)
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(verbs.CQConfig{})
	if err != nil {
		return err
	}
	active, passive, err := pair(pd, cq)
	if err != nil {
		return err
	}
	defer passive.Close()

	// The passive side offers 64 bytes, and from here on does nothing.
	offered := make([]byte, 64)
	target, err := pd.Register(offered, verbs.AccessAll)
	if err != nil {
		return err
	}
	copy(offered[8:], "Hello from the target.")

	local, err := pd.AllocMemory(64, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	a := actor{qp: active, cq: cq, local: local, target: target}
	return a.act(ctx)
}

// pair makes two connected queue pairs.
func pair(pd *verbs.PD, cq *verbs.CQ) (a, b *verbs.QP, err error) {
	cfg := verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: cq, SignalAll: true}
	if a, err = pd.CreateQP(cfg); err != nil {
		return nil, nil, err
	}
	if b, err = pd.CreateQP(cfg); err != nil {
		return nil, nil, err
	}
	endA, err := a.Endpoint()
	if err != nil {
		return nil, nil, err
	}
	endB, err := b.Endpoint()
	if err != nil {
		return nil, nil, err
	}
	if err := a.ConnectTo(endB); err != nil {
		return nil, nil, err
	}
	return a, b, b.ConnectTo(endA)
}

// actor works on the target's memory. In two programs the target's address and rkey would come
// from the peer.
type actor struct {
	qp            *verbs.QP
	cq            *verbs.CQ
	local, target *verbs.MR
}

func (a *actor) act(ctx context.Context) error {
	err := a.do(ctx, verbs.SendWR{
		Opcode: verbs.WRRead, SGE: a.local.SGE(0, 22),
		RemoteAddr: a.target.Addr() + 8, RKey: a.target.RKey(),
	})
	if err != nil {
		return err
	}
	fmt.Printf("READ:      %s\n", a.local.Bytes()[:22])

	err = a.do(ctx, verbs.SendWR{
		Opcode: verbs.WRWrite, Inline: []byte("Greetings"),
		RemoteAddr: a.target.Addr() + 32, RKey: a.target.RKey(),
	})
	if err != nil {
		return err
	}
	fmt.Printf("WRITE:     %s\n", a.target.Bytes()[32:41])

	for range 3 {
		err = a.do(ctx, verbs.SendWR{
			Opcode: verbs.WRFetchAdd, CompareAdd: 14, SGE: a.local.SGE(0, 8),
			RemoteAddr: a.target.Addr(), RKey: a.target.RKey(),
		})
		if err != nil {
			return err
		}
	}
	fmt.Printf("FETCH_ADD: %d, and before it %d\n",
		binary.NativeEndian.Uint64(a.target.Bytes()), binary.NativeEndian.Uint64(a.local.Bytes()))

	err = a.do(ctx, verbs.SendWR{
		ID: 7, Opcode: verbs.WRWrite, Inline: []byte("too far"),
		RemoteAddr: a.target.Addr() + 60, RKey: a.target.RKey(),
	})
	fmt.Printf("beyond it: %v\n", err)
	return nil
}

// do posts one work request and waits for it.
func (a *actor) do(ctx context.Context, wr verbs.SendWR) error {
	if _, err := a.qp.PostSend(wr); err != nil {
		return err
	}
	if err := a.cq.Wait(ctx); err != nil {
		return err
	}
	var wcs [1]verbs.WC
	if _, err := a.cq.Poll(wcs[:]); err != nil {
		return err
	}
	return wcs[0].Err()
}
