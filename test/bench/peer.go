package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/rdmacm/rnet"
)

// peerEnv makes this program one side of a measurement of the Go packages: "serve" or "dial",
// which net, and on the dialing side what is to be measured.
const peerEnv = "SOFTRNIC_BENCH_PEER"

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
	"tcp": {
		listen: func(address string) (net.Listener, error) { return net.Listen("tcp", address) },
		dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		},
	},
	"rnet": {
		listen: func(address string) (net.Listener, error) {
			return rnet.Listen("rdma", address, rnet.Config{})
		},
		dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			var d rnet.Dialer
			return d.DialContext(ctx, "rdma", address)
		},
	},
}

// playPeer is the program as one side: role, net, what, address.
func playPeer(args []string) error {
	if len(args) != 4 {
		return errors.New("wrong use of " + peerEnv)
	}
	role, network, what, address := args[0], args[1], args[2], args[3]
	if role == "serve" {
		return servePeer(network, what, address)
	}
	perSecond, err := measurePeer(network, what, address)
	if err != nil {
		return err
	}
	_, err = fmt.Println(perSecond)
	return err
}

// servePeer serves until it is killed. When it is ready, it listens on the TCP port of the same
// number, if it is another.
func servePeer(network, what, address string) error {
	if network == "rdmacm" {
		return serveCM(address)
	}
	l, err := peerNets[network].listen(address)
	if err != nil {
		return err
	}
	if err := ready(network, address); err != nil {
		return err
	}
	if what == "http" {
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
	if network == "tcp" {
		return nil
	}
	_, err := net.Listen("tcp", address)
	return err
}

// serveCM accepts, and closes when the peer does.
func serveCM(address string) error {
	ctx := context.Background()
	session, err := rdmacm.Share(ctx, nil)
	if err != nil {
		return err
	}
	cfg := rdmacm.Config{Session: session, Backlog: dials}
	l, err := rdmacm.Listen(ctx, "rdma", address, cfg)
	if err != nil {
		return err
	}
	if err := ready("rdmacm", address); err != nil {
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

// measurePeer returns how many a second.
func measurePeer(network, what, address string) (float64, error) {
	if what == "http" {
		return measureHTTP(network, address)
	}
	dial := func() error { return greet(network, address) }
	if network == "rdmacm" {
		session, err := rdmacm.Share(context.Background(), nil)
		if err != nil {
			return 0, err
		}
		dial = func() error { return dialCM(session, address) }
	}
	if err := dial(); err != nil { // what is made once
		return 0, err
	}
	workers := 1
	if what == "parallel" {
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
func greet(network, address string) error {
	c, err := peerNets[network].dial(context.Background(), network, address)
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

func dialCM(session *rdmacm.Session, address string) error {
	c, err := rdmacm.Dial(context.Background(), "rdma", address, rdmacm.Config{Session: session})
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

// peer measures one of the Go packages once; network "tcp" is what it is compared with.
func (b *bench) peer(p path, network, what string) (float64, error) {
	b.port++
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	address := net.JoinHostPort(p.address, strconv.Itoa(b.port))
	command := []string{b.rnic, "run", "--", self}
	if network == "tcp" {
		command = command[3:]
	}
	listen := ":" + strconv.Itoa(b.port)
	server := p.server.command(command[0], append(command[1:], "serve", network, what, listen)...)
	client := p.client.command(command[0], append(command[1:], "dial", network, what, address)...)
	server.Env = append(server.Env, peerEnv+"=1")
	client.Env = append(client.Env, peerEnv+"=1")
	report, err := p.pair(server, client, b.tcpListens(b.port))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(bytes.TrimSpace([]byte(report))), 64)
}
