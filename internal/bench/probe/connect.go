package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/rdmacm/rnet"
)

// Networks of the programs ConnectServe and Connect, and what they measure.
const (
	NetworkTCP  = "tcp"
	NetworkRnet = "rnet"
	NetworkCM   = "rdmacm"

	InTurn = "in-turn" // connections, one after the other
	AtOnce = "at-once" // 1000 of them
	HTTP   = "http"    // requests, of which a connection carries many
)

const (
	// dials is how many connections are made, one after the other or at once.
	dials = 1000
	// requests is how many HTTP requests are asked, and askers by how many at once.
	requests = 20000
	askers   = 8
	// helloBytes go each way on every connection, so that a connection is one that works.
	helloBytes = 1
)

// peerNet is a way between the two sides.
type peerNet struct {
	listen func(address string) (net.Listener, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

var peerNets = map[string]peerNet{
	NetworkTCP: {
		listen: func(address string) (net.Listener, error) { return net.Listen("tcp", address) },
		dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		},
	},
	NetworkRnet: {
		listen: func(address string) (net.Listener, error) {
			return rnet.Listen("rdma", address, rnet.Config{})
		},
		dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			var d rnet.Dialer
			return d.DialContext(ctx, "rdma", address)
		},
	},
}

// measureConnect is the dialing side: how many a second.
func measureConnect(ctx context.Context, args []string) (bench.Sample, error) {
	address, network, what, err := connectArguments(args)
	if err != nil {
		return nil, err
	}
	perSecond, err := measurePeer(ctx, network, what, address)
	return bench.Sample{bench.PerSecond: perSecond}, err
}

// serveConnect serves until it is killed. When it is ready, it listens on the TCP port of the same
// number, if it is another.
func serveConnect(ctx context.Context, args []string) (bench.Sample, error) {
	address, network, what, err := connectArguments(args)
	if err != nil {
		return nil, err
	}
	return nil, servePeer(ctx, network, what, address)
}

func connectArguments(args []string) (address, network, what string, err error) {
	if len(args) != 3 || peerNets[args[1]].listen == nil && args[1] != NetworkCM {
		return "", "", "", fmt.Errorf("%v: an address, a network and a kind are wanted", args)
	}
	return args[0], args[1], args[2], nil
}

func servePeer(ctx context.Context, network, what, address string) error {
	if network == NetworkCM {
		return serveCM(ctx, address)
	}
	l, err := peerNets[network].listen(address)
	if err != nil {
		return err
	}
	if err := ready(network, address); err != nil {
		return err
	}
	if what == HTTP {
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
		}))
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.CopyN(c, c, helloBytes)
			_ = c.Close()
		}()
	}
}

// ready tells the measuring program that it can start the other side.
func ready(network, address string) error {
	if network == NetworkTCP {
		return nil
	}
	_, err := net.Listen("tcp", address)
	return err
}

// serveCM accepts, and closes when the peer does.
func serveCM(ctx context.Context, address string) error {
	session, err := rdmacm.Share(ctx, nil)
	if err != nil {
		return err
	}
	cfg := rdmacm.Config{Session: session, Backlog: dials}
	l, err := rdmacm.Listen(ctx, "rdma", address, cfg)
	if err != nil {
		return err
	}
	if err := ready(NetworkCM, address); err != nil {
		return err
	}
	for {
		r, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		go func() {
			c, err := r.Accept(ctx, cfg)
			if err != nil {
				return // the dialing side knows why
			}
			<-c.Done()
			_ = c.Close()
		}()
	}
}

func measurePeer(ctx context.Context, network, what, address string) (float64, error) {
	if what == HTTP {
		return measureHTTP(network, address)
	}
	dial := func() error { return greet(ctx, network, address) }
	if network == NetworkCM {
		session, err := rdmacm.Share(ctx, nil)
		if err != nil {
			return 0, err
		}
		dial = func() error { return dialCM(ctx, session, address) }
	}
	if err := dial(); err != nil { // what is made once
		return 0, err
	}
	workers := 1
	if what == AtOnce {
		workers = dials
	}
	return rate(workers, dials, dial)
}

// rate runs do so often, by so many at once.
func rate(workers, times int, do func() error) (float64, error) {
	var all sync.WaitGroup
	failures := make(chan error, workers)
	begin := time.Now()
	for range workers {
		all.Go(func() {
			for range times / workers {
				if err := do(); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	select {
	case err := <-failures:
		return 0, err
	default:
		return float64(times) / took.Seconds(), nil
	}
}

// greet makes a connection, exchanges a byte, and closes.
func greet(ctx context.Context, network, address string) error {
	c, err := peerNets[network].dial(ctx, network, address)
	if err != nil {
		return err
	}
	var hello [helloBytes]byte
	if _, err := c.Write(hello[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return err
	}
	return c.Close()
}

func dialCM(ctx context.Context, session *rdmacm.Session, address string) error {
	c, err := rdmacm.Dial(ctx, "rdma", address, rdmacm.Config{Session: session})
	if err != nil {
		return err
	}
	return c.Close()
}

func measureHTTP(network, address string) (float64, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext: peerNets[network].dial, MaxIdleConnsPerHost: askers,
	}}
	ask := func() error {
		rsp, err := client.Get("http://" + address + "/")
		if err != nil {
			return err
		}
		defer rsp.Body.Close()
		text, err := io.ReadAll(rsp.Body)
		if err == nil && string(text) != "hello" {
			err = fmt.Errorf("the answer is %q", text)
		}
		return err
	}
	if _, err := rate(askers, askers, ask); err != nil {
		return 0, err
	}
	return rate(askers, requests, ask)
}
