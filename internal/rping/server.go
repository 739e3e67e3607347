package rping

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// clientsMax bounds the clients that a server has at a time: each may make it hold SizeMax bytes.
const clientsMax = 64

// Visit is what a server tells of a client that has left.
type Visit struct {
	Remote net.Addr
	Rounds int
	Bytes  uint64 // each way
	Err    error  // nil when the client has left in peace
}

// Server answers clients.
type Server struct {
	session  *rdmacm.Session
	listener *rdmacm.Listener
}

// Listen makes a server at "host:port"; an empty host is every address of the NIC.
func Listen(ctx context.Context, address string, cfg Config) (*Server, error) {
	session, err := rdmacm.Open(ctx, cfg.NIC)
	if err != nil {
		return nil, err
	}
	l, err := rdmacm.Listen(ctx, "rdma", address, rdmacm.Config{Session: session, Device: cfg.Device})
	if err != nil {
		_ = session.Close()
		return nil, err
	}
	return &Server{session: session, listener: l}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers until ctx ends, which is no error, or the NIC does. It calls left for each client
// that has left, from one goroutine at a time. The server is of no use after it.
func (s *Server) Serve(ctx context.Context, left func(Visit)) error {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer func() { _ = s.session.Close() }()
	defer clients.Wait()
	defer cancel()
	defer func() { _ = s.listener.Close() }()
	var mu sync.Mutex // orders calls of left
	places := make(chan struct{}, clientsMax)
	for {
		request, err := s.listener.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("rping: %w", err)
		}
		select {
		case places <- struct{}{}:
		default:
			_ = request.RejectFor(rdmacm.ReasonNoResources, nil)
			continue
		}
		clients.Go(func() {
			visit := s.serve(ctx, request)
			<-places
			mu.Lock()
			defer mu.Unlock()
			left(visit)
		})
	}
}

// serve answers one client until it leaves.
func (s *Server) serve(ctx context.Context, request *rdmacm.Request) (v Visit) {
	v.Remote = request.RemoteAddr()
	pd, err := s.session.PDOn(ctx, request.Device())
	var l *link
	if err == nil {
		l, err = newLink(s.session, pd)
	}
	if err != nil {
		_ = request.RejectFor(rdmacm.ReasonNoResources, nil)
		v.Err = err
		return v
	}
	defer l.close()
	conn, err := request.Accept(ctx, l.config())
	if err != nil {
		v.Err = err
		return v
	}
	l.attach(conn)
	host := &host{link: l}
	defer host.close()
	for {
		n, err := host.round(ctx)
		if err != nil {
			if v.Err = l.reason(err); ctx.Err() != nil || errors.Is(v.Err, rdmacm.ErrDisconnected) {
				v.Err = nil
			}
			return v
		}
		v.Rounds++
		v.Bytes += uint64(n)
	}
}

// host is the server's side of one connection.
type host struct {
	link *link
	data *verbs.MR
}

func (h *host) close() {
	if h.data != nil {
		_ = h.data.Close()
	}
}

// round reads the client's buffer and writes it into the other one.
func (h *host) round(ctx context.Context) (int, error) {
	source, err := h.link.await(ctx)
	if err != nil {
		return 0, err
	}
	if err := h.grow(source.size); err != nil {
		return 0, err
	}
	n := int(source.size)
	err = h.link.post(verbs.SendWR{
		ID: idRead, Opcode: verbs.WRRead, SGE: h.data.SGE(0, n), RemoteAddr: source.addr,
		RKey: source.key,
	})
	if err == nil {
		err = h.link.awaitRead(ctx)
	}
	if err == nil {
		err = h.link.send(buffer{})
	}
	if err != nil {
		return 0, err
	}
	sink, err := h.link.await(ctx)
	if err != nil {
		return 0, err
	}
	n = min(n, int(sink.size))
	err = h.link.post(verbs.SendWR{
		Opcode: verbs.WRWrite, SGE: h.data.SGE(0, n), RemoteAddr: sink.addr,
		RKey: sink.key,
	})
	if err != nil {
		return 0, err
	}
	return n, h.link.send(buffer{}) // it arrives after what was written
}

// grow makes room for as much as the client wants.
func (h *host) grow(size uint32) error {
	switch {
	case size == 0 || size > SizeMax:
		return fmt.Errorf("%w: a buffer of %d bytes; at most %d", ErrProtocol, size, SizeMax)
	case h.data != nil && h.data.Len() >= int(size):
		return nil
	}
	h.close()
	mr, err := h.link.pd.AllocMemory(int(size), verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	h.data = mr
	return nil
}

// partingTime is how long the end of a connection may take to be known after its requests were
// flushed.
const partingTime = 2 * time.Second

// reason prefers why the connection is over to what that did to a request.
func (l *link) reason(err error) error {
	if !errors.Is(err, verbs.ErrFlushed) {
		return err
	}
	select {
	case <-l.conn.Done():
		return l.conn.Err()
	case <-time.After(partingTime):
		return err
	}
}
