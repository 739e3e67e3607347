package clibtest

import (
	"path/filepath"
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
			if len(nic.cm.ids)+len(nic.cm.joins) > 1 {
				t.Errorf("%d ids and %d joins are left", len(nic.cm.ids), len(nic.cm.joins))
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
