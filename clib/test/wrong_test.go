package clibtest

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

func TestVerbs_WrongArguments_ContextGoesOn(t *testing.T) {
	runCases(t, "wrong_test.c", []string{"bad_descriptor", "missing_parts"})
}

// TestVerbs_NoDescriptorLeft_NothingIsMade: an object whose descriptor finds no room would stay
// with the NIC, and keep others from being destroyed.
func TestVerbs_NoDescriptorLeft_NothingIsMade(t *testing.T) {
	bin, lib := compileVerbs(t, "wrong_test.c")
	nic, socket := startFake(t)
	asked := map[abi.Op]int{}
	nic.mu.Lock()
	nic.mangle = func(op abi.Op, _ *ctl.Message) { asked[op]++ }
	nic.mu.Unlock()
	checkCase(t, run(t, libraryEnv(lib, socket), bin, "no_descriptors"))
	nic.mu.Lock()
	defer nic.mu.Unlock()
	for op, want := range map[abi.Op]int{
		abi.OpCreateCompChannel: 1, abi.OpCreateCQ: 1, abi.OpCreateQP: 2, abi.OpCreateSRQ: 0,
		abi.OpResizeCQ: 0,
	} {
		if asked[op] != want {
			t.Errorf("%v: asked for %d times, not %d", op, asked[op], want)
		}
	}
}
