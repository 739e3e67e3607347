package rnet

import (
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// link is what a connection needs before there is one.
type link struct {
	cfg  *Config
	pump *pump
	cq   *verbs.CQ
	mr   *verbs.MR // ring and mirror
	ring int       // bytes of either
}

// newLink takes the session over; pd is of it.
func newLink(s *rdmacm.Session, pd *verbs.PD, cfg *Config) (*link, error) {
	p, err := pumpOf(s, pd.Context())
	if err != nil {
		return nil, err
	}
	l := &link{cfg: cfg, pump: p, ring: cfg.ring()}
	l.cq, err = p.device.CreateCQ(verbs.CQConfig{
		Entries: sendQueue + receives, Channel: p.channel,
	})
	if err == nil {
		const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
		l.mr, err = pd.AllocMemory(2*l.ring, access)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *link) close() {
	if l.cq != nil {
		_ = l.cq.Close()
	}
	if l.mr != nil {
		_ = l.mr.Close()
	}
	l.pump.release()
}

func (l *link) hello() hello {
	return hello{
		addr: l.mr.Addr(), rkey: l.mr.RKey(), ring: uint32(l.ring), receives: receives,
	}
}

// config is what the queue pair has to be like.
func (l *link) config() rdmacm.Config {
	cm, h := l.cfg.CM, l.hello()
	cm.Session, cm.PD = l.pump.session, nil
	cm.QP = verbs.QPConfig{
		SendCQ: l.cq, MaxSendWR: sendQueue, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1,
	}
	cm.ResponderResources, cm.InitiatorDepth = -1, -1
	cm.PrivateData = h.marshal()
	cm.Prepare = func(qp *verbs.QP) error {
		_, err := qp.PostRecv(make([]verbs.RecvWR, receives)...)
		return err
	}
	return cm
}

// connect makes the connection of a queue pair that is connected to one that sent h.
func (l *link) connect(rc *rdmacm.Conn, h hello) *Conn {
	size := min(l.ring, int(h.ring))
	memory := l.mr.Bytes()
	c := &Conn{
		rc: rc, pump: l.pump, cq: l.cq, qp: rc.QP(), mr: l.mr,
		ring: memory[:size], mirror: memory[l.ring : l.ring+size], mirrorAt: l.ring,
		peer: h, slotsMax: int(h.receives) - controlReserve,
		lingerTime: l.cfg.linger(), probeEvery: l.cfg.keepAlive(),
		reads:  side{wake: make(chan struct{}, 1)},
		writes: side{wake: make(chan struct{}, 1)},
	}
	c.out.size, c.out.window, c.out.slots = size, size, c.slotsMax
	l.pump.add(c)
	if c.probeEvery > 0 {
		c.mu.Lock()
		c.probe = time.AfterFunc(c.probeEvery, c.handleProbe)
		c.mu.Unlock()
	}
	return c
}
