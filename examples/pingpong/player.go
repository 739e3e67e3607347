package main

import (
	"context"
	"fmt"

	"github.com/softrnic/softrnic/verbs"
)

// player is one end: a queue pair and a buffer to receive into, and one to send from.
type player struct {
	dev   *verbs.Context
	cq    *verbs.CQ
	qp    *verbs.QP
	ball  *verbs.MR
	size  int
	local verbs.Endpoint
}

func newPlayer(ctx context.Context, size int, opts ...verbs.Option) (*player, error) {
	dev, err := verbs.Open(ctx, "", opts...)
	if err != nil {
		return nil, err
	}
	p := &player{dev: dev, size: size}
	if err := p.prepare(); err != nil {
		dev.Close() // and with it all that was made
		return nil, err
	}
	return p, nil
}

func (p *player) prepare() error {
	pd, err := p.dev.AllocPD()
	if err != nil {
		return err
	}
	if p.cq, err = p.dev.CreateCQ(verbs.CQConfig{Entries: 16}); err != nil {
		return err
	}
	if p.ball, err = pd.AllocMemory(2*p.size, verbs.AccessLocalWrite); err != nil {
		return err
	}
	p.qp, err = pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: p.cq})
	if err != nil {
		return err
	}
	p.local, err = p.qp.Endpoint()
	return err
}

// join connects to the peer and posts the first receive.
func (p *player) join(peer verbs.Endpoint) error {
	if err := p.qp.ConnectTo(peer); err != nil {
		return err
	}
	return p.receive()
}

func (p *player) receive() error {
	_, err := p.qp.PostRecv(verbs.RecvWR{SGE: p.ball.SGE(0, p.size)})
	return err
}

func (p *player) send() error {
	_, err := p.qp.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGE: p.ball.SGE(p.size, p.size),
	})
	return err
}

// play serves first, or answers, until each end has sent n messages.
func (p *player) play(ctx context.Context, n int, first bool) error {
	sent, received, completed := 0, 0, 0
	if first {
		if err := p.send(); err != nil {
			return err
		}
		sent++
	}
	var wcs [4]verbs.WC
	for received < n || completed < n {
		if err := p.cq.Wait(ctx); err != nil {
			return err
		}
		got, err := p.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:got] {
			wc := &wcs[i]
			switch {
			case wc.Err() != nil:
				return wc.Err()
			case wc.Opcode == verbs.WCOpSend:
				completed++
				continue
			case int(wc.ByteLen) != p.size:
				return fmt.Errorf("a message of %d bytes came, not %d", wc.ByteLen, p.size)
			}
			received++
			if err := p.receive(); err != nil {
				return err
			}
			if sent < n {
				if err := p.send(); err != nil {
					return err
				}
				sent++
			}
		}
	}
	return nil
}
