package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/suite"
	"github.com/softrnic/softrnic/internal/bench/tool"
	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/test/vmtest"
)

// session is what a run has around it.
type session struct {
	options  options
	dir      string
	rnic     string   // the copy to run
	probe    []string // the command of our own programs
	cleanups []func()
	figures  []bench.Figure
	kernel   string // of virtual machines, once there was one
}

// borrowedTB lets what is made for tests serve a program: a test that is skipped or fails ends in a
// panic with the reason, which attempt catches.
type borrowedTB struct {
	testing.TB
	cleanups *[]func()
}

func (borrowedTB) Helper() {}

func (t borrowedTB) Cleanup(f func()) { *t.cleanups = append(*t.cleanups, f) }

func (t borrowedTB) Skipf(format string, args ...any) { panic(bench.Missing(format, args...)) }

func (t borrowedTB) Fatalf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

func (t borrowedTB) Fatal(args ...any) { panic(errors.New(fmt.Sprint(args...))) }

func (t borrowedTB) TempDir() string {
	dir, err := os.MkdirTemp("", "rnic-bench-")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// attempt runs what is made for tests.
func attempt(f func()) (err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case error:
			err = problem
		default:
			panic(problem)
		}
	}()
	f()
	return nil
}

// prepare copies the programs to where an ordinary user finds them, and lists what is to be
// measured.
func prepare(o options) (*session, error) {
	if _, err := os.Stat(o.rnic); err != nil {
		return nil, fmt.Errorf("nothing to measure, run make build: %w", err)
	}
	dir, err := os.MkdirTemp("", "rnic-bench-")
	if err != nil {
		return nil, err
	}
	s := &session{options: o, dir: dir, rnic: filepath.Join(dir, "rnic")}
	s.cleanups = append(s.cleanups, func() { _ = os.RemoveAll(dir) })
	own := filepath.Join(dir, "bench")
	s.probe = []string{own, probeCommand}
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), tool.Install(o.rnic, s.rnic), tool.Install(self, own))
	}
	if err == nil {
		err = s.list()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// list is everything that is measured.
func (s *session) list() error {
	here, err := s.host(nil)
	if err != nil {
		return err
	}
	one := s.place("One host", &tool.Path{Server: here, Client: here, Address: "127.0.0.1"})
	s.figures = append(s.figures, suite.OneHost(one)...)
	for _, link := range []struct{ mtu, path int }{{1500, 1024}, {9000, 4096}} {
		if err := s.listVeth(link.mtu, link.path); err != nil {
			return err
		}
	}
	if s.options.hasVM {
		s.listInside()
	}
	s.figures = append(s.figures, suite.Scale(one)...)
	s.figures = append(s.figures, suite.Rest(one)...)
	s.figures = append(s.figures, suite.Connections(one))
	s.figures, err = bench.Select(s.figures, s.options.only)
	return err
}

// listInside adds what runs beside the kernel's drivers in a virtual machine.
func (s *session) listInside() {
	for _, mtu := range []int{1500, 9000} {
		v := &inside{
			session: s, name: fmt.Sprintf("In a VM, beside rxe, MTU %d", mtu), mtu: mtu,
			driver: vmtest.Rxe,
		}
		s.figures = append(s.figures, v.figures(3, 0.7, 3)...)
	}
	v := &inside{
		session: s, name: "In a VM, beside siw", mtu: 1500, driver: vmtest.Siw, usesCM: true,
		devices: []string{"rnic0=none", "iwarp0=iwarp,crc=off,fpdu=large"},
	}
	s.figures = append(s.figures, v.figures(1, 1, 0)...)
}

// listVeth adds what goes between two namespaces.
func (s *session) listVeth(mtu, pathMTU int) error {
	var one, two *netnstest.Namespace
	missing := attempt(func() {
		one, two = netnstest.Pair(borrowedTB{cleanups: &s.cleanups}, mtu)
	})
	if missing != nil {
		one, two = new(netnstest.Namespace), new(netnstest.Namespace)
	}
	name := fmt.Sprintf("Two hosts, MTU %d", mtu)
	roce, err := s.between(name, one, two)
	if err != nil {
		return err
	}
	places := []*suite.Place{roce}
	s.figures = append(s.figures, suite.TwoHosts(roce, pathMTU)...)
	for _, stream := range []struct {
		name, options string
		factor        float64
	}{
		{"iWARP without CRC", "crc=off,fpdu=large", 0.9},
		{"iWARP with CRC", "crc=on,fpdu=large", 0.7},
	} {
		p, err := s.between(fmt.Sprintf("%s, MTU %d", stream.name, mtu), one, two,
			"rnic0=none", "iwarp0=iwarp,"+stream.options)
		if err != nil {
			return err
		}
		p.Path.UsesCM = true
		places = append(places, p)
		s.figures = append(s.figures, suite.Stream(p, stream.factor)...)
	}
	s.figures = append(s.figures, suite.Connections(roce))
	if missing != nil {
		for _, p := range places {
			p.Stage.Open = func(context.Context) error { return missing }
			p.Stage.Close = func() {}
		}
	}
	return nil
}

// between makes a place of two namespaces, whose NICs have these devices.
func (s *session) between(name string, one, two *netnstest.Namespace, devices ...string) (
	*suite.Place, error,
) {
	server, err := s.host(one)
	if err != nil {
		return nil, err
	}
	client, err := s.host(two)
	if err != nil {
		return nil, err
	}
	server.Devices, client.Devices = devices, devices
	return s.place(name, &tool.Path{Server: server, Client: client, Address: one.V4.String()}), nil
}

func (s *session) host(ns *netnstest.Namespace) (*tool.Host, error) {
	h := tool.Host{Rnic: s.rnic, Probe: s.probe, User: tool.OrdinaryUser()}
	if ns != nil {
		h.Enter = ns.Do
	}
	return tool.NewHost(s.dir, h)
}

func (s *session) place(name string, path *tool.Path) *suite.Place {
	path.Length = s.options.length
	return suite.NewPlace(name, path)
}
