package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/telemetry"
)

// statOptions are the flags of rnic stat.
type statOptions struct {
	clientOptions
	prometheus bool
	all        bool
	watch      time.Duration
}

// watchDefault is the interval of --watch without a value.
const watchDefault = time.Second

func newStat() *cobra.Command {
	var options statOptions
	command := &cobra.Command{
		Use:   "stat",
		Short: "Show the counters of the NIC's devices, their ports and queue pairs",
		Long: "Show the counters of the NIC's devices, their ports and queue pairs, under the names\n" +
			"that they have in hw_counters of rxe and in sysfs; the last column has mlx5's name where\n" +
			"it is another. What is 0 is left out unless --all is given.\n\n" +
			"Counters of a device (hw_counters) and of queue pairs count packets wherever they\n" +
			"go; sent_bytes and rcvd_bytes are payload. Counters of the port count what is on the\n" +
			"wire, with headers: port_xmit_data and port_rcv_data in words of four bytes, as\n" +
			"elsewhere. Packets between queue pairs of this NIC are on no wire\n" +
			"(looped_packets). Packets within the NIC carry up to 32 KiB each.",
		Example: "  rnic stat\n" +
			"  rnic stat --watch          # changes, each second, until ^C\n" +
			"  rnic stat --json | jq .hw_counters.local_ack_timeout_err\n" +
			"  rnic stat --prometheus     # or let \"rnic up --metrics ADDRESS\" serve them",
		Args: cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error {
			return options.check(c.Flags().Changed("watch"))
		},
		RunE: func(c *cobra.Command, _ []string) error { return options.run(c) },
	}
	options.register(command)
	f := command.Flags()
	f.BoolVar(&options.prometheus, "prometheus", false,
		"print in the text format of Prometheus, once")
	f.BoolVarP(&options.all, "all", "a", false,
		"also counters that are 0, and all those of each queue pair")
	f.DurationVarP(&options.watch, "watch", "w", 0,
		"go on until ^C, showing what changed in each `interval` (--watch alone: 1s)")
	f.Lookup("watch").NoOptDefVal = watchDefault.String()
	return command
}

func (o *statOptions) check(watch bool) error {
	switch {
	case watch && o.watch <= 0:
		return errors.New("--watch: the interval must be longer than 0")
	case o.prometheus && o.json:
		return errors.New("--prometheus and --json exclude each other")
	case o.prometheus && watch:
		return errors.New("--prometheus shows one moment: leave --watch away," +
			" or let \"rnic up --metrics\" serve them")
	}
	return nil
}

func (o *statOptions) run(c *cobra.Command) error {
	nic, err := dial(o.socket)
	if err != nil {
		return fail(startHint(err))
	}
	defer func() { _ = nic.Close() }()
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	now, err := nic.counters()
	if err != nil {
		return fail(err)
	}
	if err := o.show(c.OutOrStdout(), now, nil); err != nil {
		return err
	}
	for o.watch > 0 && pause(ctx, o.watch) {
		before := now
		if now, err = nic.counters(); err != nil {
			return fail(err)
		}
		if err := o.show(c.OutOrStdout(), now, &before); err != nil {
			return err
		}
	}
	return nil
}

// pause reports whether the time went by undisturbed.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// counters asks for one snapshot.
func (c *connection) counters() (telemetry.Snapshot, error) {
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return telemetry.Snapshot{}, err
	}
	status, err := c.status()
	if err != nil {
		return telemetry.Snapshot{}, err
	}
	return telemetry.Of(&status), nil
}

// show prints a snapshot, or what it has beyond the one before.
func (o *statOptions) show(
	out io.Writer, now telemetry.Snapshot, before *telemetry.Snapshot,
) error {
	switch {
	case o.prometheus:
		if err := telemetry.WritePrometheus(out, now); err != nil {
			return fail(err)
		}
		return nil
	case o.json:
		return printJSON(out, now)
	case before != nil:
		fmt.Fprintf(out, "\n%s\n", time.Now().Format(time.TimeOnly))
		printChanges(out, now.Since(before), o.watch)
		return nil
	}
	printStat(out, now, o.all)
	return nil
}

// printStat prints counters by section.
func printStat(out io.Writer, s telemetry.Snapshot, all bool) {
	l := &listing{out: out}
	section := func(title string, counters []telemetry.Counter) {
		l.section(title+"\tVALUE\tMLX5", func(row func(string, ...any)) {
			for _, c := range counters {
				if all || c.Value != 0 {
					row("%s\t%d\t%s", c.Name, c.Value, c.Alias)
				}
			}
		})
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		section(d.Name+" HW_COUNTERS", d.HW)
		section(portTitle(d), d.Port)
	}
	section(s.Devices[0].Name+" SOFTWARE", s.Software)
	printQPTable(l, s.QPs)
	if !all {
		return
	}
	for i := range s.QPs {
		q := &s.QPs[i]
		l.section(qpTitle(q)+"\tVALUE\tMLX5", func(row func(string, ...any)) {
			for _, c := range q.Counters {
				row("%s\t%d\t%s", c.Name, c.Value, c.Alias)
			}
		})
	}
}

func portTitle(d *telemetry.Device) string { return fmt.Sprintf("%s PORT %d", d.Name, d.Number) }

func qpTitle(q *telemetry.QP) string {
	return fmt.Sprintf("QP %#06x %s %s[%d]", q.QPN, q.Type, q.Program, q.PID)
}

// printQPTable has what people look for first, a line for each queue pair.
func printQPTable(l *listing, qps []telemetry.QP) {
	l.section("QPN\tOWNER\tDEVICE\tTYPE\tSTATE\tSENT PKTS\tSENT BYTES\tRCVD PKTS\tRCVD BYTES\tRETRIES"+
		"\tRETRANSMITTED\tNAKS SENT\tNAKS RCVD", func(row func(string, ...any)) {
		for i := range qps {
			q := &qps[i]
			row("%#06x\t%s[%d]\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", q.QPN, q.Program,
				q.PID, dashed(q.Device), q.Type, q.State, q.Get("sent_pkts"), q.Get("sent_bytes"),
				q.Get("rcvd_pkts"), q.Get("rcvd_bytes"), q.Get("retries"), q.Get("retransmitted_pkts"),
				q.Get("send_nak")+q.Get("send_rnr_err"), q.Get("rcvd_naks"))
		}
	})
}

// printChanges prints what was counted in an interval, and how much that is in a second.
func printChanges(out io.Writer, s telemetry.Snapshot, interval time.Duration) {
	l := &listing{out: out}
	section := func(title string, counters []telemetry.Counter) {
		l.section(title+"\tCHANGE\tPER SECOND", func(row func(string, ...any)) {
			for _, c := range counters {
				if c.Value != 0 {
					row("%s\t%d\t%.0f", c.Name, c.Value, float64(c.Value)/interval.Seconds())
				}
			}
		})
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		section(d.Name+" HW_COUNTERS", d.HW)
		section(portTitle(d), d.Port)
	}
	for i := range s.QPs {
		section(qpTitle(&s.QPs[i]), s.QPs[i].Counters)
	}
}
