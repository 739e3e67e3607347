package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/probe"
)

// probeCommand as first argument makes this program one of package probe.
const probeCommand = "probe"

// peerPackages are those of the peers, and of the programs that measure.
var peerPackages = []string{
	"perftest", "qperf", "iperf3", "ucx-utils", "libfabric-bin", "rdmacm-utils", "qemu-system-x86",
}

// options are the command line.
type options struct {
	rounds int
	length float64
	rnic   string
	out    string
	only   string
	hasVM  bool
	// isElsewhere says that the command line names a directory for the run.
	isElsewhere bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == probeCommand {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		probe.Command = []string{self, probeCommand}
		return probe.Main(ctx, os.Stdout, os.Args[2:])
	}
	o := parse()
	before, err := bench.Load(o.out)
	if err != nil {
		return err
	}
	s, err := prepare(o)
	if err != nil {
		return err
	}
	defer s.close()
	result := s.measure(ctx)
	fmt.Print(result.Text())
	if before != nil {
		fmt.Print(bench.Differences(before, result))
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	if o.isStored() {
		if err := result.Store(o.out, before); err != nil {
			return err
		}
		fmt.Printf("\nwritten: %s\n", filepath.Join(o.out, "README.md"))
	} else {
		fmt.Println("\nnot stored: this was no whole run")
	}
	if result.HasFailed() {
		return fmt.Errorf("something could not be measured, see above")
	}
	return nil
}

func parse() options {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "run everything this often")
	flag.Float64Var(&o.length, "length", 1, "how long programs run, of what a good figure takes")
	flag.StringVar(&o.rnic, "rnic", "bin/rnic", "the rnic `binary` to measure")
	flag.StringVar(&o.out, "out", "docs/bench", "`directory` of the stored run")
	flag.StringVar(&o.only, "only", "", "measure only rows that match this `expression`")
	flag.BoolVar(&o.hasVM, "vm", true, "also measure in the virtual machine, beside the kernel")
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { o.isElsewhere = o.isElsewhere || f.Name == "out" })
	if flag.NArg() > 0 || o.rounds < 1 || o.length <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	return o
}

// isStored says that the run may take the place of the stored one: a part of it does so only where
// it was asked to.
func (o *options) isStored() bool {
	return o.isElsewhere || o.only == "" && o.length >= 1 && o.hasVM
}

func (s *session) measure(ctx context.Context) *bench.Run {
	version, _ := exec.Command(s.rnic, "--version").Output()
	machine := bench.Describe(peerPackages...)
	result := bench.Measure(ctx, s.figures, bench.Options{
		Rounds:   s.options.rounds,
		Version:  strings.TrimPrefix(strings.TrimSpace(string(version)), "rnic "),
		Progress: bench.Ticker(os.Stderr, s.options.rounds), Complain: bench.Complainer(os.Stderr),
	})
	result.Machine = machine
	if s.kernel != "" {
		result.Machine.Peers = append(result.Machine.Peers, s.kernel+" in the virtual machine")
	}
	result.Machine.User = "an ordinary user" // see tool.OrdinaryUser
	return result
}
