package clibtest

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/ring"
)

// compileVerbs builds a verbs program of testdata against the drop-in.
func compileVerbs(t *testing.T, source string) (bin, lib string) {
	t.Helper()
	lib = needLibrary(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	return compile(t, source, lib), lib
}

// runCases runs the cases of a program, each against a NIC of its own.
func runCases(t *testing.T, source string, cases []string) {
	bin, lib := compileVerbs(t, source)
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			_, socket := startFake(t)
			checkCase(t, run(t, libraryEnv(lib, socket), bin, name))
		})
	}
}

func checkCase(t *testing.T, r result) {
	t.Helper()
	if r.code != 0 || r.out != "" || r.errOut != "" {
		t.Errorf("exit status %d\n%s%s", r.code, r.out, r.errOut)
	}
}

func TestVerbs_Objects(t *testing.T) {
	runCases(t, "object_test.c",
		[]string{"query_device", "query_port", "objects", "ah_from_wc", "names", "walk", "domains"})
}

func TestVerbs_TwoDevices_AreListedAndOpenedByName(t *testing.T) {
	bin, lib := compileVerbs(t, "object_test.c")
	nic, socket := startFake(t)
	nic.twin = true
	checkCase(t, run(t, libraryEnv(lib, socket), bin, "two_devices"))
	checkCase(t, run(t, libraryEnv(lib, socket), bin, "chosen_device"))
	nic.mu.Lock()
	defer nic.mu.Unlock()
	if !slices.Equal(nic.opened, []string{"iwarp0"}) {
		t.Errorf("opened %q", nic.opened)
	}
}

// TestVerbs_MemoryForbidden_IsSaidOnce wants the reason, and the remedy that the NIC gives with it,
// on standard error unasked: a program tells no more than its errno.
func TestVerbs_MemoryForbidden_IsSaidOnce(t *testing.T) {
	bin, lib := compileVerbs(t, "object_test.c")
	_, socket := startFake(t)
	r := run(t, libraryEnv(lib, socket), bin, "forbidden")
	want := "libibverbs(softrnic): memory of this process cannot be reached\n"
	if r.code != 0 || r.out != "" || r.errOut != want {
		t.Errorf("exit status %d\n%s%s", r.code, r.out, r.errOut)
	}
	loud := run(t, append(libraryEnv(lib, socket), "RNIC_VERBOSE=1"), bin, "forbidden")
	if loud.errOut != strings.Repeat(want, 3) {
		t.Errorf("with RNIC_VERBOSE: %s", loud.errOut)
	}
}

func TestVerbs_Queues(t *testing.T) {
	runCases(t, "queue_test.c",
		[]string{"post_errors", "build_errors", "cancel", "poll_ex", "overrun", "resize"})
}

// TestVerbs_BuilderRefuses_NamesTheRequestAtFault: not the last of the batch, nor one that is good.
func TestVerbs_BuilderRefuses_NamesTheRequestAtFault(t *testing.T) {
	bin, lib := compileVerbs(t, "queue_test.c")
	_, socket := startFake(t)
	r := run(t, append(libraryEnv(lib, socket), "RNIC_VERBOSE=1"), bin, "build_errors")
	for _, want := range []string{
		"ibv_post_send of wr_id 71 on QP", "3 scatter/gather entries; the QP has room for 2",
		"operation 4 sends no data, so none can be inline", "this QP has no operation 10",
		"65 bytes inline; the QP has room for 64",
	} {
		if r.code != 0 || !strings.Contains(r.errOut, want) {
			t.Errorf("exit status %d, no %q in\n%s", r.code, want, r.errOut)
		}
	}
}

// TestVerbs_Slots_ComeBackByPoll posts until there is no room: no queue overruns by that.
func TestVerbs_Slots_ComeBackByPoll(t *testing.T) {
	runCases(t, "slot_test.c", []string{"full_queue", "full_queue_ex", "unsignaled", "full_reset"})
	t.Run("full_receives", func(t *testing.T) {
		bin, lib := compileVerbs(t, "slot_test.c")
		nic, socket := startFake(t)
		nic.mu.Lock()
		nic.loops = true
		nic.mu.Unlock()
		checkCase(t, run(t, libraryEnv(lib, socket), bin, "full_receives"))
	})
}

// TestVerbs_FewProcessors_SleepsWhileSendsAreUnderWay: who polls for anything else does not.
func TestVerbs_FewProcessors_SleepsWhileSendsAreUnderWay(t *testing.T) {
	bin, lib := compileVerbs(t, "slot_test.c")
	nic, socket := startFake(t)
	nic.mu.Lock()
	nic.isBusy = true
	nic.mu.Unlock()
	checkCase(t, run(t, libraryEnv(lib, socket), bin, "rest"))
}

// TestVerbs_OnTheLanesProcessor_StepsAside: the thread stays as free to run anywhere as it was.
func TestVerbs_OnTheLanesProcessor_StepsAside(t *testing.T) {
	bin, lib := compileVerbs(t, "slot_test.c")
	nic, socket := startFake(t)
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !mine.IsSet(first) {
		first++
	}
	ring.Word(nic.lane.Bytes(), abi.OffLaneProcessor).Store(uint32(first) + 1)
	checkCase(t, run(t, libraryEnv(lib, socket), bin, "aside"))
}

func TestVerbs_Events(t *testing.T) {
	runCases(t, "event_test.c", []string{"events", "signal", "fork"})
}

// TestVerbs_DestroyWaits_SaysForWhat: see TestCM_DestroyWaits_SaysForWhat.
func TestVerbs_DestroyWaits_SaysForWhat(t *testing.T) {
	bin, lib := compileVerbs(t, "event_test.c")
	nic, socket := startFake(t)
	r := run(t, libraryEnv(lib, socket), bin, "ack_log")
	want := []string{
		"ibv_destroy_qp waits for ibv_ack_async_event of send queue drained",
		"ibv_destroy_cq waits for ibv_ack_cq_events of a completion event",
	}
	out := ""
	for _, line := range want {
		out += "libibverbs(softrnic): " + line + "\n"
	}
	if r.code != 0 || r.errOut != out {
		t.Errorf("exit status %d, %q", r.code, r.errOut)
	}
	if got := nic.waited(); !slices.Equal(got, []string{want[0] + " (1)", want[1] + " (2)"}) {
		t.Errorf("the NIC hears %q", got)
	}
}

// TestVerbs_PostAndBuild_WriteTheSame compares what the NIC reads from both ways of posting with
// what it should.
func TestVerbs_PostAndBuild_WriteTheSame(t *testing.T) {
	bin, lib := compileVerbs(t, "queue_test.c")
	want := []abi.SendWQE{
		{WRID: 1, Opcode: 3, Flags: 2 | 4, NumSGE: 2, ImmOrRKey: 0x44332211},
		{WRID: 2, Opcode: 0, Flags: 1 | 2 | 8, InlineLen: 11, RemoteAddr: 0x3000, RKey: 50},
		{
			WRID: 3, Opcode: 5, Flags: 2, NumSGE: 1, RemoteAddr: 0x4000, RKey: 80,
			CompareAdd: 60, Swap: 70,
		},
		{WRID: 4, Opcode: 2, Flags: 2, RemoteQPN: 90, RemoteQKey: 100},
	}
	sges := []abi.SGE{{Addr: 0x1000, Length: 10, LKey: 20}, {Addr: 0x2000, Length: 30, LKey: 40}}
	for _, name := range []string{"post_contents", "build_contents"} {
		t.Run(name, func(t *testing.T) {
			nic, socket := startFake(t)
			checkCase(t, run(t, libraryEnv(lib, socket), bin, name))
			nic.mu.Lock()
			defer nic.mu.Unlock()
			if len(nic.sends) != len(want) {
				t.Fatalf("%d work requests, want %d", len(nic.sends), len(want))
			}
			for i := range want {
				if got := mask(nic.sends[i]); got != want[i] {
					t.Errorf("got  %+v\nwant %+v", got, want[i])
				}
			}
			if nic.sends[3].AH == 0 {
				t.Error("the datagram has no address handle")
			}
			if !slices.Equal(nic.sges[0], sges) || !slices.Equal(nic.sges[2], sges[:1]) {
				t.Errorf("scatter/gather lists %v and %v", nic.sges[0], nic.sges[2])
			}
			if !bytes.Equal(nic.inline[1], []byte("hello world")) {
				t.Errorf("inline data %q", nic.inline[1])
			}
		})
	}
}

// mask clears what the operation does not use, and what differs from run to run.
func mask(w abi.SendWQE) abi.SendWQE {
	w.AH, w.Extra = 0, 0
	if w.Opcode != 3 {
		w.ImmOrRKey = 0
	}
	if w.Opcode == 2 || w.Opcode == 3 {
		w.RemoteAddr, w.RKey = 0, 0
	}
	if w.Opcode != 5 {
		w.CompareAdd, w.Swap = 0, 0
	}
	return w
}

// TestVerbs_LaneSleeps_IsKicked shows that the eventfd is written exactly while the lane sleeps.
func TestVerbs_LaneSleeps_IsKicked(t *testing.T) {
	bin, lib := compileVerbs(t, "queue_test.c")
	for _, sleeping := range []uint32{0, 1} {
		nic, socket := startFake(t)
		ring.Word(nic.lane.Bytes(), abi.OffLaneSleeping).Store(sleeping)
		checkCase(t, run(t, libraryEnv(lib, socket), bin, "post_contents"))
		nic.mu.Lock()
		if kicked := nic.kicks > 0; kicked != (sleeping == 1) {
			t.Errorf("lane sleeping %d: %d kicks", sleeping, nic.kicks)
		}
		nic.mu.Unlock()
	}
}

// TestVerbs_NICDies_NothingHangs lets the NIC die while a program waits in one of several ways.
func TestVerbs_NICDies_NothingHangs(t *testing.T) {
	bin, lib := compileVerbs(t, "event_test.c")
	for _, name := range []string{"die_cq_event", "die_async_event", "die_poll", "die_post"} {
		t.Run(name, func(t *testing.T) {
			nic, socket := startFake(t)
			nic.dieAt = abi.OpQueryPKey
			checkCase(t, run(t, libraryEnv(lib, socket), bin, name))
		})
	}
}

var manglings = map[string]func(*ctl.Message){
	"empty":      func(m *ctl.Message) { m.Body = nil },
	"short":      func(m *ctl.Message) { m.Body = m.Body[:len(m.Body)/2] },
	"long":       func(m *ctl.Message) { m.Body = append(m.Body, make([]byte, 60000)...) },
	"ones":       func(m *ctl.Message) { m.Body = bytes.Repeat([]byte{0xff}, len(m.Body)) },
	"zeros":      func(m *ctl.Message) { m.Body = make([]byte, len(m.Body)) },
	"no fds":     func(m *ctl.Message) { m.FDs = nil },
	"more fds":   func(m *ctl.Message) { m.FDs = append(slices.Clone(m.FDs), 0, 0) },
	"swapped":    func(m *ctl.Message) { slices.Reverse(m.FDs) },
	"wrong op":   func(m *ctl.Message) { m.Op++ },
	"wrong seq":  func(m *ctl.Message) { m.Seq++ },
	"refused":    func(m *ctl.Message) { *m = ctl.Message{Op: m.Op, Seq: m.Seq, Status: 12} },
	"bad status": func(m *ctl.Message) { m.Status = -5 },
}

// TestVerbs_GarbageReplies_NeitherCrashNorHang spoils the reply to each request in each way.
func TestVerbs_GarbageReplies_NeitherCrashNorHang(t *testing.T) {
	bin, lib := compileVerbs(t, "object_test.c")
	for op := abi.OpHello; op <= abi.OpDestroySRQ; op++ {
		for name, spoil := range manglings {
			nic, socket := startFake(t)
			nic.mangle = func(at abi.Op, reply *ctl.Message) {
				if at == op {
					spoil(reply)
				}
			}
			r := run(t, libraryEnv(lib, socket), bin, "walk")
			if r.code != 0 {
				t.Errorf("%v, %s: exit status %d\n%s", op, name, r.code, r.errOut)
			}
		}
	}
}

// TestVerbs_NoUsableNIC_ListIsEmptyAndQuiet covers a socket that nobody listens on, and a
// version that does not fit: as without hardware there is no device, and a hint only on demand.
func TestVerbs_NoUsableNIC_ListIsEmptyAndQuiet(t *testing.T) {
	lib := needLibrary(t)
	bin := compile(t, "object_test.c", lib)
	nic, socket := startFake(t)
	nic.mangle = func(op abi.Op, reply *ctl.Message) {
		if op == abi.OpHello {
			reply.FDs, reply.Status = nil, int32(syscall.EPROTO)
			reply.Body = []byte("install both from one release")
		}
	}
	for _, path := range []string{"/nonexistent/nic.sock", socket} {
		r := run(t, libraryEnv(lib, path), bin, "walk")
		if r.code != 0 || r.errOut != "" {
			t.Errorf("%s: exit status %d, %q", path, r.code, r.errOut)
		}
		loud := run(t, append(libraryEnv(lib, path), "RNIC_VERBOSE=1"), bin, "walk")
		if !strings.HasPrefix(loud.errOut, "libibverbs(softrnic): ") {
			t.Errorf("%s: the hint is %q", path, loud.errOut)
		}
	}
}

// TestVerbs_DefaultSocket_FollowsTheRuleOfCtl lets the library find the NIC without RNIC_SOCKET.
func TestVerbs_DefaultSocket_FollowsTheRuleOfCtl(t *testing.T) {
	bin, lib := compileVerbs(t, "object_test.c")
	t.Setenv(ctl.SocketEnv, "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if err := ctl.EnsureRuntimeDir(); err != nil {
		t.Fatal(err)
	}
	path, err := ctl.SocketPath()
	if err != nil {
		t.Fatal(err)
	}
	startFakeAt(t, path)
	checkCase(t, run(t, libraryEnv(lib, ""), bin, "query_device"))
	t.Setenv(ctl.SocketEnv, "/nonexistent") // it comes before the default
	if r := run(t, libraryEnv(lib, "/nonexistent"), bin, "query_device"); r.code != 1 {
		t.Errorf("exit status %d", r.code)
	}
}
