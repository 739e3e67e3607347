package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/suite"
	"github.com/softrnic/softrnic/internal/bench/tool"
	"github.com/softrnic/softrnic/test/vmtest"
)

// inside is a virtual machine in which programs run beside the kernel's driver, each to its own
// address: on that of the kernel, and on a NIC of ours.
type inside struct {
	session *session
	name    string
	mtu     int
	driver  vmtest.Driver
	devices []string // of our NIC
	usesCM  bool

	image    *vmtest.Image
	machine  *vmtest.Machine
	nic      *vmtest.Program
	cleanups []func() // of the machine
	port     int
}

const (
	// guestPatience is long: an emulated processor is slow.
	guestPatience = 2 * time.Minute
	pollInterval  = 20 * time.Millisecond
)

// insidePrograms are perftest's that are run.
var insidePrograms = []string{
	"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat",
}

// open boots the machine, and starts our NIC in it.
func (v *inside) open(ctx context.Context) error {
	if runtime.GOARCH != "amd64" || os.Geteuid() != 0 {
		return bench.Missing("the virtual machine is an amd64 one, and its cable needs root")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		return bench.Missing("qemu-system-x86_64 is not installed (scripts/deps.sh interop)")
	}
	t := borrowedTB{cleanups: &v.cleanups}
	err := attempt(func() {
		if v.image == nil {
			kept := borrowedTB{cleanups: &v.session.cleanups}
			img, err := vmtest.Build(kept.TempDir(), vmtest.Config{
				Driver: v.driver, Programs: insidePrograms,
				Files: map[string]string{"usr/bin/rnic": v.session.rnic},
			})
			if err != nil {
				panic(bench.Missing("no image of a virtual machine: %w", err))
			}
			v.image = &img
			v.session.kernel = img.Kernel
		}
		v.machine = vmtest.Boot(t, *v.image, v.mtu)
	})
	if err != nil {
		return err
	}
	return v.startNIC(ctx)
}

// close ends the machine.
func (v *inside) close() {
	if v.nic != nil {
		v.nic.Stop()
	}
	for i := len(v.cleanups) - 1; i >= 0; i-- {
		v.cleanups[i]()
	}
	v.cleanups, v.machine, v.nic = nil, nil, nil
}

func (v *inside) startNIC(ctx context.Context) error {
	args := []string{"rnic", "up", "--log-level=warn"}
	for _, d := range v.devices {
		args = append(args, "--device="+d)
	}
	var err error
	if v.nic, err = v.machine.Start(args...); err != nil {
		return err
	}
	return v.await(ctx, v.nic, func() (bool, error) {
		r, err := v.run(ctx, "rnic", "devinfo", "--json")
		return err == nil && r.Status == 0, nil
	})
}

// run runs a program to its end.
func (v *inside) run(ctx context.Context, args ...string) (vmtest.Result, error) {
	p, err := v.machine.Start(args...)
	if err != nil {
		return vmtest.Result{}, err
	}
	return wait(ctx, p)
}

func wait(ctx context.Context, p *vmtest.Program) (vmtest.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, guestPatience)
	defer cancel()
	select {
	case r := <-p.Done:
		return r, nil
	case <-ctx.Done():
		p.Stop()
		return vmtest.Result{}, fmt.Errorf("a program in a virtual machine does not end: %w", ctx.Err())
	}
}

// await waits until something holds by what the program p does.
func (v *inside) await(
	ctx context.Context, p *vmtest.Program, holds func() (bool, error),
) error {
	for deadline := time.Now().Add(guestPatience); ; time.Sleep(pollInterval) {
		switch yes, err := holds(); {
		case err != nil:
			return err
		case yes:
			return nil
		case len(p.Done) > 0:
			r := <-p.Done
			return fmt.Errorf("ended with status %d: %s %s", r.Status, r.Output, r.Error)
		case time.Now().After(deadline) || ctx.Err() != nil:
			return errors.New("a program in the virtual machine is not ready")
		}
	}
}

// attempts are made where perftest may fail by itself: it misreads the clock of an emulated
// processor, and programs that connect by rdma_cm race with each other.
const attempts = 3

// perftest runs a program over the device of the kernel's or ours.
func (v *inside) perftest(ctx context.Context, isOurs bool, t tool.Perftest) (
	s bench.Sample, err error,
) {
	for range attempts {
		s, err = v.once(ctx, isOurs, t)
		if err == nil || ctx.Err() != nil || !errors.Is(err, tool.ErrClock) && !v.usesCM {
			break
		}
	}
	return s, err
}

func (v *inside) once(ctx context.Context, isOurs bool, t tool.Perftest) (bench.Sample, error) {
	t.Count = max(int(float64(t.Count)*v.session.options.length), 32) &^ 15
	if v.port == 0 {
		v.port = 20000
	}
	v.port++
	args := append(t.Arguments(), "-p", strconv.Itoa(v.port))
	if v.usesCM {
		args = append(args, "-R")
	}
	if isOurs {
		args = append([]string{"rnic", "run", "--"}, args...)
	}
	server, err := v.machine.Start(args...)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	if err := v.await(ctx, server, v.listens(ctx, isOurs)); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	r, err := v.run(ctx, append(args, vmtest.GuestV4)...)
	if err != nil {
		return nil, err
	}
	if r.Status != 0 {
		return nil, fmt.Errorf("%s: status %d: %s %s", t.Name, r.Status, r.Output, r.Error)
	}
	_, err = wait(ctx, server)
	if err != nil {
		return nil, err
	}
	return t.Read(r.Output)
}

// listens says how to find out that a server is ready.
func (v *inside) listens(ctx context.Context, isOurs bool) func() (bool, error) {
	if v.usesCM && isOurs {
		return func() (bool, error) {
			r, err := v.run(ctx, "rnic", "ps", "--json")
			return err == nil && tool.HasListener([]byte(r.Output)), err
		}
	}
	what := []string{"guest", "await", "tcp", strconv.Itoa(v.port)}
	if v.usesCM {
		what = []string{"guest", "await", "cm"}
	}
	return func() (bool, error) {
		r, err := v.run(ctx, what...)
		return err == nil && r.Status == 0, err
	}
}

// How much programs do there.
const (
	guestBytes    = 256 << 20
	guestCount    = 2000
	guestMessages = 32768
)

// figures sets programs on our NIC beside those on the kernel's device, with the ratios aimed at:
// of bandwidth, latency and rate; 0 leaves the rate out.
func (v *inside) figures(faster, quicker, oftener float64) []bench.Figure {
	stage := &bench.Stage{Name: v.name, Open: v.open, Close: v.close}
	row := func(t tool.Perftest, factor float64) bench.Row {
		gauge := func(who string, isOurs bool) *bench.Gauge {
			return &bench.Gauge{
				Key:   fmt.Sprintf("%s/%s/%s/%d", v.name, who, t.Name, t.Size),
				Who:   who,
				Stage: stage,
				Run: func(ctx context.Context) (bench.Sample, error) {
					return v.perftest(ctx, isOurs, t)
				},
			}
		}
		return bench.Row{
			Name: t.Name + " " + suite.Size(t.Size), Ours: gauge("SoftRNIC", true),
			Goals: []bench.Goal{{Peer: gauge(v.driver.Link, false), Factor: factor}},
		}
	}
	note := "SoftRNIC and the kernel's driver in one virtual machine with an emulated processor," +
		" each to its own address; as root."
	figure := func(key, title string, unit bench.Unit) bench.Figure {
		return bench.Figure{
			Key: v.key(key), Title: v.name + ": " + title, Unit: unit, Note: note,
		}
	}
	bandwidth := figure("bandwidth", "bandwidth", bench.Bandwidth)
	latency := figure("latency", "latency", bench.Latency)
	rate := figure("rate", "messages a second", bench.Rate)
	for _, name := range insidePrograms[:3] {
		bandwidth.Rows = append(bandwidth.Rows, row(tool.Perftest{
			Name: name, Size: 65536, Count: guestBytes / 65536,
		}, faster))
	}
	for _, name := range insidePrograms[3:] {
		latency.Rows = append(latency.Rows, row(tool.Perftest{
			Name: name, Size: 64, Count: guestCount,
		}, quicker))
	}
	if oftener == 0 {
		return []bench.Figure{bandwidth, latency}
	}
	for _, name := range []string{"ib_write_bw", "ib_send_bw"} {
		rate.Rows = append(rate.Rows, row(tool.Perftest{
			Name: name, Size: 2, Count: guestMessages, More: []string{"-l", "16"},
		}, oftener))
	}
	return []bench.Figure{bandwidth, latency, rate}
}

func (v *inside) key(what string) string {
	return fmt.Sprintf("vm-%s-%d-%s", v.driver.Link, v.mtu, what)
}
