package explain

import (
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

func TestChain_EachKindOfEvidence_E09_SaysWhatWasSeen(t *testing.T) {
	peer := [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}
	for name, tc := range map[string]struct {
		cause abi.Cause
		want  []string
	}{
		"no answer": {
			abi.Cause{
				Status: uint32(rdma.WCRetryExcErr), Vendor: uint32(abi.VendorAckTimeout), WRID: 7,
				Opcode: uint8(rdma.WRSend), Timeouts: 8, Timeout: 14, Retries: 8, RetryCnt: 7,
				Flags: abi.CauseHasPath, Peer: peer, PeerQPN: 9, QPType: 2, State: 3,
			},
			[]string{
				"wr_id 7, SEND: transport retry counter exceeded (IBV_WC_RETRY_EXC_ERR, 12)",
				"the peer, 10.0.0.2 QP 0x000009,", "8 ACK timeouts of 67.1", "no NAK ever came",
				"the RC queue pair was in RTS", "likely: the peer's queue pair is not ready",
			},
		},
		"terminated by a peer of iWARP": {
			abi.Cause{
				Status: uint32(rdma.WCWRFlushErr), Flags: abi.CauseHasPath | abi.CauseOfStream |
					abi.CauseHasTerminate | abi.CauseIsTold, Peer: peer, PeerQPN: 7174, QPType: 2,
				State: 3, Terminate: uint16(iwarp.CodeTaggedSTag),
			},
			[]string{
				"the peer, 10.0.0.2 TCP port 7174, terminated the connection",
				"the RC queue pair was in RTS", "→ 10.0.0.2 TCP port 7174",
			},
		},
		"no adapter": {
			abi.Cause{Status: uint32(rdma.WCRetryExcErr), Vendor: uint32(abi.VendorNoNIC)},
			[]string{"UDP port 4791", "ICMP port unreachable", "rdma_rxe is not running there"},
		},
		"refused here": {
			abi.Cause{
				Flags: abi.CauseOfPeer | abi.CauseHasRegion, Opcode: uint8(ib.RCReadRequest),
				Fault: uint8(mem.FaultRights), Key: 0x1234, Addr: 0x1000, Length: 16,
				Asked: uint32(rdma.AccessRemoteRead), Granted: uint32(rdma.AccessLocalWrite),
				RegionAddr: 0x1000, RegionLength: 4096, QPAccess: uint32(rdma.AccessRemoteWrite),
				Syndrome: uint8(ib.NAK(ib.NAKRemoteAccess)),
			},
			[]string{
				"a request of the peer was refused: RC_READ_REQUEST", "syndrome 0x62",
				"access right missing: key 0x00001234, 0x1000…0x1010 (16 bytes) for remote_read asked",
				"the region is 0x1000…0x2000 (4096 bytes) and grants local_write",
				"the queue pair grants its peer remote_write",
			},
		},
		"the program's own": {
			abi.Cause{Vendor: uint32(abi.VendorModified)},
			[]string{"the program itself moved the queue pair to ERR"},
		},
		"a damaged ring": {
			abi.Cause{Vendor: uint32(abi.VendorBadWQE)}, []string{"an index in it is impossible"},
		},
	} {
		checkChain(t, name, &tc.cause, tc.want)
	}
}

// checkChain looks for pieces of text in what is told of a cause.
func checkChain(t *testing.T, name string, c *abi.Cause, wants []string) {
	t.Helper()
	whole := strings.Join(Chain(c), "\n")
	for _, want := range wants {
		if !strings.Contains(whole, want) {
			t.Errorf("%s: no %q in\n%s", name, want, whole)
		}
	}
	if Line(c) != strings.ReplaceAll(whole, "\n", "; ") {
		t.Errorf("%s: the line is %q", name, Line(c))
	}
}

func TestChain_Terminate_SaysWhoEndedTheConnectionAndWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		cause abi.Cause
		want  []string
	}{
		"terminated by the peer": {
			abi.Cause{
				Status: uint32(rdma.WCRemAccessErr), Flags: abi.CauseHasTerminate | abi.CauseIsTold,
				Terminate: uint16(iwarp.CodeProtectionBounds), WRID: 7, Opcode: uint8(rdma.WRRead),
			},
			[]string{
				"wr_id 7, READ: remote access error",
				"the peer terminated the connection: RDMAP remote protection error: base or bounds" +
					" violation (0x0101)",
				"likely: address or length is wrong",
			},
		},
		"terminated by the peer, and no work request is at fault": {
			abi.Cause{
				Flags:     abi.CauseHasTerminate | abi.CauseIsTold,
				Terminate: uint16(iwarp.CodeTaggedSTag),
			},
			[]string{
				"the connection ended with a Terminate", "invalid STag (0x1100)",
				"likely: the rkey is unknown there",
			},
		},
		"terminated here": {
			abi.Cause{
				Flags: abi.CauseOfPeer | abi.CauseHasTerminate, Opcode: uint8(iwarp.OpcodeWrite),
				Terminate: uint16(iwarp.CodeTaggedBounds), Fault: uint8(mem.FaultBounds),
				Key: 0x1234, Length: 16, Asked: uint32(rdma.AccessRemoteWrite),
			},
			[]string{
				"a message of the peer was refused: WRITE",
				"it was answered with a Terminate: DDP tagged buffer error: base or bounds violation" +
					" (0x1101)",
				"key 0x00001234",
			},
		},
		"terminated here, for an answer": {
			abi.Cause{
				Status: uint32(rdma.WCLocProtErr), Flags: abi.CauseHasTerminate,
				Terminate: uint16(iwarp.CodeTaggedBounds), Opcode: uint8(rdma.WRRead),
			},
			[]string{"wr_id 0, READ", "this end terminated the connection: DDP tagged"},
		},
		"no message at all": {
			abi.Cause{
				Flags:  abi.CauseOfPeer | abi.CauseHasTerminate,
				Opcode: 15, Terminate: uint16(iwarp.CodeUntaggedVersion),
			},
			[]string{"what the peer has sent was refused", "invalid DDP version (0x1206)"},
		},
		"a stream out of step": {
			abi.Cause{
				Flags:     abi.CauseOfPeer | abi.CauseHasTerminate,
				Terminate: uint16(iwarp.CodeMPACRC),
			},
			[]string{
				"the stream of the peer was refused", "MPA wrong CRC (0x2002)",
				"likely: something between the hosts changes",
			},
		},
	} {
		checkChain(t, name, &tc.cause, tc.want)
	}
}

func TestConnectionFailure_Events_TellReasonOrErrno(t *testing.T) {
	for _, tc := range []struct {
		event  uint32
		status int32
		want   []string // none: no failure
	}{
		{8, 28, []string{"RDMA_CM_EVENT_REJECTED", "rejected by the application", "private data"}},
		{7, -int32(syscall.ETIMEDOUT), []string{"ETIMEDOUT", "likely: packets to UDP port 4791"}},
		{7, 1, []string{"unsupported service", "IB_SIDR_UNSUPPORTED"}},
		{1, -int32(syscall.ENODEV), []string{"address error", "ENODEV"}},
		{6, -int32(syscall.EINVAL), []string{"EINVAL"}},
		{1, -4000, []string{"errno 4000"}},
		{8, 999, []string{"status 999"}},
		{8, -int32(syscall.ECONNRESET), []string{"rejected", "ECONNRESET", "likely: the program at"}},
		{8, -int32(syscall.ECONNREFUSED), []string{"ECONNREFUSED", "likely: nobody listens on that"}},
		{8, -int32(syscall.EPROTO), []string{"status -71"}},
		{10, -int32(syscall.ETIMEDOUT), []string{"disconnected", "ETIMEDOUT"}},
		{10, 0, nil},
		{9, 0, nil},
		{0, 0, nil},
		{15, 0, nil},
		{14, 0, nil},
		{99, 0, nil},
	} {
		chain := ConnectionFailure(tc.event, tc.status, "somebody")
		if (chain == nil) != (tc.want == nil) {
			t.Errorf("event %d, status %d: %v", tc.event, tc.status, chain)
		}
		whole := strings.Join(chain, "\n")
		for _, want := range tc.want {
			if !strings.Contains(whole, want) {
				t.Errorf("event %d: no %q in\n%s", tc.event, want, whole)
			}
		}
		if strings.Contains(whole, "likely: ibv_") {
			t.Errorf("event %d: a verb's cause in\n%s", tc.event, whole)
		}
	}
}

// FuzzChain reads evidence from memory that a program can write.
func FuzzChain_AnyBytes_AreToldWithoutHarm(f *testing.F) {
	f.Add(make([]byte, abi.CauseBytes))
	f.Add([]byte(strings.Repeat("\xff", abi.CauseBytes)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var words [abi.CauseWords]uint32
		for i, b := range raw {
			if i/4 < len(words) {
				words[i/4] |= uint32(b) << (8 * (i % 4))
			}
		}
		c := abi.TakeCause(&words)
		for _, text := range Chain(&c) {
			if text == "" || strings.Contains(text, "%!") {
				t.Errorf("%+v tells %q", c, text)
			}
		}
	})
}
