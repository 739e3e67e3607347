package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/netio/faulty"
)

// upOptions are the flags of a NIC.
type upOptions struct {
	socket     string
	devices    []string
	addresses  []string
	interfaces []string
	fault      string
	logLevel   string
	logFormat  string
	idleExit   time.Duration
	group      string
	layout     string
	limit      string
	direct     string
	localOnly  bool
	metrics    string // of rnic up only
}

// nicFlags are the flags that describe a NIC; --socket says which.
var nicFlags = []string{
	"device", "address", "interface", "fault", "log-level", "log-format", "group", "layout",
	"limit", "direct", "local-only",
}

func (o *upOptions) register(c *cobra.Command) {
	f := c.Flags()
	registerSocket(c, &o.socket)
	f.StringArrayVar(&o.devices, "device", nil,
		"a `device`, NAME[=TRANSPORT[,OPTION…]]; may be repeated. Transports: roce, iwarp, each of\n"+
			"one device; none leaves one out. Options of iwarp: crc=on|off, fpdu=auto|mss|large,\n"+
			"mpa=1|2, markers=on|off, congestion=auto|host\n"+
			"(default: rnic0=roce and, unless --local-only, iwarp0=iwarp)")
	f.StringSliceVar(&o.addresses, "address", nil,
		"use only these `addresses` of the host (default: all)")
	f.StringSliceVar(&o.interfaces, "interface", nil,
		"use only the addresses of these `interfaces` (default: all)")
	f.StringVar(&o.fault, "fault", "",
		"disturb packets on purpose, such as `loss=1%,reorder=2%,delay=200us`;\n"+
			"completions=200us holds completions back, so that many come at once;\n"+
			"connections over TCP (iWARP) are left alone: use tc netem")
	f.StringVar(&o.logLevel, "log-level", "info", "`level`: debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "`format`: text or json")
	f.StringVar(&o.group, "group", "", "let the members of this `group` use the NIC too")
	f.StringVar(&o.layout, "layout", "",
		"order GIDs as this `nic` does: rxe, irdma, mlx5, bnxt; or ib: a port with a LID")
	f.StringVar(&o.limit, "limit", "",
		"what one program may have, such as `qps=100,mrs=5000`; also pds, cqs, srqs, ahs, mws,\n"+
			"channels, xrcds, event-channels, cm-ids, and in bytes queue-memory, device-memory")
	f.StringVar(&o.direct, "direct", os.Getenv(ctl.DirectEnv),
		"`whether` the libraries of two programs of one user may carry out one-sided operations\n"+
			"themselves: on, off, or auto, which is on unless the system keeps such programs apart\n"+
			"(default: $RNIC_DIRECT, else auto)")
	f.BoolVar(&o.localOnly, "local-only", false,
		"serve programs of this host only, without UDP port 4791")
}

// check finds what is wrong with the values of flags, before anything is started.
func (o *upOptions) check() error {
	if _, err := o.logger(io.Discard); err != nil {
		return err
	}
	if _, err := daemon.ParseDevices(o.devices, o.localOnly); err != nil {
		return errors.New("--device: " + userText(err))
	}
	for _, text := range o.addresses {
		if _, err := netip.ParseAddr(text); err != nil {
			return fmt.Errorf("--address: %w", err)
		}
	}
	if o.metrics != "" {
		if _, _, err := net.SplitHostPort(o.metrics); err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
	}
	if _, err := faulty.Parse(o.fault); err != nil {
		return fmt.Errorf("--fault: %w", err)
	}
	if _, err := limits.ParseClient(o.limit); err != nil {
		return fmt.Errorf("--limit: %w", err)
	}
	if err := daemon.CheckDirect(o.direct); err != nil {
		return fmt.Errorf("--direct: %w", err)
	}
	if err := daemon.CheckLayout(o.layout); err != nil {
		return fmt.Errorf("--layout: %w", err)
	}
	if o.idleExit < 0 {
		return errors.New("--idle-exit: a negative time")
	}
	return nil
}

// backgroundArgs is the command line for a NIC like this in the background. Its first inherited
// descriptor is the pipe for its report.
func (o *upOptions) backgroundArgs() []string {
	args := []string{
		"up", "--report-fd=3", "--idle-exit=" + idleExit.String(),
		"--fault=" + o.fault, "--log-level=" + o.logLevel, "--log-format=" + o.logFormat,
		"--group=" + o.group, "--layout=" + o.layout, "--limit=" + o.limit,
		"--direct=" + o.direct, "--local-only=" + strconv.FormatBool(o.localOnly),
	}
	for _, d := range o.devices {
		args = append(args, "--device="+d)
	}
	for _, a := range o.addresses {
		args = append(args, "--address="+a)
	}
	for _, i := range o.interfaces {
		args = append(args, "--interface="+i)
	}
	return args
}

func (o *upOptions) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn, error", o.logLevel)
	}
	handlerOptions := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(out, handlerOptions)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, handlerOptions)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is neither text nor json", o.logFormat)
}

func newUp() *cobra.Command {
	var options upOptions
	reportFD := -1
	command := &cobra.Command{
		Use:   "up",
		Short: "Run a NIC in the foreground",
		Long: "Run a NIC in the foreground, until it is interrupted, \"rnic down\" ends it, or it has\n" +
			"been idle for as long as --idle-exit says.",
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			return options.check()
		},
		RunE: func(c *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGXFSZ) // a log that may grow no more is no reason to end
			collectEarly()
			if reportFD >= 0 {
				return upBackground(c, &options, os.NewFile(uintptr(reportFD), "report"))
			}
			return upForeground(c, &options)
		},
	}
	options.register(command)
	command.Flags().DurationVar(&options.idleExit, "idle-exit", 0,
		"end after this `time` without a program (default: never)")
	command.Flags().StringVar(&options.metrics, "metrics", "",
		"serve counters to Prometheus at http://`address`/metrics, such as 127.0.0.1:9471")
	command.Flags().IntVar(&reportFD, "report-fd", -1, "")
	_ = command.Flags().MarkHidden("report-fd") // it fails for a flag that does not exist
	return command
}

// collectEarly lets less garbage pile up than the runtime does by default. Only the control path
// makes any, and what a NIC has piled up while programs set their queues up it keeps while they do
// not: with 1,000 queue pairs that was 2.5 KiB for each. GOGC, if it is set, is stronger.
func collectEarly() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// config turns flags into the configuration of a NIC.
//
// Preconditions: check found nothing wrong.
func (o *upOptions) config(log io.Writer) (daemon.Config, error) {
	logger, err := o.logger(log)
	if err != nil {
		return daemon.Config{}, err
	}
	if err := setSocket(o.socket); err != nil {
		return daemon.Config{}, fail(err)
	}
	c := daemon.Config{
		SocketPath: os.Getenv(ctl.SocketEnv), Group: o.group,
		Devices: o.devices, Version: versionText(), Interfaces: o.interfaces,
		Layout: o.layout, NoNetwork: o.localOnly, Fault: o.fault, Limits: o.limit, Direct: o.direct,
		IdleExit: o.idleExit, Logger: logger,
	}
	for _, text := range o.addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return c, err
		}
		c.Addresses = append(c.Addresses, address)
	}
	return c, nil
}

// upForeground runs a NIC until somebody ends it.
func upForeground(c *cobra.Command, options *upOptions) error {
	config, err := options.config(c.ErrOrStderr())
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	door, err := listenMetrics(ctx, options.metrics)
	if err != nil {
		return fail(err)
	}
	nic, err := daemon.Start(ctx, config)
	if err != nil {
		door.close()
		return fail(err)
	}
	door.serve(nic.Status)
	defer door.close()
	fmt.Fprintf(c.OutOrStdout(), "%s is ready at %s\n", nic.DeviceNames(), nic.SocketPath())
	if err := nic.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fail(err)
	}
	return nil
}

// upBackground runs a NIC for "rnic run" and tells it how that went. From then on nobody looks:
// what happens goes to the log.
func upBackground(c *cobra.Command, options *upOptions, pipe *os.File) error {
	config, err := options.config(c.ErrOrStderr())
	var nic *daemon.Daemon
	if err == nil {
		nic, err = daemon.Start(c.Context(), config)
	}
	switch {
	case errors.Is(err, ctl.ErrRunning):
		return report{Running: true, Error: userText(err)}.send(pipe)
	case err != nil:
		return report{Error: userText(err)}.send(pipe)
	}
	// Who started it may have been killed meanwhile; the NIC then ends for want of programs.
	_ = report{LocalOnly: nic.LocalOnly()}.send(pipe)
	if err := nic.Wait(); err != nil {
		return fail(err)
	}
	return nil
}
