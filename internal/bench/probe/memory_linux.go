package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/bench"
)

// coldBytes is more than a cache holds, so that every copy of measureCopy is one from memory to
// memory.
const coldBytes = 256 << 20

// measureCopy copies pieces that nobody has touched for long.
func measureCopy(_ context.Context, args []string) (bench.Sample, error) {
	var size, count int
	if err := numbers(args, &size, &count); err != nil {
		return nil, err
	}
	if size == 0 || size > coldBytes {
		return nil, errors.New("no such size")
	}
	source, err := anonymous(coldBytes)
	if err != nil {
		return nil, err
	}
	target, err := anonymous(coldBytes)
	if err != nil {
		return nil, err
	}
	// Pages are there from the first touch on.
	for i := 0; i < coldBytes; i += os.Getpagesize() {
		source[i], target[i] = byte(i>>12), 1
	}
	begin, at := time.Now(), 0
	for range count {
		if at+size > coldBytes {
			at = 0
		}
		copy(target[at:at+size], source[at:at+size])
		at += size
	}
	took := float64(time.Since(begin).Nanoseconds())
	return bench.Sample{bench.Bandwidth: float64(count) * float64(size) / took}, nil
}

func anonymous(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return b, nil
}

const (
	// sharedBytes is a page: two words that two processes look at, on cache lines of their own.
	sharedBytes = 4096
	pongOffset  = 2048
	// batch is how many round trips are timed at once: the clock takes its time as well.
	batch = 20
	// pollsBeforeYield lets others run when the other side does not for long.
	pollsBeforeYield = 2000
)

// measurePingPong lets two processes answer each other through a word of shared memory each, both
// looking all the time: no message between processes is faster.
func measurePingPong(ctx context.Context, args []string) (bench.Sample, error) {
	var rounds int
	if err := numbers(args, &rounds); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("pingpong", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "pingpong")
	defer file.Close()
	if err := file.Truncate(sharedBytes); err != nil {
		return nil, err
	}
	page, err := mapShared(fd)
	if err != nil {
		return nil, err
	}
	rounds = max(rounds/batch, 1) * batch
	one, two, err := twoProcessors()
	if err != nil {
		return nil, err
	}
	other, err := self(ctx, pong, fmt.Sprint(rounds), fmt.Sprint(two))
	if err != nil {
		return nil, err
	}
	other.ExtraFiles = []*os.File{file}
	if err := other.Start(); err != nil {
		return nil, err
	}
	if err := stayOn(one); err != nil {
		return nil, err
	}
	ping, answer := word(page, 0), word(page, pongOffset)
	var times []time.Duration
	for i := 0; i < rounds; i += batch {
		begin := time.Now()
		for j := range batch {
			ping.Store(uint64(i + j + 1))
			awaitWord(answer, uint64(i+j+1))
		}
		times = append(times, time.Since(begin)/batch)
	}
	if err := other.Wait(); err != nil {
		return nil, err
	}
	return bench.Sample{bench.Latency: oneWay(times)}, nil
}

// oneWay is half of the median of round trips, in µs.
func oneWay(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 2e3
}

func playPong(_ context.Context, args []string) (bench.Sample, error) {
	var rounds, processor int
	if err := numbers(args, &rounds, &processor); err != nil {
		return nil, err
	}
	if err := stayOn(processor); err != nil {
		return nil, err
	}
	const inherited = 3
	page, err := mapShared(inherited)
	if err != nil {
		return nil, err
	}
	ping, answer := word(page, 0), word(page, pongOffset)
	for i := range rounds {
		awaitWord(ping, uint64(i+1))
		answer.Store(uint64(i + 1))
	}
	return nil, nil
}

// twoProcessors are those for the two sides: two that share one would answer each other only when
// the kernel lets them. Where there is but one it is both.
func twoProcessors() (one, two int, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, 0, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var found []int
	for i := 0; len(found) < min(2, allowed.Count()); i++ {
		if allowed.IsSet(i) {
			found = append(found, i)
		}
	}
	return found[0], found[len(found)-1], nil
}

// stayOn keeps the calling goroutine on a processor.
func stayOn(processor int) error {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(processor)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	return nil
}

func awaitWord(w *atomic.Uint64, want uint64) {
	for polls := 1; w.Load() != want; polls++ {
		if polls%pollsBeforeYield == 0 {
			yield()
		}
	}
}

// yield lets another process have the processor.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

func mapShared(fd int) ([]byte, error) {
	page, err := unix.Mmap(fd, 0, sharedBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return page, nil
}

// Command is how this program plays the programs of this package; whoever calls Main sets it.
var Command []string

// self prepares a process that plays another program of this package.
func self(ctx context.Context, args ...string) (*exec.Cmd, error) {
	if len(Command) == 0 {
		return nil, errors.New("nobody said how to start another program")
	}
	line := append(Command[:len(Command):len(Command)], args...)
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c, nil
}
