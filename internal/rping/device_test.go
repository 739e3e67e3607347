package rping

import (
	"strings"
	"testing"

	"github.com/softrnic/softrnic"
)

// One server answers clients by every device.
func TestServer_SeveralDevices_AnswersByEach(t *testing.T) {
	nic, err := softrnic.Start(t.Context(), softrnic.Config{Devices: []string{"iwarp0=iwarp"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nic.Close() })
	s, err := Listen(t.Context(), ":0", Config{NIC: nic})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	visits := make(chan Visit, 9)
	go func() { ended <- s.Serve(t.Context(), func(v Visit) { visits <- v }) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	_, port, _ := strings.Cut(s.Addr().String(), "]:")
	for _, device := range []string{"rnic0", "iwarp0", ""} {
		c, err := Dial(t.Context(), "127.0.0.1:"+port, Config{
			NIC: nic, Device: device, Size: 70000, Verify: true,
		})
		if err != nil {
			t.Fatalf("%q: %v", device, err)
		}
		for range 3 {
			if _, err := c.Round(t.Context()); err != nil {
				t.Errorf("%q: %v", device, err)
			}
		}
		c.Close()
		if v := <-visits; v.Err != nil || v.Rounds != 3 {
			t.Errorf("%q: the server tells of %+v", device, v)
		}
	}
	if _, err := Dial(t.Context(), "127.0.0.1:"+port, Config{NIC: nic, Device: "x"}); err == nil {
		t.Error("a device that is not there is used")
	}
}
