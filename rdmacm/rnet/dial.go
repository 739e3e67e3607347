package rnet

import (
	"context"
	"net"

	"github.com/softrnic/softrnic/rdmacm"
)

// Dialer connects. The zero value is fit for use.
type Dialer struct {
	Config Config
}

// Dial connects to a listener of this package. See Dialer.DialContext.
func Dial(network, address string) (net.Conn, error) {
	var d Dialer
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to a listener of this package. Networks are those of rdmacm, "rdma" and its
// like; "tcp" and its like mean the same, so that the method fits an http.Transport. The context
// ctx bounds the attempt.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, network, address string) (*Conn, error) {
	name, err := networkOf(network)
	if err != nil {
		return nil, err
	}
	cfg := d.Config
	s, pd, err := cfg.hold(ctx)
	if err != nil {
		return nil, err
	}
	l, err := newLink(s, pd, &cfg)
	if err != nil {
		return nil, err
	}
	rc, err := rdmacm.Dial(ctx, name, address, l.config())
	if err != nil {
		l.close()
		return nil, err
	}
	h, err := parseHello(rc.PrivateData())
	if err != nil {
		_ = rc.Close()
		l.close()
		return nil, err
	}
	return l.connect(rc, h), nil
}
