package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/probe"
	"github.com/softrnic/softrnic/internal/bench/suite"
	"github.com/softrnic/softrnic/internal/bench/tool"
)

// benchOptions are the flags of "rnic bench".
type benchOptions struct {
	rounds int
	length float64
	only   string
	out    string
}

// benchPackages are those of programs that are measured where they are installed.
var benchPackages = []string{"perftest", "qperf", "ucx-utils", "libfabric-bin"}

func newBench() *cobra.Command {
	var options benchOptions
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure SoftRNIC beside TCP and shared memory on this machine",
		Long: "Measure bandwidth, latency and messages a second of programs on a NIC of their own,\n" +
			"what many queue pairs cost, and what an idle NIC does; beside them, in turn, TCP and the\n" +
			"limits of the machine. Needs nothing else. Where perftest is installed, it is measured\n" +
			"as well, beside qperf, UCX and libfabric if they are there.\n\n" +
			"Each round runs everything once; a value is the median, with the lowest and the highest.\n" +
			"With --out the report, plots and data are written into a directory, and compared with\n" +
			"the run that is there.",
		Example: "  rnic bench\n  rnic bench --only latency --rounds 9",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if options.rounds < 1 || !(options.length > 0) {
				return errors.New("--rounds starts at 1, and --length above 0")
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return options.run(c) },
	}
	f := command.Flags()
	f.IntVar(&options.rounds, "rounds", 3, "how `often` everything runs")
	f.Float64Var(&options.length, "length", 0.2,
		"how long programs run; 1 is for figures to publish, several times as long as the default")
	f.StringVar(&options.only, "only", "", "measure only rows that match this `expression`")
	f.StringVar(&options.out, "out", "", "`directory` for the report, its plots and the data")
	command.AddCommand(newProbe())
	return command
}

// newProbe is what measuring programs run as.
func newProbe() *cobra.Command {
	return &cobra.Command{
		Use: "probe NAME [ARGUMENTS]", Hidden: true, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return fail(err)
			}
			probe.Command = []string{self, "bench", "probe"}
			if err := probe.Main(c.Context(), c.OutOrStdout(), args); err != nil {
				return fail(err)
			}
			return nil
		},
	}
}

func (o *benchOptions) run(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var before *bench.Run
	var err error
	if o.out != "" {
		if before, err = bench.Load(o.out); err != nil {
			return fail(err)
		}
	}
	figures, cleanUp, err := o.figures(c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer cleanUp()
	machine := bench.Describe(benchPackages...)
	result := bench.Measure(ctx, figures, bench.Options{
		Rounds: o.rounds, Version: versionText(),
		Progress: bench.Ticker(c.ErrOrStderr(), o.rounds),
		Complain: bench.Complainer(c.ErrOrStderr()),
	})
	if ctx.Err() != nil {
		return failf("interrupted")
	}
	result.Machine = machine
	fmt.Fprint(c.OutOrStdout(), result.Text())
	if before != nil {
		fmt.Fprint(c.OutOrStdout(), bench.Differences(before, result))
	}
	if o.out != "" {
		if err := result.Store(o.out, before); err != nil {
			return fail(err)
		}
	}
	if result.HasFailed() {
		return failf("something could not be measured, see above")
	}
	return nil
}

// figures lists what can be measured here, on a NIC of its own.
func (o *benchOptions) figures(say io.Writer) ([]bench.Figure, func(), error) {
	dir, err := os.MkdirTemp("", "rnic-bench-")
	if err != nil {
		return nil, nil, fail(err)
	}
	cleanUp := func() { _ = os.RemoveAll(dir) }
	self, err := os.Executable()
	var host *tool.Host
	if err == nil {
		// Programs run in directories of their own.
		self, err = filepath.Abs(self)
	}
	if err == nil {
		host, err = tool.NewHost(dir, tool.Host{
			Rnic: self, Probe: []string{self, "bench", "probe"},
		})
	}
	if err != nil {
		cleanUp()
		return nil, nil, fail(err)
	}
	place := suite.NewPlace("One host", &tool.Path{
		Server: host, Client: host, Address: "127.0.0.1", Length: o.length,
	})
	figures := suite.Own(place)
	if _, err := exec.LookPath("ib_write_bw"); err == nil {
		figures = append(figures, suite.OneHost(place)...)
	} else {
		fmt.Fprintln(say, "perftest is not installed, and so not measured")
	}
	figures = append(figures, suite.Scale(place)...)
	figures = append(figures, suite.Rest(place)...)
	figures, err = bench.Select(figures, o.only)
	if err == nil && len(figures) == 0 {
		err = fmt.Errorf("no row matches %q", o.only)
	}
	if err != nil {
		cleanUp()
		return nil, nil, fmt.Errorf("--only: %w", err)
	}
	return figures, cleanUp, nil
}
