package tool

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
)

// programWait bounds one program; a measurement takes seconds.
const programWait = 3 * time.Minute

// Path is where the two programs of a measurement run.
type Path struct {
	Server, Client *Host
	// Address is the server's.
	Address string
	// UsesCM connects by rdma_cm, as queue pairs of iWARP have to.
	UsesCM bool
	// Length scales how long programs run; 1 is for figures that people can trust.
	Length float64

	port  int
	setUp map[string]time.Duration // see setUpTime
}

// firstPort is below those that the system gives out by itself.
const firstPort = 20000

// nextPort returns one that no program has had: a closed one may linger.
func (p *Path) nextPort() int {
	if p.port == 0 {
		p.port = firstPort + os.Getpid()%5000
	}
	p.port++
	return p.port
}

// Open starts the NICs of both hosts.
func (p *Path) Open(ctx context.Context) error {
	if err := p.Server.Up(ctx); err != nil {
		return err
	}
	if p.Client == p.Server {
		return nil
	}
	return p.Client.Up(ctx)
}

// Close ends them.
func (p *Path) Close() {
	p.Server.Down()
	if p.Client != p.Server {
		p.Client.Down()
	}
}

// scaled is a number of operations for this path.
func (p *Path) scaled(count int) int { return max(int(float64(count)*p.Length), 100) }

// seconds is a duration for programs that count whole ones.
func (p *Path) seconds() int { return max(int(2*p.Length), 1) }

// pair is a server and its client.
type pair struct {
	server, client []string
	env            []string
	// ready says that the server, with this number, takes a client.
	ready func(pid int) bool
	// isEndless says that the server never ends by itself.
	isEndless bool
	// packageName is what brings the program, where it may be missing.
	packageName string
}

// outcome is what a pair did.
type outcome struct {
	// client and server are what they printed.
	client, server string
	// cpu is what both and the NICs used of processors.
	cpu time.Duration
}

// both runs a pair.
func (p *Path) both(ctx context.Context, w pair) (o outcome, err error) {
	if err := installed(w.server[0], w.packageName); err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(ctx, programWait)
	defer cancel()
	var heard, report bytes.Buffer
	server := p.Server.Command(ctx, w.server...)
	client := p.Client.Command(ctx, w.client...)
	server.Env = append(server.Env, w.env...)
	client.Env = append(client.Env, w.env...)
	server.Stdout, server.Stderr = &heard, &heard
	client.Stdout, client.Stderr = &report, &report
	before := p.nicTime()
	if err := p.Server.Start(server); err != nil {
		return o, err
	}
	done := make(chan struct{})
	go func() {
		_ = server.Wait() // killed most often
		close(done)
	}()
	end := func() {
		if !w.isEndless {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Second):
			}
		}
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		<-done
	}
	if err = awaitServer(ctx, server, done, w.ready); err == nil {
		if err = p.Client.Start(client); err == nil {
			err = client.Wait()
		}
	} else {
		w.isEndless = true
	}
	end()
	if err != nil {
		return o, fmt.Errorf("%w; the client said %q, the server %q", err,
			lastLine(report.String()), lastLine(heard.String()))
	}
	o.client, o.server = report.String(), heard.String()
	o.cpu = p.nicTime() - before + cpuOf(server) + cpuOf(client)
	return o, nil
}

// installed finds out whether a program is there.
func installed(name, packageName string) error {
	if _, err := exec.LookPath(name); err != nil {
		return bench.Missing("%s is not installed (package %s)", name, packageName)
	}
	return nil
}

func awaitServer(
	ctx context.Context, server *exec.Cmd, done <-chan struct{}, ready func(int) bool,
) error {
	for !ready(server.Process.Pid) {
		select {
		case <-done:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// lastLine is where programs say what went wrong.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// listens looks a TCP port up in the tables of the namespace that the process is in.
func listens(port int) func(pid int) bool {
	local := fmt.Sprintf(":%04X", port)
	return func(pid int) bool {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				fields := strings.Fields(line)
				if len(fields) > 3 && strings.HasSuffix(fields[1], local) && fields[3] == "0A" {
					return true
				}
			}
		}
		return false
	}
}

func cpuOf(c *exec.Cmd) time.Duration {
	if c.ProcessState == nil {
		return 0
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// nicTime is what the NICs have used of processors.
func (p *Path) nicTime() time.Duration {
	total := cpuTime(p.Server.NICPID())
	if p.Client != p.Server {
		total += cpuTime(p.Client.NICPID())
	}
	return total
}
