package rnet

import (
	"context"
	"sync"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// pump wakes the connections of a device of a session when their completion queues have news. It is
// one goroutine and one pipe for all of them.
type pump struct {
	session *rdmacm.Session
	device  *verbs.Context // of the session
	channel *verbs.CompletionChannel
	done    chan struct{} // closed when the goroutine has ended

	refs int // guarded by pumps.mu

	mu    sync.Mutex
	conns map[*verbs.CQ]*Conn // guarded by mu
}

var pumps = struct {
	mu sync.Mutex
	by map[*verbs.Context]*pump // guarded by mu
}{by: map[*verbs.Context]*pump{}}

// pumpOf returns the pump of a device of a session, which it takes over, with a reference for the
// caller.
func pumpOf(s *rdmacm.Session, device *verbs.Context) (*pump, error) {
	pumps.mu.Lock()
	defer pumps.mu.Unlock()
	if p := pumps.by[device]; p != nil {
		p.refs++
		return p, s.Close() // the pump has a hold of its own
	}
	ch, err := device.CreateCompletionChannel()
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	p := &pump{
		session: s, device: device, channel: ch, done: make(chan struct{}), refs: 1,
		conns: map[*verbs.CQ]*Conn{},
	}
	pumps.by[device] = p
	go p.run()
	return p, nil
}

// release gives a reference back. The queues of its holder are closed.
func (p *pump) release() {
	pumps.mu.Lock()
	p.refs--
	last := p.refs == 0
	if last {
		delete(pumps.by, p.device)
	}
	pumps.mu.Unlock()
	if !last {
		return
	}
	_ = p.channel.Close()
	<-p.done
	_ = p.session.Close()
}

func (p *pump) run() {
	defer close(p.done)
	for {
		cq, err := p.channel.Next(context.Background())
		if err != nil {
			p.fail(err)
			return
		}
		p.mu.Lock()
		c := p.conns[cq]
		p.mu.Unlock()
		if c != nil {
			c.handleEvent()
		}
	}
}

// fail ends all connections: the NIC is gone.
func (p *pump) fail(err error) {
	p.mu.Lock()
	list := make([]*Conn, 0, len(p.conns))
	for _, c := range p.conns {
		list = append(list, c)
	}
	p.mu.Unlock()
	for _, c := range list {
		c.mu.Lock()
		c.failLocked(err)
		c.mu.Unlock()
	}
}

func (p *pump) add(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c.cq] = c
}

func (p *pump) remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c.cq)
}
