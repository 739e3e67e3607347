package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
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
	only   *regexp.Regexp
	hasVM  bool
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
	o, err := parse()
	if err != nil {
		return err
	}
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
		tell(before, result)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	if o.isWhole() {
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

func parse() (options, error) {
	var o options
	only := ""
	flag.IntVar(&o.rounds, "rounds", 5, "run everything this often")
	flag.Float64Var(&o.length, "length", 1, "how long programs run, of what a good figure takes")
	flag.StringVar(&o.rnic, "rnic", "bin/rnic", "the rnic `binary` to measure")
	flag.StringVar(&o.out, "out", "docs/bench", "`directory` of the stored run")
	flag.StringVar(&only, "only", "", "measure only rows that match this `expression`")
	flag.BoolVar(&o.hasVM, "vm", true, "also measure in the virtual machine, beside the kernel")
	flag.Parse()
	if flag.NArg() > 0 || o.rounds < 1 || o.length <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	if only == "" {
		return o, nil
	}
	var err error
	o.only, err = regexp.Compile("(?i)" + only)
	return o, err
}

// isWhole says that the run may take the place of the stored one.
func (o *options) isWhole() bool { return o.only == nil && o.length >= 1 && o.hasVM }

func (s *session) measure(ctx context.Context) *bench.Run {
	version, _ := exec.Command(s.rnic, "--version").Output()
	machine := bench.Describe(peerPackages...)
	figures := s.selected()
	result := bench.Measure(ctx, figures, bench.Options{
		Rounds:  s.options.rounds,
		Version: strings.TrimPrefix(strings.TrimSpace(string(version)), "rnic "),
		Progress: func(round, index, count int, g *bench.Gauge) {
			fmt.Fprintf(os.Stderr, "\r\x1b[Kround %d of %d, %d of %d: %s", round+1, s.options.rounds,
				index+1, count, g.Key)
		},
		Complain: func(g *bench.Gauge, err error) {
			fmt.Fprintf(os.Stderr, "\r\x1b[Kbench: %s: %v\n", g.Key, err)
		},
	})
	fmt.Fprint(os.Stderr, "\r\x1b[K")
	result.Machine = machine
	return result
}

// tell says what changed since the stored run.
func tell(before, now *bench.Run) {
	fmt.Printf("\ncompared with the stored run, SoftRNIC %s of %s:\n", before.Version,
		before.Begun.Format("2006-01-02 15:04"))
	changes := bench.Compare(before, now)
	for i := range changes {
		fmt.Println(changes[i].String())
	}
	if len(changes) == 0 {
		fmt.Println("no row changed by more than a tenth and its spread")
	}
}

// install copies a program to where an ordinary user finds it.
func install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
