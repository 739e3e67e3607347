package rnet

import (
	"context"
	"net"
	"sync"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// Listener is a net.Listener.
type Listener struct {
	cfg     Config
	network string
	inner   *rdmacm.Listener
	session *rdmacm.Session
	pd      *verbs.PD       // of the session
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	ready   chan *Conn
	// places has a token for each connection that is being made or that nobody has accepted: a
	// peer that does not finish what it has begun holds up no other.
	places  chan struct{}
	running sync.WaitGroup
	once    sync.Once

	mu  sync.Mutex
	err error // why no more connections come, if not Close; guarded by mu
}

// pendingMax bounds connections that nobody has accepted. Requests beyond it wait in the NIC, up
// to the backlog.
const pendingMax = 128

// Listen listens for connections. Networks are as for Dialer.DialContext.
func Listen(network, address string, cfg Config) (*Listener, error) {
	return ListenContext(context.Background(), network, address, cfg)
}

// ListenContext is Listen with a context that bounds the call; it does not end the listener.
func ListenContext(ctx context.Context, network, address string, cfg Config) (*Listener, error) {
	fail := func(err error) (*Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	name, err := networkOf(network)
	if err != nil {
		return fail(err)
	}
	s, pd, err := cfg.hold(ctx)
	if err != nil {
		return fail(err)
	}
	cfg.CM.Session = s
	inner, err := rdmacm.Listen(ctx, name, address, cfg.CM)
	if err != nil {
		_ = s.Close()
		return fail(err)
	}
	l := &Listener{
		cfg: cfg, network: network, inner: inner, session: s, pd: pd,
		ready: make(chan *Conn), places: make(chan struct{}, pendingMax),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running.Go(l.run)
	return l, nil
}

// run takes requests until the listener ends.
func (l *Listener) run() {
	defer l.cancel() // who waits for a connection waits in vain
	for {
		select {
		case l.places <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		r, err := l.inner.Accept(l.ctx)
		if err != nil {
			if l.ctx.Err() == nil {
				l.mu.Lock()
				l.err = err
				l.mu.Unlock()
			}
			return
		}
		l.running.Go(func() {
			defer func() { <-l.places }()
			l.serve(r)
		})
	}
}

// serve makes a connection of a request and hands it out. A peer with which that fails learns so;
// to others it means nothing.
func (l *Listener) serve(r *rdmacm.Request) {
	h, err := parseHello(r.PrivateData())
	if err != nil {
		_ = r.Reject([]byte("rnet: " + err.Error()))
		return
	}
	s, err := l.session.Hold()
	if err != nil {
		_ = r.RejectFor(rdmacm.ReasonNoResources, nil)
		return
	}
	k, err := newLink(s, l.pd, &l.cfg)
	if err != nil {
		_ = r.RejectFor(rdmacm.ReasonNoResources, []byte("rnet: "+clip(err.Error())))
		return
	}
	rc, err := r.Accept(l.ctx, k.config())
	if err != nil {
		k.close()
		return
	}
	c := k.connect(rc, h)
	select {
	case l.ready <- c:
	case <-l.ctx.Done():
		_ = c.Close()
	}
}

// clip makes a sentence fit into a rejection.
func clip(s string) string { return s[:min(len(s), 128)] }

// Accept waits for the next connection. Once the listener is closed its error Is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if err == nil {
		err = net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: l.network, Source: l.Addr(), Err: err}
}

// Addr returns the rdmacm.Addr that the listener listens at.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close ends the listener and the connections that nobody has accepted.
func (l *Listener) Close() (err error) {
	l.once.Do(func() {
		l.cancel()
		err = l.inner.Close()
		l.running.Wait()
		_ = l.session.Close()
	})
	return err
}
