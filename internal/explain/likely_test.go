package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// refusedAs is what a requester on RC knows of a request that a NAK has ended.
func refusedAs(op rdma.WROpcode, code ib.NAKCode) abi.Cause {
	status := map[ib.NAKCode]rdma.WCStatus{
		ib.NAKInvalidRequest: rdma.WCRemInvReqErr, ib.NAKRemoteAccess: rdma.WCRemAccessErr,
		ib.NAKRemoteOp: rdma.WCRemOpErr,
	}[code]
	return abi.Cause{
		Status: uint32(status), Vendor: uint32(abi.VendorNak) | uint32(ib.NAK(code))<<8,
		Syndrome: uint8(ib.NAK(code)), Opcode: uint8(op), QPType: uint8(rdma.QPTypeRC),
	}
}

const tooLong = "longer than the receive"

// TestLikely_NAK_SaysOnlyWhatTheRequestCanHaveDone: a WRITE has no receive that it could be too
// long for, and a SEND needs no right.
func TestLikely_NAK_SaysOnlyWhatTheRequestCanHaveDone(t *testing.T) {
	for _, tc := range []struct {
		op        rdma.WROpcode
		code      ib.NAKCode
		addr      uint64
		want, not []string
	}{
		{rdma.WRSend, ib.NAKInvalidRequest, 0, []string{tooLong, "path_mtu"}, []string{"qp_access"}},
		{
			rdma.WRWrite, ib.NAKInvalidRequest, 0,
			[]string{"qp_access_flags of the peer's queue pair lack remote_write"},
			[]string{tooLong, "max_dest"},
		},
		{
			rdma.WRRead, ib.NAKInvalidRequest, 0,
			[]string{"lack remote_read", "max_dest_rd_atomic"},
			[]string{tooLong},
		},
		{
			rdma.WRFetchAdd, ib.NAKInvalidRequest, 8,
			[]string{"lack remote_atomic"},
			[]string{tooLong, "multiple of 8"},
		},
		{
			rdma.WRFetchAdd, ib.NAKInvalidRequest, 12,
			[]string{"likely: the remote address 0xc is not a multiple of 8"},
			[]string{tooLong, "lack"},
		},
		{rdma.WRAtomicWrite, ib.NAKInvalidRequest, 12, []string{"not a multiple of 8"}, nil},
		{rdma.WRFlush, ib.NAKInvalidRequest, 12, []string{"flush_global"}, []string{"multiple"}},
		{rdma.WRSend, ib.NAKRemoteOp, 0, []string{"the receive at the peer has a bad lkey"}, nil},
		{rdma.WRRead, ib.NAKRemoteOp, 0, []string{"memory of the peer"}, []string{"receive at"}},
		{rdma.WRSendWithInv, ib.NAKRemoteAccess, 0, []string{"the key to invalidate"}, []string{"range"}},
		{
			rdma.WRWrite, ib.NAKRemoteAccess, 0,
			[]string{"outdated rkey", "; or the range", "memory window", "protection domains"},
			nil,
		},
	} {
		c := refusedAs(tc.op, tc.code)
		c.Addr, c.Key, c.Length = tc.addr, 1, 8
		checkChain(t, tc.op.String(), &c, tc.want)
		for _, text := range tc.not {
			if strings.Contains(Line(&c), text) {
				t.Errorf("%v, NAK %v: %q in %s", tc.op, tc.code, text, Line(&c))
			}
		}
	}
}

// TestLikely_OwnRequest_SaysWhatIsWrongWithIt.
func TestLikely_OwnRequest_SaysWhatIsWrongWithIt(t *testing.T) {
	own := func(op rdma.WROpcode, status rdma.WCStatus, v abi.Vendor) abi.Cause {
		return abi.Cause{
			Status: uint32(status), Vendor: uint32(v), Opcode: uint8(op),
			QPType: uint8(rdma.QPTypeRC),
		}
	}
	atomic := own(rdma.WRFetchAdd, rdma.WCLocLenErr, abi.VendorLength)
	atomic.Length, atomic.RegionLength, atomic.Flags = 4, 8, abi.CauseHasRoom
	datagram := own(rdma.WRSend, rdma.WCLocLenErr, abi.VendorLength)
	datagram.Length, datagram.RegionLength, datagram.Flags = 2000, 1024, abi.CauseHasRoom
	datagram.QPType = uint8(rdma.QPTypeUD)
	foreign := own(rdma.WRSend, rdma.WCLocQPOpErr, abi.VendorAddressHandle)
	foreign.Key, foreign.Fault = 77, uint8(mem.FaultPD)
	gone := own(rdma.WRSend, rdma.WCLocQPOpErr, abi.VendorAddressHandle)
	gone.Key = 77
	bind := own(rdma.WRBindMW, rdma.WCMWBindErr, abi.VendorWindow)
	bind.Key, bind.Length = 0x1234, 64
	bind.Fault, bind.Asked = uint8(mem.FaultRights), uint32(rdma.AccessRemoteWrite)
	bind.Granted, bind.Flags = uint32(rdma.AccessMWBind), abi.CauseHasRegion
	unlocked := bind
	unlocked.Asked, unlocked.Granted = uint32(rdma.AccessRemoteRead), uint32(rdma.AccessLocalWrite)
	invalidate := own(rdma.WRLocalInvalidate, rdma.WCMWBindErr, abi.VendorWindow)
	invalidate.Fault, invalidate.Key = uint8(mem.FaultNotWindow), 0x1234
	for name, tc := range map[string]struct {
		cause abi.Cause
		want  []string
	}{
		"atomic of 4 bytes": {atomic, []string{
			"the local list has 4 bytes, and should have 8", "likely: the local list of FETCH_ADD",
		}},
		"long datagram": {datagram, []string{
			"2000 bytes, at most 1024 are allowed", "likely: a datagram is one packet",
		}},
		"address of another domain": {foreign, []string{
			"address handle 77 belongs to another protection domain", "likely: ibv_create_ah and",
		}},
		"address that is gone": {gone, []string{"there is no address handle 77", "was destroyed"}},
		"no address": {
			own(rdma.WRSend, rdma.WCLocQPOpErr, abi.VendorNoAddress), []string{"has no address"},
		},
		"inline READ": {
			own(rdma.WRRead, rdma.WCLocQPOpErr, abi.VendorInline), []string{"IBV_SEND_INLINE with"},
		},
		"wrong type": {
			own(rdma.WRRead, rdma.WCLocQPOpErr, abi.VendorOpcode), []string{"has no operation READ"},
		},
		"no depth": {
			own(rdma.WRRead, rdma.WCLocQPOpErr, abi.VendorRDAtomic), []string{"max_rd_atomic of this"},
		},
		"bind without local write": {bind, []string{
			"to be bound to", "for remote_write", "likely: the region was registered without local_write",
		}},
		"bind without the right to": {unlocked, []string{"registered without mw_bind"}},
		"invalidate a region": {invalidate, []string{
			"key of a region: key 0x00001234 to be invalidated", "likely: the rkey of ibv_reg_mr",
		}},
	} {
		checkChain(t, name, &tc.cause, tc.want)
	}
}

// TestLikely_MissingRight_SaysWhoWithholdsIt: region, window or queue pair.
func TestLikely_MissingRight_SaysWhoWithholdsIt(t *testing.T) {
	refused := abi.Cause{
		Flags: abi.CauseOfPeer | abi.CauseHasRegion, Opcode: uint8(ib.RCReadRequest), Key: 5,
		Vendor: uint32(abi.VendorRemoteRights), Fault: uint8(mem.FaultRights), Length: 8,
		Asked: uint32(rdma.AccessRemoteRead), Granted: uint32(rdma.AccessRemoteWrite),
		QPAccess: uint32(rdma.AccessRemoteRead), Window: uint8(rdma.MWType2),
	}
	checkChain(t, "window", &refused, []string{
		"the memory window (type 2) is", "likely: the memory window was bound without remote_read",
	})
	refused.Window, refused.QPAccess = 0, 0
	checkChain(t, "both", &refused, []string{
		"likely: the region was registered without remote_read; and qp_access_flags of this",
	})
	refused.Granted = uint32(rdma.AccessRemoteRead)
	checkChain(t, "queue pair", &refused, []string{"likely: qp_access_flags of this queue pair lack"})
}

// TestLikely_Terminate_OfAnAtomic_SaysWhatThisSideCanKnow.
func TestLikely_Terminate_OfAnAtomic_SaysWhatThisSideCanKnow(t *testing.T) {
	c := abi.Cause{
		Flags: abi.CauseHasTerminate | abi.CauseIsTold, Vendor: uint32(abi.VendorTerminate),
		Status: uint32(rdma.WCWRFlushErr), Terminate: uint16(iwarp.CodeOperationOther),
		Opcode: uint8(rdma.WRFetchAdd), Addr: 12, Key: 5, Length: 8,
	}
	checkChain(t, "not aligned", &c, []string{"likely: the remote address 0xc is not a multiple of 8"})
	c.Addr = 16
	checkChain(t, "aligned", &c, []string{"likely: a fault of the receiver, or a limit of it; or an"})
}

// TestLikely_MessageOfTheWrongForm_SaysSo: the code of the Terminate has other causes elsewhere.
func TestLikely_MessageOfTheWrongForm_SaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		op     iwarp.Opcode
		code   iwarp.Code
		vendor abi.Vendor
		want   string
	}{
		"immediate data too short": {
			iwarp.OpcodeImmediate, iwarp.CodeOperationOther, abi.VendorLength,
			"IMMEDIATE has 8 bytes, and came with another length",
		},
		"immediate data too long": {
			iwarp.OpcodeImmediateSolicited, iwarp.CodeUntaggedTooLong, abi.VendorLength,
			"has 8 bytes, and came with another length",
		},
		"READ request in parts": {
			iwarp.OpcodeReadRequest, iwarp.CodeOperationOther, abi.VendorProtocol, "came in parts",
		},
		"atomic of an unknown kind": {
			iwarp.OpcodeAtomicRequest, iwarp.CodeOperationOther, abi.VendorOpcode,
			"likely: the peer asks for an atomic operation that this adapter does not have",
		},
		"atomic that is not aligned": {
			iwarp.OpcodeAtomicRequest, iwarp.CodeOperationOther, abi.VendorAlignment,
			"likely: the peer's remote address is not a multiple of 8",
		},
		"SEND too long": {
			iwarp.OpcodeSend, iwarp.CodeUntaggedTooLong, abi.VendorLength,
			"likely: the two programs disagree about the largest message",
		},
	} {
		checkChain(t, name, &abi.Cause{
			Flags: abi.CauseOfPeer | abi.CauseHasTerminate, Opcode: uint8(tc.op),
			Terminate: uint16(tc.code), Vendor: uint32(tc.vendor),
		}, []string{tc.want})
	}
}

// TestLikely_ReceiveOfAnotherPD_SaysWhoseDomainCounts: a shared queue has one of its own.
func TestLikely_ReceiveOfAnotherPD_SaysWhoseDomainCounts(t *testing.T) {
	c := abi.Cause{
		Flags: abi.CauseOfPeer | abi.CauseTookReceive, Opcode: uint8(ib.RCSendOnly), Key: 5,
		Vendor: uint32(abi.VendorLocalKey), Fault: uint8(mem.FaultPD), Length: 8,
	}
	checkChain(t, "receive", &c, []string{"likely: the region and the receive's queue"})
	c.Vendor, c.Opcode = uint32(abi.VendorRemoteRights), uint8(ib.RCWriteOnlyImm)
	checkChain(t, "write", &c, []string{"likely: region and queue pair were made"})
	c.QPType = uint8(rdma.QPTypeXRCRecv)
	checkChain(t, "XRC", &c, []string{"likely: the region and the shared receive queue that"})
}

// TestFind_VendorErrWithout0x_TellsBothReadings: programs print it with %x.
func TestFind_VendorErrWithout0x_TellsBothReadings(t *testing.T) {
	for query, want := range map[string][]string{
		"vendor_err 6201": {"RNIC_VENDOR_NAK", "SYNDROME_0x62"},
		"vendor err 16":   {"RNIC_VENDOR_RD_ATOMIC", "RNIC_VENDOR_TAGS_FULL"},
		"vendor 1a":       {"RNIC_VENDOR_ALIGNMENT"},
		"vendor_err 0x16": {"RNIC_VENDOR_TAGS_FULL"},
	} {
		got := namesOf(Find(query))
		if !slices.Equal(got, want) {
			t.Errorf("%q finds %v, want %v", query, got, want)
		}
	}
	if got := namesOf(Find("ENXIO")); !slices.Equal(got, []string{"ENXIO"}) {
		t.Errorf("ENXIO finds %v", got)
	}
}
