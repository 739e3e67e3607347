package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/sim"
)

// simOptions are the flags of "rnic sim".
type simOptions struct {
	config  sim.Config
	count   uint64
	jobs    int
	lines   int
	verbose bool
	trace   bool
}

func newSim() *cobra.Command {
	var options simOptions
	command := &cobra.Command{
		Use:   "sim",
		Short: "Simulate NICs, programs and bad networks from a seed, and check them from outside",
		Long: "Run the NIC's own core in worlds that seeds decide: hosts, programs, lossy links,\n" +
			"restarts; checkers from outside compare what happened with what verbs promise.\n" +
			"In the world of connections programs connect by rdma_cm, and time goes faster;\n" +
			"in that of iWARP the NICs are joined by TCP streams instead of packets.\n" +
			"The same seed and version give the same run.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if options.count == 0 || options.jobs < 1 {
				return fmt.Errorf("--count and --jobs start at 1")
			}
			if c.Flags().Changed("hosts") && options.config.Hosts < 1 {
				return fmt.Errorf("--hosts starts at 1; without it the seed chooses")
			}
			if options.trace && options.count > 1 {
				return fmt.Errorf("--trace is for one seed")
			}
			return options.run(c.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.Uint64Var(&options.config.Seed, "seed", 1, "first `seed`")
	flags.Uint64Var(&options.count, "count", 1, "how many seeds")
	flags.IntVar(&options.config.Hosts, "hosts", 0,
		fmt.Sprintf("hosts, up to %d (default: the seed chooses)", sim.HostsMax))
	flags.DurationVar(&options.config.Duration, "duration", 0,
		"virtual time of the trouble (default: the seed chooses)")
	flags.StringVar(&options.config.Faults, "faults", "",
		"how bad the world is: "+strings.Join(sim.FaultNames, ", ")+" (default: the seed chooses)")
	flags.StringVar(&options.config.World, "world", "",
		"which world: "+strings.Join(sim.WorldNames, ", ")+" (default: each seed in each of them)")
	flags.IntVar(&options.jobs, "jobs", runtime.GOMAXPROCS(0), "seeds to play at the same time")
	flags.IntVar(&options.lines, "lines", 60, "last lines of the trace to show after a failure")
	flags.BoolVarP(&options.verbose, "verbose", "v", false, "tell what each seed did")
	flags.BoolVar(&options.trace, "trace", false, "print every packet, request and completion")
	return command
}

// simTotal adds up what the runs did.
type simTotal struct {
	runs, failed, packets, requests uint64
}

func (o *simOptions) run(out io.Writer) error {
	var (
		mu    sync.Mutex
		total simTotal // guarded by mu, as out is
		bad   error
		wg    sync.WaitGroup
	)
	begin := time.Now()
	runs := make(chan sim.Config)
	for range o.jobs {
		wg.Go(func() {
			for config := range runs {
				if o.trace {
					config.Trace = out
				}
				r, err := sim.Run(config)
				mu.Lock()
				if err != nil && len(r.Failures) == 0 {
					bad = err
				}
				total.add(&r)
				o.show(out, &config, &r)
				mu.Unlock()
			}
		})
	}
	o.plan(runs)
	close(runs)
	wg.Wait()
	if bad != nil {
		return bad // about the command line
	}
	seconds := time.Since(begin).Seconds()
	fmt.Fprintf(out, "%d runs, %d failed: %d requests, %d packets in %.1f s: "+
		"%.1f runs/s, %.0f packets/s\n", total.runs, total.failed, total.requests, total.packets,
		seconds, float64(total.runs)/seconds, float64(total.packets)/seconds)
	if total.failed > 0 {
		return failf("%d of %d runs failed", total.failed, total.runs)
	}
	return nil
}

// plan lists what is to be played.
func (o *simOptions) plan(runs chan<- sim.Config) {
	worlds := sim.WorldNames
	if o.config.World != "" {
		worlds = []string{o.config.World}
	}
	for i := range o.count {
		for _, world := range worlds {
			config := o.config
			config.Seed, config.World = o.config.Seed+i, world
			runs <- config
		}
	}
}

func (t *simTotal) add(r *sim.Report) {
	t.runs++
	t.packets += r.Packets + r.Local
	t.requests += r.Requests
	if len(r.Failures) > 0 {
		t.failed++
	}
}

func (o *simOptions) show(out io.Writer, config *sim.Config, r *sim.Report) {
	if o.verbose {
		fmt.Fprintf(out, "seed %d: %s\n  at rest %v after the trouble; %d requests, "+
			"%d completions, %d packets; trace %016x\n", r.Seed, r.Plan,
			r.Rest.Round(time.Microsecond), r.Requests, r.Completions, r.Packets+r.Local, r.Hash)
		for _, name := range slices.Sorted(maps.Keys(r.Marks)) {
			fmt.Fprintf(out, "  %8d %s\n", r.Marks[name], name)
		}
	}
	if len(r.Failures) == 0 {
		return
	}
	for _, line := range r.Tail[max(0, len(r.Tail)-o.lines):] {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "seed %d failed (%s)\n", r.Seed, r.Plan)
	for _, f := range r.Failures {
		fmt.Fprintf(out, "  %s\n", f)
	}
	fmt.Fprintf(out, "replay: %s\n", config.Replay())
}
