package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/verbs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rounds := flag.Int("n", 1000, "round trips")
	size := flag.Int("size", 64, "bytes of a message")
	listen := flag.String("listen", "", "be the end that answers, for one peer at this TCP address")
	connect := flag.String("connect", "", "be the end that asks, of the peer at this TCP address")
	flag.Parse()
	game := game{rounds: *rounds, size: *size}
	switch {
	case *rounds < 1 || *size < 1:
		return fmt.Errorf("-n and -size must be at least 1")
	case *listen != "":
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		return game.answer(ctx, l)
	case *connect != "":
		return game.ask(ctx, *connect)
	}
	return game.alone(ctx)
}

type game struct{ rounds, size int }

// alone plays both ends, on the NIC that RNIC_SOCKET names or else on one of its own.
func (g game) alone(ctx context.Context) error {
	var opts []verbs.Option
	if os.Getenv("RNIC_SOCKET") == "" {
		nic, err := softrnic.Start(ctx, softrnic.Config{})
		if err != nil {
			return err
		}
		defer nic.Close()
		opts = append(opts, verbs.WithConnector(nic))
	}
	a, err := newPlayer(ctx, g.size, opts...)
	if err != nil {
		return err
	}
	defer a.dev.Close()
	b, err := newPlayer(ctx, g.size, opts...)
	if err != nil {
		return err
	}
	defer b.dev.Close()
	if err := a.join(b.local); err != nil {
		return err
	}
	if err := b.join(a.local); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() { answered <- b.play(ctx, g.rounds, false) }()
	if err := g.measure(ctx, a); err != nil {
		return err
	}
	return <-answered
}

// answer plays one end; the peer comes by TCP to exchange endpoints.
func (g game) answer(ctx context.Context, l net.Listener) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	p, err := g.meet(ctx, conn)
	if err != nil {
		return err
	}
	defer p.dev.Close()
	return p.play(ctx, g.rounds, false)
}

func (g game) ask(ctx context.Context, address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	p, err := g.meet(ctx, conn)
	if err != nil {
		return err
	}
	defer p.dev.Close()
	return g.measure(ctx, p)
}

// meet makes a player, and joins it to the one at the other end of conn. Each end says "ready" once
// it can receive, so that nobody sends too early.
func (g game) meet(ctx context.Context, conn net.Conn) (*player, error) {
	defer conn.Close()
	p, err := newPlayer(ctx, g.size)
	if err != nil {
		return nil, err
	}
	var remote verbs.Endpoint
	var text, word string
	if _, err = fmt.Fprintln(conn, p.local); err == nil {
		_, err = fmt.Fscanln(conn, &text)
	}
	if err == nil {
		err = remote.UnmarshalText([]byte(text))
	}
	if err == nil {
		err = p.join(remote)
	}
	if err == nil {
		_, err = fmt.Fprintln(conn, "ready")
	}
	if err == nil {
		_, err = fmt.Fscanln(conn, &word)
	}
	if err != nil {
		p.dev.Close()
		return nil, fmt.Errorf("agree with the peer: %w", err)
	}
	return p, nil
}

func (g game) measure(ctx context.Context, p *player) error {
	begin := time.Now()
	if err := p.play(ctx, g.rounds, true); err != nil {
		return err
	}
	fmt.Printf("%d round trips of %d bytes, %v each\n", g.rounds, g.size,
		(time.Since(begin) / time.Duration(g.rounds)).Round(10*time.Nanosecond))
	return nil
}
