package probe

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/sim"
)

// measureSimulator plays seeds on one core for a while, and tells packets a second.
func measureSimulator(_ context.Context, args []string) (bench.Sample, error) {
	var milliseconds int
	if err := numbers(args, &milliseconds); err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(1)
	begin, packets := time.Now(), uint64(0)
	until := begin.Add(time.Duration(milliseconds) * time.Millisecond)
	for seed := uint64(1); time.Now().Before(until); seed++ {
		r, err := sim.Run(sim.Config{Seed: seed, World: sim.WorldVerbs})
		if err != nil {
			return nil, err
		}
		packets += r.Packets + r.Local
	}
	return bench.Sample{bench.PerSecond: float64(packets) / time.Since(begin).Seconds()}, nil
}

// measureSimHosts tells how many NICs there are in the largest simulation that comes to its end: of
// the number asked for, or half of that, and so on.
func measureSimHosts(_ context.Context, args []string) (bench.Sample, error) {
	var hosts int
	if err := numbers(args, &hosts); err != nil {
		return nil, err
	}
	for ; hosts > 0; hosts /= 2 {
		_, err := sim.Run(sim.Config{
			Seed: 1, Hosts: hosts, World: sim.WorldVerbs, Duration: time.Millisecond,
		})
		switch {
		case errors.Is(err, sim.ErrFailed):
			return nil, err
		case err == nil:
			return bench.Sample{bench.Count: float64(hosts)}, nil
		}
	}
	return nil, errors.New("no simulation comes to its end")
}
