package conformance

import (
	"os"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/verbs"
)

func start(t *testing.T, c softrnic.Config) *softrnic.NIC {
	t.Helper()
	nic, err := softrnic.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, nic)
	return nic
}

func open(t *testing.T, nic *softrnic.NIC) *verbs.Context {
	t.Helper()
	ctx, err := nic.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, ctx)
	return ctx
}

// Two programs, one NIC: packets pass by reference.
func TestConformance_GoVerbs_OneNIC(t *testing.T) {
	nic := start(t, softrnic.Config{})
	Run(t, NewGoFabric(t, open(t, nic), open(t, nic), nil))
}

// Two NICs on a wire, at each path MTU that RoCE has.
func TestConformance_GoVerbs_TwoNICs(t *testing.T) {
	for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096} {
		t.Run(mtu.String(), func(t *testing.T) {
			wire := softrnic.NewNetwork()
			a := start(t, softrnic.Config{Network: wire, MTU: mtu})
			b := start(t, softrnic.Config{Network: wire, MTU: mtu})
			Run(t, NewGoFabric(t, open(t, a), open(t, b), nil))
		})
	}
}

// A NIC process that the caller has started: make conformance sets RNIC_SOCKET.
func TestConformance_GoVerbs_NICProcess(t *testing.T) {
	if os.Getenv("RNIC_SOCKET") == "" {
		t.Skip("RNIC_SOCKET names no NIC process")
	}
	var ctx [2]*verbs.Context
	for i := range ctx {
		var err error
		if ctx[i], err = verbs.Open(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, ctx[i])
	}
	Run(t, NewGoFabric(t, ctx[0], ctx[1], nil))
}
