package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/rping"
)

// pingOptions are the flags of rnic ping.
type pingOptions struct {
	socket   string
	device   string
	listen   bool
	port     string
	count    int
	interval time.Duration
	timeout  time.Duration
	size     int
	verify   bool
	quiet    bool
}

func newPing() *cobra.Command {
	var options pingOptions
	command := &cobra.Command{
		Use:   "ping {HOST | --listen [ADDRESS]}",
		Short: "Measure round trips over RDMA, as ping and rping do",
		Long: "Measure round trips over RDMA: connect to \"rnic ping --listen\" on HOST, or to the\n" +
			"server of rping, and let it fetch a buffer by RDMA READ and bring it back by RDMA\n" +
			"WRITE. A round is four messages, one READ and one WRITE; its time is about that of\n" +
			"three plain round trips. Until ^C or --count rounds; then comes a summary.\n\n" +
			"With --listen, answer such clients, rping among them, until ^C.\n\n" +
			"If there is no NIC yet, one is started in the background, as by \"rnic run\".\n" +
			"An rping server has room for as many bytes as its own -S says, by default 64.\n\n" +
			"The exit status is 0 when all rounds came back, and undamaged if --verify was given.",
		Example: "  rnic ping --listen           # on one host\n" +
			"  rnic ping -V -c 5 server     # on another\n" +
			"  rnic ping -i 0 -c 10000 -q server",
		Args: func(_ *cobra.Command, args []string) error { return options.check(args) },
		RunE: func(c *cobra.Command, args []string) error { return options.run(c, args) },
	}
	registerSocket(command, &options.socket)
	f := command.Flags()
	f.BoolVarP(&options.listen, "listen", "l", false,
		"answer clients, at ADDRESS or at all addresses of the NIC")
	f.StringVarP(&options.device, "device", "d", "",
		"use this `device` (default: $RNIC_DEVICE, else as the address says)")
	f.StringVarP(&options.port, "port", "p", rping.DefaultPort, "`port` of the server")
	f.IntVarP(&options.count, "count", "c", 0, "end after so many `rounds` (default: do not)")
	f.DurationVarP(&options.interval, "interval", "i", time.Second,
		"`time` from one round to the next; 0 is without a pause")
	f.DurationVarP(&options.timeout, "timeout", "W", 10*time.Second,
		"give up a connection or a round after this `time`")
	f.IntVarP(&options.size, "size", "s", 64, "`bytes` of a round, each way")
	f.BoolVarP(&options.verify, "verify", "V", false, "compare what comes back with what was sent")
	f.BoolVarP(&options.quiet, "quiet", "q", false, "print the summary only")
	return command
}

func (o *pingOptions) check(args []string) error {
	switch {
	case !o.listen && len(args) == 0:
		return errors.New("which host? (or --listen)")
	case len(args) > 1:
		return fmt.Errorf("unknown argument %q", args[1])
	case o.size < 1 || o.size > rping.SizeMax:
		return fmt.Errorf("--size: %d bytes are not from 1 to %d", o.size, rping.SizeMax)
	case o.count < 0 || o.interval < 0:
		return errors.New("--count and --interval must not be negative")
	case o.timeout <= 0:
		return errors.New("--timeout: the time must be longer than 0")
	}
	return nil
}

// address adds the port to a host, unless it has one.
func (o *pingOptions) address(args []string) string {
	if len(args) == 0 {
		return net.JoinHostPort("", o.port)
	}
	if _, _, err := net.SplitHostPort(args[0]); err == nil {
		return args[0]
	}
	return net.JoinHostPort(args[0], o.port)
}

func (o *pingOptions) run(c *cobra.Command, args []string) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// The connection keeps a NIC that was started for us until we are done.
	nic, started, err := join(defaultNIC(o.socket))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = nic.Close() }()
	if started != nil && started.LocalOnly != "" {
		fmt.Fprintf(c.ErrOrStderr(), "rnic ping: the NIC reaches only programs of this user: %s\n",
			started.LocalOnly)
	}
	if o.listen {
		return o.serve(ctx, c.OutOrStdout(), o.address(args))
	}
	return o.ping(ctx, c.OutOrStdout(), o.address(args))
}

// defaultNIC is the NIC that "rnic run" starts without flags.
func defaultNIC(socket string) *upOptions {
	options := new(upOptions)
	options.register(&cobra.Command{}) // it has the defaults
	options.socket = socket
	return options
}

// serve answers clients until ctx ends.
func (o *pingOptions) serve(ctx context.Context, out io.Writer, address string) error {
	s, err := rping.Listen(ctx, address, rping.Config{Device: o.device})
	if err != nil {
		return fail(err)
	}
	fmt.Fprintf(out, "listening at %v\n", s.Addr())
	err = s.Serve(ctx, func(v rping.Visit) {
		if o.quiet {
			return
		}
		why := ""
		if v.Err != nil {
			why = ": " + v.Err.Error()
		}
		fmt.Fprintf(out, "%v: %d rounds, %s each way%s\n", v.Remote, v.Rounds,
			byteCount(v.Bytes), why)
	})
	if err != nil {
		return fail(err)
	}
	return nil
}

// ping goes round until ctx ends, or as often as it was told to.
func (o *pingOptions) ping(ctx context.Context, out io.Writer, address string) error {
	c, err := o.dial(ctx, address)
	if err != nil {
		if ctx.Err() != nil {
			return failf("interrupted before there was a connection to %s", address)
		}
		return fail(err)
	}
	defer c.Close()
	fmt.Fprintf(out, "PING %s from %v: %d bytes by READ and WRITE\n", c.RemoteAddr(), c.LocalAddr(),
		o.size)
	var stats rping.Stats
	begin := time.Now()
	lost := o.rounds(ctx, out, c, &stats)
	elapsed := time.Since(begin)
	fmt.Fprintf(out, "\n--- %s rnic ping statistics ---\n%d rounds%s, time %dms\n", address,
		stats.Rounds, o.verdict(&stats), elapsed.Milliseconds())
	if stats.Rounds > 0 {
		fmt.Fprintln(out, &stats)
	}
	switch {
	case lost != nil:
		return fail(lost)
	case stats.Damaged > 0:
		return failf("%d of %d rounds: %w", stats.Damaged, stats.Rounds, rping.ErrDamaged)
	case stats.Rounds == 0:
		return failf("interrupted before the first round")
	}
	return nil
}

func (o *pingOptions) dial(ctx context.Context, address string) (*rping.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return rping.Dial(ctx, address, rping.Config{
		Device: o.device, Size: o.size, Verify: o.verify,
	})
}

// rounds returns why it could not go on; nil when it was done or interrupted.
func (o *pingOptions) rounds(
	ctx context.Context, out io.Writer, c *rping.Client, stats *rping.Stats,
) error {
	for next := time.Now(); ; {
		took, err := o.round(ctx, c)
		damaged := errors.Is(err, rping.ErrDamaged)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && !damaged:
			return err
		}
		stats.Add(took, damaged)
		if !o.quiet {
			note := ""
			if damaged {
				note = " DAMAGED"
			}
			fmt.Fprintf(out, "%d bytes: seq=%d time=%.1f us%s\n", o.size, stats.Rounds,
				float64(took)/1e3, note)
		}
		next = next.Add(o.interval)
		if stats.Rounds == o.count || ctx.Err() != nil ||
			o.interval > 0 && !pause(ctx, time.Until(next)) {
			return nil
		}
	}
}

func (o *pingOptions) round(ctx context.Context, c *rping.Client) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	took, err := c.Round(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer for %v", o.timeout)
	}
	return took, err
}

// verdict is what --verify adds to the summary.
func (o *pingOptions) verdict(s *rping.Stats) string {
	if !o.verify {
		return ""
	}
	return fmt.Sprintf(", %d verified, %d damaged", s.Rounds-s.Damaged, s.Damaged)
}
