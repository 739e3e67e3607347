package rdmacm_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// twin is a NIC with a device of each transport.
func twin(t *testing.T) *softrnic.NIC {
	t.Helper()
	return nictest.Start(t, softrnic.Config{Devices: []string{"rnic0", "iwarp0=iwarp"}})
}

func TestSession_Devices_TheFirstUnlessTheUserSaysWhich(t *testing.T) {
	for env, want := range map[string]string{"": "rnic0", "rnic0": "rnic0", "iwarp0": "iwarp0"} {
		t.Setenv("RNIC_DEVICE", env)
		s, err := rdmacm.Open(t.Context(), twin(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Device().Device().Name; got != want || s.PD().Context() != s.Device() {
			t.Errorf("RNIC_DEVICE=%s: the session is on %s", env, got)
		}
		for _, name := range []string{"", "rnic0", "iwarp0"} {
			pd, err := s.PDOn(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			again, err := s.PDOn(t.Context(), name)
			if err != nil || again != pd {
				t.Errorf("a second domain on %q, %v", name, err)
			}
			if got := pd.Context().Device().Name; name != "" && got != name ||
				name == "" && pd != s.PD() {
				t.Errorf("the domain on %q is one of %s", name, got)
			}
		}
		if _, err := s.PDOn(t.Context(), "mlx5_0"); !errors.Is(err, verbs.ErrNoDevice) {
			t.Errorf("a domain on a device that is not there: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.PDOn(t.Context(), ""); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a domain of a closed session: %v", err)
		}
	}
}

func TestShare_DeviceThatIsNotThere_NamesThoseThatAre(t *testing.T) {
	t.Setenv("RNIC_DEVICE", "mlx5_0")
	_, err := rdmacm.Share(t.Context(), twin(t))
	if !errors.Is(err, verbs.ErrNoDevice) || !strings.Contains(err.Error(), "rnic0, iwarp0") {
		t.Errorf("got %v", err)
	}
}

func TestDial_OnTheChosenDevice_MeetsListenersThere(t *testing.T) {
	nic := twin(t)
	on := func(device string) rdmacm.Config { return rdmacm.Config{NIC: nic, Device: device} }
	l := listen(t, "rdma", "127.0.0.1:0", on("rnic0"))
	for _, device := range []string{"", "rnic0"} {
		a, b := meet(t, l, l.Addr().String(), on(device), on(device))
		for _, c := range []*rdmacm.Conn{a, b} {
			if got := c.QP().PD().Context().Device().Name; got != "rnic0" {
				t.Errorf("%q: a queue pair on %s", device, got)
			}
		}
	}
}

func TestConfig_DevicesThatWillNotDo_AreRefused(t *testing.T) {
	nic, ctx := twin(t), nictest.Soon(t)
	on := func(device string) rdmacm.Config { return rdmacm.Config{NIC: nic, Device: device} }
	_, err := rdmacm.Dial(ctx, "rdma", "127.0.0.1:1", on("mlx5_0"))
	if !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "rnic0, iwarp0") {
		t.Errorf("dial: %v", err)
	}
	_, err = rdmacm.Listen(ctx, "rdma", ":0", on("mlx5_0"))
	if !errors.Is(err, syscall.ENODEV) {
		t.Errorf("listen: %v", err)
	}
	_, err = rdmacm.ListenUD(ctx, "rdma", ":0", on("iwarp0"))
	if !errors.Is(err, syscall.EOPNOTSUPP) || !strings.Contains(err.Error(), "iwarp0") {
		t.Errorf("datagrams: %v", err)
	}
	_, err = rdmacm.Join(ctx, "rdma", "224.0.0.99:0", on("iwarp0"))
	if !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("multicast: %v", err)
	}
	l := listen(t, "rdma", "127.0.0.1:0", on("rnic0"))
	s, err := rdmacm.Share(ctx, nic)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	wrong := on("rnic0")
	if wrong.PD, err = s.PDOn(ctx, "iwarp0"); err != nil {
		t.Fatal(err)
	}
	_, err = rdmacm.Dial(ctx, "rdma", l.Addr().String(), wrong)
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "one of iwarp0") {
		t.Errorf("a protection domain of another device: %v", err)
	}
}
