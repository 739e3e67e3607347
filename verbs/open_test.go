package verbs

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

func TestOpen_NoNIC_NamesTheRemedy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := Open(t.Context(), "", WithSocket(path))
	if !errors.Is(err, ErrNoNIC) || !strings.Contains(err.Error(), "rnic up") ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	t.Setenv(ctl.SocketEnv, path)
	if _, err := Devices(t.Context()); !errors.Is(err, ErrNoNIC) {
		t.Errorf("by environment: %v", err)
	}
}

func TestDevices_ListsAndLeavesNothingBehind(t *testing.T) {
	n := newFakeNIC(t)
	list, err := Devices(t.Context(), WithConnector(n))
	want := []DeviceInfo{
		{Name: "rnic0", NodeGUID: 7, Ports: 1, Transport: TransportIB},
		{Name: "iwarp0", NodeGUID: 8, Ports: 1, Transport: TransportIWARP},
	}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%+v, %v", list, err)
	}
	<-n.ended // the connection was closed
}

func TestOpen_UnknownDevice_NamesThoseThatExist(t *testing.T) {
	_, err := Open(t.Context(), "mlx5_0", WithConnector(newFakeNIC(t)))
	if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "rnic0, iwarp0") {
		t.Errorf("got %v", err)
	}
}

func TestOpen_ByName_OpensThatDevice(t *testing.T) {
	for name, want := range map[string]string{
		"": "rnic0", "rnic0": "rnic0", "iwarp0": "iwarp0",
	} {
		n := newFakeNIC(t)
		c, err := Open(t.Context(), name, WithConnector(n))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Device().Name; got != want || n.device != want {
			t.Errorf("%q opened %s, and the NIC %s", name, got, n.device)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpen_Refused_ClosesAllDescriptors(t *testing.T) {
	n := newFakeNIC(t)
	n.deny(abi.OpOpenDevice, syscall.ENOSPC, "limit of 1 contexts")
	before := descriptors(t)
	if _, err := Open(t.Context(), "", WithConnector(n)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	n.kill()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// mute accepts connections and never answers.
type mute struct{ nic *net.UnixConn }

func (m *mute) Connect(context.Context) (client *net.UnixConn, err error) {
	client, m.nic, err = ctl.Pair()
	return client, err
}

func TestOpen_MuteNIC_EndsWithTheContext(t *testing.T) {
	before := descriptors(t)
	var m mute
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	within(t, "Open", func() {
		if _, err := Open(ctx, "", WithConnector(&m)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	_ = m.nic.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestContext_Close_ReturnsEveryDescriptor(t *testing.T) {
	before := descriptors(t)
	n := newFakeNIC(t)
	r := newRigOn(t, n, QPConfig{})
	if _, err := r.pd.AllocMemory(10000, AccessAll); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ctx.CreateCompletionChannel(); err != nil {
		t.Fatal(err)
	}
	if err := r.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	n.kill()
	n.lane.Release()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
