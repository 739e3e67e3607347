package clibtest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// compileCM builds a program of testdata against both drop-ins.
func compileCM(t *testing.T, source string) (bin, lib string) {
	t.Helper()
	lib = needLibrary(t)
	return compile(t, source, filepath.Join(filepath.Dir(lib), "librdmacm.so.1"), lib), lib
}

// runCMCases runs the cases of a program, each against a NIC of its own.
func runCMCases(t *testing.T, source string, cases []string) {
	bin, lib := compileCM(t, source)
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			nic, socket := startFake(t)
			checkCase(t, run(t, libraryEnv(lib, socket), bin, name))
			nic.mu.Lock()
			defer nic.mu.Unlock()
			if len(nic.cm.ids) > 0 {
				t.Errorf("%d ids are left", len(nic.cm.ids))
			}
		})
	}
}

func TestCM_Connections(t *testing.T) {
	runCMCases(t, "cm_test.c", []string{
		"connect", "external", "refusals", "options", "devices", "datagrams", "multicast", "srq",
		"events", "walk",
	})
}

// A device that cannot be opened is left out; it does not take the others with it.
func TestCM_DeviceThatCannotBeOpened_C12_IsLeftOut(t *testing.T) {
	bin, lib := compileCM(t, "cm_test.c")
	nic, socket := startFake(t)
	nic.broken = true
	checkCase(t, run(t, libraryEnv(lib, socket), bin, "devices"))
}

// RNIC_DEVICE chooses the device of every id, with its context and protection domain.
func TestCM_ChosenDevice_IsUsedThroughout(t *testing.T) {
	bin, lib := compileCM(t, "cm_test.c")
	nic, socket := startFake(t)
	nic.twin = true
	env := append(libraryEnv(lib, socket), "RNIC_DEVICE=iwarp0")
	checkCase(t, run(t, env, bin, "second_device"))
	nic.mu.Lock()
	defer nic.mu.Unlock()
	if want := []string{"iwarp0", "iwarp0"}; !slices.Equal(nic.cm.insists, want) {
		t.Errorf("programs insisted on %q, want %q", nic.cm.insists, want)
	}
}

// An empty RNIC_DEVICE is none.
func TestCM_ChosenDeviceEmpty_LeavesItToAddresses(t *testing.T) {
	bin, lib := compileCM(t, "cm_test.c")
	nic, socket := startFake(t)
	checkCase(t, run(t, append(libraryEnv(lib, socket), "RNIC_DEVICE="), bin, "connect"))
	nic.mu.Lock()
	defer nic.mu.Unlock()
	if want := []string{"", ""}; !slices.Equal(nic.cm.insists, want) {
		t.Errorf("programs insisted on %q, want %q", nic.cm.insists, want)
	}
}

// A device that is not there is said once, unasked: the program tells no more than its errno. A
// name that is too long for one is not taken for its beginning.
func TestCM_ChosenDeviceIsNotThere_IsSaidOnce(t *testing.T) {
	bin, lib := compileCM(t, "cm_test.c")
	for _, name := range []string{"mlx5_0", "rnic0x", strings.Repeat("x", 200)} {
		_, socket := startFake(t)
		r := run(t, append(libraryEnv(lib, socket), "RNIC_DEVICE="+name), bin, "wrong_device")
		want := "librdmacm(softrnic): there is no device " + name[:min(len(name), 64)] + "\n"
		if r.code != 0 || r.errOut != want {
			t.Errorf("%s: exit status %d, %q", name, r.code, r.errOut)
		}
	}
}

// TestCM_GarbageReplies_NeitherCrashNorHang spoils the reply to each request in each way.
func TestCM_GarbageReplies_NeitherCrashNorHang(t *testing.T) {
	bin, lib := compileCM(t, "cm_test.c")
	for op := abi.OpOpenCM; op <= abi.OpDetachMulticast; op++ {
		for name, spoil := range manglings {
			nic, socket := startFake(t)
			nic.mangle = func(at abi.Op, reply *ctl.Message) {
				if at == op {
					spoil(reply)
				}
			}
			if r := run(t, libraryEnv(lib, socket), bin, "walk"); r.code != 0 {
				t.Errorf("%v, %s: exit status %d\n%s", op, name, r.code, r.errOut)
			}
		}
	}
}

func TestCM_Endpoints(t *testing.T) {
	runCMCases(t, "cm_ep_test.c", []string{"endpoints", "names"})
}

func TestCM_NoNIC_IsNoDevice(t *testing.T) {
	bin, lib := compileCM(t, "cm_ep_test.c")
	checkCase(t, run(t, libraryEnv(lib, "/nonexistent/nic.sock"), bin, "no_nic"))
	// It says more to those who ask.
	r := run(t, append(libraryEnv(lib, "/nonexistent/nic.sock"), "RNIC_VERBOSE=1"), bin, "no_nic")
	if !strings.HasPrefix(r.errOut, "librdmacm(softrnic): no NIC at /nonexistent") {
		t.Errorf("the hint is %q", r.errOut)
	}
}

func TestCM_Events(t *testing.T) {
	runCMCases(t, "cm_event_test.c", []string{
		"ack", "signal", "purge", "full", "fork", "abandon", "threads",
	})
}

// TestCM_Migrate_EmulatesTheKernel_C13: ids live on their channel, and leave it whole.
func TestCM_Migrate_EmulatesTheKernel_C13(t *testing.T) {
	runCMCases(t, "cm_event_test.c", []string{"migrate", "channel_end"})
}

func TestCM_NICDies_RemovalThenErrors(t *testing.T) {
	bin, lib := compileCM(t, "cm_event_test.c")
	for _, name := range []string{"die", "die_sync"} {
		t.Run(name, func(t *testing.T) {
			nic, socket := startFake(t)
			nic.dieAt = abi.OpQueryPKey
			checkCase(t, run(t, libraryEnv(lib, socket), bin, name))
		})
	}
}

// TestCM_DestroyWaits_SaysForWhat names the event that a program forgot to acknowledge, unasked, to
// the program's user and in the NIC's log.
func TestCM_DestroyWaits_SaysForWhat(t *testing.T) {
	bin, lib := compileCM(t, "cm_event_test.c")
	nic, socket := startFake(t)
	r := run(t, libraryEnv(lib, socket), bin, "ack_log")
	want := "rdma_destroy_id waits for rdma_ack_cm_event of RDMA_CM_EVENT_ADDR_RESOLVED"
	if r.code != 0 || r.errOut != "librdmacm(softrnic): "+want+"\n" {
		t.Errorf("exit status %d, %q", r.code, r.errOut)
	}
	if got := nic.waited(); !slices.Equal(got, []string{want + " (1)"}) {
		t.Errorf("the NIC hears %q", got)
	}
}
